"""Never split what fits one node: best fit on one node; larger requests take whole idle nodes.

A request that fits one node goes to the node with the fewest free GPUs that suffices (ties: the
first in the list). A larger one takes as many wholly idle nodes as it fills, and the remainder goes
to the best-fitting other node. Types are never mixed within a job.
"""

from bisect import bisect_left, insort

from rota.core.allocation import Allocation
from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.topology import Topology, Vertex
from rota.placement.base import EPSILON, Choice, Placement, Room


def best_fit_node(shape: Shape, room: Room, need: float, skip: set[int]) -> int:
    """The node with the fewest free GPUs that can serve `need`; -1 if none."""
    best = -1
    for position in range(len(room.nodes)):
        if position in skip or room.usable(position, shape) < need - EPSILON:
            continue
        if best < 0 or room.gpus[position] < room.gpus[best]:
            best = position
    return best


def whole_nodes(shape: Shape, room: Room, size: int, gpu_type: str) -> list[int]:
    """Idle nodes with `size` GPUs of a type, all usable for this request."""
    return [
        position
        for position, node in enumerate(room.nodes)
        if node.gpus == size
        and node.gpu_type == gpu_type
        and room.gpus[position] == size
        and room.usable(position, shape) >= size
    ]


class SearchingConsolidate(Placement):
    """The general form, for clusters with unequal nodes, CPUs, memory or labels."""

    name = "consolidate"

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """One node if any is large enough, else whole nodes of one type plus a remainder."""
        need = shape.gpus or 1
        sizes = {
            (node.gpu_type, node.gpus)
            for position, node in enumerate(room.nodes)
            if room.matches(position, shape)
        }
        if not sizes:
            return None
        if not shape.gpus or any(size >= need for _, size in sizes):
            best = best_fit_node(shape, room, need, set())
            return None if best < 0 else [(best, need)]
        for gpu_type in self.topology.types:
            size = max((s for kind, s in sizes if kind == gpu_type), default=0)
            choice = self._across(shape, room, gpu_type, size) if size else None
            if choice is not None:
                return choice
        return None

    def _across(self, shape: Shape, room: Room, gpu_type: str, size: int) -> Choice | None:
        count, rest = divmod(shape.gpus, size)
        idle = whole_nodes(shape, room, size, gpu_type)
        if len(idle) < count:
            return None
        chosen = idle[: int(count)]
        choice: Choice = [(position, size) for position in chosen]
        if rest:
            skip = set(chosen) | {
                i for i, node in enumerate(room.nodes) if node.gpu_type != gpu_type
            }
            last = best_fit_node(shape, room, rest, skip)
            if last < 0:
                return None
            choice.append((last, rest))
        return choice


