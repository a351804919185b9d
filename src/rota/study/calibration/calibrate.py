"""Simulator = reality? Fit costs to a live log, simulate the same jobs, and tell the error.

`calibrate` measures the log of a folder (see `calibration.samples`), fits costs with intervals and
simulates the same jobs under the same policy. `foresee` simulates other jobs with the fitted costs,
`check` those of another live run, without looking at what became of them, and tells the error.
`write` puts everything into a folder; its `costs.yaml` is good for `--costs`.
"""

from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import InputError
from rota.core.eventlog import Floats
from rota.core.jobs import Behaviour
from rota.core.workload import Workload
from rota.metrics import write_jobs
from rota.study.calibration import pages
from rota.study.calibration.fit import CostFit, fit
from rota.study.calibration.replay import (
    Error,
    Prediction,
    columns,
    compare,
    find_outages,
    predict,
    replay,
)
from rota.study.calibration.samples import ObservedCosts, Timings, observe
from rota.study.calibration.setting import (
    SHORTEST_S,
    Jobs,
    Setting,
    find_jobs,
    find_setting,
    read_log,
)
from rota.study.output import dump
from rota.traces.read import read_workload
from rota.traces.write import write_workload

RUNS = 40
"""Simulations with costs drawn from what is not known of them."""
COSTS, WORKLOAD, REPORT, DATA = "costs.yaml", "workload.csv", "report.md", "calibration.json"
FORESEEN = "predicted-jobs.csv"
FILES = (COSTS, WORKLOAD, REPORT, DATA, FORESEEN)


class Calibration(msgspec.Struct, frozen=True):
    """What came out. `jobs`: one row per job with its times, live and simulated (on average)."""

    source: str
    setting: Setting
    fit: CostFit
    workload: Workload
    jobs: pl.DataFrame
    errors: list[Error]
    notes: list[str]
    seed: int


class Foresight(msgspec.Struct, frozen=True):
    """Another workload under a policy, as it would be. `jobs`: of the run with fitted means.

    `errors`: how far it is from what really happened, if that is known.
    """

    trace: str
    policy: str
    jobs: pl.DataFrame
    metrics: list[Prediction]
    errors: list[Error] = []


def calibrate(
    folder: Path,
    *,
    policy: str | None = None,
    cluster: str | None = None,
    trace: str | None = None,
    seed: int = 0,
    runs: int = RUNS,
) -> Calibration:
    """Fit the costs of a run and simulate it.

    Args:
        folder: Holds `events.parquet`, and a `manifest.json` or what the next arguments say.
        policy: The policy of the run.
        cluster: Its machines.
        trace: The jobs that were submitted, with the durations that were declared.
        seed: Of all resampling.
        runs: Simulations for the intervals.

    Raises:
        InputError: There is no log, no job that ran, or nobody says under which policy.
    """
    log = read_log(folder)
    setting = find_setting(folder, log, policy=policy, cluster=cluster, trace=trace)
    observed = observe(log)
    jobs = find_jobs(setting, observed, log)
    if not jobs.rows:
        raise InputError(f"{folder}: no job of the log ever ran: there is nothing to calibrate")
    fitted = fit(observed, _ratios(jobs, observed), seed)
    work_s = _work_s(jobs, observed, fitted.params().lost_work_s)
    workload = jobs.workload(work_s.tolist())
    live = observed.jobs[jobs.rows]
    outages = find_outages(log)
    tables = [
        columns(
            replay(
                setting,
                workload,
                fitted.drawn(number, seed),
                believed_s=jobs.declared_s,
                outages=outages,
            )
        )
        for number in range(runs)
    ]
    real, model = columns(live), np.mean(tables, axis=0)
    over = ~np.isnan(real[:, 0] + model[:, 0])
    errors = compare(real[over], [table[over] for table in tables])
    table = _side_by_side(live, model, work_s, jobs.declared_s)
    notes = [*setting.notes, *jobs.notes, *observed.notes]
    if not over.all():
        notes.append(f"{int((~over).sum())} jobs did not end: they are simulated, not compared")
    return Calibration(str(folder), setting, fitted, workload, table, errors, notes, seed)


def _work_s(jobs: Jobs, observed: ObservedCosts, lost_s: float) -> Floats:
    """What each job has to do if it is never stopped."""
    work_s: Floats = observed.run_s[jobs.rows] - lost_s * observed.restarts[jobs.rows]
    return np.maximum(work_s, SHORTEST_S)


def _ratios(jobs: Jobs, observed: ObservedCosts) -> Timings:
    """Observed by declared duration of the jobs that are done; all seconds count the same."""
    done = (observed.jobs["state"] == "done").to_numpy()[jobs.rows]
    known = done & (jobs.declared_s > 0)
    run_s, declared_s = observed.run_s[jobs.rows][known], jobs.declared_s[known]
    return Timings(run_s / declared_s, np.array(jobs.rows)[known], declared_s)


