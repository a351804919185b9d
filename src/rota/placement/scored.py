"""Placements that give every node a whole-number score; the best node wins, ties by rank of nodes.

A job is placed on one node. Scores are kept per request and only recomputed for nodes that changed
since the same request was seen last. A job that no single node of the cluster could hold, even an
empty one, gets the fewest nodes.

Scores are made of whole numbers (see `machines`), rounded in favour of the job; whether a node has
room is decided by the exact amounts.
"""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.registry import check_file
from rota.core.topology import Topology, Vertex
from rota.placement.base import Placement
from rota.placement.choices import Choice, enough, fewest_nodes
from rota.placement.fragments import MILLI, Floats, Ints, JobClass
from rota.placement.machines import MIB, NodeArrays, down, holds
from rota.placement.room import EPSILON, Room

NO = -(1 << 30)  # score of a node without room
BEST = 100  # the highest score
CPUS, GPUS = 128 * MILLI, 8 * MILLI  # the machine that amounts are measured against
REMEMBERED = 2_000  # requests whose scores are kept
CHANGES = 16  # per node: as many are remembered


class ScoredParams(Params, frozen=True):
    """`node_order`: a CSV file whose column `node` names the nodes, ties going to the first."""

    node_order: str = ""


class ScoredRequest(msgspec.Struct, frozen=True):
    """A request in whole numbers, and which nodes it accepts."""

    kind: JobClass
    mem: int
    allowed: Any = None
    """Which rows are of a kind that it accepts; None: all."""


class _Scores:
    """Scores of all rows for requests that differ in memory only, up to date for `seen` changes."""

    __slots__ = ("rows", "seen")

    def __init__(self, count: int) -> None:
        self.rows: Ints = np.full(count, NO, np.int64)
        self.seen = -1


