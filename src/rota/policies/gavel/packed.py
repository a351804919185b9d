"""The same problems where two jobs may share their GPUs.

A combination is one job alone or a pair of jobs with gangs of equal size. Its share of time counts
once for the GPUs and once for each of its jobs; a job's throughput is the sum over all combinations
that it is part of. The programme is no longer one of jobs that meet in capacities only, so HiGHS
solves it.
"""

import numpy as np
from numpy.typing import NDArray

from rota.core.products import mixed
from rota.policies.gavel.basics import isolated, normalised, runnable
from rota.policies.gavel.durations import fairest, ideal_times
from rota.policies.rounds.problem import Array, JobPairs, PackedShares, RoundProblem
from rota.solvers.linear import LinearProgramme, Sparse, solve_linear, sparse

Indices = NDArray[np.intp]


def packed_throughputs(problem: RoundProblem, pairs: JobPairs, shares: PackedShares) -> Array:
    """Steps per second that every job makes on average, alone and in pairs."""
    total: Array = (problem.throughput * shares.alone).sum(axis=1)
    both = (pairs.throughput * shares.pairs[:, :, None]).sum(axis=1)
    np.add.at(total, pairs.jobs[:, 0], both[:, 0])
    np.add.at(total, pairs.jobs[:, 1], both[:, 1])
    return total


def packed_max_min(problem: RoundProblem, pairs: JobPairs) -> PackedShares:
    """As `max_min`; the normal throughput of a job is the one that it has alone."""
    able = runnable(problem)
    base = np.ones(problem.jobs)
    some = problem.take(able)
    base[able] = some.throughput.max(axis=1) / normalised(some).max(axis=1)
    slope = np.where(able, problem.weight * base / problem.size, 0.0)
    return _Programme(problem, pairs).solve(slope, np.zeros(problem.jobs))


def packed_makespan(problem: RoundProblem, pairs: JobPairs) -> PackedShares:
    """As `makespan`."""
    slope = np.where(runnable(problem), problem.steps, 0.0)
    return _Programme(problem, pairs).solve(slope, np.zeros(problem.jobs))


def packed_finish_time_fairness(problem: RoundProblem, pairs: JobPairs) -> PackedShares:
    """As `finish_time_fairness`; alone on its part a job shares its GPUs with nobody."""
    active = runnable(problem) & (problem.steps > 0)
    programme = _Programme(problem, pairs)
    some = problem.take(active)
    ideal = np.ones(problem.jobs)
    ideal[active] = ideal_times(problem.take(runnable(problem)))[active[runnable(problem)]]

    def solve(slope: Array, floor: Array) -> tuple[Array, Array]:
        wide_slope, wide_floor = np.zeros(problem.jobs), np.zeros(problem.jobs)
        wide_slope[active], wide_floor[active] = slope, floor
        found = programme.solve(wide_slope, wide_floor)
        flat = np.concatenate([found.alone, found.pairs])
        return flat, packed_throughputs(problem, pairs, found)[active]

    alone = isolated(problem)
    start = PackedShares(alone, np.zeros((len(pairs.jobs), len(problem.capacity))))
    speeds = packed_throughputs(problem, pairs, start)[active]
    flat = np.concatenate([start.alone, start.pairs])
    best = fairest(some, ideal[active], (flat, speeds), solve)
    return PackedShares(best[: problem.jobs], best[problem.jobs :])


class _Programme:
    """Maximise z such that the throughput of job i is at least slope[i] z + floor[i]."""

    def __init__(self, problem: RoundProblem, pairs: JobPairs) -> None:
        self.problem, self.pairs = problem, pairs
        first, second = pairs.jobs[:, 0], pairs.jobs[:, 1]
        self.usable = np.flatnonzero(problem.size[first] == problem.size[second])
        first, second = first[self.usable], second[self.usable]
        jobs, self.kinds = problem.throughput.shape
        self.combinations = jobs + len(self.usable)
        # entries of (combination, job): everyone alone, then both sides of the pairs
        self.combination = np.concatenate(
            [np.arange(jobs), *[np.arange(jobs, self.combinations)] * 2]
        )
        self.job = np.concatenate([np.arange(jobs), first, second])
        self.rate = np.concatenate(
            [
                problem.throughput,
                pairs.throughput[self.usable, :, 0],
                pairs.throughput[self.usable, :, 1],
            ]
        )
        self.size = np.concatenate([problem.size, problem.size[first]])

    def solve(self, slope: Array, floor: Array) -> PackedShares:
        """The best shares."""
        jobs, kinds = self.problem.jobs, self.kinds
        width = self.combinations * kinds + 1
        top = float(slope.max(initial=0.0)) or 1.0
        scale = np.maximum(self.problem.throughput.max(axis=1), 1e-12)
        infinite = np.inf
        point = solve_linear(
            LinearProgramme(
                cost=np.append(np.zeros(width - 1), 1.0),
                matrix=self._matrix(slope / top / scale, scale),
                row_lower=np.concatenate([np.full(jobs + kinds, -infinite), floor / scale]),
                row_upper=np.concatenate(
                    [np.ones(jobs), self.problem.capacity, np.full(jobs, infinite)]
                ),
                lower=np.append(np.zeros(width - 1), -infinite if slope.any() else 0.0),
                upper=np.append(np.ones(width - 1), infinite if slope.any() else 0.0),
                maximise=True,
            )
        ).point
        return self._shares(point)

    def _matrix(self, slope: Array, scale: Array) -> Sparse:
        """Rows: time of each job, capacity of each type, throughput of each job."""
        jobs, kinds = self.problem.jobs, self.kinds
        width = self.combinations * kinds + 1
        types = np.arange(kinds)
        variable = (self.combination[:, None] * kinds + types).ravel()
        job = np.repeat(self.job, kinds)
        every = np.arange(self.combinations * kinds)
        rows = [job, jobs + every % kinds, jobs + kinds + job, jobs + kinds + np.arange(jobs)]
        columns = [variable, every, variable, np.full(jobs, width - 1)]
        values = [
            np.ones(len(variable)),
            np.repeat(self.size, kinds),
            (self.rate / scale[self.job][:, None]).ravel(),
            -slope,
        ]
        return sparse(
            np.concatenate(rows),
            np.concatenate(columns),
            np.concatenate(values),
            (2 * jobs + kinds, width),
        )

    def _shares(self, point: Array) -> PackedShares:
        """Within the bounds to the last digit."""
        jobs, kinds = self.problem.jobs, self.kinds
        shares = np.clip(point[:-1].reshape(self.combinations, kinds), 0.0, 1.0)
        used = np.zeros(jobs)
        np.add.at(used, self.job, shares.sum(axis=1)[self.combination])
        most = np.zeros(self.combinations)
        np.maximum.at(most, self.combination, used[self.job])
        shares /= np.maximum(1.0, most)[:, None]
        load = mixed(self.size, shares)
        shares /= np.maximum(1.0, load / np.maximum(self.problem.capacity, 1e-300))[None, :]
        together = np.zeros((len(self.pairs.jobs), kinds))
        together[self.usable] = shares[jobs:]
        return PackedShares(shares[:jobs], together)
