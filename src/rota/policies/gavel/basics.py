"""What the problems of the family have in common: throughputs, reference shares, who can run."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rota.policies.rounds.problem import Array, RoundProblem


def throughputs(problem: RoundProblem, shares: Array) -> Array:
    """Steps per second that every job makes on average."""
    total: Array = (problem.throughput * shares).sum(axis=1)
    return total


def proportional(problem: RoundProblem) -> Array:
    """Every job spends its time in proportion to the GPUs of each type (not feasible in general).

    X[i, j] = N[j] / sum(N)
    """
    total = problem.capacity.sum()
    part = problem.capacity / (total if total > 0 else 1.0)
    return np.repeat(part[None, :], problem.jobs, axis=0)


def isolated(problem: RoundProblem) -> Array:
    """Every job has the m-th part of each type for itself.

    y[i, j] = N[j] / (m s[i]);  X[i, j] = y[i, j] / max(1, sum_j y[i, j])
    """
    if not problem.jobs:
        return np.zeros_like(problem.throughput)
    part = problem.capacity[None, :] / problem.jobs / problem.size[:, None]
    shares: Array = part / np.maximum(1.0, part.sum(axis=1))[:, None]
    return shares


def even(problem: RoundProblem) -> Array:
    """Everyone runs for the same part of the time, in proportion to the GPUs of each type.

    X[i, j] = N[j] / sum(N) min(1, sum(N) / sum(s))
    """
    wanted = max(float(problem.size.sum()), 1e-300)
    return proportional(problem) * min(1.0, float(problem.capacity.sum()) / wanted)


def normalised(problem: RoundProblem, *, aware: bool = True) -> Array:
    """Throughputs relative to those of the proportional allocation: T[i, j] / P[i]."""
    if not aware:
        return np.ones_like(problem.throughput)
    base: Array = throughputs(problem, proportional(problem))
    return problem.throughput / base[:, None]


def alike(problem: RoundProblem, reference: int | None = None) -> RoundProblem:
    """As a policy sees it that does not know that types differ.

    Every type is as fast as the one with the number `reference`; without it, as the average GPU of
    the cluster.
    """
    if reference is None:
        speed = throughputs(problem, proportional(problem))
    else:
        speed = problem.throughput[:, reference]
    repeated = np.repeat(speed[:, None], problem.throughput.shape[1], axis=1)
    return replace(problem, throughput=repeated)


def runnable(problem: RoundProblem) -> NDArray[np.bool_]:
    """Which jobs make progress on some type that the cluster has."""
    usable = (problem.throughput > 0) & (problem.capacity > 0)
    return np.asarray(usable.any(axis=1), bool)


def for_runnable(problem: RoundProblem, solve: Callable[[RoundProblem], Array]) -> Array:
    """Solve for the jobs that can run anywhere; the others get nothing and are in no one's way."""
    able = runnable(problem)
    shares = np.zeros_like(problem.throughput)
    if able.all() and problem.jobs:
        return solve(problem)
    if able.any():
        shares[able] = solve(problem.take(able))
    return shares
