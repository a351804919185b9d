"""Gavel's makespan (Narayanan et al., OSDI 2020, section 4.2): the last job should end early.

    maximise    z
    such that   sum_j T[i, j] X[i, j] >= n[i] z    for each job i
                sum_i s[i] X[i, j] <= N[j],  sum_j X[i, j] <= 1,  X >= 0

n[i] is the remaining work of job i; with these shares all jobs end at 1 / z at the latest. Notation
else as in `gavel-max-min`.

Departs from the paper: one linear programme instead of a search by bisection, which the authors'
code stops 5 % early; with `aware=no` all speeds are 1, instead of those on one particular type.
"""

from rota.core.knowledge import Knowledge
from rota.policies.gavel import PAPER
from rota.policies.gavel.durations import makespan
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve


class GavelMakespan(SharePolicy[ShareParams]):
    """Let the last of the present jobs end as early as possible."""

    name = "gavel-makespan"
    paper = PAPER
    knowledge = Knowledge.SPEEDS | Knowledge.REMAINING_WORK
    Parameters = ShareParams
    reads_work = True

    def solver(self) -> Solve:
        """The least makespan."""
        return makespan
