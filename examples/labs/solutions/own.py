"""Least attained service: nothing is known of jobs, so whoever has used least is served first."""

from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class LeastServedParams(Params, frozen=True):
    """GPU-seconds after which a job drops by a level."""

    limits: tuple[float, ...] = (900.0, 9_000.0, 90_000.0)


class LeastServed(DecidePolicy[LeastServedParams]):
    """Jobs drop by a level whenever they have used ten times as much."""

    name = "least-served"
    Parameters = LeastServedParams

    def decide(self, view: View) -> Plan:
        """Best levels first; on a level the oldest."""
        plan = view.plan()
        for job in sorted(view.jobs, key=lambda job: self.rank(job, view.now_s)):
            if plan.place(job):
                self.watch(plan, job, view.now_s)
        return plan

    def watch(self, plan: Plan, job: Job, now_s: float) -> None:
        """Ask again when it drops to the next level."""
        used = job.attained_gpu_s(now_s)
        above = [limit for limit in self.params.limits if limit > used]
        if above:
            plan.watch(job, "service", above[0])

    def rank(self, job: Job, now_s: float) -> tuple[int, float, int]:
        """The smallest is served first."""
        used = job.attained_gpu_s(now_s)
        level = sum(used >= limit for limit in self.params.limits)
        return level, job.submit_s, job.index
