"""The Standard Workload Format, version 2.2: read here, written by `swf_write`.

18 numbers per line, -1 for "not known"; lines that start with `;` are the header. Processors become
GPUs (`unit=gpu`, the default) or CPUs (`unit=cpu`). The size is what was asked for, or what was
given if that is not recorded; the asked time is the user's estimate; start and end are observed.
The queue is the tenant. A job waits for its preceding job; think times are not used. Names that
`swf_write` left in the header replace the numbers of users, queues, groups and executables.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rota.core.errors import TraceError
from rota.core.workload import Quality
from rota.traces.formats import Head, decode
from rota.traces.imported import Imported
from rota.traces.observed import CANCELLED, DONE, FAILED, UNKNOWN
from rota.traces.reader import Reader
from rota.traces.sources import blocks
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

FIELDS = (
    "job", "submit", "wait", "run", "procs", "cpu_time", "used_mem", "asked_procs", "asked_time",
    "asked_mem", "status", "user", "group", "executable", "queue", "partition", "preceding",
    "think",
)  # fmt: skip
STATUS = {1: DONE, 0: FAILED, 5: CANCELLED}
NAME = re.compile(r";\s*Note:\s*(user|group|executable|queue|job)\s+(-?\d+)\s+is\s+(\".*\")\s*")
_KIB_PER_GIB = 1024.0 * 1024.0


class SwfParams(Common, frozen=True):
    """Options of the format."""

    unit: Literal["gpu", "cpu"] = "gpu"


class Swf(Reader):
    """Reads a log in the Standard Workload Format."""

    name = "swf"
    description = "Standard Workload Format 2.2 (Parallel Workloads Archive)"
    params = SwfParams

    def recognises(self, head: Head) -> float:
        """By the number of fields of its first line that is no comment."""
        lines = head.text.splitlines()
        first = next((line for line in lines if line.strip() and not line.startswith(";")), "")
        fields = first.split()
        if not fields:
            return 0.9 if head.text.startswith(";") and "Version:" in head.text else 0.0
        numbers = all(re.fullmatch(r"-?\d+(\.\d+)?", field) for field in fields)
        return float(numbers and len(fields) == len(FIELDS))

    def import_file(self, path: Path, params: SwfParams) -> Imported:
        """All jobs."""
        quality = Quality()
        names: dict[tuple[str, int], str] = {}
        frames = list(_tables(path, params, quality, names))
        if not frames:
            raise TraceError(f"{path}: has no jobs: it needs lines of {len(FIELDS)} numbers")
        import polars as pl

        frame = _jobs(pl.concat(frames), params, names)
        waiting = int(frame["depends_on"].list.len().sum())
        notes = (f"{waiting:,} jobs wait for another; think times are not used",) * bool(waiting)
        return import_rows(path, frame, params, quality, rest=Rest(name=path.stem, notes=notes))


FORMAT = Swf()


def _tables(
    path: Path, params: SwfParams, quality: Quality, names: dict[tuple[str, int], str]
) -> "Iterator[pl.DataFrame]":
    import msgspec
    import polars as pl

    before = 0
    for block in blocks(path, TraceError):
        lines = decode(block, path, TraceError).split("\n")  # only newlines end a line
        for line in lines:
            if line.startswith(";") and (match := NAME.fullmatch(line.strip())):
                try:
                    text = msgspec.json.decode(match[3], type=str)
                except msgspec.DecodeError:
                    continue
                names[match[1], int(match[2])] = text
        texts = pl.Series("text", lines, dtype=pl.String).str.strip_chars()
        rows = pl.DataFrame({"text": texts}).with_row_index("line", before + 1)
        rows = rows.filter(~texts.str.starts_with(";") & (texts != ""))
        if rows.height:
            yield _numbers(path, rows, params, quality)
        before += block.count(b"\n")


def _numbers(
    path: Path, rows: "pl.DataFrame", params: SwfParams, quality: Quality
) -> "pl.DataFrame":
    import polars as pl

    quality.rows += rows.height
    fields = rows.with_columns(pl.col("text").str.extract_all(r"\S+").alias("parts"))
    fields = fields.select(
        "line",
        "text",
        *(
            pl.col("parts").list.get(i, null_on_oob=True).cast(pl.Float64, strict=False).alias(name)
            for i, name in enumerate(FIELDS)
        ),
    )
    values = pl.col(FIELDS)
    fine = pl.all_horizontal(values.is_not_null() & values.is_finite())
    wrong = fields.filter(~fine)
    if wrong.height:
        if params.bad == "refuse":
            raise TraceError(
                f"{path}: line {wrong['line'][0]}: {wrong['text'][0][:60]!r} is not "
                f"{len(FIELDS)} numbers: correct it, or drop such rows with the option bad=drop"
            )
        quality.dropped["not 18 numbers"] = quality.dropped.get("not 18 numbers", 0) + wrong.height
    return fields.filter(fine).select(FIELDS)


def _jobs(
    table: "pl.DataFrame", params: SwfParams, names: dict[tuple[str, int], str]
) -> "pl.DataFrame":
    import polars as pl

    procs = pl.when(pl.col("asked_procs") > 0).then("asked_procs").otherwise("procs")
    size = pl.when(procs > 0).then(procs).otherwise(0.0)
    run, wait = _known("run"), _known("wait")
    start = pl.when(run.is_not_null()).then(pl.col("submit") + wait)
    memory = pl.when(pl.col("asked_mem") > 0).then(pl.col("asked_mem") * procs / _KIB_PER_GIB)
    status = pl.col("status").cast(pl.Int64)
    other = _named("job", "preceding", names)
    known = other.is_in(table.select(_named("job", "job", names)).to_series().implode())
    waits = (pl.col("preceding") > 0) & known & (pl.col("preceding") != pl.col("job"))
    frame = table.select(
        _named("job", "job", names).alias("job_id"),
        pl.col("submit").alias("submit_s"),
        (size if params.unit == "gpu" else pl.lit(0.0)).alias("num_gpus"),
        (pl.lit(0.0) if params.unit == "gpu" else size).alias("cpus"),
        memory.fill_null(0.0).alias("mem_gib"),
        run.alias("duration_s"),
        pl.when(pl.col("asked_time") > 0).then("asked_time").alias("estimate_s"),
        *(
            _named(field, field, names).alias(name)
            for field, name in (("user", "user"), ("queue", "vc"), ("executable", "name"))
        ),
        pl.when(waits)
        .then(pl.concat_list(other))
        .otherwise(pl.lit([], pl.List(pl.String)))
        .alias("depends_on"),
        start.alias("_start_s"),
        (start + run).alias("_end_s"),
        status.cast(pl.String).alias("_status"),
        status.replace_strict(STATUS, default=UNKNOWN, return_dtype=pl.String).alias("_state"),
    )
    return _without_circles(frame)


def _known(name: str) -> "pl.Expr":
    import polars as pl

    return pl.when(pl.col(name) >= 0).then(name)


def _named(kind: str, field: str, names: dict[tuple[str, int], str]) -> "pl.Expr":
    """A number as text, or as the name that the header gives it; -1 is empty."""
    import polars as pl

    meaning = {str(number): text for (what, number), text in names.items() if what == kind}
    text = pl.col(field).cast(pl.Int64).cast(pl.String)
    shown = text.replace(list(meaning), list(meaning.values())) if meaning else text
    return pl.when(pl.col(field) >= 0).then(shown).otherwise(pl.lit(""))


def _without_circles(frame: "pl.DataFrame") -> "pl.DataFrame":
    """A job can only wait for one that was submitted before it (or stands before it)."""
    import polars as pl

    if not frame["depends_on"].list.len().sum():
        return frame
    order = frame.with_row_index("_row").select("job_id", "submit_s", "_row")
    first = order.unique("job_id", keep="first")
    joined = frame.with_row_index("_row").with_columns(
        pl.col("depends_on").list.first().alias("_other")
    )
    joined = joined.join(
        first, left_on="_other", right_on="job_id", how="left", suffix="_other",
        maintain_order="left",
    )  # fmt: skip
    later = (pl.col("submit_s_other") > pl.col("submit_s")) | (
        (pl.col("submit_s_other") == pl.col("submit_s")) & (pl.col("_row_other") >= pl.col("_row"))
    )
    kept = pl.when(later.fill_null(value=False)).then(pl.lit([], pl.List(pl.String)))
    return joined.with_columns(kept.otherwise(pl.col("depends_on")).alias("depends_on")).drop(
        "_row", "_other", "submit_s_other", "_row_other"
    )
