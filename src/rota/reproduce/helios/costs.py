"""Costs for dialects whose schedulers know themselves how long a start takes.

A cost model sees one job at a time and no policy. What a simulator charges can depend on more: on
the policy that runs, or on overhead that a job still owes from its last preemption. A scheduler
then writes the seconds into the allocation (`planned`), and this model charges just that.
"""

from collections.abc import Sequence

from rota.core.allocation import Allocation, Slice
from rota.core.jobs import Job
from rota.core.ports import FREE, TransitionCost
from rota.models.costs import CostModel, CostParams

START_S = "start_s"


def planned(slices: Sequence[Slice], start_s: float) -> Allocation:
    """An allocation on which a job makes progress only after so many seconds."""
    return Allocation(slices, config={START_S: start_s} if start_s else None)


class Planned(CostModel[CostParams]):
    """A start takes as long as the scheduler planned it; all else is free."""

    name = "planned"
    source = "the scheduler of a dialect writes the seconds of a start into the allocation"

    def start(self, job: Job) -> TransitionCost:
        """What the allocation says."""
        config = job.allocation.config or {}
        return TransitionCost(start_s=config[START_S]) if START_S in config else FREE
