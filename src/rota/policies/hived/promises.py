"""A configuration for a cluster that has none: nodes are cells, quotas are promises."""

from typing import Any

from rota.core.sums import ordered_sum
from rota.core.tenants import Tenant, TenantTree
from rota.core.topology import Topology
from rota.policies.hived.asks import EVERYONE
from rota.policies.hived.config import HivedConfig, load_config


def whole_nodes(topology: Topology, tenants: TenantTree) -> HivedConfig:
    """Nodes as cells; tenants with a quota get whole nodes, and single GPUs for the rest.

    A tenant with sub-tenants keeps what their quotas leave. If nobody has a quota, everybody shares
    one virtual cluster.
    """
    stock = Stock(topology)
    inside = {
        tenant.name: ordered_sum(child.quota for child in tenants if child.parent == tenant.name)
        for tenant in tenants
    }
    promised = {
        tenant.name: {"virtualCells": stock.take(int(_own(tenant, inside)))}
        for tenant in tenants
        if _own(tenant, inside) >= 1
    }
    if not promised:
        promised = {EVERYONE: {"virtualCells": stock.take(topology.gpus)}}
    return load_config(
        {
            "physicalCluster": {"cellTypes": stock.types, "physicalCells": stock.cells},
            "virtualClusters": promised,
        }
    )


def _own(tenant: Tenant, inside: dict[str, float]) -> float:
    return tenant.quota - inside[tenant.name]


class Stock:
    """Nodes that are not promised yet, by kind."""

    def __init__(self, topology: Topology) -> None:
        self.types: dict[str, Any] = {}
        self.cells: list[dict[str, str]] = []
        self._nodes: dict[str, int] = {}
        self._gpus: dict[str, int] = {}
        """GPUs of nodes of which some were promised singly."""
        for node in topology.nodes:
            if node.gpus:
                leaf = node.gpu_type or "gpu"
                kind = f"{node.gpus}-{leaf}"
                self.types[kind] = {
                    "childCellType": leaf,
                    "childCellNumber": node.gpus,
                    "isNodeLevel": True,
                }
                self.cells.append({"cellType": kind, "cellAddress": node.name})
                self._nodes[kind] = self._nodes.get(kind, 0) + 1
                self._gpus[kind] = 0

    def take(self, gpus: int) -> list[dict[str, Any]]:
        """Whole nodes as long as they fit into the number, then GPUs of others."""
        found: list[dict[str, Any]] = []
        for kind, spec in self.types.items():
            nodes = min(gpus // spec["childCellNumber"], self._nodes[kind])
            self._nodes[kind] -= nodes
            gpus -= nodes * spec["childCellNumber"]
            if nodes:
                found.append({"cellType": kind, "cellNumber": nodes})
        for kind, spec in self.types.items():
            size = spec["childCellNumber"]
            if gpus > self._gpus[kind] and self._nodes[kind] and gpus <= size:
                self._nodes[kind] -= 1
                self._gpus[kind] += size
            single = min(gpus, self._gpus[kind])
            self._gpus[kind] -= single
            gpus -= single
            if single:
                leaf = f"{kind}.{spec['childCellType']}"
                found.append({"cellType": leaf, "cellNumber": single})
        return found
