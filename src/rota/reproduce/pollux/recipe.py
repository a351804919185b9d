"""Pollux' simulator (Qiao et al., OSDI 2021): its policies job by job, and loads of the cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import polars as pl

from rota.core.sums import ordered_sum
from rota.reproduce.recipe import (
    Check,
    Recipe,
    RecipeRun,
    RecipeSetting,
    Scale,
    between,
    ordered,
    same_rows,
    within,
)
from rota.study.config import RunConfig

PAPER = (
    "Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, "
    "USENIX OSDI 2021"
)
POLICIES = ("tiresias", "optimus", "pollux")
PROFILES = "profiles/pollux-osdi21"
SMALL, ALL = (6,), range(1, 9)
NEAR, EACH = 0.03, 0.05  # of a search by chance: the mean of all workloads, and each of them

# Mean JCT in s over eight workloads, by load (figure 8a of the paper).
MEAN_JCT_S = {
    "0.5": {"pollux": 1534.0, "optimus": 2395.4, "tiresias": 2091.5},
    "1.0": {"pollux": 2751.1, "optimus": 5681.9, "tiresias": 4038.2},
    "1.5": {"pollux": 3685.4, "optimus": 7234.6, "tiresias": 6182.3},
    "2.0": {"pollux": 5289.2, "optimus": 9721.0, "tiresias": 10039.5},
}
HALVES = ("cifar10-53", "bert-86")  # of workloads 2 and 4, under optimus
ROUNDED = "an epoch whose end falls on half a second is rounded the other way"


def _config(setting: RecipeSetting, load: str, workload: int, policy: str) -> RunConfig:
    folder = "workloads" if load == "1.0" else f"workloads-{load}"
    return RunConfig(
        trace=str(setting.need(f"pollux/{folder}/workload-{workload}.csv")),
        format=f"pollux:profiles={setting.need(PROFILES)}",
        cluster="16x4",
        policy=policy,
        like="pollux",
    )


def _published(setting: RecipeSetting, policy: str, load: str) -> Mapping[str, Mapping[str, float]]:
    """JCTs by workload and job."""
    file = setting.find(f"pollux/published/jobload-{policy}-{load}.json")
    return _jcts(file) if file is not None else {}


def _jcts(file: Path) -> Mapping[str, Mapping[str, float]]:
    found = msgspec.json.decode(file.read_bytes())["jcts"]
    return {name: {job: float(jct) for job, jct in jobs.items()} for name, jobs in found.items()}


def _mean(runs: Sequence[RecipeRun]) -> float:
    mean: float = ordered_sum(run.summary["avg_jct_s"] for run in runs) / len(runs)
    return round(mean, 1)


class PolluxArtifact(Recipe):
    """Three policies on the published workloads."""

    name = "pollux-artifact"
    summary = (
        "Pollux' simulator: JCT of every job under tiresias, optimus and pollux, 160 jobs each"
    )
    paper = PAPER
    source = (
        "the authors' own results, JCTs by job: eight workloads of 160 jobs on 16 nodes of 4 GPUs"
    )
    needs = ("pollux", PROFILES)
    takes = {Scale.SMALL: "10 s", Scale.PAPER: "1 min"}
    leaves_out = "seven of the eight workloads"
    known = (
        "pollux searches by chance in the original: its mean is compared, not its jobs",
        ROUNDED,
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """All policies on each workload."""
        return {
            f"{policy}-{number}": _config(setting, "1.0", number, policy)
            for policy in POLICIES
            for number in (SMALL if setting.small else ALL)
        }

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Job by job where the original is deterministic, else means."""
        found = []
        numbers = SMALL if setting.small else ALL
        for policy in POLICIES:
            published = _published(setting, policy, "1.0")
            for number in numbers:
                run, theirs = runs[f"{policy}-{number}"], published[f"workload-{number}"]
                label = f"workload {number}, {policy}"
                mean = ordered_sum(theirs.values()) / len(theirs)
                if policy != "pollux":
                    known = dict.fromkeys(HALVES, ROUNDED) if policy == "optimus" else {}
                    found.append(
                        same_rows(f"{label}: jct_s", run.column("jct_s"), theirs, known=known)
                    )
                near = EACH if policy == "pollux" else 1e-3
                found.append(
                    within(
                        f"{label}: mean JCT (s)",
                        round(run.summary["avg_jct_s"], 1),
                        round(mean, 1),
                        relative=near,
                    )
                )
            if not setting.small:
                ours = _mean([runs[f"{policy}-{number}"] for number in numbers])
                found.append(
                    within(
                        f"{policy}: mean of all (s)", ours, MEAN_JCT_S["1.0"][policy], relative=NEAR
                    )
                )
        return found


class PolluxLoad(Recipe):
    """The same jobs, more or fewer of them in the same time."""

    name = "pollux-load"
    summary = "Pollux, figure 8a: mean JCT of three policies when the load of the cluster grows"
    paper = PAPER
    source = "figure 8a, by the authors' own results: means of eight workloads at four loads"
    needs = ("pollux", PROFILES)
    takes = {Scale.SMALL: "10 s", Scale.PAPER: "6 min"}
    leaves_out = "seven of the eight workloads, and loads of 1.5 and 2"
    known = (ROUNDED,)

    def _loads(self, setting: RecipeSetting) -> Sequence[str]:
        return ("0.5", "1.0") if setting.small else tuple(MEAN_JCT_S)

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """All policies at each load."""
        return {
            f"{policy}-{load}-{number}": _config(setting, load, number, policy)
            for policy in POLICIES
            for load in self._loads(setting)
            for number in (SMALL if setting.small else ALL)
        }

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Means by load; pollux is the best at each."""
        found = []
        numbers = SMALL if setting.small else ALL
        for load in self._loads(setting):
            ours = {}
            for policy in POLICIES:
                ours[policy] = _mean([runs[f"{policy}-{load}-{n}"] for n in numbers])
                theirs = MEAN_JCT_S[load][policy]
                if setting.small:
                    jcts = _published(setting, policy, load)["workload-6"]
                    theirs = round(ordered_sum(jcts.values()) / len(jcts), 1)
                near = EACH if policy == "pollux" else 2e-3
                label = f"load {load}, {policy}: mean JCT (s)"
                found.append(within(label, ours[policy], theirs, relative=near))
            best = {name: ours[name] for name in ("pollux", "tiresias", "optimus")}
            found.append(
                between(
                    f"load {load}: pollux over the better of the others",
                    round(best["pollux"] / min(best["tiresias"], best["optimus"]), 3),
                    0.0,
                    1.0,
                )
            )
        by_load = {
            load: _mean([runs[f"pollux-{load}-{n}"] for n in numbers])
            for load in self._loads(setting)
        }
        found.append(ordered("pollux: mean JCT (s) grows with the load", by_load))
        return found

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """Mean JCT by policy, load and workload."""
        rows = [
            (*label.rsplit("-", 2), round(run.summary["avg_jct_s"], 1))
            for label, run in runs.items()
        ]
        return pl.DataFrame(rows, schema=["policy", "load", "workload", "avg_jct_s"], orient="row")


ARTIFACT = PolluxArtifact()
LOAD = PolluxLoad()
