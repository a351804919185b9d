"""The output of jobs on Ray, copied to the daemon: it outlives actors and nodes."""

import contextlib
import threading
from pathlib import Path

from rota.core.errors import ClusterError
from rota.live.agent.folders import folder_name
from rota.live.agent.logs import BOTH, STREAMS, read_both
from rota.live.agent.shim import RECORD
from rota.live.drivers.ray.port import RayPort

LONGEST = 1 << 20  # of one answer
MOST = 64 << 20  # bytes of an output of a run that are copied at a time
PRIVATE = 0o700


class RayLogs:
    """A folder for each run and rank of a job: `JOB/RANK/RUN/0.out`, `0.err` and their order."""

    def __init__(self, port: RayPort, folder: Path) -> None:
        self._port = port
        self._folder = folder
        self._lock = threading.Lock()

    def fetch(self, job: str, run: str, rank: int, *, ended: bool = False) -> None:
        """Copy what a part has written since the last time; raises if Ray does not tell.

        Only as far as its shim has noted the order of the two outputs, unless the part has ended.
        """
        place = self._folder / folder_name(job) / str(rank) / f"{_number(run):06d}"
        with self._lock:
            order = self._all(run, rank, "order")
            known = len(order) // RECORD * RECORD
            if not known and not ended:
                return
            place.mkdir(PRIVATE, parents=True, exist_ok=True)
            last = order[known - RECORD : known]
            for name, noted in (("out", last[:16]), ("err", last[17:33])):
                self._copy(run, rank, place / f"0.{name}", None if ended else int(noted, 16))
            if known:
                part = place / "order.part"
                part.write_bytes(order[:known])
                part.replace(place / "0.order")

    def _all(self, run: str, rank: int, name: str) -> bytes:
        """A small file."""
        found = b""
        while piece := self._port.read(run, rank, name, len(found), LONGEST)[1]:
            found += piece
        return found

    def _copy(self, run: str, rank: int, path: Path, until: int | None) -> None:
        """Copy an output, from where the copy ends; what was rotated away meanwhile is left out."""
        size = path.stat().st_size if path.exists() else 0
        path.touch(0o600)
        for _ in range(MOST // LONGEST):
            limit = LONGEST if until is None else min(LONGEST, until - size)
            at, piece = self._port.read(run, rank, path.name[2:], size, limit)
            if limit <= 0 or not piece:
                return
            with path.open("r+b") as file:  # a gap takes no room on the disk
                file.seek(at)
                file.write(piece)
            size = at + len(piece)

    def read(self, job: str, stream: str, rank: int, offset: int, limit: int) -> bytes:
        """A piece of what was copied; the runs of a job are one stream."""
        if stream not in STREAMS or rank < 0:
            raise ClusterError("there is no such output: ask for out, err or all")
        places = sorted((self._folder / folder_name(job) / str(rank)).glob("[0-9]*"))
        sizes = [_size(place, stream) for place in places]
        at = offset if offset >= 0 else max(0, sum(sizes) + offset)
        left, found = max(0, min(limit, LONGEST)), b""
        for place, size in zip(places, sizes, strict=True):
            if at < size and left:
                piece = _piece(place, stream, at, min(left, size - at))
                found += piece
                left -= len(piece)
                if at + len(piece) < size:
                    break
                at = size
            at -= size
        return found


def _number(run: str) -> int:
    return int(run.rpartition(".")[2])


def _size(place: Path, stream: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        if stream == BOTH:
            return read_both(place / "0", 0, 0)[2]
        return (place / f"0.{stream}").stat().st_size
    return 0


def _piece(place: Path, stream: str, offset: int, limit: int) -> bytes:
    if stream == BOTH:
        return read_both(place / "0", offset, limit)[0]
    with (place / f"0.{stream}").open("rb") as file:
        file.seek(offset)
        return file.read(limit)
