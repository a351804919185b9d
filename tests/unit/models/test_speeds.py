"""What policies are told of speeds: the truth of the rate model, or with errors."""

import math

import numpy as np
import pytest

from rota.core.hints import Hints
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.knowledge import Knowledge
from rota.core.policy import DecidePolicy, Params
from rota.core.ports import RateModel
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.models.rates import Product, Types, TypesParams, Uniform
from rota.models.speeds import MeasuredSpeeds, NoisySpeeds, TrueSpeeds
from rota.models.tables import PairRates, PairsParams
from rota.study.build import _speed_book
from rota.study.config import RunConfig
from rota.study.run import simulate
from throughput_tables import write_table

TOPOLOGY = Topology([NodeSpec("a", 2, "v100"), NodeSpec("b", 2, "k80")])


def job(index=0, gpus=1, model="m", types=(), **how):
    spec = JobSpec(f"j{index}", 0.0, Request.of(gpus, gpu_types=types), model=model)
    made = Job(spec, Behaviour(100.0, **how), index, Shape(0, spec.request))
    made.known = int(Knowledge.SPEEDS)
    return made


@pytest.fixture
def packed(tmp_path):
    file = write_table(
        tmp_path / "t.json", {("m", 1): (4.0, 2.0)}, {(("m", 1), ("m", 1)): (0.6, 0.6)}
    )
    return Product([Types(TOPOLOGY), PairRates(TOPOLOGY, PairsParams(table=file))])


def test_the_truth_is_what_the_rate_model_says(packed):
    own = job(speeds={"k80": 0.25})
    assert TrueSpeeds(Types(TOPOLOGY)).speed(own, "k80") == 0.25
    assert TrueSpeeds(Uniform(TOPOLOGY)).speed(own, "k80") == 1.0
    plain = Types(TOPOLOGY, TypesParams(speeds=("k80:0.5",)))
    assert TrueSpeeds(plain).speed(job(), "k80") == 0.5
    assert TrueSpeeds(packed).speed_beside(own, job(1), "k80") == pytest.approx(0.15)
    assert TrueSpeeds(Types(TOPOLOGY)).speed_beside(own, job(1), "k80") == 0.0


def test_a_rate_model_from_outside_need_not_know_speeds():
    class Outside(RateModel):
        name = "outside"

        def rate(self, job, allocation, sharers):
            return 1.0

        def describe(self):
            return {}

    assert TrueSpeeds(Outside()).speed(job(speeds={"k80": 0.25}), "k80") == 0.25


def test_jobs_ask_their_book(packed):
    one, two, wide, picky = job(0), job(1), job(2, gpus=2), job(3, types=("v100",))
    half, other_half = job(4, gpus=0.5), job(5, gpus=0.5)
    assert one.speed_beside(two, "v100") == 0.0  # no book: nobody knows
    for each in (one, two, wide, picky, half):
        each.book = TrueSpeeds(packed)
    assert one.speed_on("v100") == 1.0
    assert one.speed_beside(two, "v100") == pytest.approx(0.6)
    assert one.speed_beside(wide, "v100") == 0.0
    assert one.speed_beside(picky, "k80") == picky.speed_beside(one, "k80") == 0.0
    assert half.speed_beside(other_half, "v100") == 0.0


# --- errors ---------------------------------------------------------------------------------------


def noisy(seed=0, **error):
    return NoisySpeeds(TrueSpeeds(Types(TOPOLOGY)), seed=seed, **error)


def test_errors_have_the_mean_and_spread_that_were_asked_for():
    book = noisy(cv=0.3, bias=0.1)
    factors = np.array([book.factor(job(i), "v100") for i in range(4000)])
    assert factors.mean() == pytest.approx(1.1, abs=0.02)
    assert factors.std() / factors.mean() == pytest.approx(0.3, abs=0.02)


def test_errors_depend_on_seed_job_and_type_only():
    one, again, other = noisy(cv=0.3), noisy(cv=0.3), noisy(cv=0.3, seed=1)
    late = again.factor(job(3000), "k80")  # asked in another order
    assert [one.factor(job(i), "k80") for i in (3, 3000)] == [again.factor(job(3), "k80"), late]
    assert one.factor(job(3), "k80") != one.factor(job(3), "v100")
    assert one.factor(job(3), "k80") != one.factor(job(4), "k80")
    assert one.factor(job(3), "k80") != other.factor(job(3), "k80")


