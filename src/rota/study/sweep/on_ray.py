"""The same runs on a Ray cluster.

A task travels as data, the files that it needs as bytes in Ray's object store (each once), and what
is to be kept of a run comes back as bytes: machines need Rota in the same version, but no common
file system. Only the machine that drives the sweep writes its folder.
"""

import logging
import shutil
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rota.core.errors import OptionError, install
from rota.study.inputs import InputFile, content
from rota.study.sweep.local import Answers
from rota.study.sweep.store import Runs
from rota.study.sweep.work import Failure, SweepTask, write_files

RETRIES = 1
AHEAD = 2  # tasks in flight per CPU: enough to keep all busy, few enough to hold their results

Packet = tuple[dict[str, bytes], list[str]]
"""The files of a run, and its warnings."""


class OnRay:
    """On a Ray cluster.

    Args:
        address: Of the cluster (`auto`: the one of this machine); None: start one here.
    """

    def __init__(self, address: str | None = "auto") -> None:
        try:
            import ray
        except ImportError as error:
            raise OptionError(
                f"--on ray needs Ray ({error}): {install('ray')}, or use --on local"
            ) from error
        self._ray = ray
        self._address = address

    def run(self, tasks: Sequence[SweepTask], runs: Runs) -> Answers:
        """See `Executor`."""
        ray = self._ray
        mine = not ray.is_initialized()
        if mine:
            self._connect()
        try:
            yield from self._feed(deque(tasks), runs)
        finally:
            if mine:
                ray.shutdown()

    def _connect(self) -> None:
        try:
            self._ray.init(
                address=self._address, log_to_driver=False, logging_level=logging.ERROR,
                include_dashboard=False if self._address is None else None,
            )  # fmt: skip
        except (ConnectionError, ValueError) as error:
            raise OptionError(
                f"--ray-address {self._address}: no Ray cluster answers ({error}): "
                f"start one with `ray start --head`, or use --on local"
            ) from error

    def _feed(self, waiting: deque[SweepTask], runs: Runs) -> Answers:
        ray = self._ray
        work = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_remote)
        stored: dict[str, Any] = {}
        flying: dict[Any, SweepTask] = {}
        while waiting or flying:
            most = max(1, AHEAD * int(ray.cluster_resources().get("CPU", 1)))
            while waiting and len(flying) < most:
                task = waiting.popleft()
                files = [self._put(file, stored) for file in task.inputs]
                flying[work.remote(task, *files)] = task
            done, _ = ray.wait(list(flying))
            for reference in done:
                task = flying.pop(reference)
                yield task.key, self._fetch(reference, task, runs)

    def _put(self, file: InputFile, stored: dict[str, Any]) -> Any:
        if file.sha256 not in stored:
            stored[file.sha256] = self._ray.put(content(file))
        return stored[file.sha256]

    def _fetch(self, reference: Any, task: SweepTask, runs: Runs) -> Failure | None:
        try:
            answer: Packet | Failure = self._ray.get(reference)
            if isinstance(answer, Failure):
                return answer
            runs.publish(task.key, lambda folder: _unpack(answer, folder))
        except (self._ray.exceptions.RayError, OSError) as error:
            return Failure.of(error)
        return None


def _unpack(packet: Packet, folder: Path) -> list[str]:
    files, warnings = packet
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return warnings


def unpack_inputs(
    inputs: Sequence[InputFile], contents: Sequence[bytes | None], place: Path
) -> dict[str, str]:
    """Write files elsewhere; returns where each is now.

    They keep their names, which formats may look at; those of one folder stay together.
    """
    moved: dict[str, str] = {}
    folders: dict[Path, Path] = {}
    for file, data in zip(inputs, contents, strict=True):
        path = Path(file.path)
        folder = path if data is None else path.parent
        here = folders.setdefault(folder, place / str(len(folders)) / folder.name)
        here.mkdir(parents=True, exist_ok=True)
        if data is None:
            moved[file.path] = str(here)
        else:
            (here / path.name).write_bytes(data)
            moved[file.path] = str(here / path.name)
    return moved


def _remote(task: SweepTask, *contents: bytes | None) -> Packet | Failure:
    """What a machine of the cluster does."""
    place = Path(tempfile.mkdtemp(prefix="rota-sweep-"))
    try:
        moved = unpack_inputs(task.inputs, contents, place)
        out = place / "run"
        out.mkdir()
        warnings = write_files(task, out, moved)
        return {path.name: path.read_bytes() for path in out.iterdir()}, warnings
    except Exception as error:  # noqa: BLE001 - a policy of a user may raise anything
        return Failure.of(error)
    finally:
        shutil.rmtree(place, ignore_errors=True)