class Scored(Placement):
    """One node per job: the one with the highest score."""

    Parameters = ScoredParams
    splits = False
    by_memory: ClassVar[bool] = False
    """Scores depend on the memory that is asked for."""
    draws: ClassVar[bool] = False
    """The choice depends on who asks."""

    def __init__(
        self, topology: Topology, params: ScoredParams | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(topology, params, seed=seed)
        self.names_gpus = False  # whole GPUs are named too, counted from the first
        self.machines = NodeArrays(topology.nodes)
        self._requests: dict[int, ScoredRequest] = {}  # by number of the shape
        self._known: dict[tuple[JobClass, int, tuple[str, ...]], _Scores] = {}
        self._changes: list[int] = []  # rows, in the order in which they changed
        self._forgotten = 0  # earlier changes that are no longer in the list
        self._asked_last: tuple[int, int, Job | None] = (-1, -1, None)  # and what the answer was
        self._row_last = -1
        self._shared_gpu = 0  # of the node that was chosen last
        self.scored = 0  # rows whose score was computed, to watch the cost
        self.rank(read_order((params or ScoredParams()).node_order))

    def rank(self, names: Sequence[str]) -> None:
        """Ties go to the node that is named first, before any job comes; the others come last."""
        nodes = self.topology.nodes
        ranks = {name: rank for rank, name in enumerate(names)}
        unknown = sorted(ranks.keys() - {node.name for node in nodes})
        if unknown:
            raise OptionError(
                f"node_order: the cluster has no node {unknown[0]!r}: remove it from the list"
            )
        order = sorted(range(len(nodes)), key=lambda i: (ranks.get(nodes[i].name, len(ranks)), i))
        self.machines = NodeArrays(nodes, order)
        self.machines.read(self.room, order)
        self._requests.clear()
        self.forget()

    def forget(self) -> None:
        """Scores that are known hold no longer."""
        self._known.clear()
        self._asked_last = (-1, -1, None)

    # --- what a concrete placement says -----------------------------------------------------------

    @abstractmethod
    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """Scores of rows that have room for the request; whole numbers, higher is better."""

    def devices(self, machines: NodeArrays, row: int, request: ScoredRequest) -> list[int]:
        """GPUs of the chosen row: for a part the fullest with room, else the first free ones."""
        left = machines.gpus[row].tolist()
        part, gpus = request.kind.part, request.kind.gpus
        if part == MILLI:
            return [number for number, here in enumerate(left) if here == MILLI][:gpus]
        fitting = [(here, number) for number, here in enumerate(left) if here >= part]
        return [number for _, number in sorted(fitting)[:gpus]]

    def winner(self, scores: Ints, job: Job | None) -> int:  # noqa: ARG002 - for subclasses
        """The row that is taken; one with the score `NO` if there is no other."""
        return int(scores.argmax())

    # --- choosing ---------------------------------------------------------------------------------

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        """The node with the highest score."""
        row = self._best(shape, room, job)
        if row >= 0:
            return [(self.machines.order[row], shape.gpus or 1)]
        if shape.gpus <= 1 or shape.apart or self.fits_one_node(shape):
            return None
        offers = room.offers(shape)
        choices = (fewest_nodes(shape.gpus, positions, offers) for positions in self.kinds)
        return next((choice for choice in choices if choice is not None), None)

    def _pick(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        return (
            self.choose(shape, room, job) if shape.apart == 1 else super()._pick(shape, room, job)
        )

    def _possible(self, shape: Shape, room: Room) -> bool:
        return self.feasible(shape, room) if shape.apart == 1 else super()._possible(shape, room)

    def _best(self, shape: Shape, room: Room, job: Job | None) -> int:
        """The row with the highest score, -1 if no node has room."""
        if shape.gpus > 1 and shape.gpus % 1:
            return -1  # neither whole GPUs nor a part of one
        request = self._wish(shape)
        if room is self.room:
            asked = (self._clock, shape.number, job if self.draws else None)
            if self._asked_last != asked:
                self._asked_last = asked
                rows = self._up_to_date(shape, request).rows
                self._row_last = self._winner_of(self.machines, rows, shape, room, job)
            return self._row_last
        # nothing is known of a trial
        machines = NodeArrays(self.topology.nodes, self.machines.order)
        machines.read(room, machines.order)
        scores = self._scored(machines, np.arange(machines.count), request)
        return self._winner_of(machines, scores, shape, room, job)

    def _winner_of(
        self, machines: NodeArrays, scores: Ints, shape: Shape, room: Room, job: Job | None
    ) -> int:
        """The best of the rows that have room by the exact amounts, -1 if there is none."""
        request = self._wish(shape)
        if request.mem:
            scores = np.where(machines.mem >= request.mem, scores, NO)
        need = (shape.gpus or 1) - EPSILON
        while True:
            row = self.winner(scores, job)
            if scores[row] == NO:
                return -1
            if room.usable(machines.order[row], shape) >= need:
                return row
            scores = np.where(np.arange(machines.count) == row, NO, scores)

    def _up_to_date(self, shape: Shape, request: ScoredRequest) -> _Scores:
        key = request.kind, request.mem if self.by_memory else 0, shape.labels
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[key] = _Scores(self.machines.count)
        rows = self.changed_since(known.seen)
        if len(rows):
            known.rows[rows] = self._scored(self.machines, rows, request)
        known.seen = self.changes
        return known

    def _scored(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        room = holds(machines, rows, request.kind)
        if request.allowed is not None:
            room &= request.allowed[rows]
        scores: Ints = np.full(len(rows), NO, np.int64)
        fitting = rows[room]
        if len(fitting):
            scores[room] = self.scores(machines, fitting, request)
            self.scored += len(fitting)
        return scores

    def _wish(self, shape: Shape) -> ScoredRequest:
        request = self._requests.get(shape.number)
        if request is None:
            mem = down(shape.mem_gib * MIB) if self.room.has_mem else 0
            allowed = None
            if shape.types or shape.labels or shape.gpu_mem_gib:
                matching = self.room.matching(shape)
                allowed = np.array([matching[position] for position in self.machines.order])
            request = self._requests[shape.number] = ScoredRequest(
                JobClass.of(shape.request), mem, allowed
            )
        return request

    def feasible(self, shape: Shape, room: Room) -> bool:
        """Some node has room for all of it; several together where one never has."""
        if room is self.room:
            return self.choose(shape, room, None) is not None
        offers = room.offers(shape)
        if max(offers) >= (shape.gpus or 1) - EPSILON:
            return True
        if shape.gpus <= 1 or shape.apart or self.fits_one_node(shape):
            return False
        return enough(shape.gpus, self.kinds, offers)

    # --- what is free -----------------------------------------------------------------------------

    def allocation(self, shape: Shape, choice: Choice) -> Allocation:
        """As the base says; on request every GPU is named."""
        position = choice[0][0]
        if len(choice) != 1 or not shape.gpus:
            return super().allocation(shape, choice)
        if shape.gpus < 1:
            numbers = self.devices(self.machines, self.machines.rows[position], self._wish(shape))
            self._shared_gpu = self._checked(position, numbers[0], shape.gpus, shape.gpu_mem_gib)
            return super().allocation(shape, choice)
        plain = super().allocation(shape, choice)
        if not self.names_gpus:
            return plain
        numbers = self.devices(self.machines, self.machines.rows[position], self._wish(shape))
        devices = self.topology.devices(self.room.nodes[position].id)
        return Allocation([(devices[number], 1) for number in numbers], plain.extra)

    def _place(self, position: int, amount: float, mem_gib: float = 0.0) -> int:  # noqa: ARG002
        node = self.room.nodes[position].id
        return node if amount >= 1 else self.topology.devices(node)[self._shared_gpu]

    def _checked(self, position: int, number: int, part: float, mem_gib: float) -> int:
        """The GPU for a part of one; of those in nobody's use the one that nobody counts on."""
        if (mem_gib or self.topology.shared) and not self.room.welcome(position, number, mem_gib):
            found = self.room.device_for(position, part, mem_gib)
            return number if found is None else found
        shared = self.room.shares.get(position, {})
        if number not in shared and not self.names_gpus:
            # those who run jobs count whole GPUs from the start
            size = self.room.nodes[position].gpus
            free = (i for i in range(size - 1, -1, -1) if i not in shared)
            if not self.topology.shared:
                return next(free)
            return next(i for i in free if self.room.welcome(position, i, mem_gib))
        if shared.get(number, 1.0) >= part - EPSILON:
            return number
        found = self.room.device_for(position, part, mem_gib)
        return number if found is None else found

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
        if len(self._changes) > CHANGES * (self.machines.count + REMEMBERED):
            half = len(self._changes) // 2
            del self._changes[:half]
            self._forgotten += half

    @property
    def changes(self) -> int:
        """How often a node changed so far."""
        return self._forgotten + len(self._changes)

    def changed_since(self, seen: int) -> Ints:
        """Rows that changed after so many changes; -1: all of them."""
        if seen < self._forgotten or self.changes - seen > self.machines.count:
            return np.arange(self.machines.count)
        return np.array(sorted(set(self._changes[seen - self._forgotten :])), np.int64)


def whole(scores: Floats) -> Ints:
    """Cut to whole numbers; a node without room is worse than any score."""
    cut: Ints = np.maximum(scores, 0).astype(np.int64)
    return cut


def read_order(file: str) -> list[str]:
    """Names of nodes by rank, from a CSV file with a column `node`; none without a file."""
    if not file:
        return []
    check_file(file)
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"node_order={file}: cannot be read ({error}): check the path") from error
    heads = [head.strip() for head in lines[0].split(",")] if lines else []
    if "node" not in heads:
        raise OptionError(f"node_order={file}: the first line needs a column `node`: add it")
    column = heads.index("node")
    rows = [line.split(",") for line in lines[1:] if line.strip()]
    short = next((number for number, row in enumerate(rows, 2) if len(row) <= column), None)
    if short is not None:
        raise OptionError(f"node_order={file}: row {short} names no node: remove it")
    return [row[column].strip() for row in rows]
