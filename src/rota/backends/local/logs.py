"""Reads the output of jobs: one stream for each job and rank of a node, with its rotated parts."""

from pathlib import Path

from rota.backends.local import shim
from rota.backends.local.messages import LogPiece, LogRequest
from rota.backends.local.names import folder_name

STREAMS = ("out", "err")
LONGEST = 1 << 20  # bytes in one piece
TRIES = 5  # while the output is being rotated


def log_file(jobs: Path, job: str, stream: str, node_rank: int) -> Path:
    """Where the newest part of an output is."""
    return jobs / folder_name(job) / "logs" / f"{node_rank}.{stream}"


def read_piece(jobs: Path, request: LogRequest) -> LogPiece:
    """A piece of an output; what went wrong is told in the answer."""
    if request.stream not in STREAMS or request.offset < 0 or request.node_rank < 0:
        return LogPiece(request.id, error="there is no such output: ask for out or err")
    path = log_file(jobs, request.job, request.stream, request.node_rank)
    piece = LogPiece(request.id)
    try:
        for _ in range(TRIES):
            before = shim.rotated(str(path))
            piece = _read(path, before, request)
            if shim.rotated(str(path)) == before:
                break
    except FileNotFoundError:
        return LogPiece(request.id)
    except OSError as error:
        return LogPiece(request.id, error=f"cannot read {path.name}: {error.strerror}")
    return piece


def _read(path: Path, copies: list[tuple[int, int, str]], request: LogRequest) -> LogPiece:
    base = copies[-1][0] + copies[-1][1] if copies else 0
    status = path.stat()
    start, end = copies[0][0] if copies else 0, base + status.st_size
    since = (path.parent / "since").stat().st_mtime if (path.parent / "since").exists() else 0.0
    limit = max(0, min(request.limit, LONGEST))
    if request.offset < start:
        return LogPiece(request.id, b"", start, end, since)
    for offset, size, name in (*copies, (base, status.st_size, str(path))):
        if request.offset < offset + size:
            with Path(name).open("rb") as file:
                file.seek(request.offset - offset)
                return LogPiece(request.id, file.read(limit), start, end, since)
    return LogPiece(request.id, b"", start, end, since)
