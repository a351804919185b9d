"""Waiting time split by reason: the parts of a job add up to its `wait_s`.

At every instant without progress a job waits by exactly one reason:

- `overhead` while it is being started, stopped or moved;
- the reason in the HELD row (`admission`, `quota`, `dependency`) until it is admitted;
- `down` from the failure of its node until that node is up again or the job restarts, whatever else
  would keep it waiting: the failure is the root cause;
- the reason that its scheduler gave to this very job (REASON row with ref -1), until it starts;
- for the *head* of its request shape: the shape's reason (`capacity`, `fragmentation`, ...);
- `order` otherwise: somebody else is served first.

In a recorded schedule (`observed` of a replay) all waits are `unknown` but for those after a
failure: a log tells when a job started, not what kept it.

A shape has one head at a time: the job that the shape's last REASON row names as long as it waits,
then the waiting job that comes first in the trace. Jobs that wait by a reason of their own are not
heads. (Priority policies tell whenever a shape has another head. Policies that decide everything
anew do not; sums over a shape are exact, their attribution to single jobs is then by this rule.)

The wait of a non-gang job (no task makes progress) is divided in proportion to its tasks' waits.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
import polars as pl

from rota.core.log import Record
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

HeadSpan: TypeAlias = tuple[int, int, float, float]
"""Slot of the actor, number of the reason, from when, until when (in seconds)."""

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
    heads = _head_times(history)
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


def _head_times(history: History) -> Floats:
    """Seconds of every actor as the head of its shape, by the shape's reason (never `order`)."""
    totals = [[0.0] * len(history.actors) for _ in range(_WIDTH)]
    for head, reason, from_s, until_s in head_spans(history, waits_plainly(history)):
        totals[reason][head] += until_s - from_s
    return np.array(totals).T


def waits_plainly(history: History) -> Bools:
    """Spans in the queue that have no reason of their own."""
    waits = (history.state == WAITS) & history.acting
    plain: Bools = waits & (history.reason == 0) & (history.length_s > 0)
    return plain


def head_spans(history: History, plain: Bools) -> Iterator[HeadSpan]:
    """Who was the head of its shape, by which reason (never `order`), from when until when.

    Args:
        history: The log.
        plain: The spans of those who may be heads: of whole shapes, from `waits_plainly`.
    """
    blames = np.flatnonzero((history.event == Record.REASON) & (history.ref >= 0))
    if not len(blames) or not plain.any():
        return iter(())
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
    reason[reason == Reason.ORDER] = 0
    order = np.lexsort([what, row, shape])
    columns = (shape, history.time_s[row], what, who, reason)
    return _sweep(zip(*(column[order].tolist() for column in columns), strict=True))


def _sweep(changes: Iterable[tuple[int, float, int, int, int]]) -> Iterator[HeadSpan]:
    """Walks through the changes of every shape's queue.

    Changes are (shape, time, what, actor, reason), by shape and then as they happened.
    """
    present = -1
    queue: list[int] = []
    waiting: set[int] = set()
    named, blame, last_s = -1, 0, 0.0
    for shape, time_s, what, who, reason in changes:
        if shape != present:
            present, queue, waiting, named, blame = shape, [], set(), -1, 0
        elif blame and waiting and time_s != last_s:
            head = named
            if head not in waiting:
                named = -1
                while queue[0] not in waiting:
                    heappop(queue)
                head = queue[0]
            yield head, blame, last_s, time_s
        last_s = time_s
        if what == _ENTERS:
            waiting.add(who)
            heappush(queue, who)
        elif what == _LEAVES:
            waiting.discard(who)
        else:
            blame = reason
            named = who
