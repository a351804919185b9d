"""A policy for elastic jobs: rigid jobs first come, first served; elastic ones share what is left.

An elastic job (`gpus: {min: 1, max: 4}`) is resized when others come and go: it is stopped, and
started again on another number of GPUs. `rota serve --policy grow.py`
"""

from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class Grow(DecidePolicy[Params]):
    """Give elastic jobs everything that nobody else wants."""

    name = "grow"

    def decide(self, view: View) -> Plan:
        """Place rigid jobs, then divide the rest among the elastic ones."""
        plan = view.plan()
        rigid = [job for job in view.jobs if not most(job)]
        elastic = [job for job in view.jobs if most(job)]
        left = view.up_gpus - sum(job.gpus for job in rigid if plan.place(job))
        for number, job in enumerate(elastic):
            share = int(left) // (len(elastic) - number)
            gpus = max(least(job), min(most(job), share))
            if plan.place(job, gpus=gpus):
                left -= gpus
        return plan


def least(job: Job) -> int:
    """Return the smallest number of GPUs that an elastic job runs on."""
    return job.spec.request.groups[0].min_count


def most(job: Job) -> int:
    """Return the largest number of GPUs that an elastic job runs on; 0: it is rigid."""
    return job.spec.request.groups[0].max_count
