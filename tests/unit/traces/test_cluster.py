"""Clusters from texts, YAML and node lists."""

import math

import pytest

from rota.core.errors import ClusterSpecError
from rota.core.tenants import Tenant
from rota.core.topology import NodeSpec
from rota.traces.cluster import parse_cluster


@pytest.fixture
def described(tmp_path):
    """Return `described(text)`: the path of a YAML file."""

    def write(text, name="cluster.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def nodes(text):
    return list(parse_cluster(text)[0].specs)


def problem(text):
    with pytest.raises(ClusterSpecError) as caught:
        parse_cluster(text)
    return str(caught.value)


# --- texts -----------------------------------------------------------------------------------


def test_nodes_times_gpus():
    topology, tenants = parse_cluster("32x8")
    assert topology.specs == tuple(NodeSpec(f"n{i}", 8) for i in range(32))
    assert topology.gpus == 256
    assert topology.is_uniform
    assert list(tenants) == []


@pytest.mark.parametrize("text", ["2x1:v100+1x4:p100", " 2x1:v100 + 1 x 4 : p100 "])
def test_types_are_joined_and_numbered_throughout(text):
    assert nodes(text) == [
        NodeSpec("n0", 1, "v100"),
        NodeSpec("n1", 1, "v100"),
        NodeSpec("n2", 4, "p100"),
    ]
    assert parse_cluster(text)[0].types == ("v100", "p100")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0x8", "cluster '0x8': '0x8' has no GPUs: give at least 1x1"),
        ("4x8+2x0", "cluster '4x8+2x0': '2x0' has no GPUs"),
        ("999999x8", "has more than 1,000,000 GPUs: give fewer nodes"),
        ("32", "cluster '32' is not understood: write NODESxGPUS (32x8)"),
        ("4x8+", "cluster '4x8+' is not understood"),
        ("-4x8", "cluster '-4x8' is not understood"),
        ("4x8:", "cluster '4x8:' is not understood"),
        ("4x1.5", "cluster '4x1.5' is not understood"),
        ("", "cluster '' is not understood"),
        ("nowhere.yaml", "nowhere.yaml: there is no such file: check the path"),
        ("nowhere.csv", "nowhere.csv: there is no such file: check the path"),
        ("cluster.toml", "cluster 'cluster.toml' is not understood"),
    ],
)
def test_bad_texts_are_refused(text, says):
    assert says in problem(text)


# --- YAML ------------------------------------------------------------------------------------

FULL = """
levels: [row, rack]
nodes:
  - {count: 2, gpus: 8, gpu_type: v100, cpus: 64, mem_gib: 256.5, row: a, rack: r0, labels: [ssd]}
  - {name: big, gpus: 16, path: [a, r1]}
  - {name: small, count: 2, gpus: 1, row: b}
  - {count: 1, cpus: 4}
  - {gpus: 3}
tenants:
  - {name: research, quota: 20}
  - {name: vision, parent: research, quota: 8, limit: 16, weight: 2.5}
  - {name: speech, quota: 5, limit: 5}
"""


def test_a_full_description(described):
    topology, tenants = parse_cluster(described(FULL))
    v100 = {"gpus": 8, "gpu_type": "v100", "cpus": 64.0, "mem_gib": 256.5}
    assert list(topology.specs) == [
        NodeSpec("n0", **v100, path=("a", "r0"), labels=("ssd",)),
        NodeSpec("n1", **v100, path=("a", "r0"), labels=("ssd",)),
        NodeSpec("big", 16, path=("a", "r1")),
        NodeSpec("small0", 1, path=("b",)),
        NodeSpec("small1", 1, path=("b",)),
        NodeSpec("n2", 0, cpus=4.0),
        NodeSpec("n3", 3),
    ]
    assert topology.levels == ("row", "rack")
    levels = {vertex.name: vertex.level for vertex in topology.vertices}
    assert (levels["a"], levels["r1"]) == ("row", "rack")
    assert list(tenants) == [
        Tenant("research", "", 20.0, math.inf, 1.0),
        Tenant("vision", "research", 8.0, 16.0, 2.5),
        Tenant("speech", "", 5.0, 5.0),
    ]
    assert [tenant.name for tenant in tenants.path("vision")] == ["vision", "research"]


