"""First in, first out, strict: no job passes one that waits for nodes which it could use itself.

The order in which clusters without a policy serve their users; the baseline of nearly every paper.
"""

from rota.core.jobs import Job
from rota.core.policy import Params, PriorityPolicy


class Fifo(PriorityPolicy[Params]):
    """Serve jobs in the order of their submission; one that waits blocks all who want its nodes."""

    name = "fifo"
    preemptive = False
    strict = True
    in_order = True

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - constant
        """Submission time."""
        return job.submit_s
