"""Who is hit when a node goes down."""

import pytest

from live_jobs import launch, live
from rota.core import machine
from rota.core.allocation import Allocation
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.view import View
from rota.engine.lifecycle import jobs_hit


def crowd(topology, *held):
    """One running job per (allocation, start)."""
    view = View(topology, TenantTree())
    for index, (allocation, start_s) in enumerate(held):
        job = live(f"j{index}", index=index)
        launch(job, allocation, start_s)
        view.active[index] = job
    return view


def hit(view, number, moving=frozenset()):
    node = view.topology.nodes[number]
    node.up = False
    return [job.id for job in jobs_hit(node, view, moving)]


def at(*places):
    return Allocation([(place, 1) for place in places])


def test_jobs_on_the_node_or_one_of_its_gpus_are_hit():
    topology = Topology.uniform(2, 4)  # nodes 1 and 6
    view = crowd(topology, (at(1), 0), (at(6), 0), (at(1, 6), 0), (at(8), 0), (at(3), 0))
    assert hit(view, 1) == ["j1", "j2", "j3"]


def test_a_job_without_gpus_is_hit_where_its_cpus_are():
    view = crowd(Topology.uniform(2, 4), (Allocation((), ((6, "cpu", 2.0),)), 0), (at(1), 0))
    assert hit(view, 1) == ["j0"]


@pytest.mark.parametrize(("moving", "expected"), [(set(), []), ({0}, ["j0"])])
def test_a_job_on_its_way_to_the_node_is_hit_and_one_that_leaves_is_not(moving, expected):
    view = crowd(Topology.uniform(2, 4), (at(6), 0))
    machine.begin_stop(view.active[0], 5.0, 0.0)
    assert hit(view, 1, moving) == expected


def test_of_a_pool_the_latest_starters_go_until_the_rest_fits():
    topology = Topology.uniform(2, 4)
    two = Allocation(((0, 2),))
    view = crowd(topology, (two, 3.0), (two, 1.0), (two, 2.0), (Allocation(((0, 1),)), 3.0))
    assert hit(view, 0) == ["j3", "j0"]  # 7 used, 4 left: 6 after j3, 4 after j0


def test_a_pool_with_room_enough_loses_nobody():
    view = crowd(Topology.uniform(2, 4), (Allocation(((0, 4),)), 0.0))
    assert hit(view, 0) == []
    assert hit(view, 1) == ["j0"]


def test_only_the_pool_of_the_node_shrinks():
    topology = Topology([NodeSpec("a", 2, "x"), NodeSpec("b", 2, "y")])
    x, y = (pool.id for pool in topology.pools)
    view = crowd(topology, (Allocation(((x, 2),)), 0.0), (Allocation(((y, 2),)), 0.0))
    assert hit(view, 1) == ["j1"]


def test_a_pool_without_a_type_is_not_the_whole_cluster():
    topology = Topology([NodeSpec("a", 2), NodeSpec("b", 2, "y")])
    untyped, y = (pool.id for pool in topology.pools)
    view = crowd(topology, (Allocation(((untyped, 2),)), 0.0), (Allocation(((y, 2),)), 0.0))
    assert hit(view, 0) == ["j0"]


@pytest.mark.parametrize(("down", "expected"), [(0, []), (1, ["j0"]), (2, ["j1"])])
def test_nodes_without_gpus_are_in_the_first_pool(down, expected):
    topology = Topology(
        [NodeSpec("a", 1, "x"), NodeSpec("c", 0, cpus=8), NodeSpec("b", 2, "y", cpus=4),
         NodeSpec("d", 1, "x", cpus=8)]
    )  # fmt: skip
    x, y = (pool.id for pool in topology.pools)
    held = [Allocation(((pool, 1),), ((pool, "cpu", cpus),)) for pool, cpus in ((x, 12), (y, 4))]
    view = crowd(topology, *((each, 0.0) for each in held))
    assert hit(view, down) == expected
