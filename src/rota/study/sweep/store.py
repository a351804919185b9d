"""The folder of a sweep.

- `runs/KEY/`: one folder per run, as of `rota simulate`, with `run.json` (hashes of its files). It
  is written beside under another name and then renamed: it is there whole or not at all.
- `workloads/`: jobs that were drawn or whose load was changed.
- `sweep.json`: the description, and the key of every cell.
- `results.csv`, `results.parquet`: one row per run. `failures.json`: runs that failed.
- `.lock`: held while a sweep writes; the system lets go of it when the process ends, however.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from rota.core.errors import InputError, OutputError
from rota.study.inputs import hash_file
from rota.study.output import EVENTS, JOBS, MANIFEST, SUMMARY, dump

RUN, RUNS, WORKLOADS = "run.json", "runs", "workloads"
SWEEP, FAILURES, LOCK = "sweep.json", "failures.json", ".lock"
RESULTS_CSV, RESULTS_PARQUET = "results.csv", "results.parquet"
KEPT = {
    "all": (JOBS, SUMMARY, EVENTS, MANIFEST),
    "jobs": (JOBS, SUMMARY, MANIFEST),
    "summary": (SUMMARY, MANIFEST),
}
"""Files of a run by the `keep` of a sweep."""
_OWN = {RUNS, WORKLOADS, SWEEP, FAILURES, LOCK, RESULTS_CSV, RESULTS_PARQUET}
_PART = ".part"


class RunRecord(msgspec.Struct, frozen=True):
    """What is in the folder of a run (`run.json`)."""

    key: str
    files: dict[str, str]
    warnings: list[str] = []


class Runs:
    """The finished runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where a run is, or will be."""
        return self.folder / key

    def is_whole(self, key: str, keep: str) -> bool:
        """It is there with all files that are to be kept, and none was damaged."""
        place = self.path(key)
        record = self.record(key)
        return (
            record is not None
            and record.key == key
            and set(KEPT[keep]) <= set(record.files)
            and all(
                (place / name).is_file() and hash_file(place / name) == digest
                for name, digest in record.files.items()
            )
        )

    def record(self, key: str) -> RunRecord | None:
        """What a run says of itself; None if it is not there or cannot be read."""
        try:
            return msgspec.json.decode((self.path(key) / RUN).read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def summary(self, key: str) -> dict[str, Any] | None:
        """The numbers of a run; None if they are not there."""
        try:
            data = msgspec.json.decode((self.path(key) / SUMMARY).read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return data if isinstance(data, dict) else None

    def publish(self, key: str, fill: Callable[[Path], list[str]]) -> None:
        """Let `fill` write the files of a run (it returns its warnings), then make it appear."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f".{key}.{os.getpid()}{_PART}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            warnings = fill(part)
            files = {path.name: hash_file(path) for path in sorted(part.iterdir())}
            record = RunRecord(key, files, warnings)
            (part / RUN).write_text(dump(msgspec.to_builtins(record)), encoding="utf-8")
            self.forget(key)
            part.rename(self.path(key))
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def forget(self, key: str) -> None:
        """Remove a run, if it is there."""
        shutil.rmtree(self.path(key), ignore_errors=True)

    def sweep_up(self) -> None:
        """Remove what killed processes left unfinished."""
        for part in self.folder.glob(f".*{_PART}"):
            shutil.rmtree(part, ignore_errors=True)


class SweepFolder:
    """A context: the folder is ours while we are in it.

    Raises:
        OutputError: Another sweep writes here, it holds something else, or it cannot be written.
    """

    def __init__(self, path: Path, marker: str = SWEEP) -> None:
        """Name the folder, and the file by which it is known as one of these."""
        self.path = path
        self._marker = marker
        self.runs = Runs(path / RUNS)
        self.workloads = path / WORKLOADS
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self._refuse_strangers()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            self._acquire()
        except OSError as error:
            self._release()
            raise OutputError(
                f"{self.path}: cannot be written ({error.strerror}): "
                f"choose a folder that you may write to with -o"
            ) from error
        self.runs.sweep_up()
        return self

    def _refuse_strangers(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path}: is a file: name a folder with -o")
        if self.path.is_dir() and not (self.path / self._marker).exists():
            others = sorted(path.name for path in self.path.iterdir() if path.name not in _OWN)
            if others:
                raise OutputError(
                    f"{self.path}: holds other things ({others[0]}, ...) and no "
                    f"{Path(self._marker).stem}: choose another folder with -o"
                )

    def _acquire(self) -> None:
        lock = self._lock
        if lock is None:  # pragma: no cover - opened just before
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(lock, 20, 0).decode(errors="replace").strip()
            self._release()
            raise OutputError(
                f"{self.path}: another sweep writes here (process {owner or 'unknown'}): "
                f"wait for its end, or choose another folder with -o"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def write(self, name: str, content: bytes) -> None:
        """Replace a file; readers see the old or the new one."""
        part = self.path / f".{name}{_PART}"
        try:
            part.write_bytes(content)
            part.replace(self.path / name)
        except OSError as error:
            raise OutputError(
                f"{self.path / name}: cannot be written ({error.strerror})"
            ) from error

    def write_json(self, name: str, data: Any) -> None:
        """Replace a file by readable JSON."""
        self.write(name, dump(data).encode())


def read_json(folder: Path, name: str, maker: str = "rota sweep") -> Any:
    """A file of a sweep, or of what `maker` made with the runs of one."""
    path = folder / name
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}): name a folder that `{maker}` made"
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is not JSON ({error}): run `{maker}` again") from error
