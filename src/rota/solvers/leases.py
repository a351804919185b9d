"""Leases of equal length for jobs that need some of them before their deadlines.

    maximise or minimise   sum_j gpus[j] x[j, 0]                    GPUs of the first lease
    such that              sum_{t < within[j]} x[j, t] = leases[j]  for each job j
                           sum_j gpus[j] x[j, t] <= capacity[t]     for each lease t
                           x in {0, 1}

A lease is *loose* if all jobs that may have it fit in together: such leases need no constraint, and
are one whole number for each job. With one size of jobs the programme is one of transports, whose
linear relaxation has whole solutions.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np

from rota.core.errors import InfeasibleError, SolverLimitError
from rota.core.products import dot
from rota.solvers.linear import LinearProgramme, solve_linear, sparse

EXACT = 1e-9
NODES = 200  # of the search tree: what is not found by then is as good as not to be had


class LeaseNeed(NamedTuple):
    """A job needs so many of the first `within` leases, with so many GPUs in each."""

    gpus: float
    leases: int
    within: int


def share_leases(
    needs: Sequence[LeaseNeed],
    capacity: Sequence[float],
    *,
    fill: bool,
    favoured: Container[int] = (),
) -> list[list[bool]] | None:
    """Which leases each job has; None: not all can have what they need, or none was found.

    Args:
        needs: One for each job.
        capacity: GPUs in each lease, at least as many leases as the longest `within`.
        fill: As many GPUs as possible in the first lease; else as few.
        favoured: Places in `needs` of jobs that should have the first lease rather than others.
    """
    if any(need.leases > need.within for need in needs):
        return None
    loose = _loose(needs, capacity)
    tight = [t for t in range(1, len(loose)) if not loose[t]]
    if not tight and (not loose or loose[0]):
        return [_at_ease(need, fill=fill) for need in needs]
    if _crowded(needs, capacity):
        return None
    edge = (1 if fill else -1) / (2 * capacity[0] + 1)  # all together: less than one GPU
    worth = [need.gpus * (1 + edge if j in favoured else 1) for j, need in enumerate(needs)]
    return _solved(needs, capacity, loose, [0, *tight], worth, fill=fill)


def pack_leases(needs: Sequence[LeaseNeed], room: list[float]) -> list[list[bool] | None]:
    """Leases for one job after the other, the last ones that have room; None: there are too few.

    `room` becomes what is left. Quick, and blind to what an earlier job could have given up.
    """
    return [_take_last(need, room) for need in needs]


def _take_last(need: LeaseNeed, room: list[float]) -> list[bool] | None:
    open_ = [t for t in range(need.within) if room[t] >= need.gpus - EXACT]
    if len(open_) < need.leases:
        return None
    found = [False] * need.within
    for t in open_[len(open_) - need.leases :]:
        room[t] -= need.gpus
        found[t] = True
    return found


def _loose(needs: Sequence[LeaseNeed], capacity: Sequence[float]) -> list[bool]:
    """Which leases have room for everyone."""
    asked = np.zeros(max((need.within for need in needs), default=0))
    for need in needs:
        if need.leases:
            asked[: need.within] += need.gpus
    return [bool(asked[t] <= capacity[t] + EXACT) for t in range(len(asked))]


def _crowded(needs: Sequence[LeaseNeed], capacity: Sequence[float]) -> bool:
    """Do jobs need more of the first leases, for any number of them, than there is?"""
    gpus, leases, within = (np.array(column, float) for column in zip(*needs, strict=True))
    room = np.cumsum(capacity)
    ends = np.unique(within).astype(int)
    return any(
        dot(gpus, np.maximum(0.0, leases - np.maximum(0.0, within - end))) > room[end - 1] + EXACT
        for end in ends[ends > 0].tolist()
    )


def _at_ease(need: LeaseNeed, *, fill: bool) -> list[bool]:
    """Where all leases are loose: the first if it shall be filled or must be, then the latest."""
    if need.within == 0:
        return []
    first = need.leases > 0 and (fill or need.leases == need.within)
    rest = need.leases - first
    return [first, *[False] * (need.within - 1 - rest), *[True] * rest]


def _spread(taken: Sequence[int], need: LeaseNeed, loose: Sequence[bool]) -> list[bool]:
    """Leases of a job: those that were decided, and of the loose ones the latest."""
    found = [False] * need.within
    for t in taken:
        found[t] = True
    missing = need.leases - sum(found)
    for t in range(need.within - 1, 0, -1):
        if missing > 0 and loose[t]:
            found[t] = True
            missing -= 1
    return found


def _solved(
    needs: Sequence[LeaseNeed],
    capacity: Sequence[float],
    loose: Sequence[bool],
    tight: Sequence[int],
    worth: Sequence[float],
    *,
    fill: bool,
) -> list[list[bool]] | None:
    """By the programme; the first lease is always a variable of its own."""
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    cost: list[float] = []
    upper: list[float] = []
    places: list[tuple[int, int]] = []  # of each variable: job and lease, -1 for the loose ones
    for j, need in enumerate(needs):
        for row, t in enumerate(tight):
            if t < need.within:
                rows += [j, len(needs) + row]
                columns += [len(cost)] * 2
                values += [1.0, need.gpus]
                cost.append(worth[j] if t == 0 else 0.0)
                upper.append(1.0)
                places.append((j, t))
        free = sum(loose[1 : need.within])
        if free:
            rows.append(j)
            columns.append(len(cost))
            values.append(1.0)
            cost.append(0.0)
            upper.append(float(free))
            places.append((j, -1))
    exactly = [float(need.leases) for need in needs]
    programme = LinearProgramme(
        cost=np.array(cost),
        matrix=sparse(
            np.array(rows, int), np.array(columns, int), np.array(values),
            (len(needs) + len(tight), len(cost)),
        ),
        row_lower=np.array([*exactly, *[-np.inf] * len(tight)]),
        row_upper=np.array([*exactly, *[capacity[t] for t in tight]]),
        lower=np.zeros(len(cost)),
        upper=np.array(upper),
        maximise=fill,
        whole=np.ones(len(cost), bool),
    )  # fmt: skip
    try:
        point = solve_linear(programme, node_limit=NODES).point
    except (InfeasibleError, SolverLimitError):
        return None
    taken: list[list[int]] = [[] for _ in needs]
    for (j, t), value in zip(places, point.tolist(), strict=True):
        if t >= 0 and value > 0.5:  # noqa: PLR2004 - whole numbers, to within rounding
            taken[j].append(t)
    return [_spread(mine, need, loose) for mine, need in zip(taken, needs, strict=True)]
