"""Dialect `synergy`, worked out by hand."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.sensitivity import Sensitivity
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine import snapshot
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.loop import PlannedRates
from rota.reproduce.synergy.dialect import SynergyDialect, SynergyDialectParams
from rota.reproduce.synergy.loop import clamped
from rota.sim.cluster import SimCluster

# With 3 CPUs for each GPU an iteration takes 1 s, with 6 half of it.
HUNGRY = Sensitivity((1, 3, 6), (10,), ((0.5,), (1.0,), (2.0,)), step_s=1.0)
MODESTY = Sensitivity((1, 3), (10,), ((1.0,), (1.0,)), step_s=1.0)
ORDERS = ("fifo", "las", "srtf", "ftf", "drf", "tetris")
MECHANISMS = ("proportional", "greedy", "tune")


def cluster(nodes=1):
    return Topology([NodeSpec(f"n{i}", 2, cpus=6, mem_gib=20) for i in range(nodes)])


def hungry(iterations, gpus=1):
    """Ask for 6 CPUs for each GPU."""
    request = Request.of(gpus, cpus=6.0 * gpus, mem_gib=10.0 * gpus)
    return request, Behaviour(iterations / 2, sensitivity=HUNGRY)


def modest(iterations, gpus=1):
    request = Request.of(gpus, cpus=1.0 * gpus, mem_gib=1.0 * gpus)
    return request, Behaviour(float(iterations), sensitivity=MODESTY)


def engine_for(policy, jobs, *, nodes=1, ties="file", outages=(), checker=None):
    """`jobs` are (submission, (request, behaviour))."""
    topology = cluster(nodes)
    dialect = SynergyDialect(SynergyDialectParams(ties=ties))
    scheduler = dialect.build(policy, None, topology, seed=0)
    scheduler.trusted = False  # let the engine check every plan
    workload = Workload(
        [JobSpec(str(i), float(at), request) for i, (at, (request, _)) in enumerate(jobs)],
        [behaviour for _, (_, behaviour) in jobs],
    )
    return Engine(
        SimCluster(
            topology, Zero(), PlannedRates(topology), finish_round_s=dialect.finish_round_s,
            outages=[(t, kind, topology.nodes[node]) for t, kind, node in outages],
        ),
        scheduler,
        WorkloadSource(workload),
        wake=dialect.wake,
        checker=checker,
    )  # fmt: skip


def ends(policy, jobs, **options):
    engine = engine_for(policy, jobs, checker=Invariants(), **options)
    engine.run()
    assert all(job.phase == Phase.DONE for job in engine.jobs.values())
    return [engine.jobs[i].end_s for i in sorted(engine.jobs)]


def test_a_share_is_slower_than_the_demand_and_tune_gives_what_is_left():
    jobs = [(0, hungry(600)), (0, modest(600))]
    assert ends("fifo:mechanism=proportional", jobs) == [600, 600]
    # 6 CPUs and 1 CPU do not fit together: the second waits until the first is done
    assert ends("fifo:mechanism=greedy", jobs) == [300, 900]
    # `tune` cuts the first to its share instead
    assert ends("fifo:mechanism=tune", jobs) == [600, 600]
    assert ends("fifo:mechanism=tune", jobs[:1]) == [300]


def test_tune_falls_back_to_the_share_of_the_job_itself_first():
    jobs = [(0, modest(300)), (0, hungry(600))]
    # 5 CPUs are free: the second gets 3, not 5
    assert ends("fifo:mechanism=tune", jobs) == [300, 450 // 300 * 300 + 300]
    assert ends("fifo:mechanism=tune", [(0, modest(600)), (0, hungry(600))]) == [600, 600]


def test_decisions_and_ends_fall_on_rounds_and_an_unfinished_iteration_is_lost():
    assert ends("fifo", [(0, modest(1))]) == [300]
    assert ends("fifo", [(10, modest(300))]) == [600]
    assert ends("fifo", [(300, modest(300))]) == [600]
    slow = Sensitivity((1,), (10,), ((1.0,),), step_s=7.0)  # 42 iterations in a round
    request = Request.of(1, cpus=1.0, mem_gib=1.0)
    assert ends("fifo", [(0, (request, Behaviour(7.0 * 84, sensitivity=slow)))]) == [600]
    assert ends("fifo", [(0, (request, Behaviour(7.0 * 85, sensitivity=slow)))]) == [900]


def test_an_iteration_that_takes_longer_than_a_round_counts_as_one():
    long = Sensitivity((1,), (10,), ((1.0,),), step_s=1000.0)
    request = Request.of(1, cpus=1.0, mem_gib=1.0)
    assert ends("fifo", [(0, (request, Behaviour(3000.0, sensitivity=long)))]) == [900]


def test_who_does_not_fit_is_passed_over_and_nobody_keeps_a_place():
    jobs = [(0, modest(600)), (1, modest(300, gpus=2)), (2, modest(300))]
    assert ends("fifo", jobs) == [600, 900, 600]
    # the short job comes first in the round after its arrival, and the long one is preempted
    assert ends("srtf", [(0, modest(900, gpus=2)), (10, modest(300, gpus=2))]) == [1200, 600]


def test_jobs_without_a_profile_run_in_seconds_at_their_share():
    plain = (Request.of(2), Behaviour(450.0))
    assert ends("fifo:mechanism=tune", [(0, plain)]) == [600]


def test_ftf_serves_those_who_waited_least_in_relation_to_their_length():
    # at 300 s (300 + 5700) / 6000 = 1 against (290 + 600) / 600 = 1.48: the long job goes on
    jobs = [(0, modest(6000, gpus=2)), (10, modest(600, gpus=2))]
    assert ends("ftf", jobs) == [6000, 6600]
    assert ends("srtf", jobs) == [6600, 900]


@pytest.mark.parametrize(("ties", "expected"), [("file", [300, 600]), ("reversed", [600, 300])])
def test_the_order_of_jobs_that_come_together_can_be_chosen(ties, expected):
    assert ends("fifo", [(5, modest(300, gpus=2))] * 2, ties=ties) == [e + 300 for e in expected]


@pytest.mark.parametrize(
    ("asked", "demand", "speedup"),
    [
        ((2, 12.0, 20.0), (2, 12.0, 20.0), 3.0),
        ((4, 48.0, 40.0), (4, 24.0, 40.0), 1 + 2 / 36 * 12),  # CPUs are cut to one server
        ((2, 12.0, 600.0), (2, 12.0, 500.0), 3.0),  # memory alone costs nothing
        ((2, 6.0, 600.0), (2, 6.0, 500.0), 3.0),
        ((16, 192.0, 80.0), (16, 48.0, 80.0), 1.0),  # larger than a server: its share
    ],
)
def test_demands_are_cut_to_one_server(asked, demand, speedup):
    assert clamped(asked, 3.0, (8, 24.0, 500.0), (1, 3.0, 62.5)) == (demand, pytest.approx(speedup))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_policy_synergy_is_the_same_with_the_order_as_a_parameter(order, mechanism):
    jobs = [(i * 100, hungry(900 - 80 * i, 1 + i % 2)) for i in range(6)]
    jobs += [(i * 70, modest(300 + 90 * i, 1 + i % 2)) for i in range(6)]
    jobs.sort(key=lambda job: job[0])
    named = ends(f"{order}:mechanism={mechanism}", jobs, nodes=2)
    assert named == ends(f"synergy:order={order},mechanism={mechanism}", jobs, nodes=2)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 3000), st.sampled_from([hungry, modest]), st.integers(1, 4000),
        st.integers(1, 4),
    ),
    min_size=3, max_size=12,
)  # fmt: skip


def made(rows):
    return [(at, kind(iterations, gpus)) for at, kind, iterations, gpus in sorted(rows, key=str)]


@pytest.mark.parametrize(
    "policy",
    [
        "fifo:mechanism=proportional", "fifo:mechanism=tune", "las:mechanism=tune",
        "srtf:mechanism=tune", "ftf:mechanism=tune", "tetris:mechanism=greedy",
    ],
)  # fmt: skip
@settings(max_examples=12)
@given(rows=ROWS, at_s=st.integers(0, 9000), down=st.booleans())
def test_all_jobs_end_and_a_resumed_run_writes_the_same_log(policy, rows, at_s, down):
    jobs = sorted(made(rows), key=lambda job: job[0])
    outages = [(1000, NODE_DOWN, 1), (2500, NODE_UP, 1)] if down else []
    options = {"nodes": 2, "outages": outages}
    whole = engine_for(policy, jobs, checker=Invariants(), **options)
    whole.run()
    assert all(job.phase == Phase.DONE for job in whole.jobs.values())
    first = engine_for(policy, jobs, **options)
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    second = engine_for(policy, jobs, **options)
    snapshot.restore(second, state)
    second.run()
    for engine in (whole, second):
        engine.log.pack()
    same = second.log._packed == whole.log._packed  # long: not shown when they differ
    assert same


@pytest.mark.parametrize(
    ("policy", "placement", "nodes", "says"),
    [
        ("gavel", None, None, "fifo .their FIFO."),
        ("fifo:mechanism=opt", None, None, "mechanism"),
        ("synergy:order=sjf", None, None, "order"),
        ("fifo", "consolidate", None, "'in-order' without options"),
        ("fifo", None, [NodeSpec("a", 2)], "equal nodes with GPUs, CPUs and memory"),
        (
            "fifo", None,
            [NodeSpec("a", 2, cpus=4, mem_gib=8), NodeSpec("b", 4, cpus=4, mem_gib=8)],
            "equal nodes",
        ),
    ],
)  # fmt: skip
def test_what_it_cannot_honour_is_refused(policy, placement, nodes, says):
    topology = Topology(nodes) if nodes else cluster()
    with pytest.raises(OptionError, match=says):
        SynergyDialect().build(policy, placement, topology, seed=0)


def test_a_round_takes_time():
    with pytest.raises(OptionError, match="at least 1 second"):
        SynergyDialect(SynergyDialectParams(round=0))


def test_it_says_what_it_is():
    dialect = SynergyDialect()
    assert (dialect.finish_round_s, dialect.wake.every_s, dialect.rates) == (300, 300, "planned")
    assert "OSDI 2022" in dialect.source
    assert any(name.startswith("departure") for name in dialect.notes)
    assert (
        dialect.notes["ties"] != SynergyDialect(SynergyDialectParams(ties="reversed")).notes["ties"]
    )
    for name in dialect.policies:
        assert dialect.build(name, None, cluster(), seed=0).name == name
