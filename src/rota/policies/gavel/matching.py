"""AlloX: a matching of jobs to places in the queues of GPUs (Le et al., EuroSys 2020).

The job in the k-th place from the end of a GPU's queue delays k jobs by its run time, itself
included. So the total completion time is the cost of a matching of jobs to (GPU, k) with costs
k p[i, j], where p[i, j] = n[i] / T[i, j]. GPUs of one type are alike, and no place is used before
all nearer to the end are, so the matching needs one column per type and k, with room for N[j] jobs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.policies.rounds.problem import Array, Problem
from rota.solvers.assignment import assign

Indices = NDArray[np.intp]

_DUST = 1e-9  # parts of GPUs are sums of floats


@dataclass(frozen=True)
class Places:
    """The type of every job and how many jobs of its queue it delays, itself included.

    Both are -1 for a job without a place.
    """

    kind: Indices
    turn: Indices


def allox(problem: Problem, *, kept: Indices | None = None, alpha: float = 1.0) -> Array:
    """Each free GPU gets the job that its queue begins with.

    Args:
        problem: The jobs; those that hold a type keep it.
        kept: The type that each job holds, if it is not that of the problem; -1 for none.
        alpha: The part of the waiting jobs, oldest first, that is considered.
    """
    held = problem.held if kept is None else kept
    keeps = np.flatnonzero(held >= 0)
    shares = np.zeros_like(problem.throughput)
    shares[keeps, held[keeps]] = 1.0
    free = np.maximum(problem.capacity - problem.size @ shares, 0.0)
    able = (problem.throughput[:, free > 0] > 0).any(axis=1)
    waiting = np.flatnonzero((held < 0) & able)
    waiting = waiting[np.argsort(-problem.age[waiting], kind="stable")]
    waiting = np.sort(waiting[: max(int(alpha * len(waiting)), int(free.sum()))])
    if len(waiting):
        asked = problem.take(waiting)
        chosen = heads(asked, queues(asked, free), free)
        shares[waiting[chosen[0]], chosen[1]] = 1.0
    return shares


def lasting(problem: Problem, free: Array) -> Array:
    """GPU-seconds of every job on every type; infinite where it cannot run."""
    able = (problem.throughput > 0) & (free > 0)
    work = np.broadcast_to((problem.size * problem.steps)[:, None], able.shape)
    lasts = np.full(able.shape, np.inf)
    np.divide(work, problem.throughput, out=lasts, where=able)
    return lasts


def queues(problem: Problem, free: Array) -> Places:
    """The matching with the least total completion time; a gang counts as one long job."""
    lasts = lasting(problem, free)
    room = np.where(free > 0, np.maximum(np.floor(free), 1.0), 0.0)
    if (room > 0).sum() == 1:  # the shortest first
        kind = np.full(problem.jobs, room.argmax(), np.intp)
        rank = np.empty(problem.jobs, np.intp)
        rank[np.argsort(-lasts[:, kind[0]], kind="stable")] = np.arange(problem.jobs)
        return Places(kind, (rank // room.max()).astype(np.intp) + 1)
    depth = [int(np.ceil(problem.jobs / places)) if places > 0 else 0 for places in room]
    kind = np.repeat(np.arange(len(free)), depth)
    turn = np.concatenate([np.arange(1, most + 1) for most in depth])
    column = assign(lasts[:, kind] * turn, room[kind].astype(np.int64))
    return Places(kind[column], turn[column].astype(np.intp))


def heads(problem: Problem, places: Places, free: Array) -> tuple[Indices, Indices]:
    """The jobs that run now, and their types.

    A queue begins with its shortest job (which is the one with the largest k), equal ones in the
    order of their arrival. Nobody passes a gang for which too few GPUs are free.
    """
    each = np.arange(problem.jobs)
    order = np.lexsort((each, lasting(problem, free)[each, places.kind]))
    where = places.kind[order]
    used = np.zeros(problem.jobs, bool)
    for kind, gpus in enumerate(free.tolist()):
        mine = np.flatnonzero(where == kind)
        used[mine] = np.cumsum(problem.size[order[mine]]) <= gpus + _DUST
    return order[used], where[used]
