"""GPUs are one pool: only their number matters (the assumption of many published simulators).

With several GPU types there is one pool per type, and a job that accepts any may take from several.
CPUs and memory, where the cluster declares them, are pooled too (those of nodes without GPUs belong
to the first pool). A part of a GPU is just an amount. Labels belong to nodes, and a pool knows
none: requests for labelled nodes are refused.

Where a run has maintenance or reservations, which are of nodes, jobs are counted on the nodes. They
are cut wherever it is needed: still only the number matters, of the GPUs that a job may use.
"""

from collections.abc import Iterable, Sequence

from rota.core.allocation import Allocation
from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.sharing import GPU_MEM
from rota.core.spec import MARK
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.placement.base import Placement, Room
from rota.placement.choices import Choice, in_order
from rota.placement.room import EPSILON, tidy


class PooledCount(Placement):
    """The general form: pools stand in for nodes, and a job may take from several."""

    name = "count"
    names_nodes = False

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        self._pools = _pool_vertices(topology)
        self._down: set[int] = set()
        super().__init__(topology, params, seed=seed)

    def empty_room(self) -> Room:
        """The pools, idle."""
        topology = self.topology
        return Room(self._pools, divisible=True, kinds=topology.kinds, supply=topology.supply)

    def never(self, shape: Shape) -> str | None:
        """As in the base, over pools."""
        message = super().never(shape)
        if message is None:
            return None
        labels = [label for label in shape.labels if not label.startswith(MARK)]
        if labels:
            return (
                f"asks for nodes labelled {', '.join(labels)}, but placement {self.name!r} knows "
                f"no nodes: use another one, e.g. 'consolidate'"
            )
        lacking = self._undeclared(shape)
        if lacking:
            return f"asks for {shape.describe()}: {lacking}"
        return f"asks for {shape.describe()}, but the whole cluster has {_described(self._pools)}"

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """Pools in order, each as far as it goes."""
        return in_order(shape.gpus or 1, range(len(room.nodes)), room.offers(shape))

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """The node's share leaves or joins its pool."""
        if up != (node.id in self._down):
            return
        self._down ^= {node.id}
        sign = 1 if up else -1
        position = self._pool_of(node)
        self.room.change(position, -1, sign * node.gpus)
        self.room.change_extra(position, "cpu", sign * node.cpus)
        self.room.change_extra(position, "memory", sign * node.mem_gib)
        self.room.change_extra(
            position, GPU_MEM, sign * node.gpus * self._pools[position].gpu_mem_gib
        )
        for kind, amount in node.resources.items():
            self.room.change_extra(position, kind, sign * amount)
        self.free = tidy(self.free + sign * node.gpus)
        self._clock += 1
        self.up_nodes &= ~(1 << position)
        if any(self._pool_of(n) == position for n in self._up()):
            self.up_nodes |= 1 << position

    def gpus_on(self, nodes: int, allocation: Allocation | None = None) -> float:
        """As in the base; what is down leaves its pool."""
        if allocation is not None:
            return super().gpus_on(nodes, allocation)
        return sum(n.gpus for n in self._up() if nodes >> self._pool_of(n) & 1)

    def _pool_of(self, node: Vertex) -> int:
        """The position of a node's pool."""
        return self.topology.pools.index(self.topology.pool_of(node))

    def _up(self) -> list[Vertex]:
        return [node for node in self.topology.nodes if node.id not in self._down]


def _pool_vertices(topology: Topology) -> list[Vertex]:
    """The pools with all that their nodes have."""
    pools = []
    for pool in topology.pools:
        total = Vertex(pool.id, pool.level, pool.name, pool.parent)
        total.gpus, total.gpu_type = pool.gpus, pool.gpu_type
        if len(topology.types) == 1:
            total.gpu_type = topology.types[0]
        own = [node for node in topology.nodes if topology.pool_of(node) is pool]
        for node in own:
            total.cpus += node.cpus
            total.mem_gib += node.mem_gib
            for kind, amount in node.resources.items():
                there = total.resources.get(kind, 0.0)
                total.resources = {**total.resources, kind: there + amount}
        # which of its GPUs a job gets is not known: count on the smallest
        total.gpu_mem_gib = min((node.gpu_mem_gib for node in own if node.gpus), default=0.0)
        pools.append(total)
    return pools


