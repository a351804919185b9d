"""How wrong predictions of run times are, and how wrong any prediction has to be.

*Errors.* With a run time t and a prediction p the factor of an error is max(p/t, t/p), and its log
error is log(p/t). Order is what schedulers need that serve short jobs first: Spearman's rank
correlation of p and t. Intervals (95 %) come from resampling jobs in blocks of neighbours, as those
of all commands: jobs of one user and one week go wrong together. There is none with fewer than 200
jobs.

*What nobody can avoid.* Repeats are jobs with the same user, name, model and GPUs. Whoever knows
no more than that errs by how much repeats differ. Two ways to measure it, both right if repeats are
independent of each other (for logarithms that are normal: all numbers; else: the log error):

- *around the centre of their kind*, enlarged by sqrt(n / (n - 1)) for n repeats, because a centre
  of few is drawn towards each of them;
- *from one repeat to the next*, divided by sqrt(2). Where run times drift, or come in bursts, this
  is less: it is what is left for somebody who follows them.

The better of the two is what is reported, number by number. The rank correlation is that of two
normal variables of which the one explains 1 - (log error)^2 / variance of the other. With fewer
than 30 repeats (beyond the first of each kind) nothing is said. Who knows more, such as an estimate
of the user, may do better.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from rota.core.eventlog import Floats
from rota.study.statistics import Statistic, jobs_spreads

ENOUGH_REPEATS = 30
TWICE = math.log(2.0)
DRAWN = 2_000_000  # values of jobs that are drawn for intervals, about
FACTORS = tuple(round(1.25**step, 4) for step in range(25))
"""Of the curve: how many predictions are wrong by at most that."""

Rows = NDArray[np.intp]


class Uncertain(msgspec.Struct, frozen=True):
    """A number and its interval; None: there is none."""

    value: float
    low: float | None = None
    high: float | None = None


class PredictorErrors(msgspec.Struct, frozen=True, kw_only=True):
    """How wrong a predictor is about a group of jobs, of which it foresaw `jobs`."""

    predictor: str
    jobs: int
    median_factor: Uncertain
    mean_factor: Uncertain
    log_error: Uncertain  # root of the mean square
    bias_factor: Uncertain  # geometric mean of p/t: above 1, it expects too much
    within_2: Uncertain  # share that is wrong by a factor of 2 at most
    spearman: Uncertain | None  # None: all run times, or all predictions, are equal


class IrreducibleError(msgspec.Struct, frozen=True, kw_only=True):
    """What is left for whoever knows user, name, model and GPUs; `why_not`: it is not known."""

    jobs: int  # that have a repeat
    kinds: int
    share: float  # of all jobs
    why_not: str = ""
    log_error: Uncertain | None = None
    median_factor: Uncertain | None = None
    mean_factor: Uncertain | None = None
    within_2: Uncertain | None = None
    spearman: Uncertain | None = None
    explained: float | None = None  # share of the variance of log run times


def errors_of(predictor: str, predicted: Floats, true: Floats) -> PredictorErrors:
    """Of jobs in the order of their submissions; a prediction that is nan counts for nothing."""
    known = np.flatnonzero(np.isfinite(predicted))
    off = np.log(predicted[known] / true[known])
    size = np.abs(off)
    factor = np.exp(size)
    ranks = [_ranks(values[known]) for values in (predicted, true)]
    statistics: list[Statistic] = [
        lambda rows: np.exp(np.median(size[_at(rows)], axis=1)),
        lambda rows: factor[_at(rows)].mean(axis=1),
        lambda rows: np.sqrt((off[_at(rows)] ** 2).mean(axis=1)),
        lambda rows: np.exp(off[_at(rows)].mean(axis=1)),
        lambda rows: (size[_at(rows)] <= TWICE).mean(axis=1),
    ]
    ordered = len(known) > 1 and all(len(np.unique(one)) > 1 for one in ranks)
    if ordered:
        statistics.append(lambda rows: _correlation(ranks[0][_at(rows)], ranks[1][_at(rows)]))
    median, mean, square, bias, twice, *rank = _measured(len(known), statistics)
    return PredictorErrors(
        predictor=predictor, jobs=len(known), median_factor=_within(median, 1.0),
        mean_factor=_within(mean, 1.0), log_error=_within(square, 0.0),
        bias_factor=_within(bias, 0.0), within_2=_within(twice, 0.0, 1.0),
        spearman=_within(rank[0], -1.0, 1.0) if rank else None,
    )  # fmt: skip


def curve_of(predicted: Floats, true: Floats) -> list[float]:
    """The share of predictions that are wrong by at most each of `FACTORS`."""
    known = np.isfinite(predicted)
    return _curve(np.abs(np.log(predicted[known] / true[known])))


def _curve(size: Floats) -> list[float]:
    return [float((size <= math.log(one) + 1e-12).mean()) for one in FACTORS] if len(size) else []


# --- what nobody can avoid ------------------------------------------------------------------------


class Repeats:
    """How much repeats differ."""

    def __init__(self, true: Floats, kinds: Sequence[int]) -> None:
        """Take the run times of all jobs by submission, and the number of each one's kind."""
        of = np.asarray(kinds, dtype=np.intp)
        counts = np.bincount(of)
        self.has_repeat: NDArray[np.bool_] = counts[of] > 1
        logs, of = np.log(true)[self.has_repeat], of[self.has_repeat]
        self.kinds = int((counts > 1).sum())
        self._freedom = len(logs) - self.kinds
        self._total = float(logs.var(ddof=1)) if self._freedom else 0.0
        wider = np.sqrt(counts[of] / (counts[of] - 1))
        sums = np.bincount(of, weights=logs, minlength=len(counts))
        self._from_mean: Floats = wider * (logs - sums[of] / counts[of])
        self._from_median: Floats = wider * (logs - _medians(logs, of))
        self._steps = _steps(logs, of)

    def measure(self) -> IrreducibleError:
        """The numbers, or why they are not known."""
        jobs = int(self.has_repeat.sum())
        share = jobs / len(self.has_repeat)
        if self._freedom < ENOUGH_REPEATS:
            why = (
                f"only {self._freedom} jobs repeat an earlier one (same user, name, model and "
                f"GPUs), {ENOUGH_REPEATS} are needed"
            )
            return IrreducibleError(jobs=jobs, kinds=self.kinds, share=share, why_not=why)
        around, steps = _spreads(self._from_median), _spreads(self._steps)
        square = min(_spreads(self._from_mean)[2], steps[2], key=_value)
        return IrreducibleError(
            jobs=jobs,
            kinds=self.kinds,
            share=share,
            log_error=_within(square, 0.0),
            median_factor=_within(min(around[0], steps[0], key=_value), 1.0),
            mean_factor=_within(min(around[1], steps[1], key=_value), 1.0),
            within_2=_within(max(around[3], steps[3], key=_value), 0.0, 1.0),
            spearman=self._ranks(square),
            explained=max(0.0, 1.0 - square.value**2 / self._total) if self._total else None,
        )

    def curve(self) -> list[float]:
        """The share that is wrong by at most each of `FACTORS`; none if it is not known."""
        if self._freedom < ENOUGH_REPEATS:
            return []
        both = _curve(np.abs(self._from_median)), _curve(np.abs(self._steps))
        return [max(pair) for pair in zip(*both, strict=True)]

    def _ranks(self, square: Uncertain) -> Uncertain | None:
        """Spearman's correlation that is left; a smaller error leaves a larger one."""
        value = self._rank(square.value)
        if value is None:
            return None
        low, high = (None if end is None else self._rank(end) for end in (square.high, square.low))
        return Uncertain(value, low, high)

    def _rank(self, error: float) -> float | None:
        if not self._total:
            return None
        pearson = math.sqrt(max(0.0, 1.0 - max(error, 0.0) ** 2 / self._total))
        return 6 / math.pi * math.asin(pearson / 2)


