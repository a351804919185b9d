"""The problem of shares: jobs with their speeds, and the GPUs of each type.

Notation: T[i, j] steps per second of job i with its whole gang on type j, s[i] GPUs of the gang,
w[i] weight, N[j] GPUs of type j, n[i] steps left, t[i] seconds since submission. X is a feasible
allocation if X >= 0, sum_i s[i] X[i, j] <= N[j] for each type and sum_j X[i, j] <= 1 for each job.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import PolicyError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RoundProblem:
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

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "RoundProblem":
        """The same cluster with some of the jobs only."""
        changed = {
            field.name: getattr(self, field.name)[rows]
            for field in fields(self)
            if field.name != "capacity"
        }
        return replace(self, **changed)

    def fitting(self) -> "RoundProblem":
        """A job makes no progress on a type that has fewer GPUs than its gang."""
        fits = self.size[:, None] <= self.capacity[None, :]
        return replace(self, throughput=np.where(fits, self.throughput, 0.0))


@dataclass(frozen=True)
class JobPairs:
    """Pairs of jobs (by number) and the steps per second of both on each type: [pair, type, 0/1].

    Pairs of gangs of different size are no combinations: give them or not, they get no time.
    """

    jobs: NDArray[np.intp]
    throughput: Array


@dataclass(frozen=True)
class PackedShares:
    """Shares of time of the jobs alone, by job and type, and of the pairs, by pair and type."""

    alone: Array
    pairs: Array


def problem(
    throughput: Array,
    capacity: Array,
    *,
    size: Array | None = None,
    weight: Array | None = None,
    steps: Array | None = None,
    age: Array | None = None,
    elapsed: Array | None = None,
) -> RoundProblem:
    """A problem with gangs of one GPU, weights of 1 and nothing done yet, unless said otherwise."""
    jobs = len(throughput)
    made = RoundProblem(
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


def worth(problem: RoundProblem, pairs: JobPairs) -> Array:
    """Normalised throughput of each pair, on average over the types of the cluster.

    A pair that would stop one of its jobs on any type is worth nothing.
    """
    first, second = pairs.jobs[:, 0], pairs.jobs[:, 1]
    alone = np.stack([problem.throughput[first], problem.throughput[second]], axis=2)
    stopped = (pairs.throughput <= 0) | (alone <= 0)
    relative = np.where(stopped, 0.0, pairs.throughput / np.where(alone > 0, alone, 1.0))
    here = problem.capacity > 0
    if not here.any():
        return np.zeros(len(pairs.jobs))
    total: Array = relative[:, here].sum(axis=2).mean(axis=1)
    return np.where(stopped[:, here].any(axis=(1, 2)), 0.0, total)
