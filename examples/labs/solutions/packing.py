"""Best fit: a job goes to the fullest node that has room, so that empty nodes stay empty."""

import numpy as np

from rota.placement.fragments import MILLI, Ints
from rota.placement.machines import NodeArrays
from rota.placement.scored import BEST, Scored, ScoredRequest


class Fullest(Scored):
    """Keep empty nodes empty, for jobs that need a whole one."""

    name = "fullest"

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """Score the nodes in `rows`, from 0 to 100: the highest gets the job."""
        free = machines.gpus[rows].sum(axis=1)  # in thousandths of a GPU
        return np.maximum(BEST - free // MILLI, 0)