@pytest.mark.parametrize("name", ["c.yaml", "c.yml", "C.YAML", "c.json"])
def test_nodes_may_be_a_text_and_files_may_be_json(described, name):
    assert nodes(described('{"nodes": "2x4:a100"}', name)) == [
        NodeSpec("n0", 4, "a100"),
        NodeSpec("n1", 4, "a100"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: [", "line 1: is not YAML ("),
        ("nodes: [{name: 2026-13-45}]", "is not YAML (month must be in 1..12): correct it"),
        ("- 1\n- 2", "holds no keys: it needs nodes, levels, tenants"),
        ("tenants: []", "there is no key 'nodes': list the machines under it"),
        ("node: 4x8", "unknown key 'node': did you mean 'nodes'? known: nodes, levels, tenants"),
        ("nodes: 7", "nodes is 7: give a list"),
        ("nodes: []", "the cluster has no nodes"),
        ("nodes: 4y8", "'4y8' is not NODESxGPUS[:TYPE]"),
        ("nodes: [{gpu: 8}]", "nodes[0]: unknown key 'gpu': did you mean 'gpus'?"),
        ("nodes: [4x8]", "nodes[0]: is '4x8': give keys, of name, count, gpus"),
        ("nodes: [{gpus: 8}, {gpus: -1}]", "nodes[1]: gpus is -1: give 0 or more"),
        ("nodes: [{gpus: many}]", "nodes[0]: gpus is 'many': expected int, got str"),
        ("nodes: [{gpus: 1.5}]", "nodes[0]: gpus is 1.5: expected int, got float"),
        ("nodes: [{gpus: 8, cpus: .nan}]", "nodes[0]: cpus is nan: give 0 or more"),
        ("nodes: [{gpus: 8, mem_gib: -2}]", "nodes[0]: mem_gib is -2: give 0 or more"),
        ("nodes: [{gpus: 8, count: 0}]", "nodes[0]: count is 0: give 1 or more"),
        ("nodes: [{gpus: 8, count: 2000000}]", "nodes[0]: count is 2000000: a cluster has at most"),
        ("nodes: [{gpus: 8, labels: fast}]", "nodes[0]: labels is 'fast': expected array, got str"),
        ("nodes: [{gpus: 8, path: [r0]}]", "nodes[0]: path is ['r0'] but levels is []: name every"),
        ("nodes: [{name: a, gpus: 1}, {name: a, gpus: 1}]", "node name 'a' occurs twice"),
        ("{levels: [rack], nodes: [{rak: r0}]}", "unknown key 'rak': did you mean 'rack'?"),
        ("{levels: [rack], nodes: [{rack: [r0]}]}", "nodes[0]: rack is ['r0']: give a name"),
        ("{levels: [rack], nodes: [{rack: r0, path: [r1]}]}", "has path and rack: give only one"),
        ("{levels: [row, rack], nodes: [{rack: r0}]}", "has rack but not row: give it too"),
        ("{levels: [gpus], nodes: 1x1}", "levels has 'gpus', which means something else"),
        ("{levels: [a, a], nodes: 1x1}", "levels is ['a', 'a']: every level needs its own name"),
        ("{levels: rack, nodes: 1x1}", "levels is 'rack': expected array, got str"),
        ("{nodes: 1x1, tenants: [{quota: 3}]}", "tenants[0]: has no name: give one"),
        ("{nodes: 1x1, tenants: [{name: a, cap: 3}]}", "tenants[0]: unknown key 'cap'"),
        ("{nodes: 1x1, tenants: [{name: a, quota: -3}]}", "tenants[0]: quota is -3: give 0"),
        ("{nodes: 1x1, tenants: [{name: a, weight: 0}]}", "tenants[0]: weight is 0: give more"),
        ("{nodes: 1x1, tenants: [{name: a, quota: 4, limit: 2}]}", "limit is 2, below quota 4"),
        ("{nodes: 1x1, tenants: [{name: a, parent: b}]}", "has the unknown parent 'b'"),
        ("{nodes: 1x1, tenants: {a: 1}}", "tenants is {'a': 1}: give a list"),
    ],
)
def test_bad_descriptions_are_refused(described, text, says):
    path = described(text)
    message = problem(path)
    assert says in message
    if "node name" not in says and "no nodes" not in says and "parent" not in says:
        assert "cluster.yaml" in message or "cluster '" in message


def test_the_line_of_a_yaml_error_is_named(described):
    path = described("levels: [rack]\nnodes:\n  - {gpus: 8\n  - {gpus: 4}\n")
    assert problem(path).startswith(f"{path}: line 4: is not YAML (")


# --- node lists ------------------------------------------------------------------------------


def test_a_node_list(described):
    path = described(
        "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,500,1536,0,\nc,0,0,1,\n",
        "nodes.csv",
    )
    assert nodes(path) == [
        NodeSpec("a", 2, "P100", 64.0, 256.0),
        NodeSpec("b", 0, "", 0.5, 1.5),
        NodeSpec("c", 1),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sn,cpu_milli,memory_mib,gpu\na,1,1,1\n", "line 1: there is no column 'model': add it"),
        ("sn,cpu_milli,memory_mib,gpus,model\n", "unknown column 'gpus': did you mean 'gpu'?"),
        (
            "sn,cpu_milli,memory_mib,gpu,model\na,1,1,x,P\n",
            "line 2, column 'gpu': 'x' is not a number",
        ),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,1.5,P\n", "'1.5' is not a whole number"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,-1,1,P\n", "column 'memory_mib': '-1' is less"),
        (
            "sn,cpu_milli,memory_mib,gpu,model\na,1,1,1,P\na,1,1,1,P\n",
            "line 3, column 'sn': 'a' occurs twice (first on line 2)",
        ),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "has a header but no rows"),
        ("", "is empty"),
    ],
)
def test_bad_node_lists_are_refused(described, text, says):
    path = described(text, "nodes.csv")
    message = problem(path)
    assert message.startswith(path)
    assert says in message


def test_the_openb_lists(shared):
    topology, _ = parse_cluster(str(shared("data/openb/openb_node_list_all_node.csv")))
    assert (len(topology.nodes), topology.gpus) == (1_523, 6_212)
    with_gpus, _ = parse_cluster(str(shared("data/openb/openb_node_list_gpu_node.csv")))
    assert (len(with_gpus.nodes), with_gpus.gpus) == (1_213, 6_212)
    first = with_gpus.specs[0]
    assert first == NodeSpec("openb-node-0000", 2, "P100", 64.0, 256.0)
    shapes = [(node.gpu_type, node.gpus) for node in with_gpus.specs]
    assert shapes.count(("G2", 8)) == 549
    assert shapes.count(("T4", 2)) == 387
