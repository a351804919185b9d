"""Sums of floats that are the same with every version of Python.

From 3.12 on `sum` keeps what it rounds off and adds it at the end; before, it does not. The last
digit differs, which is enough to turn a tie in a decision. `scripts/same_sums.py` makes mypy refuse
`sum` of floats.
"""

from collections.abc import Iterable
from functools import reduce
from operator import add


def ordered_sum(numbers: Iterable[float]) -> float:
    """Their sum, added one after the other; of none 0."""
    return reduce(add, numbers, 0)
