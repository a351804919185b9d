"""Who wins and who loses under a policy: jobs by size, duration and tenant.

The number of a group is the mean JCT of its completed jobs, as a ratio to that under the baseline.
Over several replications it has the interval and the verdict of all ratios; of one run it has
neither. Replications that repeat each other (nothing was random) count once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rota.core.errors import RotaError
from rota.core.sums import ordered_sum
from rota.metrics.vocabulary import BY_KEY
from rota.report.data import NO_TENANT
from rota.report.source import ReportSource, RunView
from rota.study.compare_file import Measured, RunOf
from rota.study.measures import judge
from rota.study.output import JOBS
from rota.study.statistics import ratio_interval

LEAST_JOBS = 20
"""Completed jobs of a group over all replications, below which nothing is judged."""
MOST_TENANTS = 6
OTHERS = "others"
SIZES = (
    (1, "1 GPU or less"),
    (2, "2"),
    (4, "3-4"),
    (8, "5-8"),
    (16, "9-16"),
    (float("inf"), "more"),
)
DURATIONS = (
    (60, "under 1m"), (600, "1-10m"), (3_600, "10m-1h"), (36_000, "1-10h"), (86_400, "10h-1d"),
    (float("inf"), "longer"),
)  # fmt: skip
_JCT = BY_KEY["avg_jct_s"]
_COLUMNS = ("job_id", "tenant", "gpus", "jct_s", "wait_s", "state")


class JobGroups(NamedTuple):
    """One way to divide the jobs: `cells` by policy and group; the baseline has means only."""

    by: str
    names: list[str]
    jobs: list[int]
    cells: dict[str, list[Measured]]


def job_groups(source: ReportSource, folder: Path | None) -> list[JobGroups]:
    """By size, duration and tenant; those that would have one group only are left out."""
    tables = _tables(source, folder)
    if source.single or not tables:
        return []
    found = []
    for by in ("size", "duration", "tenant"):
        made = _divided(source, tables, by)
        if made is not None and len(made.names) > 1:
            found.append(made)
    return found


Replication = tuple[int, int | None]


def _tables(
    source: ReportSource, folder: Path | None
) -> dict[Replication, dict[str, pl.DataFrame]]:
    """The completed jobs of every policy by replication; only replications that all have."""
    looks = {(look.name, look.folder): look for look in source.looks}
    found: dict[Replication, dict[str, pl.DataFrame]] = {}
    for run in source.comparison.runs:
        table = _jobs_of(run, looks.get((run.policy, run.folder)), folder)
        if table is not None:
            found.setdefault((run.seed, run.window), {})[run.policy] = table
    policies = {row.policy for row in source.comparison.rows}
    return {key: tables for key, tables in found.items() if set(tables) == policies}


def _jobs_of(run: RunOf, look: RunView | None, folder: Path | None) -> pl.DataFrame | None:
    if look is not None:
        chosen = look.jobs.filter(pl.Series(look.window.chooses(look.jobs), dtype=pl.Boolean))
        return chosen.filter(pl.col("state") == "done").select(_COLUMNS)
    if folder is None or str((run.summary.get("measured") or {}).get("window") or "all") != "all":
        return None
    try:
        table = pl.read_csv(folder / run.folder / JOBS, schema_overrides={"job_id": pl.String})
        return table.filter(pl.col("state") == "done").select(
            pl.col("job_id").cast(pl.String), pl.col("tenant").cast(pl.String),
            pl.col("gpus", "jct_s", "wait_s").cast(pl.Float64), "state",
        )  # fmt: skip
    except (OSError, pl.exceptions.PolarsError, RotaError):
        return None


def _divided(
    source: ReportSource, tables: Mapping[Replication, Mapping[str, pl.DataFrame]], by: str
) -> JobGroups | None:
    base = source.comparison.baseline
    labelled = {key: _labels(found[base], by) for key, found in tables.items()}
    names = _names(list(labelled.values()), by)
    if by == "tenant":
        labelled = {
            key: table.with_columns(
                group=pl.when(pl.col("group").is_in(names)).then("group").otherwise(pl.lit(OTHERS))
            )
            for key, table in labelled.items()
        }
        if any(OTHERS in set(table["group"]) for table in labelled.values()):
            names = [*dict.fromkeys([*names, OTHERS])]
    means: dict[str, dict[str, list[float | None]]] = {}
    jobs = dict.fromkeys(names, 0)
    for key, found in tables.items():
        for policy, table in found.items():
            of_group = _means(table, labelled[key])
            for name in names:
                mean, count = of_group.get(name, (None, 0))
                means.setdefault(policy, {}).setdefault(name, []).append(mean)
                jobs[name] += count if policy == base else 0
    cells = {
        policy: [
            _cell(means[base][name], found[name], jobs[name], own=policy == base) for name in names
        ]
        for policy, found in means.items()
    }
    return JobGroups(by, names, [jobs[name] for name in names], cells)


def _labels(jobs: pl.DataFrame, by: str) -> pl.DataFrame:
    """The group of each job: the same under all policies."""
    if by == "tenant":
        group = pl.col("tenant").fill_null("").replace("", NO_TENANT)
    else:
        value, steps = (
            (pl.col("gpus"), SIZES)
            if by == "size"
            else (pl.col("jct_s") - pl.col("wait_s"), DURATIONS)
        )
        group = pl.lit(steps[-1][1])
        for limit, name in reversed(steps[:-1]):
            group = pl.when(value <= limit + 1e-9).then(pl.lit(name)).otherwise(group)
    return jobs.select("job_id", "gpus", "jct_s", "wait_s", group=group)


def _names(labelled: Sequence[pl.DataFrame], by: str) -> list[str]:
    """Groups that have jobs, in their order; tenants with the most GPU time."""
    together = pl.concat(labelled)
    if by == "tenant":
        use = ((pl.col("jct_s") - pl.col("wait_s")) * pl.col("gpus")).sum()
        order = (
            together.group_by("group").agg(use=use).sort(["use", "group"], descending=[True, False])
        )
        return order["group"].to_list()[:MOST_TENANTS]
    there = set(together["group"].unique())
    return [name for _, name in (SIZES if by == "size" else DURATIONS) if name in there]


def _means(jobs: pl.DataFrame, labels: pl.DataFrame) -> dict[str, tuple[float, int]]:
    joined = jobs.select("job_id", "jct_s").join(labels.select("job_id", "group"), on="job_id")
    found = joined.group_by("group").agg(mean=pl.col("jct_s").mean(), count=pl.len())
    return {row["group"]: (row["mean"], row["count"]) for row in found.iter_rows(named=True)}


def _cell(
    base: Sequence[float | None], values: Sequence[float | None], jobs: int, *, own: bool
) -> Measured:
    pairs = [
        (ours, theirs)
        for ours, theirs in zip(values, base, strict=True)
        if ours is not None and theirs is not None
    ]
    if not pairs:
        return Measured(None)
    mean = ordered_sum(ours for ours, _ in pairs) / len(pairs)
    if own:
        return Measured(mean)
    once = list(dict.fromkeys(pairs))  # the same numbers again are no new evidence
    found = ratio_interval([theirs for _, theirs in once], [ours for ours, _ in once])
    if jobs < LEAST_JOBS:
        return Measured(mean, found.ratio)
    return Measured(mean, found.ratio, found.low, found.high, judge(found, _JCT))
