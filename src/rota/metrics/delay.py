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

from array import array
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, Floats, Ints, add_up
from rota.core.events import INF
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.metrics.history import OVERHEAD, RUNS, WAITS, History, read_history

REASONS = tuple(reason.label for reason in Reason if reason)
"""Names of all reasons, in the order of their numbers."""

HeadSpan: TypeAlias = tuple[int, int, float, float]
"""Slot of the actor, number of the reason, from when, until when (in seconds)."""

_WIDTH = len(Reason)
_PLACED = (Record.START, Record.MOVE)
_PART = 100_000  # jobs at a time
_LEAVES, _ENTERS, _BLAMED = range(3)  # order within one row of the log


def fold_delay(log: pl.DataFrame | History) -> Floats:
    """Seconds by job (a row per job, in their order) and reason (columns: `REASONS`)."""
    history = read_history(log)
    delays = _own_delays(history, _head_times(history), 0, len(history.actors))
    if history.has_tasks.any():
        _divide_families(history, delays)
    if history.is_job.all():  # no copy: of a million jobs it would be a tenth of a gigabyte
        return delays[:, 1:]
    return delays[history.is_job, 1:]


def total_delay(history: History, chosen: Bools) -> Floats:
    """Seconds of these jobs by reason: the rows of `fold_delay`, added up in their order.

    In parts, because the whole table of a million jobs is the largest that a run makes.
    """
    if not history.is_job.all():
        whole: Floats = fold_delay(history)[chosen].sum(axis=0)
        return whole
    heads = _head_times(history)
    total = np.zeros((1, _WIDTH))
    for first in range(0, len(history.actors), _PART):
        part = _own_delays(history, heads, first, min(first + _PART, len(history.actors)))
        rows = [total, part[chosen[first : first + _PART]]]
        total = np.concatenate(rows).sum(axis=0, keepdims=True)
    return total[0, 1:]


def _own_delays(history: History, head_times: "HeadTimes", first: int, last: int) -> Floats:
    """Of these actors by number of reason; everything unexplained is `order`."""
    spans = slice(*np.searchsorted(history.actor, [first, last]).tolist())
    state = history.state[spans]
    counted = ((state == WAITS) & history.acting[spans]) | (state == OVERHEAD)
    actors = history.actor[spans][counted] - first
    cells = actors * _WIDTH + span_reasons(history, spans)[counted]
    size = (last - first) * _WIDTH
    delays = add_up(cells, history.length_s[spans][counted], size).reshape(-1, _WIDTH)
    among = slice(*np.searchsorted(head_times[0], [first, last]).tolist())
    heads, as_heads = head_times[0][among] - first, head_times[1][among]
    delays[heads] += as_heads
    delays[heads, Reason.ORDER] -= as_heads.sum(axis=1)
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


HeadTimes: TypeAlias = tuple[Ints, Floats]


def _head_times(history: History) -> HeadTimes:
    """Who was ever the head of its shape, and for how long by the shape's reason (never `order`).

    Seconds by actor, in this order, and number of reason.
    """
    actors, reasons, lengths_s = array("q"), array("q"), array("d")
    for head, reason, from_s, until_s in head_spans(history, waits_plainly(history)):
        actors.append(head)
        reasons.append(reason)
        lengths_s.append(until_s - from_s)
    heads, places = np.unique(np.asarray(actors, dtype=np.int64), return_inverse=True)
    cells = np.asarray(reasons, dtype=np.int64) * len(heads) + places
    return heads, add_up(cells, lengths_s, len(heads) * _WIDTH).reshape(_WIDTH, len(heads)).T


def span_reasons(history: History, spans: slice = slice(None)) -> Ints:
    """Why each span is without progress, heads of shapes apart: everything unexplained is `order`.

    Of spans with progress it says nothing.
    """
    state = history.state[spans]
    reason: Ints = np.where(state == OVERHEAD, int(Reason.OVERHEAD), history.reason[spans])
    reason[(state == WAITS) & (reason == 0)] = Reason.ORDER
    return reason


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
    shape_of = history.shape
    actors = history.actor[plain]
    heads = history.actor_of(history.job[blames])
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


