"""Shares of time on few kinds of machines: the programme behind max-min fairness and its relatives.

The problem is stated in `share_problem`. The interior-point method answers nearly always; where
the floors leave no room at all it may not arrive, and HiGHS solves the whole programme instead.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import InfeasibleError, SolverLimitError
from rota.core.products import dot, mixed
from rota.solvers.interior import STEPS, Search
from rota.solvers.linear import LinearProgramme, equal_rows, solve_linear, sparse
from rota.solvers.share_problem import Array, ShareProblem, ShareSolution

REMEMBERED = 1024  # answers
SMALL = 256  # rows: larger problems are rarely equal, and need memory

Key = tuple[object, ...]


class Memo:
    """Remembers the latest answers: the same jobs often come back.

    Runs are resumed, policies compared, and the parts of a problem solved with and without one of
    them; small problems are then found here. An answer is a function of its problem alone.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Key, ShareSolution] = OrderedDict()

    def answer(
        self, problem: ShareProblem, solve: Callable[[ShareProblem], ShareSolution]
    ) -> ShareSolution:
        """The answer; its arrays are not to be changed."""
        if len(problem.gain) > SMALL:
            return solve(problem)
        key = _key(problem)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _fixed(solve(problem))
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found


def _key(problem: ShareProblem) -> Key:
    values = (getattr(problem, field.name) for field in fields(problem))
    return tuple(
        (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for value in values
    )


def _fixed(answer: ShareSolution) -> ShareSolution:
    for value in (answer.shares, answer.bids, answer.prices, answer.tight):
        value.flags.writeable = False
    return answer


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
    shares /= np.maximum(1.0, mixed(problem.size, shares) / np.maximum(problem.capacity, 1e-300))
    bids = np.abs(found.duals[rows + kinds :]) / top
    prices = np.abs(found.duals[rows : rows + kinds])
    tight = bids * slope > _TIGHT * unit / rows
    if leveled:
        bids, prices = bids / unit, prices / unit
    level = float(found.point[-1]) / unit
    return ShareSolution(shares, level, bids, prices, tight, 0)


def solve_grouped(problem: ShareProblem) -> ShareSolution:
    """The best shares; as `solve_shares`, with what is equal merged before and told apart after.

    Rows that are equal in everything can share the average of what they get: the problem is convex
    and its objective does not tell them apart. So one row stands for all of them, with their sizes
    added up, and solving the smaller problem is exact. In the same way kinds on which every row
    gains as much are one kind with all their machines, of which each gets its part of what is used.
    """
    rows, kinds = problem.gain.shape
    if not rows or not kinds:
        return solve_shares(problem)
    tables = [problem.gain.T] if problem.value is None else [problem.gain.T, problem.value.T]
    first, group = equal_rows(*tables)
    if len(first) == kinds:
        return _solve_rows(problem)
    capacity = np.zeros(len(first))
    np.add.at(capacity, group, problem.capacity)
    merged = replace(
        problem,
        gain=problem.gain[:, first],
        capacity=capacity,
        value=None if problem.value is None else problem.value[:, first],
    )
    found = _solve_rows(merged)
    part = problem.capacity / np.where(capacity > 0, capacity, 1.0)[group]
    return replace(found, shares=found.shares[:, group] * part, prices=found.prices[group])


def _solve_rows(problem: ShareProblem) -> ShareSolution:
    given = [problem.slope, problem.floor, problem.value, problem.count]
    present = [part for part in given if part is not None]
    first, group = equal_rows(problem.gain, problem.size, *present)
    if len(first) == len(group):
        return solve_shares(problem)
    members = np.bincount(group).astype(float)
    count = problem.count[first] if problem.count is not None else np.ones(len(first))
    merged = replace(
        problem,
        gain=problem.gain[first],
        size=problem.size[first] * members,
        slope=_rows(problem.slope, first),
        floor=_rows(problem.floor, first),
        value=None if problem.value is None else problem.value[first] * members[:, None],
        count=count * members,
    )
    found = solve_shares(merged)
    return replace(
        found,
        shares=found.shares[group],
        bids=(found.bids / members)[group],
        tight=found.tight[group],
    )


def _rows(values: Array | None, rows: NDArray[np.intp]) -> Array | None:
    return None if values is None else values[rows]


_CLOSE = 1e-10  # such numbers are equal


def solve_single(problem: ShareProblem) -> ShareSolution | None:
    """The best shares on one kind of machines, written down; None if they cannot be.

    What a row needs grows in proportion to the level, so the level is where the rows need all
    machines. The largest product divides the machines in proportion to the counts, the largest sum
    serves the best value for a machine first.
    """
    gain, capacity = problem.gain[:, 0], float(problem.capacity[0])
    if gain.min(initial=np.inf) <= 0 or capacity <= 0:
        return None
    slope = np.zeros(len(gain)) if problem.slope is None else problem.slope
    floor = np.zeros(len(gain)) if problem.floor is None else problem.floor
    if problem.log and not floor.any():
        return _product(problem, gain, capacity)
    least = np.maximum(np.where(slope > 0, -np.inf, floor / gain), 0.0)
    if problem.log or least.max() > 1 or dot(problem.size, least) > capacity:
        return None
    if not slope.any():
        return _sum(problem, least, capacity)
    return None if problem.value is not None else _level(problem, slope / gain, floor / gain)


def _level(problem: ShareProblem, slope: Array, floor: Array) -> ShareSolution | None:
    """None where a row stops the level before all machines are needed: many answers are equal."""
    size, rises = problem.size, slope > 0
    level = _all_used(size, slope, floor, float(problem.capacity[0]))
    need = np.maximum(slope * level + floor, 0.0)
    if need.max() > 1.0:
        return None
    needs = slope * level + floor >= -_CLOSE
    tight = rises & needs
    price = 1.0 / float((size * slope)[tight].sum())
    bids = np.where(needs & (rises | (floor > 0)), size * price, 0.0) / problem.gain[:, 0]
    return ShareSolution(need[:, None], level, bids, np.array([price]), tight, 0)


def _all_used(size: Array, slope: Array, floor: Array, capacity: float) -> float:
    """The level at which the rows need all machines: they begin to need some one by one."""
    rises = slope > 0
    left = capacity - dot(size[~rises], np.maximum(floor[~rises], 0.0))
    begin = -floor[rises] / slope[rises]
    order = np.argsort(begin, kind="stable")
    begin = begin[order]
    rate = np.cumsum((size * slope)[rises][order])
    offset = np.cumsum((size * floor)[rises][order])
    reached = (left - offset) / rate  # if those up to here need some, and nobody else
    ends = np.append(begin[1:], np.inf)
    return float(reached[np.flatnonzero(reached <= ends)[0]])


def _product(problem: ShareProblem, gain: Array, capacity: float) -> ShareSolution:
    size = problem.size
    count = np.ones(len(size)) if problem.count is None else problem.count
    shares, price = np.ones(len(size)), 0.0
    if size.sum() > capacity:
        order = np.argsort(-count / size, kind="stable")
        # those up to here have all the time, the others share what is left
        full = np.concatenate([[0.0], np.cumsum(size[order])[:-1]])
        others = np.cumsum(count[order][::-1])[::-1]
        with np.errstate(divide="ignore"):
            prices = others / np.maximum(capacity - full, 0.0)
        fits = (count / size)[order] <= prices * (1 + _CLOSE)
        price = float(prices[np.flatnonzero(fits & (full < capacity))[0]])
        shares = np.minimum(1.0, count / (size * price))
    bids = count / (gain * shares)
    tight = np.ones(len(size), bool)
    return ShareSolution(shares[:, None], 0.0, bids, np.array([price]), tight, 0)


def _sum(problem: ShareProblem, least: Array, capacity: float) -> ShareSolution:
    size = problem.size
    value = np.zeros(len(size)) if problem.value is None else problem.value[:, 0]
    worth = value / size
    shares, left, price = least.copy(), capacity - dot(size, least), 0.0
    for best in np.unique(worth[worth > 0])[::-1]:
        mine = worth == best
        room = float((size * (1.0 - shares))[mine].sum())
        part = min(1.0, left / room) if room > 0 else 1.0
        shares[mine] += (1.0 - shares[mine]) * part
        left -= room * part
        if part < 1.0:
            price = float(best)
            break
    bids = np.where(shares <= least, np.maximum(size * price - value, 0.0), 0.0)
    tight = np.zeros(len(size), bool)
    prices = np.array([price])
    return ShareSolution(shares[:, None], 0.0, bids / problem.gain[:, 0], prices, tight, 0)
