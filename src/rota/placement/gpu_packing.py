"""GPU packing: fill shared GPUs first, then GPUs of nodes in use, then an idle node.

One of the baselines of FGD (USENIX ATC 2023), after Weng et al., MLaaS in the Wild, NSDI 2022.
"""

import numpy as np

from rota.placement.fragments import MILLI, Ints
from rota.placement.machines import NodeArrays
from rota.placement.scored import BEST, Scored, ScoredRequest

IDLE, FREE, SHARED = 33, 50, 100  # scores start here: an idle node, free GPUs, shared GPUs


class GpuPacking(Scored):
    """Shared GPUs, then nodes in use, then idle nodes."""

    name = "gpu-packing"

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """By what the job would have to break into."""
        part, gpus = request.kind.part, request.kind.gpus
        if not gpus:
            return np.zeros(len(rows), np.int64)
        left = machines.gpus[rows]
        ranked = np.sort(np.where(left >= part, left, 2 * MILLI), axis=1)[:, :gpus]
        free = (ranked == MILLI).sum(axis=1)
        rest = (np.where(ranked < MILLI, ranked, 0) * BEST // MILLI).sum(axis=1)
        sizes = np.array(machines.sizes)[rows]
        idle = (left == MILLI).sum(axis=1) == sizes
        scores: Ints = np.where(
            idle,
            np.maximum(IDLE - sizes, sizes),
            np.where(
                free > 0, np.maximum(FREE - free, IDLE), np.maximum(SHARED - rest // 10, FREE)
            ),
        )
        return scores
