"""What schedules of the same jobs did to whom: waiting, completion and use by group.

- `wait`: all time since the submission in which a job made no progress, without jobs that still ran
  at the end of the log;
- `JCT`: from its submission to its end, without those jobs either;
- `use`: GPU-seconds of progress between the first submission and the end of the log, as a share of
  all GPU-seconds of the cluster in that time; of a partition whose jobs keep to it, as a share of
  those of its own nodes. A schedule on more machines has a larger whole.

Only jobs that ran in the log are counted, under every schedule the same ones. A job that a schedule
could not run has no wait and no JCT there, but is counted in `refused`, or in `waiting` if it waits
for a maintenance or reservation without an end. Jobs that are added (`also`) have rows of their
own, in the schedules that have them.

Changes are against the model of today, a simulation of the same jobs without the change. They count
as `better` or `worse` only where they are larger than the error of the model in the same place,
that is, the difference between the model and what was observed; otherwise they are `within error`.
Where a schedule cannot run jobs that the model runs, means are of other jobs: `other jobs`. A model
that is far from what happened tells nothing: `model is far`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.eventlog import Floats
from rota.core.topology import NodeSpec
from rota.metrics import read_history
from rota.metrics.history import RUNS
from rota.traces.imported import Imported

BY = ("user", "tenant", "partition", "size")
MEASURES = ("jobs", "refused", "mean_wait_s", "p50_wait_s", "p95_wait_s", "mean_jct_s", "gpu_h",
            "use", "waiting")  # fmt: skip
CHANGED = ("mean_wait_s", "p95_wait_s", "mean_jct_s")
"""Measures of which there is a change against the model."""
OBSERVED, MODEL, POLICY, WHAT_IF = "observed", "model", "policy", "what-if"
"""Roles of schedules."""
BETTER, WORSE, WITHIN, OTHER = "better", "worse", "within error", "other jobs"
UNTRUSTED = "model is far"
ALSO = "also"
NONE = "(none)"
SIZES = ("0", "1", "2-4", "5-8", "9-32", "33-")
_HOUR_S = 3_600.0


class Schedule(msgspec.Struct):
    """One schedule of the jobs: its table of jobs (as `fold_jobs`), its log, and its machines."""

    name: str
    jobs: pl.DataFrame
    log: pl.DataFrame
    gpus: int
    numbers: list[int] | None = None  # positions of its jobs in the trace; None: all, in order
    role: str = POLICY
    of_label: dict[str, int] = {}  # GPUs of the nodes with a label


def gpus_by_label(nodes: Iterable[NodeSpec]) -> dict[str, int]:
    """How many GPUs the nodes with each label have."""
    found: Counter[str] = Counter()
    for node in nodes:
        for label in set(node.labels):
            found[label] += node.gpus
    return dict(found)


def attributes(imported: Imported) -> pl.DataFrame:
    """A row per job: `job`, and the group that it belongs to by each of `BY`."""
    return imported.jobs.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("job"),
        _named("user"),
        _named("vc").alias("tenant"),
        _partition().replace("", NONE).alias("partition"),
        size_class().alias("size"),
    )


def size_class() -> pl.Expr:
    """Of each job, one of `SIZES`."""
    gpus = pl.col("num_gpus")
    return (
        pl.when(gpus <= 0).then(pl.lit(SIZES[0]))
        .when(gpus <= 1).then(pl.lit(SIZES[1]))
        .when(gpus <= 4).then(pl.lit(SIZES[2]))  # noqa: PLR2004 - the edges of classes
        .when(gpus <= 8).then(pl.lit(SIZES[3]))  # noqa: PLR2004
        .when(gpus <= 32).then(pl.lit(SIZES[4]))  # noqa: PLR2004
        .otherwise(pl.lit(SIZES[5]))
    )  # fmt: skip


def _partition() -> pl.Expr:
    """As the log names it, or the first label that the job asks for."""
    label = pl.col("labels").list.first().fill_null("")
    return pl.when(pl.col("partition") == "").then(label).otherwise(pl.col("partition"))


def _named(column: str) -> pl.Expr:
    return pl.col(column).fill_null("").replace("", NONE)


def tabulate(
    imported: Imported,
    schedules: Sequence[Schedule],
    also: Mapping[str, Sequence[int]] | None = None,
    *,
    trusted: bool = True,
) -> pl.DataFrame:
    """One row per schedule and group: `by`, `group`, `schedule`, `MEASURES`, and what changed.

    `by` is `all` for everybody; what would be one group only is left out. What changed: `role` of
    the schedule, the change of each of `CHANGED` against the model (`mean_wait_change_s`, ...),
    `model_error_s` (its mean wait minus the observed one) and the `effect` on the mean wait.

    Args:
        imported: The jobs of the log.
        schedules: One of them is the model.
        also: Of each workload that was added, the numbers of its jobs.
        trusted: The model is not far from what happened.
    """
    groups = attributes(imported)
    ran = imported.observed.per_job().select("job", "end_s")
    until_s = log_end_s(imported)
    bound = _bound(imported)
    parts = []
    for schedule in schedules:
        measured = _measured(schedule, until_s)
        table = measured.join(ran, on="job").join(groups, on="job")
        table = table.with_columns(
            jct_s=pl.when(pl.col("end_s").is_not_null()).then(pl.col("jct_s")),
        )
        whole = schedule.gpus * until_s
        for by in ("all", *BY):
            if by == "all" or groups[by].n_unique() > 1:
                key = pl.lit("all") if by == "all" else pl.col(by)
                folded = _folded(table, key, whole)
                if by == "partition":
                    folded = _of_own(folded, schedule, bound)
                parts.append(folded.select(
                    pl.lit(by).alias("by"), "group", pl.lit(schedule.name).alias("schedule"),
                    *MEASURES,
                ))  # fmt: skip
        for name, numbers in (also or {}).items():
            added = measured.filter(pl.col("job").is_in(list(numbers)))
            if added.height:
                parts.append(_folded(added, pl.lit(name), whole).select(
                    pl.lit(ALSO).alias("by"), "group", pl.lit(schedule.name).alias("schedule"),
                    *MEASURES,
                ))  # fmt: skip
    return _against_model(pl.concat(parts), schedules, trusted=trusted)


def effect(
    value: float | None, model: float | None, observed: float | None, *, same_jobs: bool = True
) -> str:
    """What a schedule does to a time, as far as the model can tell; empty: there is no change."""
    if value is None or model is None or value == model:
        return ""
    if not same_jobs:
        return OTHER
    if observed is None or abs(value - model) <= abs(model - observed):
        return WITHIN
    return BETTER if value < model else WORSE


def _against_model(
    table: pl.DataFrame, schedules: Sequence[Schedule], *, trusted: bool
) -> pl.DataFrame:
    roles = {schedule.name: schedule.role for schedule in schedules}
    rows = table.rows(named=True)
    by_role = {
        (roles[row["schedule"]], row["by"], row["group"]): row
        for row in rows
        if roles[row["schedule"]] in (OBSERVED, MODEL)
    }
    columns: dict[str, list[Any]] = {"role": [], **{_change(key): [] for key in CHANGED},
                                     "model_error_s": [], "effect": []}  # fmt: skip
    for row in rows:
        role = roles[row["schedule"]]
        model = by_role.get((MODEL, row["by"], row["group"]), {})
        seen = by_role.get((OBSERVED, row["by"], row["group"]), {})
        compared = role in (POLICY, WHAT_IF)
        columns["role"].append(role)
        for key in CHANGED:
            known = compared and None not in (row[key], model.get(key))
            columns[_change(key)].append(row[key] - model[key] if known else None)
        waits = model.get("mean_wait_s"), seen.get("mean_wait_s")
        known = None not in waits
        columns["model_error_s"].append(
            model["mean_wait_s"] - seen["mean_wait_s"] if known else None
        )
        same = unserved(row) == unserved(model)
        found = effect(row["mean_wait_s"], *waits, same_jobs=same) if compared else ""
        columns["effect"].append(found if trusted or not found else UNTRUSTED)
    floats = [_change(key) for key in CHANGED] + ["model_error_s"]
    types = {**dict.fromkeys(floats, pl.Float64), "role": pl.String, "effect": pl.String}
    return table.hstack(pl.DataFrame(columns, schema_overrides=types))


def _change(key: str) -> str:
    return key.removesuffix("_s") + "_change_s"


def unserved(row: Mapping[str, Any]) -> int:
    """Jobs of the log that have no wait in this row: means are of the others."""
    return int(row.get("refused", 0)) + int(row.get("waiting", 0))


def log_end_s(imported: Imported) -> float:
    """The end of the log; jobs come from 0 on."""
    return imported.until_s or 1.0


def _measured(schedule: Schedule, until_s: float) -> pl.DataFrame:
    """`job`, `wait_s`, `jct_s`, `gpu_s` (all), `inside_s` (until the log ends), `kept_out`."""
    jobs = schedule.jobs
    numbers = schedule.numbers
    return pl.DataFrame(
        {
            "job": range(jobs.height) if numbers is None else numbers,
            "wait_s": jobs["wait_s"],
            "jct_s": jobs["jct_s"],
            "gpu_s": jobs["service_gpu_s"],
            "inside_s": _inside(schedule.log, until_s),
            "kept_out": read_history(schedule.log).kept_out,
        },
        schema_overrides={"job": pl.Int64},
    )


def _inside(log: pl.DataFrame, until_s: float) -> Floats:
    """GPU-seconds of progress of every job up to a time."""
    history = read_history(log)
    length_s = np.clip(history.until_s, None, until_s) - np.clip(history.from_s, None, until_s)
    used = history.per_job(np.where(history.state == RUNS, history.held * length_s, 0.0))
    found: Floats = used[history.is_job]
    return found


def _folded(table: pl.DataFrame, key: pl.Expr, whole: float) -> pl.DataFrame:
    wait = pl.col("wait_s")
    ended = wait.filter(pl.col("jct_s").is_not_null())  # as in `summary.json`
    return (
        table.group_by(key.alias("group"), maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("jobs"),
            (wait.is_null() & ~pl.col("kept_out")).sum().cast(pl.Int64).alias("refused"),
            (wait.is_null() & pl.col("kept_out")).sum().cast(pl.Int64).alias("waiting"),
            ended.mean().alias("mean_wait_s"),
            ended.quantile(0.5, "linear").alias("p50_wait_s"),
            ended.quantile(0.95, "linear").alias("p95_wait_s"),
            pl.col("jct_s").mean().alias("mean_jct_s"),
            (pl.col("gpu_s").sum() / _HOUR_S).alias("gpu_h"),
            (pl.col("inside_s").sum() / whole if whole else pl.lit(None, pl.Float64)).alias("use"),
        )
        .sort("group")
    )


def _bound(imported: Imported) -> set[str]:
    """Partitions whose jobs keep to their nodes."""
    names = imported.jobs.select(
        _partition().alias("partition"), pl.col("labels").list.contains(_partition()).alias("kept")
    )
    kept = names.group_by("partition").agg(pl.col("kept").all())
    return set(kept.filter("kept")["partition"].to_list())


def _of_own(folded: pl.DataFrame, schedule: Schedule, bound: Collection[str]) -> pl.DataFrame:
    """The use of partitions as a share of what their own nodes have."""
    times = {
        name: schedule.gpus / gpus
        for name, gpus in schedule.of_label.items()
        if gpus and name in bound
    }
    if not times:
        return folded
    factor = pl.col("group").replace_strict(times, default=1.0, return_dtype=pl.Float64)
    return folded.with_columns(use=pl.col("use") * factor)


def main_groups(table: pl.DataFrame, by: str, most: int) -> list[str]:
    """The groups that used most, or sizes from small to large."""
    mine = table.filter(pl.col("by") == by)
    if by == "size":
        present = set(mine["group"].to_list())
        return [size for size in SIZES if size in present]
    first = mine.filter(pl.col("schedule") == mine["schedule"][0]) if mine.height else mine
    return list(first.sort("gpu_h", "group", descending=[True, False])["group"].head(most))


def lookup(table: pl.DataFrame) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Rows by (`by`, `group`, `schedule`)."""
    return {(row["by"], row["group"], row["schedule"]): row for row in table.iter_rows(named=True)}