def test_tasks_of_a_job_are_wrong_alike():
    whole, task = job(5), job(1 << 24)
    task.parent = whole
    assert noisy(cv=0.5).factor(task, "v100") == noisy(cv=0.5).factor(whole, "v100")


def test_a_noisy_book_multiplies(packed):
    book = NoisySpeeds(TrueSpeeds(packed), cv=0.5)
    own = job(2, speeds={"k80": 0.25})
    factor = book.factor(own, "k80")
    assert book.speed(own, "k80") == 0.25 * factor
    assert book.speed_beside(own, job(3), "k80") == pytest.approx(0.15 * factor)


# --- in a simulation ------------------------------------------------------------------------------


class Told(DecidePolicy[Params]):
    """Wants to know speeds."""

    name = "told"
    knowledge = Knowledge.SPEEDS

    def decide(self, view):
        plan = view.plan()
        plan.fill(view.jobs)
        return plan


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rates": "types"}, 0.25),
        ({}, 1.0),
        ({"rates": "types", "speed_error": "bias=1"}, 0.5),
    ],
)
def test_a_run_tells_policies_what_its_rates_say(options, expected):
    config = RunConfig(trace="made", cluster="1x2:v100+1x2:k80", policy="told", **options)
    rates = Types(TOPOLOGY) if "rates" in options else Uniform(TOPOLOGY)
    book = _speed_book(config, rates, Told())
    assert book.speed(job(speeds={"k80": 0.25}), "k80") == expected


def test_nobody_is_told_who_does_not_ask():
    config = RunConfig(trace="made", cluster="1x2:v100", policy="fifo")
    asks_nothing = Told()
    asks_nothing.knowledge = Knowledge.REMAINING_WORK
    assert _speed_book(config, Uniform(TOPOLOGY), asks_nothing) is None


def test_the_error_is_one_of_the_assumptions():
    workload = Workload([JobSpec("one", 0.0, Request.of(1))], [Behaviour(5.0)])
    config = RunConfig(trace="made", cluster="1x2", policy="fifo", speed_error="cv=0.5")
    assert simulate(config, workload=workload).assumptions["speed_error"] == {"cv": 0.5, "bias": 0}
    plain = RunConfig(trace="made", cluster="1x2", policy="fifo")
    assert "speed_error" not in simulate(plain, workload=workload).assumptions


# --- what jobs on a real cluster have measured ----------------------------------------------------


def telling(*steps, asked=2):
    """Return a job that has told (GPUs, batch per GPU, seconds of a step)."""
    spec = JobSpec("a", 0.0, Request.of(asked, min_gpus=1, max_gpus=16))
    job = Job(spec, Behaviour(math.inf, speeds={"v100": 3.0}), 0, Shape(0, spec.request))
    job.known = int(Knowledge.SCALING | Knowledge.SPEEDS)
    job.book = MeasuredSpeeds()
    job.told = Hints()
    for gpus, batch, step_s in steps:
        job.told.take({"batch": batch, "step_s": step_s}, 1, gpus, "")
    return job


def test_a_job_that_has_told_nothing_scales_in_proportion():
    assert telling().speed_with(8) == 4
    assert telling((2, 32, 0.5)).speed_with(8) == 4  # one size says nothing about others
    assert telling((4, 32, 0.5)).speed_with(1) == 0.5


def test_measured_throughput_is_what_policies_are_told():
    job = telling((2, 32, 0.5), (4, 32, 0.8), (8, 32, 1.6))
    assert [job.speed_with(gpus) for gpus in (1, 2, 4, 8)] == pytest.approx([0.5, 1, 1.25, 1.25])
    assert job.speed_with(6) == pytest.approx(1.25)
    assert 1.25 <= job.speed_with(16) < 1.3  # each worker adds to a step: more hardly help


def test_the_best_batch_of_a_size_counts():
    job = telling((2, 32, 0.5), (2, 64, 0.6), (4, 32, 0.5))
    # 213 samples/s with two, 256 with four
    assert job.speed_with(4) == pytest.approx(256 / (128 / 0.6))


def test_speeds_on_types_are_the_users():
    assert telling().speed_on("v100") == 3
    assert telling().speed_on("k80") == 1
