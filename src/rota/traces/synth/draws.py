"""Random sizes, durations and arrivals: each draws from a stream of its own.

A stream depends on the seed and on its name only, so that asking for users, say, changes neither
the durations nor the arrivals of a workload with the same seed.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

# Quantiles of the durations of the derived Philly csv (82,247 jobs), measured on it.
_PHILLY_SHARES = (
    0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999,
    1.0,
)  # fmt: skip
_PHILLY_DURATIONS_S = (
    1, 17, 48, 61, 75, 209, 599, 1_144, 1_821, 2_549, 4_244, 11_265, 43_646, 147_809, 254_758,
    430_369, 1_186_277, 4_628_226,
)  # fmt: skip

PHILLY_SIZES: Mapping[int, float] = {
    1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3,
}  # fmt: skip
"""Jobs by number of GPUs in the derived Philly csv."""

GAVEL_SIZES: Mapping[int, float] = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
"""Gavel's mix of sizes for multi-GPU workloads."""


def stream(seed: int, name: str) -> np.random.Generator:
    """The named stream of a seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(crc32(name.encode()),)))


# --- durations -----------------------------------------------------------------------------------


def exponential_s(rng: np.random.Generator, count: int, mean_s: float) -> Floats:
    """Memoryless durations."""
    return rng.exponential(mean_s, count)


def gavel_s(rng: np.random.Generator, count: int) -> Floats:
    """60 * 10^U(1.5, 3) seconds with probability 0.8, else 60 * 10^U(3, 4)."""
    short = rng.random(count) < 0.8  # noqa: PLR2004 - the number of the definition above
    exponents = np.where(short, rng.uniform(1.5, 3.0, count), rng.uniform(3.0, 4.0, count))
    return np.asarray(60.0 * 10.0**exponents)


def philly_s(rng: np.random.Generator, count: int) -> Floats:
    """Heavy-tailed as Philly: its measured quantiles, joined by straight lines in log(duration)."""
    logs = np.interp(rng.random(count), _PHILLY_SHARES, np.log(_PHILLY_DURATIONS_S))
    return np.asarray(np.exp(logs))


# --- sizes and names -----------------------------------------------------------------------------


def sizes(rng: np.random.Generator, count: int, mix: Mapping[int, float]) -> NDArray[np.int64]:
    """Numbers of GPUs with these weights."""
    weights = np.fromiter(mix.values(), float)
    return rng.choice(np.fromiter(mix, np.int64), count, p=weights / weights.sum())


def ranked(rng: np.random.Generator, count: int, choices: int) -> NDArray[np.int64]:
    """Numbers below `choices`; k is drawn in proportion to 1 / (k + 1): some are busier."""
    weights = 1.0 / np.arange(1, choices + 1)
    return rng.choice(choices, count, p=weights / weights.sum())


# --- who comes when ------------------------------------------------------------------------------

_MOST_WINDOWS, _PER_WINDOW = 20, 25


def evenly(
    rng: np.random.Generator, work: Floats, submits_s: Floats, *, by_time: bool
) -> NDArray[np.int64]:
    """An order of jobs in which every window of the arrivals gets its share of the work.

    The jobs with most work are dealt out first, each to the window that lacks most; within a window
    the order is random.

    Args:
        rng: Where chance comes from.
        work: Of each job.
        submits_s: Sorted times, one per job.
        by_time: The share of a window is its length; else its number of jobs.
    """
    count = work.size
    windows = min(_MOST_WINDOWS, count // _PER_WINDOW)
    if windows < 2:  # noqa: PLR2004 - nothing to balance
        return np.arange(count)
    if by_time:
        which = np.minimum((submits_s / submits_s[-1] * windows).astype(int), windows - 1)
        shares = np.full(windows, 1 / windows)
    else:
        which = np.arange(count) * windows // count
        shares = np.bincount(which, minlength=windows) / count
    slots = np.bincount(which, minlength=windows)
    ranks = rng.permutation(windows).tolist()  # of windows that lack the same
    lacking = [
        (-float(share * work.sum()), ranks[k], k) for k, share in enumerate(shares) if slots[k]
    ]
    heapify(lacking)
    chosen: list[list[int]] = [[] for _ in range(windows)]
    for job in np.argsort(-work, kind="stable").tolist():
        lack, rank, window = lacking[0]
        chosen[window].append(job)
        if len(chosen[window]) < slots[window]:
            heapreplace(lacking, (lack + float(work[job]), rank, window))
        else:
            heappop(lacking)
    return np.concatenate([rng.permutation(np.array(some, np.int64)) for some in chosen])


# --- arrivals: times in [0, span_s], not sorted --------------------------------------------------


def steady_s(rng: np.random.Generator, count: int, span_s: float) -> Floats:
    """A Poisson process, given how many jobs arrive: independent uniform times."""
    return rng.uniform(0.0, span_s, count)


def diurnal_s(
    rng: np.random.Generator, count: int, span_s: float, *, swing: float, period_s: float
) -> Floats:
    """A Poisson process whose rate is 1 + swing * sin(2 pi t / period), by thinning."""
    kept = np.empty(0)
    while kept.size < count:
        times_s = rng.uniform(0.0, span_s, 2 * count)
        rates = 1.0 + swing * np.sin(2.0 * np.pi * times_s / period_s)
        kept = np.concatenate([kept, times_s[rng.random(times_s.size) * (1.0 + swing) < rates]])
    return kept[:count]


def bursts_s(
    rng: np.random.Generator, count: int, span_s: float, *, on_s: float, off_s: float, ratio: float
) -> Floats:
    """A Poisson process with two rates: `ratio` times as many arrivals per second while it is on.

    Phases alternate, on first; their lengths are exponential with means `on_s` and `off_s`.
    """
    edges_s = [0.0]
    while edges_s[-1] < span_s:
        mean_s = on_s if len(edges_s) % 2 else off_s
        edges_s.append(edges_s[-1] + float(rng.exponential(mean_s)))
    edges_s[-1] = span_s
    lengths_s = np.diff(edges_s)
    rates = np.where(np.arange(lengths_s.size) % 2 == 0, ratio, 1.0)
    expected = np.concatenate([[0.0], np.cumsum(lengths_s * rates)])
    return np.asarray(np.interp(rng.uniform(0.0, expected[-1], count), expected, edges_s))
