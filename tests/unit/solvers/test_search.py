"""Searches over one number."""

import pytest

from rota.core.errors import InfeasibleError, SolverLimitError
from rota.solvers.search import RatioSearch, bisect, smallest_ratio


def test_bisection_finds_the_edge_from_above():
    found = bisect(lambda x: x * x >= 2, 0.0, 4.0)
    assert found * found >= 2
    assert found == pytest.approx(2**0.5, rel=1e-8)


def test_bisection_takes_the_lower_end_if_it_will_do():
    assert bisect(lambda _: True, 3.0, 4.0) == 3.0


def test_bisection_without_an_answer():
    with pytest.raises(InfeasibleError, match="up to 4"):
        bisect(lambda _: False, 0.0, 4.0)


def test_the_smallest_ratio():
    """Of (x^2 + 1) / x over x >= 0.1: 2, at 1; with the ratio r fixed, x = r / 2 is best."""

    def ratio(x):
        return RatioSearch((x * x + 1) / x, x)

    found = smallest_ratio(ratio(5.0), lambda last: ratio(last.ratio / 2))
    assert found.ratio == pytest.approx(2.0)
    assert found.answer == pytest.approx(1.0, abs=1e-4)


def test_a_ratio_that_falls_for_ever_is_an_error():
    with pytest.raises(SolverLimitError, match="still falls"):
        smallest_ratio(RatioSearch(1.0, 0), lambda last: RatioSearch(last.ratio * 0.9, last.answer))
