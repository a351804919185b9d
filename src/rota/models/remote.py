"""GPUs that a job reaches over the network: its CPUs are on another node (rCUDA, LegoOS)."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.topology import Topology
from rota.models.rates import Rates
from rota.models.slicing import remote_step_s

Above = Annotated[float, msgspec.Meta(gt=0)]
Least = Annotated[float, msgspec.Meta(ge=0)]


class RemoteParams(Params, frozen=True):
    """A step takes `step_s`; it sends `gib` over a link of `gib_s` in `calls` of `rtt_s` each."""

    step_s: Above = 0.5
    gib: Least = 0.25
    calls: Least = 1000
    gib_s: Above = 12.0
    rtt_s: Least = 0.00002


class RemoteRates(Rates):
    """A step with a remote GPU takes longer: t = t_local + bytes / bandwidth + calls x round trip.

    A job is remote if none of its CPUs is on the node of one of its GPUs. Remote jobs whose GPUs
    are on the same node divide its link. Jobs without CPUs have them where their GPUs are.
    """

    name = "remote"
    Parameters = RemoteParams

    def __init__(self, topology: Topology, params: RemoteParams | None = None) -> None:
        super().__init__(topology, params)
        self.neighbours = True
        self._node = [vertex.node for vertex in topology.vertices]

    def keys(self, job: Job) -> Sequence[int]:
        """The nodes whose links it uses."""
        return self.far(job.allocation)

    def far(self, allocation: Allocation) -> list[int]:
        """Nodes of its GPUs on which it has no CPUs."""
        near = {self._node[vertex] for vertex, kind, _ in allocation.extra if kind == "cpu"}
        nodes = dict.fromkeys(self._node[vertex] for vertex, _ in allocation.slices)
        return [node for node in nodes if near and node >= 0 and node not in near]

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """The slowest of its links decides."""
        params = self.params
        rate = 1.0
        for node in self.far(allocation):
            others = sum(node in self.far(other.allocation) for other in sharers)
            step_s = remote_step_s(
                params.step_s, params.gib, params.calls,
                gib_s=params.gib_s, rtt_s=params.rtt_s, sharers=1 + others,
            )  # fmt: skip
            rate = min(rate, params.step_s / step_s)
        return rate
