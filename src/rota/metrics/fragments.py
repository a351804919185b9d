"""Fragmentation as in FGD: free GPUs that are of no use for the jobs that usually come.

`rota.placement.fragments` has the measure (F, after Weng et al., USENIX ATC 2023). Its target
workload is what the jobs of the run ask for, so that every run can be measured, whatever placed its
jobs; the manifest of the run tells it. A node counts while it is up and open. What a placement
takes from a pool instead of nodes is nowhere, and then there is no such measure.

- `frag_amount`: fragments / GPUs of the cluster, on average over the time that was measured;
- `frag_ratio`: fragments / free GPUs, likewise; null when nothing was ever free.

`allocation.csv` of a placement study has the same in percent, against the load that has arrived:
one row per whole percent of the cluster's GPUs that the jobs so far ask for, the mean over the
arrivals that are nearest to it.

- `arrived_pct`: GPUs asked for by all jobs so far, placed or not;
- `alloc_pct`: GPUs in use; `frag_amount_pct`, `frag_ratio_pct`: as above, at this moment.
"""

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, Floats, Ints, Vertices
from rota.core.log import Record
from rota.core.products import dot
from rota.metrics.basis import Basis
from rota.metrics.history import History
from rota.placement.fragments import MILLI, Target
from rota.placement.machines import PLENTY

BATCH = 4_096  # states that are looked at together
CPU, WHOLE, FIRST = 0, 1, 2  # columns of what is in use: CPUs, whole GPUs, then parts of each GPU
DIGITS = 4  # of percentages


class Fragments(NamedTuple):
    """After every row of the log, in GPUs."""

    useless: Floats
    """Free, but fragments."""
    idle: Floats
    """Free on nodes that are up and open."""
    gpus: float
    """Of the whole cluster."""
    states: int
    """Different states of nodes that were looked at: the cost."""


class NodeSpans(NamedTuple):
    """What was free on nodes: a row per node and time in which nothing changed there."""

    node: Ints
    """Number of the vertex."""
    from_s: Floats
    until_s: Floats
    useless: Floats
    """GPUs that are free, but fragments."""
    idle: Floats
    """GPUs that are free, while the node is up and open."""


class _Nodes(NamedTuple):
    """The nodes of a log, by slot."""

    defined: Vertices
    gpus: Ints
    kind: Ints  # number of its GPU type
    cpus: Ints  # thousandths; PLENTY where the cluster does not say
    types: list[str]

    def places(self, vertex: Ints) -> tuple[Ints, Ints]:
        """Slot of the node of each vertex (-1: none), and the column of what is taken there."""
        slot = self.defined.slots_of(vertex)
        none = slot == len(self.gpus)
        slot[none] = -1
        return slot, WHOLE + vertex - self.defined.number[slot]  # devices follow their node


class _Changes(NamedTuple):
    """What nodes had in use after each of their changes, sorted by node and then by row."""

    slot: Ints
    row: Ints
    used: Ints  # by change and column
    open: Bools


class _Course(NamedTuple):
    """The states of nodes: each change leads to one of them."""

    changes: _Changes
    nodes: _Nodes
    which: Ints  # the state, by change
    useless: Floats  # thousandths, by state
    idle: Floats


def fold_fragments(history: History, basis: Basis | None) -> Fragments | None:
    """The measure over a whole log; None when something was taken that is on no node."""
    course = _course(history, basis)
    if course is None:
        return None
    changes, which, rows = course.changes, course.which, len(history.time_s)
    return Fragments(
        _timeline(changes, course.useless[which], rows) / MILLI,
        _timeline(changes, course.idle[which], rows) / MILLI,
        float(course.nodes.gpus.sum()),
        len(course.useless),
    )


def node_spans(history: History, basis: Basis | None) -> NodeSpans | None:
    """The same node by node; None as above."""
    course = _course(history, basis)
    if course is None:
        return None
    changes, which = course.changes, course.which
    last = np.append(np.diff(changes.slot) != 0, True)
    from_s = history.time_s[changes.row]
    until_s = np.append(from_s[1:], history.end_s)
    until_s[last] = history.end_s
    lasting = until_s > from_s
    which = which[lasting]
    return NodeSpans(
        course.nodes.defined.number[changes.slot[lasting]],
        from_s[lasting],
        until_s[lasting],
        course.useless[which] / MILLI,
        course.idle[which] / MILLI,
    )


