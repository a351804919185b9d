"""Intervals for the ratio of two policies.

*Over replications* (`ratio_interval`). Each policy has one number per replication. Logarithms are
compared, so that a ratio and its inverse are treated alike and a heavy tail weighs less: the ratio
is the geometric mean of the single ratios, and its interval is

- Student's t for fewer than `FEW` replications (which says nothing of skewness);
- the studentised bootstrap (bootstrap-t, seeded) for more, which respects skewness; on either side
  it reaches at least as far as Student's t, so that many equal ratios prove nothing, and at most
  `FURTHEST` times as far, because resamples of a few values may have next to no spread.

Replications that are not paired (two sets of seeds) are compared by Welch's form of the same. Where
a number is 0 there is no logarithm: then the ratio is that of the means, without an interval. (One
from a linearised ratio is far too narrow when only a few replications are above 0.)

*Over the jobs of one run* (`jobs_interval`). Without replications, how much a ratio depends on
single jobs can still be said: jobs are resampled in blocks of neighbours, because jobs that queue
together wait together, each with its fate under both policies. This says nothing about other
workloads, so nobody wins by it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rota.core.eventlog import Floats
from rota.core.sums import ordered_sum

LEVEL = 0.95
FEW = 4
FURTHEST = 2.0
RESAMPLES = 2_000
LEAST_JOBS = 200
BLOCKS = 6
_MOST_DRAWN = 10_000_000  # values drawn in all by the resampling of jobs
_AT_ONCE = 2_000_000
_GRID = 20_001
_FAR = 100.0  # standard errors
_MOST_FREEDOM = 5_000.0

Statistic = Callable[[Floats], Floats]
"""A number for each row of a table of jobs."""


@dataclass(frozen=True)
class Percentile:
    """A statistic; those of one table are found together."""

    q: float

    def __call__(self, jobs: Floats) -> Floats:
        """Of each row."""
        return np.asarray(np.percentile(jobs, self.q, axis=1))


class Ratio(NamedTuple):
    """A ratio and its interval; None: there is none."""

    ratio: float | None = None
    low: float | None = None
    high: float | None = None


def ratio_interval(
    base: Sequence[float],
    values: Sequence[float],
    *,
    paired: bool = True,
    level: float = LEVEL,
    seed: int = 0,
) -> Ratio:
    """The ratio of `values` to `base`, over replications.

    Args:
        base: A number of the baseline per replication.
        values: Those of the other policy; the same replications in the same order if paired.
        paired: The i-th of both met the same jobs and the same fate.
        level: Of the interval.
        seed: Of the bootstrap.
    """
    x, y = np.asarray(base, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if not len(x) or not len(y) or x.mean() <= 0:
        return Ratio()
    if x.min() <= 0 or y.min() <= 0:
        return Ratio(float(y.mean() / x.mean()))
    if len(x) == len(y) == 1:
        return Ratio(float(y[0] / x[0]))
    parts = [np.log(y / x)] if paired else [np.log(y), -np.log(x)]
    middle = ordered_sum(float(part.mean()) for part in parts)
    if min(map(len, parts)) < 2:  # noqa: PLR2004 - one value has no spread
        return Ratio(math.exp(middle))
    error, freedom = _error(parts)
    half = student(level, freedom) * error
    below, above = -half, half
    if min(map(len, parts)) >= FEW and error:
        left, right = _bootstrap_t(parts, level, seed)
        below = max(min(below, left), FURTHEST * below)
        above = min(max(above, right), FURTHEST * above)
    return Ratio(math.exp(middle), math.exp(middle + below), math.exp(middle + above))


def _error(parts: Sequence[Floats]) -> tuple[float, float]:
    """Standard error of the sum of the parts' means, and its degrees of freedom (Welch)."""
    squares = [float(part.var(ddof=1)) / len(part) for part in parts]
    total = ordered_sum(squares)
    if total <= 1e-24:  # noqa: PLR2004 - equal but for rounding
        return 0.0, 1.0
    spread = ordered_sum(
        square**2 / (len(part) - 1) for square, part in zip(squares, parts, strict=True)
    )
    return math.sqrt(total), total**2 / spread


