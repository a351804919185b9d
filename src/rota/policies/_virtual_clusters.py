"""Shares of a cluster: what each tenant is promised, has, and waits for."""

from collections.abc import Iterable

from rota.core.events import INF
from rota.core.jobs import Job, Shape
from rota.core.reasons import Reason
from rota.core.topology import Topology
from rota.core.view import View

EPSILON = 1e-9  # shares and fractions of GPUs are floats


class VirtualCluster:
    """One tenant at one decision: its share of the GPUs, and its waiting jobs in order."""

    def __init__(self, number: int, share: float, ceiling: float) -> None:
        self.number = number
        self.share = share
        self.ceiling = ceiling  # with what it may borrow
        self.used = 0.0
        self.queue: dict[int, Job] = {}

    def rank(self) -> tuple[float, int]:
        """Who has used less of its share is served first."""
        return (self.used / self.share if self.share else INF, self.number)

    def allows(self, job: Job, *, borrowing: bool) -> bool:
        """One more job stays within the share, or within what may be borrowed too."""
        allowed = self.ceiling if borrowing else min(self.share, self.ceiling)
        return self.used + job.gpus <= allowed + EPSILON

    def reason(self, job: Job, free: float) -> Reason:
        """Why a job waits that could not start although so many GPUs are free."""
        if not self.allows(job, borrowing=True):
            return Reason.QUOTA
        if job.gpus <= free + EPSILON:
            return Reason.FRAGMENTATION
        return Reason.CAPACITY if self.allows(job, borrowing=False) else Reason.QUOTA


def virtual_clusters(view: View, *, borrow: bool) -> dict[str, VirtualCluster]:
    """Everybody who has jobs here, the waiting ones in their queues."""
    clusters: dict[str, VirtualCluster] = {}
    shares = _shares(view, [job.tenant for job in view.jobs])
    for job in view.jobs:
        name = job.tenant
        if name not in clusters:
            share, limit = shares.get(name, 0.0), view.tenants.get(name).limit
            ceiling = limit if borrow else min(share, limit)
            clusters[name] = VirtualCluster(len(clusters), share, ceiling)
        if not job.running:
            clusters[name].queue[job.index] = job
    return clusters


def _shares(view: View, present: Iterable[str]) -> dict[str, float]:
    """Declared quotas; where there is none, the GPUs that are up in proportion to the weights."""
    parents = {tenant.parent for tenant in view.tenants}
    declared = {tenant.name: tenant for tenant in view.tenants if tenant.name not in parents}
    if any(tenant.quota for tenant in declared.values()):
        return {name: tenant.quota for name, tenant in declared.items()}
    names = dict.fromkeys((*declared, *present))
    weights = {name: view.tenants.get(name).weight for name in names}
    total = sum(weights.values())
    return {name: view.up_gpus * weight / total for name, weight in weights.items()}


def fewest_nodes(topology: Topology, shape: Shape) -> int:
    """On how few nodes of one type the GPUs of a request can be."""
    return min(
        (_nodes_of(topology, kind, shape.gpus) for kind in shape.types or topology.types), default=1
    )


def _nodes_of(topology: Topology, kind: str, gpus: float) -> int:
    count = 0
    for size in sorted((n.gpus for n in topology.nodes if n.gpu_type == kind), reverse=True):
        if gpus <= 0:
            break
        gpus -= size
        count += 1
    return max(count, 1)
