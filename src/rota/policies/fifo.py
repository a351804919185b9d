"""First in, first out, strict: no job passes the first one that does not fit.

The order in which clusters without a policy serve their users; the baseline of nearly every paper.
"""

from rota.core.jobs import Job
from rota.core.policy import Params, PriorityPolicy


class Fifo(PriorityPolicy[Params]):
    """Serve jobs in the order of their submission; the head of the queue blocks all behind it."""

    name = "fifo"
    preemptive = False
    strict = True
    in_order = True

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - constant
        """Submission time."""
        return job.submit_s
