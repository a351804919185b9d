"""Optimus: gains, the best division, and what is fitted."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.hints import StepTime, TimedShape
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.knowledge import Knowledge
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.models.curves import LossCurve, WorkerSpeed, amdahl
from rota.models.rates import Scaling
from rota.models.speeds import TrueSpeeds
from rota.policies.optimus import Optimus, OptimusParams
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, to_the_end, wire


def job_of(index, work, rates, least=1):
    """A job that takes `least` to as many GPUs as it has rates."""
    most = len(rates)
    request = Request.of(least, min_gpus=least, max_gpus=most)
    scaling = [(gpus + 1.0, rate / rates[least - 1]) for gpus, rate in enumerate(rates)]
    truth = Behaviour(work, scaling=scaling)
    job = Job(JobSpec(f"j{index}", 0.0, request), truth, index, Shape(index, request))
    job.known = int(Knowledge.SCALING | Knowledge.REMAINING_WORK)
    job.book = TrueSpeeds(Scaling(Topology.uniform(2, 4)))
    return job


CONCAVE = st.lists(st.floats(0.05, 1.0), min_size=5, max_size=5).map(
    lambda falls: [1 + sum(sorted(falls, reverse=True)[:n]) for n in range(6)]
)


@given(
    works=st.lists(st.integers(1, 100), min_size=3, max_size=3),
    rates=st.lists(CONCAVE, min_size=3, max_size=3),
)
def test_greedy_is_the_best_division_if_speeds_are_concave(works, rates):
    jobs = [job_of(i, float(works[i]), rates[i]) for i in range(3)]
    sizes = Optimus().sizes(jobs, 6.0, 0.0)

    def total(given):
        return sum(works[i] * rates[i][0] / rates[i][n - 1] for i, n in enumerate(given))

    best = min(total(g) for g in product(range(1, 7), repeat=3) if sum(g) <= 6)
    assert total([int(sizes[i]) for i in range(3)]) == pytest.approx(best)


def test_everybody_gets_a_gpu_before_anybody_gets_two():
    jobs = [job_of(i, 10.0 * (i + 1), [1.0, 2.0, 3.0, 4.0]) for i in range(3)]
    assert Optimus().sizes(jobs, 2.0, 0.0) == {0: 1, 1: 1, 2: 0}
    assert Optimus().sizes(jobs, 4.0, 0.0) == {0: 1, 1: 1, 2: 2}  # it gains most


@pytest.mark.parametrize("estimate", ["oracle", "fitted"])
def test_jobs_grow_when_others_end_and_all_work_is_done(estimate):
    topology = Topology.uniform(1, 4)
    request = Request.of(1, min_gpus=1, max_gpus=4)
    specs = [JobSpec("a", 0.0, request), JobSpec("b", 0.0, request)]
    truths = [Behaviour(400.0), Behaviour(40.0)]
    policy = Optimus(OptimusParams(interval_s=50.0, estimate=estimate))
    cluster = SimCluster(topology, Fixed(start_s=2), Scaling(topology))
    engine = wire(policy, cluster, Workload(specs, truths))
    engine.arrivals.book = TrueSpeeds(cluster.rates)
    engine.run(until_s=60.0)
    assert engine.jobs[0].held_gpus > 2
    to_the_end(engine)
    assert engine.jobs[0].end_s < 200


def test_a_loss_curve_that_was_planted_is_found():
    truth = LossCurve(0.02, 0.5, 0.3, 0.0)
    found = LossCurve.of([(step, truth.at(step)) for step in range(0, 400, 10)])
    assert found.at(1000) == pytest.approx(truth.at(1000), rel=0.02)
    left = found.steps_left(0.05)
    assert left == pytest.approx(0.5 * 19 / 0.02 - 390, rel=0.1)
    assert LossCurve.of([(0, 1.0)]).steps_left(0.05) is None


def test_a_speed_that_was_planted_is_found():
    timings = {TimedShape(1, n, 32): StepTime(0.1 + 0.4 / n + 0.01 * n) for n in (1, 2, 4, 8)}
    found = WorkerSpeed.of(timings)
    assert found.samples(6) == pytest.approx(6 * 32 / (0.1 + 0.4 / 6 + 0.06), rel=0.01)
    assert WorkerSpeed.of({}) is None
    assert amdahl(4, 0.25) == pytest.approx(1 / (0.25 + 0.75 / 4))
