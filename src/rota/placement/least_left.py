"""Best fit as in the study of FGD: the node on which the least is left of CPUs and GPUs.

What would be left is measured against a machine with 128 CPUs and 8 GPUs. `best-fit` is the more
general placement; this is what FGD (USENIX ATC 2023) was compared with.
"""

from rota.placement.fragments import Ints
from rota.placement.machines import NodeArrays
from rota.placement.scored import BEST, CPUS, GPUS, Scored, ScoredRequest, whole


class LeastLeft(Scored):
    """Least left over, cut to whole numbers."""

    name = "least-left"

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """100 minus what is left in percent."""
        kind = request.kind
        cpu = (machines.cpu[rows] - kind.cpu) / CPUS
        gpu = (machines.gpus[rows].sum(axis=1) - kind.part * kind.gpus) / GPUS
        return whole(BEST * (1 - 0.5 * cpu - 0.5 * gpu))
