"""The largest total throughput, per unit of money if there are prices, with deadlines if asked."""

import numpy as np

from rota.core.errors import InfeasibleError
from rota.policies.gavel.basics import for_runnable
from rota.policies.rounds.problem import Array, Problem
from rota.solvers.groups import solve_grouped
from rota.solvers.shares import ShareProblem


def max_sum(
    problem: Problem, *, prices: Array | None = None, time_left: Array | None = None
) -> Array:
    """As many steps per second, or per unit of money, as possible.

    maximise sum_ij T[i, j] X[i, j] / c[j] such that sum_j T[i, j] X[i, j] >= n[i] / d[i] for the
    jobs with a deadline d[i] seconds away (infinite: none)

    Raises:
        InfeasibleError: Not all deadlines can be kept.
    """
    if time_left is None:
        return for_runnable(problem, lambda part: _best(part, _value(part, prices), None))
    bound = np.isfinite(time_left)
    if (bound & ((time_left <= 0) | (problem.throughput.max(axis=1) <= 0))).any():
        raise InfeasibleError("a deadline is over already, or its job can run nowhere")
    floor = np.where(bound, problem.steps / np.where(bound, time_left, 1.0), 0.0)
    return _best(problem, _value(problem, prices), floor)


def _value(problem: Problem, prices: Array | None) -> Array:
    """What a second of each job on each type is worth."""
    return problem.throughput if prices is None else problem.throughput / prices[None, :]


def _best(problem: Problem, value: Array, floor: Array | None) -> Array:
    return solve_grouped(
        ShareProblem(problem.throughput, problem.size, problem.capacity, value=value, floor=floor)
    ).shares


def max_sum_if_possible(
    problem: Problem, *, prices: Array | None, time_left: Array
) -> tuple[Array, bool]:
    """With the deadlines if all of them can be kept, else without any; the answer says which."""
    try:
        return max_sum(problem, prices=prices, time_left=time_left), True
    except InfeasibleError:
        return max_sum(problem, prices=prices), False
