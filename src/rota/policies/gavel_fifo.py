"""First come, first served over GPU types, as in Gavel (Narayanan et al., OSDI 2020, section 4.2).

    in the order of submission, X[i, j] = 1 for the type j with the largest T[i, j] of those with
    s[i] free GPUs; the first job that fits no type ends the list

Earlier jobs choose first, at every round: a job moves to a faster type when GPUs of it
become free. With `aware=no` a job takes any of the types that it may use, always preferring the
same ones; which these are is drawn by `seed`.

Departs from the paper: a job starts as soon as there is room, not at the next round. The authors'
code for jobs of unknown speed does not use the type that it draws; here every type is used.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rota.core.jobs import Job
from rota.core.view import View
from rota.policies.gavel import PAPER
from rota.policies.rounds.problem import Array, RoundProblem
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve


class GavelFifoParams(ShareParams, frozen=True):
    """As of gavel-max-min (rounds and what is known); no job passes the first (`spare`)."""

    spare: bool = False


class GavelFifo(SharePolicy[GavelFifoParams]):
    """Serve in the order of submission; each job takes the fastest GPUs that are left."""

    name = "gavel-fifo"
    paper = PAPER
    Parameters = GavelFifoParams
    prompt = True

    def ask(self, asked: RoundProblem, jobs: Sequence[Job], view: View) -> RoundProblem:  # noqa: ARG002
        """Without speeds, each job has preferences of its own."""
        if self.params.aware:
            return asked
        taste = [
            np.random.default_rng([self.params.seed, job.index]).random(len(asked.capacity))
            for job in jobs
        ]
        return replace(asked, throughput=asked.throughput * (1.0 + np.array(taste)))

    def solver(self) -> Solve:
        """The order of submission."""
        return fifo


def fifo(problem: RoundProblem, *, draw: np.random.Generator | None = None) -> Array:
    """Whole GPUs in the order of arrival; the first job that does not fit blocks those behind it.

    A job takes the type on which it is fastest, of those with enough free GPUs. With `draw`, which
    stands for not knowing the speeds, it takes any of them.
    """
    shares = np.zeros_like(problem.throughput)
    free = problem.capacity.copy()
    for job in range(problem.jobs):
        fits = free >= problem.size[job]
        if not fits.any():
            break
        kind = _kind(problem.throughput[job], fits, draw)
        if problem.throughput[job, kind] > 0:
            shares[job, kind] = 1.0
            free[kind] -= problem.size[job]
    return shares


def _kind(
    speeds: Array, fits: "np.typing.NDArray[np.bool_]", draw: np.random.Generator | None
) -> int:
    if draw is None:
        return int(np.where(fits, speeds, -1.0).argmax())
    usable = np.flatnonzero(fits & (speeds > 0))
    choice = usable if len(usable) else np.flatnonzero(fits)
    return int(choice[draw.integers(len(choice))])
