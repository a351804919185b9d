"""Strict first in, first out."""

from policy_runs import job, runs
from rota.policies.fifo import Fifo


def test_the_first_job_that_does_not_fit_blocks_all_behind_it():
    # 4 GPUs: b does not fit beside a, and c, which would, waits behind b.
    jobs = [job("a", 0, 3, 10), job("b", 1, 2, 5), job("c", 2, 1, 5)]
    assert runs(Fifo(), jobs, gpus=4) == {"a": [(0, 10)], "b": [(10, 15)], "c": [(10, 15)]}


def test_equal_times_are_served_in_the_order_of_the_file():
    jobs = [job("b", 0, 1, 3), job("a", 0, 1, 2)]
    assert runs(Fifo(), jobs) == {"b": [(0, 3)], "a": [(3, 5)]}


def test_nobody_is_preempted():
    jobs = [job("long", 0, 1, 100), job("short", 1, 1, 1)]
    assert runs(Fifo(), jobs) == {"long": [(0, 100)], "short": [(100, 101)]}
