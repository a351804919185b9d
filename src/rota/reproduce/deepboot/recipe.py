"""Two hours of DeepBoot's small workload (Chen et al., TPDS 2023) under five policies."""

from collections.abc import Mapping

import polars as pl

from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds, within
from rota.study.config import RunConfig

THEIRS = {
    "tiresias": "tiresias", "afs": "afs", "lyra": "aryl", "optimus": "optimus",
    "deepboot": "deepboot",
}  # fmt: skip
EQUAL = {"tiresias": 35, "afs": 35, "lyra": 34, "optimus": 35}
"""Training jobs that must end within a second of theirs, of 35."""
SERVED = 428
NEAR = 0.01
TUNED = 0.05
SECOND = 1.5


class DeepBootSmall(Recipe):
    """Mean completion time of training, and the end of every job."""

    name = "deepboot-small"
    summary = "DeepBoot's simulator: 35 training jobs beside 428 requests, five policies"
    paper = (
        "Chen et al., DeepBoot: Dynamic Scheduling System for Training and Inference Deep Learning "
        "Tasks in GPU Cluster, IEEE TPDS 2023"
    )
    source = (
        "per-job files of the simulator's unmodified policies: rows of its small workload with a "
        "submission before 7,200 s, without ImageNet and YOLOv3, on 16 nodes of 4 GPUs"
    )
    needs = ("deepboot", "profiles/pollux-osdi21")
    takes: Mapping[Scale, str] = {Scale.SMALL: "seconds", Scale.PAPER: "seconds"}
    leaves_out = ""
    known = (
        (
            "the simulator's profiles hold every placement twice, the second time with 4 more GPUs "
            "on each node and the same times: ours are made so when they are read"
        ),
        (
            "deepboot tunes batches by fits that end in slightly different places: single jobs "
            "differ, the mean does not"
        ),
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """All five."""
        return {
            policy: RunConfig(
                trace=str(setting.need("deepboot/small-2h.csv")),
                format=f"deepboot:profiles={setting.need('profiles/pollux-osdi21')}",
                cluster="16x4",
                policy=policy,
                like="deepboot",
            )
            for policy in THEIRS
        }

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Means, and how many jobs end when theirs do."""
        found = []
        for policy, name in THEIRS.items():
            table = pl.read_csv(setting.need(f"deepboot/small-2h.{name}.csv"), infer_schema=False)
            theirs = table.select(
                job_id="name",
                theirs=pl.col("jct").cast(pl.Float64),
                trains=pl.col("inference") == "0",
            )
            both = runs[policy].jobs.join(theirs, on="job_id")
            training = both.filter("trains")
            equal = (both["jct_s"] - both["theirs"]).abs() < SECOND
            same = int((equal & both["trains"]).sum())
            served = int((equal & ~both["trains"]).sum())
            tuned = policy not in EQUAL
            found.append(
                within(
                    f"{policy}: mean JCT of training (s)",
                    round(float(training["jct_s"].sum()) / training.height, 1),
                    round(float(training["theirs"].sum()) / training.height, 1),
                    relative=TUNED if tuned else NEAR,
                )
            )
            if not tuned:
                found.append(
                    holds(
                        f"{policy}: jobs that end within a second of theirs",
                        f"{EQUAL[policy]} of {training.height} that train, all {SERVED} requests",
                        f"{same} and {served}",
                        ok=same >= EQUAL[policy] and served == SERVED,
                    )
                )
        return found


RECIPE = DeepBootSmall()
