"""Budgets: never exceeded by jobs with time limits, by others at most by one of them."""

from itertools import pairwise
from random import Random

import pytest

from rota.core.errors import OptionError
from rota.core.jobs import HELD, REJECTED, Behaviour, JobSpec, Request
from rota.core.reasons import Reason
from rota.core.tenants import Tenant, TenantTree
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.parts import make_admission
from rota.engine.source import WorkloadSource
from rota.engine.wiring import Parts, make_engine
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster

HOUR = 3600.0


def play(jobs, text, policy="fifo-skip", tenants=(), every_s=1.0, until_s=float("inf")):
    """Jobs: (gpus, work, limit, tenant); all at second 0, 1, 2, ... if that is how often."""
    specs = [
        JobSpec(str(i), every_s * i, Request.of(gpus), tenant, limit_s=limit, user=f"u-{tenant}")
        for i, (gpus, _, limit, tenant) in enumerate(jobs)
    ]
    workload = Workload(specs, [Behaviour(work) for _, work, _, _ in jobs])
    topology = Topology.uniform(2, 4)
    engine = make_engine(
        Parts.named(policy, topology, admission=text),
        SimCluster(topology, Zero(), Uniform(topology)),
        WorkloadSource(workload), tenants=TenantTree(tenants),
    )  # fmt: skip
    engine.run(until_s)
    return engine


def used(engine, tenant):
    return sum(
        job.attained_gpu_s(job.end_s) for job in engine.jobs.values() if job.tenant == tenant
    )


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "las", "easy", "srtf"])
def test_with_limits_a_budget_is_never_exceeded(policy):
    for seed in range(5):
        dice = Random(seed)  # noqa: S311 - not a secret
        jobs = []
        for _ in range(30):
            work = dice.choice([600.0, 1800.0, 3600.0])
            limit = work * dice.choice([1.0, 1.5, 3.0])
            jobs.append((dice.choice([1, 2, 4]), work, limit, dice.choice(["a", "b"])))
        engine = play(jobs, "budget:of=a:12/b:6", policy)
        assert used(engine, "a") <= 12 * HOUR + 1e-3
        assert used(engine, "b") <= 6 * HOUR + 1e-3
        held = [job for job in engine.jobs.values() if job.phase == HELD]
        assert held
        assert all("of the budget of" in engine.scheduler.why_held(j, engine.view) for j in held)


def test_without_a_limit_only_one_job_exceeds_it():
    inf = float("inf")
    engine = play([(1, HOUR, inf, "a") for _ in range(4)], "budget:of=a:1.5")
    assert used(engine, "a") == 2 * HOUR  # the second one began with half an hour left
    assert [job.phase == HELD for job in engine.jobs.values()] == [False, False, True, True]


def test_what_is_not_used_is_free_again():
    engine = play([(4, 600.0, HOUR, "a") for _ in range(3)], "budget:of=a:4")
    assert engine.jobs[0].first_start_s == 0.0
    assert used(engine, "a") == 4 * 600.0  # 3.33 of 4 GPU-hours are left: nobody fits any more
    log = engine.log.frame()
    assert (log.filter(log["event"] == "held")["value"] == float(Reason.QUOTA)).all()


def test_budgets_of_ancestors_and_defaults():
    tenants = [Tenant("team"), Tenant("x", parent="team"), Tenant("y", parent="team")]
    engine = play([(1, 60.0, HOUR, "x"), (1, 60.0, HOUR, "y")], "budget:of=team:1", tenants=tenants)
    assert [job.first_start_s for job in engine.jobs.values()] == [0.0, float("inf")]
    engine = play([(4, 60.0, HOUR, "z")], "budget:default=1")
    assert engine.jobs[0].phase == REJECTED
    for wrong in ("of=a", "of=a:x", "of=a:-1"):
        with pytest.raises(OptionError):
            make_admission(f"budget:{wrong}")
    with pytest.raises(OptionError, match="of has 'a' twice: give it once"):
        make_admission("budget:of=a:1/a:2")


# --- by month -------------------------------------------------------------------------------------

DAY = 24 * HOUR
ENDS = [0.0, 31 * DAY, 59 * DAY, 90 * DAY, 120 * DAY, 151 * DAY, 181 * DAY]  # of months of 2026
MONTHLY = "per=month,start=2026-01-01"


