"""What happened to a job: where it was started or moved to, by whom or by what it was stopped."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import fsum
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rota.core.log import ON_REQUEST, Record
from rota.core.words import duration
from rota.metrics.delay import PlacedWait, Waits
from rota.metrics.history import History
from rota.metrics.phrases import few, gpus_of, place_of
from rota.metrics.spare import SpareGpus


class Halt(msgspec.Struct, kw_only=True):
    """It was stopped: for others (`preempted`), by a failure (`evicted`), on request (`stopped`).

    `by`: for which jobs, or which node it was.
    """

    at_s: float
    what: str
    by: list[str]
    lost_s: float  # work to be done again
    text: str


class Stay(msgspec.Struct, kw_only=True):
    """The job was `started`, `started again`, `moved`, `grown` or `shrunk`, and ran for `ran_s`."""

    at_s: float
    what: str
    ran_s: float
    nodes: list[str]  # empty: not known
    gpus: float
    text: str
    task: int | None = None  # of a non-gang job


class Starts(NamedTuple):
    """All starts and moves of a log: rows, times and slots of the jobs."""

    row: Any
    time_s: Any
    slot: Any


def starts_of(history: History) -> Starts:
    """In order of time."""
    rows = history.rows_of(Record.START, Record.MOVE)
    slots = history.owner[history.actor_of(history.job[rows])]
    return Starts(rows, history.time_s[rows], slots)


def actors_of(history: History, slot: int) -> list[int]:
    """The job, or its tasks."""
    if not history.has_tasks[slot]:
        return [slot]
    tasks: list[int] = np.flatnonzero(history.owner == slot).tolist()
    return [task for task in tasks if task != slot]


class Course:
    """Answers for one log; `names`: ids of the jobs by slot."""

    def __init__(
        self,
        history: History,
        *,
        waits: Waits,
        spare: SpareGpus,
        starts: Starts,
        names: Mapping[int, str],
    ) -> None:
        self._history = history
        self._waits = waits
        self._spare = spare
        self._starts = starts
        self._names = names

    # --- stops ------------------------------------------------------------------------------------

    def _rows_of(self, slot: int, *kinds: Record) -> list[int]:
        """Rows of these kinds about a job or its tasks."""
        history = self._history
        actors = history.actors[actors_of(history, slot)]
        rows = np.isin(history.event, kinds) & np.isin(history.job, actors)
        found: list[int] = np.flatnonzero(rows).tolist()
        return found

    def halts(self, slot: int) -> list[Halt]:
        """Every stop of a job or of its tasks, in order of time."""
        return [
            self._preemption(row)
            if self._history.event[row] == Record.STOP
            else self._eviction(row)
            for row in self._rows_of(slot, Record.STOP, Record.EVICTED)
        ]

    def lost_s(self, slot: int) -> float:
        """Work that was lost in stops, failures and moves."""
        rows = self._rows_of(slot, Record.STOP, Record.EVICTED, Record.LOST)
        return fsum(self._history.value[rows].tolist())

    def end_told(self, slot: int) -> str:
        """Why it was rejected, failed or was cancelled, as the log says; empty: it does not."""
        rows = self._rows_of(slot, Record.REJECTED, Record.FAILED, Record.CANCELLED)
        return next(filter(None, (self._history.text(row) for row in rows)), "")

    def _preemption(self, row: int) -> Halt:
        history = self._history
        at_s = float(history.time_s[row])
        lost_s = float(history.value[row])
        if history.other[row] == ON_REQUEST:
            text = (history.text(row) or "stopped on request") + _and_lost(lost_s)
            return Halt(at_s=at_s, what="stopped", by=[], lost_s=lost_s, text=text)
        winners = self._winners(row)
        names = [self._names[slot] for slot in winners]
        text = history.text(row) or "stopped by the policy"
        if winners:
            asked = sum(float(history.asked[slot]) for slot in winners)
            stops = np.flatnonzero((history.event == Record.STOP) & (history.time_s == at_s))
            free = self._spare.before(int(stops[0])).gpus
            movers = [self._names[slot] for slot in self._movers(row, winners)]
            text = (
                f"made room for {few(names)}, which the policy preferred "
                f"({gpus_of(asked)} asked for, {free:g} free"
                + (f"; {few(movers)} moved to its node)" if movers else ")")
            )
        return Halt(
            at_s=at_s, what="preempted", by=names, lost_s=lost_s, text=text + _and_lost(lost_s)
        )

    def _movers(self, row: int, winners: Sequence[int]) -> list[int]:
        """Who took its place, where that is not who wanted room: it was moved out of the way."""
        found: dict[int, None] = {}
        for start in self._starts_beside(row):
            starter = int(self._starts.slot[start])
            if starter in winners:
                return []
            if self._history.event[self._starts.row[start]] == Record.MOVE:
                found[starter] = None
        return list(found)

    def _starts_beside(self, row: int) -> Iterator[int]:
        """Starts and moves at the instant of a stop onto the nodes that it leaves."""
        at_s = self._history.time_s[row]
        first = int(np.searchsorted(self._starts.time_s, at_s, side="left"))
        last = int(np.searchsorted(self._starts.time_s, at_s, side="right"))
        left = self._nodes_of(int(self._history.ref[row]))
        for start in range(first, last):
            if left & self._nodes_of(int(self._history.ref[self._starts.row[start]])):
                yield start

    def _winners(self, row: int) -> list[int]:
        """Who displaced it: as the log says, else who was started on its nodes at that instant.

        Nobody, where the log says why it was stopped, but for nobody.
        """
        history = self._history
        if history.other[row] >= 0:
            return [int(history.owner[history.actor_of(history.other[row])])]
        if history.text(row):
            return []
        return list(dict.fromkeys(int(self._starts.slot[i]) for i in self._starts_beside(row)))

    @cached_property
    def _slices(self) -> dict[int, dict[int, float]]:
        """GPUs by slot of the node, of every allocation."""
        slices = self._history.slices
        slots = self._spare.slots_of(slices.vertex)
        found: dict[int, dict[int, float]] = {}
        columns = (slices.allocation.tolist(), slots.tolist(), slices.amount.tolist())
        for number, slot, amount in zip(*columns, strict=True):
            nodes = found.setdefault(number, {})
            nodes[slot] = nodes.get(slot, 0.0) + amount
        return found

    @cached_property
    def _at(self) -> dict[int, set[int]]:
        history = self._history
        rows = history.rows_of(Record.ALLOCATION, Record.EXTRA)
        vertices = history.other[rows]
        slots = self._spare.slots_of(vertices)
        places = np.where(slots < len(self._spare.names), slots, -1 - vertices)
        found: dict[int, set[int]] = {}
        for number, place in zip(history.ref[rows].tolist(), places.tolist(), strict=True):
            found.setdefault(number, set()).add(place)
        return found

    def places_of(self, allocation: int) -> set[int]:
        """Slots of the nodes on which it has GPUs, CPUs or memory; pools as numbers below 0."""
        return self._at.get(allocation, set())

    def _nodes_of(self, allocation: int) -> set[int]:
        return set(self._slices.get(allocation, ()))

    def _eviction(self, row: int) -> Halt:
        history = self._history
        lost_s = float(history.value[row])
        name = self._node_at(row)
        return Halt(
            at_s=float(history.time_s[row]), what="evicted", by=[name] if name else [],
            lost_s=lost_s, text=self._failed(row) + _and_lost(lost_s),
        )  # fmt: skip

    def failure(self, actor: int, at_s: float) -> str:
        """What failed under it last."""
        history = self._history
        index = history.actors[actor]
        evicted = (history.event == Record.EVICTED) & (history.job == index)
        rows = np.flatnonzero(evicted & (history.time_s <= at_s))
        return self._failed(int(rows[-1])) if len(rows) else "its node failed"

    def _failed(self, row: int) -> str:
        """In the words of the row, or the name of the node."""
        name = self._node_at(row)
        if name:
            return f"node {name} failed"
        said = self._history.text(row)
        return f"its run was lost ({said})" if said else "its run was lost"

    def _node_at(self, row: int) -> str:
        """Name of the node in a row; empty: there is none."""
        slot = int(self._spare.slots_of(self._history.ref[row : row + 1])[0])
        known = self._history.ref[row] >= 0 and slot < len(self._spare.names)
        return self._spare.names[slot] if known else ""

    # --- stays ------------------------------------------------------------------------------------

    def stays(self, slot: int) -> list[Stay]:
        """Every start and move of a job or of its tasks, in order of time."""
        found = []
        for task, actor in enumerate(actors_of(self._history, slot)):
            before = None
            for placed in self._waits.stays(actor):
                stay = self._stay("started again" if before else "started", placed)
                if placed.kind == Record.MOVE:
                    more = 0.0 if before is None else stay.gpus - before.gpus
                    stay.what = "grown" if more > 0 else "shrunk" if more < 0 else "moved"
                before = stay
                stay.task = task if self._history.has_tasks[slot] else None
                found.append(stay)
        return sorted(found, key=lambda stay: (stay.at_s, stay.task or 0))

    def _stay(self, what: str, placed: PlacedWait) -> Stay:
        slices = self._slices.get(placed.allocation, {})
        names = self._spare.names
        nodes = [names[slot] for slot in sorted(slices) if slot < len(names)]
        gpus = fsum(slices.values())
        text = f"{place_of(nodes, gpus)}, ran {duration(placed.ran_s)}"
        return Stay(
            at_s=placed.from_s, what=what, ran_s=placed.ran_s, nodes=nodes, gpus=gpus, text=text
        )


def _and_lost(lost_s: float) -> str:
    return f"; {duration(lost_s)} of work were lost" if lost_s else ""
