"""Elastic FIFO: in order of submission, every job gets the largest of its sizes that fits."""

from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View


class ElasticFifo(DecidePolicy[Params]):
    """Let the oldest jobs grow as far as they can, and younger ones use what is left."""

    name = "elastic-fifo"
    elastic = True

    def decide(self, view: View) -> Plan:
        """Try the sizes of every job, the largest first."""
        plan = view.plan()
        for job in sorted(view.jobs, key=lambda job: (job.submit_s, job.index)):
            size = job.max_gpus
            while size and not plan.place(job, gpus=size):
                size = job.size_within(size - 1)
        return plan
