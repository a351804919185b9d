"""The problem of shares of time on few kinds of machines, and its answer.

Find x >= 0, the share of time that row i spends on kind j, and a level z

    maximise    z                                or  sum_ij value_ij x_ij  or  sum_i count_i log g_i
    such that   g_i = sum_j gain_ij x_ij >= slope_i z + floor_i        for every row i
                sum_j x_ij <= 1                                        for every row i
                sum_i size_i x_ij <= capacity_j                        for every kind j
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ShareProblem:
    """One problem; rows are jobs or groups of equal jobs, columns are kinds of machines.

    Rows without `slope` and `floor` are bound by time and capacity only. `log` asks for the largest
    product of the gains, each to the power of its `count`.
    """

    gain: Array
    size: Array
    capacity: Array
    slope: Array | None = None
    floor: Array | None = None
    value: Array | None = None
    log: bool = False
    count: Array | None = None


@dataclass(frozen=True)
class ShareSolution:
    """Shares by row and kind, and what proves them.

    `bids` are the prices of the floors (rows), `prices` those of the capacities (kinds). `tight`
    marks the rows that gain no more than they must in every optimal answer.
    """

    shares: Array
    level: float
    bids: Array
    prices: Array
    tight: NDArray[np.bool_]
    steps: int

    def gains(self, gain: Array) -> Array:
        """What every row gains."""
        total: Array = (self.shares * gain).sum(axis=1)
        return total
