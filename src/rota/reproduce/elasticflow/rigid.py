"""The part of ElasticFlow's loops that its rigid baselines share.

Their jobs run on the GPUs that they ask for, by a duration in whole seconds. Submissions that come
within a slot are one event, as with the elastic policies. At an event a policy decides who runs;
what a job does up to the next event is one rate, because the loop looks ahead.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from math import log2
from typing import Any, NamedTuple

from rota.core import events as ev
from rota.core.allocation import Allocation, Slice
from rota.core.changes import Changes, Wake
from rota.core.events import INF
from rota.core.jobs import DONE, Job
from rota.core.view import View
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


class RigidAhead(NamedTuple):
    """Seconds of its duration that a job will have behind it, and when it is done (inf: later)."""

    ran_s: float
    end_s: float


class RigidJob:
    """A job in the loop's accounts."""

    __slots__ = ("duration_s", "end_s", "gpus", "job", "overhead_s", "placed", "queue", "ran_s")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.gpus = int(job.gpus)
        self.duration_s = int(job.true_work)  # as in the column of the trace
        self.ran_s = 0.0
        self.overhead_s = 0.0
        self.placed = False  # it has been on nodes since the last event
        self.queue = 0
        self.end_s = INF

    def lost(self, now_s: float) -> None:
        """It waits again, with what it has behind it."""
        work = self.job.true_work
        self.ran_s = int(self.duration_s * (1 - self.job.left_at(now_s) / work)) if work else 0
        self.overhead_s, self.placed = 0.0, False

    def state(self) -> tuple[int, float, float, bool, int, float]:
        """As plain data."""
        return (
            self.job.index, self.ran_s, self.overhead_s, self.placed, self.queue, self.end_s,
        )  # fmt: skip

    def restore(self, state: Sequence[Any]) -> None:
        """Take the state up again, without the job's index."""
        self.ran_s, self.overhead_s, self.placed, self.queue, self.end_s = state


class RigidSlots(SlotReplanner[RigidJob]):
    """The common part; a subclass decides who runs, and where."""

    # --- what happened ----------------------------------------------------------------------------

    def _entry(self, job: Job) -> RigidJob:
        """With its duration in whole seconds."""
        return RigidJob(job)

    def lost(self, job: Job, now_s: float) -> None:
        """It waits for the next event, which comes soon."""
        self._jobs[job.index].lost(now_s)
        self._blame.joins(job)
        self._hurry(now_s)

    def node_changed(self, node: int, *, up: bool) -> None:  # noqa: ARG002
        """There is more or less room at the next event."""
        self._hurry(self._now_s)

    def _hurry(self, now_s: float) -> None:
        self._next_s = min(self._next_s, now_s + self._slot_s)

    # --- an event ---------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """Choose who runs if it is time, and look ahead to the next event."""
        now_s = view.now_s
        if now_s >= self._next_s:
            self._happens(now_s)
            self._now_s = now_s
            self._next_s = self._look_ahead(now_s)
            self._tell(changes, now_s)
            self._blame.tell(changes)
        changes.wake = Wake(on=frozenset({ev.JOB_SUBMIT}), at_s=self._next_s)
        return changes

    def _submitted_by(self, now_s: float) -> list[RigidJob]:
        """Those whose submissions are gathered in this event."""
        if self._events.first_s > now_s:
            return []
        starts, _ = self._events.take(self._events.first_s)
        return [self._jobs[number] for number in starts if number in self._jobs]

    def _over(self) -> list[RigidJob]:
        """Done, although no event of the loop has said so: nodes failed in between."""
        return [entry for entry in self._jobs.values() if entry.job.phase >= DONE]

    @abstractmethod
    def _happens(self, now_s: float) -> None:
        """Account for what everyone has done since the last event, and choose who runs."""

    @abstractmethod
    def _look_ahead(self, now_s: float) -> float:
        """When the next event is."""

    @abstractmethod
    def _running(self) -> Iterable[tuple[RigidJob, list[Slice]]]:
        """Who runs up to the next event, and where."""

    @abstractmethod
    def _ahead(self, entry: RigidJob, seconds: int) -> RigidAhead:
        """Where a job that runs is at the next event, in so many seconds."""

    def _restarts(self) -> bool:
        """Are all restarted with this event? Counts it."""
        turns = self._turns
        self._turns += 1
        return turns > 0 and turns % self._slot_s == 0

    def _overhead_s(self, gpus: int, *, restart: bool) -> float:
        large = self.topology.gpus >= LARGE
        found = OVERHEAD_LARGE_S if large else OVERHEAD_S
        if restart:
            found += RESTART_LARGE_S if large else RESTART_S
        return found + 2 * (log2(gpus) + 1)

    # --- what to do -------------------------------------------------------------------------------

    def _tell(self, changes: Changes, now_s: float) -> None:
        """Everyone who runs gets a rate up to the next event."""
        running = list(self._running())
        stays = {entry.job.index for entry, _ in running}
        for entry in self._jobs.values():
            if entry.placed and entry.job.index not in stays:
                changes.stop(entry.job)
                self._blame.joins(entry.job)
                entry.placed = False
        for entry, slices in running:
            job = entry.job
            if not entry.placed:
                self._blame.leaves(job)
            entry.placed = True
            allocation = Allocation(slices, config={RATE: self._rate(entry, now_s)})
            if not job.running or allocation != job.allocation:
                changes.starts.append((job, allocation))

    def _rate(self, entry: RigidJob, now_s: float) -> float:
        """Such that the job is where the simulator has it at the next event."""
        work, left, next_s = entry.job.true_work, entry.job.left_at(now_s), self._next_s
        ahead = self._ahead(entry, int(next_s - now_s))
        if ahead.end_s < INF:
            return rate_to_be_done(left, now_s, min(ahead.end_s, next_s))
        then = work * max(LEAST_LEFT, 1 - ahead.ran_s / max(entry.duration_s, 1))
        return max(0.0, left - then) / (next_s - now_s)
