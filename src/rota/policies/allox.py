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
from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec
import numpy as np

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.state import State
from rota.core.view import View
from rota.policies.gavel.matching import allox
from rota.policies.rounds.problem import Array, Problem
from rota.policies.rounds.targets import ShareParams, SharePolicy, Solve


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

    def ask(self, asked: Problem, jobs: Sequence[Job], view: View) -> Problem:  # noqa: ARG002
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
