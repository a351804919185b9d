"""The output of pods, kept in files: it outlives the pods, and is read once."""

import threading
from pathlib import Path

from rota.core.errors import ClusterError
from rota.live.drivers.kubernetes.api import NOT_FOUND, KubeApi, KubeError
from rota.live.drivers.kubernetes.manifest import CONTAINER

STREAMS = ("out", "err", "all")
LONGEST = 1 << 20  # of one answer
MOST = 16 << 20  # of one request to Kubernetes


class PodLogs:
    """One file for each pod of a job, in the order of its runs: `JOB/RANK/RUN.log`.

    Kubernetes keeps stdout and stderr of a container together, and gives lines with their times:
    by these what is new is recognised. The time of the last line that was taken is kept beside it.
    """

    def __init__(self, api: KubeApi, folder: Path, namespace: str) -> None:
        self._api = api
        self._folder = folder
        self._namespace = namespace
        self._lock = threading.Lock()

    def fetch(self, job: str, number: int, rank: int, pod: str) -> None:
        """Take what a pod has written since the last time; raises if Kubernetes does not tell."""
        with self._lock:
            place = self._folder / _plain(job) / str(rank)
            place.mkdir(parents=True, exist_ok=True)
            file, mark = place / f"{number:06d}.log", place / f"{number:06d}.time"
            last = mark.read_text() if mark.exists() else ""
            query = {"container": CONTAINER, "timestamps": "true", "limitBytes": str(MOST)}
            if last:
                query["sinceTime"] = last[:19] + "Z"
            path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/log"
            try:
                text = self._api.text(path, **query)
            except KubeError as error:
                if error.status == NOT_FOUND or not error.retryable:
                    return  # nothing was started yet, or nothing is kept any more
                raise
            fresh, newest = newer(text, last)
            if fresh:
                with file.open("ab") as out:
                    out.write(fresh)
                mark.write_text(newest)

    def read(self, job: str, stream: str, rank: int, offset: int, limit: int) -> bytes:
        """A piece of what was taken."""
        if stream not in STREAMS or rank < 0:
            raise ClusterError("there is no such output: ask for out, err or all")
        if stream == "err":
            raise ClusterError(
                "Kubernetes keeps stdout and stderr of a container together: ask without --stderr"
            )
        files = sorted((self._folder / _plain(job) / str(rank)).glob("*.log"))
        sizes = [file.stat().st_size for file in files]
        at = offset if offset >= 0 else max(0, sum(sizes) + offset)
        left, found = max(0, min(limit, LONGEST)), b""
        for file, size in zip(files, sizes, strict=True):
            if at < size and left:
                with file.open("rb") as data:
                    data.seek(at)
                    piece = data.read(min(left, size - at))
                found += piece
                left -= len(piece)
                at = size
            at -= size
        return found


def newer(text: bytes, last: str) -> tuple[bytes, str]:
    """Lines after the time of the last one, without their times; and the time of the newest."""
    fresh, newest = bytearray(), last
    for line in text.splitlines(keepends=True):
        stamp, _, rest = line.partition(b" ")
        time = stamp.decode("ascii", "replace")
        if _comparable(time) > _comparable(last):
            fresh += rest
            newest = time
    return bytes(fresh), newest


def _comparable(time: str) -> str:
    """RFC 3339 leaves out zeros at the end of the fraction."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    return f"{whole}.{fraction:0<9}" if time else ""


def _plain(job: str) -> str:
    if not job or not all(c.isalnum() or c in "._-" for c in job) or job.startswith("."):
        raise ClusterError(f"there is no job {job!r}")
    return job
