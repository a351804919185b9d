"""The Standard Workload Format, version 2.2: read here, written by `swf_write`.

18 numbers per line, -1 for "not known"; lines that start with `;` are the header. Processors become
GPUs (`unit=gpu`) or CPUs (`unit=cpu`); by default GPUs, unless `swf_write` left in the header that
they are CPUs. The size is what was asked for, or what was given if that is not recorded; the asked
time is the user's estimate; start and end are observed. The queue is the tenant. A job waits for
its preceding job; think times are not used. Names that `swf_write` left in the header replace the
numbers of users, queues and executables. `UnixStartTime` tells what second 0 is (UTC); other lines
of the header are kept as notes, and written again. What is in the file and not imported (groups,
partitions, processors given, CPU time, memory used, think times) is told by a note.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from rota.core.errors import TraceError
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import NOT_IMPORTED, Imported
from rota.traces.observed import CANCELLED, DONE, FAILED, PREEMPTED, UNKNOWN
from rota.traces.sources import blocks, decode
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

FIELDS = (
    "job", "submit", "wait", "run", "procs", "cpu_time", "used_mem", "asked_procs", "asked_time",
    "asked_mem", "status", "user", "group", "executable", "queue", "partition", "preceding",
    "think",
)  # fmt: skip
IDS = ("job", "user", "group", "executable", "queue", "partition", "preceding")
STATUS = {1: DONE, 0: FAILED, 5: CANCELLED, 2: PREEMPTED, 3: DONE, 4: FAILED}
NAME = re.compile(r";\s*Note:\s*(user|executable|queue|job)\s+(\d{1,18})\s+is\s+(\".*\")\s*")
CPUS = "; Note: processors are CPUs"
HEADER = "header: "
"""How notes start that are lines of the header."""
MOST_EXACT = 2.0**53
"""From here on numbers are no longer exact as floats: ids are texts then."""
_OWN = ("version", "maxjobs", "maxrecords", "unixstarttime", "starttime", "endtime")
_MOST_LINES = 100
_KIB_PER_GIB = 1024.0 * 1024.0


class SwfParams(Common, frozen=True):
    """Options of the format."""

    unit: Literal["", "gpu", "cpu"] = ""


class _Header(msgspec.Struct):
    """What the lines that start with `;` tell."""

    names: dict[tuple[str, str], str] = {}  # by kind and number
    lines: list[str] = []
    start_s: float | None = None  # second 0, since 1970
    cpus: bool = False

    def add(self, line: str) -> None:
        line = line.strip()
        match = NAME.fullmatch(line)
        key, _, value = line.lstrip("; ").partition(":")
        if match:
            try:
                self.names[match[1], match[2]] = msgspec.json.decode(match[3], type=str)
            except msgspec.DecodeError:
                return
        elif line == CPUS:
            self.cpus = True
        elif key.lower() == "unixstarttime" and re.fullmatch(r"\s*\d{1,11}", value):
            self.start_s = float(value)
        elif value.strip() and key.lower() not in _OWN and len(self.lines) < _MOST_LINES:
            self.lines.append(f"{HEADER}{key.strip()}: {value.strip()}")


class Swf(Reader):
    """Reads a log in the Standard Workload Format."""

    name = "swf"
    description = "Standard Workload Format 2.2 (Parallel Workloads Archive)"
    params = SwfParams

    def import_file(self, path: Path, params: SwfParams) -> Imported:
        """All jobs."""
        import polars as pl

        quality = Quality()
        header = _Header()
        frames = list(_tables(path, params, quality, header))
        if not frames:
            raise TraceError(f"{path}: has no jobs: it needs lines of {len(FIELDS)} numbers")
        table = pl.concat(frames)
        unit = params.unit or ("cpu" if header.cpus else "gpu")
        frame = _jobs(table, unit, header.names)
        waiting = int(frame["depends_on"].list.len().sum())
        notes = [*header.lines, *_not_imported(table)]
        if waiting:
            notes.append(f"{waiting:,} jobs wait for another; think times are not used")
        rest = Rest(name=path.stem, notes=tuple(notes))
        imported = import_rows(path, frame, params, quality, rest=rest)
        if header.start_s:
            first_s = header.start_s + float(imported.origin.removesuffix(" s"))
            imported.origin = _date(first_s) or imported.origin
        return imported


FORMAT = Swf()


def _date(time_s: float) -> str:
    try:
        return str(datetime.fromtimestamp(time_s, UTC).replace(tzinfo=None))
    except (ValueError, OverflowError, OSError):
        return ""


def _tables(
    path: Path, params: SwfParams, quality: Quality, header: _Header
) -> "Iterator[pl.DataFrame]":
    import polars as pl

    before = 0
    for block in blocks(path, TraceError):
        lines = decode(block, path, TraceError).split("\n")  # only newlines end a line
        if b";" in block:
            for line in lines:
                if line.lstrip().startswith(";"):
                    header.add(line)
        texts = pl.Series("text", lines, dtype=pl.String).str.strip_chars()
        rows = pl.DataFrame({"text": texts}).with_row_index("line", before + 1)
        rows = rows.filter(~texts.str.starts_with(";") & (texts != ""))
        if rows.height:
            yield _numbers(path, rows, params, quality)
        before += block.count(b"\n")


def _numbers(
    path: Path, rows: "pl.DataFrame", params: SwfParams, quality: Quality
) -> "pl.DataFrame":
    """The fields of lines: ids as texts (empty: not known), everything else as numbers."""
    import polars as pl

    quality.rows += rows.height
    parts = rows.select("line", "text", pl.col("text").str.extract_all(r"\S+").alias("parts"))
    token = {name: pl.col("parts").list.get(i, null_on_oob=True) for i, name in enumerate(FIELDS)}
    fields = parts.with_columns(
        text.cast(pl.Float64, strict=False).alias(name) for name, text in token.items()
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
        quality.drop("not 18 numbers", wrong.height)
        fields = fields.filter(fine)
    return fields.select(
        _id_text(name, token[name]) if name in IDS else pl.col(name) for name in FIELDS
    )


def _id_text(name: str, token: "pl.Expr") -> "pl.Expr":
    """A number as text; -1 is empty. A number that is not exact stays as it is written."""
    import polars as pl

    value = pl.col(name)
    exact = value.cast(pl.Int64, strict=False).cast(pl.String)
    text = pl.when(value < MOST_EXACT).then(exact).otherwise(token)
    return pl.when(value >= 0).then(text).otherwise(pl.lit("")).alias(name)


def _not_imported(table: "pl.DataFrame") -> list[str]:
    """What the file tells and the schema has no place for."""
    import polars as pl

    asked, given = pl.col("asked_procs"), pl.col("procs")
    told = {
        "groups of users": pl.col("group") != "",
        "partitions": pl.col("partition") != "",
        "processors given, where others were asked for": (asked > 0) & (given > 0)
        & (asked != given),
        "CPU time": pl.col("cpu_time") > 0,
        "memory used": pl.col("used_mem") > 0,
        "think times": pl.col("think") > 0,
        "that a row is one of several parts of a job": pl.col("status").is_between(2, 4),
    }  # fmt: skip
    counts = table.select(rows.sum().alias(what) for what, rows in told.items()).row(0, named=True)
    return [f"{NOT_IMPORTED}{what} ({many:,} rows)" for what, many in counts.items() if many]


def _jobs(table: "pl.DataFrame", unit: str, names: dict[tuple[str, str], str]) -> "pl.DataFrame":
    import polars as pl

    procs = pl.when(pl.col("asked_procs") > 0).then("asked_procs").otherwise("procs")
    size = pl.when(procs > 0).then(procs).otherwise(0.0)
    run, wait = _known("run"), _known("wait")
    start = pl.when(run.is_not_null()).then(pl.col("submit") + wait)
    gib = pl.col("asked_mem") / _KIB_PER_GIB * procs
    memory = pl.when((pl.col("asked_mem") > 0) & gib.is_finite()).then(gib)
    status = pl.col("status").cast(pl.Int64, strict=False)
    other = _named("job", "preceding", names)
    known = other.is_in(table.select(_named("job", "job", names)).to_series().implode())
    waits = ~pl.col("preceding").is_in(["", "0"]) & known & (pl.col("preceding") != pl.col("job"))
    frame = table.select(
        _named("job", "job", names).alias("job_id"),
        pl.col("submit").alias("submit_s"),
        (size if unit == "gpu" else pl.lit(0.0)).alias("num_gpus"),
        (pl.lit(0.0) if unit == "gpu" else size).alias("cpus"),
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


def _named(kind: str, field: str, names: dict[tuple[str, str], str]) -> "pl.Expr":
    """An id, or the name that the header gives it."""
    import polars as pl

    meaning = {number: text for (what, number), text in names.items() if what == kind}
    text = pl.col(field)
    return text.replace(list(meaning), list(meaning.values())) if meaning else text


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
