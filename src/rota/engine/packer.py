"""Keyed queues and greedy filling in key order, looking only at what an event can have changed.

Four facts make it exact and fast: (1) only the head of each shape can be first to fit; (2) keys of
running jobs keep their order within a slope; (3) a head fits if and only if it fits after removing
running jobs of lower rank, found by walking from the worst up; (4) a head that failed keeps failing
until something is freed or loses rank.

So waiting jobs are in one heap per request shape, because in a greedy scan a shape that failed
stays failed, and running jobs in one sorted list per slope, because within a slope the order never
changes by itself.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from math import nextafter
from operator import itemgetter
from typing import Any

from rota.core.allocation import NOTHING
from rota.core.changes import Changes
from rota.core.events import INF
from rota.core.jobs import Job
from rota.engine.blame import Blamed
from rota.placement.base import Placement

NOWHERE, IN_QUEUE, ON_CLUSTER = 0, 1, 2  # values of Entry.where


class Entry:
    """What the scheduler keeps of a job that is in its queue or on the cluster."""

    __slots__ = (
        "gpus", "index", "job", "key", "mark", "place", "shape", "slope", "stamp", "vkey", "where",
    )  # fmt: skip

    def __init__(self, job: Job) -> None:
        self.job = job
        self.index = job.index
        self.shape = job.shape
        self.gpus = job.gpus
        self.key: Any = 0.0
        self.slope = 0.0
        self.vkey: Any = 0.0  # the key as of time 0
        self.stamp = 0  # of its latest place in a heap
        self.where = NOWHERE
        self.mark = 0  # see the packer
        self.place = NOTHING  # see the packer


WaitEntry = tuple[Any, int, int, Entry]  # key, index, stamp, entry
RunEntry = tuple[Any, int, Job]  # key at time 0, index, job
Rank = tuple[Any, ...]  # key, index; what follows never counts

JOB = itemgetter(2)  # of a RunEntry


class Index:
    """Owned by a scheduler. A waiting entry is stale when its stamp is not the latest."""

    __slots__ = ("entries", "running", "waiting", "waiting_count")

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.waiting: dict[int, list[WaitEntry]] = {}
        self.running: dict[float, list[RunEntry]] = {}
        self.waiting_count = 0

    def entry(self, job: Job) -> Entry:
        """The entry of a job, made when it is first seen."""
        entry = self.entries.get(job.index)
        if entry is None:
            entry = self.entries[job.index] = Entry(job)
        return entry

    def push_waiting(self, entry: Entry) -> list[WaitEntry]:
        """Queue by `entry.key`; returns the heap of its shape."""
        number = entry.shape.number
        heap = self.waiting.get(number)
        if heap is None:
            heap = self.waiting[number] = []
        stamp = entry.stamp = entry.stamp + 1
        heappush(heap, (entry.key, entry.index, stamp, entry))
        entry.where = IN_QUEUE
        self.waiting_count += 1
        return heap

    def pop_waiting(self, heap: list[WaitEntry]) -> Entry:
        """Remove the head of a heap; the next head is valid."""
        self.waiting_count -= 1
        entry = heappop(heap)[3]
        while heap:
            head = heap[0]
            if head[2] == head[3].stamp:
                break
            heappop(heap)
        entry.where = NOWHERE
        return entry

    def drop_waiting(self, entry: Entry) -> None:
        """Remove a job from wherever it is in its heap."""
        entry.stamp += 1
        entry.where = NOWHERE
        heap = self.waiting[entry.shape.number]
        while heap and heap[0][2] != heap[0][3].stamp:
            heappop(heap)
        self.waiting_count -= 1

    def push_running(self, entry: Entry, now_s: float) -> None:
        """Insert by `entry.key` as of now; with a slope the key is kept as of time 0."""
        slope = entry.slope
        vkey = entry.key
        if slope:
            drift = slope * now_s
            vkey -= drift
            if vkey + drift > entry.key:  # rounding must not cost it its rank at this very instant
                vkey = nextafter(vkey, -INF)
        entry.vkey = vkey
        entries = self.running.get(slope)
        if entries is None:
            entries = self.running[slope] = []
        insort(entries, (vkey, entry.index, entry.job))
        entry.where = ON_CLUSTER

    def insert_running(self, entry: Entry) -> None:
        """Insert by the `vkey` that it carries already (after a restart)."""
        entries = self.running.setdefault(entry.slope, [])
        insort(entries, (entry.vkey, entry.index, entry.job))
        entry.where = ON_CLUSTER

    def drop_running(self, entry: Entry) -> None:
        """Remove a running job."""
        entries = self.running[entry.slope]
        del entries[bisect_left(entries, (entry.vkey, entry.index))]  # a prefix compares
        entry.where = NOWHERE

    def worst(self, now_s: float) -> Rank | None:
        """The rank of the running job that would be displaced first; None: none runs."""
        worst: Rank | None = None
        for slope, entries in self.running.items():
            if entries:
                last: Rank = entries[-1]
                if slope:
                    last = (last[0] + slope * now_s, last[1])
                if worst is None or last > worst:
                    worst = last
        return worst

    def lower(self, entry: Entry, now_s: float) -> Iterable[Job]:
        """Running jobs of lower rank than this one, from the worst up."""
        runs = self.running
        key, number = entry.key, entry.index
        if len(runs) != 1:
            return self._lower_of_many(key, number, now_s)
        for slope, entries in runs.items():
            if not slope:
                first = bisect_left(entries, (key, number))
            else:
                drift = slope * now_s
                first = at = bisect_left(entries, (key - drift, number))
                # sums are rounded: ranks that differ as of time 0 may be equal now, the numbers
                # of their jobs in any order
                while at < len(entries) and (rank := entries[at][0] + drift) <= key:
                    at += 1
                    if rank < key or entries[at - 1][1] < number:
                        first = at
                while first and (rank := entries[first - 1][0] + drift) >= key:
                    if rank == key and entries[first - 1][1] < number:
                        break
                    first -= 1
            return map(JOB, islice(reversed(entries), len(entries) - first))
        return ()

    def _lower_of_many(self, key: Any, number: int, now_s: float) -> Iterator[Job]:
        for rank, index, job in self.lowest_first(now_s):
            if rank < key or (rank == key and index < number):
                return
            yield job

    def lowest_first(self, now_s: float) -> Iterator[RunEntry]:
        """Running jobs from the worst-ranked up, as (key now, index, job)."""
        lists = [(slope, entries) for slope, entries in self.running.items() if entries]
        places = [len(entries) - 1 for _, entries in lists]
        while True:
            best = None
            at = -1
            for i, (slope, entries) in enumerate(lists):
                if places[i] >= 0:
                    vkey, index, job = entries[places[i]]
                    rank = (vkey + slope * now_s if slope else vkey), index
                    if best is None or rank > best[:2]:
                        best = (*rank, job)
                        at = i
            if best is None:
                return
            places[at] -= 1
            yield best

    def queued(self) -> Iterator[Entry]:
        """All that wait, in no particular order."""
        for heap in self.waiting.values():
            for _, _, stamp, entry in heap:
                if stamp == entry.stamp:
                    yield entry

    def placed(self) -> Iterator[Entry]:
        """All that run, if they can be displaced."""
        for entries in self.running.values():
            for _, index, _ in entries:
                yield self.entries[index]


# Values of Entry.mark during a scan. What a job is given is in Entry.place until the plan is made:
# the job itself changes when the plan is carried out.
UNTOUCHED, STARTED, DISPLACED, REPLACED = 0, 1, 2, 3

Heads = list[WaitEntry]  # of one shape each; a heap


class Packer:
    """Plans starts and stops; changes index and placement as it goes."""

    def __init__(
        self, placement: Placement, *, preemptive: bool, strict: bool, keyed_later: bool
    ) -> None:
        self.placement = placement
        self._pooled = placement.pooled  # not read from its class at every decision: that is slow
        self._filters = placement.filters
        self.keyed_later = keyed_later  # started jobs are inserted when their new key is known
        self.preemptive = preemptive
        self.strict = strict
        self.index = Index()
        self.blamed = Blamed(placement)  # shapes whose head waits because it does not fit
        self.heads: dict[int, int] = {}  # these shapes -> index of the job that was told
        self._fails: list[int] = []  # shapes whose head was found not to fit in this scan
        self._failed: dict[int, int] = {}  # shape -> index of the head known not to fit
        # strict: the best rank of those who wait for each set of nodes; None: look again
        self.stuck: dict[int, tuple[Any, int]] | None = None
        self._passed_at: float = INF  # heads passed over in this scan need more than this
        self._emptied = False  # a blamed shape may have lost its last waiting job

    def forget_failures(self) -> None:
        """Capacity appeared or keys changed in bulk: look at every head again."""
        self._failed.clear()
        self._emptied = True

    def passes(self, entry: Entry) -> bool:
        """Strict: may a newcomer start before all who wait? If not, it is in the way of others."""
        stuck = self.stuck
        if stuck is None:
            return True
        nodes = self.placement.eligible(entry.shape)
        rank = (entry.key, entry.index)
        for others, first in stuck.items():
            if first < rank and others & nodes:
                if nodes not in stuck or rank < stuck[nodes]:
                    stuck[nodes] = rank
                return False
        return True

    def concerns(self, entry: Entry) -> bool:
        """Can anything follow from it that this running job has lost rank?

        Not if all who wait rank behind it still, and know why they wait.
        """
        if self.strict or self._emptied:
            return True
        index = self.index
        if not index.waiting_count:
            return False
        rank = (entry.key, entry.index)
        told = self.heads
        for number, heap in index.waiting.items():
            if heap:
                head = heap[0]
                if head < rank or told.get(number) != head[1]:
                    return True
        return False

    def pack(
        self, changes: Changes, now_s: float, shapes: Collection[int], dirty: set[int]
    ) -> None:
        """Fill the cluster. `shapes`: those with a new head; all of them if something was freed."""
        placement, blamed = self.placement, self.blamed
        if len(shapes) != 1 or not self._starts_alone(changes, now_s, shapes):
            heads: Heads = []
            self._passed_at = INF if shapes is self.index.waiting else placement.free
            self._nominate(now_s, shapes, heads)
            if heads:
                if self.preemptive:
                    self._scan_preempting(changes, now_s, heads, dirty)
                elif self.strict:
                    self._scan_strictly(changes, heads)
                else:
                    self._scan(changes, heads)
        # the last is `blamed.stale`, written out
        if self._fails or self._emptied or not blamed.lowest <= placement.free < blamed.below:
            self._blame(changes)

    def _starts_alone(self, changes: Changes, now_s: float, shapes: Iterable[int]) -> bool:
        """One shape, and its head fits: it starts without a scan. False: there is more to do."""
        index, placement = self.index, self.placement
        (number,) = shapes
        heap = index.waiting[number]
        if not heap:
            return True
        entry = heap[0][3]
        if entry.gpus > placement.free or not (self._pooled or placement.fits(entry.shape)):
            return False
        if self.strict:
            if index.waiting_count > 1:
                return False
            self.stuck = {}
        index.pop_waiting(heap)
        job = entry.job
        changes.starts.append((job, placement.take(job)))
        if self._failed:
            self._failed.pop(number, None)
        if not self.preemptive:
            entry.where = ON_CLUSTER
        elif self.keyed_later:
            entry.where = ON_CLUSTER
            entry.vkey = entry.key - entry.slope * now_s if entry.slope else entry.key
        else:
            index.push_running(entry, now_s)
        if heap:
            return False
        if number in self.heads:
            self._emptied = True
        return True

    def _nominate(self, now_s: float, shapes: Iterable[int], heads: Heads) -> None:
        """Add the heads of these shapes, without those that fail whatever happens in this scan."""
        waiting = self.index.waiting
        if self.strict:
            heads += [waiting[number][0] for number in shapes if waiting[number]]
            heapify(heads)
            return
        free = self.placement.free
        worst: Rank | None = None
        unknown = self.preemptive  # who would be displaced first
        passed = False
        for number in shapes:
            heap = waiting[number]
            if heap:
                head = heap[0]
                if head[3].gpus > free:
                    if unknown:
                        worst = self.index.worst(now_s)
                        unknown = False
                    if worst is None or head > worst:
                        # no room, and no job below it that could make room
                        passed = True
                        if self.heads.get(number) != head[1]:
                            self._fails.append(number)
                        continue
                heads.append(head)
        if passed and free < self._passed_at:
            self._passed_at = free
        if len(heads) > 1:
            heapify(heads)

    def _scan(self, changes: Changes, heads: Heads) -> None:
        """Without preemption: jobs that fit start."""
        index = self.index
        waiting = index.waiting
        placement = self.placement
        pooled = self._pooled
        starts = changes.starts
        told = self.heads
        while heads:
            entry = heappop(heads)[3]
            number = entry.shape.number
            if entry.gpus <= placement.free and (pooled or placement.fits(entry.shape)):
                heap = waiting[number]
                index.pop_waiting(heap)
                entry.where = ON_CLUSTER
                job = entry.job
                starts.append((job, placement.take(job)))
                if heap:
                    heappush(heads, heap[0])
                elif number in told:
                    self._emptied = True
            elif told.get(number) != entry.index:
                self._fails.append(number)

    def _scan_strictly(self, changes: Changes, heads: Heads) -> None:
        """A waiting job holds back those behind it that compete for its nodes."""
        index = self.index
        waiting = index.waiting
        placement = self.placement
        pooled = self._pooled
        starts = changes.starts
        told = self.heads
        fails = self._fails
        self.stuck = {}
        news = False  # somebody else than before is told to wait
        held = 0  # nodes of those who wait
        while heads:
            entry = heappop(heads)[3]
            number = entry.shape.number
            passes = not held or not held & placement.eligible(entry.shape)
            if passes and entry.gpus <= placement.free and (pooled or placement.fits(entry.shape)):
                heap = waiting[number]
                index.pop_waiting(heap)
                entry.where = ON_CLUSTER
                job = entry.job
                starts.append((job, placement.take(job)))
                if heap:
                    heappush(heads, heap[0])
                elif number in told:
                    self._emptied = True
                continue
            if passes:
                fails.append(number)
                if told.get(number) != entry.index:
                    news = True
            held |= self._hold_back(entry)
            if held == placement.up_nodes:
                break
        if not news and len(fails) == len(told):  # the same ones wait: nothing to tell of them
            fails.clear()

    def _scan_preempting(  # noqa: C901, PLR0912 - the hot loop
        self, changes: Changes, now_s: float, heads: Heads, dirty: set[int]
    ) -> None:
        index = self.index
        waiting = index.waiting
        placement = self.placement
        failed = self._failed
        told = self.heads
        filters = self._filters
        pooled = self._pooled
        moved: list[Entry] = []
        dead: set[int] = set()
        strict = self.strict
        doubtful = False  # there may be heads that are superseded
        held = 0  # strict: nodes of those who wait
        if strict:
            self.stuck = {}
        while heads:
            head = heappop(heads)
            entry = head[3]
            number = entry.shape.number
            heap = waiting[number]
            if doubtful and (
                number in dead or not heap or heap[0][3] is not entry or head[2] != entry.stamp
            ):
                continue  # superseded
            if held and held & placement.eligible(entry.shape):
                dead.add(number)
                held |= self._hold_back(entry)
            elif entry.gpus <= placement.free and (pooled or placement.fits(entry.shape)):
                if failed:
                    failed.pop(number, None)
                self._start(changes, entry, heap, now_s, moved)
                if heap:
                    heappush(heads, heap[0])
            elif (
                not filters
                or failed.get(number) != entry.index
                or self._may_displace(entry, now_s, dirty)
            ) and placement.walk(entry.shape, index.lower(entry, now_s)):
                if failed:
                    failed.pop(number, None)
                again = self._displace(changes, entry, now_s, moved, dirty)
                self._start(changes, entry, heap, now_s, moved)
                if not pooled or placement.free > self._passed_at:
                    # what the victims leave over may serve any shape that has not failed yet
                    again = waiting.keys() - dead
                again.add(number)
                self._nominate(now_s, sorted(again), heads)
                doubtful = True
            else:
                dead.add(number)
                if strict or told.get(number) != entry.index:
                    self._fails.append(number)
                if not strict:
                    if filters:
                        failed[number] = entry.index
                    continue
                # not noted as failed: who is held back meanwhile is not told what changes
                held |= self._hold_back(entry)
            if held and held == placement.up_nodes:
                break
        if moved:
            self._net(changes, now_s, moved)

    def _hold_back(self, entry: Entry) -> int:
        """The nodes that no job behind this one may use while it waits."""
        nodes = self.placement.eligible(entry.shape)
        if self.stuck is not None:
            self.stuck.setdefault(nodes, (entry.key, entry.index))
        return nodes

    def _may_displace(self, entry: Entry, now_s: float, dirty: set[int]) -> bool:
        """False if it is certain that the head, which failed before, fails again."""
        shape = entry.shape
        changed = self.placement.changed(shape, dirty)
        if changed is None:
            return bool(dirty)
        key, number, need = entry.key, entry.index, shape.gpus
        entries = self.index.entries
        for free, held in changed:
            have = free
            if have >= need:
                return True
            for index, gpus in held.items():
                other = entries[index]
                rank = other.vkey + other.slope * now_s if other.slope else other.vkey
                if rank > key or (rank == key and index > number):
                    have += gpus
                    if have >= need:
                        return True
        return False

    def _displace(
        self, changes: Changes, winner: Entry, now_s: float, moved: list[Entry], dirty: set[int]
    ) -> set[int]:
        """Victims return to the queue; returns their shapes, to be looked at again in this scan."""
        index = self.index
        placement = self.placement
        if changes.causes is None:
            changes.causes = {}
        # a job that was displaced itself and goes elsewhere passes on the cause of that
        cause = changes.causes[winner.index] if winner.mark == DISPLACED else winner.job
        shapes: set[int] = set()
        for job in placement.victims():
            victim = index.entries[job.index]
            placement.give(job, job.allocation)
            if self._filters:
                dirty.update(job.allocation.vertices)
            index.drop_running(victim)
            if victim.slope:
                victim.key = victim.vkey + victim.slope * now_s
            if victim.mark == UNTOUCHED:
                moved.append(victim)
            victim.mark = DISPLACED
            changes.causes[victim.index] = cause
            index.push_waiting(victim)
            shapes.add(victim.shape.number)
        return shapes

    def _start(
        self,
        changes: Changes,
        entry: Entry,
        heap: list[WaitEntry],
        now_s: float,
        moved: list[Entry],
    ) -> None:
        index = self.index
        index.pop_waiting(heap)
        if not heap and entry.shape.number in self.heads:
            self._emptied = True
        place = self.placement.take(entry.job)
        if entry.mark == DISPLACED:
            entry.place = place
            entry.mark = REPLACED
        elif self._pooled:  # there are no moves: nothing to net
            changes.starts.append((entry.job, place))
        else:
            entry.place = place
            entry.mark = STARTED
            moved.append(entry)
        if self.keyed_later:  # no job can displace it in this scan: later heads rank lower
            entry.where = ON_CLUSTER
            entry.vkey = entry.key - entry.slope * now_s if entry.slope else entry.key
        else:
            index.push_running(entry, now_s)

    def _net(self, changes: Changes, now_s: float, moved: list[Entry]) -> None:
        """Displaced and placed again on the same slices is nothing; elsewhere it is a move."""
        for entry in moved:
            if entry.mark == DISPLACED:
                changes.stops.append(entry.job)
            elif entry.mark == STARTED or entry.place != entry.job.allocation:
                changes.starts.append((entry.job, entry.place))
            elif self.keyed_later:
                self.index.push_running(entry, now_s)
            entry.mark = UNTOUCHED

    def overhear(self, changes: Changes) -> None:
        """Something was freed, or nodes changed, without a decision: only reasons follow."""
        placement = self.placement
        for number in list(self.blamed.reasons):
            heap = self.index.waiting.get(number)
            shape = heap[0][3].shape if heap else None
            if shape is None or (
                shape.gpus <= placement.free and (self._pooled or placement.fits(shape))
            ):
                self._absolve(changes, number)  # it lacks nothing: it waits for its turn
        self._blame(changes)

    def _blame(self, changes: Changes) -> None:
        """Tell changes of why heads wait, by what is free at the end of the scan."""
        waiting = self.index.waiting
        blamed = self.blamed
        reasons, fails = blamed.reasons, self._fails
        gone: list[int] = []
        if self.strict and fails:  # whoever else waits, waits for these
            gone = [number for number in reasons if number not in fails]
        elif self._emptied:
            gone = [number for number in reasons if not waiting.get(number)]
        self._emptied = False
        for number in gone:
            self._absolve(changes, number)
        if blamed.stale():  # others have taken or left something meanwhile
            for number, reason in blamed.changed():
                if waiting.get(number):
                    self._accuse(changes, number, reason)
                else:
                    self._absolve(changes, number)
        for number in fails:
            heap = waiting[number]
            if heap and self.heads.get(number) != heap[0][1]:  # or another one is the head now
                known = reasons.get(number)
                self._accuse(
                    changes, number, blamed.add(heap[0][3].shape) if known is None else known
                )
        fails.clear()

    def _accuse(self, changes: Changes, number: int, reason: int) -> None:
        head = self.index.waiting[number][0][3]
        self.heads[number] = head.index
        changes.shape_reasons.append((number, reason, head.job))

    def _absolve(self, changes: Changes, number: int) -> None:
        self.blamed.remove(number)
        del self.heads[number]
        changes.shape_reasons.append((number, 0, None))
