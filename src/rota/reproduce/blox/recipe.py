"""The simulator of Blox (Agarwal et al., EuroSys 2024), job by job."""

from collections.abc import Mapping, Sequence

import polars as pl

from rota.reproduce.recipe import (
    Artifact,
    Case,
    Check,
    RecipeRun,
    RecipeSetting,
    Scale,
    same_rows,
    within,
)
from rota.study.config import RunConfig

PAPER = (
    "Agarwal et al., Blox: A Modular Toolkit for Deep Learning Schedulers, EuroSys 2024 "
    "(arXiv:2312.12621)"
)
NODES = {"single300": 6, "multi300": 8, "multi2000": 40}
ROUND_S = 300.0

# (mean JCT in s, preemptions) as recorded with the per-job files.
RECORDED = {
    ("single300", "fifo"): (7255.1, 0),
    ("single300", "las"): (6517.1, 245),
    ("single300", "tiresias"): (6517.1, 245),
    ("single300", "srtf"): (5614.1, 88),
    ("multi300", "fifo"): (26880.6, 0),
    ("multi300", "las"): (16387.6, 1763),
    ("multi300", "tiresias"): (16387.6, 1763),
    ("multi300", "srtf"): (9803.6, 103),
}
REPAIRED = {"fifo": 18421.6, "las": 11087.6, "srtf": 6992.6}  # scatter bug repaired, multi300
LARGE = {"fifo": 161113.3, "las": 14616.8, "srtf": 212937.1}  # multi2000
ROUNDING = 0.06


class BloxArtifact(Artifact):
    """Ends, first rounds and preemptions of two workloads of 300 jobs under four policies."""

    name = "blox-artifact"
    summary = "Blox' simulator: completion of every job and preemption totals, 8 runs of 300 jobs"
    paper = PAPER
    source = (
        "per-job files of the unmodified simulator, and the table of means and preemptions "
        "recorded with them: single300 on 6x4 GPUs, multi300 on 8x4 GPUs, rounds of 300 s"
    )
    needs = ("blox",)
    takes: Mapping[Scale, str] = {Scale.SMALL: "seconds", Scale.PAPER: "seconds"}
    leaves_out = "the means of multi2000 (2,000 jobs on 40x4 GPUs)"
    known = (
        "Optimus is not run: it crashes in every run of the simulator",
        (
            "multi2000 las and srtf, and the repaired placement, are not Blox' own output: they "
            "were computed by an independent restatement that equals Blox on all recorded jobs"
        ),
    )

    def cases(self, setting: RecipeSetting) -> Sequence[Case]:
        """The recorded runs."""
        return [
            Case(
                label=f"{workload}-{policy}",
                config=_config(setting, workload, policy),
                theirs=f"blox/result_{workload}_{policy}.csv",
                columns={"end_s": "completion_time_s"},
            )
            for workload, policy in RECORDED
        ]

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """The recorded runs, and those of which only means are known."""
        runs = super().runs(setting)
        for policy in REPAIRED:
            runs[f"repaired-{policy}"] = _config(
                setting, "multi300", policy, like="blox:scatter=fixed"
            )
        if not setting.small:
            for policy in LARGE:
                runs[f"multi2000-{policy}"] = _config(setting, "multi2000", policy)
        return runs

    def more(self, case: Case, outcome: RecipeRun, table: pl.DataFrame) -> list[Check]:
        """First rounds, and the totals."""
        _, workload, policy = case.theirs.removesuffix(".csv").split("_")
        mean_s, preemptions = RECORDED[workload, policy]
        rounds = dict(zip(table["job_id"], table["first_round_end_s"] - ROUND_S, strict=True))
        return [
            same_rows(f"{case.label}: first_start_s", outcome.column("first_start_s"), rounds),
            within(f"{case.label}: preemptions", outcome.summary["preemptions"], preemptions),
            _mean(case.label, outcome, mean_s),
        ]

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Job by job, then the means."""
        found = super().checks(setting, runs)
        means = {f"repaired-{policy}": mean_s for policy, mean_s in REPAIRED.items()}
        means |= {f"multi2000-{policy}": mean_s for policy, mean_s in LARGE.items()}
        return found + [
            _mean(label, runs[label], mean_s) for label, mean_s in means.items() if label in runs
        ]


def _config(setting: RecipeSetting, workload: str, policy: str, like: str = "blox") -> RunConfig:
    return RunConfig(
        trace=str(setting.need(f"blox/jobs_{workload}.csv")),
        format="csv",
        cluster=f"{NODES[workload]}x4",
        policy=policy,
        like=like,
    )


def _mean(label: str, outcome: RecipeRun, mean_s: float) -> Check:
    ours = round(outcome.summary["avg_jct_s"], 2)
    return within(f"{label}: mean JCT (s)", ours, mean_s, absolute=ROUNDING)


RECIPE = BloxArtifact()
