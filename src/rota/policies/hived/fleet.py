"""HiveD's cells and the jobs of a run: which pods a job is, and on which GPUs they are."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.core.allocation import Allocation
from rota.core.errors import ClusterSpecError, OptionError, RequestError
from rota.core.jobs import Job
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.policies.hived import snapshot
from rota.policies.hived.algorithm import EVERYWHERE, Hived, Preempt, Wait
from rota.policies.hived.cells import HIGHEST_GUARANTEED, LOWEST_GUARANTEED, OPPORTUNISTIC
from rota.policies.hived.config import HivedConfig, load_config
from rota.policies.hived.groups import BindInfo, GroupSpec, Member, PodSpec

EVERYONE = "everyone"
"""The virtual cluster of a configuration that is made up: all cells, for all tenants."""


class Placed(msgspec.Struct, frozen=True):
    """A pod of a job that runs."""

    pod: str
    spec: PodSpec
    bind: BindInfo


class Fleet:
    """A HiveD on the nodes of a topology."""

    def __init__(self, topology: Topology, tenants: TenantTree, config: HivedConfig | None) -> None:
        self._made_up = config is None
        self.hived = Hived(config or whole_nodes(topology, tenants))
        self.placed: dict[int, tuple[Placed, ...]] = {}
        """Pods by job; jobs are known by their number."""
        self._topology = topology
        self._devices = self._find_devices()
        self._most = max(
            top.leaves // len(top.nodes) for tops in self.hived.cells.tops.values() for top in tops
        )

    def _find_devices(self) -> dict[tuple[str, str, int], int]:
        """The GPU of each leaf cell: the leaf cells of a node in order of chain and index."""
        nodes = {node.name: node for node in self._topology.nodes}
        found: dict[tuple[str, str, int], int] = {}
        for name, leaves in self.hived.cells.on_node.items():
            node = nodes.get(name)
            if node is None or node.gpus < len(leaves):
                have = "is not there" if node is None else f"has {node.gpus} GPUs"
                message = (
                    f"the HiveD configuration has {len(leaves)} leaf cells on node {name!r}, which "
                    f"{have} in the cluster: give the same file as --cluster"
                )
                raise ClusterSpecError(message)
            numbers = range(len(leaves))
            ordered = sorted(leaves, key=lambda leaf: leaf.indices[0])
            for leaf, number in zip(ordered, numbers, strict=True):
                found[leaf.chain, name, leaf.indices[0]] = self._topology.devices(node.id)[number]
        return found

    def look_at_nodes(self) -> bool:
        """Nodes that are closed or down are bad; whether any has changed."""
        before = set(self.hived.bad_nodes)
        for node in self._topology.nodes:
            if node.name not in self.hived.cells.on_node:
                continue
            if node.open:
                self.hived.set_healthy(node.name)
            else:
                self.hived.set_bad(node.name)
        return before != self.hived.bad_nodes

    def requests(self, job: Job) -> list[PodSpec]:
        """What a job asks for, once for each type of GPU that it accepts."""
        sizes = self._sizes(job)
        group = GroupSpec(f"{job.index}", tuple(Member(1, size) for size in sizes))
        found = []
        for kind in job.shape.types or ("",):
            vc, priority = self._rank(job, kind, sizes)
            spec = PodSpec(
                vc,
                priority,
                sizes[0],
                kind,
                ignore_k8s_suggested_nodes=not job.shape.labels,
                affinity_group=group,
            )
            found.append(spec)
        return found

    def _rank(self, job: Job, kind: str, sizes: list[int]) -> tuple[str, int]:
        """Virtual cluster and priority.

        A job of a tenant without a virtual cluster, or one that could not even run in it if it
        were empty, is opportunistic.
        """
        vcs = self.hived.cells.vcs
        priority = OPPORTUNISTIC
        if job.spec.priority >= LOWEST_GUARANTEED:
            priority = 2 * min(job.spec.priority, HIGHEST_GUARANTEED // 2 - 1)
        vc = EVERYONE if self._made_up and EVERYONE in vcs else job.tenant
        if vc not in vcs:
            return next(iter(vcs), ""), OPPORTUNISTIC
        return vc, priority if self._holds(vc, kind, sizes) else OPPORTUNISTIC

    def _holds(self, vc: str, kind: str, sizes: list[int]) -> bool:
        """Whether a virtual cluster has room for these pods in one chain with this type."""
        cells = self.hived.cells
        for chain, tops in cells.vcs[vc].free_tops.items():
            if kind not in ("", cells.levels[chain].leaf):
                continue
            leaves = [top.leaves for held in tops.values() for top in held]
            if sum(leaves) >= sum(sizes) and max(leaves) >= max(sizes):
                return True
        return False

    def _sizes(self, job: Job) -> list[int]:
        """GPUs of each pod: one-GPU tasks, as traces have them, share pods as large as nodes."""
        sizes: list[int] = []
        for group in job.shape.request.groups:
            if group.gpus == 1 and not job.shape.request.apart:
                full, rest = divmod(group.count, self._most)
                sizes += [self._most] * full + [rest] * bool(rest)
            else:
                sizes += [max(1, round(group.gpus))] * group.count
        return sizes

    def start(self, job: Job, *, eager: bool = False) -> Allocation | Preempt | Wait:
        """Place a job if it can be; else who has to leave, or why it waits.

        An eager job goes before all others of its priority. Once it has its place, it is as they
        are.
        """
        waits = Wait("no type of GPU that it accepts")
        suggested = self._labelled(job.shape.labels) if job.shape.labels else EVERYWHERE
        for asked in self.requests(job):
            spec = raised(asked) if eager else asked
            try:
                decision = self.hived.schedule(f"{job.index}-0", spec, suggested)
            except RequestError as error:
                raise OptionError(f"job {job.id}: {error}") from error
            if isinstance(decision, BindInfo):
                allocation = self._add(job, spec, decision)
                if eager:
                    self._lower(job, asked)
                return allocation
            if isinstance(decision, Preempt):
                return decision
            waits = decision
        return waits

    def _labelled(self, labels: tuple[str, ...]) -> frozenset[str]:
        wanted = set(labels)
        return frozenset(n.name for n in self._topology.nodes if wanted <= set(n.labels))

    def _add(self, job: Job, spec: PodSpec, first: BindInfo) -> Allocation:
        placed: list[Placed] = []
        assert spec.affinity_group is not None  # noqa: S101 - see `requests`
        for number, member in enumerate(spec.affinity_group.members):
            pod = f"{job.index}-{number}"
            own = msgspec.structs.replace(spec, leaf_cell_number=member.leaf_cell_number)
            bind = first if number == 0 else self.hived.schedule(pod, own)
            assert isinstance(bind, BindInfo)  # noqa: S101 - its group has its cells
            self.hived.add_allocated(pod, own, bind)
            placed.append(Placed(pod, own, bind))
        self.placed[job.index] = tuple(placed)
        return self._allocation(job, placed)

    def _allocation(self, job: Job, placed: Iterable[Placed]) -> Allocation:
        share = job.gpus if 0 < job.gpus < 1 else 1
        devices = sorted(
            self._devices[one.bind.chain, one.bind.node, index]
            for one in placed
            for index in one.bind.leaf_cells
        )
        return Allocation([(device, share) for device in devices])

    def _lower(self, job: Job, asked: PodSpec) -> None:
        """Add the pods of an eager job again, with the priority that it has by itself."""
        placed = self.placed[job.index]
        self.stop(job.index)
        self.placed[job.index] = tuple(
            msgspec.structs.replace(
                one, spec=msgspec.structs.replace(one.spec, priority=asked.priority)
            )
            for one in placed
        )
        for one in self.placed[job.index]:
            self.hived.add_allocated(one.pod, one.spec, one.bind)

    def give_up(self, job: Job) -> None:
        """An eager job leaves its would-be victims alone."""
        for spec in self.requests(job):
            self.hived.delete_unallocated(f"{job.index}-0", raised(spec))

    def is_opportunistic(self, index: int) -> bool:
        """Whether a job that runs has no part in any promise."""
        return not is_guaranteed(self.placed[index][0].spec)

    def stop(self, index: int) -> None:
        """The pods of a job have left."""
        for one in self.placed.pop(index):
            self.hived.delete_allocated(one.pod, one.spec, one.bind)

    def save(self) -> dict[str, Any]:
        """State as plain data."""
        placed = [(index, msgspec.to_builtins(pods)) for index, pods in self.placed.items()]
        return {"hived": snapshot.save(self.hived), "placed": placed}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take a saved state up again."""
        snapshot.load(self.hived, state["hived"])
        self.placed = {
            index: msgspec.convert(pods, tuple[Placed, ...]) for index, pods in state["placed"]
        }


