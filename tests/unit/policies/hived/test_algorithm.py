"""HiveD on clusters small enough to follow by hand."""

import runpy
import sys

import msgspec
import pytest

from hived_play import Player
from rota.core.errors import RequestError
from rota.policies.hived.algorithm import Hived, HivedPhase, HivedWait, Preempt
from rota.policies.hived.cells import CellList, GroupState, PhysicalCell
from rota.policies.hived.config import load_config
from rota.policies.hived.pods import BindInfo, PodPlacement, PodSpec
from rota.policies.hived.topology_search import TopologySearch, closest
from shared_data import CHECKOUT

TYPES = {
    "socket": {"childCellType": "gpu", "childCellNumber": 2},
    "node": {"childCellType": "socket", "childCellNumber": 2, "isNodeLevel": True},
    "rack": {"childCellType": "node", "childCellNumber": 2},
}


def cluster(racks=1, **vcs):
    """Racks of two nodes with two sockets of two GPUs."""
    return {
        "physicalCluster": {
            "cellTypes": TYPES,
            "physicalCells": [
                {
                    "cellType": "rack",
                    "cellChildren": [{"cellAddress": f"n{2 * rack + n}"} for n in range(2)],
                }
                for rack in range(racks)
            ],
        },
        "virtualClusters": {
            vc: {"virtualCells": [{"cellType": name, "cellNumber": n} for name, n in held.items()]}
            for vc, held in vcs.items()
        },
    }


def player(racks=1, **vcs):
    return Player(cluster(racks, **vcs))


def test_a_tenant_cannot_take_more_than_its_cells():
    play = player(a={"rack.node": 1}, b={"rack.node": 1})
    assert isinstance(play.submit(play.request("a", 0, [4])), BindInfo)
    assert isinstance(play.submit(play.request("a", 0, [1])), HivedWait)
    assert isinstance(play.submit(play.request("b", 0, [4])), BindInfo)


def test_gpus_of_one_pod_lie_together():
    play = player(a={"rack.node": 2})
    play.submit(play.request("a", 0, [1]))
    bound = play.submit(play.request("a", 0, [2]))
    assert bound.leaf_cells == (2, 3)  # the free socket, not the rest of the other one


def test_a_gang_waits_as_a_whole():
    play = player(a={"rack.node": 2})
    assert isinstance(play.submit(play.request("a", 0, [4])), BindInfo)
    assert isinstance(play.submit(play.request("a", 0, [4, 4])), HivedWait)
    assert len(play.running) == 1


def test_opportunistic_pods_use_what_is_idle_and_are_the_first_to_leave():
    play = player(a={"rack.node": 1}, b={"rack.node": 1})
    guest = play.submit(play.request("a", -1, [4]))
    host = play.submit(play.request("a", 0, [4]))
    assert isinstance(guest, BindInfo)
    assert isinstance(host, BindInfo)
    assert guest.node != host.node
    spec = play.request("b", 0, [1])
    assert play.submit(spec) == Preempt(("g1-0",))
    assert play.hived.groups["g1"].state is GroupState.BEING_PREEMPTED
    assert play.push(spec.affinity_group.name).node == guest.node
    play.settle()


def test_a_higher_priority_cancels_a_preemption_under_way():
    play = player(a={"rack.node": 2})
    play.submit(play.request("a", 0, [4, 4]))
    low, high = play.request("a", 1, [4, 4]), play.request("a", 2, [4, 4])
    assert isinstance(play.submit(low), Preempt)
    assert isinstance(play.submit(high), Preempt)
    assert sorted(play.hived.groups) == ["g1", "g3"]
    play.settle()


def test_deleting_the_preemptor_gives_the_cells_back():
    play = player(a={"rack.node": 1})
    play.submit(play.request("a", 0, [4]))
    spec = play.request("a", 1, [4])
    play.submit(spec)
    play.give_up(spec.affinity_group.name)
    assert sorted(play.hived.groups) == ["g1"]
    assert play.hived.groups["g1"].virtual is not None
    play.settle()


def test_a_lazy_victim_goes_on_outside_of_its_virtual_cluster():
    play = player(racks=2, a={"rack.node": 1})
    play.submit(play.request("a", 0, [4], lazy=True))
    bound = play.submit(play.request("a", 1, [4]))
    assert isinstance(bound, BindInfo)
    group = play.hived.groups["g1"]
    assert group.virtual is None
    assert group.lazily_preempted_by == "g2"
    assert len(play.running) == 2
    play.settle()


def test_a_promised_cell_is_doomed_while_too_few_nodes_are_healthy():
    play = player(a={"rack.node": 2})
    play.hived.set_bad("n0")
    tops = play.hived.cells.vcs["a"].tops
    assert [top.healthy for top in tops].count(False) == 1
    assert isinstance(play.submit(play.request("a", 0, [4])), BindInfo)
    assert isinstance(play.submit(play.request("a", 0, [1])), HivedWait)
    play.hived.set_healthy("n0")
    assert all(top.healthy for top in tops)
    assert isinstance(play.submit(play.request("a", 0, [4])), BindInfo)
    play.settle()


