"""Why a request that comes next does not start, by what is free at this very moment.

It is true at every moment: when others take GPUs or give them back, the reason changes with what is
then free. The first that is true counts:

1. `capacity`: all nodes that are up together have fewer GPUs (CPUs, GiB of memory, licences) free
   than it asks for;
2. `constraint`: they have enough, but those among them that the request accepts (GPU type, labels)
   have not;
3. `memory`: there would be a place for it if it asked for no memory of GPUs;
4. `gang`: those have enough; it asks for several nodes of its own, at least one of its tasks would
   find one, and not all of them do: tasks that may start one by one would begin;
5. `fragmentation`: those have enough, but there is no place for it: the free GPUs are spread over
   nodes in another way than its placement allows.

Before all of these come `maintenance` and `reserved`: a window (`rota.core.windows`) bars it from
nodes, and it would fit if it did not, or bars it from all that it could ever use.

Only requests whose tasks are placed one by one (each on a node of its own) have parts that could
start. All others are one piece to a placement, however many GPUs they ask for.
"""

from bisect import bisect_right, insort
from itertools import compress
from operator import and_
from typing import NamedTuple, TypeAlias

from rota.core.events import INF
from rota.core.jobs import Shape
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.windows import reason_of
from rota.placement.base import EPSILON, Placement

CAPACITY = int(Reason.CAPACITY)
FRAGMENTATION = int(Reason.FRAGMENTATION)
GANG = int(Reason.GANG)
CONSTRAINT = int(Reason.CONSTRAINT)
MEMORY = int(Reason.MEMORY)
ROOM = (
    CAPACITY, CONSTRAINT, MEMORY, GANG, FRAGMENTATION, Reason.MAINTENANCE, Reason.RESERVED,
)  # fmt: skip
"""Reasons that depend on what is free."""

Eligible: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], float]
"""GPU types, labels and GPU memory that a request accepts: which nodes count for it."""
ANY: Eligible = ((), (), 0.0)


def why_not(placement: Placement, shape: Shape) -> int:  # noqa: PLR0911 - one for each
    """The reason of a request that does not fit now."""
    opened = shape.opened
    if opened is not None:
        if placement.fits(opened) or not placement.eligible(shape):
            return int(reason_of(shape.labels))
        shape = opened  # not for its windows
    if shape.gpus > placement.free:
        return CAPACITY
    if shape.plain or placement.pooled:
        return FRAGMENTATION
    room = placement.room
    more = (shape.cpus and room.has_cpus) or (shape.mem_gib and room.has_mem) or shape.resources
    if more and not placement.enough(shape):
        return CAPACITY
    choosy = shape.types or shape.labels or shape.gpu_mem_gib
    if choosy and not placement.enough_accepted(shape):
        return CONSTRAINT
    if shape.gpu_mem_gib and placement.fits(shape.weightless):
        return MEMORY
    if shape.apart:
        part = shape.gpus / shape.apart
        if any(room.usable(position, shape) >= part for position in range(len(room.nodes))):
            return GANG
    return FRAGMENTATION


class Watched(NamedTuple):
    """A sum of what is free that decides over reasons, and what shapes ask of it.

    `among` is a shape: only nodes that it accepts are counted; None: all.
    """

    kind: str
    among: Shape | None
    needs: list[tuple[float, int]]  # what is asked for, number of the shape; sorted


