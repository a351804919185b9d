"""Shortest remaining time first, preemptive, with the knowledge of an oracle.

Optimal mean JCT on one GPU; the usual bound in comparisons. Jobs that do not fit are skipped.
"""

from rota.core.jobs import RUNNING, Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy


class Srtf(PriorityPolicy[Params]):
    """Serve the job that needs the least time to finish."""

    name = "srtf"
    knowledge = Knowledge.REMAINING_WORK

    def key(self, job: Job, now_s: float) -> float:
        """Seconds still needed."""
        return job.remaining_s(now_s)

    def slope(self, job: Job) -> float:
        """A running job comes nearer to its end."""
        return -job.rate if job.phase == RUNNING else -1.0
