"""Elastic and rigid policies side by side: the same jobs, costs and facts for all of them."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from rota.core.log import Record
from rota.core.products import dot
from rota.core.sums import ordered_sum
from rota.metrics.history import OVERHEAD, read_history
from rota.reproduce.elastic.drawn import (
    GPU_TYPE,
    NODE_GPUS,
    NODES,
    write_due,
    write_jobs,
    write_profiles,
)
from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds
from rota.study.config import RunConfig
from rota.study.run import RunResult
from rota.study.statistics import student

RIGID = ("fifo-skip", "las", "tiresias", "srtf", "edf")
ELASTIC = ("optimus", "afs", "lyra", "deepboot", "elasticflow", "pollux", "sia")
BASE = RIGID[0]
UNTOLD = ("fifo-skip", "las", "tiresias")
"""Rigid policies that are told nothing of jobs."""
TELLING = ("pollux", "sia")
"""Those that are told no lengths: what jobs report has to do."""

CHANGE_S = 30.0
COSTS, RATES = f"custom:start_s={CHANGE_S:g}", "goodput:rounded=yes"
JOBS, LOAD, SEEDS = 10, 3.0, (1, 2, 3)
PROFILES, PROFILED_TYPE, CLUSTER = "profiles/sia-sosp23", "aws", "16x4"
WORKLOADS = range(1, 9)
LEVEL = 0.95
HOUR_S = 3_600.0
AVERAGED = (
    "completed", "avg_jct_s", "p95_jct_s", "makespan_s", "deadline_misses", "preemptions",
    "resizes",
)  # fmt: skip


class ElasticSideBySide(Recipe):
    """All policies for elastic jobs, and some that leave jobs as they are, on the same jobs."""

    name = "elastic-side-by-side"
    summary = "elastic and rigid policies on the same jobs, with the same costs and facts"
    paper = "none: each of the papers compares its own policy with a few others, in its own setting"
    source = "nothing was published: what must hold of any such comparison is checked"
    takes: Mapping[Scale, str] = {Scale.SMALL: "5 s", Scale.PAPER: "8 min"}
    leaves_out = (
        "Pollux' eight workloads of 160 jobs on 64 GPUs with measured profiles (they need the "
        "reference data): three draws of a few made-up jobs on 16 GPUs have wide intervals"
    )
    known: Sequence[str] = (
        "jobs tune their batch under every policy, so that only sizes and order differ",
        (
            "oracles of lengths and speeds (for srtf, optimus, afs, lyra, deepboot and "
            "elasticflow) know them for the user's batch; pollux and sia have what jobs report"
        ),
        "no policy but pollux, sia and deepboot reckons with the costs of a change",
        "deadlines are drawn; only edf and elasticflow look at them",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """Every policy on each workload."""
        traces, shape, cluster = _drawn(setting) if setting.small else _recorded(setting)
        return {
            f"{policy}-{number}": RunConfig(
                trace=trace, format=shape, cluster=cluster, policy=policy, costs=COSTS, rates=RATES
            )
            for number, trace in traces.items()
            for policy in (*RIGID, *ELASTIC)
        }

    def digest(self, result: RunResult) -> dict[str, float]:
        """GPU-seconds held without progress after a first start, and the longest such span."""
        history = read_history(result.log)
        starts = np.flatnonzero(history.kind == Record.START)
        _, first = np.unique(history.actor[starts], return_index=True)
        again = history.state == OVERHEAD
        again[starts[first]] = False
        lasted_s = history.length_s[again]
        return {
            "lost_gpu_s": dot(lasted_s, history.held[again]),
            "longest_s": float(lasted_s.max(initial=0.0)),
        }

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:  # noqa: ARG002
        """The same jobs for all, nobody resized who must not be, and what elasticity is worth."""
        table = self.series(runs)
        ended = [
            label
            for label, run in runs.items()
            if run.column("submit_s") != runs[f"{BASE}-{_workload(label)}"].column("submit_s")
            or not set(run.jobs["state"].to_list()) <= {"done", "rejected"}
        ]
        rejected = {
            label: run.jobs["state"].to_list().count("rejected") for label, run in runs.items()
        }
        refused = sum(rejected.values())
        promised = sum(rejected[label] for label in runs if _policy(label) == "elasticflow")
        resized = {policy: _cell(table, policy, "resizes") for policy in RIGID}
        still = [policy for policy in ELASTIC if not _cell(table, policy, "resizes")]
        longest_s = max(run.extra["longest_s"] for run in runs.values())
        rigid = {policy: _cell(table, policy, "avg_jct_s") for policy in UNTOLD}
        best = min(rigid, key=lambda policy: rigid[policy])
        found = [
            holds(
                "runs in which jobs differ from those of the others, or do not end",
                "none",
                ", ".join(ended) or "none",
                ok=not ended,
            ),
            holds(
                "jobs that were refused",
                "only by elasticflow, which promises deadlines",
                int(refused),
                ok=refused == promised,
            ),
            holds(
                "resizes by rigid policies",
                "0",
                ordered_sum(resized.values()),
                ok=not any(resized.values()),
            ),
            holds(
                "elastic policies that resized nobody",
                "none",
                ", ".join(still) or "none",
                ok=not still,
            ),
            holds(
                "longest time without progress after a change (s)",
                f"at most {CHANGE_S:g}",
                longest_s,
                ok=longest_s <= CHANGE_S,
            ),
        ]
        for policy in TELLING:
            mean = _cell(table, policy, "avg_jct_s")
            found.append(
                holds(
                    f"mean JCT (s): {policy}, and the best rigid policy without an oracle either",
                    f"{policy} is below",
                    f"{policy} {mean:,.0f}, {best} {rigid[best]:,.0f}",
                    ok=mean < rigid[best],
                )
            )
        return found

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """A row per policy: means over workloads, and mean JCTs relative to those of `BASE`."""
        return pl.DataFrame(
            [
                {
                    "policy": policy,
                    "sizes": "elastic" if policy in ELASTIC else "rigid",
                    **_averages([run for label, run in runs.items() if _policy(label) == policy]),
                    **_relative(runs, policy),
                    "knows": _first(runs, policy).summary["assumptions"]["knowledge"],
                }
                for policy in (*RIGID, *ELASTIC)
            ]
        )


# --- jobs ----------------------------------------------------------------------------------------


def _drawn(setting: RecipeSetting) -> tuple[dict[int, str], str, str]:
    """Made-up jobs: files by seed, their format, and the cluster."""
    profiles = write_profiles(setting.folder / "profiles")
    traces = {
        seed: write_jobs(
            setting.folder / f"jobs-{seed}.csv", profiles, jobs=JOBS, load=LOAD, seed=seed
        )
        for seed in SEEDS
    }
    return (
        traces,
        f"sia:profiles={profiles},reference={GPU_TYPE}",
        f"{NODES}x{NODE_GPUS}:{GPU_TYPE}",
    )


def _recorded(setting: RecipeSetting) -> tuple[dict[int, str], str, str]:
    """The same of Pollux' workloads, as its GPUs were measured."""
    profiles = setting.need(PROFILES)
    traces = {
        number: write_due(
            setting.folder / f"workload-{number}.csv",
            _rows(setting.need(f"pollux/workloads/workload-{number}.csv")),
            profiles,
            PROFILED_TYPE,
            number,
        )
        for number in WORKLOADS
    }
    return (
        traces,
        f"sia:profiles={profiles},reference={PROFILED_TYPE}",
        f"{CLUSTER}:{PROFILED_TYPE}",
    )


