"""AntMan: guaranteed jobs keep their speed under interference that the policy cannot read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_sharing import ends, engine, job
from rota.core.sharing import LIMIT, SPILL, parts_of
from rota.core.topology import NodeSpec
from rota.models.costs import Custom, FixedParams
from rota.models.rates import Rates

MPS = [NodeSpec("n", 2, gpu_mem_gib=40, sharing="mps")]
OPEN = {"priority": -1}


class Hidden(Rates):
    """Each neighbour costs something beyond a threshold of its own; nobody tells the policy."""

    name = "hidden"
    harm = (0.0, 1.0)  # threshold, slope

    def __init__(self, topology):
        super().__init__(topology)
        self.neighbours = True

    def rate(self, job, allocation, sharers):
        own = limit_of(allocation)
        threshold, slope = self.harm
        harm = sum(
            max(0.0, limit_of(other.allocation) - threshold) * slope * (1 + other.index % 3)
            for other in sharers
        )
        return own * max(0.0, 1.0 - harm) if job.spec.priority < 0 else max(0.05, 1.0 - harm)


def limit_of(allocation):
    return next((amount for _, kind, amount in allocation.extra if kind == LIMIT), 1.0)


def solo_part(made):
    """Of each guaranteed job: the part of its solo rate (1) that it had while it ran."""
    return {
        each.id: each.true_work / each.run_s
        for each in made.jobs.values()
        if each.spec.priority >= 0 and each.run_s > 100.0
    }


@given(
    threshold=st.sampled_from([0.0, 0.05, 0.13, 0.3]),
    slope=st.sampled_from([0.0, 0.1, 1.0, 10.0]),
    others=st.lists(
        st.tuples(st.integers(0, 400), st.integers(5, 200), st.integers(0, 40)), max_size=8
    ),
    first=st.lists(st.tuples(st.integers(0, 300), st.integers(120, 600)), min_size=1, max_size=4),
)
@settings(deadline=None)
def test_a_guaranteed_job_keeps_98_percent_of_its_speed(threshold, slope, others, first):
    class Model(Hidden):
        harm = (threshold, slope)

    submitted = [job(f"g{i}", 1, float(w), at=float(at)) for i, (at, w) in enumerate(first)]
    submitted += [
        job(f"o{i}", 1, float(work), at=float(at), gpu_mem_gib=float(mem), spec=OPEN)
        for i, (at, work, mem) in enumerate(others)
    ]
    made = engine("antman:interval_s=10", submitted, MPS, rates=Model)
    made.run(until_s=5_000.0)
    kept = solo_part(made)
    assert kept
    assert min(kept.values()) >= 0.98


def test_opportunistic_jobs_use_what_is_left():
    one = [NodeSpec("n", 1, sharing="mps")]
    submitted = [
        job("g", 1, 1000.0, demand={"compute": 0.6}),
        job("o", 1, 200.0, demand={"compute": 1.0}, spec=OPEN),
    ]
    made = engine("antman:interval_s=10", submitted, one)
    done = ends(made)
    assert 1000.0 <= done["g"] <= 1020.0
    assert 500.0 < done["o"] < 700.0  # 0.4 of the GPU is left, and the limit has to be found
    assert [each.preemptions + each.migrations for each in made.jobs.values()] == [0, 0]


def test_a_policy_that_is_not_throttled_would_be_seen():
    """The same jobs with no limits: the measure of the test above can fail."""
    submitted = [job("g", 1, 500.0), job("o", 1, 500.0, spec=OPEN)]
    one = [NodeSpec("n", 1, sharing="mps")]
    made = engine("antman:interval_s=10,tolerance=0.9,step=1", submitted, one)
    made.run(until_s=5_000.0)
    assert solo_part(made)["g"] < 0.9


def test_memory_of_opportunistic_jobs_makes_room():
    one = [NodeSpec("n", 1, gpu_mem_gib=40, sharing="mps")]
    submitted = [
        job("o", 1, 1000.0, gpu_mem_gib=30, spec=OPEN),
        job("g", 1, 50.0, at=10.0, gpu_mem_gib=30),
    ]
    made = engine("antman:interval_s=10", submitted, one)
    made.run(until_s=20.0)
    opportunistic, guaranteed = made.jobs[0], made.jobs[1]
    (part,) = parts_of(opportunistic.allocation).values()
    assert (part.mem_gib, part.spill_gib) == (10.0, 20.0)
    assert guaranteed.true_rate == 1.0
    made.run(until_s=100.0)
    assert not [kind for _, kind, _ in opportunistic.allocation.extra if kind == SPILL]
    assert opportunistic.preemptions == 0


def test_without_spill_it_waits_for_memory():
    one = [NodeSpec("n", 1, gpu_mem_gib=40, sharing="mps")]
    submitted = [job("g", 1, 50.0, gpu_mem_gib=30), job("o", 1, 10.0, gpu_mem_gib=30, spec=OPEN)]
    made = engine("antman:interval_s=10,spill=no", submitted, one)
    assert ends(made) == {"g": 50.0, "o": 60.0}


@pytest.mark.parametrize("mode", ["", "exclusive", "fraction"])
def test_elsewhere_opportunistic_jobs_leave(mode):
    one = [NodeSpec("n", 1, sharing=mode)]
    submitted = [job("o", 1, 100.0, spec=OPEN), job("g", 1, 50.0, at=10.0)]
    made = engine("antman:interval_s=10", submitted, one)
    assert ends(made) == {"g": 60.0, "o": 150.0}
    assert made.jobs[0].preemptions == 1


def test_starts_that_take_time_are_measured_later():
    costs = Custom(FixedParams(start_s=20.0))
    one = [NodeSpec("n", 1, sharing="mps")]
    submitted = [
        job("o", 1, 300.0, spec=OPEN),
        job("g", 1, 300.0, at=50.0, demand={"compute": 0.5}),
    ]
    made = engine("antman:interval_s=10", submitted, one, costs=costs)
    done = ends(made)
    assert done["g"] <= 50 + 20 + 300 / 0.98
    assert done["o"] > 320