def _bootstrap_t(parts: Sequence[Floats], level: float, seed: int) -> tuple[float, float]:
    """How far the interval reaches below and above the estimate."""
    rng = np.random.default_rng(seed)
    shift, square = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for part in parts:
        drawn = part[rng.integers(0, len(part), (RESAMPLES, len(part)))]
        shift += drawn.mean(axis=1) - part.mean()
        square += drawn.var(axis=1, ddof=1) / len(part)
    error_of = np.sqrt(np.maximum(square, np.finfo(float).tiny))
    scores = np.clip(shift / error_of, -_FAR, _FAR)  # equal values have no spread of their own
    error, _ = _error(parts)
    left, right = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return -float(right) * error, -float(left) * error


# --- means of groups -----------------------------------------------------------------------------


def mean_interval(
    sums: Floats, weights: Floats, *, level: float = LEVEL, seed: int = 0
) -> tuple[float, float] | None:
    """The interval of a mean, of which each group contributes a sum and its weight.

    Groups are independent, what is in them is not. The same as of ratios: bootstrap-t over groups,
    at least as wide as Student's t; None with one group alone.
    """
    count = len(sums)
    if count < 2:  # noqa: PLR2004 - one value has no spread
        return None
    middle = float(sums.sum() / weights.sum())
    error = float(_group_error(sums, weights, middle))
    half = student(level, count - 1) * error
    below, above = -half, half
    if count >= FEW and error > 0:
        rng = np.random.default_rng(seed)
        drawn = rng.integers(0, count, (RESAMPLES, count))
        some, theirs = sums[drawn], weights[drawn]
        means = some.sum(axis=1) / theirs.sum(axis=1)
        errors = np.maximum(_group_error(some, theirs, means[:, None]), error / (1e3 * _FAR))
        scores = np.clip((means - middle) / errors, -_FAR, _FAR)
        left, right = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]).tolist()
        below = max(min(below, -right * error), FURTHEST * below)
        above = min(max(above, -left * error), FURTHEST * above)
    return middle + below, middle + above


def _group_error(sums: Floats, weights: Floats, means: Floats | float) -> Floats:
    """The standard error of a mean of groups, linearised; along the last axis."""
    count = sums.shape[-1]
    squares = ((sums - means * weights) ** 2).sum(axis=-1)
    scale = weights.sum(axis=-1) / count
    return np.asarray(np.sqrt(squares / (count * (count - 1))) / scale)


# --- the jobs of one run -------------------------------------------------------------------------


def jobs_interval(
    base: Floats,
    values: Floats,
    statistic: Statistic,
    *,
    level: float = LEVEL,
    drawn: Callable[[], tuple[Floats, Floats]] | None = None,
) -> Ratio:
    """The ratio of a statistic of the same jobs under two policies (circular moving blocks).

    Jobs of a busy period wait together, for hundreds of jobs if need be. So blocks are a sixth of
    all jobs, and the interval is widened by Student's factor for so few blocks (blocks of sqrt(n)
    jobs held the truth in 59 to 87 % of cases). With fewer than `LEAST_JOBS` jobs there is none.

    Args:
        base: Of the jobs under the baseline.
        values: Of the same jobs under the other policy.
        statistic: What is compared.
        level: Of the interval.
        drawn: The statistic of `base` and of `values` in all resamples, if they are at hand.
    """
    count = len(base)
    if not count:
        return Ratio()
    whole = _quotient(statistic(values[None, :]), statistic(base[None, :]))
    if not np.isfinite(whole[0]) or whole[0] <= 0:
        return Ratio()
    ratio = float(whole[0])
    if count < LEAST_JOBS:
        return Ratio(ratio)
    if np.array_equal(base, values):
        return Ratio(ratio, ratio, ratio)
    if drawn is None:
        (theirs,), (ours,) = resample(base, [statistic]), resample(values, [statistic])
    else:
        theirs, ours = drawn()
    ratios = _quotient(ours, theirs)
    usable = ratios[np.isfinite(ratios) & (ratios > 0)]
    if len(usable) < len(ratios) // 2:
        return Ratio(ratio)
    low, high = np.quantile(np.log(usable), [(1 - level) / 2, (1 + level) / 2]).tolist()
    wider = _wider(level)
    middle = math.log(ratio)
    return Ratio(
        ratio,
        math.exp(middle + wider * min(low - middle, 0.0)),
        math.exp(middle + wider * max(high - middle, 0.0)),
    )


