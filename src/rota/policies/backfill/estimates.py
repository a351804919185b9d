"""What users' estimates say about the end of jobs; shared by the backfilling policies."""

from rota.core.events import INF
from rota.core.jobs import RUNNING, Job


def needed_s(job: Job, default_s: float) -> float:
    """Seconds that a waiting job still needs by its estimate; `default_s` if it has none."""
    estimate_s = job.estimate_s()
    return max((default_s if estimate_s == INF else estimate_s) - job.run_s, 0.0)


def estimated_end_s(job: Job, default_s: float) -> float:
    """When a running job was to end by its estimate, be it in the past.

    The same number at every decision while the job runs (now is not part of the sum), so that a
    promise can be compared with it exactly.
    """
    begun_s = job.since_s if job.phase == RUNNING else job.start_s
    return begun_s + needed_s(job, default_s)
