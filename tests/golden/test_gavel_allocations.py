"""Allocations of the Gavel family against those of its own classes and independent optima.

`allocations.json` (see its README) holds small instances with the optimum of every problem. Answers
are not unique, so objectives are compared: ours must reach the optimum, and be feasible.
"""

import json

import numpy as np
import pytest

from allocation_cases import assert_feasible
from rota.policies.allox import allox
from rota.policies.gavel.basics import alike, isolated, proportional, throughputs
from rota.policies.gavel.durations import finish_time_fairness, ideal_times, makespan
from rota.policies.gavel.fairness import Entities, max_min, strategy_proof, water_filling
from rota.policies.gavel.packed import (
    packed_finish_time_fairness,
    packed_makespan,
    packed_max_min,
    packed_throughputs,
)
from rota.policies.gavel_fifo import fifo
from rota.policies.gavel_max_sum import max_sum, max_sum_if_possible
from rota.policies.rounds.problem import JobPairs, PackedShares, problem
from shared_data import shared

KINDS = ("k80", "p100", "v100")
V100 = KINDS.index("v100")
PRICES = np.array([0.135, 0.43, 0.74])
INSTANCES = {
    entry["name"]: entry
    for entry in json.loads(shared("reference/gavel/allocations.json").read_text())["instances"]
}


class Case:
    """One instance with everything it asks for."""

    def __init__(self, data):
        self.names = list(data["throughputs"])
        self.recorded = data["policies"]
        self.problem = problem(
            np.array([self.by_kind(data["throughputs"][name]) for name in self.names]),
            np.array(self.by_kind(data["cluster"])),
            size=self.vector(data["scale_factors"]),
            weight=self.vector(data["priority_weights"]),
            steps=self.vector(data["num_steps_remaining"]),
            age=self.vector(data["times_since_start"]),
        )
        both = data["pair_throughputs"]
        self.pairs = JobPairs(
            np.array([[self.names.index(name) for name in key.split(",")] for key in both]),
            np.array([self.by_kind(rates) for rates in both.values()]),
        )

    def by_kind(self, values):
        return [values[kind] for kind in KINDS]

    def vector(self, values):
        return np.array([values[name] for name in self.names], float)

    def optimum(self, policy):
        (found,) = [value for name, value in self.recorded.items() if name == policy]
        return found["objective_highs"]

    def shares(self, policy):
        recorded = self.recorded[policy]["X"]
        return np.array([self.by_kind(recorded[name]) for name in self.names])

    def starting_with(self, text):
        return next((name for name in self.recorded if name.startswith(text)), None)


@pytest.fixture(params=INSTANCES)
def case(request):
    return Case(INSTANCES[request.param])


def reaches(value, optimum):
    """At least the optimum, but for rounding."""
    return value >= optimum - 1e-6 * abs(optimum)


def fairness(of, speeds):
    base = throughputs(of, proportional(of))
    return (of.size / of.weight / base * speeds).min()


def worst_delay(of, speeds):
    return ((of.age + of.steps / speeds) / ideal_times(of)).max()


def speeds_of(case, shares):
    if isinstance(shares, PackedShares):
        assert_packed(case, shares)
        return packed_throughputs(case.problem, case.pairs, shares)
    assert_feasible(shares, case.problem.size, case.problem.capacity)
    return throughputs(case.problem, shares)


def assert_packed(case, shares):
    """No job runs more than all the time, alone and in pairs; no type has more than it has."""
    time = shares.alone.sum(axis=1)
    for pair, share in zip(case.pairs.jobs, shares.pairs.sum(axis=1), strict=True):
        time[pair] += share
    assert (time <= 1 + 1e-9).all()
    size = case.problem.size
    assert (size[case.pairs.jobs[:, 0]] == size[case.pairs.jobs[:, 1]])[
        shares.pairs.sum(axis=1) > 0
    ].all()
    used = size @ shares.alone + size[case.pairs.jobs[:, 0]] @ shares.pairs
    assert (used <= case.problem.capacity * (1 + 1e-9)).all()


def test_max_min(case):
    of = case.problem
    blind = max_min(of, aware=False)
    assert_feasible(blind, of.size, of.capacity)
    level = (of.size / of.weight * blind.sum(axis=1)).min()
    assert reaches(level, case.optimum("max_min_fairness"))
    aware = speeds_of(case, max_min(of))
    assert reaches(fairness(of, aware), case.optimum("max_min_fairness_perf"))
    packed = speeds_of(case, packed_max_min(of, case.pairs))
    assert reaches(fairness(of, packed), case.optimum("max_min_fairness_packed"))


