"""Rates for leases: the scheduler knows how many whole steps a job makes in a round.

It gives each job the rates of its leases by GPU type (`LeaseSpeeds`), and writes the rate of a last
lease, which ends with the last step, or of a lease beside another job into the allocation.
"""

from collections.abc import Mapping, Sequence

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.topology import Topology
from rota.models.rates import Rates
from rota.reproduce.synergy.rates import RATE


class LeaseSpeeds:
    """The speeds of one job in full leases; implements `SpeedBook`."""

    def __init__(self, speeds: Mapping[str, float]) -> None:
        self._speeds = speeds

    def speed(self, job: Job, gpu_type: str) -> float:  # noqa: ARG002 - it is of one job
        """Work per second; 1 where no lease was planned."""
        return self._speeds.get(gpu_type, 1.0)

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:  # noqa: ARG002
        """Leases beside others have their speeds in the allocation."""
        return 0.0


class LeaseRates(Rates):
    """The rate that the scheduler planned; 1 where it planned none."""

    name = "leases"

    def __init__(self, topology: Topology, params: Params | None = None) -> None:
        super().__init__(topology, params)
        self.packs = True
        self._types = [vertex.gpu_type for vertex in topology.vertices]

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """Of the lease, or else of any lease on the type."""
        if allocation.config is not None and RATE in allocation.config:
            last: float = allocation.config[RATE]
            return last
        if not isinstance(job.book, LeaseSpeeds) or not allocation.slices:
            return 1.0
        return job.book.speed(job, self._types[allocation.slices[0][0]])
