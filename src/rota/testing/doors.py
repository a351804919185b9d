"""A priority policy through the general door: the whole order recomputed at every event."""

from typing import Any

from rota.core.events import INF
from rota.core.jobs import RUNNING, WAITING, Job
from rota.core.policy import DecidePolicy, Params, PriorityPolicy
from rota.core.view import Draft, View


class EveryEvent(DecidePolicy[Params]):
    """Fills the cluster in key order at every event; the fast door must decide the same.

    Exactly the same where GPUs are one pool. On nodes the general door displaces the latest
    starters first, so that there only what both promise can be compared. Not for policies that are
    strict and preemptive: there the fast door leaves those whom it displaced before it was blocked.
    """

    def __init__(self, policy: PriorityPolicy[Any]) -> None:
        super().__init__()
        self.policy = policy
        self.name = policy.name  # type: ignore[misc]  # it stands in for that policy
        self.knowledge = policy.knowledge
        self._learnt = 0

    def decide(self, view: View) -> Draft:
        """Best key first; without preemption whoever runs goes on."""
        now_s = view.now_s
        policy = self.policy
        for job in view.finished[self._learnt :]:
            policy.finished(job, now_s)
        self._learnt = len(view.finished)
        plan = view.plan()
        jobs = list(view.jobs)
        rank = {job.index: (policy.key(job, now_s), job.index) for job in jobs}
        jobs.sort(key=lambda job: rank[job.index])
        if not policy.preemptive:
            jobs.sort(key=lambda job: not job.running)
        if self._fill(plan, jobs):
            plan.wake_at(now_s)  # ask again when it is done: only then the new levels are known
        else:
            plan.wake_at(self._next_s(jobs, now_s))
        return plan

    def _fill(self, plan: Draft, jobs: list[Job]) -> bool:
        """Place all; True if any of them starts or stops."""
        changed = False
        held = 0  # strict: nodes of those who wait; those behind them who run go on
        for job in jobs:
            placed = (job.running or not held & plan.eligible(job)) and plan.place(job)
            changed |= placed != job.running
            if self.policy.strict and not placed:
                held |= plan.eligible(job)
        return changed

    def _next_s(self, jobs: list[Job], now_s: float) -> float:
        phases = (WAITING, RUNNING) if self.policy.ages else (RUNNING,)
        levels = (self.policy.next_change(job, now_s) for job in jobs if job.phase in phases)
        return max(now_s, min(levels, default=INF))
