"""Gavel's max-min fairness (Narayanan et al., OSDI 2020, section 4.1), also called LAS there.

The job that is worst off gets as much as possible, compared with what it would make of its
proportional part of the cluster.

    maximise    min_i  s[i] / (w[i] P[i])  sum_j T[i, j] X[i, j]
    such that   sum_i s[i] X[i, j] <= N[j]    for each GPU type j
                sum_j X[i, j] <= 1            for each job i
                X >= 0
    where       P[i] = sum_j T[i, j] N[j] / sum_j N[j]

X[i, j] is the share of time of job i on GPUs of type j, T[i, j] its speed there, s[i] its GPUs,
w[i] its weight (the priority, at least 1), N[j] the GPUs of type j. With `aware=no` all T are 1
where a job may run at all.

With `packed=yes` two jobs with gangs of equal size may share their GPUs, where the rate model knows
how fast they are then (`--rates types+pairs:..`). A combination c is a job or a pair; X[c, j] is
its share of time, T[i, c, j] the speed of job i in it, and

    maximise    min_i  s[i] / (w[i] P[i])  sum_{c with i, j} T[i, c, j] X[c, j]
    such that   sum_c s[c] X[c, j] <= N[j],  sum_{c with i, j} X[c, j] <= 1,  X >= 0

Of many possible partners the best `partners` of each job are looked at (0: all).

Departs from the paper: shares become rounds by what is owed (`rule=deficit`), which follows them
more closely than X over what was received (`rule=received`, the paper's). X is found anew at the
next round when jobs have come or ended, and not at intervals of their own.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from rota.core.jobs import Job
from rota.policies.gavel import PAPER
from rota.policies.gavel.fairness import max_min
from rota.policies.gavel.packed import packed_max_min
from rota.policies.rounds.problem import JobPairs, PackedShares, RoundProblem
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve


class MaxMinParams(ShareParams, frozen=True):
    """How shares become rounds, what is known, and whether jobs are packed.

    `round_s`: seconds of a round. `rule`: who goes first: by what it is owed (`deficit`), or by X
    over what it has `received`. `carry`: what is owed is kept when X changes. `spare`: idle GPUs go
    to jobs that can use them. `aware`: it is known how fast each job is on each GPU type; `speeds`
    says how: exactly (`oracle`), with errors whose coefficient of variation is `noise` (`noisy`),
    or as far as jobs have been seen to run (`learn`). `seed`: of whatever is drawn. `packed`: two
    jobs may share their GPUs; `partners`: how many partners of a job are looked at.
    """

    packed: bool = False
    partners: Annotated[int, msgspec.Meta(ge=0)] = 16


class GavelMaxMin(SharePolicy[MaxMinParams]):
    """Make the job that is worst off as well off as possible, on GPUs of different speeds."""

    name = "gavel-max-min"
    paper = PAPER
    Parameters = MaxMinParams

    def __init__(self, params: MaxMinParams | None = None) -> None:
        super().__init__(params)
        self.packs, self.partners = self.params.packed, self.params.partners

    def solver(self) -> Solve:
        """Max-min fairness of normalised throughputs."""
        return max_min

    def pack(self, problem: RoundProblem, pairs: JobPairs, jobs: Sequence[Job]) -> PackedShares:  # noqa: ARG002
        """The same of throughputs alone and in pairs."""
        return packed_max_min(problem, pairs)
