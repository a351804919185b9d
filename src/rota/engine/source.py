"""Jobs from a workload, handed out when their time comes."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec
from rota.core.workload import Workload


class WorkloadSource:
    """Submissions in order of time; equal times in order of the file."""

    def __init__(self, workload: Workload) -> None:
        specs, behaviours = workload.specs, workload.behaviours
        times = [spec.submit_s for spec in specs]
        order: Sequence[int] = range(len(specs))
        if any(a > b for a, b in pairwise(times)):
            order = sorted(order, key=times.__getitem__)
            times = [times[index] for index in order]
            specs = [specs[index] for index in order]
            behaviours = [behaviours[index] for index in order]
        self._order, self._specs, self._behaviours = order, specs, behaviours
        self._times = times
        self._next = 0
        self.total = len(specs)
        self.linked = any(spec.depends_on for spec in specs)
        self.next_s = times[0] if times else INF

    def take(self, now_s: float) -> list[tuple[int, JobSpec, Behaviour]]:
        """Everything submitted up to now."""
        first = self._next
        last = self._next = bisect_right(self._times, now_s, first, self.total)
        self.next_s = self._times[last] if last < self.total else INF
        if last == first + 1:  # nearly always
            return [(self._order[first], self._specs[first], self._behaviours[first])]
        taken = slice(first, last)
        return list(
            zip(self._order[taken], self._specs[taken], self._behaviours[taken], strict=True)
        )

    def close(self) -> None:
        """No more jobs come."""
        self.total = self._next
        self.next_s = INF
