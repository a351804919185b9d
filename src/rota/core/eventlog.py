"""The event log in columns, and what its rows define: vertices, nodes, shapes, tenants, slices.

The one place that decodes columns of a log. `rota.metrics.history` adds the life of every job.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rota.core.log import NODE, Record, Row

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

NODE_CHANGES = (Record.NODE_DOWN, Record.NODE_UP, Record.NODE_CLOSED, Record.NODE_OPENED)


class Vertices(NamedTuple):
    """Vertices of the topology above the GPUs, in the order of their numbers."""

    number: Ints
    parent: Ints
    gpus: Floats
    text: list[str]  # `level:name`
    row: Ints  # of the log, that defines it

    @property
    def names(self) -> list[str]:
        """Without their levels."""
        return [text.partition(":")[2] for text in self.text]

    @property
    def is_node(self) -> Bools:
        """Which of them are nodes."""
        return np.array([text.startswith(NODE) for text in self.text], dtype=np.bool_)

    def slots_of(self, vertices: Any) -> Ints:
        """Which of these each vertex is or belongs to: GPUs have the numbers after their node's.

        As many as there are stands for none.
        """
        count = len(self.number)
        slots = np.searchsorted(self.number, vertices, side="right") - 1
        if not count:
            return np.zeros(len(slots), dtype=np.int64)
        inside = (slots >= 0) & (vertices - self.number[slots] <= self.gpus[slots])
        return np.where(inside, slots, count)


class Slices(NamedTuple):
    """What allocations hold, sorted by their numbers."""

    allocation: Ints
    vertex: Ints
    amount: Floats

    def of(self, allocations: Any) -> tuple[Ints, Ints]:
        """All slices of these allocations: which of the allocations, and which slice."""
        first = np.searchsorted(self.allocation, allocations, side="left")
        count = np.searchsorted(self.allocation, allocations, side="right") - first
        begins = np.cumsum(count) - count
        which = np.repeat(np.arange(len(count)), count)
        return which, np.arange(int(count.sum())) + np.repeat(first - begins, count)


class NodeChange(NamedTuple):
    """From this row on a node is of use, or not: up and open (not drained)."""

    row: int
    slot: int  # of the node
    usable: bool


class EventLog:
    """Columns of a log as arrays, and its definitions."""

    def __init__(self, frame: Any) -> None:
        """Take the columns of a table (polars) with the names and types of the schema."""
        self.log = frame
        self.time_s: Floats = frame["time_s"].to_numpy()
        self.event = frame["event"].to_physical().to_numpy()
        self.job = frame["job"].to_numpy()
        self.ref = frame["ref"].to_numpy()
        self.other = frame["other"].to_numpy()
        self.value: Floats = frame["value"].to_numpy()
        self.end_s = float(self.time_s[-1]) if len(self.time_s) else 0.0

    # --- rows -------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Row]:
        """One row after the other."""
        return self._decoded(slice(None), self.log["text"])

    def only(self, *kinds: Record) -> Iterator[Row]:
        """One row of these kinds after the other."""
        rows = self.rows_of(*kinds)
        return self._decoded(rows, self.log["text"].gather(rows))

    def _decoded(self, rows: Any, texts: Any) -> Iterator[Row]:
        numbers = (self.time_s, self.event, self.job, self.ref, self.other, self.value)
        columns = [column[rows].tolist() for column in numbers]
        return map(Row._make, zip(*columns, texts.to_list(), strict=True))

    def rows_of(self, *kinds: Record) -> Ints:
        """Numbers of the rows of these kinds."""
        if len(kinds) == 1:
            return np.flatnonzero(self.event == kinds[0])
        return np.flatnonzero(np.isin(self.event, kinds))

    def texts(self, rows: Any) -> list[str]:
        """Texts of these rows; empty where there is none."""
        found: list[str | None] = self.log["text"].gather(rows).to_list()
        return [text or "" for text in found]

    def text(self, row: int) -> str:
        """The text of a row; empty: it has none."""
        return str(self.log["text"][row] or "")

    # --- definitions ------------------------------------------------------------------------------

    @cached_property
    def vertices(self) -> Vertices:
        """Everything above the GPUs: the cluster, racks, nodes, pools."""
        return self._vertices(self.rows_of(Record.VERTEX))

    @cached_property
    def nodes(self) -> Vertices:
        """The nodes; a node's slot is its position here."""
        rows = self.rows_of(Record.VERTEX)
        texts = self.texts(rows)
        return self._vertices(rows[[i for i, text in enumerate(texts) if text.startswith(NODE)]])

    def _vertices(self, rows: Ints) -> Vertices:
        number, first = np.unique(self.ref[rows], return_index=True)
        rows = rows[first]
        return Vertices(
            number.astype(np.int64),
            self.other[rows].astype(np.int64),
            self.value[rows],
            self.texts(rows),
            rows,
        )

    @cached_property
    def shapes(self) -> dict[int, str]:
        """What requests of each shape ask for, in words."""
        return self._named(Record.SHAPE)

    @cached_property
    def tenants(self) -> dict[int, str]:
        """Paths of tenants; empty: jobs without one."""
        return self._named(Record.TENANT)

    def _named(self, kind: Record) -> dict[int, str]:
        rows = self.rows_of(kind)
        return dict(sorted(zip(self.ref[rows].tolist(), self.texts(rows), strict=True)))

    @cached_property
    def slices(self) -> Slices:
        """GPUs of all allocations."""
        return self._slices(self.rows_of(Record.ALLOCATION))

    def extras(self, kind: str) -> Slices:
        """What allocations hold beside GPUs: `cpu` or `memory`."""
        rows = self.rows_of(Record.EXTRA)
        texts = self.texts(rows) if len(rows) else []
        return self._slices(rows[[i for i, text in enumerate(texts) if text == kind]])

    def _slices(self, rows: Ints) -> Slices:
        rows = rows[np.argsort(self.ref[rows], kind="stable")]
        vertex = self.other[rows].astype(np.int64)
        return Slices(self.ref[rows].astype(np.int64), vertex, self.value[rows])

    # --- nodes over time --------------------------------------------------------------------------

    def node_changes(self) -> list[NodeChange]:
        """When nodes went down, came up, were closed or opened; at first all are of use."""
        rows = self.rows_of(*NODE_CHANGES)
        slots = self.nodes.slots_of(self.ref[rows]).tolist()
        down: set[int] = set()
        closed: set[int] = set()
        found = []
        for row, slot in zip(rows.tolist(), slots, strict=True):
            kind = self.event[row]
            which = down if kind in (Record.NODE_DOWN, Record.NODE_UP) else closed
            if kind in (Record.NODE_DOWN, Record.NODE_CLOSED):
                which.add(slot)
            else:
                which.discard(slot)
            found.append(NodeChange(row, slot, slot not in down and slot not in closed))
        return found

    def outages(self) -> list[tuple[int, float, float]]:
        """(vertex of the node, from when, until when) of every failure."""
        found: list[tuple[int, float, float]] = []
        since: dict[int, float] = {}
        for row in self.rows_of(Record.NODE_DOWN, Record.NODE_UP).tolist():
            node, time_s = int(self.ref[row]), float(self.time_s[row])
            if self.event[row] == Record.NODE_DOWN:
                since.setdefault(node, time_s)
            elif node in since:
                found.append((node, since.pop(node), time_s))
        found += [(node, time_s, self.end_s) for node, time_s in since.items()]
        return found


def add_up(slots: Any, weights: Any, size: int = 0) -> Floats:
    """Sum of the weights in every slot."""
    sums = np.bincount(slots, weights=weights, minlength=size)
    return sums.astype(np.float64, copy=False)  # sums of nothing are whole numbers


def among(kinds: Iterable[int]) -> Bools:
    """A table to look kinds of rows up in."""
    table = np.zeros(256, dtype=np.bool_)
    table[list(kinds)] = True
    return table
