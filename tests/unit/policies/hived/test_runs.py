"""The policy `hived` on jobs of all kinds: who leaves for whom, who is turned away, who stays."""

import msgspec
import pytest

from decisions import ends, engine, everybody, rows, run, starts
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import DONE, REJECTED, Behaviour, JobSpec, Request, TaskGroup
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.tenants import Tenant, TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.engine.compose import compose
from rota.placement.consolidate import consolidate
from rota.policies.admission.accept_all import AcceptAll
from rota.policies.fifo import Fifo
from rota.policies.hived.config import load_config
from rota.policies.hived.policy import HivedParams, HivedPolicy
from rota.policies.hived.promises import whole_nodes

TYPES = {
    "socket": {"childCellType": "gpu", "childCellNumber": 2},
    "node": {"childCellType": "socket", "childCellNumber": 2, "isNodeLevel": True},
    "rack": {"childCellType": "node", "childCellNumber": 2},
}
NODES = [NodeSpec(name, 4, "gpu") for name in ("n0", "n1", "n2", "n3")]


def description(pinned="", **promises):
    """Two racks of two nodes; `promises` are cells by tenant."""
    cells = [
        {"cellType": "rack", "cellChildren": [{"cellAddress": f"n{2 * r + n}"} for n in range(2)]}
        for r in range(2)
    ]
    vcs = {
        vc: {"virtualCells": [{"cellType": c, "cellNumber": n} for c, n in held.items()]}
        for vc, held in promises.items()
    }
    if pinned:
        cells[1]["cellChildren"][1]["pinnedCellId"] = "pin"
        vcs[pinned]["pinnedCells"] = [{"pinnedCellId": "pin"}]
    return {
        "physicalCluster": {"cellTypes": TYPES, "physicalCells": cells},
        "virtualClusters": vcs,
    }


@pytest.fixture
def hived():
    def make(cells, **params):
        return HivedPolicy(HivedParams(config=load_config(cells), **params))

    return make


def job(name, work, *, tenant="a", at=0.0, priority=0, request=None, gpus=4):
    spec = JobSpec(name, at, request or Request.of(gpus), tenant=tenant, priority=priority)
    return spec, Behaviour(work)


def texts(made, kind):
    """What the log says at rows of a kind, by job."""
    found = {}
    flat = [*made.log._packed, *made.log.rows]
    for number, text in made.log.texts.items():
        row = flat[6 * number : 6 * number + 6]
        if row[1] == kind:
            found[made.jobs[int(row[2])].id] = text
    return found


def nodes_of(made, name):
    vertices = made.cluster.topology.vertices
    held = next(j.allocation for j in everybody(made) if j.id == name).vertices
    return {vertices[vertices[vertex].node].name for vertex in held}


# --- who leaves for whom --------------------------------------------------------------------------


def test_the_log_says_who_was_preempted_by_whom_and_why(hived):
    jobs = [
        job("test", 100, priority=1, gpus=8),
        job("guest", 100, tenant="b", priority=-1, gpus=8),
        job("owner", 10, tenant="b", at=5, gpus=8),
        job("prod", 10, at=20, priority=5, gpus=8),
    ]
    made = run(hived(description(a={"rack": 1}, b={"rack": 1})), jobs, NODES)
    index = {j.id: j.index for j in made.jobs.values()}
    assert [(t, j, by) for t, j, _, by, _ in rows(made, Record.STOP)] == [
        (5.0, index["guest"], index["owner"]),
        (20.0, index["test"], index["prod"]),
    ]
    assert texts(made, Record.STOP) == {
        "guest": "it used cells that virtual cluster 'b' was promised",
        "test": "its priority 1 is below 5",
    }


def test_the_order_inside_a_virtual_cluster_is_a_cause_too(hived):
    jobs = [job("long", 100, gpus=8), job("short", 10, at=5, gpus=8)]
    made = run(hived(description(a={"rack": 1}), inside="srtf"), jobs, NODES)
    assert rows(made, Record.STOP)[0][3] == 1
    assert texts(made, Record.STOP)["long"].startswith("it comes later in the order")


def test_a_lazy_victim_goes_on_where_it_is(hived):
    jobs = [job("test", 100, priority=1, gpus=8), job("prod", 10, at=20, priority=5, gpus=8)]
    made = run(hived(description(a={"rack": 1}), lazy=True), jobs, NODES)
    assert ends(made) == {"test": 100.0, "prod": 30.0}
    assert not rows(made, Record.STOP)


