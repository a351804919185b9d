"""How long jobs will run, learnt from those that are over and those that still run.

Everything is in logarithms of seconds. A job of which somebody said how long it takes (its owner,
or the oracle of its policy) is foreseen from jobs of which somebody did; any other from all jobs.

*What was said* is neither believed nor scaled by a ratio alone. Users may err in their estimates
(the run time is the estimate times some noise), or estimates may be made from the truth (the
estimate is the run time times some noise; then a long estimate is more often too long than a short
one), or be round numbers, or limits. So the run time is regressed on what was said, and a job takes
the run time of another one (a donor), moved along that line from what was said of the donor to what
was said of it. Donors of which something similar was said may count more: how near they have to be
is chosen by how probable each job's run time is, foreseen from all others (leave one out). If no
job has ever run longer than was said, none will.

*Jobs that still run* have run times that are longer than what they have run so far. They are filled
in (data augmentation): first with their means under a normal distribution, in each simulation with
draws. A job that has run for a while only gets run times that are longer.

*Few jobs teach little.* Every simulation weighs the jobs at random (the Bayesian bootstrap) and
fits the line anew, so the draws differ by as much as is not known. Beside the jobs that were seen,
some count that were not (`STRANGERS`, together as much as `DOUBT` jobs; a Dirichlet process): they
come from a wide t distribution, and make up for the tail that few jobs do not show. Without any
history they are all there is, and answers are wide.
"""

from collections.abc import Callable, Sequence
from math import ceil, erfc, exp, inf, lgamma, log, pi, sqrt
from typing import Any

import numpy as np

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.words import duration
from rota.engine.loop import Engine

MEMORY = 1_000  # jobs that are over, the latest, from which is learnt
CROWD = 500  # jobs that run; if more do, every second (third, ...) of all jobs counts
COMPARED = 400  # of them, the latest, by which the reach of donors is chosen
ENOUGH = 3  # jobs that are over, from which something can be learnt
ENOUGH_FOR_MORE = 10  # from which nearness or a cap can be learnt
DOUBT = 3.0
STRANGERS = 20
FREEDOM = 6.0  # of the t distribution of strangers
STEADY = 0.5  # how firmly run times are held to be in proportion to estimates (ridge)
REACHES = (inf, 1.0, 0.5, 0.25, 0.1)  # of donors, in standard deviations of what was said
SMOOTH = 0.35  # width of the kernel by which reaches are compared, in standard deviations
GUESS_S = 3600.0  # the middle of what is expected where nothing is known at all
GUESS_SPREAD = 2.0  # and its spread in logarithms; 80 % between 3 min and 18 h
TOLD_SPREAD = 1.0  # the same of run time / what was said; 80 % between a fourth and four times
_PRIOR_JOBS, _PRIOR_FREEDOM = 0.3, 2.0  # how many jobs these guesses count for
_AT_ONCE = 1_000_000
_ROUNDS, _FILLINGS = 12, 3
_NO_SPREAD = 1e-9

Said = Callable[[Job], float]
"""How long a job was said to run in all; inf: unknown."""

Numbers = Any
"""An array of float64."""

Line = tuple[float, float, float]
"""Of length - told: its height at the centre, its slope, the centre."""


def estimated(job: Job) -> float:
    """What its owner said."""
    return job.spec.estimate_s


def believed(job: Job) -> float:
    """What an oracle says."""
    return job.true_work * job.belief


def progress(job: Job, now_s: float) -> float:
    """How much of a job is done, in the unit of its length: work, or seconds on a real cluster."""
    if job.true_work < INF:
        return job.true_work - job.left_at(now_s)
    return job.executed_s(now_s)


