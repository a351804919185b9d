"""Admission by size: jobs that ask for more GPUs than a share of the cluster enter one at a time.

Small jobs enter at once. A large one is held while another large one is inside, in the order of
their submission, so that the queue never fills up with jobs that block each other.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from rota.core.admission import Admission
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.reasons import Reason
from rota.core.view import View


class SmallFirstParams(Params, frozen=True):
    """The share of the cluster above which a job is large."""

    large: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5


class SmallFirst(Admission):
    """One large job at a time; small ones as they come."""

    name = "small-first"
    Parameters = SmallFirstParams

    def __init__(self, params: SmallFirstParams | None = None) -> None:
        super().__init__(params)
        self._inside: set[int] = set()  # large jobs that entered and are not over

    def consider(self, job: Job, view: View) -> Reason | None:
        """None lets it in, a reason holds it; held jobs are asked about again when one ends."""
        if self._inside and job.gpus > self.params.large * view.topology.gpus:
            return Reason.ADMISSION
        if job.gpus > self.params.large * view.topology.gpus:
            self._inside.add(job.index)
        return None

    def left(self, job: Job) -> None:
        """It is over."""
        self._inside.discard(job.index)

    def snapshot(self) -> Mapping[str, Any]:
        """What must survive a restart, as plain data."""
        return {"inside": sorted(self._inside)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take it up again."""
        self._inside = set(state["inside"])
