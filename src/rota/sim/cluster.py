"""A cluster that exists only in events: jobs progress at constant rates between them."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Any

import msgspec

from rota.core.allocation import Allocation
from rota.core.events import INF, JOB_DONE, JOB_FAILED, JOB_RUNNING, JOB_STOPPED, Event
from rota.core.jobs import RUNNING, Job
from rota.core.ports import Costs, RateModel, TransitionCost
from rota.core.topology import Topology, Vertex

FINISH_EXACT = 0.0


class SimCluster:
    """Implements the `Cluster` port with a heap.

    `outages` are (time, kind, node) for failures and repairs. `finish_round_s` > 0 lets a job end
    only at multiples of it (what some published simulators do).
    """

    def __init__(
        self,
        topology: Topology,
        costs: Costs,
        rates: RateModel,
        *,
        outages: Iterable[tuple[float, int, Vertex]] = (),
        finish_round_s: float = FINISH_EXACT,
    ) -> None:
        self.topology = topology
        self.now_s = 0.0
        self.costs = costs
        self.rates = rates
        self.instant_stop = costs.free or getattr(costs, "instant_stop", False)
        self.frictionless = costs.free and rates.unit
        self.finish_round_s = finish_round_s
        self._plain = costs.free and rates.unit and not finish_round_s
        self.heap: list[Event] = [
            (time_s, kind, number, node, node.epoch)
            for number, (time_s, kind, node) in enumerate(outages)
        ]
        heapify(self.heap)
        self._sequence = len(self.heap)
        self._started_with: dict[int, TransitionCost] = {}
        self._sharing: dict[int, dict[int, Job]] = {}  # vertex -> jobs, when neighbours matter
        self._changed: set[int] = set()

    # --- clock ----------------------------------------------------------------------------------------------

    def poll(self, until_s: float) -> list[Event]:
        """Jump to the next instant at which something happens, but not beyond `until_s`."""
        heap = self.heap
        while heap and heap[0][3].epoch != heap[0][4]:
            heappop(heap)
        if not heap or heap[0][0] > until_s:
            if until_s < INF:
                self.now_s = until_s
            return []
        now_s = self.now_s = heap[0][0]
        events = []
        while heap and heap[0][0] == now_s:
            event = heappop(heap)
            if event[3].epoch == event[4]:
                events.append(event)
        return events

    def _push(self, time_s: float, kind: int, job: Job) -> None:
        self._sequence += 1
        heappush(self.heap, (time_s, kind, self._sequence, job, job.epoch))

    # --- commands -------------------------------------------------------------------------------------------

    def start(self, job: Job) -> float:
        """Begin a run; its end is known at once."""
        now_s = self.now_s
        if self._plain:
            if job.behaviour.fails_at == INF:
                self._sequence += 1
                heappush(self.heap, (now_s + job.left, JOB_DONE, self._sequence, job, job.epoch))
                return now_s
            self._schedule_end(job, now_s, 1.0)
            return now_s
        since_s = now_s
        if not self.costs.free:
            cost = self._started_with.pop(job.index, None) or self.costs.transition(
                job, job.allocation, now_s
            )
            since_s = now_s + cost.start_s
            if cost.slow_s > 0:
                self._begin_slowly(job, since_s, cost)
                return since_s
        self._share(job, +1)
        if since_s > now_s:
            self._push(since_s, JOB_RUNNING, job)
        self._schedule_end(job, since_s, self.rate(job))
        return since_s

    def _begin_slowly(self, job: Job, since_s: float, cost: TransitionCost) -> None:
        self._share(job, +1)
        self._started_with[job.index] = cost
        slow = self.rate(job)
        if since_s > self.now_s:
            self._push(since_s, JOB_RUNNING, job)
        if since_s + job.left / slow <= since_s + cost.slow_s:
            self._schedule_end(job, since_s, slow)
        else:
            self._push(since_s + cost.slow_s, JOB_RUNNING, job)

    def _schedule_end(self, job: Job, since_s: float, rate: float) -> None:
        if rate <= 0 or job.left == INF:
            return
        kind, left = JOB_DONE, job.left
        done = job.work - job.left
        if job.behaviour.fails_at < job.work and job.behaviour.fails_at >= done:
            kind, left = JOB_FAILED, job.behaviour.fails_at - done
        end_s = since_s + left / rate
        if self.finish_round_s:
            end_s = ceil(end_s / self.finish_round_s) * self.finish_round_s
        self._push(end_s, kind, job)

    def rate(self, job: Job) -> float:
        """What the rate model says, with the neighbours if they matter."""
        if self.rates.unit:
            rate = 1.0
        else:
            rate = self.rates.rate(job, job.allocation, self._sharers(job))
        cost = self._started_with.get(job.index)
        if cost is not None:
            if job.phase == RUNNING:  # the slow phase is over
                del self._started_with[job.index]
            else:
                rate *= cost.slow_factor
        return rate

    def stop(self, job: Job, *, to: Allocation | None = None) -> tuple[float, bool]:
        """End a run; its slices stay busy while the stop lasts."""
        if self.costs.free:
            self._share(job, -1)
            return 0.0, True
        cost = self.costs.transition(job, to, self.now_s)
        self._started_with.pop(job.index, None)
        self._share(job, -1)
        if to is not None:
            self._started_with[job.index] = cost
        if cost.stop_s > 0:
            self._sequence += 1  # the epoch after `begin_stop`
            heappush(
                self.heap,
                (self.now_s + cost.stop_s, JOB_STOPPED, self._sequence, job, job.epoch + 1),
            )
            return cost.lost_work, False
        return cost.lost_work, True

    def evict(self, job: Job) -> float:
        """The node died."""
        self._share(job, -1)
        self._started_with.pop(job.index, None)
        return self.costs.failure_loss(job, self.now_s)

    def release(self, job: Job) -> None:
        """The job is over."""
        if self._sharing or self._started_with:
            self._share(job, -1)
            self._started_with.pop(job.index, None)

    def close(self) -> None:
        """Nothing to end."""

    # --- neighbours -----------------------------------------------------------------------------------------

    def _share(self, job: Job, sign: int) -> None:
        if not self.rates.neighbours:
            return
        for vertex in job.allocation.vertices:
            if sign > 0:
                self._sharing.setdefault(vertex, {})[job.index] = job
            else:
                self._sharing.get(vertex, {}).pop(job.index, None)
            self._changed.add(vertex)

    def _sharers(self, job: Job) -> Sequence[Job]:
        if not self.rates.neighbours:
            return ()
        found: dict[int, Job] = {}
        for vertex in job.allocation.vertices:
            found.update(self._sharing.get(vertex, {}))
        found.pop(job.index, None)
        return [found[index] for index in sorted(found)]

    def rerated(self) -> Sequence[tuple[Job, float]]:
        """Jobs next to a change, with their new rates; their ends are scheduled anew."""
        if not self._changed:
            return ()
        touched: dict[int, Job] = {}
        for vertex in sorted(self._changed):
            touched.update(self._sharing.get(vertex, {}))
        self._changed.clear()
        changed = []
        for index in sorted(touched):
            job = touched[index]
            rate = self.rate(job)
            if job.phase == RUNNING and rate != job.rate:
                changed.append((job, rate))
                self._reschedule(job, rate)
        return changed

    def _reschedule(self, job: Job, rate: float) -> None:
        """Before the engine settles the job at its new rate (epoch + 1)."""
        left = job.left_at(self.now_s)
        if rate > 0 and left < INF:
            self._sequence += 1
            end_s = self.now_s + left / rate
            heappush(self.heap, (end_s, JOB_DONE, self._sequence, job, job.epoch + 1))

    # --- state ----------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Pending events as plain data."""
        return {
            "now_s": self.now_s,
            "sequence": self._sequence,
            "started_with": [
                (index, msgspec.structs.astuple(cost))
                for index, cost in self._started_with.items()
            ],
            "sharing": [(v, sorted(jobs)) for v, jobs in self._sharing.items() if jobs],
            "changed": sorted(self._changed),
            "heap": [
                (time_s, kind, number, isinstance(subject, Job), _name(subject), epoch)
                for time_s, kind, number, subject, epoch in sorted(self.heap, key=lambda e: e[:3])
                if subject.epoch == epoch
            ],
        }

    def restore(self, state: dict[str, Any], jobs: dict[int, Job]) -> None:
        """Take the state of `snapshot` up again."""
        self.now_s = state["now_s"]
        self._sequence = state["sequence"]
        self.heap = [
            (t, kind, number, jobs[n] if is_job else self.topology.vertices[n], epoch)
            for t, kind, number, is_job, n, epoch in state["heap"]
        ]
        heapify(self.heap)
        self._started_with = {i: TransitionCost(*cost) for i, cost in state["started_with"]}
        self._sharing = {v: {i: jobs[i] for i in sharers} for v, sharers in state["sharing"]}
        self._changed = set(state["changed"])


def _name(subject: Job | Vertex) -> int:
    return subject.index if isinstance(subject, Job) else subject.id
