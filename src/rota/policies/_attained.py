"""Keys that change only when the service that a job has attained reaches a level.

The common part of the LAS family and of Gittins. Levels cut the attained service into intervals,
each with a rank; between two levels a key is constant, and the time of the next crossing is exact.
At equal rank running jobs come first, in the order of their start, then waiting ones in the order
of their submission: a running job keeps its place until one of better rank needs it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from rota.core.events import INF
from rota.core.jobs import RUNNING, WAITING, Job
from rota.core.policy import Params, PriorityPolicy

SLACK_S = 1e-6  # a job that stopped so shortly before a level has reached it: sums are rounded

P = TypeVar("P", bound=Params)


class AttainedPolicy(PriorityPolicy[P]):
    """Subclasses fill `levels` (ascending) and `ranks` (one more: that of each interval)."""

    state_key = True
    by_time: ClassVar[bool] = False
    """Service is seconds of progress; otherwise GPU-seconds."""

    def __init__(self, params: P | None = None) -> None:
        super().__init__(params)
        self.levels: Sequence[float] = ()
        self.ranks: Sequence[float] = (0,)
        self._by_time = self.by_time  # not read from its class for every key: that is slow
        self.forgiven: dict[int, float] = {}  # job index -> service that does not count any more

    def interval(self, job: Job, now_s: float) -> int:
        """How many levels its service has reached."""
        levels = self.levels
        served, speed = (job.run_s, 1.0) if self._by_time else (job.service, job.gpus)
        if self.forgiven:
            served -= self.forgiven.get(job.index, 0.0)
        if job.phase != RUNNING or not speed:
            return bisect_right(levels, served + SLACK_S * speed)
        since_s = job.since_s  # `served` is as of then
        ran_s = now_s - since_s
        if ran_s < 2 * SLACK_S:
            ran_s = SLACK_S
        reached = bisect_right(levels, served + ran_s * speed)
        # sums are rounded: what counts are the times that `next_change` tells
        if ran_s > SLACK_S:
            while reached and since_s + (levels[reached - 1] - served) / speed > now_s:
                reached -= 1
        while reached < len(levels) and since_s + (levels[reached] - served) / speed <= now_s:
            reached += 1
        return reached

    def rank(self, job: Job, now_s: float) -> Any:
        """What counts before running and waiting do."""
        return self.ranks[self.interval(job, now_s)]

    def key(self, job: Job, now_s: float) -> tuple[Any, int, float]:
        """Rank, then running jobs by start and the others by submission."""
        rank = self.rank(job, now_s)
        phase = job.phase
        if phase == RUNNING or (phase != WAITING and job.running):
            return (rank, 0, job.start_s)
        return (rank, 1, job.submit_s)

    def next_change(self, job: Job, now_s: float) -> float:
        """When a running job reaches its next level: the same number whenever it is asked."""
        if job.phase != RUNNING:
            return INF
        served, speed = (job.run_s, 1.0) if self._by_time else (job.service, job.gpus)
        levels = self.levels
        reached = self.interval(job, now_s)
        if reached == len(levels) or not speed:
            return INF
        if self.forgiven:
            served -= self.forgiven.get(job.index, 0.0)
        return job.since_s + (levels[reached] - served) / speed


def check_limits(limits: Sequence[float]) -> None:
    """Refuse limits of queues that do not ascend from above 0."""
    if any(not low < high for low, high in zip((0.0, *limits), limits, strict=False)):
        raise ValueError("limits must be positive and ascending, e.g. 3250/7200")
