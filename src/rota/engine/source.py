"""Jobs from a workload, handed out when their time comes."""

from itertools import pairwise

from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec
from rota.core.workload import Workload


class WorkloadSource:
    """Submissions in order of time; equal times in order of the file."""

    def __init__(self, workload: Workload) -> None:
        specs = workload.specs
        times = [spec.submit_s for spec in specs]
        if all(a <= b for a, b in pairwise(times)):
            self._order: range | list[int] = range(len(specs))
        else:
            self._order = sorted(range(len(specs)), key=times.__getitem__)
        self._times = times
        self._workload = workload
        self._next = 0
        self.total = len(specs)
        self.linked = any(spec.depends_on for spec in specs)
        self.next_s = self._upcoming()

    def _upcoming(self) -> float:
        return self._times[self._order[self._next]] if self._next < self.total else INF

    def take(self, now_s: float) -> list[tuple[int, JobSpec, Behaviour]]:
        """Everything submitted up to now."""
        taken = []
        order, times = self._order, self._times
        specs, behaviours = self._workload.specs, self._workload.behaviours
        position = self._next
        while position < self.total:
            index = order[position]
            if times[index] > now_s:
                break
            taken.append((index, specs[index], behaviours[index]))
            position += 1
        self._next = position
        self.next_s = self._upcoming()
        return taken

    def close(self) -> None:
        """Nobody else comes."""
        self.total = self._next
        self.next_s = INF
