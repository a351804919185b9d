"""Files of the Slurm backend, on a file system that the nodes share with the daemon.

jobs/JOB/{work,checkpoint,logs}  what stays between the runs of a job
runs/RUN/                        see `rota.live.drivers.slurm.script`
links/NUMBER -> ../runs/RUN      the run that a Slurm job carries out
bootstrap.sh                     what is submitted
"""

import contextlib
import re
import secrets
import shutil
from pathlib import Path

import msgspec

from rota.core.errors import ClusterError
from rota.live.agent.logs import BOTH, read_both
from rota.live.driver import RunOrder
from rota.live.drivers.slurm import script
from rota.live.drivers.slurm.names import plain
from rota.live.drivers.slurm.request import SbatchRequest

PRIVATE = 0o700
STREAMS = ("out", "err", BOTH)
LONGEST = 1 << 20  # bytes of output in one piece
END = re.compile(r"(\d+) ([01]) ([\d.]+) (setup|run)\n")


class End(msgspec.Struct, frozen=True, order=True):
    """How the processes of one node ended."""

    time_s: float
    code: int
    asked: bool
    phase: str


class SlurmFolders:
    """The root folder of a driver."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._jobs, self._runs = self.root / "jobs", self.root / "runs"
        self._links = self.root / "links"
        self.bootstrap = self.root / "bootstrap.sh"
        try:
            for folder in (self.root, self._jobs, self._runs, self._links):
                folder.mkdir(PRIVATE, parents=True, exist_ok=True)
            self._replace(self.bootstrap, script.bootstrap(str(self._links)))
        except OSError as error:
            raise ClusterError(f"cannot use {root} as the folder of runs: {error}") from error

    def _replace(self, path: Path, text: str) -> None:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        part.write_text(text, encoding="utf-8", errors="surrogateescape")
        part.chmod(PRIVATE)
        part.replace(path)

    # --- before a run ----------------------------------------------------------------------------

    def run(self, run: str) -> Path:
        """The folder of a run."""
        return self._runs / plain("run", run)

    def job(self, job: str) -> Path:
        """The folder of a job."""
        return self._jobs / plain("job", job)

    def slurm_log(self, job: str) -> Path:
        """What Slurm itself has to say about a job."""
        return self.job(job) / "logs" / "slurm"

    def write(self, order: RunOrder, request: SbatchRequest, master: str) -> None:
        """Make the folder of a run appear with all its files, if it is not there yet."""
        path = self.run(order.run)
        if path.exists():
            return
        new = self._runs / f".{secrets.token_hex(8)}"
        try:
            (new / "nodes").mkdir(PRIVATE, parents=True)
            for name, text in self._files(order, request, master).items():
                self._replace(new / name, text)
            new.rename(path)
        except (OSError, ClusterError) as error:
            shutil.rmtree(new, ignore_errors=True)
            if isinstance(error, OSError):
                raise ClusterError(f"cannot write {path}: {error}", retryable=True) from error
            raise

    def _files(self, order: RunOrder, request: SbatchRequest, master: str) -> dict[str, str]:
        launch = order.launch
        path, job = self.run(order.run), self.job(order.job)
        places = {name: str(job / name) for name in ("work", "checkpoint", "logs")}
        if launch.workdir:
            places["work"] = launch.workdir
        if launch.checkpoint_dir:
            places["checkpoint"] = launch.checkpoint_dir
        places["report"] = str(path / "report")
        for name in ("work", "checkpoint", "logs"):
            (job / name).mkdir(PRIVATE, parents=True, exist_ok=True)
        files = {
            "batch.sh": script.batch_script(str(path), order, len(request.components)),
            "node.sh": script.NODE,
            "run.sh": launch.run,
            "setup.sh": launch.setup,
        }
        for part in order.parts:
            files[script.node_file_name(part)] = script.node_file(order, part, places, master)
        return files

    def link(self, number: int, run: str) -> None:
        """The Slurm job with this number shall carry out this run."""
        part = self._links / f".{number}.{secrets.token_hex(4)}"
        try:
            part.symlink_to(self.run(run))
            part.replace(self._links / str(number))
        except OSError as error:
            raise ClusterError(f"cannot write {part}: {error}", retryable=True) from error

    # --- during and after a run ------------------------------------------------------------------

    def started(self, run: str) -> bool:
        """Has Slurm started it?"""
        return (self.run(run) / "claimed").is_dir()

    def ready(self, order: RunOrder) -> bool:
        """Is the setup over on every node?"""
        path = self.run(order.run)
        return all((path / f"ready.{part.node_rank}").exists() for part in order.parts)

    def began_unix(self, order: RunOrder) -> float | None:
        """When the last of its nodes had started its processes; None if that was not recorded."""
        times = []
        for part in order.parts:
            with contextlib.suppress(OSError, ValueError):  # a run of an older version: empty
                times.append(float((self.run(order.run) / f"ready.{part.node_rank}").read_text()))
        return max(times) if times and len(times) == len(order.parts) else None

    def finished(self, order: RunOrder) -> bool:
        """Have all nodes recorded an end?"""
        path = self.run(order.run)
        return all((path / f"end.{part.node_rank}").exists() for part in order.parts)

    def ends(self, order: RunOrder) -> list[End]:
        """How it ended on those nodes that could tell, by time."""
        found = []
        for part in order.parts:
            with contextlib.suppress(OSError):
                text = (self.run(order.run) / f"end.{part.node_rank}").read_text()
                match = END.fullmatch(text)
                if match:
                    code, asked, time_s, phase = match.groups()
                    found.append(End(float(time_s), int(code), asked == "1", phase))
        return sorted(found)

    def note_order(self, order: RunOrder) -> None:
        """Note how far its outputs have come, so that they can be read together in their order."""
        logs = self.job(order.job) / "logs"
        for part in order.parts:
            with contextlib.suppress(OSError):
                read_both(logs / str(part.node_rank), 0, 0)

    def reports(self, run: str, offset: int) -> tuple[dict[str, float], int]:
        """The last numbers of each name after an offset, and the new offset."""
        try:
            with (self.run(run) / "report").open("rb") as file:
                file.seek(offset)
                text = file.read(LONGEST)
        except OSError:
            return {}, offset
        whole, newline, _ = text.rpartition(b"\n")
        values: dict[str, float] = {}
        for line in whole.splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                values.update(msgspec.json.decode(line, type=dict[str, float]))
        return values, offset + len(whole) + len(newline)

    def forget(self, run: str, number: int | None) -> None:
        """Remove the traces of a run; the folder of its job stays."""
        if number is not None:
            link = self._links / str(number)
            with contextlib.suppress(OSError):
                if link.readlink() == self.run(run):
                    link.unlink()
        shutil.rmtree(self.run(run), ignore_errors=True)

    def read_log(self, job: str, stream: str, node_rank: int, offset: int, limit: int) -> bytes:
        """A piece of the output of a job."""
        if stream not in STREAMS or node_rank < 0:
            raise ClusterError("there is no such output: ask for out, err or all")
        path = self.job(job) / "logs" / f"{node_rank}.{stream}"
        limit = max(0, min(limit, LONGEST))
        try:
            if stream == BOTH:
                if offset < 0:
                    offset = max(0, read_both(path.with_suffix(""), 0, 0)[2] + offset)
                return read_both(path.with_suffix(""), offset, limit)[0]
            with path.open("rb") as file:
                file.seek(offset if offset >= 0 else max(0, path.stat().st_size + offset))
                return file.read(limit)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ClusterError(f"cannot read {path.name}: {error.strerror}") from error
