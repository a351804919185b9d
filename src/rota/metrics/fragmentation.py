"""How scattered free GPUs are: both from what is free and who waits, not from reasons given.

`free_on_used_nodes` is the share of free GPU-seconds on nodes that were partly in use: on such a
node a job that needs whole nodes finds no place. A node counts while it is up and open. What a
placement takes from a pool instead of nodes is nowhere, and then there is no such share.

`fragmented` says when a job waits for which enough GPUs are free, but not on as few nodes as it
needs: on one node up to the GPUs of the largest node, else on whole nodes of this size and one for
the rest. It does not matter why the job waits, what the policy says about it or how it is placed,
so that equal schedules are equally fragmented. GPU types, CPUs and memory are not looked at. In a
pool nothing is scattered.
"""

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, Floats
from rota.core.reasons import Reason
from rota.metrics.history import WAITS, History, read_history
from rota.metrics.spare import SpareGpus, Timelines

_LITTLE = 1e-9  # parts of GPUs are floats


def free_on_used_nodes(log: pl.DataFrame | History, from_s: float, until_s: float) -> float | None:
    """The share between two times; None when nothing was free, or it is unknown where."""
    history = read_history(log)
    nodes = SpareGpus(history).timelines()
    if nodes is None or not len(nodes.slot):
        return None
    starts_s = np.clip(history.time_s[nodes.row], from_s, until_s)
    ends_s = np.append(starts_s[1:], until_s)
    ends_s[np.append(np.diff(nodes.slot) != 0, True)] = until_s
    free_gpu_s = _free(nodes) * (ends_s - starts_s)
    total = float(free_gpu_s.sum())
    return float(free_gpu_s[nodes.used > _LITTLE].sum()) / total if total else None


def fragmented(log: pl.DataFrame | History) -> Bools:
    """Whether free GPUs are too scattered for a job that waits, after every row of the log."""
    history = read_history(log)
    rows = len(history.time_s)
    found: Bools = np.zeros(rows, dtype=np.bool_)
    nodes = SpareGpus(history).timelines()
    waits = (history.state == WAITS) & history.acting & (history.length_s > 0)
    waits &= history.reason != Reason.DEPENDENCY
    if nodes is None or not len(nodes.slot) or not waits.any():
        return found
    free = _free(nodes)
    total = _sum_of(nodes, free, rows)
    largest = float(nodes.size.max())
    begin, until = history.row[waits], history.until_row[waits]
    asked = history.value[history.entry_row[history.actor[waits]]]
    for gpus in np.unique(asked[(asked > 0) & (asked <= total.max() + _LITTLE)]).tolist():
        these = asked == gpus
        change = np.bincount(begin[these], minlength=rows) - np.bincount(
            until[these], minlength=rows
        )
        enough = (np.cumsum(change) > 0) & (total >= gpus - _LITTLE)
        if enough.any():
            found |= enough & ~_fits(nodes, free, gpus, largest, rows)
    return found


def _free(nodes: Timelines) -> Floats:
    free: Floats = np.maximum(nodes.size - nodes.used, 0.0) * nodes.open
    return free


def _fits(nodes: Timelines, free: Floats, gpus: float, largest: float, rows: int) -> Bools:
    """Whether so many GPUs are free on as few nodes as they need, after every row."""
    whole, rest = divmod(gpus, largest)
    fits: Bools = np.ones(rows, dtype=np.bool_)
    if whole:
        fits &= _sum_of(nodes, free >= largest - _LITTLE, rows) >= whole - _LITTLE
    if rest:
        fits &= _sum_of(nodes, free >= rest - _LITTLE, rows) >= whole + 1 - _LITTLE
    return fits


def _sum_of(nodes: Timelines, values: Floats | Bools, rows: int) -> Floats:
    """The sum over all nodes after every row, from the values after each change of a node."""
    before = np.append([0.0], values[:-1])
    before[np.append([True], np.diff(nodes.slot) != 0)] = 0.0
    total: Floats = np.cumsum(np.bincount(nodes.row, values - before, rows))
    return total
