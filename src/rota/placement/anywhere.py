"""Any node with room and any GPU there, each equally likely: the `random` of the study of FGD.

Unlike `random` it keeps a job on one node. The draw depends on the seed and on the number of the
job only.
"""

import numpy as np

from rota.core.jobs import Job
from rota.placement.fragments import MILLI, Ints
from rota.placement.machines import NodeArrays
from rota.placement.random_fit import Draw
from rota.placement.scored import NO, Scored, ScoredRequest


class Anywhere(Scored):
    """Draw a node, then a GPU."""

    name = "anywhere"
    draws = True
    _job = -1  # whose draw it is

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:  # noqa: ARG002
        """All alike."""
        return np.zeros(len(rows), np.int64)

    def winner(self, scores: Ints, job: Job | None) -> int:
        """Any row with room."""
        self._job = -1 if job is None else job.index
        possible = np.flatnonzero(scores > NO)
        if not len(possible):
            return 0
        return int(possible[Draw(self.seed, self._job).below(len(possible))])

    def devices(self, machines: NodeArrays, row: int, request: ScoredRequest) -> list[int]:
        """For a part of a GPU any with room, else the first free ones."""
        if request.kind.part == MILLI:
            return super().devices(machines, row, request)
        fitting = np.flatnonzero(machines.gpus[row] >= request.kind.part)
        draw = Draw(self.seed, self._job)
        draw.below(2)  # another number than that of the node
        return [int(fitting[draw.below(len(fitting))])]
