"""First come, first served over GPU types."""

import numpy as np

from rota.policies.rounds.problem import Array, Problem


def fifo(problem: Problem, *, draw: np.random.Generator | None = None) -> Array:
    """Whole GPUs in the order of arrival; the first job that does not fit blocks those behind it.

    A job takes the type on which it is fastest, of those with enough free GPUs. With `draw`, which
    stands for not knowing the speeds, it takes any of them.
    """
    shares = np.zeros_like(problem.throughput)
    free = problem.capacity.copy()
    for job in range(problem.jobs):
        fits = free >= problem.size[job]
        if not fits.any():
            break
        kind = _kind(problem.throughput[job], fits, draw)
        if problem.throughput[job, kind] > 0:
            shares[job, kind] = 1.0
            free[kind] -= problem.size[job]
    return shares


def _kind(
    speeds: Array, fits: "np.typing.NDArray[np.bool_]", draw: np.random.Generator | None
) -> int:
    if draw is None:
        return int(np.where(fits, speeds, -1.0).argmax())
    usable = np.flatnonzero(fits & (speeds > 0))
    choice = usable if len(usable) else np.flatnonzero(fits)
    return int(choice[draw.integers(len(choice))])
