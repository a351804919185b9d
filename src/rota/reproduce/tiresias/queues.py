"""Tiresias' discretised LAS: `dlas` (seconds), `dlas-gpu` (GPU-seconds), `dlas-gpu-K` (promotion).

Jobs sit in queues. At every event, in this order: ended jobs leave; arrivals join the first queue;
running jobs that reached the limit of their queue drop to the tail of the next one (one queue per
event); starving jobs return to the tail of the first; then whoever fits runs, queue by queue in
list order, and the rest is preempted for free; last, in each queue those that run move ahead of
those that wait. The next look is at an arrival, at an end, or at the jump time of a running job.

Quirks kept: a jump is `(limit - seconds) // GPUs` away although a job on n GPUs reaches its limit n
times sooner per second that it ran, so jobs on many GPUs drop late; starvation counts the waiting
time of all waits since the last promotion. One guard is ours: a jump is at least 1 s away.

A queue is kept as two parts, because its list is always: who runs, then who waits. Those that run
fit for certain until somebody new was taken ahead of them, so they are only looked at then.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan, Wake
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.replan import Blame, Pool, Replanner

LIMITS = (3250, 7200)
"""Of the simulator: jobs.py has three numbers, but with three queues the last is never used."""

_number = attrgetter("number")


class Entry:
    """A job in a queue.

    While it runs, `origin_s` is when its executed time (since the last promotion) would have been
    0; while it waits, `executed_s` holds that time and `since_s` is when the wait began. `waited_s`
    is what it had waited before, `stamp` tells stale heap entries, `key` and `change_s` are for
    subclasses.
    """

    __slots__ = (
        "change_s", "executed_s", "gpus", "job", "key", "number", "origin_s", "queue", "runs",
        "since_s", "stamp", "waited_s", "weight",
    )  # fmt: skip

    def __init__(self, job: Job, number: int, weight: float) -> None:
        self.job = job
        self.gpus = job.gpus
        self.number = number  # in order of arrival
        self.weight = weight
        self.queue = 0
        self.origin_s = INF
        self.executed_s = 0.0
        self.since_s = 0.0
        self.waited_s = 0.0
        self.runs = False
        self.stamp = 0
        self.key: tuple[float, float] = (0.0, 0.0)
        self.change_s = INF


class Queue:
    """One level: who runs (in order), who waits (in order), and who has just dropped into it."""

    __slots__ = ("dropped", "held", "least", "running", "waiting")

    def __init__(self) -> None:
        self.running: dict[int, Entry] = {}
        self.waiting: list[Entry] = []
        self.dropped: list[Entry] = []  # running, but behind those that wait; empty between events
        self.held: float = 0  # GPUs of `running`
        self.least: float = 0  # nobody in `waiting` asks for less

    def run(self, entry: Entry) -> None:
        """To the end of those that run."""
        self.running[entry.number] = entry
        self.held += entry.gpus

    def unrun(self, entry: Entry) -> None:
        """Out of those that run."""
        del self.running[entry.number]
        self.held -= entry.gpus

    def wait(self, entry: Entry) -> None:
        """To the tail."""
        self.least = min(self.least, entry.gpus) if self.waiting else entry.gpus
        self.waiting.append(entry)

    def wait_ahead(self, entries: list[Entry]) -> None:
        """Ahead of those that wait already."""
        least = min(entry.gpus for entry in entries)
        self.least = min(self.least, least) if self.waiting else least
        self.waiting[:0] = entries


class QueueScheduler(Replanner):
    """Discretised LAS. `by_service`: count GPU-seconds; `promote`: starvation factor (0: none)."""

    settles = True

    def __init__(
        self,
        name: str,
        topology: Topology,
        *,
        limits: Sequence[float] = LIMITS,
        by_service: bool = True,
        promote: float = 0.0,
        knowledge: Knowledge = Knowledge.NOTHING,
    ) -> None:
        super().__init__(name, topology, knowledge)
        self._limits = tuple(limits)
        self._by_service = by_service
        self._promote = promote
        self._pool = Pool(topology)
        self._blame = Blame()
        self._entries: dict[int, Entry] = {}
        self._arrivals = 0
        self.queues = [Queue() for _ in range(len(limits) + 1)]
        self._starving: list[tuple[float, int, int, Entry]] = []  # heap: due, number, stamp
        self._overdue: list[tuple[int, Entry]] = []  # preempted when starving already: stamp

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:
        """To the tail of the first queue."""
        entry = self._enter(job)
        entry.since_s = now_s
        self.queues[0].wait(entry)
        self._blame.joins(job)

    def _enter(self, job: Job) -> Entry:
        self._arrivals += 1
        entry = Entry(job, self._arrivals, job.gpus if self._by_service else 1)
        self._entries[job.index] = entry
        return entry

    def ended(self, job: Job) -> None:
        """Out of its queue."""
        entry = self._entries.pop(job.index, None)
        if entry is None:
            return
        entry.stamp += 1
        queue = self.queues[entry.queue]
        if entry.runs:
            queue.unrun(entry)
        else:
            queue.waiting.remove(entry)
            self._blame.leaves(job)

    def lost(self, job: Job, now_s: float) -> None:
        """It waits ahead of those that did before."""
        entry = self._entries[job.index]
        queue = self.queues[entry.queue]
        queue.unrun(entry)
        self._interrupted(entry, now_s)
        queue.wait_ahead([entry])

    def progressing(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """A start that took time is over: it is served from now on."""
        entry = self._entries.get(job.index)
        if entry is not None and entry.origin_s == INF and job.phase == RUNNING:
            entry.origin_s = job.since_s - entry.executed_s

    def _interrupted(self, entry: Entry, now_s: float) -> None:
        """It ran and waits from now on."""
        entry.runs = False
        if entry.origin_s < INF:
            entry.executed_s = now_s - entry.origin_s
        entry.origin_s = INF
        entry.since_s = now_s
        entry.stamp += 1
        self._blame.joins(entry.job)
        self._watch(entry)

    def _watch(self, entry: Entry) -> None:
        """When it will have starved, if it goes on waiting."""
        if not (self._promote and entry.queue and entry.executed_s > 0):
            return
        due_s = entry.since_s + int(entry.executed_s * self._promote) - entry.waited_s
        if due_s > entry.since_s:
            heappush(self._starving, (due_s, entry.number, entry.stamp, entry))
        else:
            self._overdue.append((entry.stamp, entry))

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, plan: Plan) -> Plan:
        """Move jobs between queues, fill, and say when the next one jumps."""
        now_s = view.now_s
        self._drop(now_s)
        if self._promote:
            self._rescue(now_s)
        self.fill(plan, view.up_gpus, now_s)
        plan.wake = Wake(at_s=self._jump(now_s))
        self._blame.tell(plan)
        return plan

    def _drop(self, now_s: float) -> None:
        """Who has had enough of its queue goes to the tail of the next, in order of arrival."""
        queues = self.queues
        moving = [
            entry
            for limit, queue in zip(self._limits, queues, strict=False)
            for entry in queue.running.values()
            if (now_s - entry.origin_s) * entry.weight >= limit
        ]
        moving.sort(key=_number)
        for entry in moving:
            queues[entry.queue].unrun(entry)
            entry.queue += 1
            queues[entry.queue].dropped.append(entry)

    def _rescue(self, now_s: float) -> None:
        """Who has waited long enough goes to the tail of the first queue, in order of arrival."""
        found = [entry for stamp, entry in self._overdue if stamp == entry.stamp]
        self._overdue.clear()
        heap = self._starving
        while heap and heap[0][0] <= now_s:
            _, _, stamp, entry = heappop(heap)
            if stamp == entry.stamp:
                found.append(entry)
        found.sort(key=_number)
        for entry in found:
            self.queues[entry.queue].waiting.remove(entry)
            entry.queue = 0
            entry.executed_s = entry.waited_s = 0.0
            entry.stamp += 1
            self.queues[0].wait(entry)

    def fill(self, plan: Plan, free: float, now_s: float) -> None:
        """Queue by queue: those that run, those that wait, those that dropped; each in order."""
        certain = True  # nobody new so far: whoever runs still fits
        for queue in self.queues:
            out: list[Entry] = []
            if certain:
                free -= queue.held
            elif queue.running:
                free, out = self._keep(queue, free, plan, now_s)
            if queue.waiting and free >= queue.least:
                before = free
                free = self._admit(queue, free, plan, now_s)
                certain = certain and free == before
            if out:
                queue.wait_ahead(out)
            for entry in queue.dropped:
                if entry.gpus <= free:
                    free -= entry.gpus
                    queue.run(entry)
                else:
                    self._stop(entry, plan, now_s)
                    queue.wait(entry)
            queue.dropped.clear()

    def _keep(
        self, queue: Queue, free: float, plan: Plan, now_s: float
    ) -> tuple[float, list[Entry]]:
        """Those that run, as far as there is room; what is left and who has to go."""
        out = []
        for entry in queue.running.values():
            if entry.gpus <= free:
                free -= entry.gpus
            else:
                out.append(entry)
        for entry in out:
            queue.unrun(entry)
            self._stop(entry, plan, now_s)
        return free, out

    def _admit(self, queue: Queue, free: float, plan: Plan, now_s: float) -> float:
        """Those that wait, as far as there is room; what is left."""
        waiting = queue.waiting
        still: list[Entry] = []
        seen = 0
        for entry in waiting:
            if entry.gpus <= free and entry.job.phase == WAITING:
                free -= entry.gpus
                self._start(entry, plan, now_s)
                queue.run(entry)
            else:
                still.append(entry)
            seen += 1
            if not free:
                break
        if seen == len(waiting):
            queue.least = min((entry.gpus for entry in still), default=0)
        if len(still) < seen:
            waiting[:seen] = still
        return free

    def _start(self, entry: Entry, plan: Plan, now_s: float) -> None:
        if entry.executed_s > 0:
            entry.waited_s += now_s - entry.since_s
        entry.origin_s = now_s - entry.executed_s
        entry.runs = True
        entry.stamp += 1
        self._blame.leaves(entry.job)
        plan.starts.append((entry.job, self._pool[entry.gpus]))

    def _stop(self, entry: Entry, plan: Plan, now_s: float) -> None:
        self._interrupted(entry, now_s)
        plan.stops.append(entry.job)

    def _jump(self, now_s: float) -> float:
        """When the next job is expected to reach its limit, or starves."""
        ahead_s = INF
        for limit, queue in zip(self._limits, self.queues, strict=False):
            for entry in queue.running.values():
                least_s = (limit - (now_s - entry.origin_s)) // entry.weight
                if least_s < ahead_s:  # noqa: PLR1730 - twice as fast, and false for nan (starting)
                    ahead_s = least_s
        jump_s = now_s + ahead_s
        heap = self._starving
        while heap and heap[0][2] != heap[0][3].stamp:
            heappop(heap)
        if heap:
            jump_s = min(jump_s, heap[0][0])
        return max(jump_s, now_s + 1)

    def settle(self, view: View, plan: Plan) -> Sequence[tuple[float, Job]]:
        """While a start takes time the job is not served."""
        now_s = view.now_s
        for job, _ in plan.starts:
            if job.since_s != now_s:
                self._entries[job.index].origin_s = INF
        return ()

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """The queues in order, with the books of each job."""
        return {
            "arrivals": self._arrivals,
            "queues": [
                [
                    (
                        entry.job.index,
                        entry.number,
                        None if entry.origin_s == INF else entry.origin_s,
                        entry.executed_s,
                        entry.since_s,
                        entry.waited_s,
                    )
                    for entry in (*queue.running.values(), *queue.waiting)
                ]
                for queue in self.queues
            ],
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the queues."""
        for level, rows in enumerate(state["queues"]):
            for index, number, origin_s, executed_s, since_s, waited_s in rows:
                entry = self._enter(view.active[index])
                entry.queue = level
                entry.number = number
                entry.origin_s = INF if origin_s is None else origin_s
                entry.executed_s, entry.since_s, entry.waited_s = executed_s, since_s, waited_s
                self._resume(entry)
        self._arrivals = state["arrivals"]
        self._blame.told = set(state["told"])

    def _resume(self, entry: Entry) -> None:
        queue = self.queues[entry.queue]
        entry.runs = entry.job.phase in (RUNNING, STARTING)
        if entry.runs:
            queue.run(entry)
        else:
            queue.wait(entry)
            self._blame.joins(entry.job)
            self._watch(entry)
