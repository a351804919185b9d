"""Shares of time on few kinds of machines: the programme behind max-min fairness and its relatives.

The problem is stated in `share_problem`. The interior-point method answers nearly always; where
the floors leave no room at all it may not arrive, and HiGHS solves the whole programme instead.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import InfeasibleError, SolverLimitError
from rota.solvers.interior import STEPS, Search
from rota.solvers.linear import LinearProgramme, solve_linear, sparse
from rota.solvers.memo import Memo
from rota.solvers.share_problem import Array, ShareProblem, ShareSolution
from rota.solvers.single import solve_single

__all__ = [
    "TOLERANCE",
    "Array",
    "ShareProblem",
    "ShareSolution",
    "solve_shares",
    "solve_whole",
]

TOLERANCE = 1e-10  # of the gap between the answer and the bound that its prices prove
_TIGHT = 1e-7
_MISSED = 1e-8  # part of a floor by which it may be missed
_MEMO = Memo()


def solve_shares(problem: ShareProblem, *, tolerance: float = TOLERANCE) -> ShareSolution:
    """The best shares; the arrays of the answer are not to be changed.

    Raises:
        InfeasibleError: The floors ask for more than there is.
        SolverLimitError: The steps do not arrive; this is a fault of the numbers.
    """
    if tolerance != TOLERANCE:
        return _solve(problem, tolerance)
    return _MEMO.answer(problem, _solve)


def _solve(problem: ShareProblem, tolerance: float = TOLERANCE) -> ShareSolution:
    rows, kinds = problem.gain.shape
    open_kinds = problem.capacity > 0
    if not rows or not open_kinds.any():
        return _nothing(problem)
    if not open_kinds.all():
        inner = _solve(_only(problem, open_kinds), tolerance)
        shares, prices = np.zeros((rows, kinds)), np.zeros(kinds)
        shares[:, open_kinds], prices[open_kinds] = inner.shares, inner.prices
        return replace(inner, shares=shares, prices=prices)
    if kinds == 1:
        found = solve_single(problem)
        if found is not None:
            return found
    search = Search(problem)
    steps = search.run(tolerance)
    if steps is None and not problem.log:
        _check_floors(problem)
        return solve_whole(problem)
    if steps is None:
        raise SolverLimitError(
            f"no answer after {STEPS} steps for {rows} rows and {kinds} kinds of machines: "
            f"look for gains or sizes that differ by many orders of magnitude"
        )
    return search.solution(steps)


def _nothing(problem: ShareProblem) -> ShareSolution:
    """Without rows or machines."""
    rows, kinds = problem.gain.shape
    if problem.floor is not None and (problem.floor > 0).any():
        raise InfeasibleError("some rows have a floor above zero, but there are no machines")
    shares, tight = np.zeros((rows, kinds)), np.ones(rows, bool)
    return ShareSolution(shares, 0.0, np.zeros(rows), np.zeros(kinds), tight, 0)


def _only(problem: ShareProblem, kinds: NDArray[np.bool_]) -> ShareProblem:
    value = None if problem.value is None else problem.value[:, kinds]
    return replace(
        problem, gain=problem.gain[:, kinds], capacity=problem.capacity[kinds], value=value
    )


def _check_floors(problem: ShareProblem) -> None:
    """Raise if the floors alone cannot be met: how large a part of all of them can?"""
    if problem.floor is None:
        return
    fixed = problem.floor > 0
    if problem.slope is not None:
        fixed &= problem.slope == 0
    if not fixed.any():
        return
    part = ShareProblem(
        problem.gain[fixed], problem.size[fixed], problem.capacity, slope=problem.floor[fixed]
    )
    level = solve_shares(part).level
    if level < 1 - _MISSED:
        raise InfeasibleError(
            f"the floors of {int(fixed.sum())} rows ask for more than there is: "
            f"only {level:.6g} times them can be met"
        )


def solve_whole(problem: ShareProblem) -> ShareSolution:
    """The best shares from the whole programme, by HiGHS; logarithms are beyond it."""
    rows, kinds = problem.gain.shape
    slope = np.zeros(rows) if problem.slope is None else problem.slope
    floor = np.zeros(rows) if problem.floor is None else problem.floor
    floor = np.where((floor <= 0) & (slope == 0), -np.inf, floor)
    top = np.maximum(problem.gain.max(axis=1), 1e-12)
    unit = float((slope / top).max()) or 1.0
    value = np.zeros(rows * kinds) if problem.value is None else problem.value.ravel()
    row, kind = np.repeat(np.arange(rows), kinds), np.tile(np.arange(kinds), rows)
    every, each = np.arange(rows * kinds), np.arange(rows)
    gains = (problem.gain / top[:, None]).ravel()
    leveled = bool(slope.any())
    found = solve_linear(
        LinearProgramme(
            cost=np.append(value, 1.0 if leveled else 0.0),
            matrix=sparse(
                np.concatenate([row, rows + kind, rows + kinds + row, rows + kinds + each]),
                np.concatenate([every, every, every, np.full(rows, rows * kinds)]),
                np.concatenate(
                    [np.ones(rows * kinds), problem.size[row], gains, -slope / top / unit]
                ),
                (2 * rows + kinds, rows * kinds + 1),
            ),
            row_lower=np.concatenate([np.full(rows + kinds, -np.inf), floor / top]),
            row_upper=np.concatenate([np.ones(rows), problem.capacity, np.full(rows, np.inf)]),
            lower=np.append(np.zeros(rows * kinds), -np.inf if leveled else 0.0),
            upper=np.append(np.ones(rows * kinds), np.inf if leveled else 0.0),
            maximise=True,
        )
    )
    shares = np.clip(found.point[:-1].reshape(rows, kinds), 0.0, 1.0)
    shares /= np.maximum(1.0, shares.sum(axis=1))[:, None]
    shares /= np.maximum(1.0, (problem.size @ shares) / np.maximum(problem.capacity, 1e-300))
    bids = np.abs(found.duals[rows + kinds :]) / top
    prices = np.abs(found.duals[rows : rows + kinds])
    tight = bids * slope > _TIGHT * unit / rows
    if leveled:
        bids, prices = bids / unit, prices / unit
    level = float(found.point[-1]) / unit
    return ShareSolution(shares, level, bids, prices, tight, 0)
