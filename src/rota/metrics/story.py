"""The story of a job's waiting: every interval with its reason and with what was behind it.

The parts of a story add up to the job's `wait_s`, and the intervals of a part to the part: both by
the rules of `delay`. A non-gang job waits while none of its tasks makes progress. Its intervals are
those of its tasks; its parts are the job's own wait, divided in proportion to them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from math import fsum
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from rota.core.jobs import Accepted
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.words import duration, gpus_of
from rota.metrics.course import CLOSE, SLOW, Course, Halt, Stay, actors_of, starts_of
from rota.metrics.delay import REASONS, Wait, Waits, fold_delay
from rota.metrics.history import History, read_history
from rota.metrics.jobs import UNFINISHED, Promised, fold_jobs
from rota.metrics.phrases import few, lost_of, overhead_of, phrase, times_of
from rota.metrics.spare import SpareGpus

MOST = 20  # jobs in the list of one interval
STILL = "still running when the log was taken"
_ROOM = (
    Reason.CAPACITY, Reason.FRAGMENTATION, Reason.GANG, Reason.CONSTRAINT, Reason.MEMORY,
)  # fmt: skip


class Interval(msgspec.Struct, kw_only=True):
    """Waiting for one reason.

    `ahead`: who was started meanwhile where it could have been (for `order`), or whose end it
    waited for (`dependency`); the first few of `ahead_count`. `free_gpus`, `free_nodes`: what was
    free for most of the time, and on how many nodes; `free_least` and `free_most`: the range. None:
    not told. Unless `capacity` is the reason the time does not count in which others had not yet
    left what was to be free.
    """

    from_s: float
    until_s: float
    seconds: float
    reason: str
    text: str
    task: int | None = None  # of a non-gang job
    ahead: list[str] = []
    ahead_count: int = 0
    free_gpus: float | None = None
    free_nodes: int | None = None
    free_least: float | None = None
    free_most: float | None = None


class Part(msgspec.Struct, kw_only=True):
    """All intervals with one reason together."""

    reason: str
    seconds: float
    text: str


class Story(msgspec.Struct, kw_only=True):
    """Why a job waited; the parts add up to `wait_s`.

    From its submission to its end it waited for `wait_s` and ran for `run_s`; of the work done in
    this time `lost_s` (in seconds at full speed) was lost. `speed` and `efficiency` are 1 where a
    job ran undisturbed on what it asked for: with twice as many GPUs and 1.5 times the speed the
    efficiency is 0.75.
    """

    id: str
    state: str
    reason: str  # by which it waits at the end of the log; empty: it does not
    text: str
    wait_s: float
    parts: list[Part]
    ahead: list[str] = []
    preempted_by: list[str] = []
    tenant: str = ""
    gpus: float = 0.0
    submit_s: float = 0.0
    first_start_s: float | None = None
    end_s: float | None = None
    intervals: list[Interval] = []
    halts: list[Halt] = []
    stays: list[Stay] = []
    run_s: float = 0.0
    lost_s: float = 0.0
    deadline_s: float | None = None
    tardiness_s: float | None = None  # of a job that is done: by how much it was too late
    work_s: float | None = None  # its run time with what it asked for; None: nobody knows
    speed: float | None = None  # of a job that is done: mean progress per second of running
    efficiency: float | None = None  # of its GPU time: what it would have used with what it asked
    slow_s: float = 0.0  # it ran at less than 0.9 times its speed with what it asked for
    resizing_s: float = 0.0  # spent in growing and shrinking: overhead
    resizing_lost_s: float = 0.0  # and work that was lost by it


class _Told(NamedTuple):
    """An interval, and all who were ahead."""

    interval: Interval
    ahead: list[str]


class Stories:
    """Tells the stories of one log."""

    def __init__(
        self,
        log: pl.DataFrame | History,
        open_ended: Collection[str] = (),
        promised: Promised | None = None,
    ) -> None:
        """Read a log.

        Args:
            log: The log or its history.
            open_ended: Ids of jobs whose end there is only the end of a history.
            promised: What the log does not tell of jobs: when they were to be done, their work.
        """
        self._open_ended = frozenset(open_ended)
        self._promised = promised or Promised()
        self.history = history = read_history(log)
        self.ids = history.ids
        self._job_slots = np.flatnonzero(history.is_job)
        self._names = dict(zip(self._job_slots.tolist(), self.ids, strict=True))
        self._starts = starts_of(history)
        self._waits = Waits(history)
        self._rivals: dict[int, Any] = {}  # by shape

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """The table of jobs."""
        return fold_jobs(self.history)

    @cached_property
    def delays(self) -> Any:
        """Seconds by job and reason."""
        return fold_delay(self.history)

    @cached_property
    def _spare(self) -> SpareGpus:
        return SpareGpus(self.history)

    @cached_property
    def _course(self) -> Course:
        return Course(
            self.history, waits=self._waits, spare=self._spare, starts=self._starts,
            names=self._names,
        )  # fmt: skip

    @cached_property
    def _accepted(self) -> dict[int, Accepted]:
        return {shape: Accepted.told(text) for shape, text in self.history.shapes.items()}

    @cached_property
    def _places(self) -> dict[int, set[int]]:
        """Where requests of a shape were started: slots of nodes, or pools as numbers below 0."""
        history = self.history
        found: dict[int, set[int]] = {}
        rows = self._starts.row
        shapes = history.shape[history.actor_of(history.job[rows])]
        pairs = np.unique(np.stack([shapes, history.ref[rows]]), axis=1)
        for shape, allocation in pairs.T.tolist():
            found.setdefault(shape, set()).update(self._course.places_of(allocation))
        return found

    def _competing(self, shape: int) -> Any:
        """Of all starts those in places that a request is known to accept.

        The log does not tell of which kind a node is, but who asked for the same kind, or for more,
        was only started on nodes of it. A request that names no kind accepts all.
        """
        if shape not in self._rivals:
            starts = self.history.event[self._starts.row] == Record.START
            accepted = self._accepted.get(shape, Accepted())
            if accepted != Accepted():
                usable = set().union(
                    *(
                        places
                        for other, places in self._places.items()
                        if other in self._accepted and self._accepted[other].within(accepted)
                    )
                )
                taken = self.history.ref[self._starts.row].tolist()
                starts &= [not usable.isdisjoint(self._course.places_of(one)) for one in taken]
            self._rivals[shape] = starts
        return self._rivals[shape]

    # --- one job ----------------------------------------------------------------------------------

    def tell(self, number: int) -> Story:
        """The story of a job by its number in the trace."""
        slot = int(self._job_slots[number])
        row = self.jobs.row(number, named=True)
        told = self._tell_all(slot)
        intervals = [one.interval for one in told]
        halts = self._course.halts(slot)
        parts = self._parts(number, slot, told)
        wait_s = fsum(part.seconds for part in parts)
        lost_s = self._course.lost_s(slot)
        until_s = row["end_s"] if row["end_s"] is not None else self.history.end_s
        lived_s = until_s - row["submit_s"] if row["first_start_s"] is not None else 0.0
        run_s = max(0.0, lived_s - wait_s)
        state, said, end_s = row["state"], row["state"], row["end_s"]
        reason = self._present(state, intervals)
        if row["job_id"] in self._open_ended:
            state, said, end_s = UNFINISHED, STILL, None
        due_s = self._promised.deadlines_s.get(row["job_id"])
        late_s = max(0.0, end_s - due_s) if due_s is not None and state == "done" else None
        stays, resizing = self.sizes(number)
        if why := self._course.end_told(slot):
            said += f" ({why})"
        text = _sentence(said, wait_s, parts, halts, lost_s)
        pace = _Pace.of(row, state, self._promised.works_s.get(row["job_id"]), lost_s)
        slow_s = fsum(stay.slow_s for stay in stays)
        for more in (resizing.text, pace.text, _slow(slow_s)):
            text += f"; {more}" if more else ""
        if due_s is not None:
            text += "; " + _promptness(state, late_s, self.history.end_s - due_s)
        return Story(
            id=row["job_id"],
            state=state,
            reason=reason,
            text=text,
            wait_s=wait_s,
            parts=parts,
            ahead=_union(one.ahead for one in told if one.interval.reason == "order"),
            preempted_by=_union(halt.by for halt in halts if halt.what == "preempted"),
            tenant=row["tenant"] or "",
            gpus=row["gpus"],
            submit_s=row["submit_s"],
            first_start_s=row["first_start_s"],
            end_s=end_s,
            intervals=intervals,
            halts=halts,
            stays=stays,
            run_s=run_s,
            lost_s=lost_s,
            deadline_s=due_s,
            tardiness_s=late_s,
            work_s=pace.work_s,
            speed=pace.speed,
            efficiency=pace.efficiency,
            slow_s=slow_s,
            resizing_s=resizing.spent_s,
            resizing_lost_s=resizing.lost_s,
        )

    def sizes(self, number: int) -> "tuple[list[Stay], Resizing]":
        """Where a job was started, moved, grown and shrunk, and what changes of size did to it."""
        slot = int(self._job_slots[number])
        stays = self._course.stays(slot)
        return stays, Resizing.of(stays, self._resizing_s(slot), self._course.move_losses(slot))

    def _resizing_s(self, slot: int) -> float:
        history = self.history
        mine = history.resizing & np.isin(history.actor, actors_of(history, slot))
        return fsum(history.length_s[mine].tolist())

    def _present(self, state: str, intervals: Sequence[Interval]) -> str:
        waits = state == UNFINISHED and intervals and intervals[-1].until_s == self.history.end_s
        return intervals[-1].reason if waits else ""

    def _parts(self, number: int, slot: int, told: "Sequence[_Told]") -> list[Part]:
        """The largest first."""
        whole = not self.history.has_tasks[slot]
        found = []
        for i, reason in enumerate(REASONS):
            those = [one for one in told if one.interval.reason == reason]
            seconds = (
                fsum(one.interval.seconds for one in those)
                if whole
                else float(self.delays[number, i])
            )
            if those and seconds > 0:  # sums of a non-gang job's tasks are rounded
                text = self._phrase(slot, those)
                found.append(Part(reason=reason, seconds=seconds, text=text))
        return sorted(found, key=lambda part: -part.seconds)

    def _phrase(self, slot: int, those: "Sequence[_Told]") -> str:
        history = self.history
        return phrase(
            Reason[those[0].interval.reason.upper()],
            asked=history.shapes.get(int(history.shape[slot]), "its GPUs"),
            gpus=float(history.asked[slot]),
            ahead=_union(one.ahead for one in those),
            room=_widest([one.interval for one in those]),
        )

    # --- intervals --------------------------------------------------------------------------------

    def _tell_all(self, slot: int) -> "list[_Told]":
        """Every interval of a job or of its tasks, in order of time."""
        found = []
        for task, actor in enumerate(actors_of(self.history, slot)):
            for wait in self._waits.of(actor):
                told = self._tell(slot, actor, wait)
                told.interval.task = task if self.history.has_tasks[slot] else None
                found.append(told)
        return sorted(found, key=lambda one: (one.interval.from_s, one.interval.task or 0))

    def _tell(self, slot: int, actor: int, wait: Wait) -> "_Told":
        reason = Reason(wait.reason)
        others: list[int] = []
        if reason == Reason.ORDER:
            others = self._served(slot, actor, wait)
        elif reason == Reason.DEPENDENCY:
            others = self._let_go_by(actor, wait.until_s)
        ahead = [self._names[other] for other in others]
        interval = Interval(
            from_s=wait.from_s,
            until_s=wait.until_s,
            seconds=wait.seconds,
            reason=reason.label,
            text="",
            ahead=ahead[:MOST],
            ahead_count=len(ahead),
        )
        if reason in _ROOM:
            self._measure(interval, actor, wait)
        told = _Told(interval, ahead)
        if reason == Reason.OVERHEAD:
            interval.text = overhead_of(wait.kind)
        elif reason == Reason.DOWN:
            interval.text = f"after {self._course.failure(actor, wait.from_s)}"
        else:
            interval.text = self._phrase(slot, [told])
        return told

    def _served(self, slot: int, actor: int, wait: Wait) -> list[int]:
        """Jobs that were started during an interval in places that it could have used, in order.

        Who runs only where it cannot is not in its way.
        """
        history = self.history
        rows, time_s, slots = self._starts
        first = int(np.searchsorted(time_s, wait.from_s, side="left"))
        last = int(np.searchsorted(time_s, wait.until_s, side="right"))
        own = rows[history.job[rows] == history.actors[actor]]
        own = own[(history.time_s[own] == wait.until_s)]
        if len(own):  # who comes after it at the same instant was not served first
            last = min(last, int(np.searchsorted(rows, own[0])))
        starts = self._competing(int(history.shape[actor]))[first:last]
        served: list[int] = slots[first:last][starts].tolist()
        return [other for other in dict.fromkeys(served) if other != slot]

    def _let_go_by(self, actor: int, at_s: float) -> list[int]:
        """The job that was done when one that waited for others was admitted.

        Nobody if several ended just then: the log does not say for which of them it waited.
        """
        history = self.history
        first = int(np.searchsorted(history.time_s, at_s, side="left"))
        last = int(np.searchsorted(history.time_s, at_s, side="right"))
        rows = np.arange(first, last)
        mine = history.job[rows] == history.actors[actor]
        if not (mine & (history.event[rows] == Record.ADMITTED)).any():
            return []
        done = rows[history.event[rows] == Record.DONE]
        ended = history.owner[history.actor_of(history.job[done])]
        named = list(dict.fromkeys(ended.tolist()))
        return named if len(named) == 1 else []

    def _measure(self, interval: Interval, actor: int, wait: Wait) -> None:
        """How many GPUs were free."""
        pieces = list(self._spare.between(wait.from_s, wait.until_s))
        asked = float(self.history.asked[actor])
        if wait.reason != Reason.CAPACITY:
            # what somebody is about to leave can be given away already, but is not free here
            pieces = [piece for piece in pieces if piece.gpus >= asked] or pieces
        lasted: dict[tuple[float, int | None], float] = {}
        for piece in pieces:
            key = (piece.gpus, piece.nodes)
            lasted[key] = lasted.get(key, 0.0) + piece.seconds
        interval.free_gpus, interval.free_nodes = max(lasted, key=lambda key: lasted[key])
        interval.free_least = min(piece.gpus for piece in pieces)
        interval.free_most = max(piece.gpus for piece in pieces)


def number_of(history: History, index: int) -> int | None:
    """Which of the jobs of a log has this index; None: no one."""
    jobs = history.actors[history.is_job]
    at = int(np.searchsorted(jobs, index))
    return at if at < len(jobs) and jobs[at] == index else None


def waiting_parts(log: pl.DataFrame | History, index: int) -> dict[str, float]:
    """Seconds by reason of the job with this index, the largest first; empty: no such job."""
    history = read_history(log)
    number = number_of(history, index)
    if number is None:
        return {}
    delays = zip(REASONS, fold_delay(history)[number].tolist(), strict=True)
    return {reason: s for reason, s in sorted(delays, key=lambda pair: -pair[1]) if s > 0}


def _union(lists: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in lists for name in names))


def _widest(those: Sequence[Interval]) -> Interval | None:
    """The longest of them, with the range over all."""
    measured = [interval for interval in those if interval.free_gpus is not None]
    if not measured:
        return None
    longest = max(measured, key=lambda interval: interval.seconds)
    return msgspec.structs.replace(
        longest,
        free_least=min(interval.free_least or 0.0 for interval in measured),
        free_most=max(interval.free_most or 0.0 for interval in measured),
    )


def _sentence(
    state: str, wait_s: float, parts: Sequence[Part], halts: Sequence[Halt], lost_s: float
) -> str:
    text = "did not wait"
    if parts:
        pieces = ", ".join(f"{duration(part.seconds)} {part.text}" for part in parts)
        text = f"waited {duration(wait_s)}: {pieces}"
    said = [state, text]
    preempted = [halt for halt in halts if halt.what == "preempted"]
    if preempted:
        by = few(_union(halt.by for halt in preempted))
        said.append(f"preempted {times_of(len(preempted))}" + (f" by {by}" if by else ""))
    said += [halt.text for halt in halts if halt.what == "stopped"]
    evicted = [halt for halt in halts if halt.what == "evicted"]
    if evicted:
        failures = "the failure of" if len(evicted) == 1 else "failures of"
        nodes = few(_union(halt.by for halt in evicted))
        by = f" by {failures} {nodes}" if nodes else ""
        said.append(f"evicted {times_of(len(evicted))}{by}")
    lost = lost_of(lost_s, state)
    return "; ".join([*said, lost] if lost else said)


class Resizing(NamedTuple):
    """What growing and shrinking did to a job."""

    text: str = ""
    spent_s: float = 0.0
    lost_s: float = 0.0

    @classmethod
    def of(cls, stays: Sequence[Stay], spent_s: float, losses: Mapping[float, float]) -> "Resizing":
        """How often its size changed, between which sizes, what that took, and who got its GPUs.

        Args:
            stays: Its starts and moves.
            spent_s: How long it was being resized.
            losses: Work that was lost by moves, by their times.
        """
        counts = Counter(stay.what for stay in stays if stay.what in ("grown", "shrunk"))
        if not counts:
            return cls()
        changed = {stay.at_s for stay in stays if stay.what in counts}
        lost_s = fsum(losses.get(at_s, 0.0) for at_s in changed)
        sizes = [stay.gpus for stay in stays]
        text = " and ".join(f"{what} {times_of(counts[what])}" for what in sorted(counts))
        text += f" (on {min(sizes):g} to {gpus_of(max(sizes))})"
        takers = _union(stay.by for stay in stays)
        if takers:
            text += f", for {few(takers)}"
        took = [f"took {duration(spent_s)}"] if spent_s else []
        took += [f"lost {duration(lost_s)} of work"] if lost_s else []
        return cls(text + (f", which {' and '.join(took)}" if took else ""), spent_s, lost_s)


class _Pace(NamedTuple):
    """How fast a job went, relative to what it asked for, and what that cost."""

    work_s: float | None = None
    speed: float | None = None
    efficiency: float | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any], state: str, work_s: float | None, lost_s: float) -> "_Pace":
        """From the table of jobs; only a job that is done has done its work."""
        if work_s is None or state != "done" or row["service_gpu_s"] <= 0:
            return cls(work_s)
        ran_s = row["service_gpu_s"] / row["mean_gpus"]
        done_s = work_s + lost_s
        return cls(work_s, done_s / ran_s, done_s * row["gpus"] / row["service_gpu_s"])

    @property
    def text(self) -> str:
        """Empty where it ran as it asked for."""
        if self.speed is None or self.efficiency is None:
            return ""
        if abs(self.speed - 1) <= CLOSE and abs(self.efficiency - 1) <= CLOSE:
            return ""
        return (
            f"ran at {self.speed:.2f} times its speed with what it asked for, "
            f"efficiency {self.efficiency:.0%}"
        )


def _slow(slow_s: float) -> str:
    return f"slow (below {SLOW:g} of it) for {duration(slow_s)}" if slow_s else ""


def _promptness(state: str, late_s: float | None, past_s: float) -> str:
    """What became of its deadline; `past_s`: how long ago it was when the log ended."""
    if late_s is not None:
        return f"{duration(late_s)} too late for its deadline" if late_s else "met its deadline"
    return "missed its deadline" if state != UNFINISHED or past_s > 0 else "its deadline is to come"
