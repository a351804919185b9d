"""Dot product: the node whose free CPUs and GPUs point least in the direction of the request.

One of the baselines of FGD (USENIX ATC 2023). What is free and what is asked are vectors of CPUs
and GPUs, measured against a machine with 128 CPUs and 8 GPUs; the smallest product wins, so that
nodes with plenty are left for those that need it.
"""

from rota.placement.fragments import Ints
from rota.placement.machines import NodeArrays
from rota.placement.scored import BEST, CPUS, GPUS, Scored, ScoredRequest, whole


class DotProduct(Scored):
    """Least product of free and asked amounts."""

    name = "dot-product"

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """100 times one minus half of the product, cut to whole numbers."""
        kind = request.kind
        cpu = machines.cpu[rows] / CPUS * (kind.cpu / CPUS)
        gpu = machines.gpus[rows].sum(axis=1) / GPUS * (kind.part * kind.gpus / GPUS)
        return whole(BEST * (1 - (cpu + gpu) / 2))
