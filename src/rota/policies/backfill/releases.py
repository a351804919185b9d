"""When those that run will end, for policies that look ahead on clusters of several partitions."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import merge

from rota.core.jobs import Job
from rota.core.plan import EligibilityPlan

Release = tuple[float, int, Job]
"""When a job ends, its number, the job."""


class Releases:
    """The ends of running jobs by estimate, in order, apart for nodes that few jobs compete for."""

    def __init__(self) -> None:
        self.ends: dict[int, float] = {}
        """When who ends that runs."""
        self.loose: dict[int, Job] = {}
        """Those of whom it is not known where they are, until they are gathered."""
        self._anywhere: list[Release] = []  # of those that may be on any node
        self._parts: dict[int, list[Release]] = {}  # of others, by the nodes where they may be
        self._part_of: dict[int, list[Release]] = {}
        self._free: set[int] = set()  # shapes that may use all nodes

    def add(self, job: Job, end_s: float) -> None:
        """It runs until then."""
        index = job.index
        self.ends[index] = end_s
        if job.shape.number in self._free:
            insort(self._anywhere, (end_s, index, job))
        else:
            self.loose[index] = job

    def remove(self, job: Job) -> None:
        """It runs no more."""
        index = job.index
        end_s = self.ends.pop(index)
        if index in self.loose:
            del self.loose[index]
            return
        part = self._part_of.pop(index, self._anywhere)
        del part[bisect_left(part, (end_s, index))]

    def scatter(self) -> None:
        """The cluster has changed, and so may the nodes that jobs could use."""
        for part in (self._anywhere, *self._parts.values()):
            self.loose.update((index, job) for _, index, job in part)
        self._anywhere.clear()
        self._parts.clear()
        self._part_of.clear()
        self._free.clear()

    def gather(self, plan: EligibilityPlan) -> None:
        """Find out where those are that are new."""
        for job in self.loose.values():
            part = self._anywhere
            nodes = plan.eligible(job)
            if nodes == plan.nodes:
                self._free.add(job.shape.number)
            elif job.held_gpus and plan.gpus_on(nodes, job) == job.held_gpus:
                part = self._part_of[job.index] = self._parts.setdefault(nodes, [])
            # else it began when it might use others
            insort(part, (self.ends[job.index], job.index, job))
        self.loose.clear()

    def on(self, nodes: int) -> Iterable[Release]:
        """Of all that may be on these nodes."""
        if not nodes:
            return ()
        if not self._parts:
            return self._anywhere
        found = [part for where, part in self._parts.items() if where & nodes]
        if self._anywhere:
            found.append(self._anywhere)
        return found[0] if len(found) == 1 else merge(*found)
