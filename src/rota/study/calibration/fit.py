"""From measured seconds to costs: means, with intervals from resampled jobs.

Times of one job resemble each other, so the bootstrap (bootstrap-t) draws whole jobs, not single
times. The mean
is fitted, not the median: what a cost adds to completion times adds up.

No start is like the other, and a schedule can depend on who was a little faster. So simulations for
intervals (`Drawn`) take every single cost from those that were measured.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from rota.core.allocation import Allocation
from rota.core.eventlog import Floats
from rota.core.jobs import STARTING, Job
from rota.core.ports import TransitionCost
from rota.models.costs import Custom, FixedParams, starts_first
from rota.study.calibration.samples import ObservedCosts, Timings
from rota.study.statistics import mean_interval

FEW = 5
"""With fewer samples a number is not to be trusted."""
DRAWS = 2_000
COSTS = ("first", "again", "stop", "abort", "lost")
INSTEAD = {"first": "again", "again": "first", "abort": "stop"}
"""What stands for a cost that was never seen."""
MISSING = {
    "first": "every first start was broken off: taken as a restart",
    "again": "no job was started again: taken as the first start",
    "stop": "no job was stopped: taken as free",
    "abort": "no job was stopped while it was started: taken as a stop",
    "lost": "cannot be seen: no job that was stopped reported its steps",
    "rate": "no job had a declared duration: taken as declared",
}


class Estimate(msgspec.Struct, frozen=True):
    """A fitted number; `low` and `high` are its 95 % interval (None: one job has none)."""

    value: float
    low: float | None
    high: float | None
    samples: int
    jobs: int
    median: float
    p95: float
    note: str = ""

    @property
    def trusted(self) -> bool:
        """Enough was seen."""
        return self.samples >= FEW


class Drawn(Custom):
    """Every start and stop costs what one of those that were seen did."""

    name = "drawn"
    source = "drawn from a log"

    def __init__(self, seen: Mapping[str, Floats], rng: np.random.Generator) -> None:
        super().__init__()
        self._seen = seen
        self._rng = rng
        self.free = not any(values.any() for values in seen.values())
        self.instant_stop = not (seen["stop"].any() or seen["abort"].any())

    def _one(self, name: str) -> float:
        return float(self._rng.choice(self._seen[name]))

    def start(self, job: Job, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """The first start is drawn from first starts."""
        return TransitionCost(start_s=self._one("first" if starts_first(job) else "again"))

    def stop(self, job: Job) -> TransitionCost:
        """Time and work, each drawn; a job that is being started has nothing to lose."""
        if job.phase == STARTING:
            return TransitionCost(stop_s=self._one("abort"))
        return TransitionCost(stop_s=self._one("stop"), lost_work=self._one("lost"))

    def move(self, job: Job, old: Allocation, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """A stop, and a start that is not the first."""
        stop = self.stop(job)
        return TransitionCost(stop.stop_s, self._one("again"), stop.lost_work)


class CostFit(msgspec.Struct, frozen=True):
    """Everything that was fitted. `seen` holds the samples, `means` draws of their means."""

    first: Estimate
    again: Estimate
    stop: Estimate
    abort: Estimate
    lost: Estimate
    rate: Estimate  # observed / declared duration
    rate_cv: float
    rate_shares: Any  # of each ratio in all that was declared
    seen: Mapping[str, Any]
    means: Mapping[str, Any]

    def params(self) -> FixedParams:
        """Of the cost model with the fitted means."""
        return FixedParams(
            start_s=max(0.0, self.again.value),
            first_s=max(0.0, self.first.value),
            stop_s=max(0.0, self.stop.value),
            abort_s=max(0.0, self.abort.value) if self.abort.samples else None,
            lost_work_s=max(0.0, self.lost.value),
        )

    def factors(self, count: int, rng: np.random.Generator) -> Any:
        """Ratios of observed to declared durations for other jobs.

        Long jobs are drawn more often: what a short job needs beside its work is large compared
        with it, and says nothing about long ones. The jobs that were seen are weighed at random
        before: others might have been seen.
        """
        shares = self.rate_shares * rng.exponential(1.0, len(self.rate_shares))
        return rng.choice(self.seen["rate"], count, p=shares / shares.sum())

    def costs(self) -> Custom:
        """The cost model with the fitted means."""
        return Custom(self.params())

    def drawn(self, number: int, seed: int) -> Drawn:
        """A cost model as it may really be: other means, and noise around them.

        Lost work is measured too roughly (reports come once a second) to tell its noise from that
        of the measurement: only its mean is drawn.
        """
        means = {name: max(0.0, float(self.means[name][number % DRAWS])) for name in COSTS}
        scaled = {"lost": np.array([means["lost"]])}
        for name in COSTS[:-1]:
            values, mean = self.seen[name], self.seen[name].mean()
            scaled[name] = values * (means[name] / mean if mean else 0.0)
        return Drawn(scaled, np.random.default_rng([seed, number]))

    @property
    def named(self) -> dict[str, Estimate]:
        """By what they are called in reports."""
        return {
            "first start": self.first,
            "restart": self.again,
            "stop": self.stop,
            "stop while starting": self.abort,
            "lost work per stop": self.lost,
            "observed / declared duration": self.rate,
        }


def fit(observed: ObservedCosts, ratios: Timings, seed: int) -> CostFit:
    """Fit what was observed; `ratios`: observed by declared durations."""
    rng = np.random.default_rng(seed)
    samples = {
        "first": observed.first,
        "again": observed.again,
        "stop": observed.stop,
        "abort": observed.abort,
        "lost": observed.lost,
        "rate": ratios,
    }
    estimates, means, seen = {}, {}, {}
    for name, timings in samples.items():
        empty = 1.0 if name == "rate" else 0.0
        estimates[name], means[name] = _estimate(timings, rng, MISSING[name], empty=empty)
        seen[name] = timings.seconds if len(timings) else np.array([empty])
    for name, other in INSTEAD.items():
        if not len(samples[name]) and (len(samples[other]) or name == "abort"):
            estimates[name] = msgspec.structs.replace(
                estimates[other], samples=0, jobs=0, note=MISSING[name]
            )
            means[name], seen[name] = means[other], seen[other]
    weights = ratios.weights if len(ratios) else np.ones(1)
    shares = weights / weights.sum()
    variance = float((shares * (seen["rate"] - estimates["rate"].value) ** 2).sum())
    cv = variance**0.5 / estimates["rate"].value
    return CostFit(**estimates, rate_cv=cv, rate_shares=shares, seen=seen, means=means)


def _estimate(
    timings: Timings, rng: np.random.Generator, missing: str, *, empty: float = 0.0
) -> tuple[Estimate, Floats]:
    """The mean with its interval, and its draws."""
    if not len(timings):
        nothing = Estimate(empty, None, None, 0, 0, empty, empty, missing)
        return nothing, np.full(DRAWS, empty)
    values = timings.seconds
    _, slot = np.unique(timings.job, return_inverse=True)
    draws = resampled_means(values, timings.weights, slot, rng)
    sums, weights = (
        np.bincount(slot, weights=each).astype(np.float64)
        for each in (values * timings.weights, timings.weights)
    )
    found = mean_interval(sums, weights, seed=int(rng.integers(2**31)))
    low, high = found if found is not None else (None, None)
    note = "" if len(values) >= FEW else f"only {len(values)} seen: do not rely on it"
    estimate = Estimate(
        value=float(np.average(values, weights=timings.weights)),
        low=low,
        high=high,
        samples=len(values),
        jobs=int(slot.max()) + 1,
        median=float(np.median(values)),
        p95=float(np.percentile(values, 95)),
        note=note,
    )
    return estimate, draws


def resampled_means(
    values: Floats, weights: Floats, group: Any, rng: np.random.Generator
) -> Floats:
    """Means of the values of groups drawn with replacement."""
    sums = np.bincount(group, weights=values * weights)
    counts = np.bincount(group, weights=weights)
    means = np.empty(DRAWS)
    for number in range(DRAWS):  # one at a time: a matrix of all would be large
        drawn = rng.integers(0, len(sums), len(sums))
        means[number] = sums[drawn].sum() / counts[drawn].sum()
    return means
