"""What policies are compared by, and what may be said about it.

Numbers come from the summaries of runs. A replication is a pair (seed, window): all policies meet
the same jobs and the same fate in it, so that they are compared replication by replication. What
counts as independent are *units*: the windows of a trace (runs of one window under several seeds
are averaged first), else the seeds.

A ratio is the geometric mean of the ratios of the units. A measure that is 0 somewhere, under any
policy, has no such ratio: then it is the ratio of the means for *all* policies, without an interval
and without a verdict, so that the rows of a measure can be read side by side.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, geometric_mean
from typing import Any

import msgspec
import numpy as np

from rota.core.eventlog import Floats
from rota.metrics.vocabulary import MEASURES, Measure
from rota.study.compare_file import Measured, Verdict
from rota.study.statistics import (
    LEAST_JOBS,
    Percentile,
    Ratio,
    Statistic,
    jobs_interval,
    ratio_interval,
    resample,
)


def _mean(jobs: Floats) -> Floats:
    return np.asarray(jobs.mean(axis=1))


OF_JOBS: Mapping[str, tuple[str, Statistic]] = {
    "avg_jct_s": ("jct_s", _mean),
    "p50_jct_s": ("jct_s", Percentile(50)),
    "p95_jct_s": ("jct_s", Percentile(95)),
    "p99_jct_s": ("jct_s", Percentile(99)),
    "avg_wait_s": ("wait_s", _mean),
    "p50_wait_s": ("wait_s", Percentile(50)),
    "p95_wait_s": ("wait_s", Percentile(95)),
    "avg_bounded_slowdown": ("slowdown", _mean),
    "p99_bounded_slowdown": ("slowdown", Percentile(99)),
    "avg_rho": ("rho", _mean),
    "p99_rho": ("rho", Percentile(99)),
}
"""Measures that are a statistic of single jobs: of which column, and how."""

Jobs = Mapping[str, Floats]
"""Columns by name, a value per job of the trace; NaN for jobs that do not count."""


class Arm(msgspec.Struct, frozen=True):
    """One policy: the summaries of its runs, a unit for each of them, and the jobs of the first.

    `drawn`: by measure, what `draw` gives for its jobs; empty: it is made when it is needed.
    """

    summaries: Sequence[Mapping[str, Any]]
    units: Sequence[int]
    jobs: Jobs
    drawn: dict[str, Floats] = {}

    def drawn_of(self, key: str) -> Floats:
        """A measure of the jobs in all resamples."""
        if key not in self.drawn:
            self.drawn.update(draw(self.jobs))
        return self.drawn[key]


def draw(jobs: Jobs) -> dict[str, Floats]:
    """Measures of jobs in all resamples (see `statistics.resample`); empty if there are few."""
    found: dict[str, Floats] = {}
    for column in dict.fromkeys(column for column, _ in OF_JOBS.values()):
        values = jobs[column][np.isfinite(jobs[column])]
        if len(values) >= LEAST_JOBS:
            own = {key: statistic for key, (of, statistic) in OF_JOBS.items() if of == column}
            found |= dict(zip(own, resample(values, [*own.values()]), strict=True))
    return found


def measure_all(base: Arm, arm: Arm, arms: Iterable[Arm] = ()) -> dict[str, Measured]:
    """Every measure of a policy against the baseline (which may be the policy itself).

    Args:
        base: The baseline.
        arm: The policy.
        arms: All policies that stand side by side: one rule for the ratios of all of them.
    """
    together = [base, arm, *arms]
    if _nothing_changes(base, arm):
        alone = arm is base
        base = _once(base)
        arm = base if alone else _once(arm)
    return {
        measure.key: measured(measure, base, arm, of_means=_is_zero(measure.key, together))
        for measure in MEASURES
    }


def _nothing_changes(base: Arm, arm: Arm) -> bool:
    """All replications gave both policies the same numbers: it was one run, made several times."""
    pairs = {
        tuple(summary.get(measure.key) for summary in both for measure in MEASURES)
        for both in zip(base.summaries, arm.summaries, strict=True)
    }
    return len(pairs) == 1


def _once(arm: Arm) -> Arm:
    return Arm(arm.summaries[:1], arm.units[:1], arm.jobs, arm.drawn)


def _is_zero(key: str, arms: Iterable[Arm]) -> bool:
    """Is it 0 in some run?"""
    values = (summary.get(key) for arm in arms for summary in arm.summaries)
    return any(value is not None and value <= 0 for value in values)


def measured(measure: Measure, base: Arm, arm: Arm, *, of_means: bool = False) -> Measured:
    """One measure of a policy against the baseline; of the baseline itself there is no verdict."""
    key = measure.key
    mean = mean_of([summary.get(key) for summary in arm.summaries])
    ours, theirs = _by_unit(key, base, arm)
    if of_means and len(ours) > 1:
        plain = fmean(ours) / fmean(theirs) if fmean(theirs) > 0 else None
        return Measured(mean, plain, of_means=plain is not None)
    found = ratio_interval(theirs, ours)
    verdict = None if arm is base else judge(found, measure)
    if found.low is None and found.ratio is not None and key in OF_JOBS:
        found = _over_jobs(key, base, arm, found.ratio)  # proves nothing: no verdict
    return Measured(mean, found.ratio, found.low, found.high, verdict)


def judge(found: Ratio, measure: Measure) -> Verdict | None:
    """Better or worse only if the interval excludes 1."""
    if found.low is None or found.high is None or measure.better is None:
        return None
    if found.low <= 1 <= found.high:
        return "unclear"
    return "better" if (found.high < 1) == (measure.better == "less") else "worse"


def mean_of(values: Sequence[float | None]) -> float | None:
    """Of those that exist."""
    known = [float(value) for value in values if value is not None]
    return fmean(known) if known else None


def _by_unit(key: str, base: Arm, arm: Arm) -> tuple[list[float], list[float]]:
    """A number per unit of the policy and of the baseline, of replications that both have."""
    found: dict[int, tuple[list[float], list[float]]] = {}
    for mine, other, unit in zip(arm.summaries, base.summaries, arm.units, strict=True):
        ours, theirs = mine.get(key), other.get(key)
        if ours is not None and theirs is not None:
            pair = found.setdefault(unit, ([], []))
            pair[0].append(float(ours))
            pair[1].append(float(theirs))
    pairs = list(found.values())
    positive = all(min(ours + theirs) > 0 for ours, theirs in pairs)
    several = any(len(ours) > 1 for ours, _ in pairs)
    middle = geometric_mean if positive and several else fmean
    return [middle(ours) for ours, _ in pairs], [middle(theirs) for _, theirs in pairs]


def _over_jobs(key: str, base: Arm, arm: Arm, ratio: float) -> Ratio:
    """Of one run; no interval when other jobs count than under the baseline."""
    column, statistic = OF_JOBS[key]
    theirs, ours = base.jobs[column], arm.jobs[column]
    counts = np.isfinite(theirs)
    if not np.array_equal(counts, np.isfinite(ours)):
        return Ratio(ratio)
    found = jobs_interval(
        theirs[counts],
        ours[counts],
        statistic,
        drawn=lambda: (base.drawn_of(key), arm.drawn_of(key)),
    )
    return Ratio(ratio, found.low, found.high)
