"""Makespan, and finish-time fairness as Gavel states it."""

from collections.abc import Callable

import numpy as np

from rota.policies.gavel.basics import for_runnable, isolated, throughputs
from rota.policies.rounds.problem import Array, RoundProblem
from rota.solvers.search import RatioSearch, smallest_ratio
from rota.solvers.share_problem import ShareProblem
from rota.solvers.shares import solve_grouped, solve_shares


def makespan(problem: RoundProblem) -> Array:
    """Finish the last job as early as possible.

    maximise z such that sum_j T[i, j] X[i, j] >= n[i] z for every job; the makespan is 1 / z
    """
    return for_runnable(problem, _makespan)


def _makespan(problem: RoundProblem) -> Array:
    steps = np.maximum(problem.steps, 0.0)
    if not steps.any():
        return isolated(problem)
    return solve_grouped(
        ShareProblem(problem.throughput, problem.size, problem.capacity, slope=steps)
    ).shares


def ideal_times(problem: RoundProblem) -> Array:
    """How long a job takes from its submission on, alone on its part: elapsed[i] + n[i] / I[i]."""
    return problem.elapsed + problem.steps / throughputs(problem, isolated(problem))


def finish_time_fairness(problem: RoundProblem) -> Array:
    """No job should finish much later than alone on its part of the cluster.

    minimise max_i (t[i] + n[i] / sum_j T[i, j] X[i, j]) / (elapsed[i] + n[i] / I[i])
    """

    def solve(part: RoundProblem) -> Array:
        unfinished = part.steps > 0
        if not unfinished.any():
            return isolated(part)
        shares = np.zeros_like(part.throughput)
        ideal = ideal_times(part)[unfinished]
        part = part.take(unfinished)
        shares[unfinished] = _finish_time_fairness(part, ideal)
        return shares

    return for_runnable(problem, solve)


def _finish_time_fairness(problem: RoundProblem, ideal: Array) -> Array:
    def solve(slope: Array, floor: Array) -> tuple[Array, Array]:
        found = solve_shares(
            ShareProblem(
                problem.throughput, problem.size, problem.capacity, slope=slope, floor=floor
            )
        ).shares
        return found, throughputs(problem, found)

    start = isolated(problem)
    return fairest(problem, ideal, (start, throughputs(problem, start)), solve)


def fairest(
    problem: RoundProblem,
    ideal: Array,
    start: tuple[Array, Array],
    solve: Callable[[Array, Array], tuple[Array, Array]],
) -> Array:
    """Find the smallest largest ratio of finish times, by linear programmes.

    `start` is any allocation with its throughputs. `solve` maximises z such that the throughput of
    every job is at least slope z + floor.
    """

    def ratio(answer: tuple[Array, Array]) -> RatioSearch[tuple[Array, Array]]:
        with np.errstate(divide="ignore"):
            worst = ((problem.age + problem.steps / answer[1]) / ideal).max()
        return RatioSearch(float(worst), answer)

    def improve(last: RatioSearch[tuple[Array, Array]]) -> RatioSearch[tuple[Array, Array]]:
        # With the last ratio r the numerators minus r times the denominators are linear in the
        # throughput; dividing by the last denominators makes the search fast. z is about 1.
        room = last.ratio * ideal - problem.age
        slope = last.ratio * ideal * last.answer[1] / room
        return ratio(solve(slope, problem.steps / room - slope))

    return smallest_ratio(ratio(start), improve).answer[0]


class DurationHistory:
    """The time that each job would have spent alone on its part on what it has done so far.

    `memory` is plain data that can be stored; a new history begins with an empty one.
    """

    def __init__(self, memory: dict[str, list[float]] | None = None) -> None:
        self.memory = {} if memory is None else memory  # elapsed, steps left, rate at the last call

    def update(self, names: list[str], steps: Array, rates: Array) -> Array:
        """Account for the steps made since the last call; `rates` are those of the present parts.

        Returns:
            The elapsed time of every job.
        """
        old = dict(self.memory)
        self.memory.clear()
        for name, left, rate in zip(names, steps.tolist(), rates.tolist(), strict=True):
            elapsed, before, old_rate = old.get(name, (0.0, left, rate))
            spent = (before - left) / old_rate if old_rate > 0 else 0.0
            self.memory[name] = [elapsed + spent, left, rate]
        return np.array([self.memory[name][0] for name in names])
