"""Small jobs first, but nobody waits for ever.

Every GPU beyond the first counts as `per_gpu_s` seconds of later submission: a job of 8 GPUs is
tried after jobs of one GPU that were submitted up to 7 * `per_gpu_s` seconds later, and before the
jobs of one GPU that came after those.
"""

from rota.core.jobs import Job
from rota.core.policy import Params, PriorityPolicy


class AgedSizeParams(Params, frozen=True):
    """Seconds that a job waits for each GPU beyond the first."""

    per_gpu_s: float = 3600.0


class AgedSize(PriorityPolicy[AgedSizeParams]):
    """Serve small jobs first, and old ones before young ones."""

    name = "aged-size"
    Parameters = AgedSizeParams
    preemptive = False

    def key(self, job: Job, now_s: float) -> float:
        """The time at which it counts as submitted; smaller is served first."""
        return job.submit_s + self.params.per_gpu_s * (job.gpus - 1)
