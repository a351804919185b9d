"""What a log tells about costs: how long starts and stops took, and how long jobs really ran.

*Start*: from the row that launches a job to the row at which it makes progress; the first start of
a job apart from its later ones. Starts that were broken off tell nothing. *Stop*: from the order
to stop (or move) a job that makes progress until its resources are free. *Abort*: the same, of a
job that was still being started. *Run*: all time in which a job makes progress.

*Lost work* is seen only if jobs report their `step`: after a stop, the time between the last report
before and the first report after it (without the pause between them), minus the time that the steps
in between take at the pace of the run before. It holds what is done twice, and also what a program
needs to get going after the cluster called it running.
"""

from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.eventlog import Floats, Ints
from rota.core.events import INF
from rota.core.log import Record
from rota.metrics import History, fold_jobs
from rota.metrics.history import OVERHEAD, RUNS

TOLD = -1.0  # in a START row: a RUN row tells when progress begins
STEP = "step"


class Timings(msgspec.Struct, frozen=True):
    """Measured seconds, each with the job that it is from; `weight`: how much each counts."""

    seconds: Floats
    job: Ints
    weight: Floats | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def weights(self) -> Floats:
        """Of all samples: 1 if nothing was said."""
        return np.ones(len(self)) if self.weight is None else self.weight


class ObservedCosts(msgspec.Struct, frozen=True):
    """Everything that was measured in a log; arrays of jobs are in the order of submission."""

    live: bool
    first: Timings
    again: Timings
    stop: Timings
    abort: Timings
    lost: Timings
    jobs: pl.DataFrame
    index: Ints  # of each job: its number in the log
    run_s: Floats  # of each job: making progress (of its tasks: on average)
    restarts: Ints  # of each job: runs after the first that made progress
    has_tasks: Any
    notes: list[str]


def observe(log: pl.DataFrame) -> ObservedCosts:
    """Measure a log."""
    history = History(log)
    first, again = _starts(history)
    jobs = history.is_job
    run_s, restarts = _runs(history)
    stop, abort = _stops(history)
    return ObservedCosts(
        live=bool(((history.kind == Record.START) & (_values(history) == TOLD)).any()),
        first=first,
        again=again,
        stop=stop,
        abort=abort,
        lost=_lost(history),
        jobs=fold_jobs(history),
        index=history.actors[jobs],
        run_s=run_s[jobs],
        restarts=restarts[jobs],
        has_tasks=history.has_tasks[jobs],
        notes=_notes(history),
    )


def _values(history: History) -> Floats:
    return history.value[history.row]


def _following(history: History) -> Any:
    """The kind of each actor's next row."""
    following = np.append(history.kind[1:], int(Record.END))
    following[history.last] = int(Record.END)
    return following


def _timings(history: History, chosen: Any, seconds: Floats) -> Timings:
    return Timings(seconds[chosen], history.actors[history.owner[history.actor[chosen]]])


def _starts(history: History) -> tuple[Timings, Timings]:
    """First starts, and later ones."""
    kind, value = history.kind, _values(history)
    launches = ((kind == Record.START) | (kind == Record.MOVE)) & (value < INF)
    at_once = launches & (history.state == RUNS)
    seen = launches & (at_once | (_following(history) == Record.RUN))
    seconds = np.where(at_once, 0.0, history.length_s)
    positions = np.flatnonzero(launches)
    _, first_of_actor = np.unique(history.actor[positions], return_index=True)
    is_first = np.zeros(len(kind), dtype=np.bool_)
    is_first[positions[first_of_actor]] = True
    return (
        _timings(history, seen & is_first, seconds),
        _timings(history, seen & ~is_first, seconds),
    )


def _stops(history: History) -> tuple[Timings, Timings]:
    """Stops of jobs that made progress, and of those that were being started."""
    kind, value = history.kind, _values(history)
    launched = ((kind == Record.START) | (kind == Record.MOVE)) & (value < INF)
    starts = launched & (history.state == OVERHEAD)
    ran = np.append(False, history.state[:-1] == RUNS) & ~history.first
    started = np.append(False, starts[:-1]) & ~history.first
    leaves = (kind == Record.STOP) | ((kind == Record.MOVE) & (value == INF))
    seconds = history.length_s
    if (kind == Record.STOPPED).any():
        leaves &= _following(history) == Record.STOPPED
    else:
        leaves, seconds = kind == Record.STOP, np.zeros(len(kind))
    return _timings(history, leaves & ran, seconds), _timings(history, leaves & started, seconds)


