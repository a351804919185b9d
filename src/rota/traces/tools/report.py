"""What an import found, in numbers: for `rota trace inspect`."""

from typing import TYPE_CHECKING, Any

import msgspec

from rota.traces.imported import Imported

if TYPE_CHECKING:
    import polars as pl

LATE_SHARE = 0.01
MOST_TENANTS = 20
_DAY_S = 86_400.0
_EDGES_S = (1.0, 10.0, 60.0, 600.0, 3_600.0, 6 * 3_600.0, _DAY_S, 7 * _DAY_S)
_EDGE_NAMES = (
    "below 1 s", "1-10 s", "10-60 s", "1-10 min", "10-60 min", "1-6 h", "6-24 h", "1-7 d",
    "above 7 d",
)  # fmt: skip


class TraceReport(msgspec.Struct):
    """The numbers; durations are in seconds."""

    name: str
    origin: str
    rows: int
    kept: int
    dropped: dict[str, int]
    repaired: dict[str, int]
    contradictions: dict[str, int]
    notes: list[str]
    jobs: dict[str, Any]
    cluster: dict[str, Any]
    observed: dict[str, Any]
    sizes: dict[str, int]
    durations: dict[str, int]
    submissions_by_hour: list[int]
    gpu_hours_by_hour: list[float]
    tenants: list[dict[str, Any]]


def report(imported: Imported) -> TraceReport:
    """Look at an import; nothing is changed."""
    jobs = imported.jobs
    quality = imported.quality
    return TraceReport(
        name=imported.name,
        origin=imported.origin,
        rows=quality.rows,
        kept=quality.kept,
        dropped=dict(quality.dropped),
        repaired=dict(quality.repaired),
        contradictions=contradictions_of(imported),
        notes=[*imported.notes, *_flags(jobs, imported.origin)],
        jobs=_summary(jobs),
        cluster=_cluster(imported),
        observed=_observed(imported),
        sizes=_sizes(jobs),
        durations=_durations(jobs),
        submissions_by_hour=_by_hour(imported, weight=False),
        gpu_hours_by_hour=_by_hour(imported, weight=True),
        tenants=_tenants(jobs),
    )


def _summary(jobs: "pl.DataFrame") -> dict[str, Any]:
    import polars as pl

    finite = jobs.filter(pl.col("duration_s").is_finite())
    duration = finite["duration_s"]
    gpu_s = float((finite["duration_s"] * finite["num_gpus"]).sum())
    span_s = float(jobs["submit_s"].max() or 0.0)  # type: ignore[arg-type]  # a column of floats
    with_gpus = jobs.filter(pl.col("num_gpus") > 0)
    single = int((with_gpus["num_gpus"] <= 1).sum())
    return {
        "jobs": jobs.height,
        "without_gpus": jobs.height - with_gpus.height,
        "single_gpu_pct": round(100 * single / with_gpus.height, 1) if with_gpus.height else None,
        "virtual_clusters": jobs["vc"].n_unique() if (jobs["vc"] != "").any() else 0,
        "users": jobs["user"].n_unique() if (jobs["user"] != "").any() else 0,
        "median_duration_s": _quantile(duration, 0.5),
        "p95_duration_s": _quantile(duration, 0.95),
        "p99_duration_s": _quantile(duration, 0.99),
        "gpu_hours": round(gpu_s / 3_600, 1),
        "span_s": span_s,
        "mean_gpus_needed": round(gpu_s / span_s, 1) if span_s else None,
        "endless": jobs.height - finite.height,
    }


def _quantile(values: "pl.Series", share: float) -> float | None:
    value = values.quantile(share, "linear") if len(values) else None
    return None if value is None else float(value)


def _mean(values: "pl.Series") -> float | None:
    return float(values.mean()) if len(values) else None  # type: ignore[arg-type]  # floats


def _cluster(imported: Imported) -> dict[str, Any]:
    nodes = imported.cluster
    types: dict[str, int] = {}
    for node in nodes:
        if node.gpus:
            types[node.gpu_type] = types.get(node.gpu_type, 0) + node.gpus
    return {
        "nodes": len(nodes),
        "gpus": sum(node.gpus for node in nodes),
        "gpus_by_type": types,
        "events": imported.events.height,
    }


