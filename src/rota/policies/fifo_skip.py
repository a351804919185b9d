"""First in, first out, skipping what does not fit: no reservation, no preemption.

Jobs are tried in the order of their submission and everyone who fits starts. Small jobs fill the
holes that strict `fifo` leaves, at the price that a large job may be passed for ever. Several
published simulators call this FIFO (`fjf` in Tiresias', FIFO in the simulator of Alibaba PAI).
"""

from rota.core.jobs import Job
from rota.core.policy import Params, PriorityPolicy


class FifoSkip(PriorityPolicy[Params]):
    """Serve jobs in the order of their submission; those that do not fit are passed."""

    name = "fifo-skip"
    preemptive = False

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - constant
        """Submission time."""
        return job.submit_s
