"""Several policies on the same workload, side by side; the first is the baseline.

With `repeat` every policy runs under several seeds (seed, seed + 1, ...), all policies under the
same ones; numbers are then means over the seeds, and the ratio to the baseline gets a 95 % interval
from the ratios of the single seeds (Student's t). Seeds change what is random in a run (failures,
wrong estimates, a random placement), not the trace.
"""

import math
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import OptionError
from rota.core.workload import Workload
from rota.experiments.config import RunConfig
from rota.experiments.folder import RUN_FILES
from rota.experiments.output import dump, write_run
from rota.experiments.report import Curve, Row, cdf_svg, html
from rota.experiments.run import Progress, RunResult, simulate
from rota.metrics import Window
from rota.traces.read import read_workload

COMPARE, REPORT, PICTURE = "compare.json", "report.html", "jct-cdf.svg"
CURVE_POINTS = 200
_T_95 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
)  # 1 to 9 degrees of freedom
_NORMAL_95 = 1.96
MEASURES = (
    "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s",
    "gpu_utilisation", "preemptions", "completed", "jobs",
)  # fmt: skip

Told = Callable[[str, int, int], Progress | None]
"""Told (label, number of the run, runs in all) before each run; may give its progress."""


class Outcome(msgspec.Struct, frozen=True):
    """One run: its label and folder, what came out, and its JCTs at even steps from 0 to 1."""

    policy: str
    folder: str
    seed: int
    summary: dict[str, Any]
    jct_quantiles_s: list[float]
    warnings: list[str]


def compare(
    config: RunConfig,
    policies: Sequence[str],
    folder: Path,
    *,
    repeat: int = 1,
    workers: int = 1,
    command: Sequence[str] = (),
    told: Told | None = None,
) -> list[Row]:
    """Run every policy, write its folder and the comparison; returns the rows of the table.

    Args:
        config: The run; its policy is replaced by each of the policies.
        policies: At least one; the first is the baseline.
        folder: Exists; receives a folder per run, compare.json, report.html and a picture.
        repeat: Seeds per policy.
        workers: Processes to run in; 1: in this one.
        command: The command line, for the manifests.
        told: Told before each run (only with one worker).
    """
    plan = _plan(config, policies, repeat)
    if workers > 1 and len(plan) > 1:
        outcomes = _in_processes(plan, folder, workers, command)
    else:
        outcomes = _here(plan, folder, command, told)
    rows = make_rows(outcomes)
    _write(rows, outcomes, config, folder)
    return rows


def _write(
    rows: Sequence[Row], outcomes: Sequence[Outcome], config: RunConfig, folder: Path
) -> None:
    picture = cdf_svg(
        [Curve(o.policy, o.jct_quantiles_s) for o in outcomes if o.seed == config.seed]
    )
    data = {
        "trace": config.trace,
        "cluster": config.cluster,
        "baseline": rows[0].policy,
        "seeds": sorted({outcome.seed for outcome in outcomes}),
        "rows": msgspec.to_builtins(rows),
        "runs": [
            {
                "policy": o.policy,
                "folder": o.folder,
                "seed": o.seed,
                "warnings": o.warnings,
                "summary": o.summary,
            }
            for o in outcomes
        ],
    }
    (folder / COMPARE).write_text(dump(data), encoding="utf-8")
    (folder / PICTURE).write_text(picture, encoding="utf-8")
    page = html(rows, picture, config, outcomes[0].summary["assumptions"], _folders(outcomes))
    (folder / REPORT).write_text(page, encoding="utf-8")


def own_files(folder: Path) -> list[str]:
    """What an earlier comparison wrote into a folder."""
    own = [COMPARE, REPORT, PICTURE]
    try:
        data = msgspec.json.decode((folder / COMPARE).read_bytes())
        runs = [str(run["folder"]) for run in data["runs"]]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        runs = []
    return own + [
        f"{run}/{name}" for run in runs if re.fullmatch(r"[\w.=+-]+", run) for name in RUN_FILES
    ]


# --- running -------------------------------------------------------------------------------------


