"""The loops of Tiresias' simulator: discretised LAS, its Gittins index, and shortest first."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from heapq import heappop, heappush
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any

from rota.core.changes import Changes, Wake
from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.loop import Blame, Pool, Replanner

LIMITS = (3250, 7200)
"""Of the simulator: jobs.py has three numbers, but with three queues the last is never used."""

_number = attrgetter("number")


class QueuedJob:
    """A job in a queue.

    While it runs, `origin_s` is when its executed time (since the last promotion) would have been
    0; while it waits, `executed_s` holds that time and `since_s` is when the wait began. `waited_s`
    is what it had waited before, `stamp` tells stale heap entries, `key` and `change_s` are for
    subclasses.
    """

    __slots__ = (
        "change_s", "executed_s", "gpus", "job", "key", "number", "origin_s", "queue", "runs",
        "since_s", "stamp", "waited_s", "weight",
    )  # fmt: skip

    def __init__(self, job: Job, number: int, weight: float) -> None:
        self.job = job
        self.gpus = job.gpus
        self.number = number  # in order of arrival
        self.weight = weight
        self.queue = 0
        self.origin_s = INF
        self.executed_s = 0.0
        self.since_s = 0.0
        self.waited_s = 0.0
        self.runs = False
        self.stamp = 0
        self.key: tuple[float, float] = (0.0, 0.0)
        self.change_s = INF


class JobQueue:
    """One level: who runs (in order), who waits (in order), and who has just dropped into it."""

    __slots__ = ("dropped", "held", "least", "running", "waiting")

    def __init__(self) -> None:
        self.running: dict[int, QueuedJob] = {}
        self.waiting: list[QueuedJob] = []
        self.dropped: list[
            QueuedJob
        ] = []  # running, but behind those that wait; empty between events
        self.held: float = 0  # GPUs of `running`
        self.least: float = 0  # no job in `waiting` asks for less

    def run(self, entry: QueuedJob) -> None:
        """To the end of those that run."""
        self.running[entry.number] = entry
        self.held += entry.gpus

    def unrun(self, entry: QueuedJob) -> None:
        """Out of those that run."""
        del self.running[entry.number]
        self.held -= entry.gpus

    def wait(self, entry: QueuedJob) -> None:
        """To the tail."""
        self.least = min(self.least, entry.gpus) if self.waiting else entry.gpus
        self.waiting.append(entry)

    def wait_ahead(self, entries: list[QueuedJob]) -> None:
        """Ahead of those that wait already."""
        least = min(entry.gpus for entry in entries)
        self.least = min(self.least, least) if self.waiting else least
        self.waiting[:0] = entries


class QueueScheduler(Replanner):
    """Discretised LAS: `dlas` (seconds), `dlas-gpu` (GPU-seconds), `dlas-gpu-K` (promotion).

    Jobs sit in queues. At every event, in this order: ended jobs leave; arrivals join the first
    queue; running jobs that reached the limit of their queue drop to the tail of the next one (one
    queue per event); starving jobs return to the tail of the first; then whoever fits runs, queue
    by queue in list order, and the rest is preempted for free; last, in each queue those that run
    move ahead of those that wait. The next look is at an arrival, at an end, or at the jump time of
    a running job.

    Quirks kept: a jump is `(limit - seconds) // GPUs` away although a job on n GPUs reaches its
    limit n times sooner per second that it ran, so jobs on many GPUs drop late; starvation counts
    the waiting time of all waits since the last promotion. One guard is ours: a jump is at least
    1 s away.

    A queue is kept as two parts, because its list is always: who runs, then who waits. Those that
    run fit for certain until a new job was taken ahead of them, so they are only looked at then.

    Args:
        name: Of the policy.
        topology: The machines.
        limits: Service at which a job drops to the next queue.
        by_service: Count GPU-seconds instead of seconds.
        promote: Starvation factor (0: none).
        knowledge: What the policy reads.
    """

    settles = True

    def __init__(
        self,
        name: str,
        topology: Topology,
        *,
        limits: Sequence[float] = LIMITS,
        by_service: bool = True,
        promote: float = 0.0,
        knowledge: Knowledge = Knowledge.NOTHING,
    ) -> None:
        super().__init__(name, topology, knowledge)
        self._limits = tuple(limits)
        self._by_service = by_service
        self._promote = promote
        self._pool = Pool(topology)
        self._blame = Blame()
        self._entries: dict[int, QueuedJob] = {}
        self._arrivals = 0
        self.queues = [JobQueue() for _ in range(len(limits) + 1)]
        self._starving: list[tuple[float, int, int, QueuedJob]] = []  # heap: due, number, stamp
        self._overdue: list[tuple[int, QueuedJob]] = []  # preempted when starving already: stamp

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:
        """To the tail of the first queue."""
        entry = self._enter(job)
        entry.since_s = now_s
        self.queues[0].wait(entry)
        self._blame.joins(job)

    def _enter(self, job: Job) -> QueuedJob:
        self._arrivals += 1
        entry = QueuedJob(job, self._arrivals, job.gpus if self._by_service else 1)
        self._entries[job.index] = entry
        return entry

    def ended(self, job: Job) -> None:
        """Out of its queue."""
        entry = self._entries.pop(job.index, None)
        if entry is None:
            return
        entry.stamp += 1
        queue = self.queues[entry.queue]
        if entry.runs:
            queue.unrun(entry)
        else:
            queue.waiting.remove(entry)
            self._blame.leaves(job)

    def lost(self, job: Job, now_s: float) -> None:
        """It waits ahead of those that did before."""
        entry = self._entries[job.index]
        queue = self.queues[entry.queue]
        queue.unrun(entry)
        self._interrupted(entry, now_s)
        queue.wait_ahead([entry])

    def progressing(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """A start that took time is over: it is served from now on."""
        entry = self._entries.get(job.index)
        if entry is not None and entry.origin_s == INF and job.phase == RUNNING:
            entry.origin_s = job.since_s - entry.executed_s

    def _interrupted(self, entry: QueuedJob, now_s: float) -> None:
        """It ran and waits from now on."""
        entry.runs = False
        if entry.origin_s < INF:
            entry.executed_s = now_s - entry.origin_s
        entry.origin_s = INF
        entry.since_s = now_s
        entry.stamp += 1
        self._blame.joins(entry.job)
        self._watch(entry)

    def _watch(self, entry: QueuedJob) -> None:
        """When it will have starved, if it goes on waiting."""
        if not (self._promote and entry.queue and entry.executed_s > 0):
            return
        due_s = entry.since_s + int(entry.executed_s * self._promote) - entry.waited_s
        if due_s > entry.since_s:
            heappush(self._starving, (due_s, entry.number, entry.stamp, entry))
        else:
            self._overdue.append((entry.stamp, entry))

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """Move jobs between queues, fill, and say when the next one jumps."""
        now_s = view.now_s
        self._drop(now_s)
        if self._promote:
            self._rescue(now_s)
        self.fill(changes, view.up_gpus, now_s)
        changes.wake = Wake(at_s=self._jump(now_s))
        self._blame.tell(changes)
        return changes

    def _drop(self, now_s: float) -> None:
        """Who has had enough of its queue goes to the tail of the next, in order of arrival."""
        queues = self.queues
        moving = [
            entry
            for limit, queue in zip(self._limits, queues, strict=False)
            for entry in queue.running.values()
            if (now_s - entry.origin_s) * entry.weight >= limit
        ]
        moving.sort(key=_number)
        for entry in moving:
            queues[entry.queue].unrun(entry)
            entry.queue += 1
            queues[entry.queue].dropped.append(entry)

    def _rescue(self, now_s: float) -> None:
        """Who has waited long enough goes to the tail of the first queue, in order of arrival."""
        found = [entry for stamp, entry in self._overdue if stamp == entry.stamp]
        self._overdue.clear()
        heap = self._starving
        while heap and heap[0][0] <= now_s:
            _, _, stamp, entry = heappop(heap)
            if stamp == entry.stamp:
                found.append(entry)
        found.sort(key=_number)
        for entry in found:
            self.queues[entry.queue].waiting.remove(entry)
            entry.queue = 0
            entry.executed_s = entry.waited_s = 0.0
            entry.stamp += 1
            self.queues[0].wait(entry)

    def fill(self, changes: Changes, free: float, now_s: float) -> None:
        """Queue by queue: those that run, those that wait, those that dropped; each in order."""
        certain = True  # no new job so far: what runs still fits
        for queue in self.queues:
            out: list[QueuedJob] = []
            if certain:
                free -= queue.held
            elif queue.running:
                free, out = self._keep(queue, free, changes, now_s)
            if queue.waiting and free >= queue.least:
                before = free
                free = self._admit(queue, free, changes, now_s)
                certain = certain and free == before
            if out:
                queue.wait_ahead(out)
            for entry in queue.dropped:
                if entry.gpus <= free:
                    free -= entry.gpus
                    queue.run(entry)
                else:
                    self._stop(entry, changes, now_s)
                    queue.wait(entry)
            queue.dropped.clear()

    def _keep(
        self, queue: JobQueue, free: float, changes: Changes, now_s: float
    ) -> tuple[float, list[QueuedJob]]:
        """Those that run, as far as there is room; what is left and who has to go."""
        out = []
        for entry in queue.running.values():
            if entry.gpus <= free:
                free -= entry.gpus
            else:
                out.append(entry)
        for entry in out:
            queue.unrun(entry)
            self._stop(entry, changes, now_s)
        return free, out

    def _admit(self, queue: JobQueue, free: float, changes: Changes, now_s: float) -> float:
        """Those that wait, as far as there is room; what is left."""
        waiting = queue.waiting
        still: list[QueuedJob] = []
        seen = 0
        for entry in waiting:
            if entry.gpus <= free and entry.job.phase == WAITING:
                free -= entry.gpus
                self._start(entry, changes, now_s)
                queue.run(entry)
            else:
                still.append(entry)
            seen += 1
            if not free:
                break
        if seen == len(waiting):
            queue.least = min((entry.gpus for entry in still), default=0)
        if len(still) < seen:
            waiting[:seen] = still
        return free

    def _start(self, entry: QueuedJob, changes: Changes, now_s: float) -> None:
        if entry.executed_s > 0:
            entry.waited_s += now_s - entry.since_s
        entry.origin_s = now_s - entry.executed_s
        entry.runs = True
        entry.stamp += 1
        self._blame.leaves(entry.job)
        changes.starts.append((entry.job, self._pool[entry.gpus]))

    def _stop(self, entry: QueuedJob, changes: Changes, now_s: float) -> None:
        self._interrupted(entry, now_s)
        changes.stops.append(entry.job)

    def _jump(self, now_s: float) -> float:
        """When the next job is expected to reach its limit, or starves."""
        ahead_s = INF
        for limit, queue in zip(self._limits, self.queues, strict=False):
            for entry in queue.running.values():
                least_s = (limit - (now_s - entry.origin_s)) // entry.weight
                if least_s < ahead_s:  # noqa: PLR1730 - twice as fast, and false for nan (starting)
                    ahead_s = least_s
        jump_s = now_s + ahead_s
        heap = self._starving
        while heap and heap[0][2] != heap[0][3].stamp:
            heappop(heap)
        if heap:
            jump_s = min(jump_s, heap[0][0])
        return max(jump_s, now_s + 1)

    def settle(self, view: View, changes: Changes) -> Sequence[tuple[float, Job]]:
        """While a start takes time the job is not served."""
        now_s = view.now_s
        for job, _ in changes.starts:
            if job.since_s != now_s:
                self._entries[job.index].origin_s = INF
        return ()

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """The queues in order, with the accounts of each job."""
        return {
            "arrivals": self._arrivals,
            "queues": [
                [
                    (
                        entry.job.index,
                        entry.number,
                        None if entry.origin_s == INF else entry.origin_s,
                        entry.executed_s,
                        entry.since_s,
                        entry.waited_s,
                    )
                    for entry in (*queue.running.values(), *queue.waiting)
                ]
                for queue in self.queues
            ],
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the queues."""
        for level, rows in enumerate(state["queues"]):
            for index, number, origin_s, executed_s, since_s, waited_s in rows:
                entry = self._enter(view.active[index])
                entry.queue = level
                entry.number = number
                entry.origin_s = INF if origin_s is None else origin_s
                entry.executed_s, entry.since_s, entry.waited_s = executed_s, since_s, waited_s
                self._resume(entry)
        self._arrivals = state["arrivals"]
        self._blame.told = set(state["told"])

    def _resume(self, entry: QueuedJob) -> None:
        queue = self.queues[entry.queue]
        entry.runs = entry.job.phase in (RUNNING, STARTING)
        if entry.runs:
            queue.run(entry)
        else:
            queue.wait(entry)
            self._blame.joins(entry.job)
            self._watch(entry)


