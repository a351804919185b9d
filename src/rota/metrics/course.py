"""What happened to a job: where it was started or moved to, by whom or by what it was stopped."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import fsum, inf
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rota.core.log import ON_REQUEST, Record
from rota.core.sums import ordered_sum
from rota.core.words import duration, gpus_of
from rota.metrics.delay import PlacedWait, Waits
from rota.metrics.history import History
from rota.metrics.phrases import few, place_of
from rota.metrics.spare import SpareGpus

SLOW = 0.9  # of the speed with what was asked for: below that it is slow
CLOSE = 1e-3
_PACED = (Record.RUN, Record.RATE)
_UNPACED = (
    Record.START, Record.MOVE, Record.STOP, Record.EVICTED, Record.DONE, Record.FAILED,
    Record.CANCELLED,
)  # fmt: skip


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
    """The job was `started`, `started again`, `moved`, `grown` or `shrunk`, and ran for `ran_s`.

    `by`: who took the GPUs when it was shrunk. `speed`: its mean progress per second, 1 on what it
    asked for; `slow_s`: how long it was clearly below 1. Both as far as the log tells: a start that
    takes no time has no row with its rate, so it may be unknown.
    """

    at_s: float
    what: str
    ran_s: float
    nodes: list[str]  # empty: not known
    gpus: float
    text: str
    task: int | None = None  # of a non-gang job
    by: list[str] = []
    speed: float | None = None
    slow_s: float = 0.0


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

    def move_losses(self, slot: int) -> dict[float, float]:
        """Work that was lost by moves, by their times."""
        found: dict[float, float] = {}
        for row in self._rows_of(slot, Record.LOST):
            at_s = float(self._history.time_s[row])
            found[at_s] = found.get(at_s, 0.0) + float(self._history.value[row])
        return found

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
            asked = ordered_sum(float(history.asked[slot]) for slot in winners)
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
            before: PlacedWait | None = None
            paces = Paces(self._history, actor)
            for placed in self._waits.stays(actor):
                stay = self._stay("started again" if before else "started", placed)
                paces.add_to(stay)
                if placed.kind == Record.MOVE:
                    self._resized(slot, stay, placed, before)
                before = placed
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

    # --- shrinks ----------------------------------------------------------------------------------

    def _resized(
        self, slot: int, stay: Stay, placed: PlacedWait, before: PlacedWait | None
    ) -> None:
        """Say whether it grew or shrank, and for whom."""
        old = {} if before is None else self._slices.get(before.allocation, {})
        more = 0.0 if before is None else stay.gpus - fsum(old.values())
        stay.what = "grown" if more > 0 else "shrunk" if more < 0 else "moved"
        if stay.what != "shrunk":
            return
        new = self._slices.get(placed.allocation, {})
        left = {node for node, amount in old.items() if new.get(node, 0.0) < amount}
        here, elsewhere = self._takers(slot, placed.decided_s, left)
        stay.by = [self._names[taker] for taker in here or elsewhere]
        size = f"shrunk from {gpus_of(fsum(old.values()))}"
        if here:
            why = f"because the policy gave GPUs that it left to {few(stay.by)}"
        elif elsewhere:
            why = f"when the policy gave more GPUs to {few(stay.by)}, on other nodes"
        elif self._nodes_left_at(placed.decided_s):
            why = "because nodes failed or were closed"
        else:
            why = "although nobody took its GPUs at that time"
        stay.text += f"; {size} {why}"

    def _takers(self, slot: int, at_s: float, left: set[int]) -> tuple[list[int], list[int]]:
        """Who was given more GPUs at an instant: on nodes where it left some, and anywhere else."""
        first = int(np.searchsorted(self._starts.time_s, at_s, side="left"))
        last = int(np.searchsorted(self._starts.time_s, at_s, side="right"))
        here: dict[int, None] = {}
        elsewhere: dict[int, None] = {}
        for row, other in zip(
            self._starts.row[first:last].tolist(), self._starts.slot[first:last].tolist(),
            strict=True,
        ):  # fmt: skip
            if other == slot:
                continue
            new = self._slices.get(int(self._history.ref[row]), {})
            old = self._slices.get(self._before.get(row, -1), {})
            if fsum(new.values()) <= fsum(old.values()):
                continue
            gained = {node for node, amount in new.items() if amount > old.get(node, 0.0)}
            (here if gained & left else elsewhere)[other] = None
        return list(here), list(elsewhere)

    @cached_property
    def _before(self) -> dict[int, int]:
        """By row of a start or a move the allocation that the job had until then, if it had any."""
        history = self._history
        kinds = (Record.START, Record.MOVE, Record.STOP, Record.EVICTED)
        held: dict[int, int] = {}
        found: dict[int, int] = {}
        rows = np.flatnonzero(np.isin(history.event, kinds))
        for row, kind, job, ref in zip(
            rows.tolist(), history.event[rows].tolist(), history.job[rows].tolist(),
            history.ref[rows].tolist(), strict=True,
        ):  # fmt: skip
            if kind in (Record.STOP, Record.EVICTED):
                held.pop(job, None)
                continue
            if job in held:
                found[row] = held[job]
            held[job] = ref
        return found

    def _nodes_left_at(self, at_s: float) -> bool:
        rows = self._history.rows_of(Record.NODE_DOWN, Record.NODE_CLOSED)
        return bool((self._history.time_s[rows] == at_s).any())


class Paces:
    """How fast one actor went, as far as the log has its rates."""

    def __init__(self, history: History, actor: int) -> None:
        mine = history.job == history.actors[actor]
        rows = np.flatnonzero(mine & np.isin(history.event, (*_PACED, *_UNPACED)))
        times = [*history.time_s[rows].tolist(), history.end_s]
        paced = np.isin(history.event[rows], _PACED).tolist()
        self._breaks = [time_s for time_s, has in zip(times, paced, strict=False) if not has]
        self._spans = [
            (times[at], times[at + 1], rate)
            for at, (rate, has) in enumerate(zip(history.value[rows].tolist(), paced, strict=True))
            if has and rate > 0  # 0: nobody knows
        ]

    def add_to(self, stay: Stay) -> None:
        """Its speed, where all of it is known; and how long it was slow."""
        end_s = next((time_s for time_s in self._breaks if time_s > stay.at_s), inf)
        spans = [
            (until_s - from_s, rate)
            for from_s, until_s, rate in self._spans
            if stay.at_s <= from_s < end_s
        ]
        known_s = fsum(seconds for seconds, _ in spans)
        slow = [(seconds, rate) for seconds, rate in spans if rate < SLOW]
        stay.slow_s = fsum(seconds for seconds, _ in slow)
        if not stay.ran_s or abs(known_s - stay.ran_s) > CLOSE * stay.ran_s:
            return
        stay.speed = fsum(seconds * rate for seconds, rate in spans) / known_s
        if abs(stay.speed - 1) > CLOSE:
            stay.text += f" at speed {stay.speed:.2f}"
        if CLOSE * known_s < stay.slow_s < known_s * (1 - CLOSE):
            slowest = min(rate for _, rate in slow)
            stay.text += f" (down to {slowest:.2f}, slow for {duration(stay.slow_s)})"


def _and_lost(lost_s: float) -> str:
    return f"; {duration(lost_s)} of work were lost" if lost_s else ""
