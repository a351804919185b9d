"""Chronus' simulator on 200 and on 1,000 jobs of Philly (Gao et al., SoCC 2021)."""

from collections.abc import Mapping

import polars as pl

from rota.reproduce.chronus.accounts import DECLINED
from rota.reproduce.chronus.dialect import MINUTE_S
from rota.reproduce.chronus.loop import STANDING
from rota.reproduce.recipe import (
    Check,
    Recipe,
    RecipeRun,
    RecipeSetting,
    Scale,
    by_job,
    holds,
    read_rows,
    same_rows,
    within,
)
from rota.study.config import RunConfig
from rota.study.run import RunResult

CLUSTERS = {"p200": "16x8", "p1000": "60x8"}
LARGE = "p1000"
CLEAN = "clean"
FILE = "time-aware-with-lease.csv"
TOLERANCE = 0.03
MORE_MISSES = 2
OTHERS = 0.1
"""Of the declined jobs."""
OPTIMA = (
    "the programme has many best solutions: CBC chose others than HiGHS, and with more than 400 "
    "jobs with deadlines the leases that were chosen before decide who runs"
)


class ChronusArtifact(Recipe):
    """The simulator's scheduler, and Rota's own policy beside it."""

    name = "chronus-artifact"
    summary = "Chronus' simulator: end and preemptions of 200 jobs; means and misses of 1,000"
    paper = (
        "Gao et al., Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs, "
        "SoCC 2021"
    )
    source = (
        "per-job files of the simulator's scheduler time-aware-with-lease, with CBC for Gurobi: "
        "the first 200 and 1,000 jobs of trace_job_Philly_MIX1.csv on 16 and 60 nodes of 8 GPUs, "
        "leases of 20 minutes; no table or figure of the paper"
    )
    needs = ("chronus",)
    takes: Mapping[Scale, str] = {Scale.SMALL: "seconds", Scale.PAPER: "seconds"}
    leaves_out = ""
    known = (
        (
            "the leases are solutions of an integer programme, of which many are best: on 200 jobs "
            "that does not matter, on 1,000 the means agree and single jobs do not"
        ),
        (
            "a job counts as declined if it was when it was last stopped: jobs that were never "
            "stopped are left out on both sides"
        ),
        (
            "Rota's own policy has no slots, no filling and no costs: it promises what it can keep "
            "and refuses the rest, so its jobs are others than the simulator's"
        ),
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """As in the simulator, and as Rota has it."""
        found = {}
        for label, cluster in CLUSTERS.items():
            run = RunConfig(
                trace=str(setting.need(f"chronus/{label}.csv")),
                format="chronus",
                cluster=cluster,
                policy="chronus",
                like="chronus",
            )
            found[label] = run
            found[f"{CLEAN}-{label}"] = RunConfig(
                trace=run.trace,
                format=run.format,
                cluster=cluster,
                policy="chronus:declined=refuse",
            )
        return found

    def digest(self, result: RunResult) -> list[str]:
        """Who was declined, as the log says at its last stop."""
        stops = result.log.filter(pl.col("event") == "stop").group_by("job").agg(
            pl.col("text").last()
        )  # fmt: skip
        declined = stops.filter(pl.col("text") == STANDING[DECLINED])["job"].to_list()
        ids = result.jobs["job_id"].to_list()
        return sorted(ids[index] for index in declined)

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Every job of the small file; means, misses and who was declined of both."""
        found = []
        for label in CLUSTERS:
            run, table = runs[label], read_rows(setting, f"chronus/{label}/{FILE}")
            found += [_jobs(label, run, table), *_numbers(label, run, table)]
            found.append(_kept(label, runs[f"{CLEAN}-{label}"]))
        return found


def _jobs(label: str, run: RecipeRun, table: pl.DataFrame) -> Check:
    """Times are compared from the submission on: runs begin with the first one."""
    ours = {
        job: (round((end_s - submit_s) / MINUTE_S, 6), stops)
        for job, (submit_s, end_s, stops) in by_job(
            run.jobs, ["submit_s", "end_s", "preemptions"]
        ).items()
    }
    theirs = {
        job: (round(end - submit, 6), stops)
        for job, (submit, end, stops) in by_job(
            table, ["submit_time", "end_time", "preempt"]
        ).items()
    }
    known = dict.fromkeys(theirs, OPTIMA) if label == LARGE else None
    return same_rows(f"{label}: minutes to the end, preemptions", ours, theirs, known=known)


def _numbers(label: str, run: RecipeRun, table: pl.DataFrame) -> list[Check]:
    mean = float((table["end_time"] - table["submit_time"]).to_numpy().mean())
    late = int(table["gt_miss_ddl"].sum())
    declined = table.filter(
        (pl.col("queue_priority") == DECLINED)
        & (pl.col("best_effort") == 0)
        & (pl.col("preempt") > 0)
    )["job_id"].to_list()
    ours, theirs = set(run.extra), set(declined)
    missed = run.summary["deadline_misses"]
    exact = label != LARGE
    return [
        within(
            f"{label}: mean JCT (min)",
            round(run.summary["avg_jct_s"] / MINUTE_S, 2),
            round(mean, 2),
            relative=0.0001 if exact else TOLERANCE,
        ),
        within(f"{label}: deadlines missed", missed, late, absolute=0 if exact else MORE_MISSES),
        holds(
            f"{label}: declined jobs with a deadline, and those that are declined in one only",
            "the same" if exact else f"at most {100 * OTHERS:g} % of them others",
            f"{len(ours)}, {len(ours ^ theirs)} others",
            ok=len(ours ^ theirs) <= (0 if exact else OTHERS * len(theirs)),
            theirs=len(theirs),
        ),
    ]


def _kept(label: str, clean: RecipeRun) -> Check:
    done = clean.jobs.filter(pl.col("state") == "done")
    late = int((done["tardiness_s"].fill_null(0.0) > 0).sum())
    refused = clean.jobs.height - done.height
    return holds(
        f"{label}, Rota's own policy: deadlines that were promised and missed",
        "none",
        f"{late}; {refused} jobs refused",
        ok=late == 0,
    )


RECIPE = ChronusArtifact()
