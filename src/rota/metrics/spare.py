"""GPUs that were free, node by node, at any time of a log.

A node counts while it is up and open (not drained). What a placement took from the whole cluster or
from a pool, and not from nodes, is subtracted from the sum; over how many nodes the rest is spread
is then not known. GPUs that are kept for a job until others have left them are not free.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from rota.core.sums import ordered_sum
from rota.metrics.history import History

_LITTLE = 1e-9  # parts of GPUs are floats


class Spare(NamedTuple):
    """GPUs that are free for a while; `nodes`: on how many nodes they are (None: not known)."""

    seconds: float
    gpus: float
    nodes: int | None


class Timelines(NamedTuple):
    """What nodes were like after each of their changes, sorted by node and then by row."""

    slot: Any  # of the node
    row: Any  # of the log, at which it changed
    size: Any  # GPUs of the node
    used: Any  # of them, from then on
    open: Any  # whether the node is of use, from then on


class SpareGpus:
    """Answers for one log."""

    def __init__(self, history: History) -> None:
        self._time_s = history.time_s
        self._nodes = history.nodes
        self.names = history.nodes.names
        self._size = history.nodes.gpus
        defined = [(int(row), slot, True) for slot, row in enumerate(history.nodes.row.tolist())]
        self._doors: list[tuple[int, int, bool]] = sorted([*defined, *history.node_changes()])
        self._takes(history)

    # --- the changes ------------------------------------------------------------------------------

    def slots_of(self, vertices: Any) -> Any:
        """Slot of the node that each vertex is or belongs to; the last slot: none."""
        return self._nodes.slots_of(vertices)

    def _takes(self, history: History) -> None:
        """Who takes and gives back what, sorted by row."""
        slices = history.slices
        spans = np.flatnonzero(history.allocation >= 0)
        holder, which = slices.of(history.allocation[spans])
        row = np.concatenate([history.row[spans][holder], history.until_row[spans][holder]])
        order = np.argsort(row, kind="stable")
        self._row = row[order]
        self._slot = np.tile(self.slots_of(slices.vertex)[which], 2)[order]
        self._amount = np.concatenate([slices.amount[which], -slices.amount[which]])[order]

    # --- questions --------------------------------------------------------------------------------

    def before(self, row: int) -> Spare:
        """What was free just before this row of the log."""
        return self._books(row).spare(0.0)

    def between(self, from_s: float, until_s: float) -> Iterator[Spare]:
        """What was free, one piece after the other; changes at `from_s` have happened already."""
        first = int(np.searchsorted(self._time_s, from_s, side="right"))
        last = int(np.searchsorted(self._time_s, until_s, side="left"))
        books = self._books(first)
        since_s = from_s
        for row, slot, change in self._changes(first, last):
            at_s = float(self._time_s[row])
            if at_s > since_s:
                yield books.spare(at_s - since_s)
                since_s = at_s
            books.note(slot, change)
        yield books.spare(until_s - since_s)

    def timelines(self) -> Timelines | None:
        """All nodes over the whole log; None when something was taken that is on no node."""
        count = len(self._size)
        if (self._slot == count).any():
            return None
        doors = np.array(self._doors, dtype=np.int64).reshape(-1, 3)
        row = np.concatenate([doors[:, 0], self._row])
        slot = np.concatenate([doors[:, 1], self._slot])
        is_door = np.arange(len(row)) < len(doors)
        order = np.lexsort([~is_door, row, slot])  # the first of every node is its definition
        row, slot, is_door = row[order], slot[order], is_door[order]
        change = np.concatenate([np.zeros(len(doors)), self._amount])[order]
        state = np.concatenate([doors[:, 2], np.zeros(len(self._row))])[order]
        last_door = np.maximum.accumulate(np.where(is_door, np.arange(len(row)), 0))
        used = np.cumsum(change)  # whatever is taken is given back, so every node begins with 0
        return Timelines(slot, row, self._size[slot], used, state[last_door] > 0)

    def _books(self, row: int) -> "_Books":
        """The state before a row."""
        end = int(np.searchsorted(self._row, row, side="left"))
        used = np.bincount(
            self._slot[:end], weights=self._amount[:end], minlength=len(self._size) + 1
        )
        is_open = [False] * len(self._size)
        for _, slot, opens in self._doors[: bisect_left(self._doors, (row,))]:
            is_open[slot] = opens
        return _Books(self._size.tolist(), used.tolist(), is_open)

    def _changes(self, first: int, last: int) -> list[tuple[int, int, float | bool]]:
        """All changes in a range of rows: a node opens or closes (bool), GPUs are taken (float)."""
        begin, end = np.searchsorted(self._row, [first, last], side="left")
        columns = (self._row, self._slot, self._amount)
        found: list[tuple[int, int, float | bool]] = list(
            zip(*(column[begin:end].tolist() for column in columns), strict=True)
        )
        found += self._doors[bisect_left(self._doors, (first,)) : bisect_left(self._doors, (last,))]
        return sorted(found, key=itemgetter(0))


class _Books:
    """GPUs in use by slot (the last: in no node), and sums that are kept up to date."""

    def __init__(self, sizes: list[float], used: list[float], is_open: list[bool]) -> None:
        self._sizes = sizes
        self._used = used
        self._open = is_open
        self._pooled = used[-1]
        free = [self._free(slot) for slot in range(len(sizes))]
        self._gpus = ordered_sum(free)
        self._nodes = sum(gpus > _LITTLE for gpus in free)

    def _free(self, slot: int) -> float:
        return max(0.0, self._sizes[slot] - self._used[slot]) if self._open[slot] else 0.0

    def note(self, slot: int, change: float | bool) -> None:  # noqa: FBT001 - as in the list
        """Apply one change."""
        if slot == len(self._sizes):
            self._pooled += change
            return
        before = self._free(slot)
        if isinstance(change, bool):
            self._open[slot] = change
        else:
            self._used[slot] += change
        after = self._free(slot)
        self._gpus += after - before
        self._nodes += (after > _LITTLE) - (before > _LITTLE)

    def spare(self, seconds: float) -> Spare:
        """What is free now."""
        pooled = self._pooled > _LITTLE
        gpus = max(0.0, self._gpus - self._pooled)
        return Spare(seconds, round(gpus, 6), None if pooled else self._nodes)
