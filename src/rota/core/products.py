"""Sums of products, and small systems of equations, that are the same on every processor.

`@` and `numpy.linalg` call a linear algebra library, which chooses its kernels for the processor
and by its environment (`OPENBLAS_CORETYPE`). They add up in different orders, and so differ in the
last digit: enough to turn a tie in a decision. What is done here is done by NumPy itself, in one
order.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def dot(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """The sum of the products of two rows of numbers."""
    return float((one * other).sum())


def mixed(weights: npt.NDArray[Any], rows: npt.NDArray[Any]) -> Numbers:
    """The sum of rows, each times its weight."""
    total: Numbers = (weights[:, None] * rows).sum(axis=0)
    return total


def solved(matrix: Numbers, right: Numbers) -> Numbers:
    """The x with `matrix` x = `right`; both may be stacks of small ones.

    Raises:
        numpy.linalg.LinAlgError: A matrix has no inverse.
    """
    if matrix.ndim == 2:  # noqa: PLR2004 - a single one
        return _one_solved(matrix.tolist(), right.tolist())
    size = matrix.shape[-1]
    both = np.concatenate([matrix, right], axis=-1)
    for place in range(size):
        below = np.abs(both[..., place:, place])
        chosen = place + np.argmax(below, axis=-1)[..., None, None]
        pivot = np.take_along_axis(both, chosen, axis=-2)
        np.put_along_axis(both, chosen, both[..., place : place + 1, :], axis=-2)
        top = pivot[..., place : place + 1]
        if not top.all():
            raise np.linalg.LinAlgError("Singular matrix")
        pivot = pivot / top
        both -= both[..., place : place + 1] * pivot
        both[..., place, :] = pivot[..., 0, :]
    found: Numbers = both[..., size:]
    return found


def _one_solved(matrix: list[list[float]], right: list[list[float]]) -> Numbers:
    """The same steps for one small matrix: NumPy would take most of the time to begin each."""
    rows = [row + more for row, more in zip(matrix, right, strict=True)]
    size = len(rows)
    for place in range(size):
        chosen = max(range(place, size), key=lambda at: abs(rows[at][place]))
        rows[place], rows[chosen] = rows[chosen], rows[place]
        top = rows[place][place]
        if not top:
            raise np.linalg.LinAlgError("Singular matrix")
        pivot = rows[place] = [each / top for each in rows[place]]
        for at, row in enumerate(rows):
            if at != place:
                factor = row[place]
                rows[at] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return np.array([row[size:] for row in rows])