class Past:
    """Run times, with what was said of them (0: nothing was)."""

    def __init__(
        self, lengths: Sequence[float], told: Sequence[float], over: Sequence[bool],
        *, middle: float, spread: float, donors: bool = True,
    ) -> None:  # fmt: skip
        """Fit the line; for who draws run times (`donors`), also how near a donor has to be."""
        self.length: Numbers = np.log(np.asarray(lengths, dtype=np.float64))
        self.told: Numbers = np.asarray(told, dtype=np.float64)
        self.over = np.asarray(over, dtype=np.bool_)
        self.count = int(self.over.sum())
        self.capped = self.count >= ENOUGH_FOR_MORE and bool(
            (self.length <= self.told + _NO_SPREAD).all()
        )
        self.guessed = spread > 0  # before anything is known
        self._middle, self._prior_spread = middle, spread
        self.filled = self.length.copy()
        self._fit()
        self.jitter = 0.9 * self.spread * max(self.count, 1) ** -0.4
        self.reach = inf
        if donors:
            self._choose_reach()

    def _fit(self) -> None:
        """The line, its spread, and the means of those that still run (EM)."""
        equal = np.ones(len(self.length))
        cut = ~self.over
        first = self.over * 1.0  # what has passed of a run is not its run time
        square, mean = self._prior_spread**2, self.told
        for number in range(_ROUNDS if cut.any() else 1):
            weights = equal if number else first
            self.at, self.slope, self.centre = self.line(self.filled, weights)
            mean = self.told + self.at + self.slope * (self.told - self.centre)
            unseen = 0.0
            if cut.any():
                spread = max(sqrt(square), _NO_SPREAD)
                score = (self.length[cut] - mean[cut]) / spread
                hazard = _hazard(score)
                self.filled[cut] = mean[cut] + spread * hazard
                unseen = float((1 + score * hazard - hazard**2).clip(0).sum()) * spread**2
            total = float(((self.filled - mean) ** 2).sum()) + unseen
            square = (total + _PRIOR_FREEDOM * self._prior_spread**2) / (
                len(self.length) + _PRIOR_FREEDOM
            )
        residual = (self.length - mean)[self.over]
        if self.count >= ENOUGH and float(np.abs(residual).max()) < _NO_SPREAD:
            square = 0.0  # an estimate said to be exact
        self.spread = sqrt(square * (1 + 2 / (self.count + 10)))  # two numbers were fitted

    def line(self, lengths: Numbers, weights: Numbers) -> Line:
        """Of length - told: its height at the centre, its slope, the centre."""
        total = float(weights.sum())
        ratio = lengths - self.told
        if not total:
            return self._middle, 0.0, 0.0
        centre = float((weights * self.told).sum()) / total
        apart = self.told - centre
        prior = _PRIOR_JOBS if self.count < ENOUGH else 0.0
        at = (float((weights * ratio).sum()) + prior * self._middle) / (total + prior)
        slope = float((weights * apart * (ratio - at)).sum())
        return at, slope / (float((weights * apart**2).sum()) + STEADY), centre

    # --- donors ----------------------------------------------------------------------------------

    def nearness(self, told: Numbers) -> Numbers:
        """How much each job counts for jobs of which this was said."""
        if self.reach == inf:
            return np.ones((len(told), len(self.told)))
        return np.exp(-0.5 * ((told[:, None] - self.told[None, :]) / self.reach) ** 2)

    def _choose_reach(self) -> None:
        """The one under which the jobs foresee each other best."""
        deviation = float(self.told.std()) if len(self.told) else 0.0
        if self.count < ENOUGH_FOR_MORE or min(deviation, self.spread) < _NO_SPREAD:
            return
        scores = {}
        for reach in REACHES:
            self.reach = reach * deviation
            scores[self.reach] = self._score()
        self.reach = max(scores, key=scores.__getitem__)

    def _score(self) -> float:
        """The logarithm of the probability of all run times, each foreseen from the others."""
        chosen = np.flatnonzero(self.over)[-COMPARED:]
        told, length = self.told[chosen], self.length[chosen]
        near = self.nearness(told)
        near[np.arange(len(chosen)), chosen] = 0.0
        line = self.at, self.slope, self.centre
        height, slopes = self.local_line(told, near, self.filled, line)
        moved = self.filled[None, :] + (1 + slopes[:, None]) * (told[:, None] - self.told[None, :])
        width = SMOOTH * self.spread
        dense = (near * np.exp(-0.5 * ((length[:, None] - moved) / width) ** 2)).sum(axis=1)
        dense /= width * sqrt(2 * pi)
        off = (length - told - height) / self.spread
        strange = _T_PEAK / self.spread * (1 + off**2 / FREEDOM) ** (-(FREEDOM + 1) / 2)
        return float(np.log((dense + DOUBT * strange) / (near.sum(axis=1) + DOUBT)).sum())

    def local_line(
        self, told: Numbers, near: Numbers, lengths: Numbers, line: Line
    ) -> tuple[Numbers, Numbers]:
        """Of length - told, around each of `told`: its height and slope; with few near, of all."""
        at, slope, centre = line
        height, slopes = at + slope * (told - centre), np.full(len(told), slope)
        if self.reach == inf:
            return height, slopes
        ratio, apart = lengths - self.told, self.told - centre
        table = (np.ones(len(ratio)), apart, ratio, apart**2, apart * ratio)
        mass, x, y, xx, xy = ((near * column).sum(axis=1) for column in table)
        mass = np.maximum(mass, _NO_SPREAD)
        x, y = x / mass, y / mass
        slopes = (xy - mass * x * y + STEADY * slope) / (xx - mass * x**2 + STEADY)
        local = y + slopes * (told - centre - x)
        return (mass * local + DOUBT * height) / (mass + DOUBT), slopes

    def means(self, told_s: float) -> float:
        """The typical run time of a job of which this was said, in seconds."""
        told = log(told_s)
        return exp(told + self.at + self.slope * (told - self.centre))


