"""Tiresias, discretised two-dimensional LAS (Gu et al., NSDI 2019, section 3).

Jobs sit in priority queues by the GPU-time they have received; a job that crosses a queue's limit
drops to the next one. The first queue is served first; inside a queue jobs are served in the order
of their (first) start, those that never started last in order of submission: running jobs keep
their place, which is worth a factor of two in mean JCT against the order of submission. No
knowledge of durations is needed. With `promote=K` a job that has waited K times as long as it has
run since it was last promoted (or submitted) returns to the first queue.

Departs from the paper: profile-based placement is a placement (`skew`), not part of the policy.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from rota.core.events import INF
from rota.core.jobs import RUNNING, Job
from rota.core.policy import Params, PriorityPolicy

TOLERANCE_GPU_S = 1e-6  # a level counts as reached in spite of rounding


class TiresiasParams(Params, frozen=True):
    """Knobs of section 3.2: GPU-seconds at which a job drops a queue, and the promotion factor."""

    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote: float = 0.0


class Tiresias(PriorityPolicy[TiresiasParams]):
    """Serve the jobs that have received the least GPU-time first, in queues."""

    name = "tiresias"
    paper = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019"
    Parameters = TiresiasParams
    state_key = True

    def __init__(self, params: TiresiasParams | None = None) -> None:
        super().__init__(params)
        self._limits = [limit - TOLERANCE_GPU_S for limit in self.params.limits]
        # at the last promotion: (GPU-time, seconds run, seconds waited), by job index
        self._promoted: dict[int, tuple[float, float, float]] = {}

    def key(self, job: Job, now_s: float) -> tuple[int, int, float]:
        """Queue, then started jobs by start and the others by submission."""
        gpu_s = job.attained_gpu_s(now_s)
        if self.params.promote and job.index in self._promoted:
            gpu_s -= self._promoted[job.index][0]
        queue = bisect_right(self._limits, gpu_s)
        if job.running:
            return (queue, 0, job.start_s)
        return (queue, 1, job.submit_s)

    def next_change(self, job: Job, now_s: float) -> float:
        """When a running job reaches the limit of its queue, or a waiting one is promoted."""
        gpu_s = job.attained_gpu_s(now_s)
        if self.params.promote and job.index in self._promoted:
            gpu_s -= self._promoted[job.index][0]
        queue = bisect_right(self._limits, gpu_s)
        if job.phase == RUNNING:
            if queue == len(self._limits):
                return INF
            return now_s + (self.params.limits[queue] - gpu_s) / job.held_gpus
        return INF

    def snapshot(self) -> Mapping[str, Any]:
        """Promotions so far."""
        return {"promoted": list(self._promoted.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take promotions up again."""
        self._promoted = {index: tuple(at) for index, at in state["promoted"]}
