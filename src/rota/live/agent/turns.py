"""Several jobs on one GPU in turns (`sharing: timeslice`): on a quantum some stop, others go on.

A job that is not in its turn keeps its memory and gives up compute. Turns are dealt out by the
terms of the jobs (weights, limits), as the model of shares has them (`rota.models.slicing`): who is
not ahead of its share and has the earliest deadline is next. A job with several GPUs has its turn
on all of them at once. A part that is to end, or that has its GPUs for itself, is let go; one that
is paused has no turns until its terms are others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import monotonic

from rota.core.sharing import OVERCOMMITS, TIMESLICE
from rota.core.sums import ordered_sum
from rota.live.agent.messages import AgentNode, PartKey
from rota.live.agent.parts import LocalPart
from rota.models.slicing import DUST, GpuClaim, divide

QUANTUM_S = 0.2
LEAST = 1e-4  # of the turns, for who has any
DIGITS = 6  # of a deadline, in turns

Place = tuple[str, int]
"""A node and the number of one of its GPUs."""


def shared_devices(node: AgentNode) -> frozenset[int]:
    """GPUs of a node that several jobs may have at a time."""
    return _of_modes(node, OVERCOMMITS)


def _of_modes(node: AgentNode, modes: Iterable[str]) -> frozenset[int]:
    return frozenset(number for number, mode in enumerate(node.spec.modes) if mode in modes)


class _Taker:
    """One that takes turns: a part, or the time of a GPU that nobody may have (no part)."""

    def __init__(self, name: PartKey, part: LocalPart | None) -> None:
        self.name, self.part = name, part
        self.shares: dict[Place, float] = {}  # of the turns, on each of its GPUs


class GpuTurns:
    """Deals out the turns on the GPUs of one agent; `had` counts them."""

    def __init__(
        self,
        nodes: Mapping[str, AgentNode],
        quantum_s: float = QUANTUM_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._sliced = {name: _of_modes(node, (TIMESLICE,)) for name, node in nodes.items()}
        self._quantum_s = quantum_s
        self._clock = clock
        self._next_s = 0.0  # by that clock
        self._turn = 0
        self._due: dict[tuple[PartKey, Place], float] = {}  # the turn from which on it is behind
        self.had: dict[PartKey, int] = {}
        self.active = False

    def wait_s(self) -> float:
        """Until the next turn; inf if nobody takes turns."""
        return max(0.0, self._next_s - self._clock()) if self.active else float("inf")

    def step(self, parts: Iterable[LocalPart]) -> None:
        """Deal out the next turn if it is due."""
        if self._clock() >= self._next_s:
            everybody = list(parts)
            paused = any(part.terms.paused for part in everybody)
            if paused or self.active or any(self._sliced.values()):
                self._next_s = self._clock() + self._quantum_s
                self.deal(everybody)

    def deal(self, parts: Iterable[LocalPart]) -> None:
        """Deal out the next turn: some stop, and then others go on."""
        everybody = list(parts)
        takers = self._takers([p for p in everybody if p.state == "running" and not p.leaves])
        self.active = bool(takers)
        chosen = self._chosen(takers)
        waits = {taker.name for taker in takers} - {taker.name for taker in chosen}
        for part in everybody:
            if part.key in waits:
                part.pause()
        for part in everybody:
            if part.key not in waits:
                part.go_on()
        self._count(takers, chosen, {part.key for part in everybody})

    def _takers(self, running: Sequence[LocalPart]) -> list[_Taker]:
        """Those that run on a GPU which another one has, too, or of which they may not have all."""
        found = {part.key: _Taker(part.key, part) for part in running if part.terms.paused}
        users: dict[Place, list[LocalPart]] = {}
        for part in running:
            for place in self._places(part) if part.key not in found else ():
                users.setdefault(place, []).append(part)
        for place, there in users.items():
            if len(there) == 1 and (there[0].terms.limit or 1.0) >= 1.0:
                continue
            shares = divide([_claim(part, place) for part in there])
            for part, share in zip(there, shares, strict=True):
                found.setdefault(part.key, _Taker(part.key, part)).shares[place] = share
            idle = 1.0 - ordered_sum(shares)
            if idle > DUST:
                name = PartKey(f"nobody on {place[0]}", place[1])
                found[name] = _Taker(name, None)
                found[name].shares[place] = idle
        return list(found.values())

    def _chosen(self, takers: Sequence[_Taker]) -> list[_Taker]:
        """Who has the next turn: as many as have no GPU in common, those first that wait for it."""
        busy: set[Place] = set()
        chosen = []
        for taker in sorted((taker for taker in takers if taker.shares), key=self._rank):
            places = taker.shares.keys() if taker.part is None else self._places(taker.part)
            if busy.isdisjoint(places):
                busy |= places
                chosen.append(taker)
        return chosen

    def _rank(self, taker: _Taker) -> tuple[bool, float, PartKey]:
        """Those that are not ahead of their share come first, by their deadlines."""
        due = {place: self._due_at(taker, place) for place in taker.shares}
        ahead = max(due.values()) > self._turn + DUST
        deadline = max(
            at + _every(share)
            for at, share in zip(due.values(), taker.shares.values(), strict=True)
        )
        return ahead, round(deadline, DIGITS), taker.name

    def _due_at(self, taker: _Taker, place: Place) -> float:
        """By turns; who is new here has missed none."""
        return self._due.get((taker.name, place), float(self._turn))

    def _count(
        self, takers: Sequence[_Taker], chosen: Sequence[_Taker], here: Collection[PartKey]
    ) -> None:
        """A turn has been dealt out. Nobody is owed more than one for having waited for others."""
        due = {(t.name, place): self._due_at(t, place) for t in takers for place in t.shares}
        for taker in chosen:
            for place, share in taker.shares.items():
                since = max(due[taker.name, place], self._turn - _every(share))
                due[taker.name, place] = since + _every(share)
            if taker.part is not None:
                self.had[taker.name] = self.had.get(taker.name, 0) + 1
        self._due = due
        self._turn += 1
        for key in self.had.keys() - here:
            del self.had[key]

    def _places(self, part: LocalPart) -> set[Place]:
        sliced = self._sliced.get(part.node, frozenset())
        return {(part.node, device) for device, _ in part.shares if device in sliced}


def _claim(part: LocalPart, place: Place) -> GpuClaim:
    """What it may have of a GPU's turns: by its weight, else by what it holds of the GPU."""
    held = dict(part.shares).get(place[1]) or 1.0
    return GpuClaim(held, min(1.0, part.terms.limit or 1.0), part.terms.weight or held)


def _every(share: float) -> float:
    """How many turns pass from one of its turns to the next."""
    return 1.0 / max(share, LEAST)
