"""EASY backfilling (Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995).

First come first served, but the first job that does not fit (the head) gets a reservation: the
earliest time at which it fits if the running jobs end as their users estimated. A later job may
start now if by its own estimate it ends before that time, or if the head would still fit then
beside it. As long as no job outlives its estimate, nobody delays the head beyond the first
reservation it got.

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
from rota.core.policy import DecidePolicy, Params
from rota.core.view import Draft, View
from rota.policies._estimates import expected_end_s, needed_s


class EasyParams(Params, frozen=True):
    """What to assume of jobs whose users gave no estimate."""

    default_estimate_s: Annotated[float, msgspec.Meta(gt=0)] = INF


class Easy(DecidePolicy[EasyParams]):
    """First come first served; others start early if that does not delay the first that waits."""

    name = "easy"
    paper = "Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995"
    knowledge = Knowledge.USER_ESTIMATE
    Parameters = EasyParams

    def __init__(self, params: EasyParams | None = None) -> None:
        super().__init__(params)
        self.reservation: tuple[int, float] | None = None
        """The head's index and the time promised to it; None if nobody waits."""

    def decide(self, view: View) -> Draft:
        """Serve in order, reserve for the head, fill around it."""
        plan = view.plan()
        now_s, default_s = view.now_s, self.params.default_estimate_s
        running, waiting = view.running, view.waiting
        plan.fill(running)
        first = next((i for i, job in enumerate(waiting) if not plan.place(job)), len(waiting))
        self.reservation = None
        if first == len(waiting):
            return plan
        releases = [(expected_end_s(job, now_s, default_s), job) for job in running]
        releases += [(now_s + needed_s(job, default_s), job) for job in waiting[:first]]
        head = waiting[first]
        self.reservation = (head.index, plan.earliest(head, releases))
        self._backfill(plan, now_s, head, waiting[first + 1 :], releases)
        return plan

    def _backfill(
        self,
        plan: Draft,
        now_s: float,
        head: Job,
        others: Sequence[Job],
        releases: list[tuple[float, Job]],
    ) -> None:
        reserved_s = self.reservation[1] if self.reservation is not None else INF
        delaying: set[int] = set()  # shapes that would delay the head as things are
        for job in plan.candidates(others):
            end_s = now_s + needed_s(job, self.params.default_estimate_s)
            if end_s > reserved_s and job.shape.number in delaying:
                continue
            if not plan.place(job):
                continue
            releases.append((end_s, job))
            if end_s > reserved_s and plan.earliest(head, releases) > reserved_s:
                plan.withdraw(job)
                releases.pop()
                delaying.add(job.shape.number)
            else:
                delaying.clear()  # the next one may be placed elsewhere
