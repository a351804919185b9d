import pytest

from decisions import engine, job, run, starts
from rota.core.tenants import Tenant
from rota.core.topology import NodeSpec
from rota.policies.drf import Drf, DrfParams


def running(made):
    return sorted(j.id for j in made.view.running)


@pytest.mark.parametrize("placement", ["count", "consolidate"])
@pytest.mark.parametrize("preemptive", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_the_example_of_the_paper(placement, preemptive, strict):
    # section 4.1: 9 CPUs, 18 GB; A's tasks ask for <1 CPU, 4 GB>, B's for <3 CPUs, 1 GB>
    jobs = [
        *(job(f"a{i}", 0, 100, tenant="A", cpus=1, mem_gib=4) for i in range(6)),
        *(job(f"b{i}", 0, 100, tenant="B", cpus=3, mem_gib=1) for i in range(6)),
    ]
    policy = Drf(DrfParams(preemptive=preemptive, strict=strict))
    nodes = [NodeSpec("n0", 0, cpus=9, mem_gib=18)]
    made = engine(policy, jobs, nodes, placement=placement)
    made.run(until_s=0)
    assert running(made) == ["a0", "a1", "a2", "b0", "b1"]
    made.run()
    assert len(made.view.finished) == len(jobs)


def test_the_largest_share_of_any_resource_counts():
    # a GPU job of A takes 1/4 of the GPUs; a CPU job of B takes 1/2 of the CPUs
    jobs = [
        *(job(f"a{i}", 1, 10, tenant="A", cpus=1) for i in range(4)),
        *(job(f"b{i}", 0, 10, tenant="B", cpus=8) for i in range(2)),
    ]
    made = engine(Drf(), jobs, [NodeSpec("n0", 4, cpus=16)])
    made.run(until_s=0)
    assert running(made) == ["a0", "a1", "a2", "a3", "b0"]  # 12 CPUs: b1 finds only 4


def test_weights_count():
    jobs = [job(f"{tenant}{i}", 1, 10, tenant=tenant) for i in range(12) for tenant in "AB"]
    made = engine(Drf(), jobs, (1, 12), tenants=[Tenant("A", weight=2)])
    made.run(until_s=0)
    assert "".join(running(made)).count("A") == 8


def test_a_tenant_that_has_nothing_is_served_first():
    jobs = [
        *(job(f"a{i}", 1, 10 + i, tenant="A") for i in range(4)),
        job("a-next", 1, 5, at=1, tenant="A"),
        job("b", 1, 5, at=2, tenant="B"),
    ]
    made = run(Drf(), jobs, (1, 4))
    assert (starts(made)["b"], starts(made)["a-next"]) == (10, 11)


@pytest.mark.parametrize(("strict", "expected"), [(False, 1), (True, 10)])
def test_others_may_pass_a_tenant_whose_next_job_does_not_fit(strict, expected):
    jobs = [
        job("a-large", 3, 10, tenant="A"),
        job("b-large", 2, 4, at=1, tenant="B"),
        job("a-small", 1, 4, at=1, tenant="A"),
    ]
    made = run(Drf(DrfParams(strict=strict)), jobs, (1, 4))
    assert starts(made) == {"a-large": 0, "b-large": 10, "a-small": expected}


def test_a_tenants_own_jobs_keep_their_order():
    jobs = [
        job("first", 3, 10, tenant="A"),
        job("large", 2, 4, at=1, tenant="A"),
        job("small", 1, 4, at=2, tenant="A"),
    ]
    assert starts(run(Drf(), jobs, (1, 4))) == {"first": 0, "large": 10, "small": 10}


def test_running_jobs_are_stopped_only_if_asked_for():
    jobs = [
        *(job(f"a{i}", 1, 10, tenant="A") for i in range(4)),
        *(job(f"b{i}", 1, 10, at=5, tenant="B") for i in range(3)),
    ]
    patient = run(Drf(), jobs, (1, 4))
    assert {starts(patient)[f"b{i}"] for i in range(3)} == {10}
    assert sum(j.preemptions for j in patient.view.finished) == 0
    made = engine(Drf(DrfParams(preemptive=True)), jobs, (1, 4))
    made.run(until_s=5)
    assert running(made) == ["a0", "a1", "b0", "b1"]
    made.run()
    assert sum(j.preemptions for j in made.view.finished) == 2


def test_a_gang_that_has_to_go_does_not_stop_the_small_jobs_behind_it():
    jobs = [
        job("a-first", 1, 10, tenant="A"),
        job("a-large", 2, 10, tenant="A"),
        job("a-last", 1, 10, tenant="A"),
        job("b", 2, 10, at=5, tenant="B"),
    ]
    made = engine(Drf(DrfParams(preemptive=True)), jobs, (1, 4))
    made.run(until_s=5)
    assert running(made) == ["a-first", "a-last", "b"]
    made.run()
    assert {j.id: j.end_s for j in made.view.finished}["a-large"] == 15
