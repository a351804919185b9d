"""Placements that give every node a whole-number score; the best node wins, ties by rank of nodes.

A job is placed on one node. Scores are kept per request and only recomputed for nodes that changed
since the same request was seen last. A job that no single node of the cluster could hold, even an
empty one, gets the fewest nodes.
"""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.jobs import Job, Request, Shape
from rota.core.policy import Params
from rota.core.topology import Topology, Vertex
from rota.placement.base import Placement
from rota.placement.choices import Choice, fewest_nodes
from rota.placement.fragments import MILLI, Floats, Ints, JobClass
from rota.placement.machines import MIB, Machines, holds
from rota.placement.room import Room

NO = -1  # score of a node without room
BEST = 100  # the highest score
CPUS, GPUS = 128 * MILLI, 8 * MILLI  # the machine that amounts are measured against


class ScoredParams(Params, frozen=True):
    """`node_order`: a CSV file whose column `node` names the nodes, ties going to the first."""

    node_order: str = ""


class Wish(msgspec.Struct, frozen=True):
    """A request in whole numbers, and which types of GPUs it accepts."""

    kind: JobClass
    mem: int
    accepted: tuple[bool, ...]
    """By number of the GPU type in `Machines.types`."""


class _Scores:
    """Scores of all rows for requests that differ in memory only, up to date for `seen` changes."""

    __slots__ = ("rows", "seen")

    def __init__(self, count: int) -> None:
        self.rows: Ints = np.full(count, NO, np.int64)
        self.seen = -1


