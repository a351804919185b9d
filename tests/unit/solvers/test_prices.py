"""Prices: against grids, whole programmes, other solvers, and the bound that they prove."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation_cases import assert_feasible
from rota.core.errors import OptionError, SolverLimitError
from rota.solvers.linear import LinearProgramme, solve_linear, sparse
from rota.solvers.prices import PriceProblem, dual, find_prices, responses
from rota.solvers.share_problem import ShareProblem
from rota.solvers.shares import solve_shares
from rota.solvers.utilities import Power, UtilityTarget

UTILITIES = ("log", "root", "inverse", "target")


def utility(name, weight, top, rng):
    if name == "target":
        return UtilityTarget(weight, rng.uniform(0.1, 1.1, len(weight)) * top)
    return Power(weight, {"log": 0.0, "root": 0.5, "inverse": -1.0}[name])


def random_problem(seed, name, *, jobs=None, kinds=None):
    """Unequal and equal rows, types that some jobs cannot use, parts of GPUs, idle capacity."""
    rng = np.random.default_rng(seed)
    jobs = jobs or int(rng.integers(1, 25))
    kinds = kinds or int(rng.integers(1, 6))
    gain = rng.uniform(0.02, 1, (jobs, kinds))
    if seed % 3 == 0:
        gain = rng.choice([0.25, 0.5, 1.0], (jobs, kinds))  # many kinks
    gain *= rng.random((jobs, kinds)) < rng.choice([1.0, 0.8])
    size = rng.choice([0.5, 1.0, 1.0, 2.0, 4.0, 8.0], jobs)
    capacity = rng.integers(0, 9, kinds).astype(float)
    weight = rng.choice([0.5, 1.0, 1.0, 4.0], jobs)
    of = utility(name, weight, gain.max(axis=1), rng)
    return PriceProblem(gain, size, capacity, of)


def whole_programme(problem, cuts):
    """The best sum of utilities where each is bounded by lines (slope, height) at given points."""
    jobs, kinds = problem.gain.shape
    width = jobs * kinds
    job, kind = np.repeat(np.arange(jobs), kinds), np.tile(np.arange(kinds), jobs)
    rows, columns, values = [job, jobs + kind], [np.arange(width)] * 2, [np.ones(width)]
    values.append(problem.size[job])
    upper = [np.ones(jobs), problem.capacity]
    for number, (slope, height) in enumerate(cuts):  # v_i - slope_i t_i <= height_i
        at = jobs + kinds + number * jobs
        rows += [at + job, at + np.arange(jobs)]
        columns += [np.arange(width), width + np.arange(jobs)]
        values += [-slope[job] * problem.gain.ravel(), np.ones(jobs)]
        upper.append(height)
    shape = (jobs + kinds + len(cuts) * jobs, width + jobs)
    matrix = sparse(np.concatenate(rows), np.concatenate(columns), np.concatenate(values), shape)
    found = solve_linear(
        LinearProgramme(
            cost=np.append(np.zeros(width), np.ones(jobs)),
            matrix=matrix,
            row_lower=np.full(shape[0], -np.inf),
            row_upper=np.concatenate(upper),
            lower=np.append(np.zeros(width), np.full(jobs, -1e6)),
            upper=np.full(width + jobs, np.inf),
            maximise=True,
        )
    )
    return found.objective, found.point[:width].reshape(jobs, kinds)


def reference(problem):
    """The best sum of utilities by tangents: from above, until more tangents change nothing."""
    of = problem.utility
    points = [np.full(len(problem.size), 0.3)]
    best = np.inf
    for _ in range(60):
        cuts = [(of.slope(t), of.value(t) - of.slope(t) * t) for t in points]
        if isinstance(of, UtilityTarget):  # two lines are all there is
            none = np.zeros(len(problem.size))
            cuts = [(of.weight, -of.weight * of.target), (none, none)]
        value, shares = whole_programme(problem, cuts)
        if best - value < 1e-7:
            return value
        best = value
        points.append(np.maximum((problem.gain * shares).sum(axis=1), 1e-4))
    return best


@pytest.mark.parametrize("name", UTILITIES)
@pytest.mark.parametrize("seed", range(6))
def test_no_point_of_a_grid_is_better_than_the_response(name, seed):
    problem = random_problem(seed, name, jobs=8, kinds=2)
    prices = np.random.default_rng(seed).uniform(0, 2, 2)
    shares, left = responses(problem, prices)
    assert (shares >= 0).all()
    assert (shares.sum(axis=1) <= 1 + 1e-12).all()
    steps = np.linspace(0, 1, 41)
    able = problem.gain.max(axis=1) > 0
    for one, other in itertools.product(steps, steps):
        if one + other > 1:
            continue
        tried = problem.utility.value(problem.gain @ np.array([one, other]))
        paid = problem.size * (prices @ np.array([one, other]))
        assert (tried - paid <= left + 1e-9)[able].all()


def test_a_response_needs_two_types_at_most():
    problem = random_problem(1, "log", jobs=200, kinds=5)
    shares, _ = responses(problem, np.array([0.4, 1.0, 0.7, 0.3, 0.9]))
    assert (shares > 0).sum(axis=1).max() == 2


@given(seed=st.integers(0, 1 << 20), name=st.sampled_from(UTILITIES))
def test_the_gap_is_closed_and_proves_the_answer(seed, name):
    problem = random_problem(seed, name)
    found = find_prices(problem)
    assert 0 <= found.gap <= 1e-3
    assert_feasible(found.shares, problem.size, problem.capacity)
    assert (found.prices >= 0).all()
    able = np.where(problem.capacity > 0, problem.gain, 0).max(axis=1) > 0
    reached = problem.utility.value((problem.gain * found.shares).sum(axis=1))[able].sum()
    assert reached == pytest.approx(found.worth)
    assert found.worth <= found.bound + 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_the_logarithm_is_that_of_the_interior_point_method(seed):
    problem = random_problem(seed, "log", kinds=3)
    able = (problem.gain > 0).all(axis=1)
    problem = PriceProblem(
        problem.gain[able], problem.size[able], problem.capacity + 1, Power(np.ones(able.sum()))
    )
    best = solve_shares(ShareProblem(problem.gain, problem.size, problem.capacity, log=True))
    found = find_prices(problem)
    worth = np.log(best.gains(problem.gain)).sum()
    assert found.worth <= worth + 1e-7
    assert found.worth >= worth - 1e-3 * len(problem.size)
    assert found.bound >= worth - 1e-7


@pytest.mark.parametrize("name", ["root", "inverse", "target"])
@pytest.mark.parametrize("seed", range(3))
def test_other_utilities_are_those_of_a_whole_programme(name, seed):
    rng = np.random.default_rng(seed)
    gain, size = rng.uniform(0.2, 1, (6, 3)), rng.choice([1.0, 2.0], 6)
    weight = rng.choice([1.0, 2.0], 6)
    problem = PriceProblem(
        gain, size, np.array([1.0, 2.0, 1.0]), utility(name, weight, gain.max(axis=1), rng)
    )
    found = find_prices(problem)
    best = reference(problem)
    assert found.worth <= best + 1e-4
    assert found.worth >= best - 1e-3 * weight.sum() - 1e-4


def test_equal_jobs_share_equally_at_the_price_of_a_little_more():
    found = find_prices(
        PriceProblem(np.ones((8, 1)), np.ones(8), np.array([2.0]), Power(np.ones(8)))
    )
    assert found.shares == pytest.approx(np.full((8, 1), 0.25))
    assert found.prices == pytest.approx([4.0], rel=0.1)  # the slope of the logarithm at 1/4


def test_types_that_are_equally_good_leave_a_gap_to_scaling_but_not_to_mixtures():
    problem = PriceProblem(np.ones((5, 2)), np.ones(5), np.array([2.0, 1.0]), Power(np.ones(5)))
    found = find_prices(problem)
    bound, chosen = dual(problem, found.prices)
    used = problem.usage(chosen)
    scaled = chosen * np.minimum(1, problem.capacity / np.maximum(used, 1e-12))
    assert bound - problem.worth(np.maximum(scaled, 1e-9)) > 5e-3 * 5
    assert found.gap <= 1e-3
    assert found.shares.sum(axis=1) == pytest.approx(np.full(5, 0.6), abs=0.05)


def test_where_there_is_enough_for_everybody_nothing_has_a_price():
    gain = np.array([[1.0, 0.5], [0.5, 1.0]])
    found = find_prices(PriceProblem(gain, np.ones(2), np.array([3.0, 1.0]), Power(np.ones(2))))
    assert found.prices.tolist() == [0.0, 0.0]
    assert found.shares.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert (found.gap, found.steps) == (0.0, 0)


def test_a_job_that_gains_nothing_gets_nothing_and_hinders_nobody():
    gain = np.array([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    found = find_prices(PriceProblem(gain, np.ones(3), np.array([1.0, 0.0]), Power(np.ones(3))))
    assert found.shares == pytest.approx(np.array([[0, 0], [0, 0], [1.0, 0]]))


def test_more_than_the_target_is_not_bought():
    problem = PriceProblem(
        np.ones((2, 1)),
        np.ones(2),
        np.array([1.0]),
        UtilityTarget(np.ones(2), np.array([0.3, 0.9])),
    )
    found = find_prices(problem, tolerance=1e-6)
    assert found.worth == pytest.approx(-0.2, abs=1e-5)  # 1.2 wanted, 1 there
    assert found.shares[0, 0] <= 0.3 + 1e-9


def test_the_last_prices_are_a_good_start():
    problem = random_problem(7, "log", jobs=20, kinds=4)
    first = find_prices(problem)
    again = find_prices(problem, prices=first.prices)
    assert again.steps <= first.steps
    assert again.gap <= 1e-3


@pytest.mark.parametrize("kinds", [1, 3])
def test_too_few_steps_are_an_error_with_a_remedy(kinds):
    problem = random_problem(1, "inverse", jobs=20, kinds=kinds)
    with pytest.raises(SolverLimitError, match="allow a larger gap"):
        find_prices(problem, tolerance=1e-9, steps=2)


def test_a_power_that_is_not_concave_is_refused():
    with pytest.raises(OptionError, match="below 1"):
        Power(np.ones(2), 1.0)