def _observed(imported: Imported) -> dict[str, Any]:
    import polars as pl

    observed = imported.observed
    if not len(observed):
        return {"attempts": 0}
    seen = observed.per_job()
    starts = seen.join(
        imported.jobs.select("submit_s").with_row_index("job").cast({"job": pl.Int64}), on="job"
    )
    ran = (
        observed.frame.group_by("job")
        .agg((pl.col("end_s") - pl.col("start_s")).clip(0.0, None).sum().alias("run_s"))
        .cast({"job": pl.Int64})
    )
    ended = starts.drop("run_s").filter(pl.col("end_s").is_not_null()).join(ran, on="job")
    # No job starts before it comes, or ends before it starts: times that do are moved, as in replay
    early_s = (ended["submit_s"] - ended["start_s"]).clip(0.0, None)
    over_s = pl.select(pl.max_horizontal(ended["start_s"], ended["end_s"])).to_series()
    jct_s = over_s + early_s - ended["submit_s"]
    waits = (jct_s - ended["run_s"]).clip(0.0, None)
    states = observed.frame.group_by("state").len().sort("len", descending=True)
    return {
        "attempts": len(observed),
        "jobs": seen.height,
        "censored": int(seen["end_s"].null_count()),
        "with_nodes": int((observed.frame["nodes"].list.len() > 0).sum()),
        "mean_jct_s": _mean(jct_s),
        "mean_wait_s": _mean(waits),
        "median_wait_s": _quantile(waits, 0.5),
        "p95_wait_s": _quantile(waits, 0.95),
        "states": {state or "unknown": count for state, count in states.rows()},
    }


def contradictions_of(imported: Imported) -> dict[str, int]:
    """Things that cannot both be true."""
    import polars as pl

    out: dict[str, int] = {}
    frame = imported.observed.frame
    jobs = imported.jobs.select("submit_s", "num_gpus", "duration_s").with_row_index("job")
    joined = frame.join(jobs.cast({"job": pl.Int64}), on="job", how="left")
    first = joined.filter(pl.col("attempt") == 0)
    out["started before it was submitted"] = int((first["start_s"] < first["submit_s"]).sum())
    out["ended before it started"] = int((joined["end_s"] < joined["start_s"]).sum())
    out["a run time that is not the time from start to end"] = _other_run_times(joined)
    held = joined.filter(pl.col("gpus").list.len() == pl.col("nodes").list.len()).explode(
        ["nodes", "gpus"]
    )
    sizes = {node.name: float(node.gpus) for node in imported.cluster}
    if sizes and held.height:
        size = held["nodes"].replace_strict(sizes, default=None, return_dtype=pl.Float64)
        out["a job on more GPUs than its node has"] = int((held["gpus"] > size).sum())
        out["a job on a node that is not listed"] = int(
            (size.is_null() & held["nodes"].is_not_null()).sum()
        )
    if sizes:
        out["a job asks for more GPUs than its nodes have together"] = _too_large(joined, sizes)
    return {what: many for what, many in out.items() if many}


def _other_run_times(joined: "pl.DataFrame") -> int:
    """Jobs with one attempt that ended, and a run time that differs by more than a second."""
    import polars as pl

    once = joined.filter(pl.len().over("job") == 1, pl.col("end_s") >= pl.col("start_s"))
    differs = (once["end_s"] - once["start_s"] - once["duration_s"]).abs() > 1
    return int(differs.sum())


def _too_large(joined: "pl.DataFrame", sizes: dict[str, float]) -> int:
    """Attempts whose GPUs are not recorded by node, on nodes that do not have as many."""
    import polars as pl

    summed = joined.filter((pl.col("gpus").list.len() == 0) & (pl.col("nodes").list.len() > 0))
    if not summed.height:
        return 0
    each = summed.select("num_gpus", "nodes").with_row_index("row").explode("nodes")
    size = each["nodes"].replace_strict(sizes, default=None, return_dtype=pl.Float64)
    # A node that is not listed may have any number of GPUs: such an attempt is left alone.
    known = each.with_columns(size.fill_null(float("inf")).alias("size"))
    together = known.group_by("row").agg(pl.col("num_gpus").first(), pl.col("size").sum())
    return int((together["num_gpus"] > together["size"]).sum())