def _plan(config: RunConfig, policies: Sequence[str], repeat: int) -> list[tuple[str, RunConfig]]:
    """(folder, run) for every policy and seed."""
    if len(set(policies)) != len(policies):
        raise OptionError(f"a policy is named twice: {', '.join(policies)}")
    if repeat < 1:
        raise OptionError(f"repeat {repeat}: give 1 or more")
    plan = []
    taken: set[str] = set()
    for policy in policies:
        label = _label(policy, taken)
        for turn in range(repeat):
            run = msgspec.structs.replace(config, policy=policy, seed=config.seed + turn)
            plan.append((label if repeat == 1 else f"{label}-seed{run.seed}", run))
    return plan


def _label(policy: str, taken: set[str]) -> str:
    """A folder name for a policy."""
    plain = re.sub(r"[^A-Za-z0-9.=+-]+", "_", policy).strip("._") or "policy"
    label, number = plain, 2
    while label in taken:
        label, number = f"{plain}-{number}", number + 1
    taken.add(label)
    return label


def _here(
    plan: list[tuple[str, RunConfig]], folder: Path, command: Sequence[str], told: Told | None
) -> list[Outcome]:
    first = plan[0][1]
    workload = read_workload(first.trace, first.format, limit=first.limit)
    outcomes = []
    for number, (label, run) in enumerate(plan):
        progress = told(label, number, len(plan)) if told else None
        outcomes.append(_one(run, folder / label, command, progress, workload))
    return outcomes


def _in_processes(
    plan: list[tuple[str, RunConfig]], folder: Path, workers: int, command: Sequence[str]
) -> list[Outcome]:
    with ProcessPoolExecutor(
        min(workers, len(plan)), mp_context=get_context("spawn"), initializer=_die_quietly
    ) as pool:
        futures = [pool.submit(_one, run, folder / label, command) for label, run in plan]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _die_quietly() -> None:
    """An interruption is the parent's to report."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _one(
    run: RunConfig,
    folder: Path,
    command: Sequence[str],
    progress: Progress | None = None,
    workload: Workload | None = None,
) -> Outcome:
    result = simulate(run, progress, workload=workload)
    folder.mkdir()
    summary = write_run(result, folder, command)
    jct_s = _completed(result)["jct_s"].to_numpy()
    steps = np.linspace(0.0, 1.0, CURVE_POINTS + 1)
    quantiles = np.quantile(jct_s, steps).tolist() if len(jct_s) else []
    return Outcome(run.policy, folder.name, run.seed, summary, quantiles, result.warnings)


def _completed(result: RunResult) -> pl.DataFrame:
    """The jobs that the summary is about."""
    window = Window.parse(result.config.measure) if result.config.measure else Window()
    return result.jobs.filter(pl.Series(window.chooses(result.jobs)), pl.col("state") == "done")


def _folders(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The first folder of every policy."""
    return {outcome.policy: outcome.folder for outcome in reversed(outcomes)}


# --- the table -----------------------------------------------------------------------------------


def make_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """One row per policy: means over the seeds, and ratios of the mean JCT to the first policy."""
    by_policy: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_policy.setdefault(outcome.policy, []).append(outcome)
    base = [outcome.summary["avg_jct_s"] for outcome in next(iter(by_policy.values()))]
    rows = []
    for policy, runs in by_policy.items():
        values = {key: _mean([run.summary[key] for run in runs]) for key in MEASURES}
        ratios = [
            run.summary["avg_jct_s"] / jct_s
            for run, jct_s in zip(runs, base, strict=True)
            if jct_s and run.summary["avg_jct_s"] is not None
        ]
        rows.append(
            Row(
                policy=policy,
                knowledge=runs[0].summary["assumptions"]["knowledge"],
                ratio=_mean(ratios),
                interval=_interval(ratios),
                **values,
            )
        )
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % for the mean; None for a single value."""
    count = len(values)
    if count < 2:  # noqa: PLR2004 - one value has no spread
        return None
    factor = _T_95[count - 2] if count - 2 < len(_T_95) else _NORMAL_95
    half = factor * stdev(values) / math.sqrt(count)
    return fmean(values) - half, fmean(values) + half
