"""Which job was on which GPU: bars of a Gantt chart, and how full every node was.

The log says how many GPUs of a node a job holds, not which. They are given numbers (*lanes*) here:
a job gets neighbouring lanes where there are any, the lowest first, and keeps them as long as it
keeps its allocation. Of a GPU that jobs share the log says which it is: each has a part of its
lane, the parts below each other. Where they hold more of it than there is (in turns, or at the same
time) the parts are as much smaller, from when the first came until the last has gone. Where GPUs
are one pool, the pool is the only node.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from rota.core.eventlog import Floats, Ints
from rota.core.events import INF
from rota.metrics import History, read_history
from rota.metrics.basis import Basis
from rota.metrics.fragments import node_spans
from rota.metrics.history import OVERHEAD
from rota.report.data import Log, Spans, binned, even_edges

HEAT_BINS = 200
LEAST = 1e-9  # of a GPU: less is an error of rounding

Run: TypeAlias = tuple[float, float]
"""First lane, how many."""
Drawn: TypeAlias = tuple[float, float, float]
"""First lane, how many, and the GPUs that they stand for."""


class Holding(NamedTuple):
    """Spans in which actors hold GPUs, as one row per span and slice."""

    span: Ints
    place: Ints  # vertex: a node, or the pool
    device: Ints  # of a fraction: number of the GPU on its node; -1: the log does not say
    amount: Floats


def gantt(log: Log) -> pl.DataFrame:
    """Bars of jobs on GPUs; bars of one lane never overlap.

    Args:
        log: The event log or its history.

    Returns:
        A row per bar: `job` (its number in the trace), `job_id`, `node`, `lane` (the first GPU of
        the node, from 0), `lanes` (how many from there on), `gpus` (that are held; more than
        `lanes` where a GPU is given away more than once), `start_s`, `end_s`, `kind` (`running`, or
        `overhead` while it is being started, stopped or moved).
    """
    history = read_history(log)
    places = _Places(history)
    held = _holding(history, places)
    stay, first = _stays(history, held)
    slots = _assign(history, held, stay, first, places)
    order = np.repeat(np.arange(len(held.span)), [len(slots[number]) for number in stay.tolist()])
    runs = [run for number in stay.tolist() for run in slots[number]]
    lane = np.array(runs, dtype=np.float64).reshape(-1, 3)
    span = held.span[order]
    jobs = history.owner[history.actor[span]]
    bars = pl.DataFrame(
        {
            "job": history.actors[jobs],
            "job_id": history.log["text"].gather(history.entry_row[jobs]),
            "node": places.names(held.place[order]),
            "lane": lane[:, 0],
            "lanes": lane[:, 1],
            "gpus": lane[:, 2],
            "start_s": history.from_s[span],
            "end_s": history.until_s[span],
            "kind": pl.Series(["running", "overhead"]).gather(
                (history.state[span] == OVERHEAD).astype(np.uint32)
            ),
            "stay": stay[order],
        }
    )
    return _joined(bars)


def node_heat(log: Log, bins: int = HEAT_BINS) -> pl.DataFrame:
    """How full every node was over time.

    Args:
        log: The event log or its history.
        bins: How many equal bins.

    Returns:
        A row per node and bin: `node`, `from_s`, `until_s`, `share` (of the node's GPUs in use,
        mean over the bin), `down` (share of the bin in which the node was not up).
    """
    history = read_history(log)
    places = _Places(history)
    held = _holding(history, places)
    spans = history.from_s[held.span], history.until_s[held.span], held.amount
    return _heat(history, places, (held.place, spans), bins)


def fragment_heat(log: Log, basis: Basis | None, bins: int = HEAT_BINS) -> pl.DataFrame | None:
    """How much of every node was free, but a fragment (see `rota.metrics.fragments`), over time.

    Args:
        log: The event log or its history.
        basis: What fragments are measured by.
        bins: How many equal bins.

    Returns:
        The columns of `node_heat`; `share` is that of the node's GPUs. None without a basis, and
        where jobs took GPUs from a pool instead of nodes.
    """
    history = read_history(log)
    found = node_spans(history, basis)
    if found is None:
        return None
    spans = found.from_s, found.until_s, found.useless
    return _heat(history, _Places(history), (found.node, spans), bins)


def _heat(history: History, places: "_Places", held: tuple[Ints, Spans], bins: int) -> pl.DataFrame:
    """Mean amounts by node and bin, as shares of the node's GPUs."""
    place, spans = held
    edges = even_edges(history, bins)
    shown = places.shown(place)
    means = binned(spans, edges, np.searchsorted(shown, place), len(shown)) / np.diff(edges)
    down = _down_share(history, shown, edges)
    size = np.maximum(places.size[shown], 1.0)[:, None]
    return pl.DataFrame(
        {
            "node": places.names(shown.repeat(bins)),
            "from_s": np.tile(edges[:-1], len(shown)),
            "until_s": np.tile(edges[1:], len(shown)),
            "share": (means / size).ravel(),
            "down": down.ravel(),
        }
    )


