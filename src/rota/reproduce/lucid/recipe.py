"""Lucid and the baselines in its simulator (Hu et al., ASPLOS 2023)."""

from collections.abc import Sequence

import msgspec
import polars as pl

from rota.reproduce.helios.recipe import VirtualClusterArtifact
from rota.reproduce.lucid.dialect import LUCID, LucidDialect
from rota.reproduce.recipe import Case, Check, RecipeRun, RecipeSetting, within


class LucidArtifact(VirtualClusterArtifact):
    """Six policies on 300 and on 1,000 jobs of Philly."""

    name = "lucid-artifact"
    summary = "Lucid's simulator: start, end, wait and preemptions of every job, 12 runs"
    paper = (
        "Hu et al., Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning "
        "Training Jobs, ASPLOS 2023"
    )
    source = (
        "per-job files of the simulator's unmodified policies: 300 and 1,000 jobs of Philly on one "
        "virtual cluster of 32x8 and 48x8 GPUs, placer consolidate"
    )
    needs = ("common/philly300.csv", "common/philly1000.csv", "lucid")
    known = (
        (
            "lucid was recorded without its profiler and with true durations for its estimates; "
            "job k is of the kind in row 7k (modulo their number) of the measured profiles"
        ),
        "fifo, sjf and qssf are equal on the 300 jobs: hardly anybody waits there",
        "qssf is given true durations times GPUs, as in the recorded runs",
        (
            "Rota's own wait counts overheads of preemptions and the late second of an end, theirs "
            "counts neither: the check subtracts both"
        ),
    )
    like = LucidDialect
    recorded = tuple(
        (workload, policy)
        for workload in ("philly300", "philly1000")
        for policy in ("fifo", "sjf", "srtf", "qssf", "tiresias", LUCID)
    )

    def cases(self, setting: RecipeSetting) -> Sequence[Case]:
        """The recorded runs; lucid's with the measurements that it packs by."""
        profiles = setting.need("lucid")
        return [
            msgspec.structs.replace(
                case,
                config=msgspec.structs.replace(case.config, policy=f"{LUCID}:profiles={profiles}"),
            )
            if case.config.policy == LUCID
            else case
            for case in super().cases(setting)
        ]

    def more(self, case: Case, outcome: RecipeRun, table: pl.DataFrame) -> list[Check]:
        """Jobs that share GPUs run longer than alone, so a wait does not follow from their ends."""
        if not case.config.policy.startswith(f"{LUCID}:"):
            return super().more(case, outcome, table)
        theirs = round(float(table["jct_s"].to_numpy().mean()), 3)
        ours = outcome.summary["avg_jct_s"]
        return [within(f"{case.label}: mean JCT (s)", ours, theirs, relative=0.001)]


RECIPE = LucidArtifact()
