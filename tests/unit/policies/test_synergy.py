"""CPUs and memory that others do not need go to the jobs that are faster with them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.knowledge import Knowledge
from rota.core.log import LABELS, Record
from rota.core.reasons import Reason
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.sensitivity import HostSensitivity
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.placement.first_fit import FirstFit
from rota.policies.admission.accept_all import AcceptAll
from rota.policies.synergy import Shares, Synergy, SynergyParams
from rota.sim.cluster import SimCluster
from rota.testing import check_policy
from rota.testing.scenario import random_scenario
from thinning import thinned

NODE = NodeSpec("n0", 4, cpus=12, mem_gib=80)
PROPORTIONAL = SynergyParams(order="fifo", mechanism="proportional")
TUNE = SynergyParams(order="fifo", mechanism="tune")
ALL_OR_NOTHING = SynergyParams(order="fifo", steps=1)


def job(name, gpus, work, cpus, mem_gib=0.0, *, at=0.0):
    return JobSpec(name, at, Request.of(gpus, cpus=cpus, mem_gib=mem_gib)), Behaviour(work)


def engine(params, jobs, nodes=(NODE,), *, placement=consolidate):
    topology = Topology(nodes)
    return Engine(
        SimCluster(topology, Zero(), HostSensitivity(topology)),
        compose(Synergy(params), placement(topology), AcceptAll()),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
        checker=Invariants(),
    )


def ends(params, jobs, nodes=(NODE,), **options):
    made = engine(params, jobs, nodes, **options)
    made.run()
    assert all(j.phase == Phase.DONE for j in made.jobs.values())
    return {j.id: j.end_s for j in made.jobs.values()}


def mean_jct(params, jobs, nodes=(NODE,), **options):
    submits = {spec.id: spec.submit_s for spec, _ in jobs}
    found = ends(params, jobs, nodes, **options)
    return sum(end_s - submits[name] for name, end_s in found.items()) / len(found)


HUNGRY_AND_MODEST = [job("hungry", 2, 100, cpus=10), job("modest", 2, 100, cpus=2)]


def test_what_a_modest_job_leaves_makes_a_hungry_one_faster():
    # the share of 2 GPUs is 6 CPUs
    assert ends(PROPORTIONAL, HUNGRY_AND_MODEST) == {
        "hungry": pytest.approx(100 / 0.6),
        "modest": 100,
    }
    assert ends(TUNE, HUNGRY_AND_MODEST) == {"hungry": 100, "modest": 100}


def test_tuned_jobs_need_less_time_on_the_mean():
    jobs = [
        job(f"{kind}{i}", 1 + i % 2, 50 + 10 * i, cpus, at=7.0 * i)
        for i in range(12)
        for kind, cpus in (("hungry", 9), ("modest", 1))
    ]
    nodes = (NODE, NodeSpec("n1", 4, cpus=12, mem_gib=80))
    for order in ("fifo", "las", "srtf"):
        fair = mean_jct(SynergyParams(order=order, mechanism="proportional"), jobs, nodes)
        tuned = mean_jct(SynergyParams(order=order), jobs, nodes)
        assert tuned < 0.95 * fair


def test_memory_is_given_like_cpus():
    jobs = [job("large", 2, 100, cpus=2, mem_gib=70), job("small", 2, 100, cpus=2, mem_gib=10)]
    assert ends(PROPORTIONAL, jobs)["large"] == 175  # 40 GiB of 70
    assert ends(TUNE, jobs) == {"large": 100, "small": 100}


def test_a_part_of_the_demand_is_better_than_none():
    # 6 CPUs are the share; 8 are there; asked are 14, in quarters: 6, 8, 10, 12 or 14
    jobs = [job("hungry", 2, 140, cpus=14), job("modest", 2, 1000, cpus=4)]
    assert ends(ALL_OR_NOTHING, jobs)["hungry"] == pytest.approx(140 / (6 / 14))
    assert ends(TUNE, jobs)["hungry"] == pytest.approx(140 / (8 / 14))


def test_nobody_waits_for_cpus_while_gpus_are_free():
    jobs = [job("first", 1, 100, cpus=12), job("second", 3, 90, cpus=9, at=10)]
    made = engine(TUNE, jobs)
    made.run(until_s=5)
    assert made.jobs[0].true_rate == 1.0  # all 12 CPUs
    made.run(until_s=20)
    assert made.jobs[0].true_rate == pytest.approx(0.25)  # its share
    assert (made.jobs[1].first_start_s, made.jobs[1].true_rate) == (10, 1.0)
    assert made.jobs[0].preemptions == 0


def test_more_than_a_node_has_may_be_asked_for():
    jobs = [job("greedy", 4, 120, cpus=96, mem_gib=800)]
    assert ends(TUNE, jobs) == {"greedy": pytest.approx(1200)}  # a tenth of the memory
    made = engine(TUNE, [job("impossible", 5, 120, cpus=1)])
    made.run()
    assert made.jobs[0].phase == Phase.REJECTED


def test_jobs_without_gpus_get_what_they_ask_for():
    jobs = [job("host", 0, 50, cpus=10), job("gpu", 4, 50, cpus=8)]
    assert ends(TUNE, jobs) == {"host": 50, "gpu": 100}  # 2 CPUs are left, and 8 are its share


@pytest.mark.parametrize(
    ("order", "first"), [("fifo", "long"), ("srtf", "short"), ("las", "short")]
)
def test_jobs_are_served_in_the_order_chosen(order, first):
    jobs = [job("long", 4, 1000, cpus=4), job("short", 4, 100, cpus=4, at=10)]
    found = ends(SynergyParams(order=order, round=20), jobs)
    assert min(found, key=found.get) == first


def test_las_looks_again_every_round():
    jobs = [job("a", 4, 100, cpus=4), job("b", 4, 100, cpus=4, at=1)]
    made = engine(SynergyParams(order="las", round=10), jobs)
    made.run()
    assert sum(j.preemptions for j in made.jobs.values()) > 5


@pytest.mark.parametrize("seed", [25, 33, 153])
def test_las_does_not_displace_a_job_because_it_begins(seed):
    """Else two jobs whose stops lose work displace each other for ever."""
    for mechanism in ("proportional", "tune"):
        random_scenario(seed).run(Synergy(SynergyParams(order="las", mechanism=mechanism)))


@pytest.mark.parametrize(
    ("elsewhere", "types", "reason"),
    [(0, (), Reason.CAPACITY), (8, ("k80",), Reason.CONSTRAINT)],
)
def test_jobs_without_gpus_wait_for_the_cpus_that_they_ask_for(elsewhere, types, reason):
    nodes = [NodeSpec("a", 4, cpus=elsewhere), NodeSpec("b", 1, "k80", cpus=8)]
    request = Request.of(0, cpus=8, gpu_types=types)
    made = engine(TUNE, [(JobSpec(name, 0.0, request), Behaviour(9.0)) for name in "ab"], nodes)
    made.run(until_s=5.0)
    log = made.log.frame()
    reasons = log.filter(log["event"] == LABELS[Record.REASON])["value"].to_list()
    assert reasons == [reason]
    made.run()


def test_the_share_is_that_of_the_poorest_node_that_will_do():
    nodes = [
        NodeSpec("a", 4, cpus=16, mem_gib=80, gpu_type="v100"),
        NodeSpec("b", 4, cpus=8, mem_gib=160, gpu_type="k80"),
        NodeSpec("c", 0, cpus=64),
    ]
    share = Shares(Topology(nodes))
    made = engine(TUNE, [job("any", 2, 1, cpus=99, mem_gib=999)], nodes)
    made.run()
    assert share.of(made.jobs[0]) == (4, 40)
    request = Request.of(2, cpus=99, mem_gib=30, gpu_types=("v100",))
    made = engine(TUNE, [(JobSpec("v", 0.0, request), Behaviour(1.0))], nodes)
    made.run()
    assert share.of(made.jobs[0]) == (8, 30)


JOBS = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(1, 6), st.integers(1, 50), st.integers(0, 20),
        st.integers(0, 150),
    ),
    min_size=2, max_size=12,
)  # fmt: skip


@pytest.mark.parametrize("placement", [count, consolidate, FirstFit])
@pytest.mark.parametrize("order", ["fifo", "las", "srtf"])
@settings(max_examples=10)
@given(rows=JOBS)
def test_no_job_that_runs_is_ever_slower_than_with_its_share(placement, order, rows):
    jobs = [
        job(str(i), gpus, work, float(cpus), float(mem_gib), at=float(at))
        for i, (at, gpus, work, cpus, mem_gib) in enumerate(sorted(rows))
    ]
    nodes = (NODE, NodeSpec("n1", 4, cpus=12, mem_gib=80))
    made = engine(SynergyParams(order=order, round=15), jobs, nodes, placement=placement)
    share = Shares(Topology(nodes))
    for until_s in range(0, 400, 3):
        made.run(until_s=until_s)
        for j in made.view.active.values():
            if j.phase == Phase.RUNNING:
                asked = (j.shape.cpus, j.shape.mem_gib)
                parts = [a / b for a, b in zip(share.of(j), asked, strict=True) if b]
                assert j.true_rate >= min(parts, default=1.0) - 1e-9
    made.run()
    assert all(j.phase == Phase.DONE for j in made.jobs.values())


@pytest.mark.parametrize(
    ("order", "mechanism"), thinned(["fifo", "las", "srtf"], ["proportional", "tune"])
)
def test_it_keeps_what_every_policy_promises(order, mechanism):
    params = SynergyParams(order=order, mechanism=mechanism)
    report = check_policy(lambda: Synergy(params), seeds=range(2))
    assert len(report.passed) > 15


def test_knowledge_is_declared_only_where_it_is_used():
    assert Synergy(SynergyParams(order="srtf")).knowledge == Knowledge.REMAINING_WORK
    assert Synergy(SynergyParams(order="las")).knowledge == Knowledge.NOTHING
    assert Synergy(SynergyParams(order="fifo")).knowledge == Knowledge.NOTHING
