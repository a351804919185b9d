"""Who is hit when a node goes down."""

from collections.abc import Set as AbstractSet

from rota.core.jobs import Job
from rota.core.topology import Vertex
from rota.core.view import View
from rota.engine.executor import on_cluster


def jobs_hit(node: Vertex, view: View, moving: AbstractSet[int]) -> list[Job]:
    """Jobs on the node (or on their way to it). Call it after the node was marked down.

    A pool has no nodes: there the latest starters go until the rest fits what is still up.
    """
    vertices = view.topology.vertices
    running = [job for job in view.active.values() if on_cluster(job) or job.index in moving]
    hit = [
        job for job in running if any(vertices[v].node == node.id for v in job.allocation.vertices)
    ]
    for pool in view.topology.pools:
        users = [job for job in running if pool.id in job.allocation.vertices]
        if users and (not pool.gpu_type or pool.gpu_type == node.gpu_type):
            hit += _over_the_pool(users, pool, view)
    return hit


def _over_the_pool(users: list[Job], pool: Vertex, view: View) -> list[Job]:
    room = sum(
        node.gpus
        for node in view.topology.nodes
        if node.up and (not pool.gpu_type or node.gpu_type == pool.gpu_type)
    )
    held = {job.index: dict(job.allocation.slices)[pool.id] for job in users}
    used = sum(held.values())
    over = []
    for job in sorted(users, key=lambda job: (job.start_s, job.index), reverse=True):
        if used <= room:
            break
        used -= held[job.index]
        over.append(job)
    return over
