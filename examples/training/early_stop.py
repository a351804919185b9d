"""A policy that stops hopeless trials: jobs of a `group` are one search, and report their loss.

After `from_step` steps a trial whose loss is more than `factor` times that of the best trial of its
group is cancelled. `rota serve --policy early_stop.py:from_step=100,factor=3`
"""

from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class EarlyStopParams(Params, frozen=True):
    """When a trial is given up."""

    from_step: float = 10.0
    factor: float = 2.0


class EarlyStop(DecidePolicy[EarlyStopParams]):
    """First come, first served; bad trials of a group go."""

    name = "early-stop"
    Parameters = EarlyStopParams

    def decide(self, view: View) -> Plan:
        """Give up what is hopeless, and fill the cluster with the others."""
        plan = view.plan()
        best = self.best_of_groups(view)
        hopeless = set()
        for job in view.running:
            winner = best.get(job.spec.group)
            if winner is not None and self.is_hopeless(job, winner):
                plan.cancel([job], because_of=winner)
                hopeless.add(job.index)
        plan.fill(job for job in view.running if job.index not in hopeless)
        plan.fill(view.waiting)
        return plan

    def best_of_groups(self, view: View) -> dict[str, Job]:
        """Find the trial with the smallest loss of each group."""
        best: dict[str, Job] = {}
        for job in view.running:
            group = job.spec.group
            if group and "loss" in (job.metrics or {}):
                best[group] = min(job, best.get(group, job), key=loss)
        return best

    def is_hopeless(self, job: Job, best: Job) -> bool:
        """Say whether a trial is far behind, and had its chance."""
        step = (job.metrics or {}).get("step", 0.0)
        return step >= self.params.from_step and loss(job) > self.params.factor * loss(best)


def loss(job: Job) -> float:
    """Return the last reported loss."""
    return (job.metrics or {}).get("loss", 0.0)
