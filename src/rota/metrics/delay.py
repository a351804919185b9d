"""Waiting time split by reason: the parts of a job add up to its `wait_s`.

At every instant without progress a job waits by exactly one reason:

- `overhead` while it is being started, stopped or moved;
- the reason in the HELD row (`admission`, `quota`, `dependency`) until it is admitted;
- `down` from the failure of its node until that node is up again or the job restarts, whatever else
  would keep it waiting: the failure is the root cause;
- the reason that its scheduler gave to this very job (REASON row with ref -1), until it starts;
- that of all jobs of its tenant with its request shape (REASON row with a shape and a tenant);
- for the *head* of its request shape: the shape's reason (`capacity`, `fragmentation`, ...);
- `order` otherwise: somebody else is served first.

In a recorded schedule (`observed` of a replay) all waits are `unknown` but for those after a
failure: a log tells when a job started, not what kept it.

A shape has one head at a time: the job that the shape's last REASON row names as long as it waits,
then the waiting job that comes first in the trace. Jobs that wait by a reason of their own, or by
one that they share with others of their tenant, are not heads. (Priority policies tell whenever a
shape has another head. Policies that decide everything anew do not; sums over a shape are exact,
their attribution to single jobs is then by this rule.)

The wait of a non-gang job (no task makes progress) is divided in proportion to its tasks' waits.
"""

from array import array
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import pairwise
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

Sharing: TypeAlias = dict[tuple[int, int], tuple[Ints, Ints]]
"""By tenant and shape: rows of the log that say why their jobs wait, and the reasons."""

_WIDTH = len(Reason)
_PLACED = (Record.START, Record.MOVE)
_PART = 100_000  # jobs at a time
_LEAVES, _ENTERS, _BLAMED = range(3)  # order within one row of the log


def fold_delay(log: pl.DataFrame | History) -> Floats:
    """Seconds by job (a row per job, in their order) and reason (columns: `REASONS`)."""
    history = read_history(log)
    delays = _own_delays(history, _corrections(history), 0, len(history.actors))
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
    heads = _corrections(history)
    total = np.zeros((1, _WIDTH))
    for first in range(0, len(history.actors), _PART):
        part = _own_delays(history, heads, first, min(first + _PART, len(history.actors)))
        rows = [total, part[chosen[first : first + _PART]]]
        total = np.concatenate(rows).sum(axis=0, keepdims=True)
    return total[0, 1:]


def _own_delays(history: History, known: "KnownTimes", first: int, last: int) -> Floats:
    """Of these actors by number of reason; everything unexplained is `order`."""
    spans = slice(*np.searchsorted(history.actor, [first, last]).tolist())
    state = history.state[spans]
    counted = ((state == WAITS) & history.acting[spans]) | (state == OVERHEAD)
    actors = history.actor[spans][counted] - first
    cells = actors * _WIDTH + span_reasons(history, spans)[counted]
    size = (last - first) * _WIDTH
    delays = add_up(cells, history.length_s[spans][counted], size).reshape(-1, _WIDTH)
    among = slice(*np.searchsorted(known[0], [first, last]).tolist())
    actors, by_reason = known[0][among] - first, known[1][among]
    delays[actors] += by_reason
    delays[actors, Reason.ORDER] -= by_reason.sum(axis=1)
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


KnownTimes: TypeAlias = tuple[Ints, Floats]


def _corrections(history: History) -> KnownTimes:
    """Who was not waiting by `order` although it had no reason of its own: heads, and sharers.

    Seconds by actor, in this order, and number of reason (never `order`).
    """
    actors, reasons, lengths_s = array("q"), array("q"), array("d")
    plain = plain_spans(history)
    shared = shared_reasons(history)
    for head, reason, from_s, until_s in head_spans(history, uncovered(history, plain, shared)):
        actors.append(head)
        reasons.append(reason)
        lengths_s.append(until_s - from_s)
    for who, reason, seconds in _shared_times(history, plain, shared):
        actors.extend(who.tolist())
        reasons.extend([reason] * len(who))
        lengths_s.extend(seconds.tolist())
    found, places = np.unique(np.asarray(actors, dtype=np.int64), return_inverse=True)
    cells = np.asarray(reasons, dtype=np.int64) * len(found) + places
    return found, add_up(cells, lengths_s, len(found) * _WIDTH).reshape(_WIDTH, len(found)).T


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


class PlainSpans(NamedTuple):
    """In the queue without a reason of their own: who, from which row of the log until which."""

    actor: Ints
    row: Ints
    until_row: Ints

    def only(self, these: Bools) -> "PlainSpans":
        """Some of them."""
        return PlainSpans(self.actor[these], self.row[these], self.until_row[these])


def plain_spans(history: History) -> PlainSpans:
    """All of them."""
    plain = waits_plainly(history)
    return PlainSpans(history.actor[plain], history.row[plain], history.until_row[plain])


# --- reasons that jobs of a tenant share ----------------------------------------------------------


def shared_reasons(history: History) -> Sharing:
    """What was said of all jobs of a tenant and a shape."""
    told = (history.event == Record.REASON) & (history.ref >= 0) & (history.other >= 0)
    rows = np.flatnonzero(told)
    if not len(rows):
        return {}
    order = np.lexsort([rows, history.ref[rows], history.other[rows]])
    rows = rows[order]
    tenants, shapes = history.other[rows], history.ref[rows]
    others = (np.diff(tenants, prepend=-1) != 0) | (np.diff(shapes, prepend=-1) != 0)
    begins = np.flatnonzero(others)
    values = history.value[rows].astype(np.int64)
    return {
        (int(tenants[first]), int(shapes[first])): (rows[first:last], values[first:last])
        for first, last in pairwise([*begins.tolist(), len(rows)])
    }


