"""ElasticFlow's loop: events in slots, all plans anew at each of them, overhead for all who run.

An event is a submission, the end of a job, or a change of somebody's share. Those that come within
a slot are one event, at its end. At each event every plan is made anew, every job is placed anew,
and everyone who runs pays for it. The loop looks ahead to the next event: what a job does until
then is one rate.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import ceil, log2
from typing import Any, NamedTuple

from rota.core import events as ev
from rota.core.allocation import Allocation
from rota.core.changes import Changes, Wake
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.elasticflow.filling import Filled, Filling, FillingJob, Steps, earliest
from rota.reproduce.elasticflow.slots import (
    LARGE,
    LEAST_LEFT,
    OVERHEAD_LARGE_S,
    OVERHEAD_S,
    RESTART_LARGE_S,
    RESTART_S,
    SlotReplanner,
    rate_to_be_done,
)
from rota.reproduce.loop import RATE


class SlotAhead(NamedTuple):
    """What a job will have left at the next event, whether it ends there, and when it is done."""

    left: float
    ends: bool
    end_s: float


class SlotJob:
    """A job in the loop's accounts."""

    __slots__ = (
        "due_s", "end_s", "held", "job", "left", "levels", "overhead_s", "placed", "plan", "rates",
        "real_end_s", "started",
    )  # fmt: skip

    def __init__(self, job: Job, rates: Mapping[int, float], levels: Sequence[int]) -> None:
        self.job = job
        self.rates = rates
        self.levels = levels
        self.due_s = job.spec.deadline_s
        self.left = job.left_at(job.submit_s)
        self.held = 0  # GPUs until the next event
        self.placed = False  # it has been on nodes since the last event
        self.started = False
        self.plan: Steps = {}
        self.end_s = 0.0
        self.real_end_s: float | None = None
        self.overhead_s = 0.0

    def next_level(self) -> int:
        """The next larger share; the same if there is none."""
        return next((level for level in self.levels if level > self.held), self.held)

    def asks(self) -> FillingJob:
        """As filling sees it."""
        return FillingJob(self.left, self.due_s, self.rates, self.levels)

    def take(self, filled: Filled) -> None:
        """Follow this plan."""
        self.plan, self.end_s, self.real_end_s = filled.plan, filled.end_s, filled.real_end_s

    def after(self, seconds: float, now_s: float, *, ends: bool) -> SlotAhead:
        """What the simulator makes of so many seconds up to now; `ends`: its end is due now."""
        if not self.held:
            return SlotAhead(self.left, ends and self.placed, self.end_s)
        rate = self.rates[self.held]
        until_s = self.end_s if self.real_end_s is None else self.real_end_s
        run_s = seconds - max(0.0, now_s - until_s)
        done = max(0.0, run_s - self.overhead_s) * rate
        if self.left <= done and self.end_s > now_s:
            end_s = now_s - seconds + ceil(self.left / rate)
            return SlotAhead(0.0, ends=True, end_s=end_s)
        return SlotAhead(self.left - done, ends and self.placed, self.end_s)

    def state(self) -> tuple[Any, ...]:
        """As plain data."""
        return (
            self.job.index, self.left, self.held, self.placed, self.started,
            list(self.plan.items()), self.end_s, self.real_end_s, self.overhead_s,
        )  # fmt: skip

    def restore(self, state: Sequence[Any]) -> None:
        """Take the state up again, without the job's index."""
        self.left, self.held, self.placed, self.started, plan, *ends = state
        self.plan = dict(plan)
        self.end_s, self.real_end_s, self.overhead_s = ends


