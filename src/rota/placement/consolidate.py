"""Never split what fits one node: best fit on one node; larger requests take whole idle nodes.

A request that one node could hold goes to the node with the fewest free GPUs that suffices (ties:
the first in the list), and waits if there is none. A larger one takes wholly idle nodes, the
largest first, as long as it fills them, and what remains goes to the best-fitting other node. Types
are never mixed within a job.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from math import inf
from operator import and_
from typing import cast

from rota.core.allocation import Allocation
from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.placement.alike import Alike, Counter, Wanted
from rota.placement.base import Changed, Placement, Room
from rota.placement.choices import Choice, best_node
from rota.placement.room import tidy


class SearchingConsolidate(Placement):
    """The general form, for clusters with unequal nodes, CPUs, memory or labels."""

    name = "consolidate"
    splits = False
    local = True

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        self._orders: dict[int, Sequence[Sequence[int]]] = {}
        self._could: dict[int, list[int]] = {}  # shape -> nodes that could hold all of it
        self._counted = False  # the last walk did not need a trial
        # a request that may be divided needs no single node
        self._counter = (
            Counter(self.room, self._kind_of) if self.local and not self.splits else None
        )
        self._whole: dict[tuple[int, int], Allocation] = {}  # position, GPUs -> only those

    def fits(self, shape: Shape) -> bool:
        """By counting nodes, where only whole GPUs matter."""
        wanted = None if self._counter is None else self._counter.wanted(shape)
        return super().fits(shape) if wanted is None else wanted.fits()

    def enough_accepted(self, shape: Shape) -> bool:
        """As in the base; whole GPUs are counted by kind of node."""
        if self._counter is not None and not self.room.shares:
            wanted = self._counter.wanted(shape)
            if wanted is not None:
                return wanted.need <= wanted.free
        return super().enough_accepted(shape)

    def only_nodes(self, shape: Shape) -> Alike | None:
        """Those of one kind, where only whole GPUs matter."""
        if self._counter is None or shape.gpu_mem_gib:
            return None
        wanted = self._counter.wanted(shape)
        return None if wanted is None else wanted.only

    def take(self, job: Job, shape: Shape | None = None) -> Allocation:
        """As in the base; whole GPUs of a node are one object for all who get them."""
        shape = shape or job.shape
        wanted = None if self._counter is None else self._counter.wanted(shape)
        if wanted is None or not wanted.one_node:
            return super().take(job, shape)
        position = self._fullest_with(wanted.need, shape)
        made = self._whole.get((position, wanted.need))
        if made is None:
            made = self.allocation(shape, [(position, wanted.need)])
            self._whole[position, wanted.need] = made
        self._book(made, -1)
        return made

    def _fullest_with(self, need: int, shape: Shape) -> int:
        """The position of the node with the fewest free GPUs that suffice, the first of these."""
        gpus, up = self.room.gpus, self.room.up
        best, lowest = -1, inf
        for position in self._large_enough(shape):
            if need <= gpus[position] < lowest and up[position]:
                best, lowest = position, gpus[position]
                if lowest == need:
                    break
        if best < 0:
            raise RuntimeError(f"{self.name}: {shape.describe()} do not fit")
        return best

    def _book(self, allocation: Allocation, sign: int) -> None:
        """As in the base, and count."""
        counter = self._counter
        if counter is None:
            super()._book(allocation, sign)
            return
        where = self._where
        touched: Iterable[int]
        if len(allocation.slices) == 1:
            touched = (where[allocation.slices[0][0]][0],)
        else:
            touched = {where[vertex][0] for vertex, _ in allocation.slices}
        counter.leave(touched)
        super()._book(allocation, sign)
        counter.enter(touched)

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """Nodes that are down are not counted."""
        if self._counter is None:
            super().set_node(node, up=up)
            return
        touched = (self._where[node.id][0],)
        self._counter.leave(touched)
        super().set_node(node, up=up)
        self._counter.enter(touched)

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """One node if any is large enough, else whole nodes of one type plus a remainder."""
        need = shape.gpus or 1
        if need >= 1 and shape.gpus and self.fits_one_node(shape):
            best = _tightest(need, shape, room, self._large_enough(shape))
            return None if best < 0 else [(best, need)]
        if self.fits_one_node(shape):  # without GPUs, or a part of one
            offers = room.offers(shape)
            best = best_node(need, range(len(offers)), offers, room.left)
            return None if best < 0 else [(best, need)]
        return self._whole_nodes(need, shape, room)

    def _large_enough(self, shape: Shape) -> list[int]:
        """The nodes that could hold all of it if they were empty."""
        known = self._could.get(shape.number)
        if known is None:
            need = shape.gpus
            known = [position for position, most in enumerate(self.capacity(shape)) if most >= need]
            self._could[shape.number] = known
        return known

    def _whole_nodes(self, need: float, shape: Shape, room: Room) -> Choice | None:
        """Idle nodes of one type, the largest first, and the fullest other one for the rest."""
        capacity, gpus, usable = self.capacity(shape), room.gpus, room.usable
        for largest_first in self._largest_first(shape):
            if ordered_sum(map(gpus.__getitem__, largest_first)) < need:
                continue
            choice: Choice = []
            rest = need
            for position in largest_first:
                size = capacity[position]
                if size <= rest and gpus[position] >= size and usable(position, shape) >= size:
                    choice.append((position, size))
                    rest -= size
            if not rest:
                return choice
            taken = {position for position, _ in choice}
            others = [position for position in largest_first if gpus[position] >= rest]
            last, lowest = -1, inf
            for position in sorted(others):
                free = gpus[position]
                if free < lowest and position not in taken and usable(position, shape) >= rest:
                    last, lowest = position, free
            if last >= 0:
                return [*choice, (last, rest)]
        return None

    def _largest_first(self, shape: Shape) -> Sequence[Sequence[int]]:
        """By type, the nodes that could serve a part of a request: those that serve most first."""
        known = self._orders.get(shape.number)
        if known is None:
            capacity = self.capacity(shape)
            known = self._orders[shape.number] = [
                sorted((p for p in positions if capacity[p] > 0), key=lambda p: (-capacity[p], p))
                for positions in self.kinds
            ]
        return known

    def walk(self, shape: Shape, lower: Iterable[Job]) -> bool:
        """As in the base; whole GPUs are counted, without choosing after every step."""
        room = self.room
        wanted = None if self._counter is None else self._counter.wanted(shape)
        if wanted is not None and not wanted.one_node and not room.shares:
            self._counted = True
            return self._walk_nodes(shape, wanted, lower)
        self._counted = (
            not self.splits  # a request that may be divided needs no single node
            and shape.gpus >= 1
            and shape.gpus % 1 == 0
            and not shape.apart
            and not room.shares
            and self.fits_one_node(shape)
            and not (shape.resources and room.supply)  # somebody on another node may have it
        )
        if not self._counted:
            return super().walk(shape, lower)
        self._shape = shape
        beside = (shape.cpus and room.has_cpus) or (shape.mem_gib and room.has_mem)
        if beside or shape.resources:
            return self._walk_beside(shape, lower)
        tail = self._tail = []
        need = shape.gpus
        have = room.gpus[:]
        fine = list(map(and_, room.up, room.matching(shape)))
        where = self._where
        enough = False
        for job in lower:
            tail.append(job)
            for vertex, amount in job.allocation.slices:
                position = where[vertex][0]
                have[position] += amount
                if have[position] >= need and fine[position]:
                    enough = True
            if enough:
                return True
        return False

    def _walk_nodes(self, shape: Shape, wanted: Wanted, lower: Iterable[Job]) -> bool:
        """Until enough nodes are idle, and one more has room for the rest."""
        self._shape = shape
        tail = self._tail = []
        have, where = self.room.gpus[:], self._where
        fine = list(map(and_, self.room.up, self.room.matching(shape)))
        size, whole, rest = wanted.size, wanted.whole, wanted.rest
        idle, partly = wanted.idle(), wanted.partly()
        for job in lower:
            tail.append(job)
            for vertex, amount in job.allocation.slices:
                position = where[vertex][0]
                before = have[position]
                free = have[position] = before + amount
                if fine[position]:
                    idle += (free == size) - (before == size)  # guests hold 0 GPUs
                    partly += (rest <= free < size) - (rest <= before < size)
            if idle >= whole and wanted.suffices(idle, partly):
                return True
        return False

    def _walk_beside(self, shape: Shape, lower: Iterable[Job]) -> bool:
        """With CPUs and memory: only a node on which somebody leaves can have room by that."""
        tail = self._tail = []
        need = shape.gpus
        trial = self._trial = self.room.copy()
        self._counted = False  # the trial is what it is
        where, shift = self._where, self._shift
        for job in lower:
            tail.append(job)
            allocation = job.allocation
            shift(trial, allocation, +1)
            for vertex in allocation.vertices or [place for place, _, _ in allocation.extra]:
                position = where[vertex][0]
                if trial.gpus[position] >= need and trial.usable(position, shape) >= need:
                    return True
        return False

    def victims(self) -> list[Job]:
        """As in the base."""
        if self._counted:
            self._trial = self.room.copy()
            for job in self._tail:
                self._shift(self._trial, job.allocation, +1)
        return super().victims()


def _tightest(need: float, shape: Shape, room: Room, hosts: Iterable[int]) -> int:
    """`best_node` for whole GPUs: a node offers no more than it has, so few have to be asked."""
    if shape.plain and need % 1 == 0 and not room.divisible:
        return _fullest(need, room)
    gpus, usable = room.gpus, room.usable
    best, lowest = -1, inf
    for position in hosts:
        free = gpus[position]
        if need <= free < lowest and usable(position, shape) >= need:
            best, lowest = position, free
    return best


def _fullest(need: float, room: Room) -> int:
    """The same where only GPUs count: the first node with just enough, else with one more, ..."""
    gpus, up = room.gpus, room.up
    for free in range(int(need), int(max(gpus)) + 1):
        position = -1
        for _ in range(gpus.count(free)):
            position = gpus.index(free, position + 1)
            if up[position]:
                return position
    return -1


class Consolidate(SearchingConsolidate):
    """The same on equal nodes with nothing but GPUs: nodes are sorted into buckets by free GPUs.

    Parts of GPUs, requests without GPUs and those that windows bar from nodes go the general way;
    so does a walk as long as some GPU is shared.
    """

    filters = True
    local = False  # it keeps its own books

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        nodes = topology.nodes
        self.size = nodes[0].gpus
        # wholly free GPUs per node: the very list of the room, whole numbers on whole nodes
        self.node_free = cast("list[int]", self.room.gpus)
        self.buckets: list[list[int]] = [[] for _ in range(self.size + 1)]
        self.buckets[self.size] = list(range(len(nodes)))
        self._up = self.room.up
        self._shares = self.room.shares
        self._filled = 1 << self.size  # bit f is set if bucket f holds a node
        self._on: list[dict[int, int]] = [{} for _ in nodes]  # job -> whole GPUs there
        self._single: dict[tuple[int, int], Allocation] = {}
        self._lookup = [-1] * len(topology.vertices)
        for vertex, (position, _) in self._where.items():
            self._lookup[vertex] = position
        # the last walk
        self._quick = False
        self._have: list[float] = []
        self._best = -1
        self._idle: list[int] = []

    # --- buckets ----------------------------------------------------------------------------------

    def _remove(self, position: int) -> None:
        free = self.node_free[position]
        bucket = self.buckets[free]
        del bucket[bisect_left(bucket, position)]
        if not bucket:
            self._filled ^= 1 << free

    def _insert(self, position: int) -> None:
        free = self.node_free[position]
        insort(self.buckets[free], position)
        self._filled |= 1 << free

    def _move(self, position: int, free: int) -> None:
        """`_remove`, change, `_insert` in one, for the hot path."""
        if self._up[position]:
            before = self.node_free[position]
            bucket = self.buckets[before]
            del bucket[bisect_left(bucket, position)]
            if not bucket:
                self._filled ^= 1 << before
            insort(self.buckets[free], position)
            self._filled |= 1 << free
        self.node_free[position] = free

    def _book(self, allocation: Allocation, sign: int) -> None:
        """What goes the general way changes the room behind the back of the buckets."""
        touched = [p for p in self._positions(allocation) if self._up[p]]
        for position in touched:
            self._remove(position)
        super()._book(allocation, sign)
        for position in touched:
            self._insert(position)

    # --- the contract -----------------------------------------------------------------------------

    def fits(self, shape: Shape) -> bool:
        """A bucket with enough, or enough idle nodes."""
        if shape.searched:
            return self._possible(shape, self.room)
        gpus: int = shape.gpus  # type: ignore[assignment]  # whole unless below 1
        size = self.size
        if gpus <= size:
            return self._filled >> gpus != 0 if gpus >= 1 else self.feasible(shape, self.room)
        whole, rest = divmod(gpus, size)
        idle = len(self.buckets[size])
        return idle > whole or (
            idle == whole and (rest == 0 or self._filled >> rest != 1 << (size - rest))
        )

    def take(self, job: Job, shape: Shape | None = None) -> Allocation:
        """Best fit through the buckets."""
        if job.shape.searched:
            return self._take_apart(job, shape or job.shape)
        gpus: int = job.gpus if shape is None else shape.gpus  # type: ignore[assignment]  # as above
        if gpus > self.size:
            return self._take_many(job, gpus)
        if gpus < 1:
            return super().take(job, shape)
        position = self._take_best(job, gpus)
        made = self._single.get((position, gpus))
        if made is None:
            made = Allocation([(self.topology.nodes[position].id, gpus)])
            self._single[position, gpus] = made
        return made

    def _take_apart(self, job: Job, shape: Shape) -> Allocation:
        allocation = self.allocation(shape, self._pick(shape, self.room, job) or [])
        self.hold(job, allocation)
        return allocation

    def _take_best(self, job: Job, gpus: int) -> int:
        """Take GPUs on the fullest node with enough; its position."""
        buckets = self.buckets
        possible = self._filled >> gpus
        free = gpus + (possible & -possible).bit_length() - 1
        bucket = buckets[free]  # `_move`, written out: it is hot
        position = bucket.pop(0)
        if not bucket:
            self._filled ^= 1 << free
        left = self.node_free[position] = free - gpus
        insort(buckets[left], position)
        self._filled |= 1 << left
        self._on[position][job.index] = gpus
        self.free -= gpus
        if self._shares:
            self.free = tidy(self.free)
        return position

    def _take_many(self, job: Job, gpus: int) -> Allocation:
        """Idle nodes in order, and the rest on the fullest other node."""
        size, nodes = self.size, self.topology.nodes
        whole, rest = divmod(gpus, size)
        chosen = self.buckets[size][:whole]
        for position in chosen:
            self._move(position, 0)
            self._on[position][job.index] = size
        self.free = tidy(self.free - whole * size)
        slices = [(nodes[position].id, size) for position in chosen]
        if rest:
            slices.append((nodes[self._take_best(job, rest)].id, rest))
        return Allocation(slices)

    def hold(self, job: Job, allocation: Allocation) -> None:
        """Reserve exactly this."""
        if allocation.gpus < 1:
            super().hold(job, allocation)
            return
        for vertex, part in allocation.slices:
            amount = int(part)
            position = self._lookup[vertex]
            self._move(position, self.node_free[position] - amount)
            on = self._on[position]  # whoever chose it may have named single GPUs of the node
            on[job.index] = on.get(job.index, 0) + amount
            if self._up[position]:
                self.free = tidy(self.free - amount)

    def give(self, job: Job, allocation: Allocation) -> None:
        """Return to the buckets."""
        if allocation.gpus < 1:
            super().give(job, allocation)
            return
        for vertex in allocation.vertices:
            position = self._lookup[vertex]
            amount = self._on[position].pop(job.index, 0)
            if not amount:  # returned with another GPU of the same node
                continue
            self._move(position, self.node_free[position] + amount)
            if self._up[position]:
                self.free += amount
        if self._shares:
            self.free = tidy(self.free)

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """A node that is down is in no bucket."""
        position = self._lookup[node.id]
        if self._up[position] == up:
            return
        if not up:
            self._remove(position)
        super().set_node(node, up=up)
        if up:
            self._insert(position)

    # --- would it fit if these were gone? ---------------------------------------------------------

    def walk(self, shape: Shape, lower: Iterable[Job]) -> bool:
        """As in the base, without copying the room."""
        self._quick = shape.gpus >= 1 and not self._shares and not shape.searched
        if not self._quick:
            return super().walk(shape, lower)
        self._shape = shape
        if shape.gpus <= self.size:
            return self._walk_one(shape.gpus, lower)
        return self._walk_many(cast("int", shape.gpus), lower)

    def _walk_one(self, need: float, lower: Iterable[Job]) -> bool:
        """Until one node has enough."""
        have: list[float] = self.node_free[:]  # type: ignore[assignment]  # whole numbers are floats
        self._have = have
        tail: list[Job] = []
        self._tail = tail
        lookup = self._lookup
        best = -1
        for job in lower:
            tail.append(job)
            for vertex, amount in job.allocation.slices:
                position = lookup[vertex]
                free = have[position] = have[position] + amount
                if (
                    free >= need
                    and self._up[position]
                    and (best < 0 or (free, position) < (have[best], best))
                ):
                    best = position
            if best >= 0:
                self._best = best
                return True
        return False

    def _walk_many(self, need: int, lower: Iterable[Job]) -> bool:
        """Until enough nodes are idle, and one more has room for the rest."""
        size = self.size
        whole, rest = divmod(need, size)
        have: list[float] = self.node_free[:]  # type: ignore[assignment]  # whole numbers are floats
        self._have = have
        tail: list[Job] = []
        self._tail = tail
        idle = self._idle = self.buckets[size][:]
        partly = sum(map(len, self.buckets[rest:size]))  # other nodes with room for the rest
        for job in lower:
            tail.append(job)
            for vertex, amount in job.allocation.slices:
                position = self._lookup[vertex]
                before = have[position]
                free = have[position] = before + amount
                if self._up[position]:
                    if before < free == size:  # guests hold 0 GPUs
                        idle.append(position)
                    partly += (rest <= free < size) - (rest <= before < size)
            if len(idle) > whole or (len(idle) == whole and (rest == 0 or partly)):
                return True
        return False

    def victims(self) -> list[Job]:
        """From the best-ranked down, jobs that still leave room on the chosen nodes stay."""
        if not self._quick:
            return super().victims()
        if self._shape.gpus > self.size:
            return self._victims_of_many()
        best = self._best
        on = self._on[best]
        spare = self._have[best] - self._shape.gpus
        out = []
        for job in reversed(self._tail):
            if job.index in on:
                amount = on[job.index]
                if amount <= spare:
                    spare -= amount
                else:
                    out.append(job)
        return out

    def _victims_of_many(self) -> list[Job]:
        spare = self._spare()
        lookup = self._lookup
        out = []
        for job in reversed(self._tail):
            on = [(lookup[v], a) for v, a in job.allocation.slices if lookup[v] in spare]
            if all(amount <= spare[position] for position, amount in on):
                for position, amount in on:
                    spare[position] -= amount
            else:
                out.append(job)
        return out

    def _spare(self) -> dict[int, float]:
        """The chosen nodes with what stays free on them."""
        have, up = self._have, self._up
        whole, rest = divmod(cast("int", self._shape.gpus), self.size)
        spare: dict[int, float] = dict.fromkeys(sorted(self._idle)[:whole], 0)
        if rest:
            free, position = min(
                (free, position)
                for position, free in enumerate(have)
                if free >= rest and up[position] and position not in spare
            )
            spare[position] = free - rest
        return spare

    def changed(self, shape: Shape, dirty: set[int]) -> Sequence[Changed] | None:
        """A one-node request that failed can only fit on a node where something changed."""
        if shape.gpus > self.size or shape.gpus < 1 or self._shares or shape.searched:
            return None
        lookup, free, on = self._lookup, self.node_free, self._on
        return [(free[at], on[at]) for at in map(lookup.__getitem__, dirty)]


def consolidate(topology: Topology, params: Params | None = None, *, seed: int = 0) -> Placement:
    """The fast form where it is exact, the general one elsewhere."""
    kind: type[Placement] = Consolidate if topology.is_uniform else SearchingConsolidate
    return kind(topology, params, seed=seed)
