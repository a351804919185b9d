"""Figure 8a of ElasticFlow (Gu et al., ASPLOS 2023): how many of 195 jobs are done in time."""

from collections.abc import Mapping

import polars as pl
from msgspec.structs import replace

from rota.reproduce.recipe import (
    Check,
    Recipe,
    RecipeRun,
    RecipeSetting,
    Scale,
    by_job,
    holds,
    same_rows,
    within,
)
from rota.study.config import RunConfig

RATIO = {"edf": 0.118, "elasticflow": 0.728, "tiresias": 0.287, "gandiva": 0.09}
"""Share of deadlines met in the figure."""
THEIRS = {
    "edf": "edf",
    "elasticflow": "ef-accessctrl",
    "tiresias": "dlas-gpu",
    "gandiva": "gandiva",
}
OURS = ("edf", "elasticflow")
"""Those that are compared with Rota's own policies."""
LONG = "gandiva"
Times = tuple[float, ...]
"""Submission, first start and end."""
CLEAN = "clean"
JOBS = 195
ROUNDING = {"gandiva": 0.005}
"""The others have three digits."""
SLOT_S, OVERHEAD_S = 60.0, 41.0  # the end of a slot, and the most that an event costs


class ElasticFlowFigure(Recipe):
    """The simulator's policies, and Rota's own EDF and ElasticFlow beside them."""

    name = "elasticflow-fig8a"
    summary = "ElasticFlow's simulator: who of 195 jobs is done by its deadline, 64 GPUs"
    paper = (
        "Gu et al., ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep "
        "Learning, ASPLOS 2023"
    )
    source = (
        "figure 8a (plot_fig8a.py: EDF 0.118, Gandiva 0.09, Tiresias 0.287, ElasticFlow 0.728) "
        "and per-job files of the simulator's unmodified policies: 195 jobs on 16 nodes of "
        "4 T4, slots of 60 s"
    )
    needs = ("elasticflow", "profiles/elasticflow")
    takes: Mapping[Scale, str] = {Scale.SMALL: "seconds", Scale.PAPER: "half a minute"}
    leaves_out = "Gandiva"
    known = (
        (
            "the simulator writes the end of a slot, with overhead, but compares the end without "
            "both with the deadline: ours end up to a slot and an overhead earlier"
        ),
        (
            "under Gandiva a job starts when it first runs; the simulator writes when it joined "
            "a group, in which others may be before it"
        ),
        "Themis and Chronus of the figure are not compared",
        (
            "Rota's own policies have no slots, and their runs no overhead: elasticflow promises "
            "and keeps more deadlines, edf gives jobs the GPUs that they ask for"
        ),
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """As in the simulator, and two of them as Rota has them."""
        base = RunConfig(
            trace=str(setting.need("elasticflow/elasticVpollux_e.csv")),
            format=f"elasticflow:throughputs={setting.need('profiles/elasticflow')},gpu=T4",
            cluster="16x4",
            policy="edf",
        )
        found = {}
        for policy in _compared(setting):
            found[policy] = replace(base, policy=policy, like="elasticflow")
        for policy in OURS:
            found[f"{CLEAN}-{policy}"] = replace(base, policy=policy, rates="scaling")
        return found

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Ratios, verdicts, starts and ends."""
        found = []
        for policy in _compared(setting):
            run = runs[policy]
            rounding = ROUNDING.get(policy, 0.0005)
            table = _recorded(setting, THEIRS[policy])
            theirs = by_job(table, ["submit_time", "start_time", "end_time"])
            ours = by_job(
                run.jobs.filter(run.jobs["state"] == "done"),
                ["submit_s", "first_start_s", "end_s"],
            )
            found += [
                within(f"{policy}: deadlines met", _met(run), RATIO[policy], absolute=rounding),
                same_rows(
                    f"{policy}: who was admitted and done",
                    dict.fromkeys(ours, True),
                    dict.fromkeys(theirs, True),
                ),
                _starts(policy, ours, theirs),
            ]
            early = {
                job: theirs[job][2] - theirs[job][0] - (end - submit)
                for job, (submit, _, end) in ours.items()
                if job in theirs
            }
            most = SLOT_S + OVERHEAD_S if policy == "elasticflow" else 0.0
            worst = max(early.values(), default=0.0)
            found.append(
                holds(
                    f"{policy}: largest and smallest lead of an end (s)",
                    f"0 to {most:g}",
                    f"{min(early.values(), default=0.0):g} to {worst:g}",
                    ok=bool(early) and all(0 <= lead <= most for lead in early.values()),
                )
            )
        clean = runs[f"{CLEAN}-elasticflow"]
        late = clean.jobs["tardiness_s"].drop_nulls()
        found.append(
            holds(
                "elasticflow without slots and overhead: admitted jobs that are late",
                "none: deadlines that are promised are kept",
                int((late > 0).sum()),
                ok=not (late > 0).any(),
            )
        )
        found.append(
            holds(
                "deadlines met, Rota's own policies",
                "elasticflow meets more than the simulator's, and more than edf",
                ", ".join(f"{p} {_met(runs[f'{CLEAN}-{p}']):.3f}" for p in OURS),
                ok=_met(clean) > max(_met(runs["elasticflow"]), _met(runs[f"{CLEAN}-edf"])),
            )
        )
        return found


def _compared(setting: RecipeSetting) -> list[str]:
    return [policy for policy in THEIRS if policy != LONG or not setting.small]


def _starts(policy: str, ours: Mapping[str, Times], theirs: Mapping[str, Times]) -> Check:
    """First starts; those of Gandiva are later than recorded if others were before them."""
    waits = {job: start - submit for job, (submit, start, _) in ours.items()}
    recorded = {job: start - submit for job, (submit, start, _) in theirs.items()}
    if policy != "gandiva":
        return same_rows(f"{policy}: wait for the first start", waits, recorded)
    late = [waits[job] - recorded[job] for job in waits if job in recorded]
    return holds(
        f"{policy}: first starts, and when a group was joined",
        "no start before that",
        f"{late.count(0)} at once, {len(late) - late.count(0)} later",
        ok=bool(late) and min(late) >= 0,
    )


def _recorded(setting: RecipeSetting, schedule: str) -> pl.DataFrame:
    """Jobs as the simulator wrote them; some times have a point, most have none."""
    path = setting.need(f"elasticflow/fig8a-T4-195jobs/{schedule}/job.csv")
    times = pl.col("submit_time", "start_time", "end_time").cast(pl.Float64)
    return pl.read_csv(path, infer_schema=False).with_columns(times)


def _met(run: RecipeRun) -> float:
    """Of all jobs."""
    return round(1 - float(run.summary["deadline_misses"]) / JOBS, 4)


RECIPE = ElasticFlowFigure()
