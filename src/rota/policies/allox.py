"""AlloX (Le et al., EuroSys 2020): jobs are matched with places in the queues of GPUs.

The job in the k-th place from the end of a GPU's queue delays k jobs by its run time, itself
included, so the total completion time is the cost of a matching:

    minimise    sum_i  k p[i, j]      over all assignments of each job i to a place (j, k),
    where       p[i, j] = s[i] n[i] / T[i, j]
                and each GPU has one job in its k-th place from the end

n[i] is the remaining work, T[i, j] the speed on GPUs of type j, s[i] the GPUs of the gang. Each GPU
runs the job that its queue begins with, and jobs that have begun keep their GPUs. Only the part
`alpha` of the waiting jobs, the oldest first, is matched (but at least as many as GPUs are free):
small values favour those that have waited long.

Departs from the paper: there jobs have one GPU. Here a gang counts as one long job, and gets GPUs
when it is first in its queue; until enough of them are free, others may use them. Fairness is by
age, as in Gavel's version, not between users. Jobs may run anywhere as long as GPUs are spare.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.products import mixed
from rota.core.state import State
from rota.core.view import View
from rota.policies.rounds.problem import Array, RoundProblem
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve
from rota.solvers.assignment import assign


class AlloxParams(ShareParams, frozen=True):
    """As of gavel-max-min; `alpha`: the part of the waiting jobs that is matched."""

    alpha: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0


class AlloxState(State):
    """Types of the jobs that have GPUs, by the numbers of both."""

    matched: dict[int, int] = {}


class Allox(SharePolicy[AlloxParams]):
    """Match jobs with GPUs for the least total completion time; who has begun goes on."""

    name = "allox"
    paper = "Le et al., AlloX: Compute Allocation in Hybrid Clusters, EuroSys 2020"
    knowledge = Knowledge.SPEEDS | Knowledge.REMAINING_WORK
    Parameters = AlloxParams
    reads_work = True
    prompt = True

    def __init__(self, params: AlloxParams | None = None) -> None:
        super().__init__(params)
        self.state: AlloxState = AlloxState()

    def ask(self, asked: RoundProblem, jobs: Sequence[Job], view: View) -> RoundProblem:  # noqa: ARG002
        """Who was matched and runs keeps its GPUs."""
        held = [self.state.matched.get(job.index, -1) if job.running else -1 for job in jobs]
        return replace(asked, held=np.array(held, np.intp))

    def solver(self) -> Solve:
        """The cheapest matching."""
        return partial(allox, alpha=self.params.alpha)

    def given(self, jobs: Sequence[Job], shares: Array) -> None:
        """Remember who has GPUs."""
        self.state.matched = {
            job.index: int(row.argmax()) for job, row in zip(jobs, shares, strict=True) if row.any()
        }


Indices = NDArray[np.intp]

_DUST = 1e-9  # parts of GPUs are sums of floats


@dataclass(frozen=True)
class Places:
    """The type of every job and how many jobs of its queue it delays, itself included.

    Both are -1 for a job without a place.
    """

    kind: Indices
    turn: Indices


def allox(problem: RoundProblem, *, kept: Indices | None = None, alpha: float = 1.0) -> Array:
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
    free = np.maximum(problem.capacity - mixed(problem.size, shares), 0.0)
    able = (problem.throughput[:, free > 0] > 0).any(axis=1)
    waiting = np.flatnonzero((held < 0) & able)
    waiting = waiting[np.argsort(-problem.age[waiting], kind="stable")]
    waiting = np.sort(waiting[: max(int(alpha * len(waiting)), int(free.sum()))])
    if len(waiting):
        asked = problem.take(waiting)
        chosen = heads(asked, queues(asked, free), free)
        shares[waiting[chosen[0]], chosen[1]] = 1.0
    return shares


def lasting(problem: RoundProblem, free: Array) -> Array:
    """GPU-seconds of every job on every type; infinite where it cannot run."""
    able = (problem.throughput > 0) & (free > 0)
    work = np.broadcast_to((problem.size * problem.steps)[:, None], able.shape)
    lasts = np.full(able.shape, np.inf)
    np.divide(work, problem.throughput, out=lasts, where=able)
    return lasts


def queues(problem: RoundProblem, free: Array) -> Places:
    """The matching with the least total completion time; a gang counts as one long job.

    GPUs of one type are alike, and no place is used before all nearer to the end are, so the
    matching needs one column per type and k, with room for as many jobs as GPUs are free.
    """
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


def heads(problem: RoundProblem, places: Places, free: Array) -> tuple[Indices, Indices]:
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
