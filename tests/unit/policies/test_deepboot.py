"""DeepBoot: requests first, the rest by a knapsack of speedups."""

import msgspec
import pytest

from elastic_runs import elastic, ends, engine, held
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.policies.deepboot import DeepBoot, DeepBootPolicyParams

LINEAR = [1.0, 2.0, 3.0, 4.0]
FLAT = [1.0, 1.5, 1.6, 1.65]


def request(name, submit_s, seconds, gpus=1):
    return (
        JobSpec(name, float(submit_s), Request.of(gpus), priority=1),
        Behaviour(float(seconds)),
    )


def test_a_request_takes_the_gpu_that_is_missed_least_and_gives_it_back():
    jobs = [elastic("good", 0, 4000, LINEAR), elastic("flat", 0, 4000, FLAT), request("r", 70, 10)]
    made = engine(DeepBoot(), jobs)

    assert held(made, 61.0) == {"good": 3, "flat": 1}
    assert held(made, 75.0) == {"good": 2, "flat": 1, "r": 1}
    assert held(made, 100.0)["good"] == 2  # what a request leaves is given out with the minute
    assert held(made, 125.0)["good"] == 3


def test_training_begins_small_and_grows_with_the_minute():
    made = engine(DeepBoot(), [elastic("a", 10, 200, LINEAR), request("r", 20, 15)])

    assert held(made, 30.0) == {"a": 1, "r": 1}
    assert held(made, 61.0)["a"] == 4
    assert ends(made)["r"] == 35


@pytest.mark.parametrize("every_s", [0.0, 30.0])
def test_everyone_ends(every_s):
    policy = DeepBoot(msgspec.structs.replace(DeepBootPolicyParams(), every_s=every_s))
    jobs = [elastic(str(i), 7 * i, 50 + i, LINEAR if i % 2 else FLAT) for i in range(6)]
    jobs += [request(f"r{i}", 20 * i, 5) for i in range(4)]

    assert max(ends(engine(policy, jobs, placement="consolidate")).values()) < 1000