def test_makespan(case):
    of, blind = case.problem, alike(case.problem, V100)
    alone = (of.steps / speeds_of(case, makespan(of))).max()
    assert reaches(-alone, -case.optimum("min_total_duration_perf"))
    seen = (of.steps / throughputs(blind, makespan(blind))).max()
    assert reaches(-seen, -case.optimum("min_total_duration"))
    packed = (of.steps / speeds_of(case, packed_makespan(of, case.pairs))).max()
    assert reaches(-packed, -case.optimum("min_total_duration_packed"))


def test_finish_time_fairness(case):
    of, blind = case.problem, alike(case.problem, V100)
    alone = worst_delay(of, speeds_of(case, finish_time_fairness(of)))
    assert reaches(-alone, -case.optimum("finish_time_fairness_perf"))
    seen = worst_delay(blind, throughputs(blind, finish_time_fairness(blind)))
    assert reaches(-seen, -case.optimum("finish_time_fairness"))
    packed = worst_delay(of, speeds_of(case, packed_finish_time_fairness(of, case.pairs)))
    assert reaches(-packed, -case.optimum("finish_time_fairness_packed(weights=1)"))


def test_max_sum(case):
    of = case.problem
    total = speeds_of(case, max_sum(of)).sum()
    assert reaches(total, case.optimum("max_sum_throughput_perf"))
    cheap = max_sum(of, prices=PRICES)
    assert_feasible(cheap, of.size, of.capacity)
    by_cost = case.starting_with("max_sum_throughput_normalized_by_cost_perf(")
    assert reaches((of.throughput * cheap / PRICES).sum(), case.optimum(by_cost))


def test_max_sum_with_deadlines(case):
    of, name = case.problem, "max_sum_throughput_normalized_by_cost_perf_SLOs"
    goals = case.recorded[name]["SLOs"]
    left = np.array([goals.get(job, np.inf) for job in case.names], float)
    shares, kept = max_sum_if_possible(of, prices=PRICES, time_left=left)
    assert kept
    assert (speeds_of(case, shares) >= of.steps / left * (1 - 1e-9)).all()
    assert reaches((of.throughput * shares / PRICES).sum(), case.optimum(name))


def test_water_filling(case):
    of = case.problem
    base = throughputs(of, proportional(of))
    speeds = speeds_of(case, water_filling(of)) / base
    ours = np.sort(speeds * of.size / of.weight)
    theirs = case.recorded["max_min_fairness_water_filling_perf"]["weighted_sorted"]
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_hierarchical_water_filling(case):
    """Never below Gavel's, which stops early where no further job is seen to be stuck."""
    of = case.problem
    entities = Entities(np.arange(of.jobs) % 2, [1.0, 2.0], [False, True])
    speeds = speeds_of(case, water_filling(of, entities=entities))
    name = case.starting_with("water_filling_perf_hier")
    theirs = np.array(case.recorded[name]["normalized_effective_throughputs"])
    ours = speeds / throughputs(of, proportional(of))
    assert (ours >= theirs - 1e-6).all()
    if of.jobs > 3:  # in the smallest one it stops early
        assert ours == pytest.approx(theirs, abs=1e-6)


def test_strategy_proof(case):
    name = case.starting_with("max_min_fairness_strategy_proof_perf")
    if name is None:
        pytest.skip("the instance has no record of it")
    shares, parts = strategy_proof(case.problem)
    recorded = case.recorded[name]
    assert parts == pytest.approx(recorded["discount_factors"], abs=1e-5)
    theirs = throughputs(case.problem, case.shares(name))
    assert throughputs(case.problem, shares) == pytest.approx(theirs, rel=1e-6)


def test_what_needs_no_solver_is_equal(case):
    of = case.problem
    assert (fifo(of) == case.shares("fifo_perf")).all()
    assert isolated(of) == pytest.approx(case.shares("isolated"), rel=1e-12)
    assert proportional(of) == pytest.approx(case.shares("proportional"), rel=1e-12)


def test_allox(case):
    name = case.starting_with("allox")
    if name is None:
        pytest.skip("AlloX has jobs of one GPU only")
    assert (allox(case.problem) == case.shares(name)).all()
