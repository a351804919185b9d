"""YARN's capacity scheduler as Philly used it (Jeon et al., USENIX ATC 2019, section 2).

Every tenant (virtual cluster, VC) has a share of the GPUs and serves its own jobs, which are gangs,
in the order of their submission; the VC that uses the least of its share is served first. A VC may
borrow what others leave unused. When the cluster is nearly full, a job within its VC's share takes
the place of borrowed GPUs: of every VC the jobs that started when its share was used up.

A job first insists on locality: it starts only on as few nodes as its GPUs can be on. When it has
found enough free GPUs, but never close together, for `relax_s`, any placement will do. This needs a
placement that prefers few nodes without insisting on them; with one that insists (`consolidate`)
nothing is ever relaxed, and in a pool (`count`) there is no locality.

The reasons for waiting tell the paper's two delays apart: `quota` (fair-share delay: the VC has
used its share, and what it could borrow is not free) and `fragmentation` (enough GPUs are free, but
not close together). A VC within its share that finds too few free GPUs waits for `capacity`. Jobs
behind the first of their VC that cannot start wait for `quota`, too, if that would hold them back
as well, else for their turn (`order`).

Departs from the paper: locality is counted in nodes, racks are not looked at; attempts are made at
every event instead of at intervals, so that locality is relaxed after a time, not after a number of
attempts; `skip=true` lets a VC's later jobs pass one that cannot start.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job, Shape
from rota.core.plan import EligibilityPlan, LocalityPlan, Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.reasons import Reason
from rota.core.state import State, from_rows
from rota.core.topology import Topology
from rota.core.view import View


class YarnCsParams(Params, frozen=True):
    """`relax_s`: how long locality is insisted on; `preempt_above`: the part of GPUs in use."""

    borrow: bool = True
    preempt: bool = True
    preempt_above: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.9
    relax_s: Annotated[float, msgspec.Meta(ge=0)] = 600.0
    skip: bool = False


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


class YarnCsState(State):
    """Since when only locality keeps a job waiting, by index."""

    scattered_s: dict[int, float] = {}

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """From version 0."""
        return {"scattered_s": from_rows(fields["scattered_s"])}


class YarnPlan(EligibilityPlan, LocalityPlan):
    """Partitions, and limits on the number of nodes."""


class YarnCs(DecidePolicy[YarnCsParams]):
    """First come first served within each tenant's share of the GPUs, on few nodes if possible."""

    name = "yarn-cs"
    paper = (
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training "
        "Workloads, USENIX ATC 2019"
    )
    Parameters = YarnCsParams
    plan_type = YarnPlan
    coupled = "shared quotas: a tenant's share of the GPUs counts wherever it uses them"

    def __init__(self, params: YarnCsParams | None = None) -> None:
        super().__init__(params)
        self.state: YarnCsState = YarnCsState()
        self._fewest: dict[int, int] = {}  # by shape

    def decide(self, view: View) -> Plan:
        """Jobs within the shares, then those that were borrowing, then new borrowers."""
        plan = view.plan(YarnPlan)
        clusters = virtual_clusters(view, borrow=self.params.borrow)
        borrowed = self._keep(plan, view, clusters)
        self._serve(plan, view, clusters, borrowing=False)
        for job in borrowed:
            if not plan.place(job):
                clusters[job.tenant].used -= job.held_gpus
                plan.explain(job, Reason.QUOTA)
        self._serve(plan, view, clusters, borrowing=True)
        self._explain(plan, view, clusters)
        waiting = {index for cluster in clusters.values() for index in cluster.queue}
        self.state.scattered_s = {i: t for i, t in self.state.scattered_s.items() if i in waiting}
        return plan

    def _keep(
        self, plan: YarnPlan, view: View, clusters: Mapping[str, VirtualCluster]
    ) -> list[Job]:
        """Let running jobs go on; returns those that must give way if need be."""
        running = sorted(view.running, key=lambda job: (job.start_s, job.index))
        used = sum(job.held_gpus for job in running)
        preempts = self.params.preempt and used >= self.params.preempt_above * view.up_gpus
        borrowed = []
        for job in running:
            cluster = clusters[job.tenant]
            cluster.used += job.held_gpus
            if preempts and cluster.used > cluster.share + EPSILON:
                borrowed.append(job)
            else:
                plan.place(job)
        return borrowed

    def _serve(
        self, plan: YarnPlan, view: View, clusters: Mapping[str, VirtualCluster], *, borrowing: bool
    ) -> None:
        """Start jobs of the VC that has used the least of its share, until nobody can."""
        turns = {
            cluster.number: (cluster, iter(list(cluster.queue.values())))
            for cluster in clusters.values()
        }
        held = dict.fromkeys(turns, 0)  # nodes of those who wait
        while turns:
            cluster, queue = min(turns.values(), key=lambda turn: turn[0].rank())
            job = next(queue, None)
            if job is None:
                del turns[cluster.number]
            elif not cluster.allows(job, borrowing=borrowing):
                if not self.params.skip:  # who is behind it needs the same share
                    del turns[cluster.number]
            elif not held[cluster.number] & plan.eligible(job) and self._start(
                plan, view, job, _free(view, clusters)
            ):
                cluster.used += job.gpus
                del cluster.queue[job.index]
            elif not self.params.skip:
                held[cluster.number] |= plan.eligible(job)
                if held[cluster.number] == plan.nodes:
                    del turns[cluster.number]

    def _start(self, plan: YarnPlan, view: View, job: Job, free: float) -> bool:
        """Close together, or after `relax_s` anywhere."""
        since_s = self.state.scattered_s.get(job.index, view.now_s)
        if view.now_s >= since_s + self.params.relax_s:
            return plan.place(job)
        number = job.shape.number
        if number not in self._fewest:
            self._fewest[number] = fewest_nodes(view.topology, job.shape)
        if plan.place_on(job, max_nodes=self._fewest[number]):
            return True
        if job.gpus <= free + EPSILON:
            self.state.scattered_s[job.index] = since_s
            plan.wake_at(since_s + self.params.relax_s)
        return False

    def _explain(self, plan: YarnPlan, view: View, clusters: Mapping[str, VirtualCluster]) -> None:
        """Say why each job waits."""
        free = _free(view, clusters)
        for cluster in clusters.values():
            held = 0  # nodes of those who wait before
            alike: dict[int, Reason] = {}  # why those behind the first of a shape wait
            for job in cluster.queue.values():
                nodes, lacks = plan.eligible(job), cluster.reason(job, free)
                waits = not self.params.skip and lacks != Reason.QUOTA  # only for its turn
                reason = Reason.ORDER if waits and held & nodes else lacks
                held |= nodes if cluster.allows(job, borrowing=True) else plan.nodes
                if job.shape.number not in alike:
                    behind = Reason.ORDER if waits and held & nodes else lacks
                    alike[job.shape.number] = behind
                    plan.explain_alike(job.tenant, job.shape, behind)
                own = reason != alike[job.shape.number]
                plan.explain(job, reason if own else Reason.NONE)


def _free(view: View, clusters: Mapping[str, VirtualCluster]) -> float:
    return view.up_gpus - sum(cluster.used for cluster in clusters.values())
