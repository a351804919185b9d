"""HiveD's own configuration files: `physicalCluster` and `virtualClusters`, YAML or JSON.

As a cluster, the nodes are those of the cells, with a GPU for each leaf cell, and every virtual
cluster is a tenant whose quota is the number of leaf cells that it was promised.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import ClusterSpecError
from rota.core.tenants import Tenant, TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.yaml_text import YAMLError, read_yaml
from rota.policies.hived.build import Cells
from rota.policies.hived.cells import PhysicalCell
from rota.policies.hived.config import HivedConfig, load_config
from rota.traces.sources import decode, read_bytes

KEY = "physicalCluster"


def read_hived(path: Path) -> HivedConfig:
    """The configuration in a file.

    Raises:
        ClusterSpecError: It cannot be read, or makes no sense; the message names the cell.
    """
    text = decode(read_bytes(path, ClusterSpecError), path, ClusterSpecError)
    try:
        # JSON is YAML, too, but large configurations are read much faster as what they are.
        is_json = path.suffix == ".json"
        content = msgspec.json.decode(text) if is_json else read_yaml(text)
    except (YAMLError, msgspec.DecodeError, ValueError) as error:
        problem = getattr(error, "problem", None) or str(error)
        raise ClusterSpecError(f"{path}: is not YAML or JSON ({problem}): correct it") from error
    if not is_hived(content):
        raise ClusterSpecError(f"{path}: there is no key {KEY!r}: is it a HiveD configuration?")
    try:
        return load_config(content)
    except ClusterSpecError as error:
        raise ClusterSpecError(f"{path}: {error}") from error


def is_hived(content: Any) -> bool:
    """Whether the content of a YAML file is a HiveD configuration."""
    return isinstance(content, Mapping) and KEY in content


def hived_cluster(config: HivedConfig) -> tuple[Topology, TenantTree]:
    """The machines of a configuration, and who was promised how many GPUs of them."""
    cells = Cells(config)
    nodes = [_node(config, name, leaves) for name, leaves in cells.on_node.items()]
    tenants = [
        Tenant(name, quota=float(sum(top.leaves for top in vc.tops)))
        for name, vc in cells.vcs.items()
    ]
    return Topology(nodes), TenantTree(tenants)


def _node(config: HivedConfig, name: str, leaves: list[PhysicalCell]) -> NodeSpec:
    """A node may have leaf cells of several types; its GPUs are of the first one then."""
    kind = leaves[0].type_name
    sku = config.physical_cluster.sku_types.get(kind)
    cpus = sku.cpu * len(leaves) if sku is not None else 0.0
    memory = _gib(sku.memory) * len(leaves) if sku is not None else 0.0
    return NodeSpec(name, len(leaves), kind, cpus, memory)


def _gib(amount: str | float) -> float:
    """`4096Mi` and the like; a bare number is MiB, as in OpenPAI."""
    text = str(amount).strip()
    for unit, gib in (("Mi", 1 / 1024), ("Gi", 1.0), ("Ti", 1024.0), ("", 1 / 1024)):
        if text.endswith(unit):
            try:
                return float(text.removesuffix(unit)) * gib
            except ValueError as error:
                message = f"memory {text!r} of a skuType is not understood: write 4096Mi"
                raise ClusterSpecError(message) from error
    raise AssertionError  # pragma: no cover - every text ends with nothing
