"""Slurm's accounting as a table: the quick way for records that stand for a job of their own.

Most records do: one per job, on one node or without GPUs. They are turned into jobs column by
column. All others (requeued and heterogeneous jobs, numbers that come again, several nodes with
GPUs, times that are there twice, and everything that is wrong) are left to `sacct`, one by one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.errors import TraceError
from rota.traces.formats.slurm.fields import MISSING, WORDS, Amounts, Clock, read_nodes, state_of
from rota.traces.sources import blocks, decode

if TYPE_CHECKING:
    import polars as pl

TIMES = ("submit", "eligible", "start", "end")
AMOUNTS = (
    "alloctres", "reqtres", "allocgres", "reqgres", "nnodes", "reqnodes", "alloccpus", "ncpus",
    "reqcpus",
)  # fmt: skip
LIMITS = ("timelimitraw", "timelimit")
TEXTS = ("jobid", "jobidraw", "user", "account", "partition", "qos", "priority", "jobname", "state")
USED = (*TEXTS, *TIMES, "elapsedraw", *LIMITS, *AMOUNTS, "nodelist", "submitline")
_ISO = "%Y-%m-%dT%H:%M:%S"
_ISO_LOOK = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$"


def lines_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines by block, with the number of the first; quotes have no meaning here."""
    before = 0
    for block in blocks(path, TraceError, quotes=False):
        if block.strip():
            yield before + 1, decode(block, path, TraceError).split("\n")
        before += block.count(b"\n")


def split_lines(
    first: int, lines: Sequence[str], titles: Sequence[str], delimiter: str, *, free: bool
) -> "pl.DataFrame":
    """Cells as texts by title, `_place` (the line), `_wide` (not as many as there are titles).

    `_more`: there are more of them, also where the last column takes what is too much.

    Args:
        first: Number of the first line.
        lines: Empty ones are left out.
        titles: Of the columns.
        delimiter: Between cells.
        free: The last column takes what is too much.
    """
    import polars as pl

    texts = pl.DataFrame({"_text": pl.Series(lines, dtype=pl.String)}).with_row_index(
        "_place", first
    )
    texts = texts.filter(pl.col("_text").str.strip_chars() != "")
    names = [f"_{index}" for index in range(len(titles))]
    cells = texts.select(
        pl.col("_place").cast(pl.Int64),
        pl.col("_text")
        .str.strip_chars_end("\r")
        .str.splitn(delimiter, len(titles))
        .struct.rename_fields(names)
        .struct.unnest(),
    )
    rest = pl.col(names[-1])
    extra = rest.str.count_matches(delimiter, literal=True)
    closed = (extra == 1) & rest.str.ends_with(delimiter)  # `--parsable` ends with a delimiter
    last = pl.when(closed).then(rest.str.strip_suffix(delimiter)).otherwise(rest)
    wide = rest.is_null() if free else rest.is_null() | ((extra > 0) & ~closed)
    more = ((extra > 0) & ~closed).fill_null(value=False)
    cells = cells.with_columns(last, wide.fill_null(value=True).alias("_wide"), more.alias("_more"))
    places = {title: name for title, name in zip(titles, names, strict=True) if title in USED}
    return cells.select(
        "_place",
        "_wide",
        "_more",
        *(pl.col(name).str.strip_chars().alias(title) for title, name in places.items()),
    )


