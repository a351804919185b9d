"""Discretised LAS by time: thresholds by hand."""

import pytest

from policy_runs import bare, job, resumes_alike, runs
from rota.core.errors import OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import RUNNING
from rota.core.registry import parse_params
from rota.policies.las import Las, LasParams
from rota.testing.scenario import Fixed


def las(*limits):
    return Las(LasParams(limits=limits))


def test_a_job_drops_when_it_has_run_for_the_limit():
    # a reaches 10 s at 10 and drops; b, in the first queue, takes over and ends before its limit.
    jobs = [job("a", 0, 1, 30), job("b", 5, 1, 8)]
    assert runs(las(10), jobs) == {"a": [(0, 10), (18, 38)], "b": [(10, 18)]}


def test_gpus_do_not_count():
    jobs = [job("a", 0, 2, 30), job("b", 1, 2, 8)]
    assert runs(las(10), jobs, gpus=2) == {"a": [(0, 10), (18, 38)], "b": [(10, 18)]}


def test_inside_a_queue_running_jobs_keep_their_place():
    # 10: a drops, b takes over. 20: b drops beside a, and goes on. 40: b ends, a resumes.
    jobs = [job("a", 0, 1, 30), job("b", 5, 1, 30)]
    assert runs(las(10), jobs) == {"a": [(0, 10), (40, 60)], "b": [(10, 40)]}


def test_every_queue_has_its_limit():
    # a: first queue until 10, second until 20 s of running. b comes at 15, when a is in the second,
    # takes over until its own 10 s are over (25), and goes on: a is no better (second queue).
    # c comes at 32: b (17 s run) stops; c drops at 42 and goes on to its end at 47.
    # Then b and a are both in the second queue: a was submitted first and has 5 s left in it.
    # 52: a has run 20 s and drops to the third queue, so b resumes; b drops there at 55 and stays.
    jobs = [job("a", 0, 1, 40), job("b", 15, 1, 25), job("c", 32, 1, 15)]
    assert runs(las(10, 20), jobs) == {
        "a": [(0, 15), (47, 52), (60, 80)],
        "b": [(15, 32), (52, 60)],
        "c": [(32, 47)],
    }


def test_time_spent_starting_does_not_count():
    # 3 s to start: a makes progress from 3 on, so it drops at 13.
    jobs = [job("a", 0, 1, 30), job("b", 5, 1, 8)]
    assert runs(las(10), jobs, costs=Fixed(start_s=3)) == {
        "a": [(0, 13), (24, 47)],
        "b": [(13, 24)],
    }


def test_an_evicted_job_keeps_what_it_attained():
    # 5 s before the node fails, 5 s more after it is back at 8: a drops at 13.
    jobs = [job("a", 0, 1, 20), job("b", 9, 1, 8)]
    outages = [(5, NODE_DOWN, 0), (8, NODE_UP, 0)]
    assert runs(las(10), jobs, outages=outages) == {
        "a": [(0, 5), (8, 13), (21, 31)],
        "b": [(13, 21)],
    }


def test_the_level_is_reached_at_the_announced_time_and_not_before():
    policy = las(1000.0)
    running = bare(work=1e6)
    running.phase, running.since_s, running.run_s = RUNNING, 1 / 3, 0.1
    at_s = policy.next_change(running, 7.7)
    assert at_s == 1 / 3 + (1000 - 0.1)
    assert policy.key(running, at_s - 1e-9)[0] == 0
    assert policy.key(running, at_s)[0] == 1
    assert policy.next_change(running, at_s) == float("inf")


def test_a_job_stopped_at_a_level_has_reached_it_in_spite_of_rounding():
    stopped = bare()
    stopped.run_s = 9.9999999999
    assert las(10).key(stopped, 50.0) == (1, 1, 0.0)


@pytest.mark.parametrize("limits", ["20/10", "0/10", "-1", "5/5"])
def test_limits_must_ascend_from_above_zero(limits):
    with pytest.raises(OptionError, match="positive and ascending"):
        parse_params("las", LasParams, {"limits": limits})


def test_defaults_are_those_of_the_published_simulator():
    assert parse_params("las", LasParams, {}).limits == (3250, 7200)


@pytest.mark.parametrize("at_s", [3, 10, 16, 33, 53])
def test_a_frozen_run_goes_on_alike(at_s):
    jobs = [job("a", 0, 1, 40), job("b", 15, 1, 25), job("c", 32, 1, 15)]
    assert resumes_alike(lambda: las(10, 20), jobs, at_s)
