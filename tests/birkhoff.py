"""Shares of jobs of one GPU as a mixture of whole allocations (Birkhoff and von Neumann).

Every feasible target of such jobs is an average of allocations in which each job has one GPU or
none. Running each of them for its part of the time meets the target exactly: the reference for any
dispatcher.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import InfeasibleError
from rota.solvers.assignment import assign

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_ZERO = 1e-9


@dataclass(frozen=True)
class Piece:
    """The type of every job (-1: it waits) for a part of the time."""

    part: float
    kinds: Indices


def decompose(shares: Array, capacity: Array) -> list[Piece]:
    """The pieces of a target; their parts add up to 1.

    Raises:
        InfeasibleError: The shares of a job, or the use of a type, are more than there is.
    """
    jobs, kinds = shares.shape
    if (shares.sum(axis=1) > 1 + _ZERO).any() or (shares.sum(axis=0) > capacity + _ZERO).any():
        raise InfeasibleError("the shares are no allocation: a job or a type has too much")
    left, room = _filled(shares, capacity)
    pieces = []
    rest = 1.0
    while rest > _ZERO:
        column = assign(np.where(left > _ZERO, 0.0, np.inf), room)
        chosen = left[np.arange(len(left)), column]
        part = min(float(chosen.min()), rest)
        left[np.arange(len(left)), column] -= part
        rest -= part
        pieces.append(Piece(part, np.where(column[:jobs] < kinds, column[:jobs], -1)))
    return pieces


def _filled(shares: Array, capacity: Array) -> tuple[Array, NDArray[np.int64]]:
    """With idle jobs and a place to wait, so that all jobs and all GPUs are used all the time."""
    jobs, kinds = shares.shape
    gpus = int(capacity.sum())
    table = np.zeros((jobs + gpus, kinds + 1))
    table[:jobs, :kinds] = shares
    table[jobs:, :kinds] = (capacity - shares.sum(axis=0)) / max(gpus, 1)
    table = np.maximum(table, 0.0)
    table[:, kinds] = np.maximum(1.0 - table[:, :kinds].sum(axis=1), 0.0)
    return table, np.append(capacity, jobs).astype(np.int64)