class Typed:
    """The cells of all lines as values.

    Columns: those of a `Record` with flat amounts, `_place`, `step` and `odd` (leave it to
    `sacct`).
    """

    def __init__(
        self,
        cells: "pl.DataFrame",
        clock: Clock,
        amounts: Callable[[Mapping[str, str]], Amounts],
        limit_s: Callable[[Mapping[str, str]], float | None],
    ) -> None:
        import polars as pl

        self._clock = clock
        missing = [title for title in USED if title not in cells.columns]
        cells = cells.with_columns(pl.lit("").alias(title) for title in missing)
        times = [_time(cells[title], clock) for title in TIMES]
        lists = _mapped(cells["nodelist"], _nodes, pl.List(pl.String))
        asked = _together(cells, AMOUNTS, lambda row: _flat(amounts(row)), _ASKED)
        limits = _together(cells, LIMITS, lambda row: (limit_s(row),), ("limit_s",))
        words = _mapped(cells["state"], state_of, pl.String())
        if "state" in missing:
            words = pl.Series(["COMPLETED"]).new_from_index(0, cells.height)
        name = pl.when(pl.col("jobid") != "").then("jobid").otherwise("jobidraw")
        raw = pl.when(pl.col("jobidraw") != "").then("jobidraw").otherwise("jobid")
        frame = cells.select(
            "_place", "_wide", "_more", name.alias("id"), raw.alias("raw"),
            *(pl.col(title) for title in ("user", "account", "partition", "qos")),
            pl.col("jobname").alias("name"),
            words.alias("state"),
            *(time[0].alias(f"{title}_s") for title, time in zip(TIMES, times, strict=True)),
            _whole("elapsedraw").alias("elapsed_s"),
            _whole("priority").cast(pl.Int64).alias("priority"),
            lists.alias("nodes"),
        ).hstack(asked.hstack(limits).get_columns())  # fmt: skip
        wrong = pl.any_horizontal(odd for _, odd in times)
        wrong |= pl.col("_more") & ~pl.col("state").is_in(WORDS)  # a name may have the delimiter
        self.frame = frame.with_columns(
            pl.coalesce("submit_s", "eligible_s").alias("submit_s"),
            pl.when(pl.col("start_s").is_not_null())
            .then(pl.coalesce("end_s", pl.col("start_s") + pl.col("elapsed_s")))
            .otherwise("end_s")
            .alias("end_s"),
            pl.col("id").str.contains(".", literal=True).alias("step"),
            (
                pl.col("_wide") | wrong | pl.col("nodes").is_null() | (pl.col("id") == "")
            ).fill_null(value=True).alias("odd"),
        ).drop("_wide", "_more")  # fmt: skip


_ASKED = ("gpus", "gpu_type", "cpus", "mem_gib", "asked_nodes", "part")


def _flat(amounts: Amounts) -> tuple[Any, ...]:
    return msgspec.structs.astuple(amounts)


def _nodes(text: str) -> list[str] | None:
    try:
        return list(read_nodes(text))
    except TraceError:
        return None


def _whole(title: str) -> "pl.Expr":
    import polars as pl

    short = pl.col(title).str.len_bytes() <= 12  # noqa: PLR2004 - seconds
    digits = pl.col(title).str.contains(r"^[0-9]+$") & short
    return pl.when(digits).then(pl.col(title)).cast(pl.Float64, strict=False)


def _mapped(values: "pl.Series", change: Callable[[str], Any], kind: "pl.DataType") -> "pl.Series":
    """A function of texts, called once for each."""
    import polars as pl

    texts = values.fill_null("").unique()
    table = pl.DataFrame(
        {"text": texts, "value": pl.Series([change(text) for text in texts], dtype=kind)}
    )
    joined = pl.DataFrame({"text": values.fill_null("")}).join(
        table, on="text", how="left", maintain_order="left"
    )
    return joined["value"]


def _together(
    cells: "pl.DataFrame",
    titles: Sequence[str],
    change: Callable[[Mapping[str, str]], tuple[Any, ...]],
    names: Sequence[str],
) -> "pl.DataFrame":
    """A function of several cells of a row, called once for each combination."""
    import polars as pl

    keys = cells.select(pl.col(title).fill_null("") for title in titles)
    known = keys.unique()
    rows = [change(row) for row in known.iter_rows(named=True)]
    kinds = {name: pl.String if name in ("gpu_type", "part") else pl.Float64 for name in names}
    values = pl.DataFrame(rows, schema=kinds, orient="row")
    joined = keys.join(known.hstack(values), on=list(titles), how="left", maintain_order="left")
    return joined.select(names)


def _time(texts: "pl.Series", clock: Clock) -> "tuple[pl.Series, pl.Series]":
    """Seconds since 1970, and whether they need a closer look: no time, or one of two."""
    import polars as pl

    texts = texts.fill_null("")
    plain = texts.str.contains(_ISO_LOOK) & ~texts.str.ends_with("60")
    if clock.zoned:
        plain = plain & False
    quick = texts.set(~plain, None).str.strptime(pl.Datetime("ms"), _ISO, strict=False, exact=True)
    found = quick.dt.epoch("ms").cast(pl.Float64) / 1_000
    left = quick.is_null() & ~texts.is_in([*MISSING, "0"])
    if not left.any():
        return found, left
    choices = {text: clock.read(text) for text in texts.filter(left).unique()}
    early = {text: None if both is None else both[0] for text, both in choices.items()}
    odd = [text for text, both in choices.items() if both is None or both[0] != both[1]]
    rest = texts.replace_strict(early, default=None, return_dtype=pl.Float64)
    return found.fill_null(rest) if len(found) else found, texts.is_in(odd)
