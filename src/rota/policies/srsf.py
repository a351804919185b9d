"""Shortest remaining service first, preemptive: SRTF in two dimensions.

The remaining service of a job is its remaining time times the GPUs it asks for: a wide job counts
as long. Needs an oracle; jobs that do not fit are skipped. Tiresias' paper compares with it, its
simulator calls it `shortest-gpu`.
"""

from rota.core.jobs import RUNNING, Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy


class Srsf(PriorityPolicy[Params]):
    """Serve the job that needs the least GPU-time to finish."""

    name = "srsf"
    paper = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019"
    knowledge = Knowledge.REMAINING_WORK

    def key(self, job: Job, now_s: float) -> float:
        """GPU-seconds still needed; none for a job without GPUs."""
        gpus = job.gpus
        return job.remaining_s(now_s) * gpus if gpus else 0.0

    def slope(self, job: Job) -> float:
        """A running job comes nearer to its end, the faster the more GPUs it holds."""
        return -job.rate * job.gpus if job.phase == RUNNING else -1.0 * job.gpus
