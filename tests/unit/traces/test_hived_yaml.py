"""HiveD's own configuration files as clusters."""

import json

import pytest

from rota.core.errors import ClusterSpecError
from rota.traces.hived_yaml import hived_cluster, is_hived, read_hived

TEXT = """
physicalCluster:
  skuTypes:
    GPU: {gpu: 1, cpu: 2, memory: 4096Mi}
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - cellType: POOL
    cellChildren: [{cellAddress: carol}, {cellAddress: dan}]
virtualClusters:
  default: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
  vc1: {virtualCells: [{cellType: POOL.NODE.GPU, cellNumber: 1}]}
"""


def test_nodes_and_promises_become_a_cluster(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(TEXT)
    topology, tenants = hived_cluster(read_hived(path))
    assert [(n.name, n.gpus, n.gpu_type) for n in topology.nodes] == [
        ("carol", 2, "GPU"),
        ("dan", 2, "GPU"),
    ]
    assert [(n.cpus, n.mem_gib) for n in topology.nodes] == [(4.0, 8.0)] * 2
    assert {tenant.name: tenant.quota for tenant in tenants} == {"default": 2.0, "vc1": 1.0}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yaml", "nodes: 2x4", "physicalCluster"),
        ("a.yaml", "a: [", "is not YAML"),
        ("a.json", "{]", "is not YAML or JSON"),
        ("a.yaml", TEXT.replace("POOL.NODE,", "POOL.SOCKET,"), "'SOCKET'"),
        ("a.yaml", TEXT.replace("4096Mi", "much"), "'much'"),
    ],
)
def test_what_is_wrong_is_told_with_the_file(name, text, told, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ClusterSpecError, match=told):
        hived_cluster(read_hived(path))


def test_json_is_read_too(tmp_path):
    path = tmp_path / "a.json"
    node = {"childCellType": "GPU", "childCellNumber": 1, "isNodeLevel": True}
    cells = [{"cellType": "NODE", "cellAddress": "n"}]
    content = {"physicalCluster": {"cellTypes": {"NODE": node}, "physicalCells": cells}}
    path.write_text(json.dumps(content))
    assert is_hived(content)
    assert not is_hived({"nodes": "2x4"})
    assert read_hived(path).physical_cluster.physical_cells[0].address == "n"
