"""AlloX: a matching of jobs to places in the queues of GPUs (Le et al., EuroSys 2020).

The job in the k-th place from the end of a GPU's queue delays k jobs by its run time, itself
included. So the total completion time is the cost of a matching of jobs to (GPU, k) with costs
k p[i, j], where p[i, j] = n[i] / T[i, j]. GPUs of one type are alike, and no place is used before
all nearer to the end are, so the matching needs one column per type and k, with room for N[j] jobs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import PolicyError
from rota.policies.gavel.problem import Array, Problem
from rota.solvers.assignment import assign

Indices = NDArray[np.intp]


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
        problem: Jobs of one GPU each.
        kept: The type that each job holds and keeps, -1 for none.
        alpha: The part of the waiting jobs, oldest first, that is considered.
    """
    if (problem.size != 1).any():
        raise PolicyError("AlloX matches jobs with single GPUs: a job here asks for another number")
    held = np.full(problem.jobs, -1, np.intp) if kept is None else kept
    kinds = problem.throughput.shape[1]
    shares = np.zeros_like(problem.throughput)
    shares[held >= 0, held[held >= 0]] = 1.0
    free = problem.capacity - np.bincount(held[held >= 0], minlength=kinds)
    able = (problem.throughput[:, free > 0] > 0).any(axis=1)
    waiting = np.flatnonzero((held < 0) & able)
    waiting = waiting[np.argsort(-problem.age[waiting], kind="stable")]
    waiting = np.sort(waiting[: max(int(alpha * len(waiting)), int(free.sum()))])
    if len(waiting) and free.sum() > 0:
        chosen = heads(queues(problem.take(waiting), free), free)
        shares[waiting[chosen[0]], chosen[1]] = 1.0
    return shares


def queues(problem: Problem, free: Array) -> Places:
    """The matching with the least total completion time."""
    with np.errstate(divide="ignore"):
        lasts = np.where(
            (problem.throughput > 0) & (free > 0),
            problem.steps[:, None] / problem.throughput,
            np.inf,
        )
    depth = [int(np.ceil(problem.jobs / room)) if room > 0 else 0 for room in free]
    kind = np.repeat(np.arange(len(free)), depth)
    turn = np.concatenate([np.arange(1, most + 1) for most in depth])
    column = assign(lasts[:, kind] * turn, free[kind].astype(np.int64))
    return Places(kind[column], turn[column].astype(np.intp))


def heads(places: Places, free: Array) -> tuple[Indices, Indices]:
    """The jobs that run now, and their types: each GPU starts with its largest k.

    Of the jobs with the same k, those that came first begin a queue: which of them do does not
    change the total.
    """
    jobs, kinds = [], []
    for kind in range(len(free)):
        later = 0
        turns = places.turn[places.kind == kind]
        for turn in range(int(turns.max(initial=0)), 0, -1):
            here = np.flatnonzero((places.kind == kind) & (places.turn == turn))
            begin = here[: len(here) - later]
            jobs.append(begin)
            kinds.append(np.full(len(begin), kind, np.intp))
            later = len(here)
    return np.concatenate(jobs), np.concatenate(kinds)