def node_outages(log: Log) -> pl.DataFrame:
    """When nodes were not up.

    Args:
        log: The event log or its history.

    Returns:
        A row per outage: `node`, `from_s`, `until_s`.
    """
    history = read_history(log)
    rows = history.outages()
    names = _Places(history).names(np.array([row[0] for row in rows], dtype=np.int64))
    times = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 2)
    return pl.DataFrame({"node": names, "from_s": times[:, 0], "until_s": times[:, 1]})


def shown_nodes(log: Log) -> pl.DataFrame:
    """The nodes that pictures show, also those that nobody used.

    Args:
        log: The event log or its history.

    Returns:
        A row per node (or pool, where GPUs are one): `node`, `gpus`.
    """
    history = read_history(log)
    places = _Places(history)
    shown = places.shown(_holding(history, places).place)
    return pl.DataFrame({"node": places.names(shown), "gpus": places.size[shown]})


def _down_share(history: History, shown: Ints, edges: Floats) -> Floats:
    rows = [row for row in history.outages() if row[0] in set(shown.tolist())]
    at = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 2)
    slot = np.searchsorted(shown, np.array([row[0] for row in rows], dtype=np.int64))
    spans = at[:, 0], at[:, 1], np.ones(len(rows))
    share: Floats = binned(spans, edges, slot, len(shown)) / np.diff(edges)
    return share


# --- places --------------------------------------------------------------------------------------


class _Places:
    """Vertices of the log: their names and GPUs, and the nodes of GPUs (which have no rows)."""

    def __init__(self, history: History) -> None:
        vertices = history.vertices
        self.known = vertices.number
        self._names = vertices.names
        self.is_node = vertices.is_node
        top = int(self.known.max()) + 1 if len(self.known) else 1
        self.size: Floats = np.zeros(top)
        self.size[self.known] = vertices.gpus

    def of(self, vertex: Ints) -> tuple[Ints, Ints]:
        """(place, number of the GPU there or -1): GPUs are numbered right after their node."""
        at = np.searchsorted(self.known, vertex, side="right") - 1
        place = self.known[at] if len(self.known) else np.zeros_like(vertex)
        device = np.where(place == vertex, -1, vertex - place - 1)
        return place, device

    def names(self, vertices: Ints) -> pl.Series:
        """Their names."""
        texts = pl.Series(self._names, dtype=pl.String)
        return texts.gather(np.searchsorted(self.known, vertices))

    def shown(self, used: Ints) -> Ints:
        """Nodes if jobs are placed on nodes, else the pools that are used."""
        nodes = self.known[self.is_node]
        pools = np.setdiff1d(np.unique(used), nodes)
        only_pools = len(pools) > 0 and not np.isin(used, nodes).any()
        shown: Ints = pools if only_pools else np.union1d(nodes, pools)
        return shown


def _holding(history: History, places: _Places) -> Holding:
    """Slices in the hands of every span that lasts."""
    place, device = places.of(history.slices.vertex)
    span = np.flatnonzero((history.held > 0) & (history.length_s > 0))
    holder, which = history.slices.of(history.allocation[span])
    return Holding(span[holder], place[which], device[which], history.slices.amount[which])


def _stays(history: History, held: Holding) -> tuple[Ints, Ints]:
    """Number of the stay (one actor, one allocation, no gap) of each row, and their first rows.

    Every slice of an allocation is a stay of its own.
    """
    span = held.span
    if not len(span):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    opens = np.append(True, np.diff(span) != 0)  # the first slice of a span
    spans = span[opens]
    goes_on = np.append(False, history.actor[spans[1:]] == history.actor[spans[:-1]])
    goes_on[1:] &= history.allocation[spans[1:]] == history.allocation[spans[:-1]]
    goes_on[1:] &= history.from_s[spans[1:]] == history.until_s[spans[:-1]]
    chain = np.cumsum(~goes_on) - 1
    starts = np.flatnonzero(opens)
    inside = np.arange(len(span)) - np.repeat(starts, np.diff(np.append(starts, len(span))))
    width = int(inside.max()) + 1
    _, first, number = np.unique(
        chain[np.cumsum(opens) - 1] * width + inside, return_index=True, return_inverse=True
    )
    return number.astype(np.int64), first.astype(np.int64)


# --- lanes ---------------------------------------------------------------------------------------


class _SharedLane:
    """A lane that jobs share, from when the first came until the last has gone."""

    __slots__ = ("device", "lane", "parts", "top")

    def __init__(self, lane: int, device: int) -> None:
        self.lane = lane
        self.device = device
        self.parts: list[_Part] = []
        self.top = 1.0  # how much of it was given away, with the gaps

    def room(self, amount: float, most: float) -> float | None:
        """Where there is room."""
        at = 0.0
        for part in sorted(self.parts, key=lambda part: part.offset):
            if part.offset - at >= amount - LEAST:
                return at
            at = part.offset + part.amount
        return at if most - at >= amount - LEAST else None

    def add(self, offset: float, amount: float) -> "_Part":
        part = _Part(self, offset, amount)
        self.parts.append(part)
        if offset + amount > self.top + LEAST:
            self.top = offset + amount
        return part


