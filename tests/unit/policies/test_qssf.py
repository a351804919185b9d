"""Quasi-shortest service first."""

import pytest

from policy_runs import bare, job, resumes_alike, runs
from rota.core.errors import KnowledgeError, OptionError
from rota.core.jobs import DONE
from rota.core.knowledge import Knowledge
from rota.core.registry import parse_params
from rota.policies.qssf import Qssf, QssfParams


def qssf(**params):
    return Qssf(QssfParams(**params))


# 2 GPUs. Expected service: b 8, c 6, d 9 GPU-s. At 10 c starts; b is next and does not fit.
JOBS = [job("a", 0, 2, 10), job("b", 1, 2, 4), job("c", 2, 1, 6), job("d", 3, 1, 9)]


def test_an_oracle_orders_by_duration_times_gpus_and_the_head_blocks():
    assert runs(qssf(), JOBS, gpus=2) == {
        "a": [(0, 10)],
        "b": [(16, 20)],
        "c": [(10, 16)],
        "d": [(20, 29)],
    }


def test_not_strict_passes_the_head():
    assert runs(qssf(strict=False), JOBS, gpus=2) == {
        "a": [(0, 10)],
        "b": [(19, 23)],
        "c": [(10, 16)],
        "d": [(10, 19)],
    }


def test_a_job_that_becomes_the_head_starts_at_once():
    # b (8 GPU-s) blocks while a holds one GPU; c (2 GPU-s) is ahead of it and fits.
    jobs = [job("a", 0, 1, 10), job("b", 1, 2, 4), job("c", 2, 1, 2)]
    assert runs(qssf(), jobs, gpus=2) == {"a": [(0, 10)], "b": [(10, 14)], "c": [(2, 4)]}


def test_the_oracle_may_be_noisy():
    # b is taken for 4 * 3 * 2 = 24, c for 6 and d for 9 * 0.5 = 4.5 GPU-s.
    belief = [1.0, 3.0, 1.0, 0.5].__getitem__
    assert runs(qssf(), JOBS, gpus=2, belief=belief) == {
        "a": [(0, 10)],
        "b": [(19, 23)],
        "c": [(10, 16)],
        "d": [(10, 19)],
    }


def test_users_estimates_and_those_who_gave_none_last():
    jobs = [
        job("a", 0, 1, 10),
        job("none", 1, 1, 1),
        job("b", 2, 1, 5, estimate_s=20.0),
        job("c", 3, 1, 6, estimate_s=15.0),
    ]
    assert runs(qssf(estimate="user"), jobs) == {
        "a": [(0, 10)],
        "none": [(21, 22)],
        "b": [(16, 21)],
        "c": [(10, 16)],
    }


def ended(policy, index, run_s, **spec):
    over = bare(index, **spec)
    over.phase, over.run_s = DONE, run_s
    policy.finished(over, 0.0)


def test_history_looks_for_the_most_alike_jobs_first():
    policy = qssf(estimate="history", prior_s=1000.0)
    assert policy.key(bare(0, gpus=2, user="u", name="train"), 0.0) == 2000  # nothing known: prior
    ended(policy, 1, 100.0, gpus=8, user="x", name="other")
    assert policy.key(bare(2, gpus=2, user="u", name="train"), 0.0) == 2 * 100  # all jobs
    ended(policy, 3, 40.0, gpus=2, user="x", name="other")
    assert policy.key(bare(4, gpus=2, user="u", name="train"), 0.0) == 2 * 40  # same GPUs
    ended(policy, 5, 30.0, gpus=2, user="u", name="other")
    assert policy.key(bare(6, gpus=2, user="u", name="train"), 0.0) == 2 * 30  # same user and GPUs
    ended(policy, 7, 10.0, gpus=2, user="u", name="train")
    ended(policy, 8, 20.0, gpus=2, user="u", name="train")
    assert policy.key(bare(9, gpus=2, user="u", name="train"), 0.0) == 2 * 15  # and same name


def test_an_estimate_is_made_once():
    policy = qssf(estimate="history", prior_s=1000.0)
    early = bare(0)
    assert policy.key(early, 0.0) == 1000
    ended(policy, 1, 10.0)
    assert policy.key(early, 5.0) == 1000
    assert policy.key(bare(2), 5.0) == 10


def test_the_mean_rolls():
    policy = qssf(estimate="history", window=2)
    for index, run_s in enumerate([10.0, 20.0, 40.0]):
        ended(policy, index, run_s)
    # (10 + 20) / 2 = 15, then half of it is forgotten: (15 + 40) / 2
    assert policy.key(bare(9), 0.0) == 27.5


def test_a_run_that_learns():
    # a teaches that jobs of u take 10 s, b that those of v take 3 s; c and d, submitted later, are
    # served by that, though d is shorter in truth.
    jobs = [
        job("a", 0, 1, 10, user="u"),
        job("b", 1, 1, 3, user="v"),
        job("long", 11, 1, 20, user="w"),
        job("c", 14, 1, 1, user="u"),
        job("d", 15, 1, 9, user="v"),
    ]
    assert runs(qssf(estimate="history"), jobs) == {
        "a": [(0, 10)],
        "b": [(10, 13)],
        "long": [(13, 33)],
        "d": [(33, 42)],
        "c": [(42, 43)],
    }


def test_a_job_without_gpus_needs_no_service():
    assert qssf().key(bare(gpus=0, work=float("inf")), 0.0) == 0.0


@pytest.mark.parametrize(
    ("estimate", "knowledge"),
    [
        ("oracle", Knowledge.REMAINING_WORK),
        ("user", Knowledge.USER_ESTIMATE),
        ("history", Knowledge.HISTORY),
    ],
)
def test_it_declares_what_its_estimate_needs(estimate, knowledge):
    policy = qssf(estimate=estimate)
    assert policy.knowledge == knowledge
    policy.key(bare(known=knowledge), 0.0)
    if estimate != "history":
        with pytest.raises(KnowledgeError):
            policy.key(bare(known=Knowledge.HISTORY), 0.0)


def test_options_are_checked():
    made = parse_params("qssf", QssfParams, {"estimate": "user", "strict": "no"})
    assert made == QssfParams(estimate="user", strict=False)
    with pytest.raises(OptionError, match="estimate"):
        parse_params("qssf", QssfParams, {"estimate": "magic"})


@pytest.mark.parametrize("at_s", [5, 12, 14, 20, 35])
def test_a_frozen_run_goes_on_alike(at_s):
    jobs = [
        job("a", 0, 1, 10, user="u"),
        job("b", 1, 1, 3, user="v"),
        job("long", 11, 1, 20, user="w"),
        job("c", 14, 1, 1, user="u"),
        job("d", 15, 1, 9, user="v"),
    ]
    assert resumes_alike(lambda: qssf(estimate="history"), jobs, at_s)


def test_the_state_of_a_restored_policy_is_the_same():
    policy = qssf(estimate="history")
    ended(policy, 0, 10.0, user="u")
    policy.key(bare(1), 0.0)
    other = qssf(estimate="history")
    other.restore(policy.snapshot())
    assert other.snapshot() == policy.snapshot()
    assert other.key(bare(2, user="u"), 0.0) == 10.0
