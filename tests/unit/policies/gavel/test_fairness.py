"""Max-min fairness and its relatives: optima, and what the papers promise."""

import numpy as np
import pytest

from allocation_cases import assert_feasible, corners, level_by_highs, random_case
from rota.core.errors import PolicyError
from rota.policies.gavel.basics import isolated, normalised, throughputs
from rota.policies.gavel.fairness import Entities, max_min, strategy_proof, water_filling
from rota.policies.rounds.problem import problem
from rota.solvers.share_problem import ShareProblem
from rota.solvers.shares import solve_shares


def case(seed, **options):
    speed, size, capacity = random_case(seed, **options)
    return problem(speed, capacity, size=size)


def singles(seed, **options):
    speed, _, capacity = random_case(seed, **options)
    return problem(speed, capacity)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("aware", [True, False])
def test_max_min_reaches_the_optimum(seed, aware):
    of = case(seed)
    gain = normalised(of, aware=aware)
    shares = max_min(of, aware=aware)
    best, _ = level_by_highs(gain, of.size, of.capacity, of.weight / of.size)
    assert_feasible(shares, of.size, of.capacity)
    assert (of.size / of.weight * (gain * shares).sum(axis=1)).min() == pytest.approx(best)


@pytest.mark.parametrize("seed", range(6))
def test_no_mixture_of_corners_beats_max_min(seed):
    """The optimum over all corners and the segments between them, which is all for two jobs."""
    of = case(seed, jobs=2, kinds=2)
    gain = normalised(of) * of.size[:, None]
    gains = (corners(gain, of.size, of.capacity) * gain).sum(axis=2)
    part = np.linspace(0, 1, 401)[:, None, None, None]
    mixed = part * gains[None, :, None] + (1 - part) * gains[None, None, :]
    ours = (gain * max_min(of)).sum(axis=1).min()
    assert ours >= mixed.min(axis=3).max() - 1e-9
    assert ours <= mixed.min(axis=3).max() * 1.01  # the grid is that fine


@pytest.mark.parametrize("seed", range(10))
def test_nobody_would_rather_have_its_own_part(seed):
    of = singles(seed)
    alone = throughputs(of, isolated(of))
    ours = throughputs(of, max_min(of))
    assert (ours >= alone * (1 - 1e-8)).all()


def test_a_larger_weight_is_a_larger_share():
    of = problem(np.ones((2, 1)), np.ones(1), weight=np.array([1.0, 3.0]))
    assert max_min(of)[:, 0] == pytest.approx([0.25, 0.75])


def test_jobs_that_can_run_nowhere_hinder_nobody():
    of = problem(np.array([[0.0, 0.0], [1.0, 2.0]]), np.ones(2))
    for shares in (max_min(of), water_filling(of), strategy_proof(of)[0]):
        assert shares[0].tolist() == [0.0, 0.0]
        assert throughputs(of, shares)[1] == pytest.approx(2.0)


def test_a_type_with_too_few_gpus_for_the_gang_is_none():
    of = problem(np.array([[9.0, 1.0]]), np.array([2.0, 4.0]), size=np.array([4.0])).fitting()
    assert max_min(of)[0] == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("seed", range(8))
def test_water_filling_leaves_nothing_that_hurts_nobody(seed):
    """No allocation gives everyone as much and someone more."""
    of = case(seed)
    speeds = throughputs(of, water_filling(of))
    gain = normalised(of)
    floor = (gain * water_filling(of)).sum(axis=1)
    more = solve_shares(
        ShareProblem(gain, of.size, of.capacity, value=gain, floor=floor * (1 - 1e-9))
    )
    assert (more.shares * gain).sum() == pytest.approx(floor.sum(), rel=1e-6)
    assert (speeds > 0).all()


@pytest.mark.parametrize("seed", range(8))
def test_water_filling_level_by_level(seed):
    """Against programmes in which each job in turn is lifted as far as those below it allow."""
    of = case(seed, jobs=5)
    gain = normalised(of)
    slope = of.weight / of.size
    ours = (gain * water_filling(of)).sum(axis=1) / slope
    floor, free = np.zeros(5), np.ones(5, bool)
    while free.any():
        level, _ = level_by_highs(
            gain, of.size, of.capacity, np.where(free, slope, 0.0), np.where(free, 0.0, floor)
        )
        must = np.where(free, level * slope * (1 - 1e-9), floor * (1 - 1e-9))
        for job in np.flatnonzero(free):
            one = np.zeros(5)
            one[job] = 1.0
            most, _ = level_by_highs(gain, of.size, of.capacity, one, np.where(one > 0, 0.0, must))
            if most <= level * slope[job] * (1 + 1e-6):
                floor[job], free[job] = level * slope[job], False
    assert ours == pytest.approx(floor / slope, rel=1e-5)


def test_entities_divide_their_weight_or_queue():
    of = problem(np.ones((4, 1)), np.ones(1))
    entities = Entities(np.array([0, 0, 1, 1]), [1.0, 1.0], [False, True])
    shares = water_filling(of, entities=entities)[:, 0]
    assert shares == pytest.approx([0.25, 0.25, 0.5, 0.0], abs=1e-8)


def test_when_the_first_of_a_queue_has_all_it_can_use_the_next_one_follows():
    of = problem(np.ones((3, 1)), np.array([2.0]))
    entities = Entities(np.array([0, 1, 1]), [1.0, 3.0], [False, True])
    shares = water_filling(of, entities=entities)[:, 0]
    assert shares[1] == pytest.approx(1.0)  # at a third of its level the other entity has 1/3
    assert shares == pytest.approx([1 / 3 + 1 / 6, 1.0, 0.5], abs=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_lying_does_not_pay(seed):
    of = singles(seed, jobs=4)
    honest = throughputs(of, strategy_proof(of)[0])
    rng = np.random.default_rng(seed)
    for job in range(of.jobs):
        told = of.throughput.copy()
        told[job] *= rng.uniform(0.2, 5.0, 3)
        shares, _ = strategy_proof(problem(told, of.capacity))
        assert (of.throughput[job] * shares[job]).sum() <= honest[job] * (1 + 1e-6)


def test_equal_jobs_keep_equal_parts():
    of = problem(np.ones((3, 2)), np.ones(2))
    shares, parts = strategy_proof(of)
    # with three jobs the other two share 4/3 of two GPUs, without the third both run all the time
    assert parts == pytest.approx([(2 / 3) ** 2] * 3)
    assert shares.sum(axis=1) == pytest.approx([(2 / 3) ** 3] * 3)


def test_jobs_without_gpus_are_refused():
    with pytest.raises(PolicyError, match="positive number of GPUs"):
        problem(np.ones((1, 1)), np.ones(1), size=np.zeros(1))
