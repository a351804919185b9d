"""EASY backfilling (Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995).

First come first served, but the first job that does not fit (the head) gets a reservation: the
earliest time at which it fits if the running jobs end as their users estimated. A later job may
start now if by its own estimate it ends before that time, or if the head would still fit then
beside it. As long as no job outlives its estimate, nobody delays the head beyond the first
reservation it got.

Partitions are queues of their own: a job is a head if nobody waits before it that competes with it
for any node. So every partition has a head with a reservation, and whoever starts early delays none
of them.

What fits is the placement's business: the reservation holds for nodes, GPU types, CPUs and memory,
not just for a number of GPUs. A job without estimate never ends by estimate (`default_estimate_s`
sets another value): where only such jobs run, the head has no reservation and everything that fits
may start. A job that has outlived its estimate is expected to end at any moment.

Departs from the paper: a job that outlives its estimate is not killed.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace, merge
from itertools import chain
from typing import Annotated

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import EligibilityPlan, Plan, ReservingPlan
from rota.core.policy import IncrementalPolicy, Params
from rota.core.view import View, arrival
from rota.policies._queue import ArrivalQueue
from rota.policies.backfill.estimates import estimated_end_s, needed_s
from rota.policies.backfill.queues import Arrival, ShapeQueue, in_order
from rota.policies.backfill.releases import Release, Releases


class EasyParams(Params, frozen=True):
    """What to assume of jobs whose users gave no estimate."""

    default_estimate_s: Annotated[float, msgspec.Meta(gt=0)] = INF


class EasyPlan(ReservingPlan, EligibilityPlan):
    """Reservations among jobs that compete for the same nodes."""


class Easy(IncrementalPolicy[EasyParams]):
    """First come first served; others start early if that does not delay the first that waits."""

    name = "easy"
    paper = "Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995"
    knowledge = Knowledge.USER_ESTIMATE
    Parameters = EasyParams
    plan_type = EasyPlan

    def __init__(self, params: EasyParams | None = None) -> None:
        super().__init__(params)
        self.heads: list[Reservation] = []
        """What was promised in the last decision."""
        self._queue = ArrivalQueue()
        self._shapes: dict[int, ShapeQueue] = {}  # the same jobs, by shape
        self._groups: dict[int, dict[int, ShapeQueue]] = {}  # and by the nodes that they may use
        self._ungrouped: dict[int, ShapeQueue] = {}  # of these it is not known yet
        self._needs_s: dict[int, float] = {}  # seconds by estimate of those that wait
        self._releases = Releases()
        # since the last decision:
        self._new: list[Job] = []  # submitted
        self._moved: dict[int, Job] = {}  # ended, left or started unforeseen; one of each shape
        self._foreseen: dict[int, float] = {}  # who was to start, and to end when; no news
        self._held_back = 0  # nodes of those that only a promise keeps from starting
        self._anywhere = True  # the cluster has changed
        self._nodes: dict[int, int] = {}  # that jobs of a shape may use
        self._now_s = -INF

    @property
    def reservations(self) -> dict[int, float]:
        """The times promised to heads, by index, none in the past of the last decision."""
        return {head.job.index: max(head.start_s, self._now_s) for head in self.heads}

    # --- what it hears ----------------------------------------------------------------------------

    def cluster_changed(self, view: View) -> None:  # noqa: ARG002
        """Reservations depend on it."""
        self._anywhere = True
        self._nodes.clear()
        self._groups.clear()
        self._ungrouped = self._shapes.copy()
        self._releases.scatter()

    def submitted(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It waits."""
        needs_s = self._needs_s[job.index] = needed_s(job, self.params.default_estimate_s)
        self._queue.add(job)
        number = job.shape.number
        if number not in self._shapes:
            self._shapes[number] = self._ungrouped[number] = ShapeQueue()
        self._shapes[number].add(job, needs_s)
        self._new.append(job)

    def started(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It will end as its user estimated."""
        self._leaves(job)
        self._runs(job)
        if self._foreseen.pop(job.index, None) != self._releases.ends[job.index]:
            self._moved[job.shape.number] = job

    def changed(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It may have begun later than it was started."""
        self._stops(job)
        self._runs(job)
        self._moved[job.shape.number] = job

    def ended(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It holds nothing any more, or has left the queue."""
        if job.index in self._releases.ends:
            self._stops(job)
        else:
            self._leaves(job)
        self._moved[job.shape.number] = job

    def _leaves(self, job: Job) -> None:
        self._queue.discard(job)
        self._shapes[job.shape.number].remove(job, self._needs_s.pop(job.index))

    def _runs(self, job: Job) -> None:
        self._releases.add(job, estimated_end_s(job, self.params.default_estimate_s))

    def _stops(self, job: Job) -> None:
        self._releases.remove(job)

    # --- what it decides --------------------------------------------------------------------------

    def decide(self, view: View) -> Plan:
        """Serve in order, reserve for every head, fill around them.

        Who waited before waits on where nothing has happened: time has passed, and nothing has
        become free.
        """
        plan = view.plan(EasyPlan)
        self._now_s = now_s = view.now_s
        new, self._new = self._new, []
        if self._releases.loose:
            self._releases.gather(plan)
        if not (self._anywhere or self._moved) and self._are_behind(new, plan):
            turn = Backfill(plan, now_s, self._releases, self._needs_s, self._shapes)
            turn.heads, turn.held_back = self.heads, self._held_back
            for job in sorted(new, key=arrival):
                if next(plan.candidates((job,)), None) is not None:
                    turn.start(job)
            self._foreseen, self._held_back = turn.foreseen, turn.held_back
            return plan
        nodes = plan.nodes if self._anywhere else self._where(new, plan)
        self._moved, self._anywhere = {}, False
        shapes, queue = self._shapes, iter(self._queue)
        elsewhere: list[Reservation] = []
        if nodes != plan.nodes:
            shapes, nodes = self._competing(nodes, plan)
            queue = in_order(shapes.values())
            elsewhere = [head for head in self.heads if not head.nodes & nodes]
        turn = Backfill(plan, now_s, self._releases, self._needs_s, shapes, nodes)
        head = next((job for job in queue if not turn.start(job)), None)
        if head is not None:
            turn.reserve(head)
            turn.fill()
        self.heads = turn.heads + elsewhere
        self._foreseen = turn.foreseen
        self._held_back = self._held_back & ~nodes | turn.held_back
        return plan

    def _are_behind(self, jobs: Iterable[Job], plan: EasyPlan) -> bool:
        """Before each of them a head waits for all the nodes that it could use."""
        for job in jobs:
            nodes = self._nodes_of(job, plan)
            if not nodes or all(nodes & ~head.nodes for head in self.heads):
                return False
        return True

    def _where(self, new: Iterable[Job], plan: EasyPlan) -> int:
        """The nodes that jobs may use to which something has happened."""
        nodes, everywhere = 0, plan.nodes
        for job in chain(self._moved.values(), new):
            own = self._nodes_of(job, plan)
            if own in (everywhere, 0):  # 0: wherever it was or waits, it is not there any more
                return everywhere
            nodes |= own
        return nodes

    def _nodes_of(self, job: Job, plan: EasyPlan) -> int:
        known = self._nodes.get(job.shape.number)
        if known is None:
            known = self._nodes[job.shape.number] = plan.eligible(job)
        return known

    def _competing(self, nodes: int, plan: EasyPlan) -> tuple[dict[int, ShapeQueue], int]:
        """The queues of those who wait for these nodes, or for nodes of such; and all the nodes."""
        if self._ungrouped:
            self._group(plan)
        found: list[dict[int, ShapeQueue]] = []
        left = list(self._groups.items())
        more = True
        while more:
            more, elsewhere = False, []
            for own, queues in left:
                if not own & nodes:
                    elsewhere.append((own, queues))
                elif not own & ~nodes:
                    found.append(queues)
                elif any(queues.values()):
                    found.append(queues)
                    nodes |= own
                    more = True
            left = elsewhere
        if len(found) == 1:
            return found[0], nodes
        return {number: queue for queues in found for number, queue in queues.items()}, nodes

    def _group(self, plan: EasyPlan) -> None:
        """Find out which nodes shapes may use that are new."""
        for number, queue in self._ungrouped.items():
            if queue:
                self._groups.setdefault(self._nodes_of(queue.first, plan), {})[number] = queue
        self._ungrouped = {number: one for number, one in self._ungrouped.items() if not one}


class Reservation(msgspec.Struct, frozen=True):
    """What a head was promised: it fits on its nodes at this time (inf: unknown).

    A time in the past waits for jobs that have outlived their estimates: these are expected to end
    in the order of their estimates, whenever they are asked about.
    """

    job: Job
    nodes: int
    start_s: float


class Backfill:
    """One decision: who starts beside which promises. Jobs end as their users estimated."""

    def __init__(
        self,
        plan: EasyPlan,
        now_s: float,
        releases: Releases,
        needs_s: Mapping[int, float],
        shapes: Mapping[int, ShapeQueue],
        nodes: int = 0,
    ) -> None:
        self.heads: list[Reservation] = []
        self.held_back = 0
        """Nodes of those that fit but would break a promise."""
        self.foreseen: dict[int, float] = {}
        """Who starts, and when it ends, if that is no news for others when it has happened."""
        self._plan = plan
        self._now_s = now_s
        self._releases = releases
        self._needs_s = needs_s
        self._shapes = shapes
        self._nodes = nodes  # for which these wait
        self._started: list[Release] = []  # in this decision
        self._gone: set[int] = set()  # the same, by index
        self._delaying: dict[int, float] = {}  # shape -> a promise that one more would break

    def start(self, job: Job) -> bool:
        """Start it now if it fits and delays no head."""
        plan = self._plan
        end_s = self._now_s + self._needs_s[job.index]
        if end_s > self._delaying.get(job.shape.number, end_s) or not plan.place(job):
            return False
        release = (end_s, job.index, job)
        insort(self._started, release)
        for head in self.heads:
            if (
                end_s > head.start_s
                and head.nodes & plan.eligible(job)
                and self._earliest(head.job, head.start_s) > head.start_s
            ):
                plan.withdraw(job)
                self._started.remove(release)
                # until somebody starts, one like it would go to the same place
                self._delaying[job.shape.number] = head.start_s
                self.held_back |= plan.eligible(job)
                return False
        if not self.held_back & plan.eligible(job):  # else one of those may go to another place now
            self.foreseen[job.index] = end_s
        self._gone.add(job.index)
        self._delaying.clear()
        return True

    def reserve(self, job: Job) -> None:
        """Promise it the earliest time at which it fits if no other job starts."""
        self.heads.append(Reservation(job, self._plan.eligible(job), self._earliest(job)))

    def _earliest(self, job: Job, by_s: float = INF) -> float:
        """When it fits if no other job starts; inf: not even by this time."""
        started = [release for release in self._started if release[0] <= by_s]
        ends: Iterable[Release] = self._releases.on(self._plan.eligible(job))
        if started:
            ends = merge(ends, started)
        return self._plan.earliest(job, _until(ends, by_s), ordered=True)

    def fill(self) -> None:
        """Start those that fit behind the first head and break no promise, in order of arrival."""
        plan = self._plan
        held = self.heads[0].nodes  # nodes of those that wait
        alone = held == self._nodes  # everybody is behind the first head: nobody else is promised
        at = arrival(self.heads[0].job)
        firsts = (queue.after(at) for queue in self._shapes.values())
        possible = plan.candidates(job for job in firsts if job is not None)
        turns = [(*arrival(job), job) for job in possible if not alone or plan.fits(job)]
        queues = {job.shape.number: self._shapes[job.shape.number] for _, _, job in turns}
        heapify(turns)
        waits: set[int] = set()  # shapes of which one waits for its turn or for room
        while turns:
            job = turns[0][2]
            number, at = job.shape.number, arrival(job)
            if next(plan.candidates((job,)), None) is None:
                heappop(turns)  # what is free only shrinks
                del queues[number]
                continue
            delaying = bool(self._delaying)
            if self.start(job):
                if delaying:  # others may break no promise any more
                    turns = [
                        (*arrival(other), other)
                        for queue in queues.values()
                        if (other := queue.after(at)) is not None
                    ]
                    heapify(turns)
                    continue
            elif not alone and number not in waits:
                waits.add(number)
                nodes = plan.eligible(job)
                if not nodes & held and not self._behind(job, nodes):
                    self.reserve(job)
                held |= nodes
            following = self._following(queues[number], number, at)
            if following is None:
                heappop(turns)
            else:
                heapreplace(turns, (*arrival(following), following))

    def _following(self, queue: ShapeQueue, number: int, at: Arrival) -> Job | None:
        """The next job of a shape; if one more would break a promise, the next short one."""
        if number in self._delaying:
            return queue.ending_by(self._delaying[number], self._now_s, at)
        return queue.after(at)

    def _behind(self, job: Job, nodes: int) -> bool:
        """Does anybody wait before it for the same nodes, tried or not?"""
        at = arrival(job)
        for queue in self._shapes.values():
            other = queue.after(EVER)
            if other is None or not nodes & self._plan.eligible(other):
                continue
            while other is not None and arrival(other) < at:
                if other.index not in self._gone:
                    return True
                other = queue.after(arrival(other))
        return False


def _until(ends: Iterable[Release], by_s: float) -> Iterator[tuple[float, Job]]:
    for end_s, _, job in ends:
        if end_s > by_s:
            return
        yield end_s, job


EVER: Arrival = (-INF, -1)
