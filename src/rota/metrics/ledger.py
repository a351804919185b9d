"""Where the cluster's GPU-seconds went, between two times.

- `capacity_gpu_s`: GPUs of nodes that are up;
- `useful_gpu_s`: held by jobs that make progress;
- `overhead_gpu_s`: held by jobs that are being started, stopped or moved;
- `allocated_gpu_s` = useful + overhead;
- `idle_gpu_s` = capacity - allocated;
- `fragmented_gpu_s`: the part of idle while a waiting request finds enough free GPUs, but no
  placement on them (the reason of some shape is `fragmentation` or `gang`);
- `lost_gpu_s`: work thrown away by stops and failures, times the GPUs that the job asked for; it
  was useful when it was done, and is listed because it had to be done again.
"""

import numpy as np
import polars as pl

from rota.core.events import Record
from rota.core.reasons import Reason
from rota.metrics.history import OVER, OVERHEAD, RUNS, Bools, Floats, History, read_history


def fold_ledger(
    log: pl.DataFrame | History, from_s: float | None = None, until_s: float | None = None
) -> dict[str, float]:
    """GPU-seconds by use; by default from the first submission to the last end of a job."""
    history = read_history(log)
    first_s, last_s = active_range(history)
    from_s = first_s if from_s is None else from_s
    until_s = last_s if until_s is None else until_s
    length_s = np.diff(np.clip(history.time_s, from_s, until_s), append=until_s)
    useful = _timeline(history, history.state == RUNS)
    overhead = _timeline(history, history.state == OVERHEAD)
    capacity = _capacity(history)
    idle = capacity - useful - overhead
    used, extra, unused = (float(gpus @ length_s) for gpus in (useful, overhead, idle))
    fragmented = _is_fragmented(history)
    return {
        "capacity_gpu_s": float(capacity @ length_s),
        "allocated_gpu_s": used + extra,
        "useful_gpu_s": used,
        "overhead_gpu_s": extra,
        "idle_gpu_s": unused,
        "fragmented_gpu_s": float(idle[fragmented] @ length_s[fragmented]),
        "lost_gpu_s": _lost_gpu_s(history, from_s, until_s),
    }


def active_range(history: History) -> tuple[float, float]:
    """From the first submission to the last end of a job, or of the log if a job goes on."""
    submits = history.time_s[history.event == Record.SUBMIT]
    if not len(submits):
        return 0.0, 0.0
    going_on = history.is_job & (history.per_actor(history.state == OVER) == 0)
    if going_on.any():
        return float(submits[0]), history.end_s
    ends = history.from_s[history.state == OVER]
    return float(submits[0]), float(ends.max())


def _timeline(history: History, spans: Bools) -> Floats:
    """GPUs held in these spans, after every row of the log."""
    change = np.bincount(
        np.concatenate([history.row[spans], history.until_row[spans]]),
        weights=np.concatenate([history.held[spans], -history.held[spans]]),
        minlength=len(history.time_s),
    )
    gpus: Floats = np.cumsum(change)
    return gpus


def _capacity(history: History) -> Floats:
    """GPUs of nodes that are up, after every row of the log."""
    gpus = node_gpus(history)
    up = history.event == Record.NODE_UP
    down = history.event == Record.NODE_DOWN
    change = np.zeros(len(history.time_s))
    change[up] = gpus[history.ref[up]]
    change[down] = -gpus[history.ref[down]]
    total: Floats = gpus.sum() + np.cumsum(change)
    return total


def node_gpus(history: History) -> Floats:
    """GPUs of each node by the number of its vertex; 0 for other vertices."""
    rows = np.flatnonzero(history.event == Record.VERTEX)
    gpus = np.zeros(int(history.ref[rows].max(initial=0)) + 1)
    nodes = [
        row
        for row, text in zip(rows.tolist(), history.log["text"].gather(rows).to_list(), strict=True)
        if (text or "").startswith("node:")
    ]
    gpus[history.ref[nodes]] = history.value[nodes]
    return gpus


def _is_fragmented(history: History) -> Bools:
    """Whether enough is free for any shape without a place, after every row of the log."""
    rows = np.flatnonzero((history.event == Record.REASON) & (history.ref >= 0))
    rows = rows[np.argsort(history.ref[rows], kind="stable")]
    now = np.isin(history.value[rows], (Reason.FRAGMENTATION, Reason.GANG)).astype(np.int64)
    before = np.append([0], now[:-1])
    before[np.append([True], np.diff(history.ref[rows]) != 0)[: len(rows)]] = 0
    change = np.bincount(rows, weights=now - before, minlength=len(history.time_s))
    shapes: Bools = np.cumsum(change) > 0
    return shapes


def _lost_gpu_s(history: History, from_s: float, until_s: float) -> float:
    loses = (history.kind == Record.STOP) | (history.kind == Record.EVICTED)
    loses &= (history.from_s >= from_s) & (history.from_s <= until_s)
    lost = np.flatnonzero(history.event == Record.LOST)
    lost = lost[(history.time_s[lost] >= from_s) & (history.time_s[lost] <= until_s)]
    rows = np.concatenate([history.row[loses], lost])
    actors = np.concatenate(
        [history.actor[loses], np.searchsorted(history.actors, history.job[lost])]
    )
    return float(history.value[history.entry_row[actors]] @ history.value[rows])
