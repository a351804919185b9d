"""Makespan and finish-time fairness."""

import numpy as np
import pytest

from allocation_cases import assert_feasible, level_by_highs, random_case
from rota.core.errors import InfeasibleError
from rota.policies.gavel.basics import alike, isolated, throughputs
from rota.policies.gavel.durations import (
    DurationHistory,
    finish_time_fairness,
    ideal_times,
    makespan,
)
from rota.policies.gavel_max_sum import max_sum, max_sum_if_possible
from rota.policies.rounds.problem import problem
from rota.solvers.search import bisect


def case(seed):
    speed, size, capacity = random_case(seed)
    rng = np.random.default_rng(seed)
    jobs = len(speed)
    return problem(
        speed,
        capacity,
        size=size,
        steps=speed.max(axis=1) * 10 ** rng.uniform(1, 5, jobs),
        age=10 ** rng.uniform(0, 5, jobs),
        elapsed=10 ** rng.uniform(0, 4, jobs),
    )


@pytest.mark.parametrize("seed", range(8))
def test_makespan_is_that_of_one_programme(seed):
    of = case(seed)
    shares = makespan(of)
    level, _ = level_by_highs(
        of.throughput / of.steps[:, None], of.size, of.capacity, np.ones(of.jobs)
    )
    assert_feasible(shares, of.size, of.capacity)
    assert (of.steps / throughputs(of, shares)).max() == pytest.approx(1 / level, rel=1e-6)


def test_two_jobs_on_two_types():
    """Each is better on its own type, so both take it."""
    of = problem(np.array([[2.0, 1.0], [1.0, 2.0]]), np.ones(2), steps=np.array([10.0, 10.0]))
    assert makespan(of) == pytest.approx(np.eye(2), abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_finish_time_fairness_is_that_of_a_bisection(seed):
    of = case(seed)
    shares = finish_time_fairness(of)
    assert_feasible(shares, of.size, of.capacity)
    ideal = ideal_times(of)
    ours = ((of.age + of.steps / throughputs(of, shares)) / ideal).max()

    def feasible(ratio):
        room = ratio * ideal - of.age
        if (room <= 0).any():
            return False
        need = of.steps / room / of.throughput.max(axis=1)
        gain = of.throughput / of.throughput.max(axis=1, keepdims=True)
        return level_by_highs(gain, of.size, of.capacity, need)[0] >= 1

    assert ours == pytest.approx(bisect(feasible, 0.0, ours * 2, tolerance=1e-7), rel=1e-6)


def test_nobody_is_later_than_alone_if_all_are_alike():
    of = problem(np.ones((4, 2)), np.ones(2), steps=np.full(4, 100.0))
    shares = finish_time_fairness(of)
    assert shares.sum(axis=1) == pytest.approx(isolated(of).sum(axis=1))


def test_finished_jobs_get_nothing():
    of = problem(np.ones((2, 1)), np.ones(1), steps=np.array([0.0, 5.0]))
    assert finish_time_fairness(of)[:, 0] == pytest.approx([0.0, 1.0])
    assert makespan(of)[1, 0] == pytest.approx(1.0)


def test_types_need_no_particular_name_or_order():
    """A job that knows no differences sees the average GPU, not the last type."""
    of = problem(np.array([[1.0, 3.0]]), np.array([3.0, 1.0]))
    assert alike(of).throughput.tolist() == [[1.5, 1.5]]
    assert alike(of, 0).throughput.tolist() == [[1.0, 1.0]]


def test_history_adds_what_the_steps_would_have_taken_alone():
    history = DurationHistory()
    names, rates = ["a", "b"], np.array([2.0, 4.0])
    assert history.update(names, np.array([100.0, 80.0]), rates).tolist() == [0.0, 0.0]
    assert history.update(names, np.array([90.0, 80.0]), rates * 2).tolist() == [5.0, 0.0]
    assert history.update(names, np.array([82.0, 72.0]), rates).tolist() == [7.0, 1.0]
    assert history.update(["b"], np.array([72.0]), rates[1:]).tolist() == [1.0]
    assert history.update(["a"], np.array([50.0]), rates[:1]).tolist() == [0.0]  # it came anew


def test_money_prefers_cheap_gpus():
    of = problem(np.array([[3.0, 2.0]]), np.ones(2))
    assert max_sum(of)[0] == pytest.approx([1.0, 0.0])
    assert max_sum(of, prices=np.array([3.0, 1.0]))[0] == pytest.approx([0.0, 1.0])


def test_a_deadline_pays_for_the_fast_gpu():
    of = problem(np.array([[3.0, 2.0]]), np.ones(2), steps=np.array([250.0]))
    left = np.array([100.0])
    shares = max_sum(of, prices=np.array([3.0, 1.0]), time_left=left)
    assert shares[0] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("left", [50.0, 0.0, -1.0])
def test_deadlines_that_cannot_be_kept(left):
    of = problem(np.array([[3.0, 2.0]]), np.ones(2), steps=np.array([250.0]))
    with pytest.raises(InfeasibleError):
        max_sum(of, time_left=np.array([left]))
    shares, kept = max_sum_if_possible(of, prices=None, time_left=np.array([left]))
    assert not kept
    assert shares[0] == pytest.approx([1.0, 0.0])
