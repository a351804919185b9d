"""Admission by limits of users and queues."""

import pytest

from policy_runs import engine, finish, job, resumes_alike, rows, runs, runs_of
from rota.core.errors import OptionError
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.registry import parse_params
from rota.core.tenants import Tenant
from rota.policies.admission.limits import Limits, LimitsParams, LimitsState
from rota.policies.drf import Drf
from rota.policies.fifo_skip import FifoSkip
from rota.policies.srtf import Srtf


def limits(**params):
    return Limits(LimitsParams(**params))


def run(jobs, tenants=(), policy=FifoSkip, gpus=8, **params):
    return runs(policy(), jobs, gpus=gpus, admission=limits(**params), tenants=tenants)


def ann(name, submit_s, gpus, work, **spec):
    return job(name, submit_s, gpus, work, user="ann", **spec)


def bob(name, submit_s, gpus, work, **spec):
    return job(name, submit_s, gpus, work, user="bob", **spec)


@pytest.mark.parametrize("policy", [FifoSkip, Srtf, Drf])
def test_a_user_has_so_many_jobs_at_work_and_holds_up_nobody_else(policy):
    jobs = [ann("a", 0, 1, 10), ann("b", 0, 1, 10), ann("c", 0, 1, 10), bob("d", 1, 1, 10)]
    assert run(jobs, policy=policy, user_jobs=2) == {
        "a": [(0, 10)],
        "b": [(0, 10)],
        "c": [(10, 20)],
        "d": [(1, 11)],
    }


def test_a_user_has_so_many_gpus_at_work():
    jobs = [ann("a", 0, 3, 10), ann("b", 0, 2, 10), ann("c", 0, 1, 10), bob("d", 0, 4, 10)]
    log = finish(engine(FifoSkip(), jobs, gpus=8, admission=limits(user_gpus=4)))
    # c would fit beside a, but b was first
    assert runs_of(log) == {
        "a": [(0, 10)],
        "b": [(10, 20)],
        "c": [(10, 20)],
        "d": [(0, 10)],
    }
    assert rows(log, Record.HELD) == [(0, 1, Reason.QUOTA), (0, 2, Reason.QUOTA)]


def test_a_queue_has_so_many_jobs_and_gpus_at_work():
    jobs = [job(str(n), 0, 1, 10, tenant="q") for n in range(3)]
    assert run(jobs, queue_jobs=2)["2"] == [(10, 20)]
    assert run(jobs, queue_gpus=2)["2"] == [(10, 20)]
    assert run(jobs, queue_gpus=3)["2"] == [(0, 10)]


def test_the_declared_limit_of_a_queue_and_of_those_above_it_counts():
    tenants = [Tenant("org", limit=4), Tenant("vision", "org"), Tenant("speech", "org", limit=3)]
    jobs = [
        job("s", 0, 3, 10, tenant="speech"),
        job("v", 1, 1, 10, tenant="vision"),
        job("w", 2, 1, 5, tenant="vision"),
        job("x", 2, 1, 5),
    ]
    assert run(jobs, tenants, queue_gpus=2) == {
        "s": [(0, 10)],
        "v": [(1, 11)],
        "w": [(10, 15)],
        "x": [(2, 7)],
    }


def test_who_waits_for_a_queue_does_not_hold_up_the_same_user_elsewhere():
    tenants = [Tenant("full", limit=1), Tenant("free")]
    jobs = [
        bob("b", 0, 1, 10, tenant="full"),
        ann("a", 1, 1, 5, tenant="full"),
        ann("c", 2, 1, 5, tenant="free"),
        ann("d", 3, 1, 5, tenant="free"),
    ]
    assert run(jobs, tenants, user_jobs=1) == {
        "b": [(0, 10)],
        "a": [(12, 17)],  # ann was at her limit when the queue had room
        "c": [(2, 7)],
        "d": [(7, 12)],
    }


def test_a_job_above_a_limit_is_refused_with_the_limit():
    made = engine(FifoSkip(), [ann("a", 0, 5, 1)], gpus=8, admission=limits(user_gpus=4))
    text = finish(made).filter(made.log.frame()["event"] == "rejected")["text"].item()
    assert text == (
        "asks for 5 GPUs, but user 'ann' may have 4 GPUs at work (limits: user_gpus): ask for less"
    )


def test_what_a_held_job_waits_for_is_named():
    jobs = [ann("a", 0, 2, 10, tenant="q"), ann("b", 1, 1, 5), bob("c", 2, 1, 5, tenant="q")]
    made = engine(
        FifoSkip(), jobs, gpus=8, admission=limits(user_jobs=1), tenants=[Tenant("q", limit=2)]
    )
    made.run(3.0)
    held = {job.id: made.scheduler.why_held(job, made.view) for job in made.view.active.values()}
    assert held == {
        "a": "",
        "b": "user 'ann' may have 1 job at work (limits: user_jobs)",
        "c": "queue 'q' may have 2 GPUs at work (its limit)",
    }


@pytest.mark.parametrize("at_s", [0.5, 1, 3, 6, 11])
def test_a_frozen_run_goes_on_alike(at_s):
    jobs = [
        ann("a", 0, 2, 10, tenant="q"),
        ann("b", 1, 1, 5),
        bob("c", 2, 1, 5, tenant="q"),
        bob("d", 3, 1, 5),
        ann("e", 3, 1, 5, tenant="q"),
    ]
    make = lambda: limits(user_jobs=1, queue_gpus=2)  # noqa: E731 - one expression
    assert resumes_alike(FifoSkip, jobs, at_s, make_admission=make, gpus=4)


def test_nothing_is_left_when_everybody_is_gone():
    admission = limits(user_jobs=1, queue_gpus=0.5)
    jobs = [ann(str(n), 0, 0.1, 1) for n in range(7)]
    finish(engine(FifoSkip(), jobs, gpus=1, placement="consolidate", admission=admission))
    assert admission.state == LimitsState()


def test_limits_must_leave_something():
    for key in ("user_jobs", "user_gpus", "queue_jobs", "queue_gpus"):
        with pytest.raises(OptionError, match=key):
            parse_params("limits", LimitsParams, {key: "0"})
