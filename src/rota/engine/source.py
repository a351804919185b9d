"""Jobs from a workload, handed out when their time comes."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec
from rota.core.workload import Workload, at, fields

BLOCK = 4_096  # jobs that are taken from the workload at a time


class WorkloadSource:
    """Submissions in order of time; equal times in order of the file."""

    def __init__(self, workload: Workload) -> None:
        times: Sequence[float] = fields(workload.specs, "submit_s")
        order: Sequence[int] = range(len(times))
        if any(a > b for a, b in pairwise(times)):
            order = sorted(order, key=times.__getitem__)
            times = [times[index] for index in order]
        self._workload = workload
        self._order, self._times = order, array("d", [*times, INF])
        self._next = 0
        self._first = self._loaded = 0  # the block below: its first job, and the one after it
        self._specs: list[JobSpec] = []
        self._behaviours: list[Behaviour] = []
        self.total = len(times)
        self.linked = any(
            any(fields(workload.specs, name))
            for name in ("depends_on", "after_any", "after_fail", "array_limit")
        )
        self.next_s = self._times[0]

    def take(self, now_s: float) -> list[tuple[int, JobSpec, Behaviour]]:
        """Everything submitted up to now."""
        first = self._next
        if self.next_s > now_s or first == self.total:
            return []
        last = first + 1
        next_s = self._times[last]
        if next_s <= now_s:
            last = bisect_right(self._times, now_s, last, self.total)
            next_s = self._times[last]
        self._next, self.next_s = last, next_s
        place = first - self._first
        if last > self._loaded:
            self._load(first, max(last, first + BLOCK))
            place = 0
        if last == first + 1:  # nearly always
            return [(self._order[first], self._specs[place], self._behaviours[place])]
        taken = slice(place, place + last - first)
        return list(
            zip(self._order[first:last], self._specs[taken], self._behaviours[taken], strict=True)
        )

    def _load(self, first: int, last: int) -> None:
        """Take jobs from the workload; those before them are in other hands, or over."""
        rows, workload = self._order[first:last], self._workload
        self._first, self._loaded = first, first + len(rows)
        self._specs = at(workload.specs, rows)
        self._behaviours = at(workload.behaviours, rows)

    def close(self) -> None:
        """No more jobs come."""
        self.total = self._next
        self.next_s = INF