def test_a_promise_is_kept_when_the_nodes_are_back(hived):
    jobs = [job("a0", 10, gpus=8), job("b0", 10, tenant="b", at=1, gpus=8)]
    outages = [(0.5, NODE_DOWN, 2), (0.5, NODE_DOWN, 3), (30.0, NODE_UP, 2), (30.0, NODE_UP, 3)]
    made = run(hived(description(a={"rack": 1}, b={"rack": 1})), jobs, NODES, outages=outages)
    assert starts(made) == {"a0": 0.0, "b0": 10.0}  # the healthy rack, then


# --- who is turned away ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tenant", "gpus", "named"),
    [
        ("a", 9, "'a' cannot hold in one chain even if it is empty (1 x rack with 8 leaf cells)"),
        ("nobody", 1, "there is no virtual cluster 'nobody': known: a, b"),
        ("a/pin", 1, "virtual cluster 'a' has no pinned cell 'pin': it has none"),
        ("b/pin", 5, "the pinned cell 'pin' of virtual cluster 'b'"),
        ("b", 1, "(it has no cells)"),
    ],
)
def test_what_a_virtual_cluster_could_never_hold_is_turned_away(hived, tenant, gpus, named):
    jobs = [job("x", 5, tenant=tenant, gpus=gpus), job("y", 5)]
    made = run(hived(description("b", a={"rack": 1}, b={})), jobs, NODES)
    assert made.jobs[0].phase == REJECTED
    assert named in texts(made, Record.REJECTED)["x"]
    assert ends(made)["y"] == 5.0


def test_misfits_may_be_opportunistic_instead(hived):
    jobs = [job("x", 5, gpus=16), job("y", 5, tenant="nobody", at=10)]
    policy = hived(description(a={"rack": 1}), misfits="opportunistic")
    assert ends(run(policy, jobs, NODES)) == {"x": 5.0, "y": 15.0}


def test_what_no_cells_could_hold_is_turned_away_even_then():
    nodes = [NodeSpec("n0", 4), NodeSpec("n1", 2)]  # of two kinds: two chains
    made = run(HivedPolicy(HivedParams(misfits="opportunistic")), [job("x", 5, gpus=6)], nodes)
    assert "no chain of cells could hold it" in texts(made, Record.REJECTED)["x"]


def test_first_fit_is_not_the_last_word(hived):
    """A node and a socket: one pod for each, in whatever order the nodes are looked at."""
    jobs = [job("x", 5, gpus=6), job("y", 5, gpus=6, at=10), job("z", 5, gpus=2, at=2)]
    made = run(hived(description(a={"rack.node": 1, "rack.node.socket": 1})), jobs, NODES)
    assert ends(made) == {"x": 5.0, "z": 10.0, "y": 15.0}


# --- where ----------------------------------------------------------------------------------------


def test_a_tenant_and_a_cell_name_a_pinned_cell(hived):
    jobs = [job("pinned", 5, tenant="b/pin"), job("other", 5, tenant="b/pin")]
    made = run(hived(description("b", a={"rack": 1}, b={})), jobs, NODES)
    assert nodes_of(made, "pinned") == nodes_of(made, "other") == {"n3"}
    assert ends(made) == {"pinned": 5.0, "other": 10.0}


def test_tasks_that_must_have_nodes_of_their_own_get_them(hived):
    apart = Request((TaskGroup("worker", 2, 1),), apart=True)
    jobs = [job("apart", 5, request=apart), job("close", 5, gpus=2)]
    made = run(hived(description(a={"rack": 1})), jobs, NODES, placement="consolidate")
    assert len(nodes_of(made, "apart")) == 2
    assert len(nodes_of(made, "close")) == 1


@pytest.mark.parametrize(
    ("cells", "before", "outages", "reason"),
    [
        ({"rack": 1}, [8], (), Reason.QUOTA),
        ({"rack.node.socket": 2}, [1, 1, 1], (), Reason.FRAGMENTATION),
        ({"rack": 2}, [4], [(0.5, NODE_DOWN, n) for n in range(1, 4)], Reason.DOWN),
    ],
)
def test_a_job_is_told_why_it_waits(hived, cells, before, outages, reason):
    jobs = [job(f"r{n}", 100 if n else 20, gpus=gpus) for n, gpus in enumerate(before)]
    wanted = job("w", 5, at=1, request=Request((TaskGroup("worker", 1, 2),)))
    made = engine(hived(description(a=cells)), [*jobs, wanted], NODES, outages=outages)
    made.run(30.0 if len(before) > 1 else 15.0)
    assert Reason(made.jobs[len(before)].reason) is reason


