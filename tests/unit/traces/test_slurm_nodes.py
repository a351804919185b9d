"""Machines from what Slurm's commands print."""

import json
from pathlib import Path

import pytest

from own_formats import NODES
from rota.core.errors import ClusterSpecError
from rota.core.hostlist import expand
from rota.core.topology import NodeSpec
from rota.traces.formats.slurm.nodes import read_nodes_file, shards_per_gpu


@pytest.fixture
def read(tmp_path):
    """Return `read(text)`: the nodes of a file with this text."""

    def run(text, name="nodes"):
        path = tmp_path / name
        path.write_text(text)
        return read_nodes_file(path)

    return run


def test_scontrol_show_node(read):
    assert read(NODES) == (
        NodeSpec("n1", 4, "a100", 16.0, 64.0, (), ("gpu", "debug", "fast", "nvlink")),
        NodeSpec("n2", 4, "a100", 16.0, 64.0, (), ("gpu",)),
    )


def test_scontrol_in_one_line_per_node(read):
    text = "NodeName=n1 CPUTot=8 Gres=(null) RealMemory=1024 Partitions=cpu\n"
    assert read(text) == (NodeSpec("n1", 0, "", 8.0, 1.0, (), ("cpu",)),)


@pytest.mark.parametrize("mark", ["|", " "])
def test_sinfo_as_a_table_has_a_row_per_partition(read, mark):
    rows = [
        "NODELIST CPUS MEMORY GRES PARTITION",
        "n[1-2] 16 65536 gpu:a100:4 gpu*",
        "n2 16 65536 gpu:a100:4 debug",
    ]
    assert read("\n".join(row.replace(" ", mark) for row in rows)) == (
        NodeSpec("n1", 4, "a100", 16.0, 64.0, (), ("gpu",)),
        NodeSpec("n2", 4, "a100", 16.0, 64.0, (), ("gpu", "debug")),
    )


def test_json_of_both_layouts(read):
    old = {"nodes": [{
        "name": "n1", "cpus": 16, "real_memory": 65536, "gres": "gpu:a100:4(S:0)",
        "partitions": ["gpu"], "active_features": "fast",
    }]}  # fmt: skip
    new = {"sinfo": [{
        "nodes": {"nodes": ["n1", "n2"]}, "cpus": {"minimum": 16, "maximum": 16},
        "memory": {"minimum": 65536}, "gres": {"total": "gpu:4"}, "partition": {"name": "gpu"},
    }]}  # fmt: skip
    assert read(json.dumps(old)) == (NodeSpec("n1", 4, "a100", 16.0, 64.0, (), ("gpu", "fast")),)
    assert [(n.name, n.gpus, n.cpus, n.labels) for n in read(json.dumps(new))] == [
        ("n1", 4, 16.0, ("gpu",)),
        ("n2", 4, 16.0, ("gpu",)),
    ]


def test_a_cluster_file_will_do(read):
    assert [node.gpus for node in read("nodes: 2x8\n", "cluster.yaml")] == [8, 8]


@pytest.mark.parametrize("text", ["{}", "{", "hello\n", "NodeName= \n", "NODELIST\n"])
def test_other_files_are_refused(read, text):
    with pytest.raises(ClusterSpecError):
        read(text)


def test_lists_of_nodes_do_not_grow_without_bounds():
    assert expand("r[1-2]n[08-10,x]") == tuple(
        f"r{rack}n{node}" for rack in (1, 2) for node in ("08", "09", "10", "x")
    )
    for text in ("n[1-99999999999]", "n" + "[1-9]" * 40, "n[a-b]", "n[1"):
        with pytest.raises(ClusterSpecError):
            expand(text, ClusterSpecError)


@pytest.mark.parametrize(
    ("gres", "gpus", "kind"),
    [
        ("gpu:a100_1g.5gb:14(S:0-1)", 2, "a100"),
        ("gpu:a100_3g.20gb:8", 4, "a100"),  # two fit a GPU
        ("gpu:a100_3g.20gb:2,gpu:a100_4g.20gb:2", 2, "a100"),
        ("gpu:a100:2,gpu:a100_1g.5gb:7", 3, "a100"),
        ("gpu:1g.10gb:7,shard:0", 1, ""),
        ("gpu:a100:4,shard:16", 4, "a100"),
    ],
)
def test_a_gpu_that_is_divided_is_one_gpu(tmp_path, gres, gpus, kind):
    path = tmp_path / "nodes"
    path.write_text(f"NodeName=n1 CPUTot=4 Gres={gres} Partitions=gpu\n")
    (node,) = read_nodes_file(path)
    assert (node.gpus, node.gpu_type) == (gpus, kind)


SCONTROL = "NodeName={name} CPUTot=4 Gres=gpu:a100:4,shard:{shards} GresUsed=gpu:0,shard:1\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SCONTROL.format(name="n1", shards=16), (4.0, True)),
        ("".join(SCONTROL.format(name=f"n{n}", shards=s) for n, s in enumerate((16, 16, 8))),
         (4.0, False)),
        ("NODELIST|CPUS|GRES\nn1|4|gpu:2,shard:v100:20\n", (10.0, True)),
        ('{"nodes": [{"gres": "gpu:a100:2(S:0),shard:8", "gres_used": "shard:1"}]}', (4.0, True)),
        ("NodeName=n1 CPUTot=4 Gres=gpu:4\n", (0.0, True)),
    ],
)  # fmt: skip
def test_shards_that_make_a_gpu_come_from_nodes(tmp_path, text, expected):
    path = tmp_path / "nodes"
    path.write_text(text)
    assert shards_per_gpu(path) == expected


def test_a_shape_that_is_taken_for_a_file_is_sent_to_the_right_option():
    with pytest.raises(ClusterSpecError, match=r"^4x8:a100: .* as --cluster 4x8:a100$"):
        read_nodes_file(Path("4x8:a100"))
