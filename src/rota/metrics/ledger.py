"""Where the cluster's GPU-seconds went, between two times.

- `capacity_gpu_s`: GPUs of nodes that are up;
- `useful_gpu_s`: held by jobs that make progress, also progress that is lost later;
- `overhead_gpu_s`: held by jobs that are being started, stopped or moved;
- `resizing_gpu_s`: the part of overhead in which jobs went on with another number of GPUs;
- `allocated_gpu_s` = useful + overhead;
- `idle_gpu_s` = capacity - allocated;
- `fragmented_gpu_s`: the part of idle while a job waits for which enough GPUs are free, but not on
  as few nodes as it needs (see `fragmentation`; whatever reasons were given);
- `lost_gpu_s`: work thrown away by stops and failures, times the GPUs that the job asked for; it
  was useful when it was done, and is listed because it had to be done again.

A GPU that jobs share counts once, also where they hold more of it than there is (in turns, or at
the same time).
"""

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, Floats, Ints, add_up
from rota.core.log import Record
from rota.core.products import dot
from rota.metrics.fragmentation import fragmented
from rota.metrics.history import OVER, OVERHEAD, RUNS, History, read_history

_DUST = 1e-6  # parts of GPUs are floats


def fold_ledger(
    log: pl.DataFrame | History, from_s: float | None = None, until_s: float | None = None
) -> dict[str, float]:
    """GPU-seconds by use; by default from the first submission to the last end of a job."""
    history = read_history(log)
    first_s, last_s = active_range(history)
    from_s = first_s if from_s is None else from_s
    until_s = last_s if until_s is None else until_s
    length_s = np.diff(np.clip(history.time_s, from_s, until_s), append=until_s)
    idle = _capacity(history)  # less what is used: one by one, they are large
    capacity = dot(idle, length_s)
    used, extra = (_taken(history, state, length_s, idle) for state in (RUNS, OVERHEAD))
    twice = _overcommitted(history)
    if twice is not None:
        idle += twice
        over = dot(twice, length_s)
        used, extra = max(used - over, 0.0), extra - max(over - used, 0.0)
    unused = dot(idle, length_s)
    scattered = fragmented(history)
    return {
        "capacity_gpu_s": capacity,
        "allocated_gpu_s": used + extra,
        "useful_gpu_s": used,
        "overhead_gpu_s": extra,
        "resizing_gpu_s": dot(_timeline(history, history.resizing), length_s),
        "idle_gpu_s": unused,
        "fragmented_gpu_s": dot(idle[scattered], length_s[scattered]),
        "lost_gpu_s": _lost_gpu_s(history, from_s, until_s),
    }


def _taken(history: History, state: int, length_s: Floats, idle: Floats) -> float:
    """GPU-seconds in this state, which are not idle."""
    gpus = _timeline(history, history.state == state)
    idle -= gpus
    return dot(gpus, length_s)


def active_range(history: History) -> tuple[float, float]:
    """From the first submission to the last end of a job, or of the log if a job goes on."""
    submits = history.time_s[history.rows_of(Record.SUBMIT)]
    if not len(submits):
        return 0.0, 0.0
    going_on = history.is_job & (history.per_actor(history.state == OVER) == 0)
    if going_on.any():
        return float(submits[0]), history.end_s
    ends = history.from_s[history.state == OVER]
    return float(submits[0]), float(ends.max())


def _timeline(history: History, spans: Bools) -> Floats:
    """GPUs held in these spans, after every row of the log."""
    change = add_up(
        np.concatenate([history.row[spans], history.until_row[spans]]),
        np.concatenate([history.held[spans], -history.held[spans]]),
        len(history.time_s),
    )
    gpus: Floats = np.cumsum(change, out=change)
    return gpus


def _overcommitted(history: History) -> Floats | None:
    """GPUs that jobs hold beyond those that there are, after every row; None: there are none."""
    spans = np.flatnonzero((history.held > 0) & (history.allocation >= 0))
    which, at = history.slices.of(history.allocation[spans])
    vertex = history.slices.vertex[at]
    on_gpu = ~np.isin(vertex, history.vertices.number)  # only what is above GPUs is defined
    if not on_gpu.any():
        return None
    spans, vertex, amount = spans[which][on_gpu], vertex[on_gpu], history.slices.amount[at][on_gpu]
    rows = np.concatenate([history.row[spans], history.until_row[spans]])
    gpus = np.concatenate([vertex, vertex])
    change = np.concatenate([amount, -amount])
    order = np.lexsort((change > 0, rows, gpus))  # who leaves goes first
    rows, gpus, change = rows[order], gpus[order], change[order]
    held = np.cumsum(change)  # of a GPU: all begin and end with nothing
    over = np.where(held > 1 + _DUST, held - 1, 0.0)
    if not over.any():
        return None
    before = np.append(0.0, over[:-1])
    before[np.append(True, gpus[1:] != gpus[:-1])] = 0.0
    total: Floats = np.cumsum(np.bincount(rows, over - before, minlength=len(history.time_s)))
    return total


def _capacity(history: History) -> Floats:
    """GPUs of nodes that are up, after every row of the log."""
    gpus = np.append(history.nodes.gpus, 0.0)
    change = np.zeros(len(history.time_s))
    for kind, sign in ((Record.NODE_UP, 1.0), (Record.NODE_DOWN, -1.0)):
        rows = history.rows_of(kind)
        change[rows] = sign * gpus[history.nodes.slots_of(history.ref[rows])]
    total: Floats = gpus.sum() + np.cumsum(change)
    return total


def _lost_gpu_s(history: History, from_s: float, until_s: float) -> float:
    rows, actors = _losses(history)
    counts = (history.time_s[rows] >= from_s) & (history.time_s[rows] <= until_s)
    gpus = history.asked[actors[counts]]
    return dot(gpus, history.value[rows[counts]])


def lost_work_s(history: History) -> Floats:
    """Seconds of work of each job, in the order of the table, that had to be done again."""
    rows, actors = _losses(history)
    slots = history.owner[actors]
    return add_up(slots, history.value[rows], len(history.actors))[history.is_job]


def _losses(history: History) -> tuple[Ints, Ints]:
    """Rows that tell of lost work, and the slots of those who lost it."""
    loses = (history.kind == Record.STOP) | (history.kind == Record.EVICTED)
    lost = history.rows_of(Record.LOST)
    rows = np.concatenate([history.row[loses], lost])
    actors = np.concatenate([history.actor[loses], history.actor_of(history.job[lost])])
    return rows, actors
