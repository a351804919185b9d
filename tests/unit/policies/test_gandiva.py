"""Gandiva: affinity, turns, packing that is measured and undone, migration, growing."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.log import Record
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine import snapshot
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.parts import make_admission, make_costs, make_placement
from rota.engine.source import WorkloadSource
from rota.models.rates import Product, Scaling, Sharing
from rota.policies.gandiva.policy import Gandiva, GandivaPolicyParams
from rota.sim.cluster import SimCluster
from rota.testing import Item, Scenario


def job(at, gpus, work, *, compute=1.0, **request):
    return (
        JobSpec("", float(at), Request.of(gpus, **request)),
        Behaviour(float(work), demand={"compute": compute}),
    )


def engine_for(jobs, *, nodes=1, gpus=1, mode="mps", outages=(), **params):
    specs = [NodeSpec(f"n{i}", gpus, gpu_mem_gib=16, sharing=mode) for i in range(nodes)]
    topology = Topology(specs)
    policy = Gandiva(GandivaPolicyParams(**params))
    rates = Product([Scaling(topology), Sharing(topology)])
    named = [msgspec.structs.replace(spec, id=str(i)) for i, (spec, _) in enumerate(jobs)]
    return Engine(
        SimCluster(
            topology,
            make_costs("zero"),
            rates,
            outages=[(t, kind, topology.nodes[node]) for t, kind, node in outages],
        ),
        compose(policy, make_placement("consolidate", topology, 0), make_admission("accept-all")),
        WorkloadSource(Workload(named, [how for _, how in jobs])),
        checker=Invariants(),
    )


def servers(engine):
    """Where each running job is: numbers of servers."""
    vertices, nodes = engine.view.topology.vertices, engine.view.topology.nodes
    number = {node.id: i for i, node in enumerate(nodes)}
    return {
        index: sorted({number[vertices[vertex].node] for vertex in each.allocation.vertices})
        for index, each in engine.view.active.items()
        if each.running
    }


def ends(engine):
    engine.run()
    assert all(each.phase == Phase.DONE for each in engine.jobs.values())
    return [round(engine.jobs[i].end_s, 6) for i in sorted(engine.jobs)]


# --- where jobs go --------------------------------------------------------------------------------


def test_sixteen_gpus_have_servers_for_each_size_of_jobs():
    sizes = [1, 2, 4, 1, 2, 1, 1, 1]
    engine = engine_for([job(i, n, 1e4) for i, n in enumerate(sizes)], nodes=4, gpus=4)
    engine.run(10)
    where = servers(engine)
    assert [where[i] for i in (0, 3, 5, 6)] == [[0]] * 4  # 1 GPU
    assert [where[i] for i in (1, 4)] == [[1]] * 2  # 2 GPUs
    assert where[2] == [2]  # 4 GPUs
    assert where[7] == [3]  # 1 GPU: its server is full, and one has no affinity yet


def test_other_affinities_are_better_than_turns():
    jobs = [job(0, 1, 1e4), job(0, 2, 1e4), job(1, 2, 1e4)]
    engine = engine_for(jobs, nodes=2, gpus=3)
    engine.run(5)
    assert servers(engine) == {0: [0], 1: [1], 2: [0]}


def test_an_empty_server_loses_its_affinity():
    jobs = [job(0, 1, 10), job(20, 2, 1e4), job(21, 1, 1e4)]
    engine = engine_for(jobs, nodes=2, gpus=2)
    engine.run(30)
    assert servers(engine) == {1: [0], 2: [1]}
    assert sorted(engine.scheduler.policy.state.labels.values()) == [1, 2]


def test_a_job_for_several_servers_has_idle_ones():
    engine = engine_for([job(0, 1, 1e4), job(1, 6, 1e4)], nodes=3, gpus=4)
    engine.run(5)
    assert servers(engine) == {0: [0], 1: [0, 1]}


def test_a_job_for_all_of_unequal_servers_is_served():
    scenario = Scenario(jobs=(Item(submit_s=0, gpus=6, work=3),) * 2, nodes=(2, 1, 3))
    ends = [job.end_s for job in scenario.run(Gandiva()).jobs.values()]
    assert ends == [3.0, 6.0]


def test_tasks_that_want_a_server_each_have_one():
    request = Request.of(4)
    apart = msgspec.structs.replace(
        request, groups=(msgspec.structs.replace(request.groups[0], count=2, gpus=2),), apart=True
    )
    jobs = [(JobSpec("", 0.0, apart), Behaviour(10.0))]
    engine = engine_for(jobs, nodes=2, gpus=4)
    engine.run(5)
    assert servers(engine) == {0: [0, 1]}


def test_parts_of_gpus_are_put_together():
    jobs = [job(0, 0.5, 100), job(0, 0.5, 100), job(0, 0.5, 100)]
    engine = engine_for(jobs, nodes=1, gpus=2, mode="fraction")
    engine.run(5)
    devices = [engine.jobs[i].allocation.vertices for i in range(3)]
    assert devices[0] == devices[1] != devices[2]


def test_one_and_a_half_gpus_are_refused():
    engine = engine_for([job(0, 1.5, 10)], gpus=2)
    engine.run()
    assert engine.jobs[0].phase == Phase.REJECTED


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharers", [2, 3, 4])
def test_turns_are_equal_within_one(sharers):
    engine = engine_for([job(0, 1, 6000) for _ in range(sharers)], mode="exclusive")
    for turns in range(1, 20):
        engine.run(60.0 * turns)
        had = [engine.jobs[i].executed_s(60.0 * turns) / 60 for i in range(sharers)]
        assert sum(had) == turns
        assert max(had) - min(had) <= 1
    assert engine.jobs[0].preemptions > 0


def test_turns_end_with_those_who_take_them():
    assert ends(engine_for([job(0, 1, 90), job(0, 1, 60)], mode="exclusive")) == [150, 120]


def test_a_gpu_has_only_so_many_jobs():
    engine = engine_for([job(0, 1, 1e4) for _ in range(4)], mode="exclusive", oversubscribe=2)
    engine.run(500)
    assert [engine.jobs[i].started for i in range(4)] == [True, True, False, False]


def test_without_a_server_of_its_affinity_a_job_waits():
    engine = engine_for([job(0, 1, 1000), job(1, 2, 100)], gpus=2, nodes=1, mode="exclusive")
    engine.run(900)
    assert not engine.jobs[1].started
    assert ends(engine) == [1000, 1100]


def test_who_takes_turns_moves_to_gpus_that_become_free():
    jobs = [job(0, 1, 100), job(0, 1, 1000), job(0, 1, 1000)]
    engine = engine_for(jobs, gpus=2, mode="exclusive")
    engine.run(300)
    assert all(engine.jobs[i].running for i in (1, 2))
    assert engine.jobs[1].allocation.vertices != engine.jobs[2].allocation.vertices


# --- packing --------------------------------------------------------------------------------------


def moves(engine, index):
    """Times at which a job started or stopped."""
    engine.log.pack()
    frame = engine.log.frame()
    kinds = {int(Record.START): "start", int(Record.STOP): "stop"}
    return [
        (row["time_s"], kinds[row["event"]])
        for row in frame.select("time_s", "event", "job").iter_rows(named=True)
        if row["job"] == index and row["event"] in kinds
    ]


def test_jobs_that_use_little_are_packed_and_stay_so():
    engine = engine_for([job(0, 1, 600, compute=0.5), job(0, 1, 600, compute=0.5)])
    engine.run(400)
    state = engine.scheduler.policy.state
    assert state.pairs == {0: 1, 1: 0}
    assert all(engine.jobs[i].running for i in (0, 1))
    # both have had one turn of 60 s alone; from 120 s on they run at full speed
    assert ends(engine) == [120 + 540, 120 + 540]


def test_a_packing_that_slows_is_undone_within_two_measurements():
    engine = engine_for([job(0, 1, 6000), job(0, 1, 6000)])
    policy = engine.scheduler.policy
    packed_s = undone_s = None
    for look in range(1, 12):
        engine.run(60.0 * look + 1)
        if packed_s is None and policy.state.pairs:
            packed_s = look
        if packed_s is not None and undone_s is None and not policy.state.pairs:
            undone_s = look
    assert packed_s is not None
    assert undone_s - packed_s <= 2
    assert policy.state.bad == {(0, 1)}
    assert not policy.state.pairs  # and it is not tried again
    running = [engine.jobs[i].running for i in (0, 1)]
    assert sorted(running) == [False, True]


def test_memory_that_does_not_fit_is_not_packed():
    big = {"compute": 0.1, "gpu_mem_gib": 10.0}
    engine = engine_for([job(0, 1, 600, **big), job(0, 1, 600, **big)])
    engine.run(500)
    assert engine.scheduler.policy.state.pairs == {}
    assert ends(engine) == [1140, 1200]


@pytest.mark.parametrize("mode", ["exclusive", "fraction", ""])
def test_gpus_that_know_no_sharing_are_not_shared(mode):
    engine = engine_for([job(0, 1, 600, compute=0.2), job(0, 1, 600, compute=0.2)], mode=mode)
    assert ends(engine) == [1140, 1200]


def test_packing_can_be_left_out():
    jobs = [job(0, 1, 600, compute=0.2), job(0, 1, 600, compute=0.2)]
    assert ends(engine_for(jobs, pack=False)) == [1140, 1200]


# --- migration ------------------------------------------------------------------------------------


def test_four_jobs_of_two_gpus_make_room_for_one_of_four():
    # eight jobs fill four servers; one on each ends, and nobody finds four GPUs together
    jobs = [job(0, 2, 100 if i % 2 else 1e4) for i in range(8)]
    engine = engine_for([*jobs, job(200, 4, 500)], nodes=4, gpus=4)
    engine.run(150)
    assert sorted(map(tuple, servers(engine).values())) == [(0,), (1,), (2,), (3,)]
    engine.run(270)
    where = servers(engine)
    assert where[8] not in [where[i] for i in (0, 2, 4, 6)]
    assert engine.jobs[8].first_start_s <= 260
    assert sum(engine.jobs[i].migrations for i in range(8)) == 1


def test_nobody_moves_without_migration():
    jobs = [job(0, 2, 100 if i % 2 else 1e4) for i in range(8)]
    engine = engine_for([*jobs, job(200, 4, 500)], nodes=4, gpus=4, migrate=False)
    engine.run(1000)
    assert not engine.jobs[8].started
    assert sum(engine.jobs[i].migrations for i in range(8)) == 0


def test_servers_that_are_nearly_empty_are_emptied_and_others_are_not():
    # 1-GPU jobs on four servers of four GPUs: 1, 2, 2 and 3 are left
    left = {0: 1, 1: 2, 2: 2, 3: 3}
    jobs = [job(0, 1, 1e4 if i % 4 < left[i // 4] else 50) for i in range(16)]
    engine = engine_for(jobs, nodes=4, gpus=4)
    engine.run(45)
    assert sorted(map(tuple, servers(engine).values())) == sorted((i // 4,) for i in range(16))
    engine.run(200)
    counts = [list(servers(engine).values()).count([node]) for node in range(4)]
    # the job of the first (3 of 4 free) goes to the fullest; 2 of 4 free is less than 3/4
    assert counts == [0, 2, 2, 4]
    assert sum(engine.jobs[i].migrations for i in range(16)) == 1


@pytest.mark.parametrize(("until_free", "expected"), [(0.75, [0, 2, 3, 4]), (0.5, [0, 1, 4, 4])])
def test_migration_ends_at_the_share_that_is_given(until_free, expected):
    left = {0: 1, 1: 2, 2: 3, 3: 3}
    jobs = [job(0, 1, 1e4 if i % 4 < left[i // 4] else 50) for i in range(16)]
    engine = engine_for(jobs, nodes=4, gpus=4, until_free=until_free)
    engine.run(200)
    counts = [list(servers(engine).values()).count([node]) for node in range(4)]
    assert sorted(counts) == expected


# --- growing and shrinking ------------------------------------------------------------------------


def test_elastic_jobs_grow_while_nobody_waits_and_shrink_for_others():
    elastic = {"min_gpus": 1, "max_gpus": 4}
    others = [job(500, 1, 1e4), job(600, 1, 100), job(600, 1, 100)]
    engine = engine_for([job(0, 1, 1e4, **elastic), *others], nodes=1, gpus=4)
    engine.run(100)
    assert engine.jobs[0].held_gpus == 4
    engine.run(500)
    assert [engine.jobs[i].held_gpus for i in (0, 1)] == [3, 1]
    engine.run(600)
    assert [engine.jobs[i].held_gpus for i in range(4)] == [1, 1, 1, 1]
    engine.run(800)
    assert [engine.jobs[i].held_gpus for i in (0, 1)] == [3, 1]
    assert engine.jobs[0].preemptions == 0


def test_growing_can_be_left_out():
    jobs = [job(0, 1, 400, min_gpus=1, max_gpus=4)]
    assert ends(engine_for(jobs, nodes=1, gpus=4, grow=False)) == [400]
    assert ends(engine_for(jobs, nodes=1, gpus=4)) == [100]


# --- longer stories -------------------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.sampled_from([0.5, 1, 1, 2, 4, 6]),
        st.integers(1, 600),
        st.sampled_from([0.2, 0.5, 1.0]),
    ),
    min_size=3,
    max_size=14,
)
FEWER = settings(max_examples=settings().max_examples // 4)


def drawn(rows):
    return [job(at, n, work, compute=compute) for at, n, work, compute in rows]


@FEWER
@given(rows=ROWS, mode=st.sampled_from(["mps", "timeslice", "exclusive", ""]))
def test_everybody_ends_whatever_the_mode(rows, mode):
    assert len(ends(engine_for(drawn(rows), nodes=2, gpus=3, mode=mode))) == len(rows)


@FEWER
@given(rows=ROWS, down_s=st.integers(0, 500), for_s=st.integers(1, 500), node=st.integers(0, 2))
def test_jobs_survive_the_failure_of_a_server(rows, down_s, for_s, node):
    outages = [(down_s, NODE_DOWN, node), (down_s + for_s, NODE_UP, node)]
    assert len(ends(engine_for(drawn(rows), nodes=3, gpus=2, outages=outages))) == len(rows)


@FEWER
@given(rows=ROWS, at_s=st.integers(0, 900))
def test_a_resumed_run_writes_the_log_of_an_uninterrupted_one(rows, at_s):
    whole = engine_for(drawn(rows), nodes=2, gpus=3)
    whole.run()
    first = engine_for(drawn(rows), nodes=2, gpus=3)
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    second = engine_for(drawn(rows), nodes=2, gpus=3)
    snapshot.restore(second, state)
    second.run()
    for engine in (whole, second):
        engine.log.pack()
    same = second.log._packed == whole.log._packed  # long: not shown when they differ
    assert same
