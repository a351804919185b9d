"""Records of Slurm's accounting that are a job of their own, turned into jobs column by column.

What comes out is what `records` makes of the same records one by one.
"""

from typing import TYPE_CHECKING

from rota.core.workload import Quality
from rota.traces.formats.slurm.words import PENDING, STATES
from rota.traces.observed import DONE, RUNNING, UNKNOWN
from rota.traces.schema import kinds

if TYPE_CHECKING:
    import polars as pl

    from rota.traces.formats.slurm.records import SlurmParams

MOST_GPUS = 1_000_000.0
"""Of one job: what is more is a mistake."""


def plain_ones(typed: "pl.DataFrame") -> "pl.Series":
    """Which records are a job of their own and can be taken as they are."""
    import polars as pl

    base = pl.col("id").str.replace(r"\+.*$", "")
    parts = pl.col("id").str.contains("+", literal=True)
    number = pl.when(parts).then(base).otherwise("raw")
    jobs = typed.filter(~typed["step"]).select(base=base, number=number)
    twice = [jobs[name].filter(jobs[name].is_duplicated()).unique() for name in jobs.columns]
    shared = base.is_in(twice[0].implode()) | number.is_in(twice[1].implode())
    spread = (pl.col("nodes").list.len() > 1) & (pl.col("gpus") > 0)
    nonsense = (pl.col("gpus") > MOST_GPUS) | (pl.col("asked_nodes") > MOST_GPUS)
    odd = pl.col("odd") | pl.col("step") | parts | shared | spread | nonsense
    return typed.select((~odd).fill_null(value=False).alias("plain")).to_series()


def latest_s(plain: "pl.DataFrame") -> float:
    """The latest time that the records tell."""
    import polars as pl

    goes_on = _observed() == RUNNING
    ran = pl.when(goes_on | pl.col("end_s").is_null()).then(pl.col("start_s") + pl.col("elapsed_s"))
    times = plain.select(pl.max_horizontal("submit_s", "start_s", "end_s", ran).max()).item()
    return 0.0 if times is None else float(times)


def jobs_of(
    plain: "pl.DataFrame",
    end_s: float,
    params: "SlurmParams",
    labelled: frozenset[str],
    quality: Quality,
) -> "tuple[pl.DataFrame, pl.DataFrame]":
    """Rows of jobs, with `_place`, and their attempts by `job_id`; `end_s`: that of the log."""
    import polars as pl

    start, state = pl.col("start_s"), _observed()
    took_time = (pl.col("elapsed_s").fill_null(0.0) > 0) | (pl.col("end_s").fill_null(0.0) > start)
    ran = pl.col("nodes").list.len() > 0
    began = start.is_not_null() & ~pl.col("state").is_in(PENDING)
    began &= ran | took_time | state.is_in([RUNNING, DONE])
    marked = plain.with_columns(began=began.fill_null(value=False), observed=state)
    _count_unstarted(marked.filter(~pl.col("began"))["state"], quality)
    mine = marked.filter("began")
    for part, many in mine["part"].value_counts().iter_rows():
        if part:
            quality.repair(part, many)
    over = pl.when(pl.col("observed") != RUNNING).then("end_s")
    attempts = mine.select(
        pl.col("id").alias("job_id"),
        "start_s",
        over.alias("end_s"),
        "nodes",
        pl.col("gpus").repeat_by(pl.col("nodes").list.len()).alias("gpus"),
        pl.col("observed").alias("state"),
    )
    return mine.select(_row(over, end_s, params, labelled)), attempts


def _observed() -> "pl.Expr":
    import polars as pl

    return pl.col("state").replace_strict(STATES, default=UNKNOWN, return_dtype=pl.String)


def _count_unstarted(states: "pl.Series", quality: Quality) -> None:
    from rota.traces.formats.slurm.records import why_unstarted

    for state, many in states.value_counts().iter_rows():
        why = why_unstarted(state)
        quality.drop(why, many)


def _row(
    over: "pl.Expr", end_s: float, params: "SlurmParams", labelled: frozenset[str]
) -> "list[pl.Expr]":
    import polars as pl

    start, gpus = pl.col("start_s"), pl.col("gpus")
    submit = pl.coalesce("submit_s", "start_s")
    since = submit
    if params.since == "eligible":
        known = pl.max_horizontal(submit, pl.min_horizontal("eligible_s", "start_s"))
        since = pl.when(pl.col("eligible_s").is_not_null()).then(known).otherwise(submit)
    run = pl.when(over.is_null()).then(pl.lit(end_s) - start).otherwise(over - start)
    owner = pl.col(params.tenant)
    tenant = pl.when(owner != "").then(owner).when(pl.col("account") != "").then("account")
    none = pl.lit([], pl.List(pl.String))
    typed = (gpus > 0) & (pl.col("gpu_type") != "")
    spread = (pl.col("asked_nodes") >= 2) & (gpus == 0)  # noqa: PLR2004 - several nodes
    return [
        pl.col("id").alias("job_id"),
        since.alias("submit_s"),
        gpus.alias("num_gpus"),
        pl.max_horizontal(run, pl.lit(0.0)).alias("duration_s"),
        tenant.otherwise("partition").alias("vc"),
        pl.col("user"),
        pl.col("name"),
        pl.when(typed).then(pl.concat_list("gpu_type")).otherwise(none).alias("gpu_type"),
        pl.when(pl.col("partition").is_in(sorted(labelled)))
        .then(pl.concat_list("partition"))
        .otherwise(none)
        .alias("labels"),
        pl.col("cpus"),
        pl.col("mem_gib"),
        pl.col("limit_s").alias("estimate_s"),
        none.alias("depends_on"),
        pl.when(spread).then(pl.concat_list(_task())).cast(kinds()["roles"]).alias("roles"),
        spread.alias("apart"),
        *(pl.col(name) for name in ("account", "partition", "qos")),
        _priority(params).alias("priority"),
        pl.col("state").alias("_status"),
        over.is_null().alias("_cut"),
        submit.alias("_submit_s"),
        pl.col("_place"),
    ]


def _priority(params: "SlurmParams") -> "pl.Expr":
    import polars as pl

    if params.classes:
        ranks = {name: rank for rank, name in enumerate(params.classes)}
        return pl.col("qos").replace_strict(ranks, default=0, return_dtype=pl.Int64)
    return pl.col("priority") if params.priority == "recorded" else pl.lit(0, pl.Int64)


def _task() -> "pl.Expr":
    """One per node, with its share."""
    import polars as pl

    nodes = pl.col("asked_nodes")
    return pl.struct(
        pl.lit("worker").alias("role"),
        nodes.cast(pl.Int64).alias("count"),
        pl.lit(0.0).alias("gpus"),
        (pl.col("cpus") / nodes).alias("cpus"),
        (pl.col("mem_gib") / nodes).alias("mem_gib"),
        pl.lit(0, pl.Int64).alias("min_count"),
        pl.lit(0, pl.Int64).alias("max_count"),
    )
