"""Everyone runs for the same part of the time, on each GPU type in proportion to its GPUs.

    X[i, j] = N[j] / sum(N)  min(1, sum(N) / sum(s))

In Gavel this is what the throughputs of jobs are compared with; as a policy it is the time-sharing
that knows nothing: a gang of eight runs as long as a single job, and so gets eight times as much.
Notation as in `gavel-max-min`.

Departs from the paper: there the shares are not feasible and only serve for comparison; here they
are scaled to fit. Idle GPUs go to jobs that can use them (`spare=no`: to none).
"""

from rota.policies.gavel import PAPER
from rota.policies.gavel.basics import even
from rota.policies.rounds.share_policy import BlindParams, SharePolicy, Solve


class GavelProportional(SharePolicy[BlindParams]):
    """Let everyone run for the same part of the time on every GPU type."""

    name = "gavel-proportional"
    paper = PAPER
    Parameters = BlindParams

    def solver(self) -> Solve:
        """An equal part of the time."""
        return even