class Blamed:
    """Shapes whose head finds no place, and why: true after every change of what is free.

    A reason compares what a shape asks for with sums of what is free. So it can only change when
    such a sum passes what the shape asks for, and a change of what is free needs to look at the
    shapes in between only. Gangs, and those that ask for memory of GPUs, are looked at every time:
    theirs depends on single nodes, too.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.reasons: dict[int, int] = {}
        self._shapes: dict[int, Shape] = {}
        self._plain: list[tuple[float, int]] = []  # those for which only GPUs count
        self._free = placement.free
        self.lowest: float = -INF  # no reason changes while so many are free (inf: look anyway) ...
        self.below: float = INF  # ... and fewer than this
        self._watched: dict[tuple[str, Eligible], Watched] = {}
        self._sums: dict[tuple[str, Eligible], float] = {}
        self._gangs: set[int] = set()
        self._doubtful: set[int] = set()

    def stale(self) -> bool:
        """Must `changed` be asked?"""
        return not self.lowest <= self._placement.free < self.below

    def add(self, shape: Shape) -> int:
        """The head of this shape finds no place; returns why. The others must not be `stale`."""
        number = shape.number
        self._free = free = self._placement.free
        reason = self.reasons[number] = why_not(self._placement, shape)
        self._shapes[number] = shape
        if shape.plain or self._placement.pooled:
            insort(self._plain, (shape.gpus, number))
            if shape.gpus > free:
                self.below = min(self.below, shape.gpus)
            else:
                self.lowest = max(self.lowest, shape.gpus)
            return reason
        for key, among, need in self._compared(shape):
            if key not in self._watched:
                self._watched[key] = Watched(key[0], among, [])
                self._sums[key] = self._sum(key[0], among)
            insort(self._watched[key].needs, (need, number))
        self.lowest = INF
        if shape.apart or shape.opened is not None or shape.gpu_mem_gib:
            self._gangs.add(number)
        return reason

    def resume(self, shape: Shape, told: int) -> None:
        """Take up what was told of a shape before: the cluster may have changed since."""
        if self.add(shape) != told:
            self.reasons[shape.number] = told
            self._doubtful.add(shape.number)
            self.lowest = INF

    def remove(self, number: int) -> None:
        """No job of this shape waits any more, or its head is not next."""
        self._doubtful.discard(number)
        del self.reasons[number]
        shape = self._shapes.pop(number)
        if shape.plain or self._placement.pooled:
            self._plain.remove((shape.gpus, number))
            return
        for key, _, need in self._compared(shape):
            needs = self._watched[key].needs
            needs.remove((need, number))
            if not needs:
                del self._watched[key], self._sums[key]
        self._gangs.discard(number)

    def changed(self) -> list[tuple[int, int]]:
        """Shapes with another reason than before, and the new one; to be asked if `stale`."""
        free = self._placement.free
        candidates = _between(self._plain, self._free, free)
        self._free = free
        self._bound()
        if self._watched:
            found = set(self._gangs)
            for key, (kind, among, needs) in self._watched.items():
                total = self._sum(kind, among)
                found.update(_between(needs, self._sums[key], total, dust=2 * EPSILON))
                self._sums[key] = total
            candidates += sorted(found)
        changes = []
        candidates += self._doubtful.difference(candidates)
        self._doubtful.clear()
        for number in candidates:
            reason = why_not(self._placement, self._shapes[number])
            if reason != self.reasons[number]:
                self.reasons[number] = reason
                changes.append((number, reason))
        return changes

    def _bound(self) -> None:
        at = bisect_right(self._plain, (self._free, INF))
        self.lowest = self._plain[at - 1][0] if at else -INF
        if self._watched:  # several sums decide: not only how many GPUs are free
            self.lowest = INF
        self.below = self._plain[at][0] if at < len(self._plain) else INF

    def _compared(self, shape: Shape) -> list[tuple[tuple[str, Eligible], Shape | None, float]]:
        """The sums on which its reason depends, and what it asks of each."""
        room = self._placement.room
        needs = [("gpus", shape.gpus)]
        if shape.cpus and room.has_cpus:
            needs.append(("cpus", shape.cpus))
        if shape.mem_gib and room.has_mem:
            needs.append(("mem_gib", shape.mem_gib))
        needs += [
            (kind, need)
            for kind, need in shape.resources.items()
            if kind in room.more or kind in room.supply
        ]
        compared: list[tuple[tuple[str, Eligible], Shape | None, float]] = [
            ((kind, ANY), None, need) for kind, need in needs
        ]
        if shape.types or shape.labels or shape.gpu_mem_gib:
            eligible = (shape.types, shape.labels, shape.gpu_mem_gib)
            compared += [((kind, eligible), shape, need) for kind, need in needs]
        return compared

    def _sum(self, kind: str, among: Shape | None) -> float:
        if kind == "gpus" and among is None:
            return self._placement.free
        room = self._placement.room
        if kind in room.supply:
            return room.supply[kind]
        use = room.up if among is None else list(map(and_, room.up, room.matching(among)))
        if kind == "gpus":
            return room.free_gpus(use)
        free = {"cpus": room.cpus, "mem_gib": room.mem_gib}.get(kind)
        return ordered_sum(compress(room.more[kind] if free is None else free, use))


def _between(
    needs: list[tuple[float, int]], was: float, now: float, *, dust: float = 0.0
) -> list[int]:
    """Shapes that ask for more than one of these amounts, and not for more than the other."""
    low, high = (was, now) if was < now else (now, was)
    first = bisect_right(needs, (low - dust, INF))
    last = bisect_right(needs, (high + dust, INF), lo=first)
    return [number for _, number in needs[first:last]]
