"""One row per job, in the order of the trace: the table `jobs.csv`.

| column | meaning; empty = never |
| --- | --- |
| job_id, tenant, gpus, submit_s | as submitted (`gpus`: of all tasks together) |
| first_start_s | first time that it, or one of its tasks, was given GPUs |
| end_s | when it was done, failed or cancelled; never for rejected and unfinished jobs |
| jct_s | end_s - submit_s |
| wait_s | jct_s minus the time in which it made progress: waiting and overhead together |
| service_gpu_s | GPUs held times time making progress, whatever the rate; no overhead |
| preemptions | times that it was stopped in favour of others (failures of nodes do not count) |
| migrations | times that it was moved or resized without going back to the queue |
| state | done, failed, rejected, cancelled or unfinished |
| deadline_s | when it was to be done; a log alone does not tell |
| tardiness_s | by how much it was done too late, 0 if it was in time; only with a deadline |
| resizes | times that it went on with another number of GPUs (each is one of its migrations) |
| mean_gpus | GPUs that it held on average while it made progress |
| work_s | its run time with what it asked for, undisturbed; a log alone does not tell |

A column of whole numbers is written without decimal points; in any other every number has one.

Tasks of a non-gang job are folded into its row: it makes progress while any of its tasks does, its
GPU-seconds and counts are sums over them, and it ends when the last of them has.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import polars as pl

from rota.core.eventlog import Floats, Ints
from rota.core.log import ON_REQUEST, Record
from rota.metrics.history import OVER, RUNS, History, read_history

COLUMNS = (
    "job_id", "tenant", "gpus", "submit_s", "first_start_s", "end_s", "wait_s", "jct_s",
    "service_gpu_s", "preemptions", "migrations", "state", "deadline_s", "tardiness_s", "resizes",
    "mean_gpus", "work_s",
)  # fmt: skip
STATES = {
    Record.DONE: "done",
    Record.FAILED: "failed",
    Record.REJECTED: "rejected",
    Record.CANCELLED: "cancelled",
    Record.TIMEOUT: "timeout",
}
UNFINISHED = "unfinished"


def fold_jobs(
    log: pl.DataFrame | History,
    deadlines_s: Floats | None = None,
    works_s: Floats | None = None,
) -> pl.DataFrame:
    """The table of jobs; numbers that do not exist are null.

    Args:
        log: The log or its history.
        deadlines_s: Of every job on the clock of the log, inf for none; the log does not hold them.
        works_s: Of every job the run time with what it asked for, inf for unknown; as little.
    """
    history = read_history(log)
    jobs = history.is_job
    rows = history.entry_row[jobs]
    tenants = pl.Series(list(history.tenants.values()), dtype=pl.String)
    end_s, state = _ends(history)
    submit_s = history.time_s[rows]
    jct_s = end_s[jobs] - submit_s
    service = history.per_job(np.where(history.state == RUNS, history.held * history.length_s, 0.0))
    ran_s = history.ran_s[jobs]
    names = pl.Series(state, dtype=pl.String).gather(np.flatnonzero(jobs))
    due_s, work_s = _told(deadlines_s, len(rows)), _told(works_s, len(rows))
    late_s = np.maximum(end_s[jobs] - due_s, 0.0)
    return pl.DataFrame(
        {
            "job_id": history.log["text"].gather(rows),
            "tenant": tenants.gather(history.tenant[jobs]),
            "gpus": history.asked[jobs],
            "submit_s": submit_s,
            "first_start_s": _first_starts(history)[jobs],
            "end_s": end_s[jobs],
            "wait_s": np.where(np.isnan(jct_s), np.nan, history.waited_s[jobs]),
            "jct_s": jct_s,
            "service_gpu_s": service[jobs],
            "preemptions": (count_of(history, Record.STOP) - _requested(history))[jobs],
            "migrations": (count_of(history, Record.MOVE) - _inherited(history))[jobs],
            "state": names,
            "deadline_s": due_s,
            "tardiness_s": np.where((names == "done").to_numpy(), late_s, np.nan),
            "resizes": _of_families(history, history.resizes)[jobs],
            "mean_gpus": _mean_gpus(service[jobs], ran_s),
            "work_s": work_s,
        },
        nan_to_null=True,
    )


def _told(numbers: Floats | None, count: int) -> Floats:
    """What somebody else knows of the jobs; NaN for nothing."""
    if numbers is None:
        return np.full(count, np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _mean_gpus(service: Floats, ran_s: Floats) -> Floats:
    """Rounded, so that a job of 8 GPUs had 8 on average, whatever its times."""
    mean: Floats = np.divide(service, ran_s, out=np.full(len(ran_s), np.nan), where=ran_s > 0)
    return mean.round(9)


def _ends(history: History) -> tuple[Floats, list[str]]:
    """When each actor ended (NaN: never) and how."""
    end_s = np.full(len(history.actors), np.nan)
    kind = np.full(len(history.actors), int(Record.END))
    over = history.state == OVER
    kind[history.actor[over]] = history.kind[over]
    ended = over & (history.kind != Record.REJECTED)
    end_s[history.actor[ended]] = history.from_s[ended]
    names = {int(record): name for record, name in STATES.items()}
    return end_s, [names.get(number, UNFINISHED) for number in kind.tolist()]


def _first_starts(history: History) -> Floats:
    starts = history.kind == Record.START
    first_s = np.full(len(history.actors), np.inf)
    np.minimum.at(first_s, history.owner[history.actor[starts]], history.from_s[starts])
    return np.where(np.isinf(first_s), np.nan, first_s)


def count_of(history: History, record: Record) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Rows of this kind per actor, those of tasks with their job."""
    owners = history.owner[history.actor[history.kind == record]]
    return np.bincount(owners, minlength=len(history.actors))


