"""The waiting of every actor as intervals, each with one reason: the rules of `delay`, in time.

And its stays on the cluster: from a start or a move to the next, or until it leaves.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rota.core.events import INF
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.metrics.delay import HeadSpan, head_spans, waits_plainly
from rota.metrics.history import OVERHEAD, RUNS, WAITS, History

_PLACED = (Record.START, Record.MOVE)


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


class Placed(NamedTuple):
    """On the same GPUs. `kind`: whether it was started or moved; `ran_s`: making progress."""

    from_s: float
    kind: int
    allocation: int
    ran_s: float


class Waits:
    """The intervals of one log, worked out shape by shape as they are asked for."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._plain = waits_plainly(history)
        self._shape = history.ref[history.entry_row]
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

    def stays(self, actor: int) -> list[Placed]:
        """In order of time. Who has to wait for others to leave its GPUs comes when they have."""
        history = self._history
        found: list[Placed] = []
        coming: Placed | None = None
        for span in range(self._begins[actor], self._begins[actor + 1]):
            row, kind = int(history.row[span]), int(history.kind[span])
            from_s = float(history.from_s[span])
            if kind in _PLACED:
                kind = coming.kind if coming is not None else kind
                coming = Placed(from_s, kind, int(history.ref[row]), 0.0)
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
        heads = iter(self._heads_of(int(self._shape[actor])).get(actor, ()))
        head = next(heads, None)
        for span in range(self._begins[actor], self._begins[actor + 1]):
            from_s, until_s = float(history.from_s[span]), float(history.until_s[span])
            kind = int(history.kind[span])
            if history.state[span] == OVERHEAD:
                yield Wait(from_s, until_s, int(Reason.OVERHEAD), kind)
            elif history.state[span] == WAITS and not self._plain[span]:
                yield Wait(from_s, until_s, int(history.reason[span]) or int(Reason.ORDER), kind)
            elif history.state[span] == WAITS:
                while head is not None and head[2] < until_s:
                    yield Wait(from_s, head[2], int(Reason.ORDER), kind)
                    yield Wait(head[2], head[3], head[1], kind)
                    from_s = head[3]
                    head = next(heads, None)
                yield Wait(from_s, until_s, int(Reason.ORDER), kind)

    def _heads_of(self, shape: int) -> dict[int, list[HeadSpan]]:
        """When the actors of a shape were its head."""
        if shape not in self._heads:
            among = self._plain & (self._shape[self._history.actor] == shape)
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
