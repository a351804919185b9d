"""POP: a large problem as several small ones (Narayanan et al., SOSP 2021).

Jobs are dealt to k parts at random, each with about the k-th part of every type, and each part is
solved for itself. With many jobs the parts look like the whole, so little is lost.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import OptionError
from rota.policies.rounds.problem import Array, RoundProblem

Solve = Callable[[RoundProblem], Array]
Spread = Callable[[Solve, Iterable[RoundProblem]], Iterable[Array]]


def parts(
    problem: RoundProblem, k: int, draw: np.random.Generator
) -> list[tuple[NDArray[np.intp], RoundProblem]]:
    """The rows of each part and its problem; no GPU is lost by rounding."""
    if k < 1:
        raise OptionError(f"pop: k={k} is not a number of parts: give 1 or more")
    rows = np.arange(problem.jobs) if k == 1 else draw.permutation(problem.jobs)
    out = []
    for part, capacity in enumerate(_capacities(problem.capacity, k)):
        mine = np.sort(rows[part::k])
        out.append((mine, replace(problem.take(mine), capacity=capacity)))
    return out


def _capacities(capacity: Array, k: int) -> Array:
    """Whole GPUs, as even as possible; what is left over goes to another part for each type."""
    base, rest = np.divmod(capacity, k)
    shares = np.repeat(base[None, :], k, axis=0)
    given = 0
    for kind, count in enumerate(rest):
        whole, broken = divmod(float(count), 1.0)
        for _ in range(int(whole)):
            shares[given % k, kind] += 1.0
            given += 1
        shares[given % k, kind] += broken
    return shares


def pop(
    problem: RoundProblem,
    solve: Solve,
    *,
    k: int,
    draw: np.random.Generator,
    spread: Spread = map,
) -> Array:
    """Solve k parts and put the answers together.

    `spread` applies the solver to the parts; give the `map` of a pool of processes to solve them at
    the same time.
    """
    divided = parts(problem, k, draw)
    shares = np.zeros_like(problem.throughput)
    answers = spread(solve, [part for _, part in divided])
    for (rows, _), answer in zip(divided, answers, strict=True):
        shares[rows] = answer
    return shares
