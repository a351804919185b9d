"""Budgets: never exceeded by jobs with time limits, by others at most by one of them."""

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


def play(jobs, text, policy="fifo-skip", tenants=()):
    """Jobs: (gpus, work, limit, tenant); all at second 0, 1, 2, ..."""
    specs = [
        JobSpec(str(i), float(i), Request.of(gpus), tenant, limit_s=limit)
        for i, (gpus, _, limit, tenant) in enumerate(jobs)
    ]
    workload = Workload(specs, [Behaviour(work) for _, work, _, _ in jobs])
    topology = Topology.uniform(2, 4)
    engine = make_engine(
        Parts.named(policy, topology, admission=text),
        SimCluster(topology, Zero(), Uniform(topology)),
        WorkloadSource(workload), tenants=TenantTree(tenants),
    )  # fmt: skip
    engine.run()
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
