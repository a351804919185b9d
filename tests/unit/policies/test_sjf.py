"""Shortest job first, not preemptive."""

import pytest

from policy_runs import bare, job, runs
from rota.core.errors import KnowledgeError
from rota.core.knowledge import Knowledge
from rota.policies.sjf import Sjf, SjfParams


def test_the_shortest_that_waits_is_next_and_nobody_is_preempted():
    jobs = [job("a", 0, 1, 10), job("b", 1, 1, 8), job("c", 2, 1, 3)]
    assert runs(Sjf(), jobs) == {"a": [(0, 10)], "b": [(13, 21)], "c": [(10, 13)]}


# 2 GPUs: b (3 s) is first in the queue but needs both; c (5 s) would fit beside a.
BLOCKED = [job("a", 0, 1, 10), job("b", 1, 2, 3), job("c", 2, 1, 5)]


def test_jobs_that_do_not_fit_are_passed():
    assert runs(Sjf(), BLOCKED, gpus=2) == {"a": [(0, 10)], "b": [(10, 13)], "c": [(2, 7)]}


def test_strict_lets_nobody_pass_the_head():
    strict = Sjf(SjfParams(strict=True))
    assert runs(strict, BLOCKED, gpus=2) == {"a": [(0, 10)], "b": [(10, 13)], "c": [(13, 18)]}


def test_a_job_that_becomes_the_head_is_not_blocked_by_the_old_one():
    # d (1 s) comes when b blocks the queue; it is shorter than b, so it is the head and starts.
    jobs = [*BLOCKED, job("d", 3, 1, 1)]
    assert runs(Sjf(SjfParams(strict=True)), jobs, gpus=2) == {
        "a": [(0, 10)],
        "b": [(10, 13)],
        "c": [(13, 18)],
        "d": [(3, 4)],
    }


def test_it_serves_by_what_is_believed():
    # the oracle is wrong: it takes b for 8 * 0.5 = 4 s and c for 3 * 2 = 6 s.
    jobs = [job("a", 0, 1, 10), job("b", 1, 1, 8), job("c", 2, 1, 3)]
    belief = [1.0, 0.5, 2.0].__getitem__
    assert runs(Sjf(), jobs, belief=belief) == {"a": [(0, 10)], "b": [(10, 18)], "c": [(18, 21)]}


def test_the_oracle_is_declared():
    assert Sjf.knowledge == Knowledge.REMAINING_WORK
    with pytest.raises(KnowledgeError, match="REMAINING_WORK"):
        Sjf().key(bare(known=Knowledge.NOTHING), 0.0)