def _value(found: Uncertain) -> float:
    return found.value


def _medians(values: Floats, kinds: Rows) -> Floats:
    """Of the kind of each value."""
    table = pl.DataFrame({"kind": kinds, "value": values})
    found: Floats = table.select(pl.col("value").median().over("kind"))["value"].to_numpy()
    return found


def _steps(values: Floats, kinds: Rows) -> Floats:
    """From the value before of the same kind to each, over sqrt(2); in the order of the values."""
    table = pl.DataFrame({"kind": kinds, "value": values})
    steps = table.select(pl.col("value").diff().over("kind"))["value"].drop_nulls()
    found: Floats = steps.to_numpy() / math.sqrt(2)
    return found


def _spreads(off: Floats) -> list[Uncertain]:
    """Of deviations: median and mean factor, log error, share within a factor of 2."""
    size = np.abs(off)
    factor = np.exp(size)
    return _measured(
        len(size),
        [
            lambda rows: np.exp(np.median(size[_at(rows)], axis=1)),
            lambda rows: factor[_at(rows)].mean(axis=1),
            lambda rows: np.sqrt((off[_at(rows)] ** 2).mean(axis=1)),
            lambda rows: (size[_at(rows)] <= TWICE).mean(axis=1),
        ],
    )


# --- statistics -----------------------------------------------------------------------------------


def _measured(count: int, statistics: Sequence[Statistic]) -> list[Uncertain]:
    """Each statistic of so many rows, with its interval."""
    rows = cast("Floats", np.arange(count))  # of places, which are drawn as values are
    values = [float(statistic(rows[None, :])[0]) for statistic in statistics]
    spreads = jobs_spreads(rows, statistics, most=DRAWN)
    return [
        Uncertain(value, *(spread or (None, None)))
        for value, spread in zip(values, spreads, strict=True)
    ]


def _at(rows: Floats) -> Rows:
    return cast("Any", rows)  # type: ignore[no-any-return]  # made by `_measured`


def _within(found: Uncertain, least: float, most: float = math.inf) -> Uncertain:
    """No interval reaches beyond what is possible."""
    low = None if found.low is None else max(found.low, least)
    high = None if found.high is None else min(found.high, most)
    return Uncertain(found.value, low, high)


def _ranks(values: Floats) -> Floats:
    ranks: Floats = pl.Series(values).rank("average").to_numpy().astype(np.float64)
    return ranks


def _correlation(one: Floats, other: Floats) -> Floats:
    """Of each row; 0 where all values are equal."""
    one = one - one.mean(axis=1, keepdims=True)
    other = other - other.mean(axis=1, keepdims=True)
    spread = np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1))
    product = (one * other).sum(axis=1)
    found: Floats = np.divide(product, spread, out=np.zeros_like(product), where=spread > 0)
    return found
