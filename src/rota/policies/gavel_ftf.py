"""Finish-time fairness as Gavel states it (Narayanan et al., OSDI 2020, section 4.2).

Nobody should finish much later than alone on its part of the cluster (Themis' measure rho).

    minimise    max_i  (t[i] + n[i] / sum_j T[i, j] X[i, j]) / (h[i] + n[i] / I[i])
    such that   sum_i s[i] X[i, j] <= N[j],  sum_j X[i, j] <= 1,  X >= 0

t[i] is the time since its submission, n[i] its remaining work, I[i] its speed alone on the m-th
part of each type, h[i] the time that it would have spent so far, had it been alone on its part:
what it has done since the last solution is divided by I[i] as it was then. Notation else as in
`gavel-max-min`.

Departs from the paper: solved by a few linear programmes (Dinkelbach's method) instead of a conic
one; with `aware=no` all speeds are 1, instead of those on one particular type.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.state import State
from rota.core.view import View
from rota.policies.gavel import PAPER
from rota.policies.gavel.basics import isolated, throughputs
from rota.policies.gavel.durations import DurationHistory, finish_time_fairness
from rota.policies.rounds.problem import RoundProblem
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve


class GavelFtfState(State):
    """What `DurationHistory` remembers of every job."""

    history: dict[str, list[float]] = {}


class GavelFtf(SharePolicy[ShareParams]):
    """Let no job finish much later than alone on its part of the cluster."""

    name = "gavel-ftf"
    paper = PAPER
    knowledge = Knowledge.SPEEDS | Knowledge.REMAINING_WORK
    Parameters = ShareParams
    reads_work = True

    def __init__(self, params: ShareParams | None = None) -> None:
        super().__init__(params)
        self.state: GavelFtfState = GavelFtfState()

    def ask(self, asked: RoundProblem, jobs: Sequence[Job], view: View) -> RoundProblem:  # noqa: ARG002
        """With the time that everyone would have spent so far."""
        alone = np.where(asked.throughput > 0, isolated(asked), 0.0)
        names = [str(job.index) for job in jobs]
        elapsed = DurationHistory(self.state.history).update(
            names, asked.steps, throughputs(asked, alone)
        )
        return replace(asked, elapsed=np.maximum(elapsed, 0.0))

    def solver(self) -> Solve:
        """The smallest largest ratio."""
        return finish_time_fairness
