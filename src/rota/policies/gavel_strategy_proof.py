"""The variant of Gavel's fairness in which lying does not pay (its appendix; tests only there).

    maximise    product_i  s[i] / (w[i] P[i]) sum_j T[i, j] X[i, j]
    such that   sum_i s[i] X[i, j] <= N[j],  sum_j X[i, j] <= 1,  X >= 0

Then job i keeps the part d[i] of its X: the product of the throughputs of the others with it, over
that without it. So what a job takes from the others costs it as much, and its best choice is to
tell its true speeds. What is not kept is not part of any share; with `spare` jobs that can use
it gets it, which the proof of honesty does not cover: use `spare=no` for exactly that mechanism.

Departs from the paper: equal jobs are left out together, so there is one problem per kind of jobs
and not per job.
"""

from rota.policies.gavel import PAPER
from rota.policies.gavel.fairness import strategy_proof
from rota.policies.rounds.problem import Array, RoundProblem
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve


class GavelStrategyProof(SharePolicy[ShareParams]):
    """Share fairly in a way in which no job gains by lying about its speeds."""

    name = "gavel-strategy-proof"
    paper = PAPER
    Parameters = ShareParams

    def solver(self) -> Solve:
        """The largest product, of which everyone keeps a part."""
        return _kept


def _kept(asked: RoundProblem) -> Array:
    return strategy_proof(asked)[0]
