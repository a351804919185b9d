"""Shares of time: against whole programmes, corners and the conditions of optimality."""

import numpy as np
import pytest

from allocation_cases import assert_feasible, corners, level_by_highs, random_case
from rota.core.errors import InfeasibleError
from rota.solvers.linear import equal_rows
from rota.solvers.share_problem import ShareProblem
from rota.solvers.shares import solve_grouped, solve_shares, solve_whole


@pytest.mark.parametrize("seed", range(20))
def test_the_level_is_that_of_the_whole_programme(seed):
    gain, size, capacity = random_case(seed, kinds=1 + seed % 4)
    slope = gain.mean(axis=1) * np.random.default_rng(seed).uniform(0.5, 2, len(gain))
    found = solve_shares(ShareProblem(gain, size, capacity, slope=slope))
    best, _ = level_by_highs(gain, size, capacity, slope)
    assert found.level == pytest.approx(best, rel=1e-8)
    assert_feasible(found.shares, size, capacity)
    assert (found.gains(gain) >= slope * found.level * (1 - 1e-8)).all()


def test_many_kinds_of_machines():
    gain, size, capacity = random_case(1, jobs=20, kinds=9)
    found = solve_shares(ShareProblem(gain, size, capacity, slope=gain.mean(axis=1)))
    best, _ = level_by_highs(gain, size, capacity, gain.mean(axis=1))
    assert found.level == pytest.approx(best, rel=1e-8)
    assert found.steps > 0


@pytest.mark.parametrize("seed", range(8))
def test_the_sum_is_that_of_the_best_corner(seed):
    gain, size, capacity = random_case(seed, jobs=2, kinds=2)
    found = solve_shares(ShareProblem(gain, size, capacity, value=gain))
    best = (corners(gain, size, capacity) * gain).sum(axis=(1, 2)).max()
    assert (found.shares * gain).sum() == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_the_product_cannot_be_improved(seed):
    """At the optimum no other shares have a larger sum of gains relative to it."""
    gain, size, capacity = random_case(seed)
    found = solve_shares(ShareProblem(gain, size, capacity, log=True))
    relative = gain / found.gains(gain)[:, None]
    other = solve_shares(ShareProblem(gain, size, capacity, value=relative))
    assert (other.shares * relative).sum() == pytest.approx(len(gain), rel=1e-7)


def test_two_equal_jobs_divide_one_machine():
    found = solve_shares(ShareProblem(np.ones((2, 1)), np.ones(2), np.ones(1), slope=np.ones(2)))
    assert found.shares == pytest.approx(np.full((2, 1), 0.5))
    assert found.level == pytest.approx(0.5)
    assert found.prices == pytest.approx([0.5])  # one more machine would lift both by a half
    assert found.bids == pytest.approx([0.5, 0.5])
    assert found.tight.all()


def test_only_rows_that_nothing_can_lift_are_tight():
    gain = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    found = solve_shares(ShareProblem(gain, np.ones(3), np.array([1.0, 1.0]), slope=np.ones(3)))
    assert found.level == pytest.approx(0.5)
    assert found.tight.tolist() == [False, True, True]


def test_floors_are_kept_while_the_others_rise():
    gain = np.ones((2, 1))
    found = solve_shares(
        ShareProblem(
            gain, np.ones(2), np.ones(1), slope=np.array([0.0, 1.0]), floor=np.array([0.7, 0.0])
        )
    )
    assert found.level == pytest.approx(0.3, rel=1e-9)
    assert found.gains(gain) == pytest.approx([0.7, 0.3], rel=1e-9)


def test_floors_that_ask_for_too_much_are_refused():
    problem = ShareProblem(
        np.ones((2, 1)), np.ones(2), np.ones(1), value=np.ones((2, 1)), floor=np.array([0.7, 0.7])
    )
    with pytest.raises(InfeasibleError, match=r"only 0\.714286 times"):
        solve_shares(problem)


def test_floors_without_machines_are_refused():
    problem = ShareProblem(np.ones((1, 1)), np.ones(1), np.zeros(1), floor=np.ones(1))
    with pytest.raises(InfeasibleError, match="no machines"):
        solve_shares(problem)


def test_kinds_without_machines_get_nothing():
    gain = np.array([[1.0, 9.0]])
    found = solve_shares(ShareProblem(gain, np.ones(1), np.array([1.0, 0.0]), slope=np.ones(1)))
    assert found.shares.tolist() == [[pytest.approx(1.0), 0.0]]
    assert found.prices.shape == (2,)


def test_nothing_to_share():
    found = solve_shares(ShareProblem(np.zeros((0, 2)), np.zeros(0), np.ones(2)))
    assert found.shares.shape == (0, 2)


@pytest.mark.parametrize("kind", ["level", "sum", "product"])
def test_equal_rows_made_one_change_nothing(kind):
    gain, size, capacity = random_case(3, jobs=12, alike=True)
    size = np.repeat(size[::3], 3)
    extra = {
        "level": {"slope": gain.mean(axis=1)},
        "sum": {"value": gain},
        "product": {"log": True},
    }[kind]
    problem = ShareProblem(gain, size, capacity, **extra)
    whole, merged = solve_shares(problem), solve_grouped(problem)
    assert_feasible(merged.shares, size, capacity)
    assert merged.gains(gain).sum() == pytest.approx(whole.gains(gain).sum(), rel=1e-6)
    assert merged.level == pytest.approx(whole.level, rel=1e-8)
    assert merged.shares[0] == pytest.approx(merged.shares[1])


def test_groups_of_equal_rows():
    first, group = equal_rows(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), np.ones(3))
    assert len(first) == 2
    assert group[0] == group[2] != group[1]


def test_a_degenerate_sum_is_still_solved():
    """One row is worth a thousand times the others and takes all of two kinds."""
    gain = np.array([[0.018, 0.005, 0.009], [4e-4, 5e-4, 1e-3], [9.2, 4.2, 6.1]])
    size, capacity = np.array([4.0, 1.0, 2.0]), np.ones(3)
    found = solve_shares(ShareProblem(gain, size, capacity, value=gain))
    assert found.shares[2] == pytest.approx([0.5, 0.0, 0.5], abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_floors_without_any_room_are_left_to_the_whole_programme(seed):
    """Nothing can be gained beyond the floors, so the set of answers has no inside."""
    gain, size, capacity = random_case(seed, jobs=6)
    best = solve_shares(ShareProblem(gain, size, capacity, value=gain))
    floor = best.gains(gain) * (1 - 1e-9)
    again = solve_shares(ShareProblem(gain, size, capacity, value=gain, floor=floor))
    assert again.gains(gain).sum() == pytest.approx(best.gains(gain).sum(), rel=1e-6)
    assert (again.gains(gain) >= floor - 1e-6 * gain.max(axis=1)).all()


@pytest.mark.parametrize("seed", range(6))
def test_both_ways_agree_on_level_and_prices(seed):
    gain, size, capacity = random_case(seed, jobs=7)
    problem = ShareProblem(gain, size, capacity, slope=gain.mean(axis=1))
    ours, whole = solve_shares(problem), solve_whole(problem)
    assert ours.level == pytest.approx(whole.level, rel=1e-8)
    assert_feasible(whole.shares, size, capacity)
    bound = (
        ours.prices @ capacity
        + np.maximum((gain * ours.bids[:, None] - size[:, None] * ours.prices).max(axis=1), 0).sum()
    )
    assert bound == pytest.approx(ours.level, rel=1e-8)  # the prices prove that it is the best
    assert (whole.tight <= ours.tight).all()
