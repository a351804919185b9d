"""What is free on each node, and what of a request each node could serve."""

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import and_

from rota.core.allocation import TERMS, Amount
from rota.core.jobs import Shape
from rota.core.resources import GPU_MEMORY, ResourceKind
from rota.core.sharing import EXCLUSIVE, MIG
from rota.core.spec import MARK
from rota.core.sums import ordered_sum
from rota.core.topology import Vertex

EPSILON = 1e-9  # fractions of GPUs and CPUs are sums of floats
DIGITS = 9  # to which such sums are rounded, so that 1 - 0.9 leaves room for 0.1
WHOLE = -1  # instead of the number of a GPU: whole GPUs of a node, whichever they are


class Room:
    """Free amounts, by position in the list of nodes.

    `gpus` counts the GPUs that are wholly free. A GPU shared by jobs that ask for less than one is
    not among them: `shares` holds what is left of it, by position of the node and then by number of
    the GPU on its node. Pools of GPUs (`divisible`) know no devices: there a fraction is just an
    amount.

    `gpu_mem` is the memory in use on shared GPUs, as `shares` is; of pools it is what is free of
    all their GPUs. `more` has what is free of other kinds, by kind and position; kinds of which a
    shortage only slows jobs down are not in it. `supply` has what is free of those that the cluster
    has as a whole: who lacks some of that finds no room on any node.
    """

    __slots__ = (
        "_matching", "_modes", "_soft", "cpus", "divisible", "gpu_mem", "gpus", "has_cpus",
        "has_gpu_mem", "has_mem", "mem_gib", "more", "nodes", "pool_mem", "shares", "supply", "up",
    )  # fmt: skip

    def __init__(
        self,
        nodes: Sequence[Vertex],
        *,
        divisible: bool = False,
        modes: Mapping[int, Sequence[str]] | None = None,
        kinds: Mapping[str, ResourceKind] | None = None,
        supply: Mapping[str, float] | None = None,
    ) -> None:
        self.nodes = nodes
        self.divisible = divisible
        self.gpus: list[float] = [node.gpus for node in nodes]
        self.cpus: list[float] = [node.cpus for node in nodes]
        self.mem_gib: list[float] = [node.mem_gib for node in nodes]
        self.shares: dict[int, dict[int, float]] = {}
        self.up = [True] * len(nodes)
        self.has_cpus = any(self.cpus)
        self.has_mem = any(self.mem_gib)
        self.has_gpu_mem = any(node.gpu_mem_gib for node in nodes)
        self.gpu_mem: dict[int, dict[int, float]] = {}
        self.pool_mem: list[float] = []
        if divisible and self.has_gpu_mem:
            self.pool_mem = [node.gpus * node.gpu_mem_gib for node in nodes]
        self.more: dict[str, list[float]] = {
            kind: [node.resources.get(kind, 0.0) for node in nodes]
            for kind in dict.fromkeys(kind for node in nodes for kind in node.resources)
            if kinds is None or not kinds[kind].compressible
        }
        self.supply: dict[str, float] = dict(supply or {})
        self._soft = {kind for kind in self.supply if kinds and kinds[kind].compressible}
        for kind in self._soft:
            del self.supply[kind]
        self._modes = modes or {}  # of the GPUs of nodes where not every part is welcome
        self._matching: dict[int, list[bool]] = {}

    def copy(self) -> "Room":
        """An independent copy of what is free; nodes stay up or down together."""
        other = Room.__new__(Room)
        other.nodes, other.divisible = self.nodes, self.divisible
        other.gpus, other.cpus, other.mem_gib = self.gpus[:], self.cpus[:], self.mem_gib[:]
        other.shares = {position: shared.copy() for position, shared in self.shares.items()}
        other.up = self.up
        other.has_cpus, other.has_mem = self.has_cpus, self.has_mem
        other.has_gpu_mem, other._modes = self.has_gpu_mem, self._modes  # noqa: SLF001 - see above
        other.gpu_mem = {position: used.copy() for position, used in self.gpu_mem.items()}
        other.pool_mem = self.pool_mem[:]
        other.more = {kind: free[:] for kind, free in self.more.items()}
        other.supply, other._soft = self.supply.copy(), self._soft  # noqa: SLF001 - its own class
        other._matching = self._matching  # noqa: SLF001 - its own class
        return other

    # --- what a request could get -----------------------------------------------------------------

    def matching(self, shape: Shape) -> list[bool]:
        """Which nodes are of a kind that the request accepts, up or not."""
        known = self._matching.get(shape.number)
        if known is None:
            asks = shape.opened is not None or any(not n.startswith(MARK) for n in shape.labels)
            if not asks and not shape.types and not shape.gpu_mem_gib:
                self._matching[shape.number] = known = [True] * len(self.nodes)
                return known
            known = self._matching[shape.number] = [
                (not shape.types or node.gpu_type in shape.types)
                and node.suits(shape.labels)
                and shape.gpu_mem_gib <= node.gpu_mem_gib + EPSILON
                for node in self.nodes
            ]
        return known

    def offers(self, shape: Shape) -> Sequence[float]:
        """What every node could serve of the request now (see `usable`); not to be changed."""
        plain = shape.plain and not self.pool_mem
        if plain and shape.gpus >= 1 and (self.divisible or shape.gpus % 1 == 0):
            if all(self.up):
                return self.gpus
            return [gpus if up else 0 for gpus, up in zip(self.gpus, self.up, strict=True)]
        if 0 < shape.gpus < 1 and not (
            self.divisible or self._modes or shape.gpu_mem_gib or shape.resources
        ):
            return self._part_offers(shape)
        if shape.gpus < 1 or (shape.gpus % 1 and not self.divisible):
            return [self.usable(position, shape) for position in range(len(self.nodes))]
        return self._whole_offers(shape)

    def _part_offers(self, shape: Shape) -> list[float]:
        """`usable` of every node, without a call for each: for a part of a GPU of any mode."""
        part = shape.gpus - EPSILON
        fine = list(map(and_, self.up, self.matching(shape)))
        for known, have, need in (
            (self.has_cpus, self.cpus, shape.cpus - EPSILON),
            (self.has_mem, self.mem_gib, shape.mem_gib - EPSILON),
        ):
            if known:
                fine = [yes and free >= need for yes, free in zip(fine, have, strict=True)]
        offers = [
            shape.gpus if yes and free >= 1 else 0
            for yes, free in zip(fine, self.gpus, strict=True)
        ]
        for position, shared in self.shares.items():
            if fine[position] and not offers[position] and max(shared.values()) >= part:
                offers[position] = shape.gpus
        return offers

    def _whole_offers(self, shape: Shape) -> list[float]:
        """`usable` of every node, without a call for each: for requests of one GPU or more."""
        alike = zip(self.gpus, self.up, self.matching(shape), strict=True)
        offers = [gpus if up and fine else 0 for gpus, up, fine in alike]
        for known, have, need in (
            (self.has_cpus, self.cpus, shape.cpus),
            (self.has_mem, self.mem_gib, shape.mem_gib),
        ):
            if need and known:
                each = need / shape.gpus
                offers = list(map(min, offers, [int(amount / each + EPSILON) for amount in have]))
        if shape.resources or self.pool_mem:
            offers = [min(offer, self._times(p, shape)) for p, offer in enumerate(offers)]
        return offers

    def _times(self, position: int, shape: Shape) -> float:
        """How many GPUs of the request other kinds suffice for on this node."""
        times = float("inf")
        for kind, need in shape.resources.items():
            if kind in self.supply:
                if need > self.supply[kind] + EPSILON:
                    return 0
            elif need and kind in self.more:
                times = min(times, _times(self.more[kind][position], need / (shape.gpus or 1)))
            elif need and kind not in TERMS and not self._somewhere(kind):
                return 0  # nobody has it
        if self.pool_mem and shape.gpus >= 1 and self.nodes[position].gpu_mem_gib:
            times = min(times, _times(self.pool_mem[position], self.nodes[position].gpu_mem_gib))
        return times

    def usable(self, position: int, shape: Shape) -> float:
        """How many of the request's GPUs this node could serve now, each with its CPUs and memory.

        A request for less than one GPU is not divided: all of it or 0. One without GPUs counts as
        1.
        """
        if not self.up[position] or not self.matching(shape)[position]:
            return 0
        need = shape.gpus
        if need < 1:
            return (need or 1) if self._holds_part(position, shape) else 0
        if need % 1 and not self.divisible:
            return 0  # one and a half GPUs are neither whole ones nor a part of one
        usable = self.gpus[position]
        if shape.cpus and self.has_cpus:
            usable = min(usable, _times(self.cpus[position], shape.cpus / need))
        if shape.mem_gib and self.has_mem:
            usable = min(usable, _times(self.mem_gib[position], shape.mem_gib / need))
        if shape.resources or self.pool_mem:
            usable = min(usable, self._times(position, shape))
        return usable

    def _holds_part(self, position: int, shape: Shape) -> bool:
        """Has the node room for a request of less than one GPU?"""
        return (
            (not self.has_cpus or self.cpus[position] >= shape.cpus - EPSILON)
            and (not self.has_mem or self.mem_gib[position] >= shape.mem_gib - EPSILON)
            and (not shape.resources or self._times(position, shape) >= 1)
            and (
                not shape.gpus
                or self.device_for(position, shape.gpus, shape.gpu_mem_gib) is not None
            )
        )

    def device_for(self, position: int, part: float, mem_gib: float = 0.0) -> int | None:
        """The GPU of a node for a part of one: the fullest shared one with room, else a free one.

        Free ones are taken from the end, because those who run jobs count whole GPUs from the
        start.
        """
        if self.divisible:
            fine = not mem_gib or (self.pool_mem and self.pool_mem[position] >= mem_gib - EPSILON)
            return WHOLE if fine and self.gpus[position] >= part - EPSILON else None
        shared = self.shares.get(position, {})
        with_room = [(left, number) for number, left in shared.items() if left >= part - EPSILON]
        if with_room and (mem_gib or self._modes):
            with_room = [each for each in with_room if self.welcome(position, each[1], mem_gib)]
        if with_room:
            return min(with_room)[1]
        if self.gpus[position] < 1:
            return None
        numbers = range(self.nodes[position].gpus - 1, -1, -1)
        free = (number for number in numbers if number not in shared)
        if self._modes:
            free = (number for number in free if self.welcome(position, number, mem_gib))
        return next(free, None)

    def forget_modes(self) -> None:
        """Somebody else sees to it that GPUs are shared as they may be."""
        self._modes = {}

    def welcome(self, position: int, number: int, mem_gib: float) -> bool:
        """May a part of this GPU be given away, and is there as much memory on it?"""
        modes = self._modes.get(position)
        mode = modes[number] if modes else ""
        if mode == MIG or (mode == EXCLUSIVE and number in self.shares.get(position, {})):
            return False
        used = self.gpu_mem.get(position, {}).get(number, 0.0)
        return not mem_gib or used + mem_gib <= self.nodes[position].gpu_mem_gib + EPSILON

    def left(self, position: int) -> float:
        """GPUs free on a node, what is left of shared ones included."""
        shared = self.shares.get(position)
        return self.gpus[position] + ordered_sum(shared.values()) if shared else self.gpus[position]

    def _somewhere(self, kind: str) -> bool:
        return kind in self._soft or any(kind in node.resources for node in self.nodes)

    def free_gpus(self, use: Sequence[bool]) -> float:
        """The same on all of these nodes."""
        gpus: Amount = ordered_sum(compress(self.gpus, use))
        for position, shared in self.shares.items():
            if use[position]:
                gpus += ordered_sum(shared.values())
        return gpus

    def sum_of(self, kind: str) -> float:
        """What is free of a kind on all nodes that are up; inf if a shortage forbids nothing."""
        if kind in self.supply:
            return self.supply[kind]
        free = self.more.get(kind)
        if free is None:
            return float("inf") if kind in TERMS or self._somewhere(kind) else 0.0
        return ordered_sum(amount for amount, up in zip(free, self.up, strict=True) if up)

    # --- changes ----------------------------------------------------------------------------------

    def change(self, position: int, number: int, amount: float) -> None:
        """Free (or, if negative, take) GPUs of a node, or a part of one of them."""
        if number == WHOLE:
            self.gpus[position] = tidy(self.gpus[position] + amount)
            return
        shared = self.shares.setdefault(position, {})
        if number not in shared:
            shared[number] = 1.0
            self.gpus[position] -= 1
        shared[number] = tidy(shared[number] + amount)
        if shared[number] >= 1 - EPSILON:
            del shared[number]
            self.gpus[position] += 1
            if not shared:
                del self.shares[position]

    def change_extra(self, position: int, kind: str, amount: float, number: int = WHOLE) -> None:
        """Free (or take) what is used besides GPUs, on a node or on one of its GPUs."""
        if kind == "cpu":
            self.cpus[position] += amount
        elif kind == "memory":
            self.mem_gib[position] += amount
        elif kind in self.supply:
            self.supply[kind] = tidy(self.supply[kind] + amount)
        elif kind in self.more:
            self.more[kind][position] = tidy(self.more[kind][position] + amount)
        elif kind == GPU_MEMORY.name and self.pool_mem:
            self.pool_mem[position] = tidy(self.pool_mem[position] + amount)
        elif kind == GPU_MEMORY.name and number != WHOLE:
            used = self.gpu_mem.setdefault(position, {})
            used[number] = tidy(used.get(number, 0.0) - amount)
            if used[number] <= EPSILON:
                del used[number]


def tidy(amount: float) -> float:
    """The amount without the dust of float sums; whole numbers stay as they are."""
    return amount if isinstance(amount, int) else round(amount, DIGITS)


def _times(have: float, need: float) -> int:
    """Whole times that `need` goes into `have`."""
    return int(have / need + EPSILON)
