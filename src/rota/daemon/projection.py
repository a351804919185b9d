"""What the log tells about each job beyond its present state; folded row by row."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rota.core.jobs import Job
from rota.core.log import ON_REQUEST, Record, Row
from rota.core.reasons import Reason

MOST_CAUSES = 20  # who preempted a job: the last few are enough


class Projection:
    """Cheap to keep up to date, and the same whether it saw the rows live or from the store."""

    def __init__(self) -> None:
        self.messages: dict[int, str] = {}
        self.runs: dict[int, int] = {}
        self.preempted_by: dict[int, list[int]] = {}
        self._held: dict[int, int] = {}
        self._shapes: dict[int, tuple[int, int]] = {}  # reason and head by shape
        self.firsts: tuple[int, dict[int, Job]] = (-1, {})  # who is first of a shape: a cache
        self.preemptions = 0
        self.restarts = 0
        self.observe: Callable[[float], None] = lambda _: (
            None
        )  # called with the seconds of each start
        self._started: dict[int, float] = {}
        self._late_s: float | None = None  # when the next row happened

    def reasons(self) -> "Projection":
        """A copy that goes its own way; only why jobs wait is in it."""
        copy = Projection()
        copy.messages, copy._held = dict(self.messages), dict(self._held)
        copy._shapes = dict(self._shapes)
        return copy

    def fold(  # noqa: C901 - one branch per kind
        self, rows: Iterable[Row]
    ) -> None:
        """Take in the next rows of the log."""
        for row in rows:
            time_s, event, job, _, _, value, text = row
            late_s, self._late_s = self._late_s, value if event == Record.LATE else None
            if event == Record.REASON:
                if row.shape >= 0 > row.tenant:
                    self._shapes[row.shape] = (row.reason, job)
            elif event == Record.START:
                self._started[job] = time_s
            elif event == Record.RUN:
                self.restarts += job in self.runs
                self.runs[job] = self.runs.get(job, 0) + 1
                began_s = time_s if late_s is None else late_s
                self.observe(began_s - self._started.pop(job, began_s))
            elif event == Record.STOP and row.cause != ON_REQUEST:
                self._preempted(job, row.cause)
            elif event == Record.HELD:
                self._held[job] = row.reason
                if text:
                    self.messages[job] = text
            elif event == Record.DONE:
                self.messages.pop(job, None)  # of earlier runs
            elif event == Record.ADMITTED:
                self._held.pop(job, None)
                self.messages.pop(job, None)
            elif text and event in (
                Record.FAILED,
                Record.REJECTED,
                Record.EVICTED,
                Record.TIMEOUT,
            ):
                self.messages[job] = text

    def _preempted(self, job: int, by: int) -> None:
        self.preemptions += 1
        if by >= 0:
            causes = self.preempted_by.setdefault(job, [])
            causes.append(by)
            del causes[:-MOST_CAUSES]

    def discard(self, jobs: Iterable[int]) -> None:
        """These jobs are over and forgotten."""
        for job in jobs:
            for known in (self.messages, self.runs, self.preempted_by, self._held, self._started):
                known.pop(job, None)

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "messages": list(self.messages.items()),
            "runs": list(self.runs.items()),
            "preempted_by": list(self.preempted_by.items()),
            "held": list(self._held.items()),
            "shapes": [(shape, *told) for shape, told in self._shapes.items()],
            "preemptions": self.preemptions,
            "restarts": self.restarts,
            "started": list(self._started.items()),
            "late_s": self._late_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        self.messages, self.runs = dict(state["messages"]), dict(state["runs"])
        self.preempted_by, self._held = dict(state["preempted_by"]), dict(state["held"])
        self._shapes = {shape: (reason, head) for shape, reason, head in state["shapes"]}
        self.preemptions, self.restarts = state["preemptions"], state["restarts"]
        self._started, self._late_s = dict(state["started"]), state["late_s"]

    def held_for(self, job: int) -> Reason:
        """Why a held job is held."""
        return Reason(self._held.get(job, int(Reason.ADMISSION)))

    def explains(self, shape: int) -> bool:
        """Is there a reason why the first of a shape waits?"""
        return bool(self._shapes.get(shape, (0, -1))[0])

    def waits_for(self, job: int, shape: int, first: int) -> Reason:
        """Why a job in the queue waits, as far as its shape tells.

        `first`: the first of those that wait with this shape. Whoever was that when the reason was
        logged may have left: the reason goes on for the next one.
        """
        reason, _ = self._shapes.get(shape, (0, -1))
        if not reason or job != first:
            return Reason.ORDER
        return Reason(reason)

    def head_of(self, shape: int) -> int:
        """The first job of a shape when its reason was logged; -1: unknown."""
        return self._shapes.get(shape, (0, -1))[1]
