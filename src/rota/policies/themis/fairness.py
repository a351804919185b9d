"""What it takes to say how fairly a job is treated, and what is free to be auctioned."""

from collections.abc import Collection, Mapping

import msgspec

from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.core.view import View
from rota.policies.rounds.leases import Seat
from rota.policies.themis.auction import taken_from

_DUST = 1e-6  # seconds


class Contention(msgspec.Struct):
    """The mean number of jobs while each of them has been here."""

    area: float = 0.0  # jobs times seconds so far
    jobs: int = 0
    now_s: float = 0.0
    since: dict[int, float] = {}  # the area when a job came

    def advance(self, now_s: float, present: Collection[int]) -> None:
        """So many have been here until now; these are from now on."""
        self.area += self.jobs * (now_s - self.now_s)
        self.now_s, self.jobs = now_s, len(present)
        self.since = {index: self.since.get(index, self.area) for index in present}

    def mean(self, job: int, since_s: float, now_s: float) -> float:
        """Over the time since a job came; the present number if it came just now."""
        if now_s - since_s <= _DUST or job not in self.since:
            return float(max(self.jobs, 1))
        return max(1.0, (self.area - self.since[job]) / (now_s - since_s))


def ideal_rate(
    speeds: Mapping[str, float], capacity: Mapping[str, float], gpus: float, jobs: float
) -> float:
    """The mean speed of a gang that has one part in `jobs` of every type for itself.

    With y_j = capacity_j / (jobs gpus) of its time on type j, or in proportion to that if it is
    more than all its time: the sum of speed_j y_j / max(1, sum_j y_j).
    """
    part = {kind: capacity.get(kind, 0.0) / (jobs * gpus) for kind in speeds}
    return ordered_sum(speeds[kind] * share for kind, share in part.items()) / max(
        1.0, ordered_sum(part.values())
    )


def fewest_nodes(topology: Topology, kind: str, gpus: float) -> int:
    """On how few nodes of a type so many GPUs can be."""
    count, left = 0, gpus
    for size in sorted((n.gpus for n in topology.nodes if n.gpu_type == kind), reverse=True):
        if left <= 0:
            break
        left -= size
        count += 1
    return max(count, 1)


def free_nodes(view: View, held: Mapping[int, Seat]) -> dict[str, list[float]]:
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
        return {types[0]: [max(0.0, up[types[0]] - ordered_sum(used.values()))]}
    gone = {pool.gpu_type: used.get(pool.id, 0.0) for pool in view.topology.pools}
    return {kind: [max(0.0, up[kind] - gone.get(kind, 0.0))] for kind in types}
