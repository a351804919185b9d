"""Who had which GPUs when: the stored log, folded into bars."""

from collections import deque
from collections.abc import Callable
from copy import copy
from threading import Lock

from rota.core.jobs import JobSpec
from rota.core.log import NODE, Record, Row
from rota.daemon.store import Store
from rota.wire import LaneBar

PIECE = 20_000  # rows read at once
KEPT = 50_000  # bars: older ones are forgotten here, never in the log
ENDS = {
    Record.STOP: "stop",
    Record.DONE: "done",
    Record.FAILED: "failed",
    Record.CANCELLED: "cancelled",
    Record.EVICTED: "evicted",
    Record.TIMEOUT: "timeout",
}


class LaneBook:
    """Reads what is new in the log and keeps the latest bars. It may be asked by any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._upto = 0
        self._late_s: float | None = None
        self._parents: dict[int, int] = {}  # tasks of jobs
        self._inside: dict[int, int] = {}  # the node of a vertex, by vertex
        self._names: dict[int, str] = {}  # of nodes, by vertex
        self._allocations: dict[int, dict[int, float]] = {}  # GPUs by node
        self._open: dict[int, LaneBar] = {}  # by job or task
        self._leaving: dict[int, LaneBar] = {}  # stopped, but their GPUs are not free yet
        self._closed: deque[LaneBar] = deque(maxlen=KEPT)

    def bars(self, since: float, limit: int) -> list[LaneBar]:
        """Those that ended after that, and those that did not end; by when they began."""
        with self._lock:
            self._read()
            found = [bar for bar in self._closed if (bar.ended_at or since) >= since]
            found += [*self._leaving.values(), *self._open.values()]
        found.sort(key=lambda bar: bar.began_at)
        return found[-limit:]

    def _read(self) -> None:
        fold: dict[int, Callable[[Row, float], None]] = {
            Record.VERTEX: self._vertex,
            Record.ALLOCATION: self._allocation,
            Record.TASK: self._task,
            Record.START: self._begin,
            Record.MOVE: self._move,
            Record.STOPPED: self._stopped,
            **dict.fromkeys(ENDS, self._end),
        }
        while rows := self._store.rows(self._upto, PIECE):
            for plain in rows:
                row = Row(*plain[1:])
                at_s = row.time_s if self._late_s is None else self._late_s
                self._late_s = row.value if row.event == Record.LATE else None
                known = fold.get(row.event)
                if known is not None:
                    known(row, self._store.epoch_unix + at_s)
            self._upto = rows[-1][0]

    def _vertex(self, row: Row, _: float) -> None:
        text = row.text or ""
        if text.startswith(NODE):
            self._names[row.ref] = text.removeprefix(NODE)
            self._inside[row.ref] = row.ref
        else:
            self._inside[row.ref] = self._inside.get(row.other, -1)

    def _allocation(self, row: Row, _: float) -> None:
        node = self._inside.get(row.vertex, -1)
        held = self._allocations.setdefault(row.allocation, {})
        held[node] = held.get(node, 0.0) + row.value

    def _task(self, row: Row, _: float) -> None:
        self._parents[row.job] = row.parent

    def _begin(self, row: Row, at: float) -> None:
        left = self._leaving.pop(row.job, None)
        if left is not None:
            self._close(left, at)
        held = self._allocations.get(row.allocation, {})
        job = self._parents.get(row.job, row.job)
        nodes = {self._names.get(node, "cluster"): gpus for node, gpus in held.items()}
        self._open[row.job] = LaneBar(job=str(job), nodes=nodes, began_at=at)

    def _move(self, row: Row, at: float) -> None:
        self._end(row, at, "move")
        self._begin(row, at)

    def _end(self, row: Row, at: float, why: str = "") -> None:
        bar = self._open.pop(row.job, None) or self._leaving.pop(row.job, None)
        if bar is None:
            return
        bar.end = why or ENDS[Record(row.event)]
        if row.event == Record.STOP:
            self._leaving[row.job] = bar
        else:
            self._close(bar, at)

    def _stopped(self, row: Row, at: float) -> None:
        bar = self._leaving.pop(row.job, None)
        if bar is not None:
            self._close(bar, at)

    def _close(self, bar: LaneBar, at: float) -> None:
        bar.ended_at = at
        self._closed.append(bar)


def shown(bar: LaneBar, spec: JobSpec | None) -> LaneBar:
    """A copy of a bar; `spec`: of its job, if whose it is may be told."""
    if spec is None:
        return copy(bar)
    return LaneBar(
        job=bar.job, nodes=bar.nodes, began_at=bar.began_at, ended_at=bar.ended_at, end=bar.end,
        name=spec.name, user=spec.user, queue=spec.tenant,
    )  # fmt: skip
