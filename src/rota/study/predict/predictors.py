"""Predictors of run times. Each is told of jobs when they have ended, and asked at submissions.

| predictor | the run time that it expects |
| --- | --- |
| `estimate` | what the user said |
| `corrected` | the same, corrected by a line through what earlier estimates meant (as `rota when`) |
| `last` | that of the user's job that ended last; of anybody's if there is none |
| `mean` | the mean of the user's last ones (two, unless told otherwise) |
| `median` | the median of the last 50 with the same user, name and GPUs; else with the same user and GPUs, else with the same GPUs, else of all |
| `qssf` | the rolling mean of the same groups, as the policy `qssf` |
| `lucid` | a product of factors for user, name, model and GPUs, as the policy `lucid` |
"""  # noqa: E501 - a table

from collections import deque
from collections.abc import Hashable, Sequence
from math import isfinite, log
from statistics import fmean, median
from typing import Protocol

from rota.models.interpretable import AdditiveDurations, traits_of
from rota.models.rolling import Group, Seen, alike, roll, rolling_mean
from rota.sim.durations import ENOUGH, TOLD_SPREAD, Past
from rota.study.predict.history import LEAST_S, LoggedJob

WINDOW = 50  # jobs of a group that are remembered
MEMORY = 5_000  # jobs that a model is fitted to
ESTIMATES = 1_000  # the same of the line through estimates
REFIT_S = 86_400.0  # until a model is fitted anew
GROWN = 1.5  # or so many times as many jobs have ended


class Predictor(Protocol):
    """Foresees run times; `told` says how."""

    key: str
    told: str

    def predict(self, job: LoggedJob) -> float | None:
        """The run time that it expects of a job that is submitted; None: it cannot tell."""

    def learn(self, job: LoggedJob) -> None:
        """A job has ended."""


def make_predictors(*, last: int = 2) -> list[Predictor]:
    """All of them; `last`: runs of a user of which `mean` takes the mean."""
    return [
        SaidByUser(), CorrectedEstimate(), LastRuns(1), LastRuns(last), MedianOfAlike(),
        RollingOfAlike(), FactorModel(),
    ]  # fmt: skip


class SaidByUser:
    """What the user said."""

    key = "estimate"
    told = "what the user said"

    def predict(self, job: LoggedJob) -> float | None:
        """See `Predictor`."""
        return job.estimate_s if isfinite(job.estimate_s) else None

    def learn(self, job: LoggedJob) -> None:
        """Nothing."""


class Fitting:
    """When a model is to be fitted anew: after a day, or when it could know half as much again."""

    def __init__(self) -> None:
        self.learnt = 0
        self._fitted = 0
        self._at_s = 0.0

    def due(self, now_s: float) -> bool:
        """Is it? From now on it is not."""
        grown = self.learnt >= GROWN * self._fitted
        if self.learnt == self._fitted or not (grown or now_s >= self._at_s + REFIT_S):
            return False
        self._fitted, self._at_s = self.learnt, now_s
        return True


class CorrectedEstimate:
    """What the user said, corrected by what earlier estimates meant."""

    key = "corrected"
    told = "the same, corrected by what earlier estimates meant"

    def __init__(self) -> None:
        self._ended: deque[tuple[float, float]] = deque(maxlen=ESTIMATES)
        self._fitting = Fitting()
        self._past: Past | None = None

    def predict(self, job: LoggedJob) -> float | None:
        """See `Predictor`."""
        if not isfinite(job.estimate_s):
            return None
        if len(self._ended) >= ENOUGH and self._fitting.due(job.submit_s):
            runs = [run_s for run_s, _ in self._ended]
            told = [log(said_s) for _, said_s in self._ended]
            self._past = Past(
                runs, told, [True] * len(runs), middle=0.0, spread=TOLD_SPREAD, donors=False
            )
        return job.estimate_s if self._past is None else self._past.means(job.estimate_s)

    def learn(self, job: LoggedJob) -> None:
        """See `Predictor`."""
        if isfinite(job.estimate_s):
            self._ended.append((job.run_s, max(job.estimate_s, LEAST_S)))
            self._fitting.learnt += 1


class ByGroup:
    """The last run times of groups of jobs."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._runs: dict[Hashable, deque[float]] = {}

    def of(self, groups: Sequence[Group]) -> Sequence[float]:
        """Of the first group that has any."""
        return next((self._runs[group] for group in groups if group in self._runs), ())

    def add(self, groups: Sequence[Group], run_s: float) -> None:
        """One more."""
        for group in groups:
            self._runs.setdefault(group, deque(maxlen=self._window)).append(run_s)


class LastRuns:
    """The mean of what the user's last jobs took, or anybody's."""

    def __init__(self, count: int) -> None:
        self.key = "last" if count == 1 else "mean"
        self.told = (
            "the user's job that ended last" if count == 1 else f"mean of the user's last {count}"
        )
        self._runs = ByGroup(count)

    def predict(self, job: LoggedJob) -> float | None:
        """See `Predictor`."""
        runs = self._runs.of(((job.user,), ()))
        return fmean(runs) if runs else None

    def learn(self, job: LoggedJob) -> None:
        """See `Predictor`."""
        self._runs.add(((job.user,), ()), job.run_s)


class MedianOfAlike:
    """The median of jobs that are alike."""

    key = "median"
    told = f"median of the last {WINDOW} with the same user, name and GPUs"

    def __init__(self) -> None:
        self._runs = ByGroup(WINDOW)

    def predict(self, job: LoggedJob) -> float | None:
        """See `Predictor`."""
        runs = self._runs.of(alike(job.user, job.name, job.gpus))
        return median(runs) if runs else None

    def learn(self, job: LoggedJob) -> None:
        """See `Predictor`."""
        self._runs.add(alike(job.user, job.name, job.gpus), job.run_s)


class RollingOfAlike:
    """The rolling mean of jobs that are alike, as of the policy `qssf`."""

    key = "qssf"
    told = "rolling mean of the same, as the policy qssf"

    def __init__(self) -> None:
        self._seen: Seen = {}

    def predict(self, job: LoggedJob) -> float | None:
        """See `Predictor`."""
        return rolling_mean(self._seen, alike(job.user, job.name, job.gpus))

    def learn(self, job: LoggedJob) -> None:
        """See `Predictor`."""
        roll(self._seen, alike(job.user, job.name, job.gpus), job.run_s, WINDOW)


class FactorModel:
    """A product of factors of the traits of a job, as of the policy `lucid`."""

    key = "lucid"
    told = "factors of user, name, model and GPUs, as the policy lucid"

    def __init__(self) -> None:
        self._ended: deque[tuple[dict[str, str], float]] = deque(maxlen=MEMORY)
        self._fitting = Fitting()
        self._model: AdditiveDurations | None = None

    def predict(self, job: LoggedJob) -> float | None:
        """See `Predictor`."""
        if self._fitting.due(job.submit_s):
            self._model = AdditiveDurations(list(self._ended))
        return None if self._model is None else self._model.predict_s(_traits(job))

    def learn(self, job: LoggedJob) -> None:
        """See `Predictor`."""
        self._ended.append((_traits(job), job.run_s))
        self._fitting.learnt += 1


def _traits(job: LoggedJob) -> dict[str, str]:
    return traits_of(job.user, job.name, job.model, job.gpus)
