"""Who is hit when a node goes down."""

from collections.abc import Set as AbstractSet

from rota.core.allocation import host_of
from rota.core.jobs import Job
from rota.core.topology import Vertex
from rota.core.view import View
from rota.engine.executor import on_cluster
from rota.engine.occupancy import Occupancy


def jobs_hit(node: Vertex, view: View, moving: AbstractSet[int]) -> list[Job]:
    """Jobs on the node (or on their way to it). Call it after the node was marked down.

    A pool has no nodes: there the latest starters go until the rest fits what is still up.
    """
    running = [job for job in view.active.values() if on_cluster(job) or job.index in moving]
    hit = jobs_on(node, view, moving)
    for pool in view.topology.pools:
        users = [job for job in running if pool.id in _places(job)]
        if users and (not pool.gpu_type or pool.gpu_type == node.gpu_type):
            hit += _over_the_pool(users, pool, view)
    return hit


def jobs_on(node: Vertex, view: View, moving: AbstractSet[int]) -> list[Job]:
    """Jobs that hold anything of a node (or are on their way to it)."""
    vertices = view.topology.vertices
    return [
        job
        for job in view.active.values()
        if (on_cluster(job) or job.index in moving)
        and any(vertices[v].node == node.id for v in _places(job))
    ]


def _places(job: Job) -> set[int]:
    """Vertices that it holds anything of: a job without GPUs holds CPUs or memory there."""
    extra = {vertex for vertex, _, _ in job.allocation.extra}
    return extra.union(job.allocation.vertices)


def _over_the_pool(users: list[Job], pool: Vertex, view: View) -> list[Job]:
    occupied = Occupancy(view.topology)
    for job in users:
        occupied.change(job.allocation, +1)
    over = []
    guests = {host_of(job.allocation): job for job in users}  # those who share go with their hosts
    for job in sorted(users, key=lambda job: (job.start_s, job.index), reverse=True):
        if not occupied.exceeded(pool.id):
            break
        if host_of(job.allocation) >= 0:
            continue
        for each in (job, guests.get(job.index)):
            if each is not None:
                occupied.change(each.allocation, -1)
                over.append(each)
    return over
