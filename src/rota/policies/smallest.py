"""Fewest GPUs first, preemptive.

A job that asks for fewer GPUs displaces larger ones, whatever their durations. Needs no knowledge,
and starves large jobs under load. Tiresias' simulator calls it `sjf`, although nothing about it is
short. Ties are served in the order of submission, running or not.
"""

from rota.core.jobs import Job
from rota.core.policy import Params, PriorityPolicy


class Smallest(PriorityPolicy[Params]):
    """Serve the job that asks for the fewest GPUs."""

    name = "smallest"

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - constant
        """GPUs asked."""
        return job.gpus
