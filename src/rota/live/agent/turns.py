"""Several jobs on one GPU in turns (`sharing: timeslice`): SIGSTOP and SIGCONT on a quantum.

A job that is not in its turn keeps its memory and gives up compute. Who ran longest ago is next; a
job with several GPUs has its turn on all of them at once. A part that is being stopped, or that has
its GPUs for itself, is let go.
"""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from rota.core.sharing import OVERCOMMITS, TIMESLICE
from rota.live.agent.messages import AgentNode, PartKey
from rota.live.agent.parts import LocalPart

QUANTUM_S = 0.2

Place = tuple[str, int]
"""A node and the number of one of its GPUs."""


def shared_devices(node: AgentNode) -> frozenset[int]:
    """GPUs of a node that several jobs may have at a time."""
    return _of_modes(node, OVERCOMMITS)


def _of_modes(node: AgentNode, modes: Iterable[str]) -> frozenset[int]:
    return frozenset(number for number, mode in enumerate(node.spec.modes) if mode in modes)


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
        self._last: dict[PartKey, int] = {}
        self.had: dict[PartKey, int] = {}
        self.active = False

    def wait_s(self) -> float:
        """Until the next turn; inf if nobody takes turns."""
        return max(0.0, self._next_s - self._clock()) if self.active else float("inf")

    def step(self, parts: Iterable[LocalPart]) -> None:
        """Deal out the next turn if it is due."""
        if any(self._sliced.values()) and self._clock() >= self._next_s:
            self._next_s = self._clock() + self._quantum_s
            self.deal(parts)

    def deal(self, parts: Iterable[LocalPart]) -> None:
        """Deal out the next turn: some stop, and then others go on."""
        everybody = list(parts)
        takers = self._takers(everybody)
        self.active = bool(takers)
        self._turn += 1
        busy: set[Place] = set()
        chosen: dict[PartKey, None] = {}
        for part in sorted(takers, key=lambda part: self._last.get(part.key, -1)):  # stable
            places = self._places(part)
            if busy.isdisjoint(places):
                busy |= places
                chosen[part.key] = None
        waits = {part.key for part in takers} - chosen.keys()
        for part in everybody:
            if part.key in waits:
                part.pause()
        for part in everybody:
            if part.key not in waits:
                part.go_on()
        for key in chosen:
            self._last[key] = self._turn
            self.had[key] = self.had.get(key, 0) + 1
        self._forget({part.key for part in everybody})

    def _takers(self, parts: Iterable[LocalPart]) -> list[LocalPart]:
        """Those that run on a GPU which another one has, too."""
        running = [part for part in parts if part.state == "running" and not part.leaves]
        users: dict[Place, int] = {}
        for part in running:
            for place in self._places(part):
                users[place] = users.get(place, 0) + 1
        return [p for p in running if any(users[place] > 1 for place in self._places(p))]

    def _places(self, part: LocalPart) -> set[Place]:
        sliced = self._sliced.get(part.node, frozenset())
        return {(part.node, device) for device, _ in part.shares if device in sliced}

    def _forget(self, here: set[PartKey]) -> None:
        for known in (self._last, self.had):
            for key in [key for key in known if key not in here]:
                del known[key]
