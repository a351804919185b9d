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

from collections.abc import Sequence
from typing import Annotated

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import EligibilityPlan, Plan, ReservingPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View
from rota.policies.backfill.estimates import estimated_end_s, needed_s


class EasyParams(Params, frozen=True):
    """What to assume of jobs whose users gave no estimate."""

    default_estimate_s: Annotated[float, msgspec.Meta(gt=0)] = INF


class EasyPlan(ReservingPlan, EligibilityPlan):
    """Reservations among jobs that compete for the same nodes."""


class Easy(DecidePolicy[EasyParams]):
    """First come first served; others start early if that does not delay the first that waits."""

    name = "easy"
    paper = "Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995"
    knowledge = Knowledge.USER_ESTIMATE
    Parameters = EasyParams
    plan_type = EasyPlan

    def __init__(self, params: EasyParams | None = None) -> None:
        super().__init__(params)
        self.reservations: dict[int, float] = {}
        """The times promised to heads, by index."""

    def decide(self, view: View) -> Plan:
        """Serve in order, reserve for every head, fill around them."""
        plan = view.plan(EasyPlan)
        running = view.running
        plan.fill(running)
        default_s = self.params.default_estimate_s
        reservations = Reservations(plan, running, view.now_s, default_s)
        reservations.serve(view.waiting)
        self.reservations = {
            head.job.index: max(head.start_s, view.now_s) for head in reservations.heads
        }
        return plan


class Reservation(msgspec.Struct, frozen=True):
    """What a head was promised: it fits on its nodes at this time (inf: nobody knows when).

    A time in the past waits for jobs that have outlived their estimates: these are expected to end
    in the order of their estimates, whenever they are asked about.
    """

    job: Job
    nodes: int
    start_s: float


class Reservations:
    """The heads of one decision.

    All running jobs have been named in the plan before. Jobs end as their users estimated;
    `default_s` is the estimate of those who gave none.
    """

    def __init__(
        self, plan: EasyPlan, running: Sequence[Job], now_s: float, default_s: float
    ) -> None:
        self.heads: list[Reservation] = []
        self._plan = plan
        self._now_s, self._default_s = now_s, default_s
        self._running = running
        self._early: list[Job] = []  # started before there was a head
        self._releases: list[tuple[float, Job]] = []  # of all these, once there is one
        self._delaying: dict[int, float] = {}  # shape -> a promise that one more would break

    def serve(self, waiting: Sequence[Job]) -> None:
        """Start who fits and breaks no promise, in this order; heads get reservations."""
        plan = self._plan
        first = next((i for i, job in enumerate(waiting) if not self.start(job)), -1)
        if first < 0:
            return
        self.reserve(waiting[first])
        held = self.heads[0].nodes  # nodes of those who wait
        others = waiting[first:]
        started: set[int] = set()
        for job in plan.candidates(others[1:]):
            if self.start(job):
                started.add(job.index)
                continue
            nodes = plan.eligible(job)
            if not nodes & held and not self._behind(job, nodes, others, started):
                self.reserve(job)
            held |= nodes

    def start(self, job: Job) -> bool:
        """Start it now if it fits and delays no head."""
        plan = self._plan
        if not self.heads:
            if not plan.place(job):
                return False
            self._early.append(job)
            return True
        end_s = self._now_s + needed_s(job, self._default_s)
        if end_s > self._delaying.get(job.shape.number, end_s) or not plan.place(job):
            return False
        self._releases.append((end_s, job))
        for head in self.heads:
            if (
                end_s > head.start_s
                and head.nodes & plan.eligible(job)
                and plan.earliest(head.job, self._releases) > head.start_s
            ):
                plan.withdraw(job)
                self._releases.pop()
                # until somebody starts, one like it would go to the same place
                self._delaying[job.shape.number] = head.start_s
                return False
        self._delaying.clear()
        return True

    def reserve(self, job: Job) -> float:
        """Promise it the earliest time at which it fits if nobody else starts."""
        if not self.heads:
            now_s, default_s = self._now_s, self._default_s
            self._releases = [(estimated_end_s(j, default_s), j) for j in self._running]
            self._releases += [(now_s + needed_s(j, default_s), j) for j in self._early]
        start_s = self._plan.earliest(job, self._releases)
        self.heads.append(Reservation(job, self._plan.eligible(job), start_s))
        return start_s

    def _behind(self, job: Job, nodes: int, waiting: Sequence[Job], started: set[int]) -> bool:
        """Does anybody wait before it for the same nodes, tried or not?"""
        for other in waiting:
            if other is job:
                return False
            if other.index not in started and self._plan.eligible(other) & nodes:
                return True
        return False
