"""A whole sweep: plan it, run what is missing, put the table together. It may be killed."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from rota.core.errors import InputError
from rota.study.notes import NOBODY_WAITED, RAISE_LOAD
from rota.study.sweep.keys import code_version
from rota.study.sweep.local import RunExecutor
from rota.study.sweep.plan import SweepPlan, make_plan
from rota.study.sweep.spec import Label, Spec
from rota.study.sweep.store import (
    FAILURES,
    RESULTS_CSV,
    RESULTS_PARQUET,
    RUNS,
    SWEEP,
    Runs,
    SweepFolder,
    read_json,
)
from rota.study.sweep.table import (
    POLICY,
    Mean,
    Row,
    csv_bytes,
    make_means,
    make_row,
    make_table,
    parquet_bytes,
)
from rota.study.sweep.work import Failure, SweepTask

SWEEP_VERSION = 1

Told = Callable[[int, int, "Failed | None"], None]
"""Called with (runs done, runs to do, the failure if it is one) at the start and after each run."""


class PlannedCell(msgspec.Struct, frozen=True):
    """A cell of a sweep and the key of its run."""

    labels: dict[str, Label]
    run: str


class Failed(msgspec.Struct, frozen=True):
    """A run that failed."""

    labels: dict[str, Label]
    run: str
    error: str
    trace: str = ""

    def describe(self) -> str:
        """In one line."""
        lines = self.error.strip().splitlines() or ["failed"]
        return f"{_where(self.labels)}: {lines[0]}"


class SweepRecord(msgspec.Struct, frozen=True):
    """What a sweep is (`sweep.json`); `spec` is the description as it was given."""

    sweep: int
    name: str
    rota: str
    axes: list[str]
    baseline: Label
    keep: str
    spec: Any
    cells: list[PlannedCell]
    command: list[str] = []


class SweepOutcome(msgspec.Struct, frozen=True):
    """What became of a sweep: `found` runs were there already, `ran` were done now."""

    folder: Path
    record: SweepRecord
    rows: list[Row]
    failures: list[Failed]
    warnings: list[str] = []
    found: int = 0
    ran: int = 0

    @property
    def table(self) -> pl.DataFrame:
        """One row per run that did not fail, in the order of the matrix."""
        return make_table(self.record.axes, self.rows)

    @property
    def means(self) -> list[Mean]:
        """Means over the seeds."""
        return make_means(self.record.axes, self.rows, self.record.baseline)


def sweep(
    spec: Spec,
    folder: Path,
    executor: RunExecutor,
    *,
    fresh: bool = False,
    command: Sequence[str] = (),
    told: Told | None = None,
) -> SweepOutcome:
    """Do all runs of a sweep that are not done yet.

    Args:
        spec: The sweep.
        folder: Created, or of an earlier sweep, whose runs are used where they are the same.
        executor: Carries out the runs.
        fresh: Do all runs again.
        command: For the manifests.
        told: Called at the beginning and after each run.
    """
    with SweepFolder(folder) as place:
        plan = make_plan(spec, place.workloads, command)
        place.write_json(SWEEP, msgspec.to_builtins(make_record(plan)))

        def write(outcome: SweepOutcome) -> None:
            place.write(RESULTS_CSV, csv_bytes(outcome.table))
            place.write(RESULTS_PARQUET, parquet_bytes(outcome.table))
            place.write_json(FAILURES, msgspec.to_builtins(outcome.failures))

        return run_plan(plan, place, executor, fresh=fresh, told=told, ended=write)


def run_plan(
    plan: SweepPlan,
    place: SweepFolder,
    executor: RunExecutor,
    *,
    fresh: bool = False,
    told: Told | None = None,
    ended: Callable[[SweepOutcome], None] | None = None,
) -> SweepOutcome:
    """Do the runs of a plan that are not done yet.

    Args:
        plan: The runs.
        place: The folder, which is ours.
        executor: Carries them out.
        fresh: Do all of them again.
        told: Called at the beginning and after each run.
        ended: Called with what is there, also when it is interrupted.
    """
    record = make_record(plan)
    missing = missing_tasks(plan, place.runs, fresh=fresh)
    for task in missing:
        place.runs.forget(task.key)
    failures: dict[str, Failure] = {}
    try:
        _carry_out(executor, missing, place.runs, record, failures, told)
    finally:
        outcome = _collect(place.path, record, failures)
        if ended is not None:
            ended(outcome)
    return msgspec.structs.replace(
        outcome,
        warnings=plan.warnings + _warnings(record, place.runs),
        found=len({cell.run for cell in record.cells}) - len(missing),
        ran=len(missing) - len(failures),
    )


def _carry_out(
    executor: RunExecutor,
    tasks: list[SweepTask],
    runs: Runs,
    record: SweepRecord,
    failures: dict[str, Failure],
    told: Told | None,
) -> None:
    labels = {cell.run: cell.labels for cell in reversed(record.cells)}
    if told:
        told(0, len(tasks), None)
    with closing(executor.run(tasks, runs)) as answers:  # an interruption ends its processes now
        for done, (key, failure) in enumerate(answers, start=1):
            failed = None
            if failure is not None:
                failures[key] = failure
                failed = Failed(labels[key], key, failure.error, failure.trace)
            if told:
                told(done, len(tasks), failed)


def make_record(plan: SweepPlan) -> SweepRecord:
    """What is written down of a plan."""
    spec = plan.spec
    cells = [
        PlannedCell(cell.labels, task.key)
        for cell, task in zip(plan.cells, plan.tasks, strict=True)
    ]
    return SweepRecord(
        sweep=SWEEP_VERSION,
        name=spec.name,
        rota=code_version(),
        axes=spec.axes,
        baseline=spec.baseline,
        keep=spec.keep,
        spec=spec.source.data,
        cells=cells,
        command=plan.tasks[0].command if plan.tasks else [],
    )


def missing_tasks(plan: SweepPlan, runs: Runs, *, fresh: bool = False) -> list[SweepTask]:
    """Those without a whole folder, each once."""
    tasks = {task.key: task for task in plan.tasks}
    return [task for task in tasks.values() if fresh or not runs.is_whole(task.key, plan.spec.keep)]


def _collect(folder: Path, record: SweepRecord, failures: dict[str, Failure]) -> SweepOutcome:
    runs = Runs(folder / RUNS)
    rows = []
    failed = []
    for cell in record.cells:
        if cell.run in failures:
            failure = failures[cell.run]
            failed.append(Failed(cell.labels, cell.run, failure.error, failure.trace))
            continue
        summary = runs.summary(cell.run)
        if summary is not None:
            rows.append(make_row(cell.labels, summary, cell.run))
    return SweepOutcome(folder, record, rows, failed)


def _warnings(record: SweepRecord, runs: Runs) -> list[str]:
    """What is wrong with finished runs: each once, with the first run and how many there are."""
    found: dict[str, list[str]] = {}
    waits: dict[str, float] = {}
    for cell in record.cells:
        known, summary = runs.record(cell.run), runs.summary(cell.run)
        for text in known.warnings if known else ():
            found.setdefault(text, []).append(_where(cell.labels))
        if summary is not None:
            point = _where({key: label for key, label in cell.labels.items() if key != POLICY})
            waits[point] = waits.get(point, 0.0) + (summary.get("avg_wait_s") or 0.0)
    idle = [point or "the only point" for point, wait_s in waits.items() if not wait_s]
    return ([f"{NOBODY_WAITED} at {_first(idle, 'more')}: {RAISE_LOAD}"] if idle else []) + [
        f"{_first(cells, 'more runs')}: {text}" for text, cells in found.items()
    ]


def _where(labels: dict[str, Label]) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in labels.items() if value is not None)


def _first(places: Sequence[str], more: str) -> str:
    return f"{places[0]} and {len(places) - 1:,} {more}" if len(places) > 1 else places[0]


def load_sweep(folder: Path) -> SweepOutcome:
    """What is in the folder of a sweep, finished or not.

    Raises:
        InputError: It is no folder of a sweep.
    """
    try:
        record = msgspec.convert(read_json(folder, SWEEP), SweepRecord)
        failed = []
        if (folder / FAILURES).exists():
            failed = msgspec.convert(read_json(folder, FAILURES), list[Failed])
    except msgspec.ValidationError as error:
        raise InputError(f"{folder / SWEEP}: is not a sweep of this Rota ({error})") from error
    if record.sweep != SWEEP_VERSION:
        raise InputError(
            f"{folder / SWEEP}: version {record.sweep}, this Rota reads {SWEEP_VERSION}"
        )
    failures = {item.run: Failure(item.error, item.trace) for item in failed}
    finished = {cell.run for cell in record.cells if (folder / RUNS / cell.run).is_dir()}
    outcome = _collect(
        folder, record, {key: value for key, value in failures.items() if key not in finished}
    )
    warnings = _warnings(record, Runs(folder / RUNS))
    return msgspec.structs.replace(outcome, warnings=warnings)