def whole_nodes(topology: Topology, tenants: TenantTree) -> HivedConfig:
    """A configuration for a cluster without one: nodes as cells, promised by quota.

    A tenant with a quota gets whole nodes, and single GPUs for the rest. If nobody has a quota,
    everybody shares one virtual cluster.
    """
    types: dict[str, Any] = {}
    cells = []
    for node in topology.nodes:
        if node.gpus:
            leaf = node.gpu_type or "gpu"
            kind = f"{node.gpus}-{leaf}"
            types[kind] = {"childCellType": leaf, "childCellNumber": node.gpus, "isNodeLevel": True}
            cells.append({"cellType": kind, "cellAddress": node.name})
    free = {kind: sum(cell["cellType"] == kind for cell in cells) for kind in types}
    promised = {
        tenant.name: {"virtualCells": _within(tenant.quota, types, free)}
        for tenant in tenants
        if tenant.quota >= 1
    }
    if not promised:
        everything = [{"cellType": kind, "cellNumber": number} for kind, number in free.items()]
        promised = {EVERYONE: {"virtualCells": everything}}
    return load_config(
        {
            "physicalCluster": {"cellTypes": types, "physicalCells": cells},
            "virtualClusters": promised,
        }
    )


def _within(quota: float, types: Mapping[str, Any], free: dict[str, int]) -> list[dict[str, Any]]:
    """Cells for a quota: whole nodes as long as they fit into it, then GPUs of one more node."""
    found: list[dict[str, Any]] = []
    left = int(quota)
    for kind, spec in types.items():
        size = spec["childCellNumber"]
        nodes = min(left // size, free[kind])
        free[kind] -= nodes
        left -= nodes * size
        if nodes:
            found.append({"cellType": kind, "cellNumber": nodes})
        if 0 < left < size and free[kind]:
            free[kind] -= 1
            found.append({"cellType": f"{kind}.{spec['childCellType']}", "cellNumber": left})
            left = 0
    return found


def raised(spec: PodSpec) -> PodSpec:
    """The request with the priority between its own and the next higher one."""
    return msgspec.structs.replace(spec, priority=spec.priority + 1)


def is_guaranteed(spec: PodSpec) -> bool:
    """Whether a request is part of its tenant's promise."""
    return spec.priority >= LOWEST_GUARANTEED
