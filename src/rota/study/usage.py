"""Who used how many GPU-hours: a fold over what was observed.

Every second in which a job held GPUs counts, whether it made progress or not (starting, saving, an
attempt that was lost): that is what others could not have. The sums are those of the log: GPUs held
times the time for which they were held. A job that still runs counts until the log was taken.

Months and days are those of the calendar (UTC), so a log must tell its date; an attempt over
midnight is divided.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta

import msgspec
import polars as pl

from rota.core.errors import OptionError
from rota.core.findings import WARN_FROM
from rota.traces.imported import Imported

COLUMNS = {
    "user": "user", "queue": "vc", "account": "account", "group": "group", "qos": "qos",
    "partition": "partition", "model": "model", "job": "job_id",
}  # fmt: skip
"""What usage can be added up by, and the column of the workload that has it."""
PERIODS = ("month", "day")
KEYS = (*COLUMNS, *PERIODS)
NONE = "(none)"
_HOUR_S = 3_600.0


class UsageQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be added up."""

    by: tuple[str, ...] = ("user",)
    since: date | None = None  # this day is included
    until: date | None = None  # this one is not
    prices: tuple[tuple[str, float], ...] = ()  # (GPU type or nothing, money per GPU-hour)
    budgets: tuple[tuple[str, float], ...] = ()  # GPU-hours by value of the first key, in a period


def fold_usage(imported: Imported, question: UsageQuestion) -> pl.DataFrame:
    """A row per group: its keys, `jobs`, `attempts`, `gpu_h`, `share` and, with prices, `cost`."""
    for key in question.by:
        if key not in KEYS:
            raise OptionError(f"--by {key}: unknown; there are: {', '.join(KEYS)}")
    spans = _spans(imported)
    origin = _origin(imported)
    dated = question.since or question.until or {*question.by} & {*PERIODS}
    if dated:
        if origin is None:
            raise OptionError(
                "the log does not tell its date: usage by month or day, --since and --until need "
                "a log with dates (sacct, a daemon's export)"
            )
        spans = _cut(spans, origin, question)
        if not spans.height:
            raise OptionError("nothing ran between these days: there is no usage to add up")
        spans = _divided(spans, origin, [key for key in PERIODS if key in question.by])
    held = pl.col("gpus") * (pl.col("end_s") - pl.col("start_s")) / _HOUR_S
    sums = [
        pl.col("number").n_unique().alias("jobs"),
        pl.struct("number", "attempt").n_unique().alias("attempts"),
        pl.col("gpu_h").sum(),
    ]
    if question.prices:
        _refuse_unpriced(spans, dict(question.prices))
        sums.append((pl.col("gpu_h") * _price(question.prices)).sum().alias("cost"))
    rows = spans.with_columns(held.alias("gpu_h")).group_by(list(question.by)).agg(sums)
    total = rows["gpu_h"].sum()
    share = (pl.col("gpu_h") / total) if total else pl.lit(0.0)
    calendar = [key for key in question.by if key in PERIODS]
    if calendar:
        of_period = (pl.col("gpu_h") / pl.col("gpu_h").sum().over(calendar)).fill_nan(0.0)
        rows = rows.with_columns(of_period.alias("period_share"))
    rows = _budgeted(rows, question, [key for key in question.by if key not in calendar])
    order = [*calendar, "gpu_h", *(key for key in question.by if key not in calendar)]
    return rows.with_columns(share.alias("share")).sort(
        order, descending=[name == "gpu_h" for name in order]
    )


def unsaid(imported: Imported, question: UsageQuestion) -> list[str]:
    """What to say of keys of which the log knows nothing."""
    known = [
        key for key, column in COLUMNS.items() if (imported.jobs[column].fill_null("") != "").any()
    ]
    told = ", ".join(key for key in known if key != "job") or "none of them"
    return [
        f"--by {key}: this log names no {key} of any job (that of a simulation has queues only); "
        f"what it names: {told}"
        for key in question.by
        if key in COLUMNS and key not in known
    ]


def _budgeted(rows: pl.DataFrame, question: UsageQuestion, keys: list[str]) -> pl.DataFrame:
    """With `budget` and `left`, where budgets are given."""
    if not question.budgets:
        return rows
    if len(keys) != 1:
        raise OptionError("--budget needs one key beside month or day: --by queue --budget a=100")
    budget = pl.col(keys[0]).replace_strict(
        dict(question.budgets), default=None, return_dtype=pl.Float64
    )
    return rows.with_columns(budget=budget, left=budget - pl.col("gpu_h"))


def over_budget(rows: pl.DataFrame) -> list[tuple[str, bool]]:
    """What to say of budgets that are nearly or quite used up; whether they are exceeded."""
    if "budget" not in rows.columns:
        return []
    said = []
    for row in rows.drop_nulls("budget").iter_rows(named=True):
        used, budget = row["gpu_h"], row["budget"]
        if used >= WARN_FROM * budget:
            names = [str(row[key]) for key in KEYS if key in row]
            part = f"{used / budget:.0%}" if budget else "more than all"
            text = f"{' '.join(names)}: {used:,.1f} of {budget:,.1f} GPU-hours are used ({part})"
            said.append((text, used > budget))
    return said


