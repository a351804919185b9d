"""Equal rows and equal kinds of machines of a problem made one.

Rows that are equal in everything can share the average of what they get: the problem is convex and
its objective does not tell them apart. So one row stands for all of them, with their sizes added
up, and solving the smaller problem is exact. In the same way kinds on which every row gains as much
are one kind with all their machines, of which each gets its part of what is used.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rota.solvers.shares import Array, ShareProblem, ShareSolution, solve_shares


def equal_rows(*columns: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First rows of the groups of equal rows, and the number of the group of each row."""
    parts = [part[:, None] if part.ndim == 1 else part for part in columns]
    table = np.ascontiguousarray(np.hstack(parts)) + 0.0  # makes -0 a plain 0
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first.astype(np.intp), group.astype(np.intp)


def solve_grouped(problem: ShareProblem) -> ShareSolution:
    """The best shares; as `solve_shares`, with what is equal merged before and told apart after."""
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
