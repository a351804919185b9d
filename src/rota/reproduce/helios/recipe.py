"""The simulator of Helios' QSSF service (Hu et al., SC 2021), job by job."""

from collections.abc import Sequence
from typing import ClassVar

import polars as pl

from rota.reproduce.helios.dialect import HeliosDialect
from rota.reproduce.recipe import (
    Artifact,
    Case,
    Check,
    RecipeRun,
    RecipeSetting,
    philly_run,
    same_rows,
)

LATE_S = 1  # ends under policies that preempt


class VirtualClusterArtifact(Artifact):
    """A simulator of Helios' kind: one virtual cluster, files `<policy>_jobs.csv`."""

    like: ClassVar[type[HeliosDialect]]
    recorded: ClassVar[Sequence[tuple[str, str]]]
    """(workload, policy)."""

    def cases(self, setting: RecipeSetting) -> Sequence[Case]:
        """The recorded runs."""
        like = self.like.name
        return [
            Case(
                label=f"{workload}-{policy}",
                config=philly_run(setting, like, workload, policy),
                theirs=f"{like}/{workload}/{policy}_jobs.csv",
                columns={
                    "first_start_s": "start_s",
                    "end_s": "end_s",
                    "preemptions": "ckpt_times",
                },
            )
            for workload, policy in self.recorded
        ]

    def more(self, case: Case, outcome: RecipeRun, table: pl.DataFrame) -> list[Check]:
        """Their waits, which count neither overheads nor the late second of an end."""
        ends_s, stops = outcome.column("end_s"), outcome.column("preemptions")
        like = self.like()
        late_s = LATE_S if case.config.policy in ("srtf", "tiresias") else 0
        ours, theirs = {}, {}
        for row in table.iter_rows(named=True):
            job = row["job_id"]
            spent_s = row["duration_s"] + stops[job] * like.overhead_s(row["num_gpus"]) + late_s
            ours[job] = ends_s[job] - row["submit_s"] - spent_s
            theirs[job] = row["queue_s"]
        return [same_rows(f"{case.label}: wait without overheads", ours, theirs)]


class HeliosArtifact(VirtualClusterArtifact):
    """Four policies on 1,000 jobs of Philly."""

    name = "helios-artifact"
    summary = "Helios' simulator: start, end, wait and preemptions of every job, 4 policies"
    paper = (
        "Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU "
        "Datacenters, SC 2021"
    )
    source = (
        "per-job files of the simulator's unmodified policies: 1,000 jobs of Philly on one virtual "
        "cluster of 48x8 GPUs, placer consolidate"
    )
    needs = ("common/philly1000.csv", "helios/philly1000")
    known = (
        (
            "qssf is given true durations times GPUs, as in the recorded run; the paper's "
            "predictor is not part of it"
        ),
        (
            "Rota's own wait counts overheads of preemptions and the late second of an end, theirs "
            "counts neither: the check subtracts both"
        ),
    )
    like = HeliosDialect
    recorded = tuple(("philly1000", policy) for policy in ("fifo", "sjf", "srtf", "qssf"))


RECIPE = HeliosArtifact()