def _spans(imported: Imported) -> pl.DataFrame:
    """A row per attempt: the keys, `number`, `attempt`, `gpus`, `kind`, `start_s`, `end_s`."""
    frame = imported.observed.frame
    if not frame.height:
        raise OptionError("the log does not say when jobs ran: there is no usage to add up")
    jobs = imported.jobs.with_row_index("number").select(
        pl.col("number").cast(pl.Int64),
        pl.col("num_gpus"),
        pl.col("gpu_type").list.join("|").alias("asked"),
        *(
            pl.when(pl.col(column).fill_null("") == "")
            .then(pl.lit(NONE))
            .otherwise(pl.col(column))
            .alias(key)
            for key, column in COLUMNS.items()
        ),
    )
    types = {node.name: node.gpu_type for node in imported.cluster}
    recorded = pl.col("gpus").list.len() > 0
    return (
        frame.rename({"job": "number"})
        .join(jobs, on="number")
        .with_columns(
            pl.when(recorded).then(pl.col("gpus").list.sum()).otherwise(pl.col("num_gpus"))
            .alias("gpus"),
            pl.col("end_s").fill_null(imported.until_s),
            pl.col("nodes").list.first().replace_strict(types, default=None).fill_null(
                pl.col("asked")
            ).alias("kind"),
        )
    )  # fmt: skip


def _origin(imported: Imported) -> datetime | None:
    """When second 0 was; None: not known."""
    try:
        found = datetime.fromisoformat(imported.origin)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _midnight_s(day: date, origin: datetime) -> float:
    return (datetime.combine(day, time(), UTC) - origin).total_seconds()


def _cut(spans: pl.DataFrame, origin: datetime, question: UsageQuestion) -> pl.DataFrame:
    """Only what lies between the two days."""
    if question.since and question.until and question.since >= question.until:
        raise OptionError(
            f"--since {question.since} --until {question.until}: nothing lies between them"
        )
    low = _midnight_s(question.since, origin) if question.since else float("-inf")
    high = _midnight_s(question.until, origin) if question.until else float("inf")
    cut = spans.with_columns(pl.col("start_s").clip(low, high), pl.col("end_s").clip(low, high))
    return (
        cut.filter(pl.col("end_s") > pl.col("start_s")) if question.since or question.until else cut
    )


def _divided(spans: pl.DataFrame, origin: datetime, periods: Sequence[str]) -> pl.DataFrame:
    """The spans, divided where a period ends, with the name of each period."""
    if not periods:
        return spans
    daily = "day" in periods
    day = (origin + timedelta(seconds=spans.select(pl.col("start_s").min()).item())).date()
    day = day if daily else day.replace(day=1)
    end_s: float = spans.select(pl.col("end_s").max()).item()
    bounds = []
    while (begin_s := _midnight_s(day, origin)) <= end_s:
        following = day + timedelta(days=1) if daily else next_month(day)
        bounds.append((begin_s, _midnight_s(following, origin), day.isoformat(), f"{day:%Y-%m}"))
        day = following
    names = ("from_s", "to_s", "day", "month")
    table = pl.DataFrame(bounds, schema=dict.fromkeys(names[:2], pl.Float64) | dict.fromkeys(
        names[2:], pl.String), orient="row")  # fmt: skip
    inside = (pl.col("from_s") < pl.col("end_s")) & (pl.col("to_s") > pl.col("start_s"))
    empty = (pl.col("start_s") == pl.col("end_s")) & pl.col("start_s").is_between(
        pl.col("from_s"), pl.col("to_s"), closed="left"
    )
    return (
        spans.join(table, how="cross")
        .filter(inside | empty)
        .with_columns(
            pl.max_horizontal("start_s", "from_s").alias("start_s"),
            pl.min_horizontal("end_s", "to_s").alias("end_s"),
        )
    )


def next_month(day: date) -> date:
    """The first day of the month after."""
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)


def _refuse_unpriced(spans: pl.DataFrame, prices: Mapping[str, float]) -> None:
    """GPUs without a price would be free of charge, and nobody would notice."""
    if "" in prices:
        return  # of all others
    held = (pl.col("gpus") > 0) & (pl.col("end_s") > pl.col("start_s"))
    kinds = set(spans.filter(held)["kind"].fill_null("").to_list()) - prices.keys()
    if not kinds:
        return
    named = sorted(kinds - {""})
    of = [f"of type {', '.join(named)}"] if named else []
    of += ["of a type that the log does not tell"] if "" in kinds else []
    each = [f"--price {kind}=PRICE" for kind in named] if "" not in kinds else []
    remedy = " or ".join([*each[:1], "--price PRICE for all others"])
    raise OptionError(f"GPUs {' and '.join(of)} have no price: add {remedy}")


def _price(prices: Sequence[tuple[str, float]]) -> pl.Expr:
    """Money for a GPU-hour of each span."""
    of_kind: Mapping[str, float] = dict(prices)
    return pl.col("kind").replace_strict(
        {kind: price for kind, price in of_kind.items() if kind},
        default=of_kind.get("", 0.0),
        return_dtype=pl.Float64,
    )
