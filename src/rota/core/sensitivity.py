"""How fast a job is by what it has besides GPUs: a table over CPUs and memory per GPU."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import msgspec


class Sensitivity(msgspec.Struct, frozen=True):
    """Measured speeds: `rates[i][j]` with `cpus[i]` CPUs and `mem_gib[j]` GiB for each GPU.

    The speeds are relative to each other; which of them is 1 does not matter. Between the points
    they are interpolated, beyond them they stay. `step_s` is the time of one iteration at speed 1
    (0: not known).
    """

    cpus: tuple[float, ...]
    mem_gib: tuple[float, ...]
    rates: tuple[tuple[float, ...], ...]
    step_s: float = 0.0

    def __post_init__(self) -> None:
        for axis in (self.cpus, self.mem_gib):
            if not axis or any(a >= b for a, b in pairwise(axis)):
                raise ValueError(f"{axis}: the points of a table must grow")
        if [len(row) for row in self.rates] != [len(self.mem_gib)] * len(self.cpus):
            raise ValueError("a table needs a row for each number of CPUs, as long as `mem_gib`")
        if any(rate <= 0 for row in self.rates for rate in row):
            raise ValueError("every speed of a table must be more than 0")

    def at(self, cpus: float, mem_gib: float) -> float:
        """The speed with so many CPUs and so much memory for each GPU."""
        row, down = _between(self.cpus, cpus)
        column, right = _between(self.mem_gib, mem_gib)
        upper = _mixed(self.rates[row], column, right)
        return (
            upper
            if not down
            else upper + down * (_mixed(self.rates[row + 1], column, right) - upper)
        )


def _between(points: Sequence[float], value: float) -> tuple[int, float]:
    """The point at or before the value, and how far the value is on the way to the next (0..1)."""
    place = bisect_right(points, value) - 1
    if place < 0:
        return 0, 0.0
    if place == len(points) - 1:
        return place, 0.0
    return place, (value - points[place]) / (points[place + 1] - points[place])


def _mixed(row: Sequence[float], column: int, right: float) -> float:
    return row[column] if not right else row[column] + right * (row[column + 1] - row[column])
