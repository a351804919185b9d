"""Shares of time on one kind of machines: where there is one answer only, it can be written down.

What a row needs grows in proportion to the level, so the level is where the rows need all machines.
The largest product divides the machines in proportion to the counts, the largest sum serves the
best value for a machine first.
"""

import numpy as np

from rota.solvers.share_problem import Array, ShareProblem, ShareSolution

_CLOSE = 1e-10  # such numbers are equal


def solve_single(problem: ShareProblem) -> ShareSolution | None:
    """The best shares; None if this is not the place to find (or to miss) them."""
    gain, capacity = problem.gain[:, 0], float(problem.capacity[0])
    if gain.min(initial=np.inf) <= 0 or capacity <= 0:
        return None
    slope = np.zeros(len(gain)) if problem.slope is None else problem.slope
    floor = np.zeros(len(gain)) if problem.floor is None else problem.floor
    if problem.log and not floor.any():
        return _product(problem, gain, capacity)
    least = np.maximum(np.where(slope > 0, -np.inf, floor / gain), 0.0)
    if problem.log or least.max() > 1 or problem.size @ least > capacity:
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
    left = capacity - float(size[~rises] @ np.maximum(floor[~rises], 0.0))
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
    shares, left, price = least.copy(), capacity - float(size @ least), 0.0
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
