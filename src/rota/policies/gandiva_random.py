"""Gandiva's packing by trial (Xiao et al., OSDI 2018), in the form that Gavel compares with.

    while sum(s) <= sum(N), everyone has the m-th part of each GPU type and nobody is packed;
    else pairs that are worth it stay together, jobs without a partner of equal size try one at
    random, and all combinations (pairs and single jobs) have an equal part of each type

A pair is worth it while its jobs together, compared with how fast they are alone, make at least
`threshold` of progress, on average over the GPU types. Whether jobs can share GPUs at all, and how
fast they are then, is up to the rate model: without one that knows pairs (`--rates types+pairs:..`)
nobody is packed. Notation as in `gavel-max-min`.

Departs from the paper: Gandiva measures by trying; here what a trial would tell is known when the
next one is due, and pairs that turn out bad are parted when jobs come or end. Gavel's code adds up
over the types instead of taking the average, so that nearly every pair stays: `threshold=0.34` with
three types.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from rota.core.jobs import Job
from rota.core.state import State
from rota.policies.gavel.basics import isolated
from rota.policies.rounds.problem import JobPairs, PackedShares, RoundProblem, problem, worth
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve


class GandivaRandomParams(ShareParams, frozen=True):
    """As of gavel-max-min (rounds and what is known), and more.

    `threshold`: progress of a pair that stays, compared with that of single jobs.
    """

    threshold: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class GandivaRandomState(State):
    """Who is together (numbers of jobs), and how often partners were drawn."""

    together: list[tuple[int, int]] = []
    drawn: int = 0


class GandivaRandom(SharePolicy[GandivaRandomParams]):
    """Pack jobs in pairs at random, and keep the pairs that are worth it."""

    name = "gandiva-random"
    coupled = "random draws, and GPUs of each type are divided among all jobs in common rounds"
    paper = "Xiao et al., Gandiva: Introspective Cluster Scheduling for Deep Learning, OSDI 2018"
    Parameters = GandivaRandomParams
    packs = True

    def __init__(self, params: GandivaRandomParams | None = None) -> None:
        super().__init__(params)
        self.state: GandivaRandomState = GandivaRandomState()

    def solver(self) -> Solve:
        """An equal part of the GPUs, as long as no jobs are packed."""
        return isolated

    def pack(self, problem: RoundProblem, pairs: JobPairs, jobs: Sequence[Job]) -> PackedShares:
        """Keep the good pairs, and draw partners for the others."""
        names = [(jobs[a].index, jobs[b].index) for a, b in pairs.jobs.tolist()]
        before = set(self.state.together)
        kept = [number for number, name in enumerate(names) if name in before]
        draw = np.random.default_rng([self.params.seed, self.state.drawn])
        self.state.drawn += 1
        packing = random_packing(
            problem,
            pairs,
            draw,
            together=np.array(kept, np.intp),
            threshold=self.params.threshold,
        )
        self.state.together = [names[number] for number in packing.together.tolist()]
        return packing.shares


Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Packing:
    """The shares, and the pairs that are together now (by their numbers)."""

    shares: PackedShares
    together: Indices


def random_packing(
    problem: RoundProblem,
    pairs: JobPairs,
    draw: np.random.Generator,
    *,
    together: Indices | None = None,
    threshold: float = 1.0,
) -> Packing:
    """Pairs that are worth it stay, jobs without a partner try one at random.

    `threshold` is the least `worth` of a pair that stays. Gavel adds up over the types instead of
    taking the average: its threshold of 1 is 1 / number of types here.
    """
    none = np.zeros((len(pairs.jobs), len(problem.capacity)))
    if problem.size.sum() <= problem.capacity.sum():
        return Packing(PackedShares(isolated(problem), none), np.zeros(0, np.intp))
    kept = np.zeros(0, np.intp) if together is None else together
    kept = kept[worth(problem, pairs)[kept] >= threshold]
    kept = _paired(problem, pairs, kept, draw)
    return Packing(_even(problem, pairs, kept), kept)


def _paired(
    problem: RoundProblem, pairs: JobPairs, kept: Indices, draw: np.random.Generator
) -> Indices:
    """Two jobs at a time, drawn at random; those of unequal size go back."""
    number = {
        (min(pair), max(pair)): index for index, pair in enumerate(map(tuple, pairs.jobs.tolist()))
    }
    taken = set(pairs.jobs[kept].ravel().tolist())
    alone = [job for job in range(problem.jobs) if job not in taken]
    made = kept.tolist()
    for _ in range(len(alone)):
        if len(alone) <= 1:
            break
        one, other = (alone[int(at)] for at in draw.choice(len(alone), size=2, replace=False))
        pair = number.get((min(one, other), max(one, other)))
        if pair is not None and problem.size[one] == problem.size[other]:
            made.append(pair)
            alone = [job for job in alone if job not in (one, other)]
    return np.array(sorted(made), np.intp)


def _even(whole: RoundProblem, pairs: JobPairs, kept: Indices) -> PackedShares:
    """Every combination has an equal part of the cluster."""
    partners = pairs.jobs[kept]
    alone = np.setdiff1d(np.arange(whole.jobs), partners.ravel())
    size = np.concatenate([whole.size[alone], whole.size[partners[:, 0]]])
    even = isolated(problem(np.ones((len(size), len(whole.capacity))), whole.capacity, size=size))
    singles = np.zeros_like(whole.throughput)
    singles[alone] = even[: len(alone)]
    together = np.zeros((len(pairs.jobs), len(whole.capacity)))
    together[kept] = even[len(alone) :]
    return PackedShares(singles, together)