# --- the same in time, job by job -----------------------------------------------------------------


class Wait(NamedTuple):
    """Without progress for one reason. `kind`: of the row at which it began (`Record`)."""

    from_s: float
    until_s: float
    reason: int
    kind: int

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.until_s - self.from_s


class PlacedWait(NamedTuple):
    """On the same GPUs. `kind`: whether it was started or moved; `ran_s`: making progress.

    `decided_s`: when it was sent there; it comes later where others have to leave first.
    """

    from_s: float
    kind: int
    allocation: int
    ran_s: float
    decided_s: float


class Waits:
    """The intervals of one log, worked out shape by shape as they are asked for."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._plain = waits_plainly(history)
        self._reason = span_reasons(history)
        self._heads: dict[int, dict[int, list[HeadSpan]]] = {}
        self._begins = np.searchsorted(history.actor, np.arange(len(history.actors) + 1))

    def of(self, actor: int) -> list[Wait]:
        """In order of time; neighbours differ in their reasons or are apart."""
        found: list[Wait] = []
        for wait in self._pieces(actor):
            last = found[-1] if found else None
            if last is not None and _goes_on(last, wait):
                found[-1] = last._replace(until_s=wait.until_s)
            elif wait.until_s > wait.from_s:
                found.append(wait)
        return found

    def stays(self, actor: int) -> list[PlacedWait]:
        """In order of time. Who has to wait for others to leave its GPUs comes when they have."""
        history = self._history
        found: list[PlacedWait] = []
        coming: PlacedWait | None = None
        for span in range(self._begins[actor], self._begins[actor + 1]):
            row, kind = int(history.row[span]), int(history.kind[span])
            from_s = float(history.from_s[span])
            if kind in _PLACED:
                decided_s = from_s
                if coming is not None:
                    kind, decided_s = coming.kind, coming.decided_s
                coming = PlacedWait(from_s, kind, int(history.ref[row]), 0.0, decided_s)
            arrives = kind == Record.RUN or (kind in _PLACED and history.value[row] < INF)
            if coming is not None and arrives:
                found.append(coming._replace(from_s=from_s))
                coming = None
            elif kind in (Record.STOP, Record.EVICTED):  # it does not come any more
                coming = None
            if history.state[span] == RUNS:
                ran_s = found[-1].ran_s + float(history.length_s[span])
                found[-1] = found[-1]._replace(ran_s=ran_s)
        return found

    def _pieces(self, actor: int) -> Iterator[Wait]:
        history = self._history
        if history.has_tasks[actor]:
            return
        heads = iter(self._heads_of(int(self._history.shape[actor])).get(actor, ()))
        head = next(heads, None)
        for span in range(self._begins[actor], self._begins[actor + 1]):
            from_s, until_s = float(history.from_s[span]), float(history.until_s[span])
            kind = int(history.kind[span])
            if history.state[span] not in (WAITS, OVERHEAD):
                continue
            reason = int(self._reason[span])
            while self._plain[span] and head is not None and head[2] < until_s:
                yield Wait(from_s, head[2], reason, kind)
                yield Wait(head[2], head[3], head[1], kind)
                from_s = head[3]
                head = next(heads, None)
            yield Wait(from_s, until_s, reason, kind)

    def _heads_of(self, shape: int) -> dict[int, list[HeadSpan]]:
        """When the actors of a shape were its head."""
        if shape not in self._heads:
            among = self._plain & (self._history.shape[self._history.actor] == shape)
            found: dict[int, list[HeadSpan]] = {}
            for span in head_spans(self._history, among):
                found.setdefault(span[0], []).append(span)
            self._heads[shape] = found
        return self._heads[shape]


def _goes_on(last: Wait, wait: Wait) -> bool:
    return (
        last.until_s == wait.from_s
        and last.reason == wait.reason
        and (last.kind == wait.kind or wait.reason != Reason.OVERHEAD)
    )