def _course(history: History, basis: Basis | None) -> _Course | None:
    nodes = _nodes(history, basis) if basis is not None else None
    changes = _changes(history, nodes) if nodes is not None else None
    if basis is None or nodes is None or changes is None:
        return None
    states, which = _states(changes, nodes)
    useless = _measured(states, basis.target, nodes.types)
    idle = states[:, FIRST:].sum(axis=1).astype(np.float64)
    return _Course(changes, nodes, which, useless, idle)


def _nodes(history: History, basis: Basis) -> _Nodes | None:
    """The nodes that the log defines; None if they are not those of the basis."""
    machines = basis.machines
    if len(history.nodes.number) != len(machines):
        return None
    types = sorted({machine.gpu_type for machine in machines})
    cpus = np.array([round(machine.cpus * MILLI) for machine in machines], np.int64)
    return _Nodes(
        history.nodes,
        np.array([machine.gpus for machine in machines], np.int64),
        np.array([types.index(machine.gpu_type) for machine in machines], np.int64),
        cpus if cpus.any() else np.full(len(cpus), PLENTY),
        types,
    )


def averages(
    history: History, fragments: Fragments | None, from_s: float, until_s: float
) -> dict[str, float | None]:
    """The numbers of a summary."""
    if fragments is None or until_s <= from_s or not fragments.gpus:
        return {"frag_amount": None, "frag_ratio": None}
    length_s = np.diff(np.clip(history.time_s, from_s, until_s), append=until_s)
    useless = dot(fragments.useless, length_s)
    idle = dot(fragments.idle, length_s)
    return {
        "frag_amount": useless / (fragments.gpus * (until_s - from_s)),
        "frag_ratio": useless / idle if idle > 0 else None,
    }


def arrivals(history: History, fragments: Fragments) -> pl.DataFrame:
    """One row per job in the order of arrival: the state once it was looked at."""
    rows = history.rows_of(Record.SUBMIT)
    asked = np.cumsum(history.value[rows])
    after = np.searchsorted(history.time_s, history.time_s[rows], side="right") - 1
    after = np.minimum(after, len(history.time_s) - 2)  # the last row ends whatever goes on
    useless, idle = fragments.useless[after], np.maximum(fragments.idle[after], 0.0)
    gpus = fragments.gpus or 1.0
    return pl.DataFrame(
        {
            "job": history.job[rows],
            "arrived_pct": 100 * asked / gpus,
            "alloc_pct": 100 * (gpus - idle) / gpus,
            "frag_amount_pct": 100 * useless / gpus,
            "frag_ratio_pct": 100 * np.divide(useless, idle, np.zeros_like(idle), where=idle > 0),
        }
    )


def fold_allocation(table: pl.DataFrame) -> pl.DataFrame:
    """The content of `allocation.csv`, from `arrivals`."""
    columns = ("alloc_pct", "frag_amount_pct", "frag_ratio_pct")
    return (
        table.group_by(pl.col("arrived_pct").round().cast(pl.Int64))
        .agg(pl.col(columns).mean().round(DIGITS))
        .sort("arrived_pct")
    )


# --- what nodes had in use ------------------------------------------------------------------------


def _changes(history: History, nodes: _Nodes) -> _Changes | None:
    pieces = _pieces(history, nodes)
    if pieces is None:
        return None
    number, slot, column, milli = pieces
    spans = np.flatnonzero(history.allocation >= 0)
    first = np.searchsorted(number, history.allocation[spans], side="left")
    count = np.searchsorted(number, history.allocation[spans], side="right") - first
    begins = np.cumsum(count) - count
    which = np.arange(int(count.sum())) + np.repeat(first - begins, count)
    rows = [np.repeat(history.row[spans], count), np.repeat(history.until_row[spans], count)]
    doors = _doors(history, nodes)
    row = np.concatenate([*rows, doors[:, 0]])
    where = np.concatenate([slot[which], slot[which], doors[:, 1]])
    order = np.lexsort([row, where])
    row, where = row[order], where[order]
    new = np.append([True], (np.diff(row) != 0) | (np.diff(where) != 0))
    change = np.cumsum(new) - 1  # what happens to a node in one row is one change
    size = int(new.sum())
    width = FIRST + int(column.max(initial=WHOLE) - WHOLE)
    amounts = np.concatenate([milli[which], -milli[which], np.zeros(len(doors))])[order]
    columns = np.concatenate([column[which], column[which], np.full(len(doors), CPU)])[order]
    taken = np.bincount(change * width + columns, amounts, size * width).reshape(size, width)
    used = np.cumsum(np.rint(taken).astype(np.int64), axis=0)  # nodes end as they begin: empty
    states = np.full(len(row), -1)
    states[np.argsort(order)[len(row) - len(doors) :]] = doors[:, 2]
    return _Changes(where[new], row[new], used, _carried(states, change, size))


