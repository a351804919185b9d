"""Waiting time split by reason: the parts of a job add up to its `wait_s`.

At every instant without progress a job waits by exactly one reason:

- `overhead` while it is being started, stopped or moved;
- the reason in the HELD row (`admission`, `quota`, `dependency`) until it is admitted;
- `down` from the failure of its node until that node is up again or the job restarts, whatever else
  would keep it waiting: the failure is the root cause;
- the reason that its scheduler gave to this very job (REASON row with ref -1), until it starts;
- for the *head* of its request shape: the shape's reason (`capacity`, `fragmentation`, ...);
- `order` otherwise: somebody else is served first.

A shape has one head at a time: the job that the shape's last REASON row names as long as it waits,
then the waiting job that comes first in the trace. Jobs that wait by a reason of their own are not
heads. (Policies that reorder a shape's queue without a change of its reason do not tell who became
its head; sums over a shape are exact, their attribution to single jobs is then by this rule.)

The wait of a non-gang job (no task makes progress) is divided in proportion to its tasks' waits.
"""

from heapq import heappop, heappush
from typing import Any

import numpy as np
import polars as pl

from rota.core.events import Record
from rota.core.reasons import Reason
from rota.metrics.history import (
    OVERHEAD,
    WAITS,
    Bools,
    Floats,
    History,
    add_up,
    read_history,
)

REASONS = tuple(reason.label for reason in Reason if reason)
"""Names of all reasons, in the order of their numbers."""

_WIDTH = len(Reason)
_LEAVES, _ENTERS, _BLAMED = range(3)  # order within one row of the log


def fold_delay(log: pl.DataFrame | History) -> Floats:
    """Seconds by job (a row per job, in their order) and reason (columns: `REASONS`)."""
    history = read_history(log)
    delays = _own_delays(history)
    if history.has_tasks.any():
        _divide_families(history, delays)
    return delays[history.is_job, 1:]


def _own_delays(history: History) -> Floats:
    """Of every actor by number of reason; everything unexplained is `order`."""
    waits = (history.state == WAITS) & history.acting
    plain = waits & (history.reason == 0)
    reason = np.where(history.state == OVERHEAD, int(Reason.OVERHEAD), history.reason)
    reason[plain] = Reason.ORDER
    counted = waits | (history.state == OVERHEAD)
    cells = history.actor[counted] * _WIDTH + reason[counted]
    size = len(history.actors) * _WIDTH
    delays = add_up(cells, history.length_s[counted], size).reshape(-1, _WIDTH)
    heads = _head_times(history, plain & (history.length_s > 0))
    if heads is not None:
        delays += heads
        delays[:, Reason.ORDER] -= heads.sum(axis=1)
        np.maximum(delays[:, Reason.ORDER], 0.0, out=delays[:, Reason.ORDER])
    return delays


def _divide_families(history: History, delays: Floats) -> None:
    tasks = ~history.is_job
    for reason in range(1, _WIDTH):
        delays[:, reason] += np.bincount(
            history.owner[tasks], weights=delays[tasks, reason], minlength=len(delays)
        )
    families = history.has_tasks
    sums = delays[families].sum(axis=1)
    scale = np.divide(history.waited_s[families], sums, out=np.zeros_like(sums), where=sums > 0)
    delays[families] *= scale[:, None]


def _head_times(history: History, plain: Bools) -> Floats | None:
    """Seconds of every actor as the head of its shape, by the shape's reason (never `order`)."""
    blames = np.flatnonzero((history.event == Record.REASON) & (history.ref >= 0))
    if not len(blames) or not plain.any():
        return None
    shape_of = history.ref[history.entry_row]
    actors = history.actor[plain]
    heads = np.searchsorted(history.actors, history.job[blames])
    heads[history.job[blames] < 0] = -1
    count = len(actors)
    row = np.concatenate([history.until_row[plain], history.row[plain], blames])
    shape = np.concatenate([shape_of[actors], shape_of[actors], history.ref[blames]])
    what = np.repeat([_LEAVES, _ENTERS, _BLAMED], [count, count, len(blames)])
    who = np.concatenate([actors, actors, heads])
    reason = np.zeros(len(row), dtype=np.int64)
    reason[2 * count :] = history.value[blames]
    order = np.lexsort([what, row, shape])
    columns = (shape, history.time_s[row], what, who, reason)
    total = _Sweep(len(history.actors))
    total.run(zip(*(column[order].tolist() for column in columns), strict=True))
    return total.seconds()


class _Sweep:
    """Walks through the changes of every shape's queue and charges the time to its heads."""

    def __init__(self, actors: int) -> None:
        self._totals = {
            reason: [0.0] * actors for reason in range(_WIDTH) if reason not in (0, Reason.ORDER)
        }
        self._actors = actors

    def run(self, changes: Any) -> None:
        """Changes are (shape, time, what, actor, reason), by shape and then as they happened."""
        totals = self._totals
        present = -1
        queue: list[int] = []
        waiting: set[int] = set()
        named, charged, last_s = -1, None, 0.0
        for shape, time_s, what, who, reason in changes:
            if shape != present:
                present, queue, waiting, named, charged = shape, [], set(), -1, None
            elif charged is not None and waiting and time_s != last_s:
                head = named
                if head not in waiting:
                    named = -1
                    while queue[0] not in waiting:
                        heappop(queue)
                    head = queue[0]
                charged[head] += time_s - last_s
            last_s = time_s
            if what == _ENTERS:
                waiting.add(who)
                heappush(queue, who)
            elif what == _LEAVES:
                waiting.discard(who)
            else:
                charged = totals.get(reason)
                named = who

    def seconds(self) -> Floats:
        """By actor and number of reason."""
        table = np.zeros((self._actors, _WIDTH))
        for reason, total in self._totals.items():
            table[:, reason] = total
        return table
