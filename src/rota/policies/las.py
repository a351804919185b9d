"""Least attained service first, by time, in queues (Tiresias' `dlas`; Gu et al., NSDI 2019).

Jobs sit in priority queues by the seconds for which they have run; one that reaches a queue's limit
drops to the next queue. The first queue is served first; inside a queue running jobs keep their
place and waiting ones follow in the order of submission. Jobs that do not fit are skipped. Nothing
about durations is known, and the number of GPUs does not count: see `tiresias` for GPU-time.

Departs from Tiresias' simulator, which puts a job that drops behind those waiting in its new queue:
here it goes on running unless somebody of a better queue needs its GPUs.
"""

from rota.core.policy import Params
from rota.policies._attained import AttainedPolicy, check_limits


class LasParams(Params, frozen=True):
    """Seconds of running after which a job drops a queue; the defaults are the simulator's."""

    limits: tuple[float, ...] = (3250.0, 7200.0)

    def __post_init__(self) -> None:
        check_limits(self.limits)


class Las(AttainedPolicy[LasParams]):
    """Serve the jobs that have run for the shortest time first, in queues."""

    name = "las"
    paper = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019"
    Parameters = LasParams
    by_time = True

    def __init__(self, params: LasParams | None = None) -> None:
        super().__init__(params)
        self.levels = self.params.limits
        self.ranks = range(len(self.levels) + 1)
