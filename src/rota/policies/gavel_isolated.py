"""Everyone has the m-th part of each GPU type for itself: Gavel's reference for fairness.

    y[i, j] = N[j] / (m s[i])
    X[i, j] = y[i, j] / max(1, sum_j y[i, j])

m is the number of jobs. No speeds are looked at, and nothing is optimised. Notation as in
`gavel-max-min`.

Departs from the paper: of types that it cannot use a job gets nothing, and idle GPUs go to jobs
that can use them (`spare=no`: to none).
"""

from rota.policies.gavel import PAPER
from rota.policies.gavel.basics import isolated
from rota.policies.rounds.share_policy import BlindParams, SharePolicy, Solve


class GavelIsolated(SharePolicy[BlindParams]):
    """Give everyone an equal part of every GPU type."""

    name = "gavel-isolated"
    paper = PAPER
    Parameters = BlindParams

    def solver(self) -> Solve:
        """An equal part of the GPUs."""
        return isolated
