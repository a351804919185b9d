"""The cluster as a typed tree: cluster, racks, nodes, GPUs are data, not classes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from rota.core.allocation import Amount
from rota.core.errors import ClusterSpecError
from rota.core.resources import BUILT_IN, ResourceKind
from rota.core.sharing import EXCLUSIVE, MIG, MODES, OVERCOMMITS, mig_profiles
from rota.core.signals import Signal
from rota.core.spec import MARK

NODE = "node"
DEVICE = "gpu"


class NodeSpec(msgspec.Struct, frozen=True):
    """One machine as described by the user; `path` names the levels above it, outermost first."""

    name: str
    gpus: int
    gpu_type: str = ""
    cpus: float = 0.0
    mem_gib: float = 0.0
    path: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    gpu_mem_gib: float = 0.0
    """Memory of each GPU; 0: not said, and no job that asks for some comes here."""
    sharing: str | tuple[str, ...] = ""
    """How its GPUs may be shared (`core.sharing`), one mode for all or one for each."""
    resources: tuple[tuple[str, float], ...] = ()
    """Amounts of other kinds (`Topology.declare`)."""

    @property
    def modes(self) -> tuple[str, ...]:
        """How each of its GPUs may be shared."""
        return (self.sharing,) * self.gpus if isinstance(self.sharing, str) else self.sharing


class Vertex:
    """A place in the tree; `gpus` counts everything at or below it."""

    __slots__ = (
        "closed", "cpus", "epoch", "gpu_mem_gib", "gpu_type", "gpus", "id", "labels", "level",
        "mem_gib", "name", "node", "parent", "resources", "sharing", "up", "windows",
    )  # fmt: skip

    def __init__(self, vertex_id: int, level: str, name: str, parent: int) -> None:
        self.id = vertex_id
        self.level = level
        self.name = name
        self.parent = parent
        self.gpus = 0  # GPUs below or at this vertex
        self.gpu_type = ""
        self.cpus = 0.0
        self.mem_gib = 0.0
        self.gpu_mem_gib = 0.0  # of each GPU
        self.sharing = ""  # of a GPU
        self.resources: Mapping[str, float] = {}  # of other kinds
        self.labels: tuple[str, ...] = ()
        self.node = -1  # the node that a device or node vertex belongs to
        self.up = True
        self.closed = False  # up, but nothing more is to be started there (drained, not heard of)
        self.epoch = 0  # events about a vertex never go stale
        self.windows: tuple[str, ...] = ()  # labels that bar jobs from this node: `core.windows`

    @property
    def open(self) -> bool:
        """Jobs may be started there."""
        return self.up and not self.closed

    def suits(self, labels: Iterable[str]) -> bool:
        """Has it all labels of a request, and is in no window that bars it?"""
        return all(
            label not in self.windows if label.startswith(MARK) else label in self.labels
            for label in labels
        )

    def __repr__(self) -> str:
        return f"Vertex({self.id}, {self.level}:{self.name}, gpus={self.gpus})"


class Topology:
    """Vertices in one list; vertex 0 is the whole cluster.

    `nodes` are the vertices at level `node`, in the order given. When the GPUs are of one type the
    whole cluster is one pool (vertex 0); otherwise there is one extra pool vertex per GPU type, so
    that "GPUs are one pool" placements can still name what they took.
    """

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        levels: Sequence[str] = (),
        *,
        growing: bool = False,
        kinds: Sequence[ResourceKind] = (),
    ) -> None:
        if not nodes and not growing:
            raise ClusterSpecError("the cluster has no nodes: give at least one, e.g. 4x8")
        self.levels = tuple(levels)
        self.growing = growing  # nodes may come
        self.vertices: list[Vertex] = [Vertex(0, "cluster", "cluster", -1)]
        self.nodes: list[Vertex] = []
        self._inner: dict[tuple[str, ...], int] = {(): 0}
        self._devices: dict[int, list[int]] = {}
        self._seen: set[str] = set()
        self.pools: tuple[Vertex, ...] = ()
        self.signals: dict[str, Signal] = {}  # by name
        self.guests: list[tuple[Signal, tuple[str, ...]]] = []  # as many of these nodes are there
        self.planned: list[Mapping[str, str]] = []  # windows of simulations, see `core.windows`
        self.windowed: frozenset[str] = frozenset()  # nodes for which a simulation has windows
        self.specs: tuple[NodeSpec, ...] = ()
        self.kinds: dict[str, ResourceKind] = {kind.name: kind for kind in BUILT_IN}
        """What there is to know of every kind of resource that may be asked for here."""
        self.supply: Mapping[str, float] = {}
        """What the cluster has as a whole, by kind: licences, tokens. Jobs use it on any node."""
        self.declare(kinds)
        self.has_gpu_mem = False  # some node says how much memory its GPUs have
        self.shared = False  # some GPU has a mode
        self.overcommits = False  # some GPU may be given to more jobs than it can serve at once
        self.extend(nodes)

    def extend(self, nodes: Sequence[NodeSpec]) -> None:
        """Add nodes to a living cluster: no vertex changes its number."""
        for spec in nodes:
            if spec.name in self._seen:
                raise ClusterSpecError(f"node name {spec.name!r} occurs twice: names must differ")
            self._seen.add(spec.name)
            self._add_node(spec)
        self.gpus = sum(node.gpus for node in self.nodes)
        self.types = tuple(dict.fromkeys(node.gpu_type for node in self.nodes if node.gpus))
        self.pools = self._make_pools()
        self.specs += tuple(nodes)

    def occupied(self, vertex: int, gpus: Amount) -> Amount:
        """GPUs that nobody else can have while a job has these: all of one that is exclusive."""
        return 1 if 0 < gpus < 1 and self.vertices[vertex].sharing == EXCLUSIVE else gpus

    def rename(self, old: str, new: str) -> None:
        """Let a node make room for another one with its name; its numbers stay."""
        node = next(node for node in self.nodes if node.name == old)
        node.name = new
        for number, device in enumerate(self._devices[node.id]):
            self.vertices[device].name = f"{new}/{number}"
        self._seen.discard(old)
        self._seen.add(new)
        self.specs = tuple(
            msgspec.structs.replace(spec, name=new) if spec.name == old else spec
            for spec in self.specs
        )

    def relabel(self, name: str, labels: tuple[str, ...]) -> None:
        """Let a node have other labels; whoever has looked at the old ones has to look again."""
        next(node for node in self.nodes if node.name == name).labels = labels
        self.specs = tuple(
            msgspec.structs.replace(spec, labels=labels) if spec.name == name else spec
            for spec in self.specs
        )

    @classmethod
    def uniform(cls, nodes: int, gpus: int, gpu_type: str = "", prefix: str = "n") -> "Topology":
        """`nodes` equal machines with `gpus` each."""
        return cls([NodeSpec(f"{prefix}{i}", gpus, gpu_type) for i in range(nodes)])

    def _add_node(self, spec: NodeSpec) -> None:
        if spec.gpus < 0:
            raise ClusterSpecError(f"node {spec.name!r} has {spec.gpus} GPUs: give 0 or more")
        parent = 0
        for depth in range(1, len(spec.path) + 1):
            key = spec.path[:depth]
            if key not in self._inner:
                level = self.levels[depth - 1] if depth <= len(self.levels) else f"level{depth}"
                self._inner[key] = self._add(level, spec.path[depth - 1], parent).id
            parent = self._inner[key]
        node = self._add(NODE, spec.name, parent)
        node.node = node.id
        node.gpus, node.gpu_type = spec.gpus, spec.gpu_type
        node.cpus, node.mem_gib, node.labels = spec.cpus, spec.mem_gib, spec.labels
        node.gpu_mem_gib, node.resources = spec.gpu_mem_gib, dict(spec.resources)
        self._check(spec)
        self.nodes.append(node)
        for up in self.ancestors(node.id):
            self.vertices[up].gpus += spec.gpus
        devices = []
        for i in range(spec.gpus):
            device = self._add(DEVICE, f"{spec.name}/{i}", node.id)
            device.gpus, device.gpu_type, device.node = 1, spec.gpu_type, node.id
            device.gpu_mem_gib, device.sharing = spec.gpu_mem_gib, spec.modes[i]
            devices.append(device.id)
        self._devices[node.id] = devices

    def _check(self, spec: NodeSpec) -> None:
        """Modes and kinds that there are."""
        modes = spec.modes
        if len(modes) != spec.gpus:
            raise ClusterSpecError(
                f"node {spec.name!r}: sharing lists {len(modes)} modes for {spec.gpus} GPUs: give "
                "one for each, or one for all"
            )
        for mode in {*modes, *([spec.sharing] if isinstance(spec.sharing, str) else [])}:
            if mode and mode not in MODES:
                raise ClusterSpecError(
                    f"node {spec.name!r}: sharing is {mode!r}: it is one of {', '.join(MODES)}"
                )
            if mode == MIG and spec.gpus:
                try:
                    mig_profiles(spec.gpu_type)
                except ClusterSpecError as error:
                    raise ClusterSpecError(
                        f"node {spec.name!r}: sharing is mig: {error}"
                    ) from error
        for kind, amount in spec.resources:
            if kind not in self.kinds:
                raise ClusterSpecError(
                    f"node {spec.name!r}: there is no resource {kind!r}: declare it under resources"
                )
            if kind in self.supply:
                raise ClusterSpecError(
                    f"node {spec.name!r}: {kind} belongs to the cluster as a whole (it has a "
                    "total): leave it out here"
                )
            if not 0 <= amount < float("inf"):
                raise ClusterSpecError(f"node {spec.name!r}: {kind} is {amount:g}: give 0 or more")
        self.has_gpu_mem |= spec.gpu_mem_gib > 0
        self.shared |= any(modes)
        self.overcommits |= not OVERCOMMITS.isdisjoint(modes)

    def declare(self, kinds: Sequence[ResourceKind]) -> None:
        """Let there be these kinds besides those of every cluster.

        Of a kind of the whole cluster that is not declared any more there is nothing: who has some
        keeps it.
        """
        gone = {kind: msgspec.structs.replace(self.kinds[kind], total=0.0) for kind in self.supply}
        self.kinds |= gone | {kind.name: kind for kind in kinds}
        self.supply = {
            kind.name: kind.total for kind in self.kinds.values() if kind.total is not None
        }

    def kind(self, name: str) -> ResourceKind | None:
        """A kind that may be asked for here; None: nobody has declared it."""
        return self.kinds.get(name)

    def _add(self, level: str, name: str, parent: int) -> Vertex:
        vertex = Vertex(len(self.vertices), level, name, parent)
        self.vertices.append(vertex)
        return vertex

    def _make_pools(self) -> tuple[Vertex, ...]:
        if len(self.types) <= 1:
            return (self.vertices[0],)
        pools = []
        present = {pool.gpu_type: pool for pool in self.pools if pool.level == "pool"}
        for gpu_type in self.types:
            pool = present.get(gpu_type) or self._add("pool", gpu_type or "untyped", 0)
            pool.gpus = sum(node.gpus for node in self.nodes if node.gpu_type == gpu_type)
            pool.gpu_type = gpu_type
            pools.append(pool)
        return tuple(pools)

    def pool_of(self, node: Vertex) -> Vertex:
        """The pool of a node's GPUs, CPUs and memory; of a node without GPUs it is the first."""
        if node.gpus:
            for pool in self.pools:
                if pool.gpu_type == node.gpu_type:
                    return pool
        return self.pools[0]

    def ancestors(self, vertex: int) -> Iterator[int]:
        """Ids above a vertex, nearest first, the cluster last."""
        parent = self.vertices[vertex].parent
        while parent >= 0:
            yield parent
            parent = self.vertices[parent].parent

    def devices(self, node: int) -> list[int]:
        """Vertex ids of a node's GPUs."""
        return self._devices[node]

    def types_at(self, places: Iterable[int]) -> set[str]:
        """The GPU types of nodes, GPUs or pools."""
        if len(self.types) == 1:  # the pool of such a cluster is the cluster itself: no type
            return set(self.types) if any(True for _ in places) else set()
        return {self.vertices[place].gpu_type for place in places}

    def distance(self, places: Sequence[int]) -> int:
        """Levels to climb until one vertex covers all places; 0 when they are the same."""
        if len(set(places)) <= 1:
            return 0
        chains = [(place, *self.ancestors(place)) for place in places]
        common = next(v for v in chains[0] if all(v in chain for chain in chains))
        return max(chain.index(common) for chain in chains)

    @property
    def is_uniform(self) -> bool:
        """All nodes alike and nothing but GPUs declared: fast paths may count instead of search."""
        if not self.nodes:
            return False
        first = self.nodes[0]
        return not (self.shared or self.supply) and all(
            (n.gpus, n.gpu_type, n.cpus, n.mem_gib, n.labels, n.gpu_mem_gib, n.resources)
            == (first.gpus, first.gpu_type, 0.0, 0.0, (), 0.0, {})
            for n in self.nodes
        )
