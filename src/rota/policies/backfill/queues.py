"""Waiting jobs by request and by how long they say that they need, for backfilling."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.view import arrival

Arrival = tuple[float, int]
"""When a job was submitted, and its number."""


class ShapeQueue:
    """Waiting jobs of one request: equal to the placement, but they need different times."""

    __slots__ = ("_by_need", "_jobs", "arrivals")

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self._by_need: list[tuple[float, Arrival]] = []
        self._jobs: dict[Arrival, Job] = {}

    def __bool__(self) -> bool:
        """Whether any job waits."""
        return bool(self.arrivals)

    @property
    def first(self) -> Job:
        """The oldest one."""
        return self._jobs[self.arrivals[0]]

    def at(self, at: Arrival) -> Job:
        """The one that came then."""
        return self._jobs[at]

    def add(self, job: Job, needs_s: float) -> None:
        """It waits."""
        at = (job.submit_s, job.index)
        insort(self.arrivals, at)
        insort(self._by_need, (needs_s, at))
        self._jobs[at] = job

    def remove(self, job: Job, needs_s: float) -> None:
        """It waits no more."""
        at = (job.submit_s, job.index)
        del self.arrivals[bisect_left(self.arrivals, at)]
        del self._by_need[bisect_left(self._by_need, (needs_s, at))]
        del self._jobs[at]

    def after(self, at: Arrival) -> Job | None:
        """The first one that came after this."""
        i = bisect_right(self.arrivals, at)
        return self._jobs[self.arrivals[i]] if i < len(self.arrivals) else None

    def ending_by(self, end_s: float, now_s: float, after: Arrival) -> Job | None:
        """The first one that came after this and ends by then if it starts now."""
        by_need = self._by_need
        i = bisect_right(by_need, (end_s - now_s, (INF, 0))) if end_s < INF else len(by_need)
        while i < len(by_need) and now_s + by_need[i][0] <= end_s:  # sums are rounded
            i += 1
        while i and now_s + by_need[i - 1][0] > end_s:
            i -= 1
        first = min((at for _, at in by_need[:i] if at > after), default=None)
        return None if first is None else self._jobs[first]


def in_order(queues: Iterable[ShapeQueue]) -> Iterator[Job]:
    """The jobs of all these in order of arrival."""
    turns = [(queue.arrivals[0], queue) for queue in queues if queue.arrivals]
    heapify(turns)
    while turns:
        at, queue = turns[0]
        yield queue.at(at)
        following = queue.after(at)
        if following is None:
            heappop(turns)
        else:
            heapreplace(turns, (arrival(following), queue))
