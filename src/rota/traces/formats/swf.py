"""The Standard Workload Format, version 2.2: read and written.

18 numbers per line, -1 for "not known"; lines that start with `;` are the header. Processors become
GPUs (`unit=gpu`) or CPUs (`unit=cpu`); by default GPUs, unless the header has Rota's note that
they are CPUs. The size is what was asked for, or what was given if that is not recorded; the asked
time is the user's estimate; start and end are observed. The queue is the tenant. A job waits for
its preceding job; think times are not used. Names that Rota left in the header replace the
numbers of users, queues and executables. `UnixStartTime` tells what second 0 is (UTC); other lines
of the header are kept as notes, and written again. What is in the file and not imported (groups,
partitions, processors given, CPU time, memory used, think times) is mentioned in a note.

When it is written, users, queues, names and ids that are no numbers (or above 2^53) get numbers,
and the header says which. Processors are GPUs; of a trace in which no job has GPUs they are CPUs,
and the header says so. If only some jobs have no GPUs, these are left out. What the format has no
room for (GPU types, priorities, deadlines, models, elastic ranges, CPUs beside GPUs, nodes, further
attempts) is lost: `write_swf` returns what, so that a caller can say so.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rota.core.errors import OutputError, TraceError
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import NOT_IMPORTED, Imported
from rota.traces.observed import CANCELLED, DONE, FAILED, PREEMPTED, UNKNOWN
from rota.traces.schema import JOBS
from rota.traces.sources import blocks, decode, replacing
from rota.traces.tidy import Common, Rest, import_rows
from rota.traces.write import number

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
    cases = {
        "groups of users": pl.col("group") != "",
        "partitions": pl.col("partition") != "",
        "processors given, where others were asked for": (asked > 0) & (given > 0)
        & (asked != given),
        "CPU time": pl.col("cpu_time") > 0,
        "memory used": pl.col("used_mem") > 0,
        "think times": pl.col("think") > 0,
        "that a row is one of several parts of a job": pl.col("status").is_between(2, 4),
    }  # fmt: skip
    counts = table.select(rows.sum().alias(what) for what, rows in cases.items()).row(0, named=True)
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


_STATUS = {DONE: 1, FAILED: 0, CANCELLED: 5, PREEMPTED: 2}
_HELD = frozenset({
    "job_id", "submit_s", "num_gpus", "duration_s", "vc", "user", "name", "cpus", "mem_gib",
    "estimate_s", "depends_on",
})  # fmt: skip


# --- writing -------------------------------------------------------------------------------------


class _Numbers:
    """Numbers for texts: their own if they are whole numbers, else free ones."""

    def __init__(self, texts: list[str]) -> None:
        self.named: dict[str, int] = {}
        self._known = known = {text: _whole(text) for text in dict.fromkeys(texts) if text}
        taken = {value for value in known.values() if value is not None}
        free = 1
        for text, value in known.items():
            if value is None:
                while free in taken:
                    free += 1
                self.named[text] = free
                taken.add(free)

    def of(self, text: str) -> int:
        """The number of a text; -1 for an empty one, or a job that is left out."""
        if text in self.named:
            return self.named[text]
        whole = self._known.get(text)
        return -1 if whole is None else whole


def write_swf(imported: Imported, path: str | Path, *, force: bool = False) -> list[str]:
    """Write the jobs; the file appears whole or not at all.

    Returns:
        What the format cannot hold and the file therefore lacks.

    Raises:
        OutputError: The file is there or cannot be written.
    """
    path = Path(path)
    if path.exists() and not force:
        raise OutputError(f"{path}: is there already: choose another name or use --force")
    sized, unit = sized_jobs(imported)
    if not sized.height:
        raise OutputError(f"{path}: no job asks for GPUs or CPUs: swf has no room for such jobs")
    numbers = {
        "job": _Numbers(sized["job_id"].to_list()),
        "user": _Numbers(sized["user"].to_list()),
        "queue": _Numbers(sized["vc"].to_list()),
        "executable": _Numbers(sized["name"].to_list()),
    }
    seen = {row["job"]: row for row in imported.observed.per_job().iter_rows(named=True)}
    lines = [
        *_header(imported, sized.height, numbers),
        *([CPUS] if unit == "cpus" else []),
        *(_line(row, numbers, seen.get(row["_job"])) for row in sized.iter_rows(named=True)),
    ]
    _replace(path, lines)
    left_out = len(imported) - sized.height
    lost = [f"jobs that ask for no GPUs ({left_out:,} are left out)"] if left_out else []
    return lost + _lost(imported, sized) + _unseen(imported)


def sized_jobs(imported: Imported) -> "tuple[pl.DataFrame, str]":
    """Jobs that the format has room for, with `_job` (position) and `_size`; what a size counts."""
    jobs = imported.jobs
    unit = "num_gpus" if (jobs["num_gpus"] > 0).any() else "cpus"
    sized = jobs.with_columns(_size=jobs[unit]).with_row_index("_job").filter(jobs[unit] > 0)
    return sized, unit


def _header(imported: Imported, count: int, numbers: dict[str, _Numbers]) -> list[str]:
    lines = ["; Version: 2.2", f"; MaxJobs: {count}", f"; MaxRecords: {count}"]
    start_s = _since_1970(imported.origin)
    if start_s is not None:
        lines.append(f"; UnixStartTime: {start_s}")
    elif imported.origin:
        lines.append(f"; Note: second 0 is {imported.origin}")
    lines += [
        f"; {note.removeprefix(HEADER)}"
        for note in imported.notes
        if note.startswith(HEADER) and "Note: second 0 is" not in note and note.isprintable()
    ]
    for kind, table in numbers.items():
        for text, value in table.named.items():
            lines.append(f"; Note: {kind} {value} is {msgspec.json.encode(text).decode()}")
    return lines


def _since_1970(origin: str) -> int | None:
    """A date, taken as UTC, in whole seconds; None: it is no date."""
    try:
        date = datetime.fromisoformat(origin)
    except ValueError:
        return None
    time_s = date.replace(tzinfo=date.tzinfo or UTC).timestamp()
    return int(time_s) if time_s == int(time_s) and time_s > 0 else None


def _line(row: dict[str, Any], numbers: dict[str, _Numbers], seen: dict[str, Any] | None) -> str:
    size = row["_size"]
    others = row["depends_on"]
    wait_s = -1.0 if seen is None else seen["start_s"] - row["submit_s"]
    status = -1 if seen is None else _STATUS.get(seen["state"], -1)
    memory = row["mem_gib"] * _KIB_PER_GIB / size if row["mem_gib"] else -1
    fields = (
        numbers["job"].of(row["job_id"]), row["submit_s"], wait_s, row["duration_s"], size, -1, -1,
        size, _or_unknown(row["estimate_s"]), memory, status, numbers["user"].of(row["user"]), -1,
        numbers["executable"].of(row["name"]), numbers["queue"].of(row["vc"]), -1,
        numbers["job"].of(others[0]) if others else -1, -1,
    )  # fmt: skip
    return " ".join(number(float(field)) or "-1" for field in fields)


def _or_unknown(value: float | None) -> float:
    return -1.0 if value is None else value


def _whole(text: str) -> int | None:
    """A number that is written as swf would write it, and read back exactly."""
    short = text.isascii() and text.isdigit() and len(text) <= len(str(int(MOST_EXACT)))
    return int(text) if short and int(text) < MOST_EXACT and str(int(text)) == text else None


def _lost(imported: Imported, jobs: "pl.DataFrame") -> list[str]:
    """Columns with values that are not in the file."""
    lost = []
    for name, (kind, default) in JOBS.items():
        if name in _HELD:
            continue
        values = jobs[name].unique().to_list()
        said = any(values) if kind == "texts" else any(value != default for value in values)
        if said:
            lost.append(name)
    if (jobs["depends_on"].list.len() > 1).any():
        lost.append("depends_on (all but the first)")
    if ((jobs["num_gpus"] > 0) & (jobs["cpus"] > 0)).any():
        lost.append("cpus beside GPUs")
    if imported.cluster:
        lost.append("the machines")
    if imported.events.height:
        lost.append("cluster events")
    return lost


def _unseen(imported: Imported) -> list[str]:
    """What of the observed schedule is not in the file."""
    frame = imported.observed.frame
    lost = []
    if (frame["nodes"].list.len() > 0).any():
        lost.append("the nodes of the observed schedule")
    if (frame["attempt"] > 0).any():
        lost.append("attempts of a job after its first start")
    states = sorted(set(frame["state"].unique()) - {*_STATUS, UNKNOWN})
    if states:
        lost.append(f"how attempts ended ({', '.join(states)})")
    return lost


def _replace(path: Path, lines: list[str]) -> None:
    with replacing(path) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
