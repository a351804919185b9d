"""The contract that the packer needs of a placement, and a general implementation of it.

Feasibility must be monotone: taking devices away never makes a request fit. A concrete placement
only has to say which nodes it would choose (`choose`); the bookkeeping, the "would it fit if these
jobs were gone" walk and the choice of victims are shared. `count` and `consolidate` override them
with faster equivalents.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import and_
from typing import Any, ClassVar, Self, TypeAlias

from rota.core.allocation import Allocation, Slice
from rota.core.errors import InvalidPlanError
from rota.core.jobs import Job, JobSpec, Request, Shape
from rota.core.policy import Params
from rota.core.sharing import GPU_MEM, NO_PAIRS
from rota.core.spec import MARK
from rota.core.state import Stateful
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.placement.alike import Alike
from rota.placement.choices import Choice, one_each
from rota.placement.room import EPSILON, WHOLE, Room, tidy

__all__ = ["EPSILON", "Changed", "Choice", "Placement", "Room", "Verified"]


Changed: TypeAlias = tuple[float, Mapping[int, float]]
"""A node on which something changed: the GPUs free there, and what each job (by number) has."""


class Placement(Stateful, ABC):
    """General bookkeeping around `choose`.

    What a job holds is always read from its allocation, never from its request: a job may hold more
    or less than it asked for. Requests for less than one GPU get a part of one device, named in the
    slice; all others get whole GPUs, of which the slice names only the node.
    """

    role = "placement"
    Parameters: ClassVar[type[Params]] = Params
    filters: ClassVar[bool] = False
    """`changed` can say more than that it is not simple."""
    pooled: ClassVar[bool] = False
    """A request fits whenever enough GPUs are free, wherever they are."""
    names_nodes: ClassVar[bool] = True
    """Its allocations say which nodes they are on: they can be carried out on a real cluster."""
    splits: ClassVar[bool] = True
    """What one node could hold may be divided over several."""
    local: ClassVar[bool] = False
    """Whether a request fits depends on nothing but the nodes of the kinds that it accepts, and all
    changes go through `_book` and `set_node`: what was found out holds until one of these does."""

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        self.topology = topology
        self.params = params if params is not None else self.Parameters()
        self.seed = seed
        self.room = self.empty_room()
        self.free: float = topology.gpus
        self.kinds: list[list[int]] = [
            [i for i, node in enumerate(self.room.nodes) if node.gpus and node.gpu_type == kind]
            for kind in topology.types
        ]
        """Positions of nodes by GPU type: no placement on nodes mixes types within a job."""
        self._where = self._vertices()
        self._empty = self.empty_room()
        self._capacity: dict[int, Sequence[float]] = {}
        self.up_nodes = (1 << len(self.room.nodes)) - 1
        """The nodes (or pools) that are up, as a set: bit i stands for position i."""
        self._hosts: dict[int, int] = {}
        self._trial = self.room
        self._shape = Shape(-1, Request())
        self._tail: list[Job] = []
        self._clock = 0
        kinds: dict[tuple[str, tuple[str, ...]], int] = {}
        self._kind_of = [
            kinds.setdefault((node.gpu_type, tuple(node.labels)), len(kinds))
            for node in self.room.nodes
        ]
        self._supplies = {kind: number for number, kind in enumerate(self.room.supply)}
        """Kinds that the cluster has as a whole, and their numbers."""
        self._node_kinds = len(kinds)
        # the same for nodes of one kind, and then for kinds of resources of the whole cluster
        self._clocks = [0] * (len(kinds) + len(self._supplies))
        self._accepts: dict[int, list[int]] = {}  # shape -> those kinds
        self._enough: dict[int, tuple[int, bool]] = {}
        self._fits: dict[int, tuple[int, bool]] = {}
        self._one_node: dict[int, bool] = {}
        self._budgets = {kind.name for kind in topology.kinds.values() if not kind.renewable}
        self._spent: dict[tuple[int, str], float] = {}  # by vertex and kind: used up for good
        self._beside: tuple[int, float, float] = (-1, 0.0, 0.0)  # as of when: CPUs and GiB free

    def renewed(self, topology: Topology | None = None) -> Self:
        """An empty one of the same making, on the same nodes or on a copy of them."""
        return type(self)(topology or self.topology, self.params, seed=self.seed)

    def empty_room(self) -> Room:
        """The cluster with every node up and idle."""
        topology = self.topology
        modes = {}
        if topology.shared:
            for position, spec in enumerate(topology.specs):
                if any(spec.modes):
                    modes[position] = spec.modes
        return Room(topology.nodes, modes=modes, kinds=topology.kinds, supply=topology.supply)

    def _vertices(self) -> dict[int, tuple[int, int]]:
        """Where a slice lies: the position of its node, and the number of a GPU that it names."""
        where = {}
        for position, node in enumerate(self.room.nodes):
            where[node.id] = (position, WHOLE)
            if not self.room.divisible:
                for number, device in enumerate(self.topology.devices(node.id)):
                    where[device] = (position, number)
        return where

    # --- what a concrete placement says -----------------------------------------------------------

    @abstractmethod
    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        """Nodes for a request, or None. Whether there is one must not depend on `job`."""

    def feasible(self, shape: Shape, room: Room) -> bool:
        """Would `choose` find something? For placements that can tell without choosing."""
        return self.choose(shape, room, None) is not None

    def _pick(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        """`choose`; where every task wants a node of its own there is not much to choose."""
        if not shape.apart:
            return self.choose(shape, room, job)
        for positions in self.kinds:
            choice = one_each(shape.apart, shape.gpus / shape.apart, positions, room.offers(shape))
            if choice is not None:
                return choice
        return None

    def _possible(self, shape: Shape, room: Room) -> bool:
        return (
            self._pick(shape, room, None) is not None if shape.apart else self.feasible(shape, room)
        )

    @property
    def refines(self) -> bool:
        """It tells more jobs apart than requests do: `refine` must be asked."""
        return type(self).refine is not Placement.refine

    def refine(self, spec: JobSpec) -> Request:
        """The request by which a job is placed, for placements that tell more jobs apart than that.

        Jobs of equal requests are exchangeable in a placement. One that looks at anything else of
        the job adds a label that begins with `MARK`; equal results must be the same object.
        """
        return spec.request

    @property
    def expects(self) -> bool:
        """It wants to know beforehand what jobs ask for."""
        return type(self).expect is not Placement.expect

    def expect(self, usual: Sequence[tuple[Request, int]]) -> None:
        """What jobs ask for, and how many of them do, before the first one, if it is known."""

    # --- about requests on an empty cluster -------------------------------------------------------

    def capacity(self, shape: Shape) -> Sequence[float]:
        """What every node could serve of a request if it were up and empty."""
        known = self._capacity.get(shape.number)
        if known is None:
            known = self._capacity[shape.number] = list(self._empty.offers(shape))
        return known

    def fits_one_node(self, shape: Shape) -> bool:
        """Some node is large enough for all of it, whatever is free there now and up or not."""
        known = self._one_node.get(shape.number)
        if known is None:
            known = self._one_node[shape.number] = max(self.capacity(shape)) >= (shape.gpus or 1)
        return known

    # --- who competes with whom -------------------------------------------------------------------

    def eligible(self, shape: Shape) -> int:
        """The nodes that are up and could ever host a part of it, as a set like `up_nodes`.

        Requests whose sets have nothing in common can never be in each other's way: behind the
        nodes there is a place for each kind that the cluster has as a whole.
        """
        known = self._hosts.get(shape.number)
        if known is None:
            known = self._hosts[shape.number] = self._could_host(shape)
        nodes = known & self.up_nodes
        if self._supplies and shape.resources and nodes:
            nodes |= self._supplies_of(shape.resources)
        return nodes

    def _supplies_of(self, kinds: Iterable[str]) -> int:
        """Those of these kinds that the cluster has as a whole, as a set behind the nodes."""
        found, first = 0, len(self.room.nodes)
        for kind in kinds:
            number = self._supplies.get(kind)
            if number is not None:
                found |= 1 << first + number
        return found

    def _could_host(self, shape: Shape) -> int:
        capacity = self.capacity(shape)
        need = shape.gpus or 1
        least = 0.0
        if shape.apart:
            least = shape.gpus / shape.apart
        elif not self.splits and max(capacity, default=0) >= need:
            least = need
        hosts = [p for p, most in enumerate(capacity) if most > 0 and most >= least]
        if shape.gpus >= 1 and not self.room.divisible:  # on nodes, types are never mixed
            kinds = [[p for p in hosts if p in kind] for kind in map(set, self.kinds)]
            hosts = [
                p
                for kind in kinds
                if (
                    len(kind) >= shape.apart
                    if shape.apart
                    else ordered_sum(capacity[p] for p in kind) >= need
                )
                for p in kind
            ]
        return sum(1 << position for position in hosts)

    def touches(self, nodes: int, allocation: Allocation) -> bool:
        """Does it lie at least partly on these nodes?"""
        where = self._where
        for vertex, _ in allocation.slices:
            if nodes >> where[vertex][0] & 1:
                return True
        if not allocation.extra:
            return False
        if any(nodes >> where[vertex][0] & 1 for vertex, _, _ in allocation.extra):
            return True
        return bool(
            self._supplies and nodes & self._supplies_of(kind for _, kind, _ in allocation.extra)
        )

    def gpus_on(self, nodes: int, allocation: Allocation | None = None) -> float:
        """GPUs of those of these nodes that are up; with `allocation` only what it has there."""
        if allocation is None:
            nodes &= self.up_nodes
            return sum(n.gpus for p, n in enumerate(self.room.nodes) if nodes >> p & 1)
        where = self._where
        total: float = 0
        for vertex, gpus in allocation.slices:
            if nodes >> where[vertex][0] & 1:
                total += gpus
        return total

    # --- the contract -----------------------------------------------------------------------------

    def never(self, shape: Shape) -> str | None:
        """Why this request can never fit, even with every node up and empty; None if it can."""
        if self._possible(shape, self._empty):
            return None
        asked = f"asks for {_described(shape)}"
        if shape.gpus > 1 and shape.gpus % 1 and not self.room.divisible:
            return (
                f"{asked}: placement {self.name!r} gives whole GPUs or a part of one: ask for "
                f"{int(shape.gpus) + 1}, or use placement 'count'"
            )
        lacking = self._undeclared(shape)
        if lacking:
            return f"{asked}: {lacking}"
        return (
            f"{asked}, which placement {self.name!r} can never find on this cluster of "
            f"{len(self.topology.nodes)} nodes with {self.topology.gpus} GPUs in all"
        )

    def leave_sharing(self) -> None:
        """The policy divides GPUs itself: parts of those with MIG instances may be asked for."""
        self._empty.forget_modes()
        self._capacity.clear()

    def _undeclared(self, shape: Shape) -> str:
        """What no node of the cluster says that it has: an unknown amount is none."""
        if shape.gpu_mem_gib and not self.room.has_gpu_mem:
            return (
                "no node says how much memory its GPUs have: give it as gpu_mem_gib of the nodes "
                "in the cluster's file"
            )
        for kind in shape.resources:
            if self.topology.kind(kind) is None:
                return f"the cluster knows no resource {kind!r}: declare it in the cluster's file"
        for kind, need in shape.resources.items():
            there = self._empty.supply.get(kind, need)
            if need > there + EPSILON:
                return f"the cluster has {there:g} {kind} in all"
        return ""

    def fits(self, shape: Shape) -> bool:
        """Is there a placement now?"""
        known = self._fits.get(shape.number)
        clock = self._clock_of(shape)
        if known is not None and known[0] == clock:
            return known[1]
        fits = self._possible(shape, self.room)
        self._fits[shape.number] = (clock, fits)
        return fits

    def _clock_of(self, shape: Shape) -> int:
        """It is another number when something has changed that a request depends on."""
        if not self.local or len(self._clocks) == 1:
            return self._clock
        kinds = self._accepts.get(shape.number)
        if kinds is None:
            matching = self.room.matching(shape)
            kinds = sorted(set(compress(self._kind_of, matching)))
            for kind in shape.resources:
                if kind in self._supplies:
                    kinds.append(self._node_kinds + self._supplies[kind])
            self._accepts[shape.number] = kinds
        clocks = self._clocks
        return clocks[kinds[0]] if len(kinds) == 1 else sum(clocks[kind] for kind in kinds)

    def _tick(self, position: int) -> None:
        """Something has changed on a node."""
        self._clock += 1
        self._clocks[self._kind_of[position]] += 1

    def enough(self, shape: Shape) -> bool:
        """Is as much free as it asks for, wherever it is?"""
        if shape.gpus > self.free + EPSILON:
            return False
        room = self.room
        clock, cpus, mem_gib = self._beside
        if clock != self._clock:
            cpus, mem_gib = (
                ordered_sum(compress(room.cpus, room.up)),
                ordered_sum(compress(room.mem_gib, room.up)),
            )
            self._beside = (self._clock, cpus, mem_gib)
        return not (
            (room.has_cpus and shape.cpus > cpus + EPSILON)
            or (room.has_mem and shape.mem_gib > mem_gib + EPSILON)
            or any(need > room.sum_of(kind) + EPSILON for kind, need in shape.resources.items())
        )

    def enough_accepted(self, shape: Shape) -> bool:
        """Is as much free as it asks for on the nodes of a kind that it accepts?"""
        if not self.local:
            return self._has_accepted(shape)
        known, clock = self._enough.get(shape.number), self._clock_of(shape)
        if known is None or known[0] != clock:
            known = self._enough[shape.number] = (clock, self._has_accepted(shape))
        return known[1]

    def _has_accepted(self, shape: Shape) -> bool:
        room = self.room
        use = list(map(and_, room.up, room.matching(shape)))
        return not (
            shape.gpus > room.free_gpus(use) + EPSILON
            or (room.has_cpus and shape.cpus > ordered_sum(compress(room.cpus, use)) + EPSILON)
            or (room.has_mem and shape.mem_gib > ordered_sum(compress(room.mem_gib, use)) + EPSILON)
            or any(
                need > ordered_sum(compress(room.more[kind], use)) + EPSILON
                for kind, need in shape.resources.items()
                if kind in room.more
            )
        )

    def only_nodes(self, shape: Shape) -> Alike | None:  # noqa: ARG002 - for subclasses
        """The nodes on which it depends whether a request fits, and why not if enough are free.

        As long as their number of `changes` is the same, so are these answers. None: not known.
        """
        return None

    def take(self, job: Job, shape: Shape | None = None) -> Allocation:
        """Choose and reserve, after `fits` said yes. `shape`: another size than it asked for."""
        shape = shape or job.shape
        choice = self._pick(shape, self.room, job)
        if choice is None:
            raise RuntimeError(f"{self.name}: {job} does not fit")
        allocation = self.allocation(shape, choice)
        self._book(allocation, -1)
        return allocation

    def allocation(self, shape: Shape, choice: Choice) -> Allocation:
        """The allocation that a choice of nodes stands for, on the present state."""
        room = self.room
        total = shape.gpus
        slices = []
        extra: list[tuple[int, str, float]] = []
        for position, amount in choice:
            node = room.nodes[position]
            share = amount / total if total else 1.0
            if total:
                slices.append((self._place(position, amount, shape.gpu_mem_gib), amount))
            if (shape.cpus and room.has_cpus) or not total:  # without GPUs: to name the place
                extra.append((node.id, "cpu", shape.cpus * share))
            if shape.mem_gib and room.has_mem:
                extra.append((node.id, "memory", shape.mem_gib * share))
            if room.has_gpu_mem and total:
                extra += self._gpu_memory(shape, position, amount, slices[-1][0])
            for kind, need in shape.resources.items():
                if node.resources.get(kind):
                    extra.append((node.id, kind, need * share))
        supply = self.topology.supply
        if supply and shape.resources:  # not in parts: sums of thirds are no whole numbers
            first = room.nodes[choice[0][0]].id
            asked = [(kind, need) for kind, need in shape.resources.items() if kind in supply]
            extra += [(first, kind, need) for kind, need in asked]
        return Allocation(slices, extra)

    def _gpu_memory(
        self, shape: Shape, position: int, amount: float, place: int
    ) -> list[tuple[int, str, float]]:
        """Of a part of a GPU: what it asks for. Whole GPUs are not shared: so is their memory."""
        if amount >= 1:
            if not self.room.divisible:
                return []
            return [(place, GPU_MEM, amount * self.room.nodes[position].gpu_mem_gib)]
        return [(place, GPU_MEM, shape.gpu_mem_gib)] if shape.gpu_mem_gib else []

    def _place(self, position: int, amount: float, mem_gib: float = 0.0) -> int:
        """The vertex that a slice names: the node, or for a part of a GPU the GPU itself."""
        node = self.room.nodes[position].id
        if amount >= 1 or self.room.divisible:
            return node
        number = self.room.device_for(position, amount, mem_gib)
        if number is None:
            raise RuntimeError(f"{self.name}: no GPU of {self.room.nodes[position]} has room")
        return self.topology.devices(node)[number]

    def hold(self, job: Job, allocation: Allocation) -> None:  # noqa: ARG002 - for subclasses
        """Reserve exactly this for the job."""
        self._book(allocation, -1)

    def give(self, job: Job, allocation: Allocation) -> None:
        """Take back what the job held; what a job that is over has used up does not come back."""
        if self._budgets and job.terminal:
            allocation = self._spend(allocation)
        self._book(allocation, +1)

    def _spend(self, allocation: Allocation) -> Allocation:
        """What comes back of it."""
        extra = []
        for vertex, kind, amount in allocation.extra:
            if kind in self._budgets:
                self._spent[vertex, kind] = self._spent.get((vertex, kind), 0.0) + amount
            else:
                extra.append((vertex, kind, amount))
        return Allocation(allocation.slices, extra, allocation.config)

    def deplete(self, spent: Mapping[tuple[int, str], float]) -> None:
        """This was used up before it came."""
        if self._spent:
            return
        for (vertex, kind), amount in spent.items():
            self._spent[vertex, kind] = amount
            self.room.change_extra(self._where[vertex][0], kind, -amount)
            self._tick(self._where[vertex][0])

    def snapshot(self) -> Mapping[str, Any]:
        """Its state, and what has been used up for good."""
        saved = super().snapshot()
        if not self._spent:
            return saved
        return {**saved, "spent": [[*place, amount] for place, amount in self._spent.items()]}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        rest = dict(saved)
        self.deplete({(vertex, kind): amount for vertex, kind, amount in rest.pop("spent", ())})
        super().restore(rest)

    def supplied(self, allocation: Allocation, cpus: float, mem_gib: float) -> Allocation | None:
        """The same GPUs with other CPUs and memory, in proportion to the GPUs on each node.

        None if there is no room for them. What the job holds must have been given back before.
        """
        if not allocation.gpus:
            return allocation
        room = self.room
        kinds = [("cpu", cpus, room.cpus)] if cpus and room.has_cpus else []
        kinds += [("memory", mem_gib, room.mem_gib)] if mem_gib and room.has_mem else []
        gpus: dict[int, float] = {}
        for vertex, amount in allocation.slices:
            position = self._where[vertex][0]
            gpus[position] = gpus.get(position, 0.0) + amount
        extra = []
        for position, amount in gpus.items():
            for kind, total, free in kinds:
                part = total * (amount / allocation.gpus)
                if part > free[position] + EPSILON:
                    return None
                extra.append((room.nodes[position].id, kind, part))
        extra += [part for part in allocation.extra if part[1] not in ("cpu", "memory")]
        if _alike(extra, allocation.extra):
            return allocation  # the dust of float sums moves nobody
        return Allocation(allocation.slices, extra, allocation.config)

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """A node went down or came back; the jobs on it are handled separately."""
        position, _ = self._where[node.id]
        if self.room.up[position] != up:
            self.room.up[position] = up
            self.up_nodes ^= 1 << position
            left = self.room.left(position)
            self.free = tidy(self.free + left if up else self.free - left)
            self._tick(position)

    def close_unusable(self) -> None:
        """Leave out nodes that are down or drained: for a fresh placement, after a restart."""
        for node in self.topology.nodes:
            if not node.open:
                self.set_node(node, up=False)

    # --- would it fit if these were gone? ---------------------------------------------------------

    def walk(self, shape: Shape, lower: Iterable[Job]) -> bool:
        """Would it fit if some of these were gone? Only asked when it does not fit as it is.

        Remembers the shortest beginning of `lower` that suffices, for `victims`. Because
        feasibility is monotone it is enough to look after 1, 2, 4, ... jobs and then to bisect.
        """
        self._shape = shape
        trial = self._trial = self.room.copy()
        tail: list[Job] = []
        self._tail = tail
        nodes = self.eligible(shape)
        everywhere = nodes == self.up_nodes
        # the least that must be freed, on nodes that it could use
        short = shape.gpus - (self.free if everywhere else self._free_on(nodes))
        failed = 0
        for job in lower:
            tail.append(job)
            short -= self._freed(job.allocation, None if everywhere else nodes)
            if short > EPSILON or len(tail) < 2 * failed:
                continue
            self._vacate(trial, tail[failed:])
            if self._possible(shape, trial):
                self._shorten(failed)
                return True
            failed = len(tail)
        if len(tail) > failed and short <= EPSILON:
            self._vacate(trial, tail[failed:])
            if self._possible(shape, trial):
                self._shorten(failed)
                return True
        return False

    def _freed(self, allocation: Allocation, nodes: int | None) -> float:
        """GPUs that others could have without it, on some nodes or on all."""
        if not self.topology.shared:
            return allocation.gpus if nodes is None else self.gpus_on(nodes, allocation)
        where = self._where
        return ordered_sum(
            gpus
            for vertex, gpus in self._occupied(allocation)
            if nodes is None or nodes >> where[vertex][0] & 1
        )

    def _vacate(self, room: Room, jobs: Iterable[Job]) -> None:
        """Let them go."""
        for job in jobs:
            self._shift(room, job.allocation, +1)

    def _free_on(self, nodes: int) -> float:
        """GPUs free on these nodes."""
        left = self.room.left
        return ordered_sum(
            left(position) for position in range(len(self.room.nodes)) if nodes >> position & 1
        )

    def walked(self) -> int:
        """How many jobs the latest `walk` that succeeded had to let go."""
        return len(self._tail)

    def _shorten(self, failed: int) -> None:
        """Cut the tail to what is needed: all of it suffices, its first `failed` jobs do not."""
        tail, trial, shape = self._tail, self._trial, self._shape
        enough = at = len(tail)
        while enough - failed > 1:
            middle = (failed + enough) // 2
            for job in tail[middle:at]:
                self._shift(trial, job.allocation, -1)
            for job in tail[at:middle]:
                self._shift(trial, job.allocation, +1)
            at = middle
            if self._possible(shape, trial):
                enough = middle
            else:
                failed = middle
        for job in tail[at:enough]:
            self._shift(trial, job.allocation, +1)
        del tail[enough:]

    def victims(self) -> list[Job]:
        """Who must go: from the best-ranked down, jobs that leave room on the chosen nodes stay."""
        shape, trial = self._shape, self._trial
        wanted = dict(self._pick(shape, trial, None) or ())
        out = []
        for job in reversed(self._tail):
            allocation = job.allocation
            touched: Iterable[int] = [p for p in self._positions(allocation) if p in wanted]
            if not touched:
                if not self._competes(shape, allocation):
                    continue
                touched = wanted
            self._shift(trial, allocation, -1)
            if any(trial.usable(p, shape) < wanted[p] - EPSILON for p in touched):
                self._shift(trial, allocation, +1)
                out.append(job)
        return out

    def _competes(self, shape: Shape, allocation: Allocation) -> bool:
        """Does it have any of what the request wants that the cluster has as a whole?"""
        return bool(self._supplies) and any(
            kind in self._supplies and kind in shape.resources for _, kind, _ in allocation.extra
        )

    def changed(self, shape: Shape, dirty: set[int]) -> Sequence[Changed] | None:  # noqa: ARG002
        """Of a request that did not fit before something changed on the `dirty` vertices.

        The nodes of these vertices, if it can only fit on one of them now; None if it is not so
        simple.
        """
        return None

    # --- shared detail ----------------------------------------------------------------------------

    def accepts(self, shape: Shape, allocation: Allocation) -> bool:
        """Are all its places of a kind that the request accepts?"""
        matching = self.room.matching(shape)
        return all(matching[position] for position in self._positions(allocation))

    def shareable(self, allocation: Allocation, gpu_mem_gib: float) -> bool:
        """May two jobs share these whole GPUs, and is there as much memory on each of them?"""
        topology = self.topology
        if not (gpu_mem_gib or topology.shared):
            return True
        if self.room.divisible:
            return not gpu_mem_gib
        for position in self._positions(allocation):
            spec = topology.specs[position]
            if gpu_mem_gib > spec.gpu_mem_gib + EPSILON or not NO_PAIRS.isdisjoint(spec.modes):
                return False
        return True

    def _positions(self, allocation: Allocation) -> set[int]:
        where = self._where
        return {where[vertex][0] for vertex, _ in allocation.slices} | {
            where[vertex][0] for vertex, _, _ in allocation.extra
        }

    def _occupied(self, allocation: Allocation) -> Sequence[Slice]:
        """Its slices, but all of a GPU that is exclusive: nobody gets what is left of it."""
        if not self.topology.shared:
            return allocation.slices
        occupied = self.topology.occupied
        return tuple((vertex, occupied(vertex, gpus)) for vertex, gpus in allocation.slices)

    def _shift(self, room: Room, allocation: Allocation, sign: int) -> None:
        """Free (+1) or take (-1) an allocation in some room."""
        where = self._where
        for vertex, amount in self._occupied(allocation):
            position, number = where[vertex]
            room.change(position, number, sign * amount)
        for vertex, kind, amount in allocation.extra:
            position, number = where[vertex]
            room.change_extra(position, kind, sign * amount, number)

    def _book(self, allocation: Allocation, sign: int) -> None:
        """The same on the present state."""
        self._shift(self.room, allocation, sign)
        where = self._where
        for vertex, amount in self._occupied(allocation):
            position = where[vertex][0]
            self._tick(position)
            if self.room.up[position]:
                self.free = tidy(self.free + sign * amount)
        for vertex, kind, _ in allocation.extra:
            self._tick(where[vertex][0])
            if kind in self._supplies:
                self._clocks[self._node_kinds + self._supplies[kind]] += 1


class Verified(Placement):
    """Put before a placement that is not Rota's own: what it takes is looked at every time."""

    def take(self, job: Job, shape: Shape | None = None) -> Allocation:
        """As the placement does, and an error if it broke a promise."""
        allocation = super().take(job, shape)
        wrong = self._wrong(shape or job.shape, allocation)
        if wrong:
            raise InvalidPlanError(f"placement {self.name!r}, job {job.id}: {wrong}")
        return allocation

    def _pick(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        """As the placement does; a place for a job must be pairs of a position and an amount."""
        choice = super()._pick(shape, room, job)
        if job is None:
            return choice
        if choice is None:
            wrong = "`choose` finds no place, although `feasible` says that there is one"
            raise InvalidPlanError(f"placement {self.name!r}, job {job.id}: {wrong}")
        for position, amount in choice:
            if not 0 <= position < len(room.nodes) or not isinstance(amount, int | float):
                raise InvalidPlanError(
                    f"placement {self.name!r}, job {job.id}: chose ({position!r}, {amount!r}): "
                    f"positions are 0 to {len(room.nodes) - 1}, amounts are numbers"
                )
        return choice

    def _wrong(self, shape: Shape, allocation: Allocation) -> str | None:
        """What is wrong with an allocation that was just taken."""
        room, vertices = self.room, self.topology.vertices
        asked = f"the job asks for {_described(shape)}"
        for vertex, gpus in allocation.slices:
            if not gpus > 0:
                return f"chose {gpus:g} GPUs on {vertices[vertex].name}: choose more than 0"
        if not abs(allocation.gpus - shape.gpus) <= EPSILON:
            places = [f"{gpus:g} GPUs on {vertices[v].name}" for v, gpus in allocation.slices]
            return f"chose {', '.join(places) or 'no GPUs'}, but {asked}"
        for position in sorted(self._positions(allocation)):
            node = room.nodes[position]
            if not room.matching(shape)[position]:
                kind = ", ".join([node.gpu_type or "no GPU type", *node.labels])
                return f"chose {node.name} ({kind}), but {asked}"
            if not room.up[position]:
                return f"chose {node.name}, which is down or drained: see `room.up`"
            for kind, left in self._left(position):
                if left < -EPSILON:
                    gpus = self.gpus_on(1 << position, allocation)
                    over = f"{-left:g} {kind} more than were free"
                    return f"chose {gpus:g} GPUs on {node.name}, {over}: see `room.offers(shape)`"
        return None

    def _left(self, position: int) -> Iterator[tuple[str, float]]:
        """What is left of a node; below 0: too much was taken."""
        room = self.room
        yield "GPUs", min([room.gpus[position], *room.shares.get(position, {}).values()])
        if room.has_cpus:
            yield "CPUs", room.cpus[position]
        if room.has_mem:
            yield "GiB of memory", room.mem_gib[position]
        yield from room.supply.items()


def _alike(
    some: Sequence[tuple[int, str, float]], others: Sequence[tuple[int, str, float]]
) -> bool:
    """The same amounts at the same places."""
    return [part[:2] for part in some] == [part[:2] for part in others] and all(
        abs(a[2] - b[2]) <= EPSILON for a, b in zip(some, others, strict=True)
    )


def _described(shape: Shape) -> str:
    """The request for messages, without a placement's notes to itself."""
    labels = tuple(label for label in shape.labels if not label.startswith(MARK))
    if labels == shape.labels:
        return shape.describe()
    request = shape.request
    cleaned = Request(request.groups, request.gpu_types, labels, request.gang, request.apart)
    return Shape(shape.number, cleaned).describe()
