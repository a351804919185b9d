"""Rates for dialects whose schedulers know themselves how fast a job is on an allocation.

A rate model sees an allocation and no round. Where a simulator counts progress in whole iterations
of a round, its scheduler writes the rate into the allocation, and this model takes just that.
"""

from collections.abc import Sequence

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.models.rates import Rates

RATE = "rate"


class PlannedRates(Rates):
    """The rate that the scheduler planned; 1 where it planned none."""

    name = "planned"

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """What the allocation says."""
        rate: float = (allocation.config or {}).get(RATE, 1.0)
        return rate