def _runs(history: History) -> tuple[Floats, Ints]:
    """Of each actor: seconds of progress, and how often it went on after a break."""
    runs = history.state == RUNS
    run_s = history.per_actor(np.where(runs, history.length_s, 0.0))
    parts = history.per_actor(runs)
    restarts = np.maximum(parts - 1, 0)
    if history.has_tasks.any():
        tasks = ~history.is_job
        owner = history.owner[tasks]
        number = np.maximum(np.bincount(owner, minlength=len(run_s)), 1)
        mean_s = np.bincount(owner, weights=run_s[tasks], minlength=len(run_s)) / number
        whole = np.bincount(owner, weights=restarts[tasks], minlength=len(run_s)) / number
        run_s = np.where(history.has_tasks, mean_s, run_s)
        restarts = np.where(history.has_tasks, whole, restarts)
    return run_s, np.rint(restarts).astype(np.int64)


# --- lost work ------------------------------------------------------------------------------------


def _lost(history: History) -> Timings:
    """Seconds of work lost at each stop, where reports of steps tell it."""
    reports = _reports(history.log)
    seconds, jobs = [], []
    runs = np.flatnonzero((history.state == RUNS) & (history.length_s > 0))
    for before, after in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
        if history.actor[before] != history.actor[after]:
            continue
        job = int(history.actors[history.actor[before]])
        if job in reports:
            lost_s = _lost_between(
                reports[job],
                (history.from_s[before], history.until_s[before]),
                (history.from_s[after], history.until_s[after]),
            )
            if lost_s is not None:
                seconds.append(lost_s)
                jobs.append(job)
    return Timings(np.array(seconds, dtype=np.float64), np.array(jobs, dtype=np.int64))


def _reports(log: pl.DataFrame) -> dict[int, tuple[Floats, Floats]]:
    """(times, steps) by job."""
    rows = log.filter((pl.col("event") == "report") & (pl.col("text") == STEP))
    return {
        int(job): (part["time_s"].to_numpy(), part["value"].to_numpy())
        for (job,), part in rows.group_by(["job"], maintain_order=True)
    }


def _lost_between(
    reports: tuple[Floats, Floats], before: tuple[float, float], after: tuple[float, float]
) -> float | None:
    """None if the reports do not tell."""
    times, steps = reports
    old = np.flatnonzero((times >= before[0]) & (times <= before[1]))
    new = np.flatnonzero((times >= after[0]) & (times <= after[1]))
    if len(old) < 2 or not len(new):  # noqa: PLR2004 - two points make a pace
        return None
    elapsed_s, done = times[old[-1]] - times[old[0]], steps[old[-1]] - steps[old[0]]
    if elapsed_s <= 0 or done <= 0:
        return None
    between_s = (before[1] - times[old[-1]]) + (times[new[0]] - after[0])
    return float(between_s - (steps[new[0]] - steps[old[-1]]) * elapsed_s / done)


# --- what a simulation will not know --------------------------------------------------------------


def _notes(history: History) -> list[str]:
    kind = history.event
    told = {
        "runs were lost or repeated (not through a node): they are not simulated": (
            (kind == Record.EVICTED) & (history.ref == -1)
        ),
        "times a job was held: only dependencies and admission are simulated": kind == Record.HELD,
        "times a node was closed by hand: it is not simulated": kind == Record.NODE_CLOSED,
        "changes of a job's rate: rates are not fitted": kind == Record.RATE,
    }
    notes = [f"{int(rows.sum())} {what}" for what, rows in told.items() if rows.any()]
    late = (kind == Record.VERTEX) & (history.time_s > 0)
    if late.any():
        notes.append("nodes joined during the run: the simulation has them from the beginning")
    return notes
