"""When the scheduler is asked: its wake condition, rounds, and levels that jobs reach."""

from collections.abc import Callable, Container, Mapping
from heapq import heapify, heappop, heappush
from math import nextafter
from typing import Any, Protocol

from rota.core import events as ev
from rota.core.changes import Level, Wake
from rota.core.errors import PolicyError
from rota.core.events import INF, Event
from rota.core.jobs import RUNNING, STARTING, Job

IDLE = 10_000  # so many rounds in which nothing happens are enough
SLACK = 1e-9  # rounds: multiples of their length are not exact in floating point
ULPS = 2.0**-50  # of the number of rounds: what a product and a quotient may be off
ROUNDING_STEPS = 64  # far more than a few roundings can be off


class Timed(Protocol):
    """A job, or the calendar, whose number is -1."""

    @property
    def index(self) -> int:
        """Its number."""
        ...

    @property
    def epoch(self) -> int:
        """Timers of an earlier one do not count."""
        ...


class Timers:
    """Owns the wake condition, the timers of jobs, and the numbers of events made by the engine."""

    def __init__(self, wake: Wake, imposed: Wake | None = None) -> None:
        self.imposed = imposed  # rounds from outside: they win over what the scheduler asks for
        self.wake = imposed or wake
        self.heap: list[tuple[float, int, Timed, int]] = []  # time, number, job, its epoch
        self.pending: dict[int, list[Level]] = {}  # of jobs that are being started
        self.sequence = 0
        self.ask_now = False  # at this very instant, whatever the wake condition says
        self.hears_phases = False  # by themselves phases of jobs are no reason to ask
        # levels of progress that are watched, by job, with the numbers and epochs of their timers
        self._progress: dict[int, list[tuple[Level, int, int]]] = {}
        self.idle_rounds = 0

    # --- when -----------------------------------------------------------------------------------

    def next_s(self, now_s: float, busy: object) -> float:
        """The time of the next timer, round or wake; `busy`: there are jobs that may need it."""
        wake = self.wake
        at_s = wake.at_s
        if wake.every_s and busy and self.idle_rounds < IDLE:
            at_s = min(at_s, next_boundary(now_s, wake.every_s))
        return self.before(at_s)

    def before(self, at_s: float) -> float:
        """The time of the next timer, if it is before this one."""
        heap = self.heap
        while heap:
            timer = heap[0]
            if timer[3] == timer[2].epoch:
                return timer[0] if timer[0] < at_s else at_s  # noqa: FURB136 - hot
            heappop(heap)
        return at_s

    def expire(self, now_s: float, events: list[Event]) -> None:
        """Turn the timers that are due into events."""
        heap = self.heap
        while heap and heap[0][0] <= now_s:
            _, sequence, job, epoch = heappop(heap)
            if epoch == job.epoch:
                events.append((now_s, ev.LEVEL, sequence, job, epoch))

    def asleep(self, events: list[Event], now_s: float) -> bool:
        """Does nothing in this batch meet the wake condition?"""
        wake = self.wake
        if wake.at_s <= now_s:
            self.wake = Wake(wake.on, INF, wake.every_s)
            events.append((now_s, ev.TIMER, 0, None, 0))
            return False
        if wake.on is None and (self.hears_phases or not events or not only_phases(events)):
            return False
        if wake.every_s and on_boundary(now_s, wake.every_s):
            return False
        if wake.on is None:
            return True
        levels = self.imposed is None  # imposed rounds are not broken by levels either
        return not any(event[1] in wake.on or (levels and event[1] == ev.LEVEL) for event in events)

    # --- what is asked for ----------------------------------------------------------------------

    def request(self, wake: Wake) -> None:
        """The scheduler wants this wake condition (imposed rounds win)."""
        self.wake = self.imposed or wake

    def ask_again(self) -> None:
        """The scheduler must learn of something at this instant (unless rounds are imposed)."""
        if self.imposed is None:
            self.ask_now = True

    def arm(self, at_s: float, job: Timed) -> None:
        """Ask at this time, unless the job is stopped or moved before."""
        self.sequence += 1
        heappush(self.heap, (at_s, self.sequence, job, job.epoch))

    def watch(self, level: Level, now_s: float) -> None:
        """Ask when a quantity of a job reaches its level."""
        if level.job.phase == STARTING:
            self.pending.setdefault(level.job.index, []).append(level)  # see `progressing`
            return
        at_s = level_time(level, now_s)
        if at_s < INF:
            self.arm(at_s, level.job)
            if level.quantity == "progress":
                watched = self._progress.setdefault(level.job.index, [])
                watched.append((level, self.sequence, level.job.epoch))

    def repaced(self, job: Job, now_s: float) -> None:
        """Its rate has changed by itself: the levels of its progress are reached at other times."""
        watched = self._progress.pop(job.index, ())
        if not watched:
            return
        numbers = {number for _, number, _ in watched}
        self.heap[:] = [timer for timer in self.heap if timer[1] not in numbers]
        heapify(self.heap)
        for level, _, epoch in watched:
            if epoch == job.epoch:
                self.watch(level, now_s)

    def progressing(self, job: Job, now_s: float) -> None:
        """A job begins to make progress: watch what was asked for while it was being started."""
        for level in self.pending.pop(job.index, ()):
            self.watch(level, now_s)

    def clear(self) -> None:
        """Forget what a former scheduler asked for."""
        self.heap.clear()
        self.pending.clear()
        self._progress.clear()

    def discard(self, jobs: Container[int]) -> None:
        """Nothing about these jobs, which are over, is of interest any more."""
        self.heap[:] = [timer for timer in self.heap if timer[2].index not in jobs]
        heapify(self.heap)
        self.pending = {i: found for i, found in self.pending.items() if i not in jobs}
        self._progress = {i: found for i, found in self._progress.items() if i not in jobs}

    # --- state ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        wake = self.wake
        timers = sorted(self.heap, key=lambda timer: timer[:2])
        return {
            "sequence": self.sequence,
            "wake": (sorted(wake.on) if wake.on is not None else None, wake.at_s, wake.every_s),
            "ask_now": self.ask_now,
            "levels": [
                (index, [(level.quantity, level.value) for level in levels])
                for index, levels in self.pending.items()
            ],
            "progress": [
                (index, level.value, number, epoch)
                for index, watched in self._progress.items()
                for level, number, epoch in watched
                if epoch == level.job.epoch
            ],
            "timers": [(t, n, job.index, epoch) for t, n, job, epoch in timers
                       if epoch == job.epoch and job.index >= 0],
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:
        """Resume from the state of `snapshot`."""
        self.sequence, self.ask_now = state["sequence"], state["ask_now"]
        on, at_s, every_s = state["wake"]
        self.wake = Wake(frozenset(on) if on is not None else None, at_s, every_s)
        self.pending = {
            index: [Level(jobs[index], quantity, value) for quantity, value in levels]
            for index, levels in state["levels"]
        }
        self.heap[:] = [(t, n, jobs[i], epoch) for t, n, i, epoch in state["timers"]]
        self._progress = {}
        for index, value, number, epoch in state["progress"]:
            level = Level(jobs[index], "progress", value)
            self._progress.setdefault(index, []).append((level, number, epoch))


def only_phases(events: list[Event]) -> bool:
    """Jobs go on at other rates by themselves, and nothing else has happened."""
    return all(event[1] == ev.JOB_PHASE for event in events)


def next_boundary(now_s: float, every_s: float) -> float:
    """The next multiple of the round that is later than now."""
    rounds = now_s / every_s
    return (int(rounds + max(SLACK, rounds * ULPS)) + 1) * every_s


def on_boundary(now_s: float, every_s: float) -> bool:
    """Is now a multiple of the round?"""
    rounds = now_s / every_s
    return abs(rounds - round(rounds)) <= max(SLACK, rounds * ULPS)


def level_time(level: Level, now_s: float) -> float:
    """The first time at which it is reached if nothing changes; inf if never, or if it is now."""
    job, value = level.job, level.value
    amount, speed = _quantity(job, level.quantity)
    have = amount(now_s)
    if have >= value or not speed:
        return INF
    at_s = now_s + (value - have) / speed
    # sums are rounded: at the time of the wake the level must be reached, or it would wake for ever
    for _ in range(ROUNDING_STEPS):
        if amount(at_s) >= value:
            break
        at_s = nextafter(at_s, INF)
    return at_s


def _quantity(job: Job, name: str) -> tuple[Callable[[float], float], float]:
    """The quantity as a function of time, and its change per second."""
    going = job.phase == RUNNING
    if name == "service":
        return job.attained_gpu_s, job.held_gpus if going else 0.0
    if name == "executed":
        return job.executed_s, 1.0 if going else 0.0
    if name == "waiting":
        return job.waiting_s, 0.0 if going else 1.0
    if name == "progress":
        if not job.true_work:
            return (lambda _: 1.0), 0.0
        return (
            lambda t: 1.0 - job.left_at(t) / job.true_work
        ), job.true_rate / job.true_work if going else 0.0
    raise PolicyError(f"unknown quantity {name!r} to watch: service, executed, progress or waiting")
