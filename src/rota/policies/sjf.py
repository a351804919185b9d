"""Shortest job first, not preemptive: the order by duration that an oracle would give.

Whenever something is freed, the waiting job with the shortest duration starts; what runs is never
disturbed. By default jobs that do not fit are passed; with `strict=yes` the first one that does not
fit blocks all behind it, as in the simulators of Helios and Lucid.
"""

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy


class SjfParams(Params, frozen=True):
    """Whether the head of the queue blocks."""

    strict: bool = False


class Sjf(PriorityPolicy[SjfParams]):
    """Serve the job with the shortest duration."""

    name = "sjf"
    knowledge = Knowledge.REMAINING_WORK
    Parameters = SjfParams
    preemptive = False

    def __init__(self, params: SjfParams | None = None) -> None:
        super().__init__(params)
        self.strict = self.params.strict

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - constant
        """Seconds that it needs in all."""
        return job.duration_s()
