"""Packing by trial, as Gandiva does (Xiao et al., OSDI 2018) in the form that Gavel compares with.

While there are GPUs for everyone, nobody is packed. Then jobs with gangs of equal size are paired
at random; a pair stays while it is worth it, and all combinations share the cluster evenly.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.policies.gavel.basics import isolated
from rota.policies.rounds.problem import PackedShares, Pairs, Problem, problem, worth

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Packing:
    """The shares, and the pairs that are together now (by their numbers)."""

    shares: PackedShares
    together: Indices


def random_packing(
    problem: Problem,
    pairs: Pairs,
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


def _paired(problem: Problem, pairs: Pairs, kept: Indices, draw: np.random.Generator) -> Indices:
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


def _even(whole: Problem, pairs: Pairs, kept: Indices) -> PackedShares:
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
