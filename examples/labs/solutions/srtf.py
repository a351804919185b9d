"""Shortest remaining time first: the job that needs the least time to finish is served first."""

from rota.core.jobs import RUNNING, Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy


class ShortestFirst(PriorityPolicy[Params]):
    """Serve the job that needs the least time to finish."""

    name = "shortest-first"
    knowledge = Knowledge.REMAINING_WORK

    def key(self, job: Job, now_s: float) -> float:
        """Seconds that it still needs."""
        return job.remaining_s(now_s)

    def slope(self, job: Job) -> float:
        """A running job comes nearer to its end, by its speed."""
        return -job.rate if job.phase == RUNNING else -1.0
