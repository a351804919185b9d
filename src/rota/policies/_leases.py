"""Leases counted in progress, and what it takes to say how fairly a job is treated."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rota.core.events import INF
from rota.core.jobs import RUNNING, Job
from rota.core.topology import Topology
from rota.core.view import View
from rota.policies._auction import taken_from
from rota.policies._rounds import Held

_DUST = 1e-6  # seconds


class Leases:
    """Until when jobs may keep what they have: for so many seconds of progress."""

    def __init__(self) -> None:
        self._given: dict[int, tuple[float, float]] = {}  # progress at which it began; its length

    def give(self, job: Job, now_s: float, length_s: float) -> None:
        """A lease from now on."""
        self._given[job.index] = (job.executed_s(now_s), length_s)

    def left_s(self, job: Job, now_s: float) -> float:
        """Seconds of progress that are left of it."""
        began_s, length_s = self._given.get(job.index, (0.0, 0.0))
        return began_s + length_s - job.executed_s(now_s)

    def holds(self, job: Job, now_s: float) -> bool:
        """It has one that is not over."""
        return job.index in self._given and self.left_s(job, now_s) > _DUST

    def end_s(self, job: Job, now_s: float) -> float:
        """When it will be over; inf while the job does not make progress yet."""
        if job.index not in self._given or (job.running and job.phase != RUNNING):
            return INF
        return now_s + self.left_s(job, now_s)

    def forget(self, running: Iterable[int]) -> None:
        """Only those that run have leases."""
        present = set(running)
        self._given = {index: lease for index, lease in self._given.items() if index in present}

    def snapshot(self) -> list[tuple[int, float, float]]:
        """As plain data."""
        return [(index, *lease) for index, lease in self._given.items()]

    def restore(self, state: Sequence[tuple[int, float, float]]) -> None:
        """Take them up again."""
        self._given = {index: (began_s, length_s) for index, began_s, length_s in state}


class Contention:
    """The mean number of jobs while each of them has been here."""

    def __init__(self) -> None:
        self._area = 0.0  # jobs times seconds so far
        self._jobs = 0
        self._now_s = 0.0
        self._since: dict[int, float] = {}  # the area when a job came

    def advance(self, now_s: float, jobs: Collection[int]) -> None:
        """So many have been here until now; these are from now on."""
        self._area += self._jobs * (now_s - self._now_s)
        self._now_s, self._jobs = now_s, len(jobs)
        self._since = {index: self._since.get(index, self._area) for index in jobs}

    def mean(self, job: int, since_s: float, now_s: float) -> float:
        """Over the time since a job came; the present number if it came just now."""
        if now_s - since_s <= _DUST or job not in self._since:
            return float(max(self._jobs, 1))
        return max(1.0, (self._area - self._since[job]) / (now_s - since_s))

    def snapshot(self) -> Mapping[str, Any]:
        """As plain data."""
        return {
            "area": self._area, "jobs": self._jobs, "now_s": self._now_s,
            "since": list(self._since.items()),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take it up again."""
        self._area, self._jobs, self._now_s = state["area"], state["jobs"], state["now_s"]
        self._since = dict(state["since"])


def ideal_rate(
    speeds: Mapping[str, float], capacity: Mapping[str, float], gpus: float, jobs: float
) -> float:
    """The mean speed of a gang that has one part in `jobs` of every type for itself.

    With y_j = capacity_j / (jobs gpus) of its time on type j, or in proportion to that if it is
    more than all its time: the sum of speed_j y_j / max(1, sum_j y_j).
    """
    part = {kind: capacity.get(kind, 0.0) / (jobs * gpus) for kind in speeds}
    return sum(speeds[kind] * share for kind, share in part.items()) / max(1.0, sum(part.values()))


def fewest_nodes(topology: Topology, kind: str, gpus: float) -> int:
    """On how few nodes of a type so many GPUs can be."""
    count, left = 0, gpus
    for size in sorted((n.gpus for n in topology.nodes if n.gpu_type == kind), reverse=True):
        if left <= 0:
            break
        left -= size
        count += 1
    return max(count, 1)


def free_nodes(view: View, held: Mapping[int, Held]) -> dict[str, list[float]]:
    """Free GPUs of every node by type, if only these jobs have any; of a pool as one node."""
    vertices = view.topology.vertices
    used: dict[int, float] = {}
    for index in held:
        job = view.active[index]
        for vertex, amount in job.allocation.slices if job.running else ():
            place = vertices[vertex].node if vertices[vertex].node >= 0 else vertex
            used[place] = used.get(place, 0.0) + amount
    if any(vertices[place].node < 0 for place in used):
        free = _free_pools(view, used)
    else:
        free = {kind: [] for kind in view.topology.types}
        for node in view.topology.nodes:
            if node.open and node.gpus:
                free[node.gpu_type].append(max(0.0, node.gpus - used.get(node.id, 0.0)))
    for index, has in held.items():
        if has.kind is not None and not view.active[index].running:  # where is not known yet
            free[has.kind] = taken_from(free[has.kind], has.gpus)
    return free


def _free_pools(view: View, used: Mapping[int, float]) -> dict[str, list[float]]:
    """The same where placements give from pools."""
    types, up = view.topology.types, view.up_by_type
    if len(types) == 1:
        return {types[0]: [max(0.0, up[types[0]] - sum(used.values()))]}
    gone = {pool.gpu_type: used.get(pool.id, 0.0) for pool in view.topology.pools}
    return {kind: [max(0.0, up[kind] - gone.get(kind, 0.0))] for kind in types}
