"""GPU clustering: jobs that ask for alike numbers of GPUs go to the same nodes.

One of the baselines of FGD (USENIX ATC 2023), after Xiao et al., Gandiva, OSDI 2018. Parts of a GPU
are one sort of job, one GPU is another, two GPUs another, ... Nodes with that sort only come first,
then nodes with that sort among others, nodes without GPU jobs, and the others; the fuller first.
"""

import numpy as np

from rota.core.allocation import Allocation
from rota.core.jobs import Job, Shape
from rota.core.topology import Topology
from rota.placement.fragments import MILLI, Ints, JobClass
from rota.placement.machines import NodeArrays
from rota.placement.scored import GPUS, Scored, ScoredParams, ScoredRequest

STEP = 25
ONLY, AMONG, EMPTY = 3 * STEP, 2 * STEP, STEP


class GpuClustering(Scored):
    """Like to like."""

    name = "gpu-clustering"

    def __init__(
        self, topology: Topology, params: ScoredParams | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(topology, params, seed=seed)
        widest = self.machines.widest
        self._sorts: Ints = np.zeros((self.machines.count, widest + 1), np.int64)  # jobs by sort

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """By the company it would keep."""
        if not request.kind.gpus:
            return np.zeros(len(rows), np.int64)
        full = STEP * (GPUS - machines.gpus[rows].sum(axis=1)) // GPUS
        sorts = self._sorts[rows]
        mine = sorts[:, self._sort(request.kind)] > 0
        kinds = (sorts > 0).sum(axis=1)
        company = np.where(mine, np.where(kinds == 1, ONLY, AMONG), np.where(kinds == 0, EMPTY, 0))
        scores: Ints = full + company
        return scores

    def take(self, job: Job, shape: Shape | None = None) -> Allocation:
        """Choose and reserve."""
        allocation = super().take(job, shape)
        self._meet(job, allocation, +1)
        return allocation

    def hold(self, job: Job, allocation: Allocation) -> None:
        """Reserve exactly this."""
        super().hold(job, allocation)
        self._meet(job, allocation, +1)

    def give(self, job: Job, allocation: Allocation) -> None:
        """Take back."""
        super().give(job, allocation)
        self._meet(job, allocation, -1)

    def _meet(self, job: Job, allocation: Allocation, sign: int) -> None:
        kind = JobClass.of(job.shape.request)
        if kind.gpus:
            for position in self._positions(allocation):
                self._sorts[self.machines.rows[position], self._sort(kind)] += sign

    def _sort(self, kind: JobClass) -> int:
        """0 for parts of a GPU, else how many; more than the largest node has are one sort."""
        return 0 if kind.part < MILLI else min(kind.gpus, self.machines.widest)
