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

Departs from the paper: shares become rounds by what is owed (`rule=deficit`), which follows them
more closely than X over what was received (`rule=received`, the paper's). X is found anew at the
next round when jobs have come or ended, and not at intervals of their own.
"""

from rota.policies.gavel.fairness import max_min
from rota.policies.gavel.rounds import PAPER, RoundParams, RoundPolicy, Solve


class GavelMaxMin(RoundPolicy[RoundParams]):
    """Make the job that is worst off as well off as possible, on GPUs of different speeds."""

    name = "gavel-max-min"
    paper = PAPER
    Parameters = RoundParams

    def solver(self) -> Solve:
        """Max-min fairness of normalised throughputs."""
        return max_min