class Supposed:
    """What one simulation takes for true."""

    def __init__(self, past: Past, rng: np.random.Generator) -> None:
        self._past, self._rng = past, rng
        count = len(past.length)
        self._weights = rng.exponential(1.0, count)
        self._strange_weights = rng.gamma(DOUBT / STRANGERS, 1.0, STRANGERS)
        wide = past.spread * sqrt(1 + 1 / (past.count + 10))
        self._strange = wide * rng.standard_t(FREEDOM, STRANGERS)
        self._jitter = past.jitter * rng.standard_normal(count)
        self._lengths = past.filled.copy()
        self._line = past.line(self._lengths, self._weights)
        cut = np.flatnonzero(~past.over)
        if len(cut):
            for _ in range(_FILLINGS):
                drawn = self._draw(past.told[cut], past.length[cut], cut)
                self._lengths[cut] = drawn
                self._line = past.line(self._lengths, self._weights)

    def lengths(self, told: Numbers, beyond: Numbers) -> Numbers:
        """Of jobs of which this was said, and which have run for `beyond` already."""
        step = max(1, _AT_ONCE // (len(self._weights) + STRANGERS))
        parts = [
            self._draw(told[at : at + step], beyond[at : at + step])
            for at in range(0, len(told), step)
        ]
        drawn = np.concatenate(parts) if parts else told
        return np.minimum(drawn, told) if self._past.capped else drawn

    def _draw(self, told: Numbers, beyond: Numbers, own: Numbers | None = None) -> Numbers:
        """Donors at random; `own`: these jobs among the donors, none of which is its own."""
        past = self._past
        rows = np.arange(len(told))
        near = past.nearness(told) * self._weights[None, :]
        if own is not None:
            near[rows, own] = 0.0
        height, slopes = past.local_line(told, near, self._lengths, self._line)
        moved = (self._lengths + self._jitter)[None, :] + (1 + slopes[:, None]) * (
            told[:, None] - past.told[None, :]
        )
        if past.capped:  # jobs ended by their own limit show that limits are reached
            moved[:, past.length >= past.told - _NO_SPREAD] = told[:, None]
        typical = told + height
        values = np.concatenate([moved, typical[:, None] + self._strange[None, :]], axis=1)
        strange = np.broadcast_to(self._strange_weights, (len(told), STRANGERS))
        weights = np.concatenate([near, strange], axis=1) * (values > beyond[:, None])
        sums = np.cumsum(weights, axis=1)
        points = self._rng.random(len(told)) * sums[:, -1]
        found = np.minimum((sums <= points[:, None]).sum(axis=1), values.shape[1] - 1)
        # who has outlived all donors: as long again in the middle, perhaps much longer
        longer = beyond - np.log1p(-self._rng.random(len(told)))
        return np.where(sums[:, -1] > 0, values[rows, found], longer)


class Durations:
    """What the jobs of a run teach about how long jobs run."""

    def __init__(self, jobs: Sequence[Job], now_s: float, said: Said = estimated, *,
                 sure: bool = False, known_at_s: float = INF) -> None:  # fmt: skip
        """Learn.

        Args:
            jobs: Those that are over, and those that run.
            now_s: The present.
            said: How long somebody said that they run.
            sure: What is said is true.
            known_at_s: Only what was known at this moment counts.
        """
        self.jobs, self.now_s, self._said, self._sure = jobs, now_s, said, sure
        ended, running = [], []
        for job in jobs:
            if job.terminal and job.end_s <= known_at_s:
                ended.append(job)
            elif job.first_start_s <= known_at_s:
                running.append(job)
        ended.sort(key=_end_s)
        every = ceil(len(running) / CROWD) or 1
        rows = [(job, progress(job, now_s), True) for job in ended[-MEMORY * every :: every]]
        rows += [(job, _passed(job, known_at_s, now_s), False) for job in running[::every]]
        seen = [row for row in rows if row[1] > 0]
        told = [row for row in seen if 0 < said(row[0]) < INF]
        self.all = Past(
            [length for _, length, _ in seen], [0.0] * len(seen), [over for *_, over in seen],
            middle=log(GUESS_S), spread=GUESS_SPREAD,
        )  # fmt: skip
        self.told = Past(
            [length for _, length, _ in told], [log(said(job)) for job, *_ in told],
            [over for *_, over in told], middle=0.0, spread=0.0 if sure else TOLD_SPREAD,
        )  # fmt: skip

    @classmethod
    def of(cls, engine: Engine, said: Said = estimated, *, sure: bool = False) -> "Durations":
        """From the jobs of a run; those that failed or were cancelled have freed their GPUs too."""
        jobs = [job for job in engine.jobs.values() if job.started]
        return cls(jobs, engine.cluster.now_s, said, sure=sure)

    def as_of(self, moment_s: float) -> "Durations":
        """What could have been learnt at an earlier moment."""
        return Durations(
            self.jobs, self.now_s, self._said, sure=self._sure, known_at_s=moment_s
        )  # fmt: skip

    def draw(
        self, jobs: Sequence[Job], done: Sequence[float], rng: np.random.Generator
    ) -> list[float]:
        """How long each of these jobs will have run in all, in one simulation."""
        told = np.array([self._said(job) for job in jobs])
        beyond = np.log(np.maximum(np.asarray(done, dtype=np.float64), 1e-300))
        known = (told > 0) & (told < INF)
        found = np.empty(len(jobs))
        for past, chosen in ((self.told, known), (self.all, ~known)):
            if chosen.any():
                told_here = np.log(told[chosen]) if past is self.told else np.zeros(chosen.sum())
                found[chosen] = Supposed(past, rng).lengths(told_here, beyond[chosen])
        return [
            max(total, executed * (1 + 1e-9))
            for total, executed in zip(np.exp(found).tolist(), done, strict=True)
        ]

    @property
    def toil(self) -> int:
        """Numbers that a draw looks at, about."""
        pasts = (self.all, self.told)
        return sum(len(past.told) * (1 + _FILLINGS * int((~past.over).sum())) for past in pasts)

    @property
    def doubt(self) -> str:
        """A warning where next to nothing was learnt."""
        if max(self.all.count, self.told.count) >= ENOUGH or not self.told.guessed:
            return ""
        ended = f"only {self.all.count} so far" if self.all.count else "none so far"
        return f"a guess: nobody knows how long jobs run here before some have ended ({ended})"

    def describe(self) -> dict[str, Any]:
        """For the assumptions."""
        found: dict[str, Any] = {
            "finished_jobs": self.all.count,
            "with_estimates": self.told.count,
        }
        if self.told.count >= ENOUGH:
            middle_s = exp(float(np.median(self.told.told)))
            found["estimates"] = f"{duration(middle_s)} meant {duration(self.told.means(middle_s))}"
            if self.told.capped:
                found["estimates"] += ", never longer than told"
        return found


def _passed(job: Job, at_s: float, now_s: float) -> float:
    """How much of a job was done at a moment at which it was not over.

    Of the past, only its first start and its end are known: as if progress had been even.
    """
    total = progress(job, now_s)
    if at_s >= now_s:
        return total
    last_s = job.end_s if job.terminal else now_s
    return total * (at_s - job.first_start_s) / (last_s - job.first_start_s)


def _end_s(job: Job) -> float:
    return job.end_s


def _hazard(score: Numbers) -> Numbers:
    """The mean of a standard normal number that is above `score`."""
    score = np.minimum(score, 30.0)
    above = np.array([0.5 * erfc(value / sqrt(2)) for value in score.tolist()])
    density = np.exp(-(score**2) / 2) / sqrt(2 * pi)
    far = score > 5  # noqa: PLR2004 - where the series is as good as the quotient
    return np.where(far, score + 1 / np.maximum(score, 1.0), density / np.maximum(above, 1e-12))


_T_PEAK = exp(lgamma((FREEDOM + 1) / 2) - lgamma(FREEDOM / 2)) / sqrt(FREEDOM * pi)
