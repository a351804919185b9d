"""Random: every free GPU is equally likely, wherever it is.

A lower bound for what caring about placement is worth. The draw depends on the seed and on the
number of the job only, never on what was drawn before: the same job on the same free GPUs gets the
same ones.
"""

from collections.abc import Sequence

from rota.core.jobs import Job, Shape
from rota.core.sums import ordered_sum
from rota.placement.base import Placement, Room
from rota.placement.choices import Choice, enough

_MASK = (1 << 64) - 1


class Random(Placement):
    """Draw GPUs from those that are free."""

    name = "random"

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        """A draw without replacement among the free GPUs of one type."""
        offers = room.offers(shape)
        draw = Draw(self.seed, -1 if job is None else job.index)
        if shape.gpus < 1:
            need = shape.gpus or 1
            possible = [position for position, offer in enumerate(offers) if offer >= need]
            return [(possible[draw.below(len(possible))], need)] if possible else None
        kinds = [
            positions
            for positions in self.kinds
            if ordered_sum(offers[p] for p in positions) >= shape.gpus
        ]
        if not kinds:
            return None
        return _drawn(draw, int(shape.gpus), kinds[draw.below(len(kinds))], offers)

    def feasible(self, shape: Shape, room: Room) -> bool:
        """Enough in total; what is not divided needs one node."""
        offers = room.offers(shape)
        if shape.gpus < 1:
            return max(offers) > 0
        return enough(shape.gpus, self.kinds, offers)


def _drawn(draw: "Draw", need: int, positions: Sequence[int], offers: Sequence[float]) -> Choice:
    left = [int(offers[position]) for position in positions]
    total = sum(left)
    for taken in range(need):
        number = draw.below(total - taken)
        for i, here in enumerate(left):
            if number < here:
                left[i] -= 1
                break
            number -= here
    return [
        (position, int(offers[position]) - left[i])
        for i, position in enumerate(positions)
        if left[i] < offers[position]
    ]


class Draw:
    """A stream of random numbers that two numbers determine (SplitMix64, Steele et al. 2014)."""

    def __init__(self, seed: int, index: int) -> None:
        self._state = _mixed(_mixed(seed & _MASK) ^ (index & _MASK))

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        return (_mixed(self._state) * bound) >> 64


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