def _of(history: History, plain: PlainSpans, tenant: int, shape: int) -> Bools:
    """The spans of a tenant's jobs with this shape."""
    those: Bools = history.tenant[plain.actor] == tenant
    those &= history.shape[plain.actor] == shape
    return those


def _shared_times(
    history: History, plain: PlainSpans, shared: Sharing
) -> Iterator[tuple[Ints, int, Floats]]:
    """Actors, and for how long they waited by a reason that they share (never `order`)."""
    for (tenant, shape), (rows, reasons) in shared.items():
        those = plain.only(_of(history, plain, tenant, shape))
        at_s = history.time_s[rows]
        for reason in np.unique(reasons).tolist():
            if reason in (0, Reason.ORDER):
                continue
            holds = reasons == reason
            lengths_s = np.where(holds[:-1], np.diff(at_s), 0.0)
            before_s = np.append(0.0, np.cumsum(lengths_s))  # up to each row
            seconds = _up_to(history.time_s[those.until_row], at_s, holds, before_s)
            seconds -= _up_to(history.time_s[those.row], at_s, holds, before_s)
            yield those.actor, reason, seconds


def _up_to(time_s: Floats, at_s: Floats, holds: Bools, before_s: Floats) -> Floats:
    """For how long a reason was in force until these times."""
    last = np.searchsorted(at_s, time_s, side="right") - 1
    known = np.maximum(last, 0)
    found: Floats = before_s[known] + np.where(holds[known], time_s - at_s[known], 0.0)
    return np.where(last >= 0, found, 0.0)


def uncovered(history: History, plain: PlainSpans, shared: Sharing) -> PlainSpans:
    """Where jobs share no reason: before the first, and where it was taken back."""
    for (tenant, shape), (rows, reasons) in shared.items():
        those = _of(history, plain, tenant, shape)
        gaps = [(-1, int(rows[0]))]  # from a row that takes a reason back to the next
        taken_back = np.flatnonzero(reasons == 0).tolist()
        ends = np.append(rows, len(history.time_s))
        gaps += [(int(rows[at]), int(ends[at + 1])) for at in taken_back]
        parts = [plain.only(~those)]
        covered = plain.only(those)
        for first, last in gaps:
            row = np.maximum(covered.row, first)
            until_row = np.minimum(covered.until_row, last)
            part = PlainSpans(covered.actor, row, until_row)
            parts.append(part.only(history.time_s[until_row] > history.time_s[row]))
        plain = PlainSpans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return plain


# --- heads of shapes ------------------------------------------------------------------------------


def head_spans(history: History, plain: PlainSpans) -> Iterator[HeadSpan]:
    """Who was the head of its shape, by which reason (never `order`), from when until when.

    Args:
        history: The log.
        plain: The spans of those who may be heads: of whole shapes, from `uncovered`.
    """
    told = (history.event == Record.REASON) & (history.ref >= 0) & (history.other < 0)
    blames = np.flatnonzero(told)
    actors = plain.actor
    count = len(actors)
    if not len(blames) or not count:
        return iter(())
    shape_of = history.shape
    heads = history.actor_of(history.job[blames])
    heads[history.job[blames] < 0] = -1
    row = np.concatenate([plain.until_row, plain.row, blames])
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
        self._shared = shared_reasons(history)
        self._uncovered = uncovered(history, plain_spans(history), self._shared)
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
            if not self._plain[span]:
                yield Wait(from_s, until_s, reason, kind)
                continue
            for first_s, last_s, shared in self._shares(actor, from_s, until_s):
                from_s = first_s
                while not shared and head is not None and head[2] < last_s:
                    yield Wait(from_s, head[2], reason, kind)
                    yield Wait(head[2], head[3], head[1], kind)
                    from_s = head[3]
                    head = next(heads, None)
                yield Wait(from_s, last_s, shared or reason, kind)

    def _shares(
        self, actor: int, from_s: float, until_s: float
    ) -> Iterator[tuple[float, float, int]]:
        """From when until when it shares which reason; 0: none."""
        history = self._history
        of = (int(history.tenant[actor]), int(history.shape[actor]))
        reason = 0
        if of in self._shared:
            rows, reasons = self._shared[of]
            at_s = history.time_s[rows]
            first = int(np.searchsorted(at_s, from_s, side="right"))
            inside = slice(first, int(np.searchsorted(at_s, until_s)))
            reason = int(reasons[first - 1]) if first else 0
            changes = zip(at_s[inside].tolist(), reasons[inside].tolist(), strict=True)
            for change_s, following in changes:
                yield from_s, change_s, reason
                from_s, reason = change_s, following
        yield from_s, until_s, reason

    def _heads_of(self, shape: int) -> dict[int, list[HeadSpan]]:
        """When the actors of a shape were its head."""
        if shape not in self._heads:
            plain = self._uncovered
            found: dict[int, list[HeadSpan]] = {}
            for span in head_spans(
                self._history, plain.only(self._history.shape[plain.actor] == shape)
            ):
                found.setdefault(span[0], []).append(span)
            self._heads[shape] = found
        return self._heads[shape]


def _goes_on(last: Wait, wait: Wait) -> bool:
    return (
        last.until_s == wait.from_s
        and last.reason == wait.reason
        and (last.kind == wait.kind or wait.reason != Reason.OVERHEAD)
    )