class _Part(NamedTuple):
    """What one job has of it."""

    shared: _SharedLane
    offset: float
    amount: float

    @property
    def drawn(self) -> Drawn:
        """Where it is drawn, once all are known that share it."""
        top = self.shared.top
        return self.shared.lane + self.offset / top, self.amount / top, self.amount


class _NodeLanes:
    """The lanes of a node: free ones as bits, and those that are shared."""

    __slots__ = ("free", "shared", "top")

    def __init__(self, gpus: int) -> None:
        self.free = (1 << gpus) - 1
        self.top = gpus
        self.shared: list[_SharedLane] = []

    def take(self, amount: float, device: int) -> list[Run | _Part]:
        """Lanes for what a job holds there."""
        whole = int(amount) if device < 0 else 0
        runs: list[Run | _Part] = [*self._whole(whole)] if whole else []
        if amount - whole > LEAST:
            runs.append(self._part(amount - whole, device))
        return runs

    def give(self, runs: list[Run | _Part]) -> None:
        """They are free again."""
        for run in runs:
            if not isinstance(run, _Part):
                lane, width = run
                self.free |= ((1 << int(width)) - 1) << int(lane)
                continue
            shared = run.shared
            shared.parts = [part for part in shared.parts if part is not run]
            if not shared.parts:
                self.shared.remove(shared)
                self.free |= 1 << shared.lane

    def _whole(self, amount: int) -> list[Run]:
        if self.free.bit_count() < amount:  # more than there is: a log may be odd, not the picture
            self.free |= ((1 << amount) - 1) << self.top
            self.top += amount
        first = _neighbours(self.free, amount)
        if first >= 0:
            self.free ^= ((1 << amount) - 1) << first
            return [(float(first), float(amount))]
        lanes = []
        for _ in range(amount):
            lowest = self.free & -self.free
            self.free ^= lowest
            lanes.append(lowest.bit_length() - 1)
        return _runs(lanes)

    def _part(self, amount: float, device: int) -> _Part:
        most = INF if device >= 0 else 1.0
        for shared in self.shared:
            if shared.device == device:
                offset = shared.room(amount, most)
                if offset is not None:
                    return shared.add(offset, amount)
        if device >= 0 and self.free >> device & 1:
            lane = device
            self.free ^= 1 << device
        else:
            lane = int(self._whole(1)[0][0])
        shared = _SharedLane(lane, device)
        self.shared.append(shared)
        return shared.add(0.0, amount)


def _neighbours(free: int, amount: int) -> int:
    """The first of so many free lanes side by side; -1: there are none."""
    have = 1
    while have < amount and free:
        step = min(have, amount - have)
        free &= free >> step
        have += step
    return (free & -free).bit_length() - 1


def _runs(lanes: list[int]) -> list[Run]:
    found: list[Run] = []
    for lane in lanes:
        if found and found[-1][0] + found[-1][1] == lane:
            found[-1] = (found[-1][0], found[-1][1] + 1.0)
        else:
            found.append((float(lane), 1.0))
    return found


def _assign(
    history: History, held: Holding, stay: Ints, first: Ints, places: _Places
) -> list[list[Drawn]]:
    """The lanes of every stay: those that end give theirs back before others begin."""
    if not len(stay):
        return []
    order = np.lexsort([history.from_s[held.span], stay])
    last = order[np.append(np.flatnonzero(np.diff(stay[order])), len(stay) - 1)]
    count = len(first)
    time_s = np.concatenate([history.until_s[held.span[last]], history.from_s[held.span[first]]])
    row = np.concatenate([history.until_row[held.span[last]], history.row[held.span[first]]])
    begins = np.repeat([False, True], count)
    events = np.lexsort([row, begins, time_s])
    place, device = held.place[first].tolist(), held.device[first].tolist()
    amount = held.amount[first].tolist()
    nodes: dict[int, _NodeLanes] = {}
    slots: list[list[Run | _Part]] = [[] for _ in range(count)]
    for number, begin in zip((events % count).tolist(), begins[events].tolist(), strict=True):
        vertex = place[number]
        node = nodes.get(vertex)
        if node is None:
            node = nodes[vertex] = _NodeLanes(int(places.size[vertex]))
        if begin:
            slots[number] = node.take(amount[number], device[number])
        else:
            node.give(slots[number])
    return [[run.drawn if isinstance(run, _Part) else (*run, run[1]) for run in s] for s in slots]


def _joined(bars: pl.DataFrame) -> pl.DataFrame:
    """Bars of one kind that follow each other within a stay are one."""
    bars = bars.sort("stay", "lane", "start_s")
    same = pl.all_horizontal(
        *(pl.col(name) == pl.col(name).shift() for name in ("stay", "lane", "kind")),
        pl.col("start_s") == pl.col("end_s").shift(),
    ).fill_null(value=False)
    joined = bars.group_by((~same).cum_sum().alias("bar"), maintain_order=True).agg(
        pl.col("job", "job_id", "node", "lane", "lanes", "gpus", "start_s").first(),
        pl.col("end_s").last(),
        pl.col("kind").first(),
    )
    return joined.drop("bar").sort("start_s", "job", "node", "lane")