def test_a_doomed_cell_in_use_is_released_after_the_repair():
    play = player(a={"rack": 1})
    play.hived.set_bad("n0")
    play.submit(play.request("a", 0, [4]))
    play.hived.set_healthy("n0")
    play.end("g1")
    play.settle()
    assert isinstance(play.submit(play.request("a", 0, [4, 4])), BindInfo)


def test_a_doomed_cell_is_let_go_with_its_last_pod():
    """The rack of `a` is bad in part; meanwhile that of `b` has become free."""
    play = player(racks=2, a={"rack": 1})
    play.hived.set_bad("n0")
    play.hived.set_bad("n2")  # both racks: the promise cannot be kept
    (top,) = play.hived.cells.vcs["a"].tops
    assert not top.healthy
    play.submit(play.request("a", 0, [4]))  # in the healthy node of the rack
    healthy = "n2" if top.physical.nodes[0] == "n0" else "n0"
    play.hived.set_healthy(healthy)
    assert not top.healthy  # in use
    play.end("g1")
    play.settle()
    assert top.healthy


def test_a_group_that_is_being_added_keeps_its_cells_from_being_doomed():
    """Its first pods split the last healthy rack: what was promised as a rack is bad from then."""
    play = player(racks=3, a={"rack": 1}, b={"rack.node": 4})
    play.hived.set_bad("n2")
    play.hived.set_bad("n4")
    decision = play.submit(play.request("b", 0, [4, 4, 4]))
    assert isinstance(decision, BindInfo)
    play.settle()
    assert not play.hived.cells.vcs["a"].tops[0].healthy


def test_a_group_bound_on_reserved_cells_ends_the_reservation():
    play = player(racks=1, a={"rack": 1})
    play.submit(play.request("a", -1, [1]))
    assert isinstance(play.submit(play.request("a", 0, [4, 4])), Preempt)
    decision = play.submit(play.request("a", 1, [4]), phase=HivedPhase.FILTERING)
    play.settle()
    assert isinstance(decision, BindInfo | Preempt)
    assert ("g2" in play.hived.groups) == isinstance(decision, Preempt)


def test_bad_cells_take_what_a_preempting_group_leaves_in_a_promised_cell():
    play = player(racks=2, a={"rack": 1}, b={"rack": 1})
    play.hived.set_bad("n1")
    play.submit(play.request("a", -1, [4, 4, 4]))
    decision = play.submit(play.request("a", 0, [4]))
    assert isinstance(decision, Preempt)
    play.settle()


@pytest.mark.parametrize(("nodes", "answer"), [(2, HivedWait), (3, BindInfo)])
def test_a_split_breaks_no_promise_of_a_level_in_between(nodes, answer):
    """A node is one socket: who takes one of its GPUs breaks up both."""
    description = cluster(a={"node.gpu": 2}, b={"node.socket": 1})
    description["physicalCluster"] = {
        "cellTypes": {
            "socket": {"childCellType": "gpu", "childCellNumber": 2},
            "node": {"childCellType": "socket", "childCellNumber": 1, "isNodeLevel": True},
        },
        "physicalCells": [{"cellType": "node", "cellAddress": f"n{n}"} for n in range(nodes)],
    }
    play = Player(description)
    play.submit(play.request("a", 0, [1]))
    (used,) = {bind.node for _, bind in play.running.values()}
    others = {f"n{n}" for n in range(nodes)} - {used}
    decision = play.submit(play.request("a", 0, [1], anywhere=False), others)
    assert isinstance(decision, answer)
    play.settle()


def test_a_pod_whose_promised_cell_has_been_divided_goes_on_outside_of_it():
    play = player(a={"rack.node": 1}, b={"rack.node.socket": 2})
    play.submit(play.request("a", 0, [2]))
    (pod,) = play.running
    spec, bind = play.running[pod]
    again = player(a={"rack.node": 1}, b={"rack.node.socket": 2})
    taken = again.request("b", 0, [2], anywhere=False)
    again.submit(taken, {bind.node})
    free = 2 - again.running["g1-0"][1].leaf_cells[0]  # the other socket of that node
    moved = msgspec.structs.replace(
        bind,
        leaf_cells=(free, free + 1),
        group=((PodPlacement(bind.node, (free, free + 1), ("node", "node")),),),
    )
    again.hived.add_allocated("g9-0", msgspec.structs.replace(spec, affinity_group=None), moved)
    again.settle()
    assert again.hived.groups["g9-0"].virtual is None


