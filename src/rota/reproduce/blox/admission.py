"""Accept-all against load thresholds under bursts (Blox, Figures 12 and 13)."""

from collections.abc import Mapping
from statistics import fmean

import polars as pl

from rota.metrics.window import Window
from rota.reproduce.blox.recipe import PAPER
from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds, ordered
from rota.study.config import RunConfig
from rota.study.run import RunResult
from rota.traces.synth.generate import generate

CLUSTER, GPUS = "32x4", 128
ALL = "accept-all"
ADMISSIONS = {
    ALL: ALL,
    "1.6": "load:threshold=1.6",
    "1.4": "load:threshold=1.4",
    "1.2": "load:threshold=1.2",
}
"""From the loosest to the tightest."""

SEEDS = {Scale.SMALL: (1, 2, 3), Scale.PAPER: (1, 2, 3, 4, 5, 6)}
JOBS = {Scale.SMALL: 3_000, Scale.PAPER: 8_000}
MEASURED = {Scale.SMALL: "ids=1000:2000", Scale.PAPER: "ids=3000:4000"}
BURSTS = {
    "durations": "gavel", "sizes": "1", "on_s": "360000", "off_s": "180000", "ratio": "2",
    "even": "no",
}  # fmt: skip
BUSY, QUIET = 1.0, 0.5  # mean loads; while it is on the busy one is above what the GPUs can do

HOURS = range(4, 168, 4)  # Gavel's longest jobs last 166.7 h
LAS = "las:limits=" + "/".join(str(3_600 * hour) for hour in HOURS)
SLACK = 0.005
SAME = 0.01


class BloxAdmission(Recipe):
    """What thresholds do to LAS when the load comes in bursts."""

    name = "blox-admission"
    summary = "LAS with accept-all or load thresholds, arrivals at a high and a low rate in turn"
    paper = PAPER
    source = "Figures 12 and 13, their shape only: no values of the figures are at hand"
    takes: Mapping[Scale, str] = {Scale.SMALL: "10 s", Scale.PAPER: "2 min"}
    leaves_out = "three seeds; jobs 1000 to 2000 of 3,000 are measured, not 3000 to 4000 of 8,000"
    known = (
        (
            "the lengths and rates of Blox' two phases are not at hand: ours are 100 h and 50 h on "
            "average, at 2 to 1, around the load that the GPUs can just serve"
        ),
        "LAS is in steps of 4 h of service and decides every 300 s; Blox compares seconds",
        (
            "whether a threshold lowers the JCT from submission depends on the burst: it is "
            "checked for the best threshold only, over all seeds"
        ),
        "Blox stamps responsiveness at the end of the first round, 300 s later than ours",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """Every admission with every seed under bursts, and two at a low load."""
        traces = {f"seed{seed}": _trace(setting, seed, BUSY) for seed in SEEDS[setting.scale]}
        runs = {
            f"{name}-{place}": _config(setting, trace, admission)
            for place, trace in traces.items()
            for name, admission in ADMISSIONS.items()
        }
        quiet = _trace(setting, SEEDS[setting.scale][0], QUIET)
        for name in (ALL, "1.2"):
            runs[f"{name}-quiet"] = _config(setting, quiet, ADMISSIONS[name])
        return runs

    def digest(self, result: RunResult) -> dict[str, float]:
        """Means over the measured jobs: from submission and from entry into the queue."""
        window = Window.parse(str(result.config.measure))
        let_in = result.log.filter(pl.col("event") == "admitted").select("job", entry_s="time_s")
        jobs = (
            result.jobs.with_row_index("job")
            .filter(pl.Series(window.chooses(result.jobs)))
            .join(let_in.cast({"job": pl.UInt32}), on="job", how="left")
            .with_columns(pl.col("entry_s").fill_null(pl.col("submit_s")))
        )
        means = jobs.select(
            jct_s=pl.col("jct_s").mean(),
            from_entry_s=(pl.col("end_s") - pl.col("entry_s")).mean(),
            first_start_s=(pl.col("first_start_s") - pl.col("submit_s")).mean(),
            preemptions=pl.col("preemptions").sum(),
        )
        return {key: float(value) for key, value in means.row(0, named=True).items()}

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """The trade: what is inside finishes sooner, what is outside starts later."""
        del setting  # all scales are checked alike
        means = _means(runs)
        tight_first = list(reversed(ADMISSIONS))

        def of(key: str, order: list[str]) -> dict[str, float]:
            return {name: means[name][key] for name in order}

        jct_s = of("jct_s", tight_first)
        best = min((name for name in jct_s if name != ALL), key=lambda name: jct_s[name])
        quiet_s = [runs[f"{name}-quiet"].extra["jct_s"] for name in ("1.2", ALL)]
        return [
            ordered("mean JCT (s) from entry", of("from_entry_s", tight_first), slack=SLACK),
            ordered(
                "mean time (s) to the first start",
                of("first_start_s", list(ADMISSIONS)),
                slack=SLACK,
            ),
            ordered("preemptions", of("preemptions", ["1.2", ALL])),
            holds(
                "mean JCT (s) from submission, best threshold",
                f"at most that of {ALL} ({jct_s[ALL]:,.0f})",
                f"{best}: {jct_s[best]:,.0f}",
                ok=jct_s[best] <= jct_s[ALL],
            ),
            holds(
                f"mean JCT (s) at load {QUIET:g} with 1.2",
                f"± {100 * SAME:g} % of that with {ALL} ({quiet_s[1]:,.0f})",
                round(quiet_s[0]),
                ok=abs(quiet_s[0] - quiet_s[1]) <= SAME * quiet_s[1],
            ),
        ]

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """Means by admission and seed."""
        rows = []
        for label, outcome in runs.items():
            name, _, place = label.rpartition("-")
            rows.append({"admission": name, "workload": place, **outcome.extra})
        return pl.DataFrame(rows)


def _means(runs: Mapping[str, RecipeRun]) -> dict[str, dict[str, float]]:
    """By admission, over the seeds."""
    found: dict[str, dict[str, float]] = {}
    for name in ADMISSIONS:
        digests = [
            outcome.extra for label, outcome in runs.items() if label.startswith(f"{name}-seed")
        ]
        found[name] = {key: fmean(digest[key] for digest in digests) for key in digests[0]}
    return found


def _config(setting: RecipeSetting, trace: str, admission: str) -> RunConfig:
    return RunConfig(
        trace=trace,
        format="csv",
        cluster=CLUSTER,
        policy=LAS,
        placement="best-fit",
        admission=admission,
        round="300",
        measure=MEASURED[setting.scale],
    )


def _trace(setting: RecipeSetting, seed: int, load: float) -> str:
    count = JOBS[setting.scale]
    workload = generate("bursts", jobs=count, gpus=GPUS, load=load, seed=seed, options=BURSTS)
    return setting.keep(workload, f"bursts-{load:g}-seed{seed}")


RECIPE = BloxAdmission()