# --- Gittins index --------------------------------------------------------------------------------

DELTA = 3250
"""GPU-seconds of the quantum (jobs.py: the limit of the first queue)."""
SCALE = 1_000_000
EARLY_S = 1e-6  # looked at a little early, so that rounding cannot hide a change

_key = attrgetter("key")


def read_samples(path: str) -> list[int]:
    """GPU-seconds of past jobs: a file with the header `duration`, one whole number per line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"gittins: cannot read distribution {path!r}: {error}") from error
    header, *rows = (line.strip() for line in lines)
    if header != "duration":
        raise OptionError(
            f"gittins: distribution {path!r} begins with {header!r}: "
            f"its first line must be 'duration'"
        )
    samples = []
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if not (row.isascii() and row.isdigit()) or int(row) < 1:
            raise OptionError(
                f"gittins: distribution {path!r}, line {number}: {row!r} is not a whole number of "
                f"seconds above 0"
            )
        samples.append(int(row))
    if not samples:
        raise OptionError(
            f"gittins: distribution {path!r} has no samples: give at least one below 'duration'"
        )
    return samples


class IndexTable:
    """The index by attained service."""

    def __init__(self, samples: Sequence[int], delta: int = DELTA) -> None:
        self.sizes = sorted(samples)
        self.indices = self._compute(delta)

    def _compute(self, delta: int) -> list[float]:
        sizes = self.sizes
        count = len(sizes)
        largest = sizes[-1]
        sums = [0, *accumulate(sizes)]
        out: list[float] = []
        for position, size in enumerate(sizes):
            if position and size == sizes[position - 1]:
                out.append(out[-1])
                continue
            reached = size - 1 + delta
            first = position
            last = count - 1 if reached > largest - 1 else bisect_right(sizes, reached)
            alive = count - first
            chance = _round((last - first) / alive, 5)
            expected = (sums[last] - sums[first] + delta * (count - last)) // alive
            out.append(_round(chance * SCALE / expected, 4))
        return out

    def rank(self, attained: int) -> tuple[float, float]:
        """The index for this much service, and the service at which it changes."""
        position = bisect_right(self.sizes, attained)
        if position == len(self.sizes):
            return 0.0, INF
        return self.indices[position], self.sizes[position]


def _round(value: float, digits: int) -> float:
    return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


class GittinsScheduler(QueueScheduler):
    """`dlas-gpu-gittins`: the queues of `dlas-gpu`, each in the order of a Gittins-like index.

    At every event each queue is sorted by index, largest first, and then by submission; the sort is
    stable, so equals keep the order of the event before. The index comes from a table over samples
    of GPU-time. It differs from the textbook: the expected service uses the samples as they are
    instead of what is left of them, the quantum is fixed instead of optimised, and Python 2 cuts
    the division to a whole number. Rounding is Python 2's too: halves go away from zero.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        table: IndexTable,
        *,
        limits: Sequence[float] = LIMITS,
    ) -> None:
        super().__init__(name, topology, limits=limits, knowledge=Knowledge.DISTRIBUTION)
        self._table = table

    def _enter(self, job: Job) -> QueuedJob:
        entry = super()._enter(job)
        self._rank(entry, 0)
        return entry

    def _resume(self, entry: QueuedJob) -> None:
        super()._resume(entry)
        self._rank(entry, int(entry.executed_s * entry.weight))

    def _rank(self, entry: QueuedJob, attained: int) -> None:
        index, change = self._table.rank(attained)
        entry.key = (-index, entry.job.submit_s)
        entry.change_s = change / entry.weight - EARLY_S

    def fill(self, changes: Changes, free: float, now_s: float) -> None:
        """Queue by queue: jobs that fit run, in the order of the index."""
        for queue in self.queues:
            running = [*queue.running.values(), *queue.dropped]
            for entry in running:
                if now_s - entry.origin_s >= entry.change_s:
                    self._rank(entry, int((now_s - entry.origin_s) * entry.weight))
            if running or queue.waiting:
                order = [*queue.running.values(), *queue.waiting, *queue.dropped]
                order.sort(key=_key)
                free = self._serve(queue, order, free, changes, now_s)

    def _serve(
        self, queue: JobQueue, order: list[QueuedJob], free: float, changes: Changes, now_s: float
    ) -> float:
        """Jobs that fit, as far as there is room; what is left."""
        waiting: list[QueuedJob] = []
        running: list[QueuedJob] = []
        room = free
        for position, entry in enumerate(order):
            if not free:
                waiting += order[position:]
                break
            if entry.gpus <= free and (entry.runs or entry.job.phase == WAITING):
                free -= entry.gpus
                running.append(entry)
            else:
                waiting.append(entry)
        for entry in waiting:
            if entry.runs:
                self._stop(entry, changes, now_s)
        for entry in running:
            if not entry.runs:
                self._start(entry, changes, now_s)
        queue.running = {entry.number: entry for entry in running}
        queue.held = room - free
        queue.waiting = waiting
        queue.dropped.clear()
        return free


