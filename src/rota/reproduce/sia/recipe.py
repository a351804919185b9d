"""The simulator of Sia (Jayaram Subramanya et al., SOSP 2023): Gavel by job, Sia on average."""

from collections.abc import Mapping, Sequence

import msgspec

from rota.reproduce.recipe import (
    Check,
    Recipe,
    RecipeRun,
    RecipeSetting,
    Scale,
    by_job,
    read_rows,
    same_rows,
    within,
)
from rota.study.config import RunConfig

CLUSTER = "6x4:aws+3x8:rtx+2x8:dgx-ext"
POLICIES = {"sia": "sia", "gavel": "gavel-max-sum"}
"""Their names, and ours."""
SMALL, LARGE = "philly1-first12", "philly1-first40-noimagenet"
LARGE_MEANS = {"sia": 979.3, "gavel": 1644.8}
"""Mean JCT (s) on the larger workload, which has no file: from the table of runs in the data."""
NEAR, LARGE_NEAR = 0.03, 0.05
DIGIT = 0.1
TIES = (
    "many choices cost the same in two digits, and which of them the simulator's solver takes "
    "cannot be known: other orders of ties move the mean by several percent"
)


class SiaArtifact(Recipe):
    """Its own policy within the spread of ties, and Gavel in it exactly."""

    name = "sia-artifact"
    summary = "Sia's simulator: every job of 12 under Gavel, and the mean JCT under Sia; 40 jobs"
    paper = (
        "Jayaram Subramanya et al., Sia: Heterogeneity-aware, goodput-optimized ML-cluster "
        "scheduling, ACM SOSP 2023"
    )
    source = (
        "per-job files of the unmodified simulator: the first 12 jobs of its first Philly workload "
        "on 64 GPUs of three types; of 40 jobs only the means"
    )
    needs = ("sia", "profiles/sia-sosp23")
    takes: Mapping[Scale, str] = {Scale.SMALL: "10 seconds", Scale.PAPER: "20 seconds"}
    leaves_out = "the 40 jobs"
    known: Sequence[str] = (
        TIES,
        "with the simulator's solver (CBC) in the place of ours all 12 jobs are equal",
        "pollux in this simulator is not recorded: it did not finish",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """Both policies on each workload."""
        workloads = [SMALL] if setting.small else [SMALL, LARGE]
        profiles = setting.need("profiles/sia-sosp23")
        return {
            f"{workload}-{theirs}": RunConfig(
                trace=str(setting.need(f"sia/{workload}.csv")),
                format=f"sia:profiles={profiles}",
                cluster=CLUSTER,
                policy=ours,
                like="sia",
            )
            for workload in workloads
            for theirs, ours in POLICIES.items()
        }

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """By job where nothing depends on ties."""
        gavel = f"{SMALL}-gavel"
        rows = by_job(
            read_rows(setting, f"sia/{SMALL}.gavel.csv").rename({"name": "job_id"}), ["jct"]
        )
        ours = {job: float(round(jct)) for job, jct in runs[gavel].column("jct_s").items()}
        theirs = {job: jct for job, (jct,) in rows.items()}
        found = [
            same_rows(f"{gavel}: jct_s", ours, theirs),
            self._mean(runs, SMALL, "sia", _reported(setting, "sia"), NEAR),
        ]
        if not setting.small:
            found.append(self._mean(runs, LARGE, "sia", LARGE_MEANS["sia"], LARGE_NEAR))
            found.append(self._mean(runs, LARGE, "gavel", LARGE_MEANS["gavel"], 0.0))
        return found

    def _mean(
        self, runs: Mapping[str, RecipeRun], workload: str, policy: str, theirs: float, near: float
    ) -> Check:
        ours = round(runs[f"{workload}-{policy}"].summary["avg_jct_s"], 1)
        return within(
            f"{workload}-{policy}: mean JCT (s)", ours, theirs, relative=near, absolute=DIGIT
        )


def _reported(setting: RecipeSetting, policy: str) -> float:
    recorded = msgspec.json.decode(setting.need(f"sia/{SMALL}.{policy}.json").read_bytes())
    return round(float(recorded["avg_jct"]), 1)


RECIPE = SiaArtifact()