class Consolidate(SearchingConsolidate):
    """The same on equal nodes with nothing but GPUs: nodes are sorted into buckets by free GPUs."""

    filters = True

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        count = len(topology.nodes)
        self.size = topology.nodes[0].gpus
        self.node_free = [self.size] * count
        self._up = [True] * count
        self.buckets: list[list[int]] = [[] for _ in range(self.size + 1)]
        self.buckets[self.size] = list(range(count))
        self._on: list[dict[int, tuple[Job, int]]] = [{} for _ in range(count)]
        self._single: dict[tuple[int, int], Allocation] = {}
        self._lookup = [-1] * len(topology.vertices)
        for i, node in enumerate(topology.nodes):
            self._lookup[node.id] = i
        self._have: list[int] = []
        self._need = 0
        self._whole = 0
        self._rest = 0
        self._best = -1
        self._idle: list[int] = []

    def _move(self, position: int, free: int) -> None:
        if self._up[position]:
            bucket = self.buckets[self.node_free[position]]
            del bucket[bisect_left(bucket, position)]
            insort(self.buckets[free], position)
        self.node_free[position] = free

    def fits(self, shape: Shape) -> bool:
        """A bucket with enough, or enough idle nodes."""
        gpus = shape.gpus
        if gpus > self.free:
            return False
        size = self.size
        buckets = self.buckets
        if gpus <= size:
            return any(buckets[int(gpus) :]) if gpus else True
        whole, rest = divmod(int(gpus), size)
        idle = len(buckets[size])
        if idle < whole:
            return False
        return rest == 0 or idle > whole or any(buckets[rest:size])

    def take(self, job: Job) -> Allocation:
        """Best fit through the buckets."""
        gpus = int(job.gpus)
        buckets = self.buckets
        on = self._on
        self.free -= gpus
        if gpus <= self.size:
            free = gpus
            while not buckets[free]:
                free += 1
            position = buckets[free][0]
            self._move(position, free - gpus)
            on[position][job.index] = (job, gpus)
            made = self._single.get((position, gpus))
            if made is None:
                made = Allocation([(self.topology.nodes[position].id, gpus)])
                self._single[position, gpus] = made
            return made
        whole, rest = divmod(gpus, self.size)
        choice = [(position, self.size) for position in buckets[self.size][:whole]]
        for position, _ in choice:
            self._move(position, 0)
        if rest:
            free = rest
            while not buckets[free]:
                free += 1
            position = buckets[free][0]
            self._move(position, free - rest)
            choice.append((position, rest))
        for position, amount in choice:
            on[position][job.index] = (job, amount)
        return Allocation([(self.topology.nodes[p].id, amount) for p, amount in choice])

    def hold(self, job: Job, allocation: Allocation) -> None:
        """Reserve exactly this."""
        for vertex, amount in allocation.slices:
            position = self._lookup[vertex]
            self._move(position, self.node_free[position] - int(amount))
            self._on[position][job.index] = (job, int(amount))
            if self._up[position]:
                self.free -= amount

    def give(self, job: Job, allocation: Allocation) -> None:
        """Return to the buckets."""
        lookup = self._lookup
        for vertex, amount in allocation.slices:
            position = lookup[vertex]
            self._move(position, self.node_free[position] + int(amount))
            del self._on[position][job.index]
            if self._up[position]:
                self.free += amount

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """A node that is down is in no bucket."""
        position = self._lookup[node.id]
        if self._up[position] == up:
            return
        bucket = self.buckets[self.node_free[position]]
        if up:
            insort(bucket, position)
            self.free += self.node_free[position]
        else:
            del bucket[bisect_left(bucket, position)]
            self.free -= self.node_free[position]
        self._up[position] = up

    def begin(self, shape: Shape) -> None:
        """Start a walk."""
        gpus = int(shape.gpus)
        self._need = gpus
        self._have = self.node_free[:]
        self._tail = []
        self._best = -1
        self._whole, self._rest = divmod(gpus, self.size) if gpus > self.size else (0, gpus)
        self._idle = self.buckets[self.size][:] if self._whole else []

    def add(self, job: Job) -> bool:
        """One more is gone."""
        self._tail.append(job)
        have = self._have
        lookup = self._lookup
        if not self._whole:
            need = self._need
            best = -1
            for vertex, amount in job.allocation.slices:
                position = lookup[vertex]
                free = have[position] = have[position] + int(amount)
                if free >= need and self._up[position] and (
                    best < 0 or (free, position) < (have[best], best)
                ):
                    best = position
            self._best = best
            return best >= 0
        for vertex, amount in job.allocation.slices:
            position = lookup[vertex]
            have[position] += int(amount)
            if have[position] == self.size and self._up[position]:
                self._idle.append(position)
        return self._enough_idle()

    def _enough_idle(self) -> bool:
        idle = len(self._idle)
        if idle < self._whole:
            return False
        if self._rest == 0 or idle > self._whole:
            return True
        taken = set(self._idle)
        return any(
            free >= self._rest and self._up[position] and position not in taken
            for position, free in enumerate(self._have)
        )

    def _spare(self) -> dict[int, int]:
        """Chosen nodes with what stays free on them."""
        have = self._have
        if not self._whole:
            return {self._best: have[self._best] - self._need}
        spare = dict.fromkeys(sorted(self._idle)[: self._whole], 0)
        if self._rest:
            free, position = min(
                (free, position)
                for position, free in enumerate(have)
                if free >= self._rest and self._up[position] and position not in spare
            )
            spare[position] = free - self._rest
        return spare

    def victims(self) -> list[Job]:
        """From the best-ranked down, whoever still leaves room on the chosen nodes stays."""
        spare = self._spare()
        lookup = self._lookup
        out = []
        for job in reversed(self._tail):
            on = [(lookup[v], a) for v, a in job.allocation.slices if lookup[v] in spare]
            if not on:
                continue
            if all(amount <= spare[position] for position, amount in on):
                for position, amount in on:
                    spare[position] -= int(amount)
            else:
                out.append(job)
        return out

    def maybe(self, job: Job, now_s: float, dirty: set[int]) -> bool:
        """A one-node request that failed can only fit on a node where something changed."""
        need = job.gpus
        if need > self.size:
            return bool(dirty)
        key, index = job.key, job.index
        for vertex in dirty:
            position = self._lookup[vertex]
            free = self.node_free[position]
            if free < need:
                for other, amount in self._on[position].values():
                    rank = other.vkey + other.slope * now_s if other.slope else other.vkey
                    if rank > key or (rank == key and other.index > index):
                        free += amount
            if free >= need:
                return True
        return False


def consolidate(topology: Topology, params: Params | None = None, *, seed: int = 0) -> Placement:
    """The fast form where it is exact, the general one elsewhere."""
    kind: type[Placement] = Consolidate if topology.is_uniform else SearchingConsolidate
    return kind(topology, params, seed=seed)