@pytest.mark.parametrize(("racks", "answer"), [(2, HivedWait), (3, BindInfo)])
def test_a_split_goes_no_further_than_promises_allow(racks, answer):
    play = player(racks, a={"rack": 1}, b={"rack.node": 2})
    first = play.submit(play.request("b", 0, [4]))
    buddy = {"n0": "n1", "n1": "n0", "n2": "n3", "n3": "n2", "n4": "n5", "n5": "n4"}[first.node]
    play.hived.set_bad(buddy)
    # Only whole racks are left: the other tenant needs one of them.
    assert isinstance(play.submit(play.request("b", 0, [4])), answer)
    play.settle()


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (PodSpec("c", 0, 1), "'c'"),
        (PodSpec("a", 0, 1, "tpu"), "'tpu'"),
        (PodSpec("a", 0, 1, pinned_cell_id="p"), "'p'"),
        (PodSpec("a", 0, 0), "leafCellNumber"),
        (PodSpec("a", 1001, 1), "1001"),
        (PodSpec("", 0, 1), "virtualCluster"),
    ],
)
def test_requests_that_can_never_be_met_are_refused(spec, named):
    hived = Hived(load_config(cluster(a={"rack.node": 1})))
    with pytest.raises(RequestError, match=named):
        hived.schedule("pod", spec)


def test_a_group_has_no_more_pods_than_it_asked_for():
    play = player(a={"rack.node": 1})
    spec = play.request("a", 0, [1])
    play.submit(spec)
    with pytest.raises(RequestError, match="has only 1 pods"):
        play.hived.schedule("g1-1", spec)


def test_a_new_hived_finds_running_pods_again():
    play = player(a={"rack.node": 1}, b={"rack.node": 1})
    play.submit(play.request("a", 0, [4]))
    play.submit(play.request("b", -1, [2]))
    again = player(a={"rack.node": 1}, b={"rack.node": 1})
    for pod, (spec, bind) in play.running.items():
        again.hived.add_allocated(pod, spec, bind)
    again.number = len(play.running)
    again.settle()
    assert again.hived.groups["g1"].virtual is not None
    assert again.hived.groups["g2"].virtual is None
    assert isinstance(again.submit(again.request("a", 0, [1])), HivedWait)


def test_removing_from_a_cell_list_moves_the_last_cell_into_the_gap():
    cells = [PhysicalCell("c", 1, "gpu", str(n), at_node=False, leaves=1) for n in range(4)]
    listed = CellList(cells)
    listed.remove(cells[1])
    assert listed.cells == [cells[0], cells[3], cells[2]]
    listed.remove(cells[2])
    assert listed.cells == [cells[0], cells[3]]
    assert cells[2] not in listed


def test_the_closest_leaves_come_first():
    hived = Hived(load_config(cluster()))
    leaves = [cell for cell in hived.cells.tops["rack"][0].below() if cell.level == 1]
    assert closest([leaves[0], leaves[2], leaves[3]], 2) == [leaves[2], leaves[3]]
    assert closest([leaves[0], leaves[2], leaves[3]], 3) == [leaves[0], leaves[2], leaves[3]]


def test_the_order_of_nodes_is_kept_among_equals():
    hived = Hived(load_config(cluster(racks=2)))
    for node in hived.cells.on_node:
        hived.set_healthy(node)
    search = TopologySearch(hived.cells.chains["rack"], across_priorities=False)
    names = [node.nodes[0] for node in search.nodes]
    search.find([1], -1, {"n2"}, anywhere=False)
    assert [node.nodes[0] for node in search.nodes] == ["n2", "n0", "n1", "n3"]
    search.find([1], -1, set(names), anywhere=False)
    assert [node.nodes[0] for node in search.nodes] == ["n2", "n0", "n1", "n3"]


def test_a_call_on_a_large_cluster_does_not_look_at_every_gpu():
    """1,000 nodes of 8 GPUs and 20 tenants: nine of ten calls call fewer functions than that.

    Seconds depend on the machine: `benchmarks/hived.py` tells them.
    """
    benchmark = runpy.run_path(str(CHECKOUT / "benchmarks" / "hived.py"))
    hived = benchmark["opened"](1_000, 20)
    called, placed = [], 0
    for number in range(100):
        spec = benchmark["request"](number, 20)
        steps, decision = counted(hived.schedule, f"g{number}-0", spec)
        called.append(steps)
        if isinstance(decision, BindInfo):
            placed += 1
            hived.add_allocated(f"g{number}-0", spec, decision)
    assert placed > 50
    assert sorted(called)[90] < 8_000


def counted(function, *args):
    """Return how many functions of Python a call has called, and its result."""
    steps = 0

    def look(_frame, event, _arg):
        nonlocal steps
        steps += event == "call"

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        result = function(*args)
    finally:
        sys.setprofile(before)
    return steps, result
