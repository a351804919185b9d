"""What is known of nodes."""

import pytest

from rota.core import events as ev
from rota.core.topology import NodeSpec, Topology
from rota.live.driver import NodeStatus
from rota.live.inputs import NodeRequest
from rota.live.nodes import NodeRegistry


@pytest.fixture
def topology():
    return Topology([NodeSpec("n0", 4), NodeSpec("n1", 4, "a100")])


@pytest.fixture
def nodes(topology):
    return NodeRegistry(topology)


def hear(nodes, state, why=""):
    """Tell it, and let the engine follow."""
    status = NodeStatus("n0", state, why=why)
    if not nodes.is_news(status):
        return None
    return follow(nodes, nodes.reported(status))


def wish(nodes, what):
    return follow(nodes, nodes.requested(NodeRequest(what, "n0", "olga")))


def follow(nodes, kinds):
    vertex = nodes.vertex("n0")
    for kind in kinds:
        if kind in (ev.NODE_DOWN, ev.NODE_UP):
            vertex.up = kind == ev.NODE_UP
        else:
            vertex.closed = kind != ev.NODE_OPENED
    return kinds


def test_silent_lost_and_back(nodes):
    assert hear(nodes, "up") is None
    assert hear(nodes, "silent") == [ev.NODE_CLOSED]
    assert hear(nodes, "silent") is None
    assert hear(nodes, "lost") == [ev.NODE_DOWN]
    assert hear(nodes, "silent") is None
    assert hear(nodes, "up") == [ev.NODE_UP, ev.NODE_OPENED]


def test_a_drained_node_that_comes_back_stays_drained(nodes):
    assert wish(nodes, "drain") == [ev.NODE_CLOSED]
    assert hear(nodes, "lost", "power") == [ev.NODE_DOWN]
    assert nodes.by_name["n0"].why == "power"
    assert hear(nodes, "up") == [ev.NODE_UP]
    assert nodes.by_name["n0"].why == "drained by olga"
    assert wish(nodes, "undrain") == [ev.NODE_OPENED]
    assert nodes.by_name["n0"].why == ""


def test_a_silent_node_is_not_opened_by_an_undrain(nodes):
    wish(nodes, "clear")
    hear(nodes, "silent")
    assert wish(nodes, "undrain") == []
    assert hear(nodes, "up") == [ev.NODE_OPENED]


def test_a_node_with_other_gpus_is_not_the_one_we_know(nodes):
    same = NodeStatus("n1", "up", NodeSpec("n1", 4, "a100", cpus=3))
    assert nodes.recognised(same) is same
    other = nodes.recognised(NodeStatus("n1", "up", NodeSpec("n1", 2)))
    assert (other.state, other.why) == (
        "lost",
        "had 4 GPUs of type a100, now has 2 GPUs",
    )


def test_it_can_be_saved(nodes, topology):
    wish(nodes, "drain")
    hear(nodes, "silent", "no heartbeat")
    copy = NodeRegistry(topology)
    copy.restore(nodes.snapshot())
    assert copy.by_name == nodes.by_name
