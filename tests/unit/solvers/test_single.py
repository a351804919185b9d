"""One kind of machines: what is written down against what is searched for."""

import numpy as np
import pytest

from allocation_cases import assert_feasible
from rota.core.errors import InfeasibleError
from rota.solvers.interior import Search
from rota.solvers.share_problem import ShareProblem
from rota.solvers.shares import TOLERANCE, solve_grouped, solve_shares, solve_single


def case(seed, rows=None):
    rng = np.random.default_rng(seed)
    rows = rows or int(rng.integers(1, 9))
    gain = rng.uniform(0.2, 3.0, (rows, 1))
    size = rng.choice([1.0, 2.0, 4.0, 0.5], rows)
    return rng, gain, size, np.array([float(rng.integers(1, 8))])


def searched(problem):
    search = Search(problem)
    steps = search.run(TOLERANCE)
    assert steps is not None
    return search.solution(steps)


@pytest.mark.parametrize("seed", range(40))
def test_the_level(seed):
    rng, gain, size, capacity = case(seed)
    slope = rng.uniform(0.2, 2.0, len(size)) * (rng.random(len(size)) < 0.8)
    slope[0] = 1.0
    floor = rng.uniform(-0.3, 0.3, len(size)) if seed % 2 else np.zeros(len(size))
    floor *= min(1.0, capacity[0] / size.sum()) * gain[:, 0]
    problem = ShareProblem(gain, size, capacity, slope=slope, floor=floor)
    ours, theirs = solve_single(problem), searched(problem)
    if ours is None:  # a row has all its time: what the others get is not determined
        assert theirs.shares.max() == pytest.approx(1.0)
        ours = solve_shares(problem)
    assert ours.level == pytest.approx(theirs.level, rel=1e-7, abs=1e-8)
    assert_feasible(ours.shares, size, capacity)
    assert (ours.gains(gain) >= slope * ours.level + floor - 1e-9).all()
    assert ours.tight.tolist() == theirs.tight.tolist()
    assert slope @ ours.bids == pytest.approx(1.0)  # what one more unit of the level costs
    if (ours.shares < 1 - 1e-9).all():  # else there may be several
        assert ours.prices == pytest.approx(theirs.prices, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_product(seed):
    rng, gain, size, capacity = case(seed)
    count = rng.integers(1, 5, len(size)).astype(float)
    problem = ShareProblem(gain, size, capacity, log=True, count=count)
    ours, theirs = solve_single(problem), searched(problem)
    assert ours.shares == pytest.approx(theirs.shares, rel=1e-6)
    assert ours.prices == pytest.approx(theirs.prices, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_sum(seed):
    rng, gain, size, capacity = case(seed)
    value = rng.uniform(0.1, 1.0, (len(size), 1))
    floor = rng.uniform(0.0, 0.5, len(size)) * min(1.0, capacity[0] / size.sum()) * gain[:, 0]
    problem = ShareProblem(gain, size, capacity, value=value, floor=floor)
    ours, theirs = solve_single(problem), searched(problem)
    assert (ours.shares * value).sum() == pytest.approx((theirs.shares * value).sum(), rel=1e-7)
    assert_feasible(ours.shares, size, capacity)
    assert (ours.gains(gain) >= floor - 1e-9).all()


def test_equal_rows_have_equal_shares():
    value, ones = np.ones((4, 1)), np.ones(4)
    for problem in (
        ShareProblem(value, ones, np.array([2.0]), value=value),
        ShareProblem(value, ones, np.array([2.0]), slope=ones),
        ShareProblem(value, ones, np.array([2.0]), log=True),
    ):
        assert solve_shares(problem).shares[:, 0] == pytest.approx([0.5] * 4)


def test_what_is_left_is_not_wasted():
    """The level stops at the first row; the others may have more."""
    gain = np.array([[0.1], [1.0], [1.0]])
    found = solve_shares(ShareProblem(gain, np.ones(3), np.array([2.0]), slope=np.ones(3)))
    assert found.level == pytest.approx(0.1)
    assert found.shares[0, 0] == pytest.approx(1.0)
    assert found.shares[1, 0] == pytest.approx(found.shares[2, 0])
    assert 0.1 < found.shares[1, 0] < 0.5
    assert found.tight.tolist() == [True, False, False]


def test_a_row_that_cannot_rise_at_all_is_tight():
    found = solve_shares(
        ShareProblem(
            np.ones((2, 1)),
            np.ones(2),
            np.ones(1),
            slope=np.array([0.0, 2.0]),
            floor=np.array([1.0, 0.0]),
        )
    )
    assert found.level == pytest.approx(0.0)
    assert found.tight.tolist() == [False, True]
    assert found.prices == pytest.approx([0.5])


def test_what_has_no_answer_here_is_left_to_others():
    ones = np.ones(2)
    assert solve_single(ShareProblem(np.zeros((2, 1)), ones, np.ones(1), slope=ones)) is None
    much = ShareProblem(np.ones((2, 1)), ones, np.ones(1), value=np.ones((2, 1)), floor=ones)
    assert solve_single(much) is None
    with pytest.raises(InfeasibleError):
        solve_shares(much)


def test_kinds_on_which_all_are_equally_fast_are_one_kind():
    """Two equal kinds made the equations singular: the search did not arrive."""
    gain = np.ones((2, 2))
    problem = ShareProblem(
        gain,
        np.array([4.0, 8.0]),
        np.array([8.0, 2.0]),
        log=True,
        count=np.array([2.0, 8.0]),
    )
    found = solve_grouped(problem)
    assert_feasible(found.shares, problem.size, problem.capacity)
    assert found.shares.sum(axis=1) == pytest.approx([0.5, 1.0], rel=1e-6)
    assert found.shares[:, 0] == pytest.approx(4 * found.shares[:, 1])
    assert len(found.prices) == 2


def test_floors_that_leave_no_room_are_no_breakdown():
    """The numbers of the search grew beyond all bounds."""
    gain = np.array([[1.0, 0.99], [1.0, 1.0], [1.0, 0.98]])
    problem = ShareProblem(
        gain,
        np.array([4.0, 1.0, 5.0]),
        np.array([8.0, 2.0]),
        slope=np.array([0.5, 0.0, 0.0]),
        floor=np.array([0.5, 1.0, 0.995]),
    )
    found = solve_shares(problem)
    assert_feasible(found.shares, problem.size, problem.capacity, slack=1e-6)
    assert (found.gains(gain)[1:] >= np.array([1.0, 0.995]) - 1e-6).all()


def test_an_answer_that_was_given_before_is_the_same():
    gain = np.random.default_rng(0).uniform(0.1, 1.0, (6, 3))
    problem = ShareProblem(gain, np.ones(6), np.ones(3), slope=np.ones(6))
    again = ShareProblem(gain.copy(), np.ones(6), np.ones(3), slope=np.ones(6))
    assert solve_shares(again) is solve_shares(problem)
    other = ShareProblem(gain * 2, np.ones(6), np.ones(3), slope=np.ones(6))
    assert solve_shares(other).level == pytest.approx(2 * solve_shares(problem).level)
    with pytest.raises(ValueError, match="read-only"):
        solve_shares(problem).shares[0] = 0.0
