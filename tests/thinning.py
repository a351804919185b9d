"""Which cases of a grid `make test` runs; `make soak` runs all of them."""

from itertools import cycle, islice, product

import pytest


def thinned(*axes):
    """Return the cases of a grid for `parametrize`: the whole grid, most of it marked `soak`.

    Every value of every axis stays in `make test`, once for each value of the longest axis: a
    defect of one value is found at once, one of a certain combination in the soak.
    """
    axes = [list(axis) for axis in axes]
    longest = max(map(len, axes))
    kept = list(zip(*(islice(cycle(axis), longest) for axis in axes), strict=True))
    others = [case for case in product(*axes) if case not in kept]
    return [*kept, *(pytest.param(*case, marks=pytest.mark.soak) for case in others)]


def first(number, cases):
    """Return cases for `parametrize` of which only so many, the first, run in `make test`."""
    kept, others = list(cases)[:number], list(cases)[number:]
    others = [case if isinstance(case, tuple) else (case,) for case in others]
    return [*kept, *(pytest.param(*case, marks=pytest.mark.soak) for case in others)]