class SlotLoop(SlotReplanner[SlotJob]):
    """The common part; a subclass makes the plans."""

    def __init__(
        self, name: str, topology: Topology, *, slot_s: float, caps: Mapping[str, int]
    ) -> None:
        super().__init__(name, topology, slot_s=slot_s)
        self._caps = caps
        self._order: list[SlotJob] = []  # of all who wait or run; sorting is stable
        self._cache: set[tuple[int, int]] = set()

    # --- what happened ----------------------------------------------------------------------------

    def _entry(self, job: Job) -> SlotJob:
        """With the rates at which it runs, and the shares that it may get."""
        rates = {int(gpus): rate for gpus, rate in job.truth.scaling or () if rate > 0}
        if not rates:
            rates = {int(job.gpus): 1.0}
        most = min(max(rates), self._most(job))
        levels = [gpus for gpus in sorted(rates) if gpus <= most]
        return SlotJob(job, rates, levels or [min(rates)])

    @abstractmethod
    def _most(self, job: Job) -> int:
        """The most GPUs that the simulator gives to a job."""

    def lost(self, job: Job, now_s: float) -> None:
        """It waits for the next event, which comes soon."""
        entry = self._jobs[job.index]
        entry.left = job.left_at(now_s)
        entry.held, entry.placed = 0, False
        self._blame.joins(job)
        self._events.add(now_s + self._slot_s)
        self._next_s = min(self._next_s, now_s + self._slot_s)

    def _drop(self, entry: SlotJob) -> None:
        super()._drop(entry)
        self._events.forget(entry.job.index)
        if entry in self._order:
            self._order.remove(entry)

    # --- an event ---------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """Plan all anew if it is time, and look ahead to the next event."""
        now_s = view.now_s
        if now_s >= self._next_s:
            self._advance(now_s)
            starts, ends = self._events.take(self._next_s)
            for number in ends:
                entry = self._jobs.get(number)
                if entry is not None and entry.placed:
                    self._drop(entry)
            new = [self._jobs[number] for number in starts if number in self._jobs]
            self._replan(now_s, new, changes)
            self._place()
            self._now_s = now_s
            self._next_s = self._look_ahead(now_s)
            self._tell(changes, now_s)
            self._blame.tell(changes)
        changes.wake = Wake(on=frozenset({ev.JOB_SUBMIT}), at_s=self._next_s)
        return changes

    def _advance(self, now_s: float) -> None:
        """What everyone has done since the last event."""
        seconds = int(now_s - self._now_s)
        for entry in self._order:
            number = entry.job.index
            due = number in self._events.ends.get(self._next_s, ())
            ahead = entry.after(seconds, now_s, ends=due)
            if ahead.ends and not due:
                self._events.end(number, self._next_s, entry.end_s)
            entry.left, entry.end_s = ahead.left, ahead.end_s
            entry.overhead_s = 0.0

    @property
    def _gpus(self) -> int:
        return sum(node.gpus for node in self.topology.nodes if node.up)

    @abstractmethod
    def _replan(self, now_s: float, new: list[SlotJob], changes: Changes) -> None:
        """Plan for everyone, give out GPUs (`held`), and say when jobs end."""

    def _refuse(self, entry: SlotJob, changes: Changes) -> None:
        changes.reject(entry.job, "its deadline cannot be met beside those that were admitted")
        self._blame.leaves(entry.job)
        del self._jobs[entry.job.index]

    def _place(self) -> None:
        """The largest first, one after the other over all GPUs: ranks of a cache of placements."""
        self._order.sort(key=lambda entry: -entry.held)
        rank = 0
        for entry in self._order:
            if entry.held:
                self._overhead(entry, (rank, entry.held))
                rank += entry.held

    def _overhead(self, entry: SlotJob, ranks: tuple[int, int]) -> None:
        """For nothing by default."""

    def _look_ahead(self, now_s: float) -> float:
        """When the next event is."""
        return self._events.gather(now_s, self._slot_s)

    @abstractmethod
    def _done_s(self, entry: SlotJob, ahead: SlotAhead) -> float:
        """When a job that ends with the next event is done."""

    # --- what to do -------------------------------------------------------------------------------

    def _tell(self, changes: Changes, now_s: float) -> None:
        """Everyone who holds GPUs gets a rate up to the next event."""
        up = [node for node in self.topology.nodes if node.up]
        gpus = [node.id for node in up for _ in range(node.gpus)]
        rank = 0
        for entry in self._order:
            job = entry.job
            if not entry.held:
                if entry.placed:
                    changes.stop(job)
                    self._blame.joins(job)
                entry.placed = False
                continue
            nodes = gpus[rank : rank + entry.held]
            rank += entry.held
            if not entry.placed:
                self._blame.leaves(job)
            slices = [(node, nodes.count(node)) for node in dict.fromkeys(nodes)]
            entry.placed = entry.started = True
            allocation = Allocation(slices, config={RATE: self._rate(entry, now_s)})
            if not job.running or allocation != job.allocation:
                changes.starts.append((job, allocation))

    def _rate(self, entry: SlotJob, now_s: float) -> float:
        """Such that the job is where the simulator has it at the next event."""
        left = entry.job.left_at(now_s)
        next_s = self._next_s
        if next_s == INF:
            return entry.rates[entry.held]
        due = entry.job.index in self._events.ends.get(next_s, ())
        entry.placed = True
        ahead = entry.after(int(next_s - now_s), next_s, ends=due)
        if not ahead.ends:
            least = LEAST_LEFT * entry.job.true_work
            return max(0.0, left - max(ahead.left, least)) / (next_s - now_s)
        return rate_to_be_done(left, now_s, min(self._done_s(entry, ahead), next_s))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Also the order of those who wait or run, and what was placed before."""
        order = [entry.job.index for entry in self._order]
        return {**super().snapshot(), "order": order, "cache": sorted(self._cache)}

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take all of it up again."""
        super().restore(view, state)
        self._order = [self._jobs[index] for index in state["order"]]
        self._cache = {(first, many) for first, many in state["cache"]}


