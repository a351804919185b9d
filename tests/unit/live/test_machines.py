"""What is known of nodes."""

import pytest

from rota.core import events as ev
from rota.core.topology import NodeSpec, Topology
from rota.live.inputs import NodeWish
from rota.live.machines import Machines
from rota.live.orders import NodeStatus


@pytest.fixture
def topology():
    return Topology([NodeSpec("n0", 4), NodeSpec("n1", 4, "a100")])


@pytest.fixture
def machines(topology):
    return Machines(topology)


def hear(machines, state, why=""):
    """Tell it, and let the engine follow."""
    status = NodeStatus("n0", state, why=why)
    if not machines.news(status):
        return None
    return follow(machines, machines.heard(status))


def wish(machines, what):
    return follow(machines, machines.wished(NodeWish(what, "n0", "olga")))


def follow(machines, kinds):
    vertex = machines.vertex("n0")
    for kind in kinds:
        if kind in (ev.NODE_DOWN, ev.NODE_UP):
            vertex.up = kind == ev.NODE_UP
        else:
            vertex.closed = kind != ev.NODE_OPENED
    return kinds


def test_silent_lost_and_back(machines):
    assert hear(machines, "up") is None
    assert hear(machines, "silent") == [ev.NODE_CLOSED]
    assert hear(machines, "silent") is None
    assert hear(machines, "lost") == [ev.NODE_DOWN]
    assert hear(machines, "silent") is None
    assert hear(machines, "up") == [ev.NODE_UP, ev.NODE_OPENED]


def test_a_drained_node_that_comes_back_stays_drained(machines):
    assert wish(machines, "drain") == [ev.NODE_CLOSED]
    assert hear(machines, "lost", "power") == [ev.NODE_DOWN]
    assert machines.by_name["n0"].why == "power"
    assert hear(machines, "up") == [ev.NODE_UP]
    assert machines.by_name["n0"].why == "drained by olga"
    assert wish(machines, "undrain") == [ev.NODE_OPENED]
    assert machines.by_name["n0"].why == ""


def test_a_silent_node_is_not_opened_by_an_undrain(machines):
    wish(machines, "clear")
    hear(machines, "silent")
    assert wish(machines, "undrain") == []
    assert hear(machines, "up") == [ev.NODE_OPENED]


def test_a_node_with_other_gpus_is_not_the_one_we_know(machines):
    same = NodeStatus("n1", "up", NodeSpec("n1", 4, "a100", cpus=3))
    assert machines.recognised(same) is same
    other = machines.recognised(NodeStatus("n1", "up", NodeSpec("n1", 2)))
    assert (other.state, other.why) == (
        "lost",
        "had 4 GPUs of type a100, now has 2 GPUs",
    )


def test_it_can_be_saved(machines, topology):
    wish(machines, "drain")
    hear(machines, "silent", "no heartbeat")
    copy = Machines(topology)
    copy.restore(machines.snapshot())
    assert copy.by_name == machines.by_name
