"""Admission by the quotas and limits of tenants."""

import pytest

from policy_runs import engine, finish, job, resumes_alike, rows, runs, runs_of
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.registry import parse_params
from rota.core.tenants import Tenant
from rota.policies.admission.quota import Quota, QuotaParams
from rota.policies.fifo_skip import FifoSkip

TENANTS = [
    Tenant("org", limit=4),
    Tenant("vision", "org", quota=2),
    Tenant("speech", "org", quota=1, limit=3),
]


def quota(**params):
    return Quota(QuotaParams(**params))


def options(**params):
    return {"gpus": 8, "admission": quota(**params), "tenants": TENANTS}


def test_a_tenant_stays_within_its_quota():
    # vision may use 2: its second job waits although 8 GPUs are there.
    jobs = [job("a", 0, 2, 10, tenant="vision"), job("b", 1, 1, 5, tenant="vision")]
    log = finish(engine(FifoSkip(), jobs, **options()))
    assert runs_of(log) == {"a": [(0, 10)], "b": [(10, 15)]}
    assert rows(log, Record.HELD) == [(1, 1, Reason.QUOTA)]


def test_a_limit_lets_a_tenant_borrow_beyond_its_quota():
    jobs = [job(str(i), 0, 1, 10, tenant="speech") for i in range(4)]
    assert runs(FifoSkip(), jobs, **options()) == {
        "0": [(0, 10)],
        "1": [(0, 10)],
        "2": [(0, 10)],
        "3": [(10, 20)],
    }


def test_ancestors_bound_their_descendants_together():
    # org may use 4: speech has 3 inside, so vision gets 1 of its 2.
    jobs = [
        job("s", 0, 3, 10, tenant="speech"),
        job("v", 1, 1, 10, tenant="vision"),
        job("w", 2, 1, 5, tenant="vision"),
    ]
    assert runs(FifoSkip(), jobs, **options()) == {
        "s": [(0, 10)],
        "v": [(1, 11)],
        "w": [(10, 15)],
    }


def test_nobody_passes_a_held_job_of_the_same_tenant_but_other_tenants_do():
    jobs = [
        job("a", 0, 1, 10, tenant="vision"),
        job("b", 1, 2, 5, tenant="vision"),
        job("c", 2, 1, 5, tenant="vision"),
        job("s", 3, 1, 5, tenant="speech"),
    ]
    assert runs(FifoSkip(), jobs, **options()) == {
        "a": [(0, 10)],
        "b": [(10, 15)],
        "c": [(15, 20)],
        "s": [(3, 8)],
    }


def test_tenants_that_declare_nothing_get_the_default():
    jobs = [job("a", 0, 2, 10, tenant="guest"), job("b", 0, 2, 10, tenant="guest")]
    assert runs(FifoSkip(), jobs, **options()) == {"a": [(0, 10)], "b": [(0, 10)]}
    assert runs(FifoSkip(), jobs, **options(default=3)) == {"a": [(0, 10)], "b": [(10, 20)]}


def test_the_default_is_not_for_ancestors():
    tenants = [Tenant("root"), Tenant("a", "root", quota=3), Tenant("b", "root", quota=3)]
    jobs = [job("x", 0, 3, 10, tenant="a"), job("y", 0, 3, 10, tenant="b")]
    got = runs(FifoSkip(), jobs, gpus=8, admission=quota(default=3), tenants=tenants)
    assert got == {"x": [(0, 10)], "y": [(0, 10)]}


def test_a_job_that_alone_exceeds_a_bound_is_refused_with_the_reason():
    jobs = [job("a", 0, 3, 10, tenant="vision"), job("b", 0, 8, 10, tenant="guest")]
    log = finish(engine(FifoSkip(), jobs, **options(default=7)))
    assert runs_of(log) == {"a": [], "b": []}
    assert log.filter(log["event"] == "rejected")["text"].to_list() == [
        "asks for 3 GPUs, but tenant 'vision' may use 2: ask for less or raise its quota or limit",
        "asks for 8 GPUs, but tenant 'guest' may use 7: ask for less or raise its quota or limit",
    ]


def test_the_bound_of_an_ancestor_refuses_too():
    tenants = [Tenant("org", limit=2), Tenant("team", "org", limit=6)]
    made = engine(FifoSkip(), [job("a", 0, 3, 1, tenant="team")], gpus=8, admission=quota(),
                  tenants=tenants)  # fmt: skip
    log = finish(made)
    assert "tenant 'org' may use 2" in log.filter(log["event"] == "rejected")["text"].item()


def test_a_tenant_with_limit_zero_may_use_nothing():
    tenants = [Tenant("blocked", limit=0)]
    log = finish(engine(FifoSkip(), [job("a", 0, 1, 1, tenant="blocked")], admission=quota(),
                        tenants=tenants))  # fmt: skip
    assert "may use 0" in log.filter(log["event"] == "rejected")["text"].item()


def test_a_held_job_that_is_cancelled_holds_nobody_up():
    jobs = [
        job("a", 0, 1, 10, tenant="vision"),
        job("b", 1, 2, 5, tenant="vision"),
        job("c", 2, 1, 5, tenant="vision"),
        job("other", 4, 1, 1, tenant="guest"),
    ]
    made = engine(FifoSkip(), jobs, **options())
    made.run(3.0)
    made.cancel(made.view.active[1], None, 3.0)
    # c has room since 3; held jobs are looked at again when something ends.
    assert runs_of(finish(made))["c"] == [(3, 8)]


JOBS = [
    job("a", 0, 2, 10, tenant="vision"),
    job("b", 1, 1, 5, tenant="vision"),
    job("s", 2, 3, 4, tenant="speech"),
    job("c", 3, 2, 5, tenant="vision"),
]


@pytest.mark.parametrize("at_s", [0.5, 2, 3, 6, 10, 12])
def test_a_frozen_run_goes_on_alike(at_s):
    where = {"gpus": 8, "tenants": TENANTS}
    assert resumes_alike(FifoSkip, JOBS, at_s, make_admission=quota, **where)


def test_the_state_of_a_restored_admission_is_the_same():
    admission = quota()
    engine(FifoSkip(), JOBS, gpus=8, tenants=TENANTS, admission=admission).run(3.0)
    other = quota()
    other.restore(admission.snapshot())
    assert other.snapshot() == admission.snapshot()
    assert other.state.demand == {"vision": 2, "org": 2}
    assert other.state.held == {"vision": {1: None, 3: None}, "speech": {2: None}}


def test_options_are_written_as_on_the_command_line():
    assert parse_params("quota", QuotaParams, {"default": "64"}) == QuotaParams(default=64)


def test_jobs_of_a_former_scheduler_are_charged_to_their_own_tenants():
    jobs = [job("v", 0, 2, 10, tenant="vision"), job("s", 0, 3, 10, tenant="speech")]
    running = engine(FifoSkip(), jobs, gpus=8, tenants=TENANTS)
    running.run(5.0)
    new = quota()
    for each in running.view.active.values():
        new.adopted(each, running.view)
    assert new.state.demand == {"vision": 2, "speech": 3, "org": 5}
    for each in running.view.active.values():
        new.left(each)
    assert set(new.state.demand.values()) == {0}