class Scored(Placement):
    """One node per job: the one with the highest score."""

    Parameters = ScoredParams

    def __init__(
        self, topology: Topology, params: ScoredParams | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(topology, params, seed=seed)
        order = _order(topology, (params or ScoredParams()).node_order)
        self.machines = Machines(topology.nodes, order)
        self.machines.read(self.room, self.machines.order)
        self._wishes: dict[int, Wish] = {}  # by number of the shape
        self._known: dict[tuple[JobClass, tuple[str, ...]], _Scores] = {}
        self._changes: list[int] = []  # rows, in the order in which they changed

    # --- what a concrete placement says -----------------------------------------------------------

    @abstractmethod
    def scores(self, machines: Machines, rows: Ints, wish: Wish) -> Ints:
        """Scores of rows that have room for the wish; whole numbers, higher is better."""

    def devices(self, machines: Machines, row: int, wish: Wish) -> list[int]:
        """GPUs of the chosen row: for a part the fullest with room, else the first free ones."""
        left = machines.gpus[row]
        part, gpus = wish.kind.part, wish.kind.gpus
        if part == MILLI:
            return [int(number) for number in np.flatnonzero(left == MILLI)[:gpus]]
        fitting = [(int(left[i]), i) for i in range(len(left)) if left[i] >= part]
        return [number for _, number in sorted(fitting)[:gpus]]

    def expect(self, usual: Sequence[tuple[Request, int]]) -> None:
        """What jobs usually ask for and how many do, told before the first job comes."""

    # --- choosing ---------------------------------------------------------------------------------

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """The node with the highest score."""
        row = self._best(shape, room)
        if row >= 0:
            return [(self.machines.order[row], shape.gpus or 1)]
        if shape.gpus < 1 or self.fits_one_node(shape):
            return None
        offers = room.offers(shape)
        choices = (fewest_nodes(shape.gpus, positions, offers) for positions in self.kinds)
        return next((choice for choice in choices if choice is not None), None)

    def _best(self, shape: Shape, room: Room) -> int:
        """The row with the highest score, -1 if no node has room."""
        wish = self._wish(shape)
        if room is self.room:
            machines, scores = self.machines, self._up_to_date(shape, wish).rows
        else:  # a trial: nothing is known of it
            machines = Machines(self.topology.nodes, self.machines.order)
            machines.read(room, machines.order)
            scores = self._scored(machines, np.arange(machines.count), wish, shape)
        if wish.mem:
            scores = np.where(machines.mem >= wish.mem, scores, NO)
        row = int(scores.argmax())
        return row if scores[row] > NO else -1

    def _up_to_date(self, shape: Shape, wish: Wish) -> _Scores:
        key = wish.kind, shape.labels
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Scores(self.machines.count)
        now = len(self._changes)
        if known.seen < now:
            if known.seen < 0 or now - known.seen > self.machines.count:
                rows = np.arange(self.machines.count)
            else:
                rows = np.array(sorted(set(self._changes[known.seen :])), np.int64)
            known.rows[rows] = self._scored(self.machines, rows, wish, shape)
            known.seen = now
        return known

    def _scored(self, machines: Machines, rows: Ints, wish: Wish, shape: Shape) -> Ints:
        kind = wish.kind
        room = holds(machines, rows, kind)
        room &= np.array(wish.accepted)[machines.kind[rows]]
        if shape.labels:
            matching = self.room.matching(shape)
            room &= np.array([matching[machines.order[row]] for row in rows])
        scores: Ints = np.full(len(rows), NO, np.int64)
        if room.any():
            scores[room] = self.scores(machines, rows[room], wish)
        return scores

    def _wish(self, shape: Shape) -> Wish:
        wish = self._wishes.get(shape.number)
        if wish is None:
            accepted = [not shape.types or name in shape.types for name in self.machines.types]
            wish = Wish(JobClass.of(shape.request), round(shape.mem_gib * MIB), tuple(accepted))
            self._wishes[shape.number] = wish
        return wish

    def feasible(self, shape: Shape, room: Room) -> bool:
        """Some node has room for all of it; several together where one never has."""
        if room is self.room:
            return self.choose(shape, room, None) is not None
        offers = room.offers(shape)
        if max(offers) >= (shape.gpus or 1):
            return True
        return super().feasible(shape, room) if shape.gpus > 1 else False

    # --- books ------------------------------------------------------------------------------------

    def allocation(self, shape: Shape, choice: Choice) -> Allocation:
        """As the base says, but on one node every GPU is named."""
        plain = super().allocation(shape, choice)
        if len(choice) != 1 or not shape.gpus:
            return plain
        position = choice[0][0]
        numbers = self.devices(self.machines, self.machines.rows[position], self._wish(shape))
        devices = self.topology.devices(self.room.nodes[position].id)
        amount = min(1, shape.gpus)
        return Allocation([(devices[number], amount) for number in numbers], plain.extra)

    def _book(self, allocation: Allocation, sign: int) -> None:
        super()._book(allocation, sign)
        self._note(sorted(self._positions(allocation)))

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """A node went down or came back."""
        super().set_node(node, up=up)
        self._note([self._where[node.id][0]])

    def _note(self, positions: Sequence[int]) -> None:
        self.machines.read(self.room, positions)
        self._changes.extend(self.machines.rows[position] for position in positions)


def whole(scores: Floats) -> Ints:
    """Cut to whole numbers; a node without room is worse than any score."""
    cut: Ints = np.maximum(scores, 0).astype(np.int64)
    return cut


def _order(topology: Topology, file: str) -> list[int] | None:
    """Positions of nodes by rank, from a file; nodes that it does not name come last."""
    if not file:
        return None
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise OptionError(f"node_order={file}: cannot be read ({error.strerror})") from error
    heads = [head.strip() for head in lines[0].split(",")] if lines else []
    if "node" not in heads:
        raise OptionError(f"node_order={file}: the first line needs a column `node`")
    column = heads.index("node")
    names = [line.split(",")[column].strip() for line in lines[1:] if line.strip()]
    ranks = {name: rank for rank, name in enumerate(names)}
    unknown = sorted(set(names) - {node.name for node in topology.nodes})
    if unknown:
        raise OptionError(f"node_order={file}: the cluster has no node {unknown[0]!r}")
    nodes = topology.nodes
    return sorted(range(len(nodes)), key=lambda i: (ranks.get(nodes[i].name, len(ranks)), i))
