"""E-LAS: attained service corrected by the progress of training (Sultana et al., ICPP 2020).

Training jobs tell how far they are (epochs done of epochs wanted), and that is known without any
estimate of durations. E-LAS keeps the queues of `tiresias`, by attained GPU-time, and corrects the
order inside them by the progress rate: the share of its epochs that a job has finished per second
of running. Of two jobs with equal service and GPUs the one with the higher rate is nearer to
convergence and is served first. Rates are compared in steps of `factor`: within a step (and in the
first queue, where nothing has been measured) jobs are served as `tiresias` serves them. Hence
E-LAS is exactly `tiresias` without promotion when all rates are equal.

A rate is measured when a job reaches the limit of a queue, and in the last queue again whenever its
service has doubled; in between its key is constant, so decisions fall at exact times.

Departs from the paper: only its abstract was at hand, so the way in which rate and service are put
together is ours; the paper's placement algorithm is not part of the policy.
"""

from collections.abc import Mapping
from math import log
from typing import Annotated, Any

import msgspec

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params
from rota.core.state import State, from_rows
from rota.policies._attained import AttainedPolicy, check_limits

DOUBLINGS = 40  # of the last limit, at which the rate is measured again
NO_PROGRESS = 1 << 20  # the grade of a job that has reported no progress: behind all others


class ElasParams(Params, frozen=True):
    """GPU-seconds at which a job drops a queue, and the ratio of rates that makes a difference."""

    limits: tuple[float, ...] = (3250.0, 7200.0)
    factor: Annotated[float, msgspec.Meta(gt=1)] = 2.0

    def __post_init__(self) -> None:
        check_limits(self.limits)


class ElasState(State):
    """The rates measured of jobs that have not finished."""

    measured: dict[int, tuple[int, int]] = {}  # job index -> (interval, grade)

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - there is one
        """From version 0."""
        return {"measured": from_rows(fields["measured"])}


class Elas(AttainedPolicy[ElasParams]):
    """Serve the jobs with the least GPU-time first, in a queue those that progress faster."""

    name = "elas"
    paper = (
        "Sultana et al., E-LAS: Design and Analysis of Completion-Time Agnostic Scheduling for "
        "Distributed Deep Learning Cluster, ICPP 2020"
    )
    knowledge = Knowledge.PROGRESS
    Parameters = ElasParams

    def __init__(self, params: ElasParams | None = None) -> None:
        super().__init__(params)
        limits = self.params.limits
        further = [limits[-1] * 2.0**n for n in range(1, DOUBLINGS + 1)] if limits else []
        self.levels = [*limits, *further]
        self.ranks = [min(i, len(limits)) for i in range(len(self.levels) + 1)]
        self.state: ElasState = ElasState()

    def rank(self, job: Job, now_s: float) -> tuple[float, int]:
        """Queue, then the grade measured when the present interval of service was entered."""
        interval = self.interval(job, now_s)
        if not interval:
            return (0, 0)
        known = self.state.measured.get(job.index)
        if known is None or known[0] != interval:
            known = self.state.measured[job.index] = (interval, self._grade(job, now_s))
        return (self.ranks[interval], known[1])

    def _grade(self, job: Job, now_s: float) -> int:
        """Steps of `factor` by which its progress rate is below 1 per second."""
        progress = job.progress(now_s)
        if progress <= 0:
            return NO_PROGRESS
        return -round(log(progress / job.executed_s(now_s), self.params.factor))

    def finished(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - nothing is learnt
        """Forget its measurement."""
        self.state.measured.pop(job.index, None)