def _rows(path: Path) -> list[list[str]]:
    columns = ("name", "time", "application", "num_replicas", "batch_size")
    with path.open(encoding="utf-8", newline="") as file:
        return [[row[name] for name in columns] for row in csv.DictReader(file)]


# --- what came out -------------------------------------------------------------------------------


def _policy(label: str) -> str:
    return label.rpartition("-")[0]


def _workload(label: str) -> str:
    return label.rpartition("-")[2]


def _first(runs: Mapping[str, RecipeRun], policy: str) -> RecipeRun:
    return next(run for label, run in runs.items() if _policy(label) == policy)


def _cell(table: pl.DataFrame, policy: str, column: str) -> float:
    return float(table.filter(pl.col("policy") == policy)[column][0])


def _averages(runs: Sequence[RecipeRun]) -> dict[str, float]:
    found = {
        name: round(float(np.mean([run.summary[name] for run in runs])), 1) for name in AVERAGED
    }
    lost = float(np.mean([run.extra["lost_gpu_s"] for run in runs])) / HOUR_S
    return {**found, "lost_gpu_h": round(lost, 2)}


def _relative(runs: Mapping[str, RecipeRun], policy: str) -> dict[str, float]:
    """Geometric mean of the ratios on each workload, with Student's interval."""
    ratios = [
        math.log(run.summary["avg_jct_s"] / runs[f"{BASE}-{_workload(label)}"].summary["avg_jct_s"])
        for label, run in runs.items()
        if _policy(label) == policy
    ]
    middle, count = float(np.mean(ratios)), len(ratios)
    half = student(LEVEL, count - 1) * float(np.std(ratios, ddof=1)) / math.sqrt(count)
    return {
        "jct_ratio": round(math.exp(middle), 3),
        "low": round(math.exp(middle - half), 3),
        "high": round(math.exp(middle + half), 3),
    }


RECIPE = ElasticSideBySide()