def _flags(jobs: "pl.DataFrame", origin: str) -> list[str]:
    """What a reader of the numbers should beware of."""
    submit = jobs["submit_s"]
    last_s = float(submit.max() or 0.0)  # type: ignore[arg-type]  # a column of floats
    late_s = _quantile(submit, LATE_SHARE) or 0.0
    if jobs.height >= 1 / LATE_SHARE and late_s > last_s / 2 > 0:
        own_s = late_s + (float(origin[:-2]) if origin.endswith(" s") else 0.0)
        where = "" if origin and not origin.endswith(" s") else f"={own_s:.0f}"
        text = (
            f"{1 - LATE_SHARE:.0%} of the jobs arrive after {late_s:,.0f} s of {last_s:,.0f} s: "
            f"trim the head with the option after{where}"
        )
        return [text]
    return []


def _tenants(jobs: "pl.DataFrame") -> list[dict[str, Any]]:
    """Those with most GPU-hours; none where the trace names no tenants."""
    import polars as pl

    if not (jobs["vc"] != "").any():
        return []
    finite = pl.col("duration_s").is_finite()
    hours = (pl.col("num_gpus") * pl.col("duration_s")).filter(finite).sum() / 3_600
    found = (
        jobs.group_by(pl.col("vc").alias("tenant"))
        .agg(
            pl.len().alias("jobs"),
            pl.col("user").filter(pl.col("user") != "").n_unique().alias("users"),
            hours.round(1).alias("gpu_hours"),
            pl.col("duration_s").filter(finite).quantile(0.5, "linear").alias("median_duration_s"),
        )
        .sort(["gpu_hours", "jobs", "tenant"], descending=[True, True, False])
    )
    return found.head(MOST_TENANTS).to_dicts()


def _sizes(jobs: "pl.DataFrame") -> dict[str, int]:
    import polars as pl

    gpus = pl.col("num_gpus")
    bins = (
        pl.when(gpus == 0).then(pl.lit("none"))
        .when(gpus < 1).then(pl.lit("share of one"))
        .when(gpus == 1).then(pl.lit("1"))
        .when(gpus <= 4).then(pl.lit("2-4"))  # noqa: PLR2004 - the edges of a histogram
        .when(gpus <= 8).then(pl.lit("5-8"))  # noqa: PLR2004
        .when(gpus <= 32).then(pl.lit("9-32"))  # noqa: PLR2004
        .otherwise(pl.lit("above 32"))
    )  # fmt: skip
    counts = dict(jobs.select(bins.alias("size")).group_by("size").len().rows())
    names = ("none", "share of one", "1", "2-4", "5-8", "9-32", "above 32")
    return {name: counts[name] for name in names if name in counts}


def _durations(jobs: "pl.DataFrame") -> dict[str, int]:
    import numpy as np

    values = jobs["duration_s"].to_numpy()
    places = np.searchsorted(_EDGES_S, values, side="right")
    counts = np.bincount(places, minlength=len(_EDGE_NAMES))
    pairs = zip(_EDGE_NAMES, counts.tolist(), strict=True)
    return {name: count for name, count in pairs if count}


def _by_hour(imported: Imported, *, weight: bool) -> list[Any]:
    """By hour of the day on the trace's own clock: submissions, or GPU-hours submitted."""
    import polars as pl

    jobs = imported.jobs.filter(pl.col("duration_s").is_finite()) if weight else imported.jobs
    hour = ((pl.col("submit_s") + _clock_s(imported.origin)) % _DAY_S // 3_600).cast(
        pl.Int64, strict=False
    )
    amount = pl.col("num_gpus") * pl.col("duration_s") / 3_600 if weight else pl.lit(1)
    sums = dict(jobs.group_by(hour.alias("hour")).agg(amount.sum().alias("sum")).rows())
    if weight:
        return [round(float(sums.get(number, 0.0)), 1) for number in range(24)]
    counts = dict(jobs.group_by(hour.alias("hour")).len().rows())
    return [int(counts.get(number, 0)) for number in range(24)]


def _clock_s(origin: str) -> float:
    """Seconds after midnight at second 0; 0 when the trace has no dates."""
    parts = origin[11:19].split(":")
    if len(origin) < 19 or len(parts) != 3:  # noqa: PLR2004 - YYYY-MM-DD HH:MM:SS
        return 0.0
    hours, minutes, seconds = map(float, parts)
    return hours * 3_600 + minutes * 60 + seconds
