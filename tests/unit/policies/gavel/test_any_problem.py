"""Every policy answers any problem with a feasible allocation: odd sizes, dead types, idle jobs."""

import numpy as np
import pytest

from allocation_cases import assert_feasible
from rota.policies.gavel.basics import isolated
from rota.policies.gavel.durations import finish_time_fairness, makespan
from rota.policies.gavel.fairness import Entities, max_min, strategy_proof, water_filling
from rota.policies.gavel_fifo import fifo
from rota.policies.gavel_max_sum import max_sum
from rota.policies.rounds.problem import problem

ENTITIES = ([1.0, 2.0, 3.0], [False, True, False])


def odd_problem(seed):
    rng = np.random.default_rng(seed)
    jobs, kinds = int(rng.integers(1, 16)), int(rng.integers(1, 5))
    speed = rng.uniform(0.05, 1, (jobs, kinds)) * 10 ** rng.uniform(-2, 2, (jobs, 1))
    speed *= rng.random((jobs, kinds)) < rng.choice([1.0, 0.9, 0.5])
    return problem(
        speed,
        rng.integers(0, 20, kinds),
        size=rng.choice([1, 1, 2, 4, 8], jobs),
        weight=rng.choice([1.0, 5.0], jobs),
        steps=np.round(10 ** rng.uniform(0, 6, jobs)),
        age=10 ** rng.uniform(0, 5, jobs),
        elapsed=10 ** rng.uniform(0, 5, jobs),
    )


def by_entity(of):
    owner = np.random.default_rng(of.jobs).integers(0, 3, of.jobs)
    return water_filling(of, entities=Entities(owner, *ENTITIES))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "solve",
    [
        max_min,
        lambda of: max_min(of, aware=False),
        water_filling,
        by_entity,
        lambda of: strategy_proof(of)[0],
        finish_time_fairness,
        makespan,
        max_sum,
        isolated,
        fifo,
    ],
)
def test_the_answer_is_feasible(seed, solve):
    of = odd_problem(seed)
    shares = solve(of)
    assert shares.shape == of.throughput.shape
    assert_feasible(shares, of.size, of.capacity + 1e-12)


@pytest.mark.parametrize("solve", [max_min, water_filling, finish_time_fairness, makespan, max_sum])
def test_no_jobs_at_all(solve):
    assert solve(problem(np.zeros((0, 2)), np.ones(2))).shape == (0, 2)
