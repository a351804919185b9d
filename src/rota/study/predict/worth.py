"""What predictions are worth: the log simulated under `qssf`, which serves short jobs first.

The same jobs on the same machines, with different estimates: the same for every job (nothing is
known), those of users, those of the best predictor, and the truth. What a predictor foresaw comes
from the log as it happened, not from the simulated schedule.
"""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from rota.core.eventlog import Floats
from rota.core.workload import Workload
from rota.study.config import RunConfig
from rota.study.predict.predictors import SaidByUser
from rota.study.run import RunResult, simulate
from rota.study.statistics import Statistic, jobs_interval

POLICY = "qssf:estimate=user"
UNKNOWN_S = 3_600.0  # of a job that could not be foreseen, as `qssf`
NOTHING, USERS, PERFECT = "nothing", "users' estimates", "everything"


class WorthRow(msgspec.Struct, frozen=True, kw_only=True):
    """A simulation: what is known of run times, and what jobs get.

    `ratio` of its mean JCT to that with no knowledge, over the jobs that end in all simulations.
    """

    knows: str
    avg_jct_s: float | None
    avg_wait_s: float | None
    p95_wait_s: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


class PredictionWorth(msgspec.Struct, frozen=True):
    """All of them: nothing first, then (users' estimates,) the predictor, everything.

    `gain`: the part of what perfect knowledge gains that the predictor gains; `ended`: jobs that
    end in all simulations, of `jobs`.
    """

    cluster: str
    predictor: str
    rows: list[WorthRow]
    gain: float | None
    jobs: int = 0
    ended: int = 0
    warnings: list[str] = []


Told = Callable[[int, int], object]


def measure_worth(
    config: RunConfig,
    workload: Workload,
    predictor: str,
    predicted_s: Sequence[float],
    told: Told | None = None,
) -> PredictionWorth:
    """Simulate.

    Args:
        config: The jobs and the machines.
        workload: The jobs.
        predictor: Its name.
        predicted_s: Of every job, in their order; nan: not foreseen.
        told: Called with (simulations done, of how many).
    """
    users_s = [spec.estimate_s for spec in workload.specs]
    truth_s = [behaviour.work for behaviour in workload.behaviours]
    known: dict[str, Sequence[float]] = {NOTHING: [UNKNOWN_S] * len(workload)}
    if predictor != SaidByUser.key and any(map(math.isfinite, users_s)):
        known[USERS] = users_s
    known |= {f"predictions of {predictor}": predicted_s, PERFECT: truth_s}
    runs: dict[str, RunResult] = {}
    for done, (name, estimates_s) in enumerate(known.items()):
        if told:
            told(done, len(known))
        jobs = _with_estimates(workload, estimates_s)
        runs[name] = simulate(msgspec.structs.replace(config, policy=POLICY), workload=jobs)
    jcts = _jcts(list(runs.values()))
    rows = [
        _row(name, run, jcts[0], jct) for (name, run), jct in zip(runs.items(), jcts, strict=True)
    ]
    first, mine, best = rows[0].avg_jct_s, rows[-2].avg_jct_s, rows[-1].avg_jct_s
    gain = None
    if None not in (first, mine, best) and first > best:  # type: ignore[operator]  # known
        gain = (first - mine) / (first - best)  # type: ignore[operator]  # known
    warnings = list(dict.fromkeys(text for run in runs.values() for text in run.warnings))
    return PredictionWorth(
        config.cluster, predictor, rows, gain, len(workload), len(jcts[0]), warnings
    )


def _with_estimates(workload: Workload, estimates_s: Sequence[float]) -> Workload:
    specs = [
        msgspec.structs.replace(
            spec, estimate_s=UNKNOWN_S if math.isnan(estimate_s) else estimate_s
        )
        for spec, estimate_s in zip(workload.specs, estimates_s, strict=True)
    ]
    return workload.like(specs, workload.behaviours, quality=workload.quality)


def _jcts(runs: Sequence[RunResult]) -> list[Floats]:
    """Of the jobs that end in all of them, in the order of the log."""
    tables = [run.jobs["jct_s"].to_numpy().astype(np.float64) for run in runs]
    ended = np.logical_and.reduce([np.isfinite(table) for table in tables])
    return [table[ended] for table in tables]


def _row(name: str, run: RunResult, base: Floats, jct: Floats) -> WorthRow:
    mean: Statistic = lambda jobs: jobs.mean(axis=1)  # noqa: E731 - of a table of jobs
    found = jobs_interval(base, jct, mean)
    summary = run.summary
    return WorthRow(
        knows=name, avg_jct_s=summary["avg_jct_s"], avg_wait_s=summary["avg_wait_s"],
        p95_wait_s=summary["p95_wait_s"], ratio=found.ratio, low=found.low, high=found.high,
    )  # fmt: skip