def _side_by_side(
    live: pl.DataFrame, simulated: Floats, work_s: Floats, declared_s: Floats
) -> pl.DataFrame:
    return live.select(
        "job_id",
        "tenant",
        "gpus",
        "submit_s",
        "state",
        work_s=pl.Series(work_s),
        declared_s=pl.Series(declared_s, nan_to_null=True),
        live_jct_s="jct_s",
        simulated_jct_s=pl.Series(simulated[:, 0], nan_to_null=True),
        live_wait_s="wait_s",
        simulated_wait_s=pl.Series(simulated[:, 1], nan_to_null=True),
    ).with_columns(error_s=pl.col("simulated_jct_s") - pl.col("live_jct_s"))


def foresee(
    calibration: Calibration, trace: str, *, policy: str | None = None, runs: int = RUNS
) -> Foresight:
    """Simulate other jobs on the same machines, with costs and durations as they were observed.

    The durations in the trace are what is declared: policies know them, but jobs take as much
    longer or shorter as those of the log did, each by a ratio drawn from them.
    """
    setting = calibration.setting
    if policy is not None:
        setting = msgspec.structs.replace(setting, policy=policy)
    workload = read_workload(trace)
    declared_s = np.array([behaviour.work for behaviour in workload.behaviours])
    tables = _futures(calibration, setting, workload, declared_s, runs)
    metrics = predict([columns(table) for table in tables[1:]])
    return Foresight(trace, setting.policy, tables[0], metrics)


def check(calibration: Calibration, folder: Path, *, runs: int = RUNS) -> Foresight:
    """Predict another live run from what was submitted, and compare with what happened.

    What each job declared is all that the prediction knows of its duration; where nothing was
    declared it is the one that was observed.
    """
    log = read_log(folder)
    setting = find_setting(folder, log)
    observed = observe(log)
    jobs = find_jobs(setting, observed, log)
    if not jobs.rows:
        raise InputError(f"{folder}: no job of the log ever ran: there is nothing to compare with")
    typical_s = observed.run_s[jobs.rows] / max(calibration.fit.rate.value, SHORTEST_S)
    declared_s = np.where(np.isnan(jobs.declared_s), typical_s, jobs.declared_s)
    workload = jobs.workload(declared_s.tolist())
    tables = _futures(calibration, setting, workload, declared_s, runs)
    numbers = [columns(table) for table in tables[1:]]
    live = columns(observed.jobs[jobs.rows])
    over = ~np.isnan(live[:, 0] + np.mean(numbers, axis=0)[:, 0])
    errors = compare(live[over], [table[over] for table in numbers])
    return Foresight(str(folder), setting.policy, tables[0], predict(numbers), errors)


def _futures(
    calibration: Calibration, setting: Setting, workload: Workload, declared_s: Floats, runs: int
) -> list[pl.DataFrame]:
    """The tables of jobs with fitted means, and of simulations that draw everything."""
    rng = np.random.default_rng(calibration.seed)
    fitted = calibration.fit
    tables = []
    for number in range(-1, runs):
        costs, factors = fitted.costs(), np.full(len(declared_s), fitted.rate.value)
        if number >= 0:
            costs = fitted.drawn(number, calibration.seed)
            factors = fitted.factors(len(declared_s), rng)
        behaviours = [Behaviour(max(SHORTEST_S, work)) for work in (declared_s * factors).tolist()]
        varied = Workload(workload.specs, behaviours, name=workload.name)
        tables.append(replay(setting, varied, costs, believed_s=declared_s))
    return tables


def write(calibration: Calibration, foresight: Foresight | None, folder: Path) -> None:
    """Write everything into a folder that exists."""
    text = pages.costs_yaml(calibration.source, calibration.fit)
    (folder / COSTS).write_text(text, encoding="utf-8")
    write_workload(calibration.workload, folder / WORKLOAD, force=True)
    data = {
        "source": calibration.source,
        "setting": msgspec.to_builtins(calibration.setting),
        "seed": calibration.seed,
        "fit": {name: msgspec.to_builtins(e) for name, e in calibration.fit.named.items()},
        "declared_duration_cv": calibration.fit.rate_cv,
        "errors": msgspec.to_builtins(calibration.errors),
        "jobs": calibration.jobs.to_dicts(),
        "notes": calibration.notes,
        "prediction": None,
    }
    if foresight is not None:
        data["prediction"] = {
            "trace": foresight.trace,
            "policy": foresight.policy,
            "metrics": msgspec.to_builtins(foresight.metrics),
            "errors": msgspec.to_builtins(foresight.errors),
        }
        write_jobs(foresight.jobs, folder / FORESEEN)
    (folder / DATA).write_text(dump(data), encoding="utf-8")
    (folder / REPORT).write_text(report(calibration, foresight), encoding="utf-8")


def report(calibration: Calibration, foresight: Foresight | None = None) -> str:
    """The report for people, as Markdown."""
    setting = calibration.setting
    head = (
        f"`{calibration.source}`: {calibration.jobs.height} jobs on `{setting.cluster}` under "
        f"`{setting.policy}`, placement `{setting.placement}`."
    )
    parts = [
        "# Calibration",
        head,
        pages.fit_section(calibration.fit),
        pages.error_section(calibration.errors, calibration.jobs),
    ]
    if foresight is not None:
        parts.append(
            pages.prediction_section(
                foresight.trace, foresight.policy, foresight.metrics, foresight.errors
            )
        )
    parts.append(pages.limits_section(calibration.fit, calibration.notes))
    return "\n\n".join(parts) + "\n"
