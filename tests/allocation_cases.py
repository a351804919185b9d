"""Small allocation problems and slow but sure answers to them."""

import itertools

import numpy as np

from rota.solvers.linear import LinearProgramme, solve_linear, sparse


def random_case(seed, *, jobs=None, kinds=3, alike=False):
    """Throughputs, sizes and GPUs of a small cluster."""
    rng = np.random.default_rng(seed)
    jobs = jobs or int(rng.integers(1, 12))
    speed = rng.uniform(0.1, 1.0, (jobs, kinds)) * 10 ** rng.uniform(-1, 2, (jobs, 1))
    if alike:
        speed = np.repeat(speed[: max(1, jobs // 3)], 3, axis=0)[:jobs]
    size = rng.choice([1.0, 1.0, 2.0, 4.0], len(speed))
    capacity = rng.integers(1, 6, kinds).astype(float)
    return speed, size, capacity


def level_by_highs(gain, size, capacity, slope, floor=None):
    """The best level, from the whole programme written out; also its shares."""
    jobs, kinds = gain.shape
    job, kind = np.repeat(np.arange(jobs), kinds), np.tile(np.arange(kinds), jobs)
    every = np.arange(jobs * kinds)
    floor = np.zeros(jobs) if floor is None else floor
    matrix = sparse(
        np.concatenate([job, jobs + kind, jobs + kinds + job, jobs + kinds + np.arange(jobs)]),
        np.concatenate([every, every, every, np.full(jobs, jobs * kinds)]),
        np.concatenate([np.ones(jobs * kinds), size[job], gain.ravel(), -slope]),
        (2 * jobs + kinds, jobs * kinds + 1),
    )
    found = solve_linear(
        LinearProgramme(
            cost=np.append(np.zeros(jobs * kinds), 1.0),
            matrix=matrix,
            row_lower=np.concatenate([np.full(jobs + kinds, -np.inf), floor]),
            row_upper=np.concatenate([np.ones(jobs), capacity, np.full(jobs, np.inf)]),
            lower=np.append(np.zeros(jobs * kinds), -np.inf),
            upper=np.full(jobs * kinds + 1, np.inf),
            maximise=True,
        )
    )
    return found.objective, found.point[:-1].reshape(jobs, kinds)


def corners(gain, size, capacity):
    """Every corner of the set of feasible shares, for two jobs and two kinds at most."""
    jobs, kinds = gain.shape
    width = jobs * kinds
    rows, limits = [], []
    for job in range(jobs):
        row = np.zeros((jobs, kinds))
        row[job] = 1.0
        rows.append(row.ravel())
        limits.append(1.0)
    for kind in range(kinds):
        row = np.zeros((jobs, kinds))
        row[:, kind] = size
        rows.append(row.ravel())
        limits.append(capacity[kind])
    rows.extend(-np.eye(width))
    limits.extend([0.0] * width)
    matrix, limit = np.array(rows), np.array(limits)
    found = []
    for chosen in itertools.combinations(range(len(limit)), width):
        part = matrix[list(chosen)]
        if abs(np.linalg.det(part)) > 1e-12:
            point = np.linalg.solve(part, limit[list(chosen)])
            if (matrix @ point <= limit + 1e-9).all():
                found.append(point.reshape(jobs, kinds))
    return np.array(found)


def assert_feasible(shares, size, capacity, slack=1e-9):
    assert (shares >= 0).all()
    assert (shares.sum(axis=1) <= 1 + slack).all()
    assert (size @ shares <= capacity * (1 + slack)).all()