class EdfSlots(SlotLoop):
    """Earliest deadline first: everyone is admitted and gets as many GPUs as it takes."""

    def _most(self, job: Job) -> int:
        return min(64, max(int(gpus) for gpus, rate in job.truth.scaling or ((64, 1.0),)))

    def _replan(self, now_s: float, new: list[SlotJob], changes: Changes) -> None:  # noqa: ARG002
        self._order += new
        free: Steps = {now_s: self._gpus}
        for entry in sorted(self._order, key=lambda entry: entry.due_s):
            before_s = entry.end_s if entry.started else None
            filled = earliest(entry.asks(), now_s, free, slot_s=self._slot_s, gpus=self._gpus)
            free = filled.free
            entry.plan, entry.end_s = filled.plan, filled.end_s
            entry.held = filled.plan[now_s]
            if entry.started or entry.held:
                self._events.end(entry.job.index, entry.end_s, before_s)

    def _done_s(self, entry: SlotJob, ahead: SlotAhead) -> float:  # noqa: ARG002
        return ahead.end_s


class ElasticFlowSlots(SlotLoop):
    """Admission by the smallest shares with which all are in time; the rest is given out greedily.

    Whoever holds GPUs pays for every event: less if it was on the same GPUs since the last restart
    of all, which comes with every `slot`-th event.
    """

    def _most(self, job: Job) -> int:
        cap = self._caps.get(job.spec.name) or self._caps.get(job.spec.model)
        return 64 if cap is None else cap

    def _replan(self, now_s: float, new: list[SlotJob], changes: Changes) -> None:
        gpus = self._gpus
        before = {entry.job.index: entry.end_s for entry in self._order}
        if new:
            if self._plan_all([*self._order, *new], now_s, gpus):
                self._order += new
            else:
                for entry in new:
                    self._refuse(entry, changes)
                new = []
        if not new:
            self._plan_all(self._order, now_s, gpus)
        self._order.sort(key=lambda entry: entry.due_s)
        for entry in self._order:
            entry.held = entry.plan[now_s]
            self._events.end(entry.job.index, entry.end_s, before.get(entry.job.index))
            if entry.held:
                entry.started = True
        self._grow(now_s, gpus)
        for entry in self._order:
            entry.started = entry.started or entry.held > 0
        later = [
            next((time_s for time_s in entry.plan if time_s > now_s), INF) for entry in self._order
        ]
        self._scale_s = min(later, default=INF)

    def _plan_all(self, jobs: Sequence[SlotJob], now_s: float, gpus: int) -> bool:
        """In the order of deadlines; is everybody in time?"""
        self._free: Steps = {now_s: gpus}
        in_time = True
        for entry in sorted(jobs, key=lambda entry: entry.due_s):
            filled = Filling(entry.asks(), now_s, self._free, slot_s=self._slot_s, gpus=gpus).fill()
            entry.take(filled)
            self._free = filled.free
            in_time = in_time and filled.real_end_s <= entry.due_s
        return in_time

    def _grow(self, now_s: float, gpus: int) -> None:
        """Give out what is left: always to the job whose GPU time grows most by its next level."""
        left = gpus - sum(entry.held for entry in self._order)
        worth: dict[int, float] = {}
        plans: dict[int, Filled | None] = {}
        while left > 0:
            for entry in self._order:
                number = entry.job.index
                if number not in worth or entry.next_level() > entry.held:
                    worth[number], plans[number] = self._next_plan(entry, now_s, left, gpus)
                else:  # who cannot grow any more keeps its place in the order
                    plans[number] = None
            self._order.sort(key=lambda entry: -worth[entry.job.index])
            chosen = next((one for one in self._order if plans[one.job.index]), None)
            filled = None if chosen is None else plans[chosen.job.index]
            if chosen is None or filled is None:
                return
            entry = chosen
            more = entry.next_level() - entry.held
            left -= more
            entry.held += more
            self._events.end(entry.job.index, filled.end_s, entry.end_s)
            entry.plan, entry.end_s = filled.plan, filled.end_s
            self._free = filled.free

    def _next_plan(
        self, entry: SlotJob, now_s: float, left: int, gpus: int
    ) -> tuple[float, Filled | None]:
        more = entry.next_level() - entry.held
        if not 0 < more <= left:
            return -INF, None
        now = Filled(entry.plan, entry.end_s, entry.end_s, {})
        free = _given_back(self._free, entry.plan, entry.end_s)
        filled = Filling(entry.asks(), now_s, free, slot_s=self._slot_s, gpus=gpus).fill(
            entry.held + more
        )
        if not entry.held:
            return INF, filled
        return (filled.gpu_s() - now.gpu_s()) / more, filled

    def _overhead(self, entry: SlotJob, ranks: tuple[int, int]) -> None:
        large = self._gpus >= LARGE
        entry.overhead_s = OVERHEAD_LARGE_S if large else OVERHEAD_S
        if ranks in self._cache:
            return
        self._cache.add(ranks)
        if self._turns and self._turns % self._slot_s == 0:
            entry.overhead_s += RESTART_LARGE_S if large else RESTART_S
        entry.overhead_s += 2 * (log2(entry.held) + 1)

    def _look_ahead(self, now_s: float) -> float:
        if self._scale_s < self._events.first_s:
            self._events.add(self._scale_s)
        if self._turns and self._turns % self._slot_s == 0:
            self._cache.clear()
        self._turns += 1
        for entry in self._order:
            if entry.held:
                before_s = entry.end_s
                entry.end_s += entry.overhead_s
                self._events.end(entry.job.index, entry.end_s, before_s)
        return super()._look_ahead(now_s)

    def _done_s(self, entry: SlotJob, ahead: SlotAhead) -> float:
        """When its work is done, without slots and overhead, if the simulator counts it in time.

        What the simulator compares with the deadline is the end of the smallest sufficient share.
        """
        promised_s = ahead.end_s if entry.real_end_s is None else entry.real_end_s
        if promised_s > entry.due_s:
            return INF
        return min(promised_s, self._now_s + ceil(entry.left / entry.rates[entry.held]))


def _given_back(free: Steps, plan: Steps, end_s: float) -> Steps:
    """What is free without this plan."""
    times = sorted({*free, *plan, end_s})
    found: Steps = {}
    is_free = held = 0
    for time_s in times:
        is_free = free.get(time_s, is_free)
        held = plan.get(time_s, held) if time_s < end_s else 0
        found[time_s] = is_free + held
    last = -1
    kept: Steps = {}
    for time_s, amount in found.items():
        if amount != last:
            kept[time_s] = last = amount
    return kept
