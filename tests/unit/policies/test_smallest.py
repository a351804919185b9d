"""Fewest GPUs first."""

from policy_runs import job, runs
from rota.policies.smallest import Smallest


def test_a_smaller_job_displaces_a_larger_one():
    jobs = [job("large", 0, 4, 10), job("small", 2, 2, 4)]
    assert runs(Smallest(), jobs, gpus=4) == {
        "large": [(0, 2), (6, 14)],
        "small": [(2, 6)],
    }


def test_durations_do_not_count():
    jobs = [job("short", 0, 2, 1), job("long", 0, 1, 50)]
    assert runs(Smallest(), jobs, gpus=2) == {"short": [(50, 51)], "long": [(0, 50)]}


def test_equal_sizes_are_served_in_the_order_of_submission():
    jobs = [job("a", 0, 2, 10), job("b", 1, 2, 1)]
    assert runs(Smallest(), jobs, gpus=2) == {"a": [(0, 10)], "b": [(10, 11)]}
