"""The windows of a cluster, and whom they bar from which nodes at every moment.

Barring is a change of the request by which a job is placed (`rota.core.windows`): so all doors and
all placements keep to it. While a job makes progress nothing changes for it before the window
begins: the later it is, the less it has left to run. Else it is barred once it is too late to end
before the window begins. That moment is a timer of the engine, as are the beginning and the end of
a window.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import nextafter
from typing import Any, TypeAlias

import msgspec

from rota.core import events as ev
from rota.core.changes import Changes
from rota.core.errors import OptionError
from rota.core.events import INF, Event
from rota.core.jobs import RUNNING, WAITING, Job, Shape
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.topology import Vertex
from rota.core.windows import NodeWindow, barred, bars, declared_s
from rota.core.words import duration
from rota.engine.blame import ROOM
from rota.engine.executor import on_cluster
from rota.engine.lifecycle import Lifecycle, jobs_on

COMES = (ev.JOB_SUBMIT, ev.JOB_EVICTED, ev.JOB_STOPPED)
"""After these a job waits: with what it has run, until when may it start where?"""
OF_WINDOWS = (Reason.MAINTENANCE, Reason.RESERVED)

Due: TypeAlias = tuple[float, int, str, int]
"""When, its number, the window or nothing, the job or -1: it begins, it ends, a job is late."""


class Calendar:
    """Owns the windows. For `Timers` it looks like a job, one that never changes."""

    index = -1
    epoch = 0

    def __init__(self, lifecycle: Lifecycle, reshape: Callable[[Job, Shape, float], None]) -> None:
        self.windows: dict[str, NodeWindow] = {}
        self._begun: set[str] = set()
        self._made = 0  # windows so far
        self._due: list[Due] = []
        self._count = 0
        self._armed_s = INF
        self._lifecycle = lifecycle
        self._view = lifecycle.view
        self._reshape = reshape
        self._told: dict[int, tuple[int, int]] = {}  # of barred shapes: reason and head

    # --- windows ----------------------------------------------------------------------------------

    def add(self, window: NodeWindow) -> None:
        """From now on it is known."""
        if window.name in self.windows:
            raise OptionError(
                f"there is a window {window.name!r} already: remove it first, or give another name"
            )
        self._made += 1
        window = msgspec.structs.replace(window, number=self._made)
        self._open(window)
        self._note(f"{window.describe()}, {self._times(window)}{_by(window.by)}")
        if window.start_s <= self._view.now_s:
            self._begin(window, self._lifecycle.backlog)
        for job in list(self._view.active.values()):
            self._assess(job, self._lifecycle.backlog)
        self._arm()

    def _open(self, window: NodeWindow) -> None:
        self.windows[window.name] = window
        for node in self._nodes(window):
            node.windows = (*node.windows, window.mark)
        self._push(window.start_s, window.name)
        if window.end_s < INF:
            self._push(window.end_s, window.name)

    def remove(self, name: str, by: str = "") -> None:
        """It does not hold any more."""
        window = self.windows[name]
        self._note(f"{window.describe()} is removed{_by(by)}")
        self._close(window, self._lifecycle.backlog)
        self._arm()

    def _close(self, window: NodeWindow, passed: list[Event]) -> None:
        del self.windows[window.name]
        self._begun.discard(window.name)
        for node in self._nodes(window):
            node.windows = tuple(mark for mark in node.windows if mark != window.mark)
        for job in list(self._view.active.values()):
            if window.mark in job.shape.labels:
                self._assess(job, passed)

    def cover(self) -> None:
        """There are more nodes, some perhaps with names that windows have."""
        for window in self.windows.values():
            for node in self._nodes(window):
                if window.mark not in node.windows:
                    node.windows = (*node.windows, window.mark)

    def _nodes(self, window: NodeWindow) -> list[Vertex]:
        names = set(window.nodes)
        return [node for node in self._view.topology.nodes if node.name in names]

    def _begin(self, window: NodeWindow, passed: list[Event]) -> None:
        """It is time: jobs of others go on as long as they need, or they are stopped now."""
        if window.name in self._begun:
            return
        self._begun.add(window.name)
        if window.at_start != "preempt":
            return
        lifecycle = self._lifecycle
        moving = lifecycle.executor.moving
        for node in self._nodes(window):
            for job in jobs_on(node, self._view, moving):
                if job.running and not window.admits(job.spec):
                    lifecycle.expel(job, passed, f"{window.describe()} begins")

    # --- jobs -------------------------------------------------------------------------------------

    def turn(self, events: list[Event]) -> None:
        """What is due now; the engine has put what it asked for among the events."""
        events[:] = [event for event in events if event[3] is not self]
        now_s, active = self._view.now_s, self._view.active
        self._armed_s = INF
        while self._due and self._due[0][0] <= now_s:
            _, _, name, index = heappop(self._due)
            window = self.windows.get(name)
            if index >= 0:
                if index in active:
                    self._assess(active[index], events)
            elif window is not None and window.end_s <= now_s:
                self._close(window, events)
            elif window is not None and window.start_s <= now_s:
                self._begin(window, events)
                for job in list(active.values()):  # those that run longer than they said, too
                    self._assess(job, events)
        self._arm()

    def attend(self, events: Iterable[Event]) -> None:
        """Before a decision: those who come to wait."""
        for event in events:
            if event[1] in COMES and not event[3].terminal:
                self._assess(event[3], None)
        self._arm()

    def after(self, changes: Changes) -> None:
        """After a decision: those who have lost their places, or are on their way to others."""
        for job in changes.stops:
            if not job.terminal:
                self._assess(job, None)
        for job, _ in changes.starts:
            job.reason = 0
            if job.phase != RUNNING and not job.terminal:
                self._assess(job, None)
        self._arm()

    def _assess(self, job: Job, passed: list[Event] | None) -> None:
        """Which windows bar it now, and when that changes; `passed`: tell the scheduler."""
        now_s = self._view.now_s
        runs = job.phase == RUNNING
        marks = []
        late_s = INF
        for window in self.windows.values():
            if window.admits(job.spec):
                continue
            last_s = window.last_start_s(job.spec, job.run_s)
            if now_s >= window.start_s or (job.since_s if runs else now_s) > last_s:
                marks.append(window.mark)
            elif not runs and last_s < late_s:
                late_s = last_s
        if late_s < INF:
            self._push(nextafter(late_s, INF), "", job.index)
        if tuple(marks) == bars(job.shape.labels):
            return
        lifecycle = self._lifecycle
        shape = lifecycle.arrivals.shape(barred(job.shape.request, marks))
        self._reshape(job, shape, now_s)
        lifecycle.log_shapes()
        if job.phase == WAITING:
            reason, _ = self._told.get(shape.number, (0, -1))
            self._tell(job, reason if reason in OF_WINDOWS and marks else 0)
            if passed is not None:
                passed.append(lifecycle.event(ev.LEVEL, job))

    def bars(self, job: Job) -> list[NodeWindow]:
        """The windows that bar it now."""
        marks = bars(job.shape.labels)
        return [window for window in self.windows.values() if window.mark in marks]

    def why(self, job: Job) -> str:
        """What keeps it off which nodes, and what would help; empty: nothing does."""
        now_s = self._view.now_s
        told = []
        for window in self.bars(job):
            if window.start_s > now_s:
                told.append(f"{window.describe()} begins in {duration(window.start_s - now_s)}")
            else:
                left_s = window.end_s - now_s
                lasts = "until it is removed" if left_s == INF else f"for {duration(left_s)} more"
                told.append(f"{window.describe()} lasts {lasts}")
        if told and declared_s(job.spec) == INF:
            told.append("it may run for ever, as it says nothing: give a time limit (--time)")
        return "; ".join(told)

    # --- reasons ----------------------------------------------------------------------------------

    def explain(self, number: int, reason: int, head: Job | None) -> bool:
        """Why jobs of a shape wait; False: no window bars them.

        The log knows jobs by the shapes with which they came. So each is told by itself.
        """
        shape = self._lifecycle.arrivals.shapes[number] if number >= 0 else None
        if shape is None or shape.opened is None:
            return False
        self._told[number] = (reason, head.index if head is not None else -1)
        waiting = [
            job
            for job in self._view.active.values()
            if job.phase == WAITING and job.shape.number == number
        ]
        first = head or min(waiting, key=lambda job: job.index, default=None)
        for job in waiting:
            self._tell(job, reason if reason in OF_WINDOWS or job is first else 0)
        return True

    def _tell(self, job: Job, reason: int) -> None:
        if job.reason != reason and job.reason in (0, *ROOM):  # others are the policy's own
            job.reason = reason
            self._lifecycle.log.row(self._view.now_s, Record.REASON, job.index, -1, -1, reason)

    def _note(self, text: str) -> None:
        self._lifecycle.log.row(self._view.now_s, Record.NOTE)
        self._lifecycle.log.text(text)

    def _times(self, window: NodeWindow) -> str:
        """Relative to now: `in 2h 00m for 4h 00m`."""
        ahead_s = window.start_s - self._view.now_s
        begins = f"in {duration(ahead_s)}" if ahead_s > 0 else "now"
        lasts = window.end_s - max(window.start_s, self._view.now_s)
        return f"{begins}, {'until it is removed' if lasts == INF else 'for ' + duration(lasts)}"

    # --- time -------------------------------------------------------------------------------------

    def _push(self, at_s: float, name: str, index: int = -1) -> None:
        self._count += 1
        heappush(self._due, (at_s, self._count, name, index))

    def _arm(self) -> None:
        if self._due and self._due[0][0] < self._armed_s:
            self._armed_s = self._due[0][0]
            self._lifecycle.timers.arm(self._armed_s, self)

    def rearm(self) -> None:
        """All timers were forgotten."""
        self._armed_s = INF
        self._arm()

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """As plain data; the rest follows from the jobs."""
        return {
            "windows": [msgspec.to_builtins(window) for window in self.windows.values()],
            "begun": sorted(self._begun),
            "made": self._made,
            "due": sorted(self._due),
            "count": self._count,
            "told": list(self._told.items()),
            "marks": [
                (job.index, bars(job.shape.labels))
                for job in self._view.active.values()
                if job.shape.opened is not None
            ],
        }

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:
        """Take the state of `snapshot` up again, before the scheduler looks at the jobs.

        What was declared when the engine was built does not hold: it may have been over by then.
        """
        self.windows.clear()
        for node in self._view.topology.nodes:
            node.windows = ()
        for saved in state["windows"]:
            self._open(msgspec.convert(saved, NodeWindow))
        self._begun, self._made = set(state["begun"]), state["made"]
        self._due, self._count = [tuple(due) for due in state["due"]], state["count"]
        self._told = {number: (reason, head) for number, (reason, head) in state["told"]}
        arrivals = self._lifecycle.arrivals
        for index, marks in state["marks"]:
            job = jobs[index]
            job.shape = arrivals.shape(barred(job.shape.request, marks))
        self.rearm()


def on_nodes(
    windows: Iterable[NodeWindow], job: Job, vertices: Sequence[Vertex]
) -> list[NodeWindow]:
    """Of these windows, those on whose nodes a job is that they do not admit."""
    if not on_cluster(job):
        return []
    held = {*job.allocation.vertices, *(vertex for vertex, _, _ in job.allocation.extra)}
    names = {vertices[vertices[v].node].name for v in held if vertices[v].node >= 0}
    return [w for w in windows if not w.admits(job.spec) and not names.isdisjoint(w.nodes)]


def _by(name: str) -> str:
    return f" ({name})" if name else ""
