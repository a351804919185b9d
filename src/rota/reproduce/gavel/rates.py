"""Rates for leases: the scheduler knows how many whole steps a job makes in a round.

It writes the rates of a job by GPU type where schedulers may keep what is theirs (`Job.key`), and
the rate of a last lease, which ends with the last step, or of a lease beside another job into the
allocation.
"""

from collections.abc import Sequence

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.topology import Topology
from rota.models.rates import Rates
from rota.reproduce.synergy.rates import RATE


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
        if not isinstance(job.key, dict) or not allocation.slices:
            return 1.0
        rate: float = job.key.get(self._types[allocation.slices[0][0]], 1.0)
        return rate
