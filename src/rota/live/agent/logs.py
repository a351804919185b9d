"""Reads the output of jobs: one stream for each job and rank of a node, with its rotated parts.

`out` and `err` are files that the job writes itself; `all` is both in the order in which they were
written, as far as somebody noted it (see `shim.note_order`). An offset in `all` is the sum of the
offsets in the two.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rota.live.agent import shim
from rota.live.agent.folders import folder_name
from rota.live.agent.messages import LogPiece, LogRequest

BOTH = "all"
STREAMS = ("out", "err", BOTH)
LONGEST = 1 << 20  # bytes in one piece
TRIES = 5  # while the output is being rotated


class _Output(NamedTuple):
    """An output file and its older parts: (offset, size, file), oldest first."""

    parts: list[tuple[int, int, str]]

    @classmethod
    def of(cls, path: Path, copies: list[tuple[int, int, str]]) -> "_Output":
        base = copies[-1][0] + copies[-1][1] if copies else 0
        return cls([*copies, (base, path.stat().st_size, str(path))])

    @property
    def start(self) -> int:
        return self.parts[0][0]

    @property
    def end(self) -> int:
        return self.parts[-1][0] + self.parts[-1][1]

    def read(self, offset: int, limit: int) -> bytes:
        """Bytes from there on, of one of its parts; empty at the end."""
        for first, size, name in self.parts:
            if offset < first + size:
                with Path(name).open("rb") as file:
                    file.seek(offset - first)
                    return file.read(limit)
        return b""


def log_file(jobs: Path, job: str, stream: str, node_rank: int) -> Path:
    """Where the newest part of an output is."""
    return jobs / folder_name(job) / "logs" / f"{node_rank}.{stream}"


def read_piece(jobs: Path, request: LogRequest) -> LogPiece:
    """A piece of an output; errors are part of the answer."""
    if request.stream not in STREAMS or request.offset < 0 or request.node_rank < 0:
        return LogPiece(request.id, error="there is no such output: ask for out, err or all")
    path = log_file(jobs, request.job, request.stream, request.node_rank)
    limit = max(0, min(request.limit, LONGEST))
    try:
        if request.stream == BOTH:
            data, start, end = read_both(path.with_suffix(""), request.offset, limit)
        else:
            data, start, end = _read_one(path, request.offset, limit)
        since = path.parent / "since"
        since_s = since.stat().st_mtime if since.exists() else 0.0
    except FileNotFoundError:
        return LogPiece(request.id)
    except OSError as error:
        return LogPiece(request.id, error=f"cannot read {path.name}: {error.strerror}")
    return LogPiece(request.id, data, start, end, since_s)


def _read_one(path: Path, offset: int, limit: int) -> tuple[bytes, int, int]:
    data, start, end = b"", 0, 0
    for _ in range(TRIES):
        before = shim.rotated(str(path))
        output = _Output.of(path, before)
        start, end = output.start, output.end
        data = output.read(offset, limit) if offset >= start else b""
        if shim.rotated(str(path)) == before:
            break
    return data, start, end


# --- both together --------------------------------------------------------------------------------


def read_both(stem: Path, offset: int, limit: int) -> tuple[bytes, int, int]:
    """A piece of both outputs (`stem.out`, `stem.err`) in their order; where that begins and ends.

    What nobody noted yet is noted now: a shim that died, a job of an older version, another
    backend.
    """
    paths = tuple(stem.with_name(f"{stem.name}.{name}") for name in ("out", "err"))
    if not any(path.exists() for path in paths):
        raise FileNotFoundError(stem)
    with shim.ordering(str(stem.with_name(f"{stem.name}.order"))) as fd:
        shim.note_order(fd, str(paths[0]), str(paths[1]))
        entries = _Entries(fd)
        outputs = [
            _Output.of(path, shim.rotated(str(path))) if path.exists() else _Output([(0, 0, "")])
            for path in paths
        ]
        first = entries.first_with(outputs[0].start, outputs[1].start)
        start, end = sum(entries[first]), sum(entries[len(entries) - 1])
        if not start <= offset < end or not limit:
            return b"", start, end
        data = b""
        for stream, at, size in entries.pieces(offset):
            piece = outputs[stream].read(at, min(size, limit - len(data)))
            data += piece
            if len(data) >= limit or len(piece) < size:  # the next part of it comes next time
                break
        return data, start, end


class _Entries:
    """The entries of the order of output."""

    def __init__(self, fd: int) -> None:
        self._data = b"".join(_pieces_of(fd))

    def __len__(self) -> int:
        return len(self._data) // shim.RECORD

    def __getitem__(self, number: int) -> tuple[int, int]:
        if number >= len(self):
            raise IndexError(number)
        at = number * shim.RECORD
        return int(self._data[at : at + 16], 16), int(self._data[at + 17 : at + 33], 16)

    def first_with(self, out: int, err: int) -> int:
        """The first entry from which on nothing is missing."""
        numbers = range(len(self))
        found = max(
            bisect_left(numbers, out, key=lambda number: self[number][0]),
            bisect_left(numbers, err, key=lambda number: self[number][1]),
        )
        return min(found, len(self) - 1)

    def pieces(self, offset: int) -> Iterator[tuple[int, int, int]]:
        """(stream, offset in it, bytes) from an offset in both on."""
        number = bisect_right(range(len(self)), offset, key=lambda each: sum(self[each]))
        while number < len(self):
            before, after = self[number - 1], self[number]
            stream = 0 if after[0] > before[0] else 1
            passed = max(0, offset - sum(before))
            yield stream, before[stream] + passed, sum(after) - sum(before) - passed
            number += 1


def _pieces_of(fd: int) -> Iterator[bytes]:
    """The content of a small file, from its beginning."""
    at = 0
    while piece := os.pread(fd, LONGEST, at):
        yield piece
        at += len(piece)