def _carried(states: Ints, change: Ints, size: int) -> Any:
    """Whether a node is of use after each change: as the last door on the way said."""
    last = np.full(size, -1)
    known = states >= 0
    last[change[known]] = states[known]
    source = np.maximum.accumulate(np.where(last >= 0, np.arange(size), 0))
    return last[source] == 1


def _pieces(history: History, nodes: _Nodes) -> tuple[Ints, Ints, Ints, Floats] | None:
    """What allocations hold: number, slot, column and thousandths, sorted by number."""
    gpus, cpus = history.slices, history.extras("cpu")
    slot, column = nodes.places(np.concatenate([gpus.vertex, cpus.vertex]))
    if (slot < 0).any():
        return None
    column[len(gpus.vertex) :] = CPU
    number = np.concatenate([gpus.allocation, cpus.allocation])
    order = np.argsort(number, kind="stable")
    milli = np.rint(np.concatenate([gpus.amount, cpus.amount]) * MILLI)
    return number[order], slot[order], column[order], milli[order]


def _doors(history: History, nodes: _Nodes) -> Ints:
    """Rows (row, slot, 1: of use from now on); the first of a node is where it begins."""
    since = nodes.defined.row
    late = history.time_s[since] > history.time_s[0]
    found = [(0, slot, int(not late[slot])) for slot in range(len(late))]
    found += [(int(since[slot]), slot, 1) for slot in np.flatnonzero(late).tolist()]
    found += [(row, slot, int(usable)) for row, slot, usable in history.node_changes()]
    return np.array(found, np.int64).reshape(-1, 3)


# --- states of nodes ------------------------------------------------------------------------------


def _states(changes: _Changes, nodes: _Nodes) -> tuple[Ints, Ints]:
    """Different states (type, CPUs left, GPUs left by size), and which one each change leads to."""
    kind, size = nodes.kind[changes.slot], nodes.gpus[changes.slot]
    cpus = np.maximum(nodes.cpus[changes.slot] - changes.used[:, CPU], 0)
    parts = changes.used[:, FIRST:]
    free = size - changes.used[:, WHOLE] // MILLI - (parts > 0).sum(axis=1)
    left = np.where(parts > 0, np.maximum(MILLI - parts, 0), 0)
    columns = [kind, cpus, np.maximum(free, 0), *np.sort(left, axis=1).T]
    closed = [np.where(changes.open, column, 0) for column in columns]
    frame = pl.DataFrame({f"{number}": column for number, column in enumerate(closed)})
    groups = frame.with_row_index("i").group_by(frame.columns, maintain_order=True).agg("i")
    which = np.zeros(frame.height, np.int64)
    number = np.repeat(np.arange(groups.height), groups["i"].list.len().to_numpy())
    which[groups["i"].explode().to_numpy()] = number
    return _spread(groups.drop("i").to_numpy()), which


def _spread(states: Ints) -> Ints:
    """Free GPUs as columns of their own beside what is left of the others."""
    free, left = states[:, FIRST], states[:, FIRST + 1 :]
    whole = np.where(np.arange(int(free.max(initial=0))) < free[:, None], MILLI, 0)
    return np.concatenate([states[:, :FIRST], whole, left], axis=1).astype(np.int64)


def _measured(states: Ints, target: Target, types: list[str]) -> Floats:
    """Fragments of each state."""
    accepted = target.accepts(types)
    found: list[Floats] = []
    for begin in range(0, len(states), BATCH):
        batch = states[begin : begin + BATCH]
        found.append(target.measure(batch[:, 1], batch[:, FIRST:], accepted[batch[:, 0]]))
    return np.concatenate(found) if found else np.zeros(0)


def _timeline(changes: _Changes, values: Floats, rows: int) -> Floats:
    """The sum over the nodes, after every row of the log."""
    first = np.append([True], np.diff(changes.slot) != 0)
    before = np.append([0.0], values[:-1])
    before[first] = 0.0
    total: Floats = np.cumsum(np.bincount(changes.row, values - before, rows))
    return total
