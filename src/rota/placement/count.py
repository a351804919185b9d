"""GPUs are one pool: only their number matters (the assumption of many published simulators).

With several GPU types there is one pool per type. CPUs and memory, where the cluster declares them,
are pooled too.
"""

from collections.abc import Iterable, Sequence

from rota.core.allocation import Allocation
from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.topology import Topology, Vertex
from rota.placement.base import Choice, Placement, Room


class PooledCount(Placement):
    """The general form: pools stand in for nodes, and a job may take from several."""

    name = "count"

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        self._pools = _pool_vertices(topology)
        self.room = Room(self._pools)
        self.position = {pool.id: i for i, pool in enumerate(self._pools)}

    def never(self, shape: Shape) -> str | None:
        """As in the base, over pools."""
        if self.choose(shape, Room(self._pools), None) is not None:
            return None
        return (
            f"asks for {shape.describe()}, but the whole cluster has {self.topology.gpus} GPUs"
        )

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """Pools in order, each as far as it goes."""
        need = shape.gpus
        if not need:
            return next(([(i, 1.0)] for i in range(len(room.nodes)) if room.usable(i, shape)), None)
        choice: Choice = []
        for position in range(len(room.nodes)):
            take = min(room.usable(position, shape), need)
            if take > 0:
                choice.append((position, take))
                need -= take
            if need <= 0:
                return choice
        return None

    def allocation(self, shape: Shape, choice: Choice) -> Allocation:
        """Slices of pool vertices."""
        total = shape.gpus
        extra: list[tuple[int, str, float]] = []
        for position, amount in choice:
            share = amount / total if total else 1.0
            if shape.cpus:
                extra.append((self._pools[position].id, "cpu", shape.cpus * share))
            if shape.mem_gib:
                extra.append((self._pools[position].id, "memory", shape.mem_gib * share))
        return Allocation([(self._pools[p].id, amount) for p, amount in choice if total], extra)

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """The node's share leaves or joins its pool."""
        position = next(
            i for i, pool in enumerate(self._pools) if pool.gpu_type in ("", node.gpu_type)
        )
        sign = 1 if up else -1
        self.room.gpus[position] += sign * node.gpus
        self.room.cpus[position] += sign * node.cpus
        self.room.mem_gib[position] += sign * node.mem_gib
        self.free += sign * node.gpus
        self._clock += 1


def _pool_vertices(topology: Topology) -> list[Vertex]:
    pools = []
    for pool in topology.pools:
        total = Vertex(pool.id, pool.level, pool.name, pool.parent)
        total.gpus, total.gpu_type = pool.gpus, pool.gpu_type
        for node in topology.nodes:
            if len(topology.pools) == 1 or node.gpu_type == pool.gpu_type:
                total.cpus += node.cpus
                total.mem_gib += node.mem_gib
        if len(topology.pools) == 1 and topology.types:
            total.gpu_type = topology.types[0]
        pools.append(total)
    return pools


class Count(PooledCount):
    """One pool of equal GPUs: a number."""

    pooled = True

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        self._made: dict[float, Allocation] = {}
        self._have: float = 0
        self._need: float = 0

    def fits(self, shape: Shape) -> bool:
        """Enough in the pool?"""
        return shape.gpus <= self.free

    def take(self, job: Job) -> Allocation:
        """Allocations of equal size are equal: one object serves all."""
        gpus = job.gpus
        self.free -= gpus
        made = self._made.get(gpus)
        if made is None:
            made = self._made[gpus] = Allocation([(self.topology.pools[0].id, gpus)])
        return made

    def hold(self, job: Job, allocation: Allocation) -> None:  # noqa: ARG002
        """Reserve."""
        self.free -= allocation.gpus

    def give(self, job: Job, allocation: Allocation) -> None:  # noqa: ARG002
        """Return to the pool."""
        self.free += allocation.gpus

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """The node's GPUs leave or join the pool."""
        self.free += node.gpus if up else -node.gpus

    def begin(self, shape: Shape) -> None:
        """Start a walk."""
        self._need = shape.gpus
        self._have = self.free
        self._tail = []

    def add(self, job: Job) -> bool:
        """One more is gone."""
        self._tail.append(job)
        self._have += job.held_gpus or job.gpus
        return self._have >= self._need

    def walk(self, shape: Shape, lower: Iterable[Job]) -> bool:
        """Add up until it is enough."""
        need = self._need = shape.gpus
        have = self.free
        tail = self._tail = []
        for job in lower:
            tail.append(job)
            have += job.held_gpus or job.gpus
            if have >= need:
                self._have = have
                return True
        return False

    def victims(self) -> list[Job]:
        """From the best-ranked down, whoever still leaves room stays."""
        spare = self._have - self._need
        out = []
        for job in reversed(self._tail):
            gpus = job.held_gpus or job.gpus
            if gpus <= spare:
                spare -= gpus
            else:
                out.append(job)
        return out


def count(topology: Topology, params: Params | None = None, *, seed: int = 0) -> Placement:
    """The fast form where it is exact, the general one elsewhere."""
    kind: type[Placement] = Count if topology.is_uniform or _only_gpus(topology.nodes) else PooledCount
    return kind(topology, params, seed=seed)


def _only_gpus(nodes: Sequence[Vertex]) -> bool:
    return len({node.gpu_type for node in nodes}) == 1 and not any(
        node.cpus or node.mem_gib or node.labels for node in nodes
    )
