"""Searches over one number: bisection, and ratios by a sequence of easier problems."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rota.core.errors import InfeasibleError, SolverLimitError

Answer = TypeVar("Answer")

_ROUNDS = 200


def bisect(
    feasible: Callable[[float], bool], low: float, high: float, *, tolerance: float = 1e-9
) -> float:
    """The smallest number in [low, high] that is feasible, to a relative tolerance from above.

    Raises:
        InfeasibleError: Not even `high` is feasible.
    """
    if feasible(low):
        return low
    if not feasible(high):
        raise InfeasibleError(f"nothing up to {high:g} is feasible: search further")
    while high - low > tolerance * max(abs(low), abs(high)):
        middle = 0.5 * (low + high)
        if middle in (low, high):  # neighbours: there is nothing between them
            break
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class RatioSearch(Generic[Answer]):
    """An answer and the largest of its ratios."""

    ratio: float
    answer: Answer


def smallest_ratio(
    start: RatioSearch[Answer],
    improve: Callable[[RatioSearch[Answer]], RatioSearch[Answer]],
    *,
    tolerance: float = 1e-9,
) -> RatioSearch[Answer]:
    """The answer with the smallest largest ratio (Dinkelbach's method).

    `improve` solves the problem in which the ratio of the last answer is a constant. Its answers
    come closer to the best one faster and faster; they are never worse, so the search ends when
    nothing is gained any more.

    Raises:
        SolverLimitError: The answers still improve after many rounds.
    """
    best = start
    for _ in range(_ROUNDS):
        found = improve(best)
        gained = best.ratio - found.ratio
        if found.ratio < best.ratio:
            best = found
        if gained <= tolerance * abs(best.ratio):
            return best
    raise SolverLimitError(f"the ratio still falls after {_ROUNDS} rounds: {best.ratio:g}")
