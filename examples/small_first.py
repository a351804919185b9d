"""Admission by size: jobs that ask for more GPUs than a share of the cluster enter one at a time.

Small jobs enter at once. A large one is held while another large one is inside, in the order of
their submission, so that the queue never fills up with jobs that block each other.
"""

from typing import Annotated

import msgspec

from rota.core.admission import Admission
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.reasons import Reason
from rota.core.state import State
from rota.core.view import View


class SmallFirstParams(Params, frozen=True):
    """The share of the cluster above which a job is large."""

    large: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5


class SmallFirstState(State):
    """What must survive a restart: large jobs that entered and have not finished."""

    inside: set[int] = set()


class SmallFirst(Admission):
    """One large job at a time; small ones as they come."""

    name = "small-first"
    Parameters = SmallFirstParams

    def __init__(self, params: SmallFirstParams | None = None) -> None:
        super().__init__(params)
        self.state: SmallFirstState = SmallFirstState()

    def consider(self, job: Job, view: View) -> Reason | None:
        """None lets it in, a reason holds it; held jobs are asked about again when one ends."""
        if self.state.inside and job.gpus > self.params.large * view.topology.gpus:
            return Reason.ADMISSION
        if job.gpus > self.params.large * view.topology.gpus:
            self.state.inside.add(job.index)
        return None

    def left(self, job: Job) -> None:
        """It has finished."""
        self.state.inside.discard(job.index)