def _described(pools: Sequence[Vertex]) -> str:
    """For messages: `12 GPUs of type v100, 4 of type k80, 64 CPUs`."""
    texts = [
        f"{pool.gpus} GPUs" + (f" of type {pool.gpu_type}" if pool.gpu_type else "")
        for pool in pools
    ]
    for unit, total in (
        ("CPUs", ordered_sum(pool.cpus for pool in pools)),
        ("GiB", ordered_sum(pool.mem_gib for pool in pools)),
    ):
        if total:
            texts.append(f"{total:g} {unit}")
    return ", ".join(texts)


class Count(PooledCount):
    """One pool of equal GPUs: a number."""

    pooled = True

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        self._made: dict[float, Allocation] = {}
        self._parts = False  # amounts may be no whole numbers
        self._have: float = 0
        self._need: float = 0

    def eligible(self, shape: Shape) -> int:  # noqa: ARG002
        """There is one pool, and all compete for it."""
        return 1

    def fits(self, shape: Shape) -> bool:
        """Enough in the pool?"""
        return shape.gpus <= self.free or not shape.gpus

    def take(self, job: Job, shape: Shape | None = None) -> Allocation:
        """Allocations of equal size are equal: one object serves all."""
        gpus = job.gpus if shape is None else shape.gpus
        if not gpus:
            return self.allocation(shape or job.shape, [(0, 1.0)])
        made = self._made.get(gpus)
        if made is None:
            made = self._made[gpus] = Allocation([(self.topology.pools[0].id, gpus)])
            self._parts |= isinstance(made.gpus, float)
        self.free -= gpus
        if self._parts:
            self.free = tidy(self.free)
        return made

    def hold(self, job: Job, allocation: Allocation) -> None:  # noqa: ARG002
        """Reserve."""
        self._parts |= isinstance(allocation.gpus, float)
        self.free = tidy(self.free - allocation.gpus)

    def give(self, job: Job, allocation: Allocation) -> None:  # noqa: ARG002
        """Return to the pool."""
        self.free += allocation.gpus
        if self._parts:
            self.free = tidy(self.free)

    def walk(self, shape: Shape, lower: Iterable[Job]) -> bool:
        """Add up until it is enough."""
        self._need = shape.gpus
        enough = shape.gpus - EPSILON
        have = self.free
        tail: list[Job] = []
        self._tail = tail
        for job in lower:
            tail.append(job)
            have += job.allocation.gpus
            if have >= enough:
                self._have = have
                return True
        return False

    def victims(self) -> list[Job]:
        """From the best-ranked down, jobs that still leave room stay."""
        spare = self._have - self._need + EPSILON
        out = []
        for job in reversed(self._tail):
            gpus = job.allocation.gpus
            if gpus <= spare:
                spare -= gpus
            else:
                out.append(job)
        return out


class CountOnNodes(Placement):
    """The nodes of windows first, by those who may use them: the others have only the rest."""

    name = "count"

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        windowed = [node.name in topology.windowed for node in topology.nodes]
        self._order = sorted(range(len(windowed)), key=lambda place: not windowed[place])

    def empty_room(self) -> Room:
        """The nodes, idle, each to be cut anywhere."""
        return Room(self.topology.nodes, divisible=True, kinds=self.topology.kinds)

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """Nodes in order, each as far as it goes."""
        return in_order(shape.gpus or 1, self._order, room.offers(shape))

    def _could_host(self, shape: Shape) -> int:
        """All that it may use, if that is enough: who waits for a window is in nobody's way."""
        if ordered_sum(self.capacity(shape)) < (shape.gpus or 1) - EPSILON:
            return 0
        return super()._could_host(shape)


def count(topology: Topology, params: Params | None = None, *, seed: int = 0) -> Placement:
    """The fast form where it is exact, the general one elsewhere."""
    kind: type[Placement] = PooledCount
    if _only_gpus(topology):
        kind = Count if len(topology.types) <= 1 else PooledCount
        if topology.windowed:
            kind = CountOnNodes
    return kind(topology, params, seed=seed)


def _only_gpus(topology: Topology) -> bool:
    """Nothing else to count."""
    return not topology.supply and not any(
        node.cpus or node.mem_gib or node.gpu_mem_gib or node.resources for node in topology.nodes
    )