def jobs_spread(
    values: Floats, statistic: Statistic, *, level: float = LEVEL
) -> tuple[float, float] | None:
    """The interval of a statistic of the jobs of one run: what another such log might give.

    Resampled in blocks and widened as by `jobs_interval`; None with fewer than `LEAST_JOBS` jobs.
    """
    return jobs_spreads(values, [statistic], level=level)[0]


def jobs_spreads(
    values: Floats,
    statistics: Sequence[Statistic],
    *,
    level: float = LEVEL,
    most: int = _MOST_DRAWN,
) -> list[tuple[float, float] | None]:
    """The same of several statistics, from the same resamples; `most` values are drawn, about."""
    if len(values) < LEAST_JOBS:
        return [None] * len(statistics)
    found: list[tuple[float, float] | None] = []
    wider = _wider(level)
    all_drawn = resample(values, statistics, most=most)
    for statistic, drawn in zip(statistics, all_drawn, strict=True):
        middle = float(statistic(values[None, :])[0])
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]).tolist()
        below, above = min(low - middle, 0.0), max(high - middle, 0.0)
        found.append((middle + wider * below, middle + wider * above))
    return found


def _wider(level: float) -> float:
    """By how much an interval from a few blocks is widened."""
    wider = student(level, BLOCKS - 1) / student(level, _MOST_FREEDOM)
    return wider * math.sqrt(BLOCKS / (BLOCKS - 1))  # a resample of few varies less than they do


def resample(
    values: Floats, statistics: Sequence[Statistic], *, seed: int = 0, most: int = _MOST_DRAWN
) -> list[Floats]:
    """Statistics of jobs that are drawn in blocks of neighbours; a number per resample for each.

    The draws depend on the number of jobs and on the seed only: those of two policies are paired.
    """
    rng = np.random.default_rng(seed)
    count = len(values)
    length = count // BLOCKS
    blocks = -(-count // length)
    from_each = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([values, values[:length]]), length
    )
    found: list[list[Floats]] = [[] for _ in statistics]
    left = max(200, min(RESAMPLES, most // count))
    while left:
        now = min(left, max(1, _AT_ONCE // count))
        starts = rng.integers(0, count, (now, blocks, 1))[:, :, 0]
        jobs = np.ascontiguousarray(from_each[starts].reshape(now, -1)[:, :count])
        for one, numbers in zip(found, _of_rows(jobs, statistics), strict=True):
            one.append(numbers)
        left -= now
    return [np.concatenate(one) for one in found]


def _of_rows(jobs: Floats, statistics: Sequence[Statistic]) -> list[Floats]:
    """All percentiles with one partition of each row, which is what takes long."""
    rows: dict[Statistic, Floats] = {
        one: one(jobs) for one in statistics if not isinstance(one, Percentile)
    }
    percentiles = [one for one in statistics if isinstance(one, Percentile)]
    if percentiles:
        shares = [one.q for one in percentiles]
        cut = np.percentile(jobs, shares, axis=1, overwrite_input=True)
        rows |= dict(zip(percentiles, cut, strict=True))
    return [rows[one] for one in statistics]


def _quotient(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)


# --- Student's t ---------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def student(level: float, freedom: float) -> float:
    """The t of which a share `level` of the distribution is between -t and t.

    With t = sqrt(f) tan(a) the density becomes cos(a)^(f - 1), which is integrated on a grid.
    """
    freedom = min(freedom, _MOST_FREEDOM)
    angles = np.linspace(0.0, math.pi / 2, _GRID)
    density = np.maximum(np.cos(angles), 0.0) ** (freedom - 1)
    area = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp(level * area[-1], area, angles))
    return math.sqrt(freedom) * math.tan(angle)
