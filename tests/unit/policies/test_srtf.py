"""Shortest remaining time first."""

from policy_runs import bare, job, runs
from rota.core.jobs import RUNNING
from rota.policies.srtf import Srtf


def test_whoever_needs_less_than_what_remains_displaces():
    # at 1 b (3 s) displaces a (9 s left); at 2 c (1 s) displaces b (2 s left)
    jobs = [job("a", 0, 1, 10), job("b", 1, 1, 3), job("c", 2, 1, 1)]
    assert runs(Srtf(), jobs) == {
        "a": [(0, 1), (5, 14)],
        "b": [(1, 2), (3, 5)],
        "c": [(2, 3)],
    }


def test_at_equal_remaining_time_the_earlier_submission_stays():
    jobs = [job("a", 0, 1, 5), job("b", 2, 1, 3)]
    assert runs(Srtf(), jobs) == {"a": [(0, 5)], "b": [(5, 8)]}


def test_the_key_of_a_running_job_falls_with_its_rate():
    running = bare(work=10.0)
    running.phase, running.since_s, running.true_rate = RUNNING, 2.0, 0.5
    assert Srtf().key(running, 6.0) == 8.0
    assert Srtf().slope(running) == -0.5
