"""The cluster as a tree."""

import pytest

from rota.core.errors import ClusterSpecError
from rota.core.topology import NodeSpec, Topology

RACKS = [
    NodeSpec("a", 2, path=("east", "r1")),
    NodeSpec("b", 1, path=("east", "r2")),
    NodeSpec("c", 4, path=("west", "r1")),
    NodeSpec("d", 0, path=("east", "r1")),
]


def named(topology, name):
    (found,) = [v for v in topology.vertices if v.name == name]
    return found


def test_nodes_and_devices_hang_below_the_cluster():
    topology = Topology.uniform(2, 2, "v100", "m")
    assert [(v.level, v.name, v.parent, v.gpus, v.node) for v in topology.vertices] == [
        ("cluster", "cluster", -1, 4, -1),
        ("node", "m0", 0, 2, 1),
        ("gpu", "m0/0", 1, 1, 1),
        ("gpu", "m0/1", 1, 1, 1),
        ("node", "m1", 0, 2, 4),
        ("gpu", "m1/0", 4, 1, 4),
        ("gpu", "m1/1", 4, 1, 4),
    ]
    assert [v.id for v in topology.vertices] == list(range(7))
    assert topology.devices(4) == [5, 6]
    assert {v.gpu_type for v in topology.vertices if v.level != "cluster"} == {"v100"}
    assert (topology.gpus, topology.types) == (4, ("v100",))
    assert repr(topology.nodes[1]) == "Vertex(4, node:m1, gpus=2)"


def test_racks_count_what_is_below_them():
    topology = Topology(RACKS, levels=("zone",))
    inner = [(v.level, v.name, v.gpus) for v in topology.vertices if v.level not in ("node", "gpu")]
    assert inner == [
        ("cluster", "cluster", 7),
        ("zone", "east", 3),
        ("level2", "r1", 2),
        ("level2", "r2", 1),
        ("zone", "west", 4),
        ("level2", "r1", 4),
    ]
    above = [topology.vertices[v].name for v in topology.ancestors(named(topology, "b").id)]
    assert above == ["r2", "east", "cluster"]
    assert named(topology, "d").parent == named(topology, "a").parent
    assert topology.devices(named(topology, "d").id) == []


@pytest.mark.parametrize(
    ("places", "levels"),
    [
        ([], 0), (["a"], 0), (["a", "a"], 0), (["a/0", "a/1"], 1), (["a", "a/1"], 1),
        (["a", "d"], 1), (["a", "b"], 2), (["a", "c"], 3), (["a", "d", "b"], 2),
        (["a/0", "c"], 4), (["a", "cluster"], 3),
    ],
)  # fmt: skip
def test_distance_is_the_climb_to_the_common_place(places, levels):
    topology = Topology(RACKS)
    assert topology.distance([named(topology, place).id for place in places]) == levels


def test_one_type_is_one_pool():
    topology = Topology([NodeSpec("a", 2, "v100"), NodeSpec("cpu", 0), NodeSpec("b", 2, "v100")])
    assert topology.pools == (topology.vertices[0],)
    assert topology.types == ("v100",)


def test_several_types_have_a_pool_each():
    topology = Topology([NodeSpec("a", 2, "v100"), NodeSpec("b", 3), NodeSpec("c", 4, "v100")])
    pools = [(v.level, v.name, v.gpu_type, v.gpus, v.parent) for v in topology.pools]
    assert pools == [("pool", "v100", "v100", 6, 0), ("pool", "untyped", "", 3, 0)]
    assert topology.vertices[0].gpus == 9
    assert [topology.vertices[v.id] for v in topology.pools] == list(topology.pools)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "the cluster has no nodes"),
        ([NodeSpec("a", 1), NodeSpec("a", 2)], "node name 'a' occurs twice"),
        ([NodeSpec("a", 1, path=("r",)), NodeSpec("a", 1)], "node name 'a' occurs twice"),
        ([NodeSpec("a", -1)], "node 'a' has -1 GPUs: give 0 or more"),
    ],
)
def test_a_wrong_description_is_refused(nodes, message):
    with pytest.raises(ClusterSpecError, match=message):
        Topology(nodes)


@pytest.mark.parametrize(
    ("nodes", "uniform"),
    [
        ([NodeSpec("a", 2)], True),
        ([NodeSpec("a", 2), NodeSpec("b", 2)], True),
        ([NodeSpec("a", 2), NodeSpec("b", 2, path=("r",))], True),
        ([NodeSpec("a", 2), NodeSpec("b", 3)], False),
        ([NodeSpec("a", 2, "k80"), NodeSpec("b", 2, "v100")], False),
        ([NodeSpec("a", 2, cpus=8), NodeSpec("b", 2, cpus=8)], False),
        ([NodeSpec("a", 2, mem_gib=8), NodeSpec("b", 2, mem_gib=8)], False),
        ([NodeSpec("a", 2, labels=("x",)), NodeSpec("b", 2, labels=("x",))], False),
    ],
)
def test_a_uniform_cluster_has_equal_nodes_and_only_gpus(nodes, uniform):
    assert Topology(nodes).is_uniform is uniform
