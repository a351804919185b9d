"""Earliest deadline first, preemptive: whoever has to be done soonest is served first.

The classic of real-time systems (Liu and Layland, J. ACM 1973), and a baseline of ElasticFlow and
Chronus. On one GPU it meets all deadlines if that is possible at all; on a cluster under too much
load one late job makes the next one late. Jobs have the GPUs that they ask for; those without a
deadline come last, in order of arrival.
"""

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy


class EdfParams(Params, frozen=True):
    """Whether a job with an earlier deadline displaces others."""

    preemptive: bool = True


class Edf(PriorityPolicy[EdfParams]):
    """Serve the job with the earliest deadline."""

    name = "edf"
    paper = "Liu and Layland, Scheduling Algorithms for Multiprogramming, J. ACM 1973"
    knowledge = Knowledge.DEADLINES
    Parameters = EdfParams

    def __init__(self, params: EdfParams | None = None) -> None:
        super().__init__(params)
        self.preemptive = self.params.preemptive

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - it never changes
        """When it has to be done."""
        return job.deadline_s