# --- other cells, other schedulers ----------------------------------------------------------------


def test_running_jobs_survive_other_cells(hived):
    jobs = [job("a0", 100, gpus=8), job("b0", 100, tenant="b", gpus=8)]
    made = engine(hived(description(a={"rack": 1}, b={"rack": 1})), jobs, NODES)
    made.run(10.0)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(made.scheduler.snapshot()))
    topology = made.cluster.topology
    policy = hived(description(a={"rack": 1}))  # b has lost its rack
    made.hand_over(compose(policy, consolidate(topology), AcceptAll()), state)
    made.run()
    assert ends(made) == {"a0": 100.0, "b0": 100.0}
    assert not rows(made, Record.STOP)


@pytest.mark.parametrize("priority", [0, -1])
def test_jobs_of_another_scheduler_are_taken_over(hived, priority):
    jobs = [job("old", 100, gpus=6, priority=priority), job("new", 5, at=20, gpus=4)]
    made = engine(Fifo(), jobs, NODES, placement="consolidate")
    made.run(10.0)
    policy = hived(description(a={"rack": 1}))
    made.hand_over(compose(policy, consolidate(made.cluster.topology), AcceptAll()))
    made.run()
    assert not rows(made, Record.STOP)
    assert ends(made) == {"old": 100.0, "new": 105.0 if priority == 0 else 25.0}


def test_jobs_that_are_not_on_cells_are_started_again(hived):
    jobs = [job("old", 100, gpus=6)]
    made = engine(Fifo(), jobs, NODES, placement="count")  # in a pool: nobody knows where
    made.run(10.0)
    policy = hived(description(a={"rack": 1}))
    made.hand_over(compose(policy, consolidate(made.cluster.topology), AcceptAll()))
    made.run()
    assert made.jobs[0].phase == DONE
    assert len(rows(made, Record.STOP)) + len(rows(made, Record.MOVE)) == 1


def test_nodes_may_come_later():
    made = engine(HivedPolicy(), [job("x", 5, gpus=8), job("y", 5, gpus=4)], [NODES[0]])
    topology = made.cluster.topology
    topology.growing = True
    made.scheduler.admissions.patient = True
    made.run(3.0)
    assert made.jobs[0].reason
    state = made.scheduler.snapshot()
    topology.extend(NODES[1:2])
    topology.extend([NodeSpec("m", 4, "gpu")])
    made.view.up_gpus += 8
    again = compose(HivedPolicy(), consolidate(topology), AcceptAll(), patient=True)
    made.hand_over(again, state)
    made.run()
    assert ends(made) == {"x": 8.0, "y": 5.0}


def test_nodes_of_the_configuration_that_are_not_there_yet_are_bad(hived):
    made = engine(hived(description(a={"rack.node": 2})), [job("x", 5, gpus=8)], NODES[:1])
    made.cluster.topology.growing = True
    made.scheduler.admissions.patient = True
    made.run(3.0)
    assert made.scheduler.policy._fleet.hived.bad_nodes == {"n1", "n2", "n3"}
    assert Reason(made.jobs[0].reason) is Reason.DOWN


# --- promises from quotas -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tenants", "held"),
    [
        ([Tenant("a", quota=6), Tenant("b", quota=5)], {"a": [4, 1, 1], "b": [4, 1]}),
        ([Tenant("a", quota=3), Tenant("b", quota=13)], {"a": [1] * 3, "b": [4] * 3 + [1]}),
        (
            [Tenant("top", quota=16), Tenant("a", parent="top", quota=4)],
            {"top": [4, 4, 4], "a": [4]},
        ),
        ([], {"everyone": [4] * 4}),
    ],
)
def test_quotas_become_nodes_and_single_gpus(tenants, held):
    config = whole_nodes(Topology(NODES), TenantTree(tenants))
    sizes = {"4-gpu": 4, "4-gpu.gpu": 1}
    found = {
        name: [sizes[cell.cell_type] for cell in vc.virtual_cells for _ in range(cell.cell_number)]
        for name, vc in config.virtual_clusters.items()
    }
    assert found == held
