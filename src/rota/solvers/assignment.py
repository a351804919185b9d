"""Cheapest assignment of rows to columns that take several rows each.

Rows enter one after the other. Each takes the cheapest way to a free place, where it may push
others to other columns (shortest augmenting paths with prices of the columns, as Jonker and
Volgenant do). Equal columns are one column with a larger capacity, so the work depends on the
number of different columns.
"""

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import InfeasibleError

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


def assign(cost: Array, capacity: NDArray[np.int64] | None = None) -> Indices:
    """The column of every row, with the least total cost; an infinite cost forbids a place.

    Raises:
        InfeasibleError: Some row finds no place.
    """
    rows, columns = cost.shape
    limit = np.ones(columns, np.int64) if capacity is None else capacity
    state = _State(cost, limit)
    for row in range(rows):
        state.enter(row)
    return state.column


class _State:
    def __init__(self, cost: Array, capacity: NDArray[np.int64]) -> None:
        rows, columns = cost.shape
        self.cost = cost
        self.price = np.zeros(columns)  # never positive: what a full column is worth, negated
        self.left = capacity.copy()
        self.column = np.full(rows, -1, np.intp)

    def enter(self, row: int) -> None:
        """Give the row a place, moving others where that is cheaper."""
        columns = len(self.price)
        reach = self.cost[row] - self.price  # cheapest way to each column so far
        via = np.full(columns, row, np.intp)  # the row that would move in
        closed = np.zeros(columns, bool)
        while True:
            column = int(np.where(closed, np.inf, reach).argmin())
            far = reach[column]
            if closed[column] or not np.isfinite(far):
                raise InfeasibleError(f"row {row} of the assignment finds no column with room")
            if self.left[column]:
                break
            closed[column] = True
            self._relax(column, reach, via, closed)
        self.price[closed] += reach[closed] - far
        self._move(row, column, via)

    def _relax(self, column: int, reach: Array, via: Indices, closed: NDArray[np.bool_]) -> None:
        """Ways that push a row out of a full column."""
        inside = np.flatnonzero(self.column == column)
        own = self.cost[inside, column] - self.price[column]
        ways = (self.cost[inside] - self.price) - own[:, None]
        best = ways.argmin(axis=0)
        new = reach[column] + ways[best, np.arange(len(reach))]
        better = (new < reach) & ~closed
        reach[better] = new[better]
        via[better] = inside[best[better]]

    def _move(self, row: int, column: int, via: Indices) -> None:
        """Shift the rows along the way that ends in the column."""
        self.left[column] -= 1
        while True:
            mover = int(via[column])
            column, self.column[mover] = int(self.column[mover]), column
            if mover == row:
                return
