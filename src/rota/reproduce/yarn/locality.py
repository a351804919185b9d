"""Strict locality lengthens queueing, relaxing it helps (the Philly study)."""

from collections.abc import Mapping
from statistics import fmean

import polars as pl

from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds, ordered
from rota.reproduce.yarn.philly import RECORDED, PhillyLike
from rota.study.config import RunConfig

RELAX = {"anywhere": "0", "relaxed": "600", "late": "3600", "strict": "inf"}
"""Seconds for which locality is insisted on; from the least strict to the strictest."""

WORKLOADS = PhillyLike(
    seeds={Scale.SMALL: (1, 2, 3), Scale.PAPER: (1, 2, 3, 4, 5)},
    jobs={Scale.SMALL: 2_000, Scale.PAPER: 5_000},
    load=0.9,
    sizes="1:7663/2:182/4:187/8:164/16:20/32:7",  # Philly's mix without 64 GPUs and more
)
FAIR_SHARE = {
    "philly5k": "nearly all of the wait is fair-share delay here, with shares that are our guess; "
    "the wait of large jobs and the fragmentation delay do follow locality"
}
LARGE = 5  # GPUs
TIMES = 1.5


class YarnLocality(Recipe):
    """YARN's capacity scheduler as in Philly, insisting on locality for a while or for ever."""

    name = "yarn-cs-locality"
    summary = "Philly's scheduler: mean wait with locality relaxed at once, early, late or never"
    paper = (
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training "
        "Workloads, USENIX ATC 2019"
    )
    source = (
        "the finding only: strict locality lengthens queueing, relaxing it helps; what it adds is "
        "fragmentation delay, beside fair-share delay. No values of the study are at hand"
    )
    takes: Mapping[Scale, str] = {Scale.SMALL: "20 s", Scale.PAPER: "2 min"}
    leaves_out = "two seeds and more than half of the jobs; 1,000 recorded jobs instead of 5,000"
    known = (
        "the machines and quotas of Philly's virtual clusters are not public: ours share alike",
        "generated jobs last a day at most and ask for 32 GPUs at most: no single job rules",
        "jobs run as fast when they are spread: what relaxed locality costs them is left out",
        "recorded jobs of Philly are run too if the reference data are there",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """Every seed, and the recorded jobs, under each strictness."""
        policies = {name: f"yarn-cs:relax_s={seconds}" for name, seconds in RELAX.items()}
        return WORKLOADS.runs(setting, policies)

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Of generated jobs over all seeds, and of the recorded ones."""
        del setting  # all scales are checked alike
        table = self.series(runs)
        generated = table.filter(pl.col("workload").str.starts_with("seed"))
        found = _compare("generated", generated)
        for name, _, _ in RECORDED.values():
            recorded = table.filter(pl.col("workload") == name)
            if recorded.height:
                found += _compare(name, recorded, FAIR_SHARE.get(name, ""))
        return found

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """Mean waits and the fragmentation in them, by strictness and workload."""
        rows = []
        for label, outcome in runs.items():
            strictness, _, place = label.partition("-")
            large = outcome.jobs.filter(pl.col("gpus") >= LARGE)["wait_s"].to_list()
            scattered_s = outcome.summary["delay"]["fragmentation"]
            rows.append(
                {
                    "strictness": strictness,
                    "workload": place,
                    "wait_s": outcome.summary["avg_wait_s"],
                    "large_wait_s": fmean(large),
                    "fragmentation_s": scattered_s / outcome.jobs.height,
                }
            )
        return pl.DataFrame(rows)


def _compare(name: str, table: pl.DataFrame, known: str = "") -> list[Check]:
    """The finding, on the means over the workloads of a table; `known`: why waits may differ."""
    means = {
        strictness: table.filter(pl.col("strictness") == strictness).mean().row(0, named=True)
        for strictness in RELAX
    }

    def of(key: str) -> dict[str, float]:
        return {strictness: values[key] for strictness, values in means.items()}

    strict_s, relaxed_s = means["strict"]["wait_s"], means["relaxed"]["wait_s"]
    return [
        ordered(f"{name}: mean wait (s)", of("wait_s"), known=known),
        ordered(f"{name}: mean wait (s) of jobs with {LARGE} GPUs or more", of("large_wait_s")),
        ordered(f"{name}: fragmentation delay (s per job)", of("fragmentation_s")),
        holds(
            f"{name}: mean wait (s), strict against relaxed",
            f"at least {TIMES:g} times as long",
            f"{strict_s:,.0f} against {relaxed_s:,.0f}",
            ok=strict_s > 0 and strict_s >= TIMES * relaxed_s,
            known=known,
        ),
    ]


RECIPE = YarnLocality()