# --- Shortest first -------------------------------------------------------------------------------


class _RankedJob:
    """A job in the list. `end_s` is when it would end; 0 where only the job itself can tell."""

    __slots__ = ("end_s", "gpus", "job", "key", "runs", "weight")

    def __init__(self, job: Job, weight: float) -> None:
        self.job = job
        self.gpus = job.gpus
        self.weight = weight
        self.runs = False
        self.end_s = 0.0
        self.key = 0.0


class RankedScheduler(Replanner):
    """`shortest` (SRTF), or with `by_service` `shortest-gpu` (SRSF): a list, sorted at every event.

    The list of jobs persists and the sort is stable, so the order among equals is their order after
    the event before: of two jobs whose remaining times meet, the one that waited goes first,
    because it was ahead until then. Then whoever fits runs, in this order, and everybody else is
    preempted for free.
    """

    settles = True

    def __init__(self, name: str, topology: Topology, *, by_service: bool) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK)
        self._by_service = by_service
        self._pool = Pool(topology)
        self._blame = Blame()
        self._order: list[_RankedJob] = []
        self._entries: dict[int, _RankedJob] = {}
        self._running: dict[int, _RankedJob] = {}

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:
        """To the end of the list; the sort moves it behind its equals."""
        self._order.append(self._enter(job, now_s))
        self._blame.joins(job)

    def _enter(self, job: Job, now_s: float) -> _RankedJob:
        entry = _RankedJob(job, job.gpus if self._by_service else 1)
        entry.key = job.remaining_s(now_s) * entry.weight
        self._entries[job.index] = entry
        return entry

    def ended(self, job: Job) -> None:
        """Out of the list."""
        entry = self._entries.pop(job.index, None)
        if entry is None:
            return
        self._order.remove(entry)
        if self._running.pop(job.index, None) is None:
            self._blame.leaves(job)

    def lost(self, job: Job, now_s: float) -> None:
        """It waits with what remains."""
        entry = self._running.pop(job.index)
        entry.runs = False
        entry.key = job.remaining_s(now_s) * entry.weight
        self._blame.joins(job)

    def progressing(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """Where a start takes time or the rate is not 1, the job is asked each time."""
        entry = self._running.get(job.index)
        if entry is not None:
            entry.end_s = 0.0

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """Sort, fill, and preempt the rest."""
        now_s = view.now_s
        for entry in self._running.values():
            entry.key = entry.weight * (
                entry.end_s - now_s if entry.end_s else entry.job.remaining_s(now_s)
            )
        self._order.sort(key=_key)
        chosen = self._fill(view.up_gpus)
        if len(chosen) != len(self._running) or not all(entry.runs for entry in chosen):
            self._change(changes, chosen, now_s)
        self._blame.tell(changes)
        return changes

    def _fill(self, free: float) -> list[_RankedJob]:
        chosen = []
        for entry in self._order:
            if entry.gpus <= free and (entry.runs or entry.job.phase == WAITING):
                chosen.append(entry)
                free -= entry.gpus
                if not free:
                    break
        return chosen

    def _change(self, changes: Changes, chosen: list[_RankedJob], now_s: float) -> None:
        running = {entry.job.index: entry for entry in chosen}
        for index, entry in self._running.items():
            if index not in running:
                entry.runs = False
                changes.stops.append(entry.job)
                self._blame.joins(entry.job)
        for entry in chosen:
            if not entry.runs:
                entry.runs = True
                entry.end_s = now_s + entry.job.remaining_s(now_s)
                changes.starts.append((entry.job, self._pool[entry.gpus]))
                self._blame.leaves(entry.job)
        self._running = running

    def settle(self, view: View, changes: Changes) -> Sequence[tuple[float, Job]]:
        """Jobs not running at rate 1 from now on are asked each time; victims may lose work."""
        now_s = view.now_s
        for job, _ in changes.starts:
            if job.since_s != now_s or job.true_rate != 1.0:
                self._entries[job.index].end_s = 0.0
        for job in changes.stops:
            entry = self._entries[job.index]
            entry.key = job.remaining_s(now_s) * entry.weight
        return ()

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """The order is the state; all else follows from the jobs."""
        return {
            "order": [entry.job.index for entry in self._order],
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the list from the jobs."""
        for index in state["order"]:
            job = view.active[index]
            entry = self._enter(job, view.now_s)
            self._order.append(entry)
            if job.phase in (RUNNING, STARTING):
                entry.runs = True
                self._running[index] = entry
            else:
                self._blame.joins(job)
        self._blame.told = set(state["told"])
