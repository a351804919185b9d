"""Nodes that are alike, counted by what is free on them: does a request fit, without searching."""

from collections.abc import Iterable, Sequence

from rota.core.jobs import Shape
from rota.placement.room import Room


class Alike:
    """Nodes of one kind and size: how many of those that are up have how many whole GPUs free."""

    __slots__ = ("changes", "counts", "filled", "free", "gpu_type", "size")

    def __init__(self, size: int, gpu_type: str) -> None:
        self.size = size
        self.gpu_type = gpu_type
        self.counts = [0] * (size + 1)
        self.filled = 0  # bit f is set if some node has f free
        self.free = 0  # on all of them
        self.changes = 0
        """Another number when anything has changed."""

    def add(self, free: int) -> None:
        """One more has so many free."""
        self.changes += 1
        self.counts[free] += 1
        self.filled |= 1 << free
        self.free += free

    def remove(self, free: int) -> None:
        """One less."""
        self.changes += 1
        self.counts[free] -= 1
        if not self.counts[free]:
            self.filled ^= 1 << free
        self.free -= free


class Wanted:
    """A request for whole GPUs and nothing else, and the nodes that it accepts.

    What fits one node goes to one node of any kind; more needs idle nodes of one size and type.
    """

    __slots__ = ("_among", "need", "only", "rest", "size", "whole")

    def __init__(self, need: int, among: Sequence[Alike]) -> None:
        self._among = among
        self.only = among[0] if len(among) == 1 else None
        self.need = need
        self.size = max(one.size for one in among)
        self.whole, self.rest = divmod(need, self.size)

    @property
    def one_node(self) -> bool:
        """Some node is large enough for all of it."""
        return self.need <= self.size

    @property
    def free(self) -> int:
        """GPUs that are free on the nodes that it accepts."""
        return sum([one.free for one in self._among])

    def fits(self) -> bool:
        """Is there room now?"""
        need = self.need
        if need <= self.size:
            for one in self._among:  # noqa: SIM110 - it is hot
                if one.filled >> need:
                    return True
            return False
        return self.suffices(self.idle(), self.partly())

    def idle(self) -> int:
        """Nodes that are wholly free."""
        return sum([one.counts[self.size] for one in self._among])

    def partly(self) -> int:
        """Other nodes with room for the rest."""
        return sum([sum(one.counts[self.rest : self.size]) for one in self._among])

    def suffices(self, idle: int, partly: int) -> bool:
        """So many nodes are enough for a request that no single one could hold."""
        return idle > self.whole or (idle == self.whole and (not self.rest or partly > 0))


class Counter:
    """All nodes with GPUs by kind and size, and who asks for which of them."""

    def __init__(self, room: Room, kind_of: Sequence[int]) -> None:
        self._room = room
        self._by_key: dict[tuple[int, int], Alike] = {}
        self._of: list[Alike | None] = []
        for kind, node in zip(kind_of, room.nodes, strict=True):
            if not node.gpus:
                self._of.append(None)
                continue
            key = (kind, node.gpus)
            if key not in self._by_key:
                self._by_key[key] = Alike(node.gpus, node.gpu_type)
            self._by_key[key].add(node.gpus)
            self._of.append(self._by_key[key])
        self._wanted: dict[int, Wanted | None] = {}

    def leave(self, positions: Iterable[int]) -> None:
        """What is free on these nodes changes: until they `enter` again they are not counted."""
        of, gpus, up = self._of, self._room.gpus, self._room.up
        for position in positions:
            alike = of[position]
            if alike is not None and up[position]:
                alike.remove(int(gpus[position]))

    def enter(self, positions: Iterable[int]) -> None:
        """It has changed."""
        of, gpus, up = self._of, self._room.gpus, self._room.up
        for position in positions:
            alike = of[position]
            if alike is not None and up[position]:
                alike.add(int(gpus[position]))

    def wanted(self, shape: Shape) -> Wanted | None:
        """How to count for this request; None if it has to be searched for."""
        number = shape.number
        if number in self._wanted:
            return self._wanted[number]
        wanted = self._wanted[number] = self._countable(shape)
        return wanted

    def _countable(self, shape: Shape) -> Wanted | None:
        room = self._room
        if (
            shape.gpus < 1
            or shape.gpus % 1
            or shape.searched
            or shape.resources
            or (shape.cpus and room.has_cpus)
            or (shape.mem_gib and room.has_mem)
        ):
            return None
        among = list(
            dict.fromkeys(
                alike
                for alike, fine in zip(self._of, room.matching(shape), strict=True)
                if fine and alike is not None
            )
        )
        if not among:
            return None
        wanted = Wanted(int(shape.gpus), among)
        equal = len({(one.size, one.gpu_type) for one in among}) == 1
        return wanted if equal or wanted.one_node else None