def in_months(engine, tenant):
    """GPU-hours by month, of jobs that ran without a break."""
    found = [0.0] * (len(ENDS) - 1)
    for job in engine.jobs.values():
        if job.tenant == tenant and job.first_start_s < job.end_s < float("inf"):
            for i, (begin, end) in enumerate(pairwise(ENDS)):
                inside = min(end, job.end_s) - max(begin, job.first_start_s)
                found[i] += job.gpus * max(inside, 0.0) / HOUR
    return found


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "easy", "conservative"])
def test_no_month_exceeds_its_budget_and_each_begins_anew(policy):
    for seed in range(3):
        dice = Random(seed)  # noqa: S311 - not a secret
        jobs = []
        for _ in range(60):
            work = dice.choice([6.0, 24.0, 240.0]) * HOUR
            limit = work * dice.choice([1.0, 1.5])
            jobs.append((dice.choice([1, 2]), work, limit, dice.choice(["a", "b"])))
        engine = play(jobs, f"budget:of=a:800/b:720,{MONTHLY}", policy, every_s=12 * HOUR)
        for tenant, most in (("a", 800.0), ("b", 720.0)):
            used_gpu_h = in_months(engine, tenant)
            assert max(used_gpu_h) <= most + 1e-6
            assert sum(used_gpu_h) > most  # several months were used
        assert not [job for job in engine.jobs.values() if job.phase == HELD]


def test_a_job_over_the_end_of_a_month_counts_for_both():
    day = 24.0
    jobs = [(4, 2 * day * HOUR, 2 * day * HOUR, "a"), (4, day * HOUR, day * HOUR, "a")]
    jobs = [(1, 1.0, 1.0, "b")] * 30 + jobs  # on 31 January
    engine = play(jobs, f"budget:of=a:{4 * 2 * day},{MONTHLY}", every_s=DAY)
    first, second = list(engine.jobs.values())[-2:]
    assert (first.first_start_s, first.end_s) == (30 * DAY, 32 * DAY)
    # a day of it is spent in February, which leaves room for the second at once
    assert second.first_start_s == 31 * DAY
    assert in_months(engine, "a")[:2] == [4 * day, 8 * day]


def test_held_jobs_enter_when_the_month_ends_although_nothing_else_happens():
    jobs = [(1, 10 * HOUR, 10 * HOUR, "a"), (1, 10 * HOUR, 10 * HOUR, "a")]
    for policy in ("fifo-skip", "las", "drf", "easy"):
        engine = play(jobs, f"budget:of=a:10,{MONTHLY}", policy)
        assert [job.first_start_s for job in engine.jobs.values()] == [0.0, 31 * DAY], policy


def test_a_budget_of_nothing_refuses_and_does_not_count_months_for_ever():
    engine = play([(1, HOUR, float("inf"), "a")], f"budget:of=a:0,{MONTHLY}")
    assert engine.jobs[0].phase == REJECTED
    inf = float("inf")
    engine = play([(1, 800 * HOUR, inf, "a")] * 3, f"budget:of=a:700,{MONTHLY}")
    assert [job.end_s < inf for job in engine.jobs.values()] == [True, True, True]
    spans = [(job.first_start_s, job.end_s) for job in engine.jobs.values()]
    assert all(before[1] <= after[0] for before, after in pairwise(spans))  # each enters alone


def test_budgets_of_users_and_groups():
    jobs = [(1, HOUR, HOUR, "a"), (1, HOUR, HOUR, "a"), (1, HOUR, HOUR, "b")]
    engine = play(jobs, "budget:of=u-a:1,by=user")
    assert [job.phase == HELD for job in engine.jobs.values()] == [False, True, False]
    with pytest.raises(OptionError, match="write a date"):
        make_admission("budget:of=a:1,per=month,start=soon")


def test_what_a_held_job_is_told_names_the_month():
    jobs = [(1, HOUR, HOUR, "a"), (1, HOUR, HOUR, "a")]
    engine = play(jobs, f"budget:of=a:1,{MONTHLY}", until_s=DAY)
    assert engine.scheduler.why_held(engine.jobs[1], engine.view) == (
        "of the budget of 'a', 1 GPU-hours until 2026-02-01, 1 are spent and 0 are neither spent "
        "nor committed; it may need 1"
    )
    engine = play(jobs, f"budget:of=a:1,{MONTHLY}")
    assert engine.view.now_s == 31 * DAY + HOUR  # no month is waited for when all is over
