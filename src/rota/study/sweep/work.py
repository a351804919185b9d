"""One run of a sweep, as data that can travel, and what is done with it where it arrives."""

import traceback
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota.core.errors import RotaError
from rota.study.config import RunConfig
from rota.study.inputs import InputFile, with_names
from rota.study.output import MANIFEST, dump, read_manifest, write_run
from rota.study.run import simulate
from rota.study.sweep.keys import code_version
from rota.study.sweep.store import KEPT, Runs
from rota.study.workloads import jobs_of, load_again


class SweepTask(msgspec.Struct, frozen=True):
    """A run to be done: its address, its configuration with full paths, and its files.

    `code` is the version of Rota that the address is for.
    """

    key: str
    config: RunConfig
    inputs: list[InputFile]
    keep: str
    command: list[str]
    code: str


class Failure(msgspec.Struct, frozen=True):
    """Why a run failed, in one line, and where."""

    error: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """From what was raised."""
        text = str(error) if isinstance(error, RotaError) else f"{type(error).__name__}: {error}"
        return cls(text, "".join(traceback.format_exception(error)))


def write_files(
    task: SweepTask,
    folder: Path,
    moved: Mapping[str, str] | None = None,
    *,
    again: bool = False,
) -> list[str]:
    """Carry out a run and write what is to be kept of it into an empty folder.

    Args:
        task: The run.
        folder: Exists and is empty.
        moved: Where files of the task are on this machine, by their paths in the task.
        again: The jobs are kept for the next run on the same ones.

    Returns:
        What a careful reader of the result must know.
    """
    if code_version() != task.code:
        raise RotaError(
            f"this process has Rota {code_version()}, the sweep was started with {task.code}: "
            f"have the same everywhere, and run it again"
        )
    config = _relocated(task, moved or {})
    result = simulate(config, workload=load_again(jobs_of(config)) if again else None)
    write_run(result, folder, task.command)
    # The manifest speaks of the files where the sweep has them, not of copies elsewhere.
    manifest = msgspec.structs.replace(
        read_manifest(folder), config=task.config, inputs=task.inputs
    )
    (folder / MANIFEST).write_text(dump(msgspec.to_builtins(manifest)), encoding="utf-8")
    for path in folder.iterdir():
        if path.name not in KEPT[task.keep] and path.name in KEPT["all"]:
            path.unlink()
    return result.warnings


def _relocated(task: SweepTask, moved: Mapping[str, str]) -> RunConfig:
    named = [(file, moved[file.path]) for file in task.inputs if file.path in moved]
    return with_names(task.config, named)


def attempt(task: SweepTask, runs: Runs, *, again: bool = False) -> Failure | None:
    """Carry out a run and put it among the others; what went wrong is returned, not raised."""
    try:
        runs.publish(task.key, lambda folder: write_files(task, folder, again=again))
    except Exception as error:  # noqa: BLE001 - a policy of a user may raise anything
        return Failure.of(error)
    return None