def _of_families(history: History, counts: Ints) -> Ints:
    """Counts of actors, those of tasks with their job."""
    if not history.has_tasks.any():
        return counts
    return np.bincount(history.owner, counts, minlength=len(counts)).astype(np.int64)


def _requested(history: History) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """How often an actor was stopped because people wanted it: no preemption."""
    stops = (history.kind == Record.STOP) & (history.other[history.row] == ON_REQUEST)
    return np.bincount(history.owner[history.actor[stops]], minlength=len(history.actors))


def _inherited(history: History) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """How often an actor went on with the GPUs of a job that had shared them: no migration."""
    heirs = (history.kind == Record.MOVE) & (history.other[history.row] >= 0)
    return np.bincount(history.owner[history.actor[heirs]], minlength=len(history.actors))


def write_jobs(jobs: pl.DataFrame, to: Path | BinaryIO) -> None:
    """Write the table as CSV, with all digits: what is read back are the same numbers.

    A column of whole numbers has no decimal points; in any other all numbers have one, so that
    readers which look at the first rows only see what it holds.
    """
    tenant = pl.col("tenant")
    jobs.with_columns(pl.when(tenant != "").then(tenant)).select(
        _tidy(jobs[name]) if jobs.schema[name] == pl.Float64 else pl.col(name) for name in COLUMNS
    ).write_csv(to)


def _tidy(column: pl.Series) -> pl.Series:
    whole = column.cast(pl.Int64, strict=False)
    is_whole = (column.is_null() | (column == whole).fill_null(value=False)).all()
    return whole if is_whole else column.cast(pl.String)


class Promised(NamedTuple):
    """What a log alone does not tell of jobs, by their ids; as far as somebody knows it."""

    deadlines_s: Mapping[str, float] = {}
    works_s: Mapping[str, float] = {}

    def of(self, ids: Sequence[str]) -> tuple[Floats, Floats]:
        """Of these jobs, as `fold_jobs` takes them."""
        due_s, work_s = (
            np.array([known.get(name, np.inf) for name in ids], dtype=np.float64) for known in self
        )
        return due_s, work_s


def read_promised(file: Path) -> Promised:
    """From a table of jobs; nothing where there is none, or one of an earlier Rota."""
    try:
        table = pl.scan_csv(file, infer_schema=False)
        names = [name for name in ("deadline_s", "work_s") if name in table.collect_schema()]
        rows = table.select("job_id", *names).collect()
    except (pl.exceptions.PolarsError, OSError):
        return Promised()
    known = {
        name: dict(rows.select("job_id", pl.col(name).cast(pl.Float64)).drop_nulls().iter_rows())
        for name in names
    }
    return Promised(known.get("deadline_s", {}), known.get("work_s", {}))


def leave_open(table: pl.DataFrame, names: Collection[str]) -> pl.DataFrame:
    """The table with these jobs as unfinished: they ran as far as is known, their end is unknown.

    Their wait is kept: they have started.
    """
    if not names:
        return table
    still = pl.col("job_id").is_in(list(names)) & (pl.col("state") == "done")
    return table.with_columns(
        end_s=pl.when(~still).then("end_s"),
        jct_s=pl.when(~still).then("jct_s"),
        tardiness_s=pl.when(~still).then("tardiness_s"),
        state=pl.when(still).then(pl.lit(UNFINISHED)).otherwise("state"),
    )
