"""Keyed queues: who waits and who runs, in key order, touched only where something changed.

Waiting: one heap per request shape, because in a greedy scan a shape that failed stays failed.
Running: one sorted list per key slope, because within a slope the order never changes by itself.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush
from math import nextafter
from typing import Any

from rota.core.events import INF
from rota.core.jobs import Job

NOWHERE, IN_QUEUE, ON_CLUSTER = 0, 1, 2  # values of job.queue

WaitEntry = tuple[Any, int, int, Job]  # key, index, stamp, job
RunEntry = tuple[Any, int, Job]  # key at time 0, index, job


class Index:
    """Owned by a scheduler. A waiting entry is stale when its stamp is not the job's."""

    __slots__ = ("running", "running_count", "waiting", "waiting_count")

    def __init__(self) -> None:
        self.waiting: dict[int, list[WaitEntry]] = {}
        self.running: dict[float, list[RunEntry]] = {}
        self.waiting_count = 0
        self.running_count = 0

    def push_waiting(self, job: Job) -> list[WaitEntry]:
        """Queue the job by `job.key`; returns the heap of its shape."""
        number = job.shape.number
        heap = self.waiting.get(number)
        if heap is None:
            heap = self.waiting[number] = []
        stamp = job.stamp = job.stamp + 1
        heappush(heap, (job.key, job.index, stamp, job))
        job.queue = IN_QUEUE
        self.waiting_count += 1
        return heap

    def pop_waiting(self, heap: list[WaitEntry]) -> Job:
        """Remove the head of a heap; the next head is valid."""
        self.waiting_count -= 1
        job = heappop(heap)[3]
        while heap and heap[0][2] != heap[0][3].stamp:
            heappop(heap)
        job.queue = NOWHERE
        return job

    def drop_waiting(self, job: Job) -> None:
        """Remove a job from wherever it is in its heap."""
        job.stamp += 1
        job.queue = NOWHERE
        heap = self.waiting[job.shape.number]
        while heap and heap[0][2] != heap[0][3].stamp:
            heappop(heap)
        self.waiting_count -= 1

    def push_running(self, job: Job, now_s: float) -> None:
        """Insert by `job.key` as of now; with a slope the key is kept as of time 0."""
        slope = job.slope
        vkey = job.key
        if slope:
            drift = slope * now_s
            vkey -= drift
            if vkey + drift > job.key:  # rounding must not cost it its rank at this very instant
                vkey = nextafter(vkey, -INF)
        job.vkey = vkey
        entries = self.running.get(slope)
        if entries is None:
            entries = self.running[slope] = []
        insort(entries, (vkey, job.index, job))
        job.queue = ON_CLUSTER
        self.running_count += 1

    def insert_running(self, job: Job) -> None:
        """Insert by the `vkey` that the job carries already (after a restart)."""
        entries = self.running.setdefault(job.slope, [])
        insort(entries, (job.vkey, job.index, job))
        job.queue = ON_CLUSTER
        self.running_count += 1

    def drop_running(self, job: Job) -> None:
        """Remove a running job."""
        entries = self.running[job.slope]
        del entries[bisect_left(entries, (job.vkey, job.index))]  # a prefix compares
        job.queue = NOWHERE
        self.running_count -= 1

    def lowest_first(self, now_s: float) -> Iterator[tuple[Any, int, Job]]:
        """Running jobs from the worst-ranked up, as (key now, index, job)."""
        lists = [(slope, entries) for slope, entries in self.running.items() if entries]
        if len(lists) == 1:
            slope, entries = lists[0]
            drift = slope * now_s
            for vkey, index, job in reversed(entries):
                yield (vkey + drift if slope else vkey), index, job
            return
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

    def jobs(self) -> Iterator[Job]:
        """Everyone, in no particular order."""
        for heap in self.waiting.values():
            for _, _, stamp, job in heap:
                if stamp == job.stamp:
                    yield job
        for entries in self.running.values():
            for _, _, job in entries:
                yield job
