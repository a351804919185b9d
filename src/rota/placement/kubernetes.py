"""Like a default Kubernetes scheduler: the node of which the least is asked for, evenly.

The sum of two scores from 0 to 100, as its plugins NodeResourcesFit (`LeastAllocated`) and
NodeResourcesBalancedAllocation give by default: the mean over CPUs and memory of what would stay
free, and 100 minus the standard deviation between their shares in use. GPUs are not scored by
default, only counted; `gpu_weight` makes them a resource like the others. They are the only one
where a cluster declares neither CPUs nor memory.
"""

import numpy as np

from rota.core.topology import Topology
from rota.placement.fragments import MILLI, Floats, Ints
from rota.placement.machines import NodeArrays
from rota.placement.scored import BEST, Scored, ScoredParams, ScoredRequest, whole


class KubernetesFitParams(ScoredParams, frozen=True):
    """`gpu_weight`: how much GPUs count beside CPUs and memory, which count 1 each."""

    gpu_weight: float = 0.0


class KubernetesFit(Scored):
    """Least allocated and balanced."""

    name = "kubernetes"
    Parameters = KubernetesFitParams
    by_memory = True

    def __init__(
        self, topology: Topology, params: KubernetesFitParams | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(topology, params, seed=seed)
        weight = (params or KubernetesFitParams()).gpu_weight
        bare = not (self.room.has_cpus or self.room.has_mem)
        self._gpu_weight = max(weight, 1.0) if bare else weight

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """Both scores, each cut to a whole number."""
        shares, weights = self._shares(machines, rows, request)
        free = whole(BEST * (1 - shares))
        least = (free * weights[:, None]).sum(axis=0) / weights.sum()
        balanced = BEST * (1 - shares.std(axis=0))
        scores: Ints = whole(least) + whole(balanced)
        return scores

    def _shares(
        self, machines: NodeArrays, rows: Ints, request: ScoredRequest
    ) -> tuple[Floats, Floats]:
        """By resource and row: the share in use once the job is there; and weights."""
        kind = request.kind
        found: list[tuple[Floats, float]] = []
        if self.room.has_cpus:
            found.append((_in_use(machines.all_cpu[rows], machines.cpu[rows] - kind.cpu), 1.0))
        if self.room.has_mem:
            found.append((_in_use(machines.all_mem[rows], machines.mem[rows] - request.mem), 1.0))
        if self._gpu_weight:
            sizes = np.array(machines.sizes)[rows] * MILLI
            left = machines.gpus[rows].sum(axis=1) - kind.part * kind.gpus
            found.append((_in_use(sizes, left), self._gpu_weight))
        return np.array([shares for shares, _ in found]), np.array([part for _, part in found])


def _in_use(total: Ints, left: Ints) -> Floats:
    """Shares; a node that has none of it is full."""
    shares: Floats = np.where(total > 0, 1 - left / np.maximum(total, 1), 1.0)
    return np.clip(shares, 0.0, 1.0)
