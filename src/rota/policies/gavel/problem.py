"""What all problems of the family have in common.

Notation: T[i, j] steps per second of job i with its whole gang on type j, s[i] GPUs of the gang,
w[i] weight, N[j] GPUs of type j, n[i] steps left, t[i] seconds since submission. X is a feasible
allocation if X >= 0, sum_i s[i] X[i, j] <= N[j] for each type and sum_j X[i, j] <= 1 for each job.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import PolicyError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """The jobs that share the cluster, in the order of their arrival, and its GPU types.

    `elapsed` is the time a job would already have spent on what it has done, had it been alone on
    its part of the cluster; `time_left` the seconds to its deadline (infinite: none); `held` the
    number of the type that it holds (-1: none); `owner` the number of the entity that it belongs
    to. Fields that a policy does not need may be left out.
    """

    throughput: Array
    size: Array
    capacity: Array
    weight: Array
    steps: Array
    age: Array
    elapsed: Array
    time_left: Array
    held: NDArray[np.intp]
    owner: NDArray[np.intp]

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return len(self.size)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "Problem":
        """The same cluster with some of the jobs only."""
        changed = {
            field.name: getattr(self, field.name)[rows]
            for field in fields(self)
            if field.name != "capacity"
        }
        return replace(self, **changed)

    def fitting(self) -> "Problem":
        """A job makes no progress on a type that has fewer GPUs than its gang."""
        fits = self.size[:, None] <= self.capacity[None, :]
        return replace(self, throughput=np.where(fits, self.throughput, 0.0))


def problem(
    throughput: Array,
    capacity: Array,
    *,
    size: Array | None = None,
    weight: Array | None = None,
    steps: Array | None = None,
    age: Array | None = None,
    elapsed: Array | None = None,
) -> Problem:
    """A problem with gangs of one GPU, weights of 1 and nothing done yet, unless said otherwise."""
    jobs = len(throughput)
    made = Problem(
        throughput=np.asarray(throughput, float).reshape(jobs, len(capacity)),
        size=_vector(size, jobs, 1.0),
        capacity=np.asarray(capacity, float),
        weight=_vector(weight, jobs, 1.0),
        steps=_vector(steps, jobs, 1.0),
        age=_vector(age, jobs, 0.0),
        elapsed=_vector(elapsed, jobs, 0.0),
        time_left=np.full(jobs, np.inf),
        held=np.full(jobs, -1, np.intp),
        owner=np.zeros(jobs, np.intp),
    )
    if jobs and ((made.size <= 0).any() or (made.weight <= 0).any()):
        raise PolicyError("every job needs a positive number of GPUs and a positive weight")
    return made


def _vector(given: Array | None, length: int, default: float) -> Array:
    return np.full(length, default) if given is None else np.asarray(given, float)


def throughputs(problem: Problem, shares: Array) -> Array:
    """Steps per second that every job makes on average."""
    total: Array = (problem.throughput * shares).sum(axis=1)
    return total


def proportional(problem: Problem) -> Array:
    """Every job spends its time in proportion to the GPUs of each type (not feasible in general).

    X[i, j] = N[j] / sum(N)
    """
    total = problem.capacity.sum()
    part = problem.capacity / (total if total > 0 else 1.0)
    return np.repeat(part[None, :], problem.jobs, axis=0)


def isolated(problem: Problem) -> Array:
    """Every job has the m-th part of each type for itself.

    y[i, j] = N[j] / (m s[i]);  X[i, j] = y[i, j] / max(1, sum_j y[i, j])
    """
    if not problem.jobs:
        return np.zeros_like(problem.throughput)
    part = problem.capacity[None, :] / problem.jobs / problem.size[:, None]
    shares: Array = part / np.maximum(1.0, part.sum(axis=1))[:, None]
    return shares


def even(problem: Problem) -> Array:
    """Everyone runs for the same part of the time, in proportion to the GPUs of each type.

    X[i, j] = N[j] / sum(N) min(1, sum(N) / sum(s))
    """
    wanted = max(float(problem.size.sum()), 1e-300)
    return proportional(problem) * min(1.0, float(problem.capacity.sum()) / wanted)


def alike(problem: Problem, reference: int | None = None) -> Problem:
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


def runnable(problem: Problem) -> NDArray[np.bool_]:
    """Which jobs make progress on some type that the cluster has."""
    usable = (problem.throughput > 0) & (problem.capacity > 0)
    return np.asarray(usable.any(axis=1), bool)


def for_runnable(problem: Problem, solve: Callable[[Problem], Array]) -> Array:
    """Solve for the jobs that can run anywhere; the others get nothing and hinder nobody."""
    able = runnable(problem)
    shares = np.zeros_like(problem.throughput)
    if able.all() and problem.jobs:
        return solve(problem)
    if able.any():
        shares[able] = solve(problem.take(able))
    return shares
