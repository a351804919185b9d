"""When those that run will end, for policies that look ahead on clusters of several partitions."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import merge

from rota.core.jobs import Job
from rota.core.plan import EligibilityPlan

Release = tuple[float, int, Job]
"""When a job ends, its number, the job."""

ANYWHERE = -1  # all nodes


class Releases:
    """The ends of running jobs by estimate, in order, apart for nodes that few jobs compete for."""

    def __init__(self) -> None:
        self._ends: dict[int, float] = {}
        self._parts: dict[int, list[Release]] = {}  # by the nodes where they may be
        self._part_of: dict[int, list[Release]] = {}
        self._loose: dict[int, Job] = {}  # those in no part yet

    def __contains__(self, index: int) -> bool:
        """Whether this job runs."""
        return index in self._ends

    def add(self, job: Job, end_s: float) -> None:
        """It runs until then."""
        self._ends[job.index] = end_s
        self._loose[job.index] = job

    def remove(self, job: Job) -> None:
        """It runs no more."""
        end_s = self._ends.pop(job.index)
        if self._loose.pop(job.index, None) is None:
            part = self._part_of.pop(job.index)
            del part[bisect_left(part, (end_s, job.index))]

    def scatter(self) -> None:
        """The cluster has changed, and so may the nodes that jobs could use."""
        for part in self._parts.values():
            self._loose.update((index, job) for _, index, job in part)
        self._parts.clear()
        self._part_of.clear()

    def gather(self, plan: EligibilityPlan) -> None:
        """Find out where those are that are new."""
        for job in self._loose.values():
            nodes = plan.eligible(job)
            if not job.held_gpus or plan.gpus_on(nodes, job) != job.held_gpus:
                nodes = ANYWHERE  # it began when it might use others
            part = self._part_of[job.index] = self._parts.setdefault(nodes, [])
            insort(part, (self._ends[job.index], job.index, job))
        self._loose.clear()

    def on(self, nodes: int) -> Iterable[Release]:
        """Of all that may be on these nodes."""
        found = [part for where, part in self._parts.items() if where & nodes]
        return found[0] if len(found) == 1 else merge(*found)
