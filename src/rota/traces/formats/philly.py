"""Microsoft's Philly trace (Jeon et al., ATC 2019): the job log, or the csv derived from it.

The derived csv has the columns timestamp, duration, num_gpus, gpu_time, cluster, in no order. Jobs
are sorted by time (ties as in the file), `submit_s` counts from the first job kept, and the cluster
column (the virtual cluster) is the tenant. Jobs of the csv are numbered from 0 in this order; those
of the log keep their ids. Durations are whole seconds, at least 1. Times have no zone: they are
taken as one clock that runs evenly, though the real one was set back on 2017-11-05.

The log, `cluster_job_log`, is a JSON array with the attempts of every job. There is no field for
what was asked: the GPUs of a job are those of its first attempt that lists any, so a job without
attempts has no known size and is dropped. Missing times are null, "None" or "". A job whose last
attempt has no end was still running when the log was taken: it is cut at the latest time in the log
(censored). Every such step is counted.

Everything is kept unless an option says otherwise: `after` and `before` (times of submission, the
first included, the second not), `vc` (names, a/b/c), `min_duration` (seconds); for the csv `ignore`
(unknown columns); for the log `runtime` (of several attempts: their `sum`, the `span` from first
start to last end, the `last` one), `unfinished` (`censor` at the end of the log, or `drop`),
`statuses` (Pass/Killed/Failed) and `utilisation` (the file `cluster_gpu_util`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn, TypeAlias

import msgspec

from rota.core.errors import OptionError, TraceError
from rota.core.sums import ordered_sum
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.formats.philly_machines import machine_list, machines_beside, read_uses
from rota.traces.imported import Imported
from rota.traces.observed import CANCELLED, DONE, FAILED, RUNNING, Seen
from rota.traces.sniff import first_look
from rota.traces.sources import decode, read_bytes
from rota.traces.table import Column, Layout, Table, since_1970
from rota.traces.tidy import Common, Rest, attempts_frame, import_rows

if TYPE_CHECKING:
    import polars as pl

LAYOUT = Layout(
    (
        Column("timestamp", "time", required=True),
        Column("duration", "number", required=True, least=0),
        Column("num_gpus", "number", required=True, least=1, whole=True),
        Column("gpu_time", optional=True),
        Column("cluster", optional=True),
    ),
    strict=True,
    remedy="ignore unknown columns with --format philly:ignore=yes",
    iso_times=True,
    missing=("",),
    no_text=(),
)
STATES = {"Pass": DONE, "Killed": CANCELLED, "Failed": FAILED}

_MISSING = (None, "", "None")
_LOG_ONLY = ("utilisation", "runtime", "unfinished", "statuses")

Run: TypeAlias = tuple[float, float | None]


class PhillyParams(msgspec.Struct, frozen=True):
    """Options of the format: those of the log (how run times are taken from attempts) come first.

    `utilisation` names a file about the machines.
    """

    utilisation: str = ""
    runtime: Literal["sum", "span", "last"] = "sum"
    unfinished: Literal["censor", "drop"] = "censor"
    statuses: tuple[str, ...] = ()
    after: str = ""
    before: str = ""
    vc: tuple[str, ...] = ()
    min_duration: float = 0.0
    ignore: bool = False


class Philly(Reader):
    """Reads the derived csv and the original log."""

    name = "philly"
    description = "Microsoft Philly: the job log (JSON) or the csv derived from it"
    verified = True
    forms: ClassVar[Mapping[str, bool]] = {"csv": True, "JSON log with machine list": False}
    params = PhillyParams

    def beside(self, path: Path, params: PhillyParams) -> Sequence[Path]:  # noqa: ARG002 - always
        """The list of machines."""
        file = machine_list(path)
        return () if file is None else (file,)

    def load(self, path: Path, options: Mapping[str, str]) -> Imported:
        """The jobs; of the log also every attempt, and the machines listed beside it."""
        given = [key for key in _LOG_ONLY if key in options]
        if given and not first_look(path).is_json:
            raise OptionError(
                f"format philly: {given[0]}={options[given[0]]} is for the job log, but {path} is "
                f"the derived csv, which has no attempts: leave the option out"
            )
        return super().load(path, options)

    def import_file(self, path: Path, params: PhillyParams) -> Imported:
        """All jobs in the order of submission."""
        _check_bounds(params)
        wanted = Common(
            after=params.after, before=params.before, vc=params.vc, min_duration=params.min_duration
        )
        if not first_look(path).is_json:
            quality = Quality()
            frame = _read_csv(path, params, quality)
            rest = Rest(name=path.stem, dated=True, numbered=True)
            imported = import_rows(path, frame, wanted, quality, rest=rest)
            imported.cluster, imported.notes = machines_beside(path, ())
            return imported
        jobs, quality = _read_log(path, params)
        attempts = attempts_frame({job.entry.jobid: job.seen for job in jobs.values()})
        frame = _frame(jobs.values())
        rest = Rest(name=path.stem, dated=True)
        imported = import_rows(path, frame, wanted, quality, rest=rest, attempts=attempts)
        sizes = [jobs[name].sizes for name in imported.jobs["job_id"]]
        uses = read_uses(Path(params.utilisation)) if params.utilisation else None
        imported.cluster, imported.notes = machines_beside(path, sizes, uses)
        return imported


FORMAT = Philly()


def _check_bounds(params: PhillyParams) -> None:
    for key, text in (("after", params.after), ("before", params.before)):
        if text and since_1970(text) is None:
            raise OptionError(
                f"format philly: {key}={text} is not a time: "
                f"write YYYY-MM-DD or YYYY-MM-DD HH:MM:SS"
            )


def _read_csv(path: Path, params: PhillyParams, quality: Quality) -> "pl.DataFrame":
    import polars as pl

    table = Table(path, LAYOUT, ignore=params.ignore, quality=quality)
    return table.whole().select(
        pl.col("timestamp").alias("submit_s"),
        "num_gpus",
        pl.col("duration").floor().alias("duration_s"),
        pl.col("cluster").alias("vc"),
    )


# --- the log -------------------------------------------------------------------------------------


class _Detail(msgspec.Struct):
    ip: str | None = None
    gpus: list[str] = []


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Detail] | None = None

    @property
    def gpus(self) -> int:
        return sum(len(part.gpus) for part in self.detail or ())


class _PhillyEntry(msgspec.Struct):
    jobid: str
    status: str = ""
    vc: str | None = None
    user: str | None = None
    submitted_time: str | None = None
    attempts: list[_Attempt] = []


class _PhillyJob(msgspec.Struct):
    """A job of known size; times are seconds since 1970 on the log's own clock."""

    entry: _PhillyEntry
    submit_s: float
    gpus: int
    runs: list[Run]
    details: list[list[_Detail]]  # of each run
    duration_s: float = 0.0

    @property
    def latest_s(self) -> float:
        """The latest time that it tells."""
        ends_s = (start_s if end_s is None else end_s for start_s, end_s in self.runs)
        return max(self.submit_s, *ends_s)

    @property
    def sizes(self) -> dict[str, int]:
        """A machine with gpu7 has 8 GPUs at least; one without numbers as many as are named."""
        sizes: dict[str, int] = {}
        for detail in (detail for details in self.details for detail in details if detail.ip):
            numbers = [name.removeprefix("gpu") for name in detail.gpus]
            known = [int(text) + 1 for text in numbers if text.isdecimal() and len(text) <= 4]  # noqa: PLR2004
            size = max([*known, len(detail.gpus)], default=0)
            sizes[detail.ip or ""] = max(size, sizes.get(detail.ip or "", 0))
        return sizes

    @property
    def seen(self) -> list[Seen]:
        """What happened; each attempt but the last failed, or another would not have followed."""
        out = []
        last = len(self.runs) - 1
        for number, ((start_s, end_s), details) in enumerate(
            zip(self.runs, self.details, strict=True)
        ):
            state = STATES.get(self.entry.status, "") if number == last else FAILED
            places = [detail for detail in details if detail.ip]
            out.append(
                Seen(
                    0,
                    start_s,
                    end_s,
                    tuple(detail.ip or "" for detail in places),
                    tuple(float(len(detail.gpus)) for detail in places),
                    state if end_s is not None else RUNNING,
                )
            )
        return out


def _read_log(path: Path, params: PhillyParams) -> tuple[dict[str, _PhillyJob], Quality]:
    """All jobs of known size by their ids, in the order of the log."""
    entries = _decode(path)
    if not entries:
        raise TraceError(f"{path}: holds no jobs: the JSON array is empty")
    quality = Quality(rows=len(entries))
    jobs: dict[str, _PhillyJob] = {}
    for entry in entries:
        job, problem = _examine(path, entry, params, quality)
        if job is not None and entry.jobid in jobs:
            problem = "job id seen before"
        if job is None or problem:
            quality.drop(problem)
        else:
            jobs[entry.jobid] = job
    until_s = max((job.latest_s for job in jobs.values()), default=0.0)
    for job in jobs.values():
        if job.runs[-1][1] is None:
            quality.repair("still running at the end of the log: cut there")
        spans = [(start_s, until_s if end_s is None else end_s) for start_s, end_s in job.runs]
        job.duration_s = _runtime_s(spans, params.runtime)
    return jobs, quality


def _examine(
    path: Path, entry: _PhillyEntry, params: PhillyParams, quality: Quality
) -> tuple[_PhillyJob | None, str]:
    """The job, or why it is dropped."""
    time_s = _time_s(path, entry, "submitted_time", entry.submitted_time)
    gpus = next((attempt.gpus for attempt in entry.attempts if attempt.gpus), 0)
    if params.statuses and entry.status not in params.statuses:
        return None, f"status {entry.status or 'missing'}"
    if time_s is None:
        return None, "no submission time"
    if not gpus:
        return None, "no GPUs recorded" if entry.attempts else "no attempts, so the size is unknown"
    runs, details = _runs(path, entry, quality)
    if not runs:
        return None, "no attempt with a start time"
    if params.unfinished == "drop" and runs[-1][1] is None:
        return None, "still running at the end of the log"
    return _PhillyJob(entry, time_s, gpus, runs, details), ""


def _runs(
    path: Path, entry: _PhillyEntry, quality: Quality
) -> tuple[list[Run], list[list[_Detail]]]:
    """Start, end and place of the attempts that have them; only the last may lack its end."""
    runs: list[Run] = []
    details: list[list[_Detail]] = []
    for number, attempt in enumerate(entry.attempts, 1):
        start_s = _time_s(path, entry, "start_time", attempt.start_time)
        end_s = _time_s(path, entry, "end_time", attempt.end_time)
        if start_s is None:
            quality.repair("attempt without start ignored")
        elif end_s is None and number < len(entry.attempts):
            quality.repair("attempt without end ignored, though others follow")
        elif end_s is not None and end_s < start_s:
            quality.repair("attempt that ends before it starts ignored")
        else:
            runs.append((start_s, end_s))
            details.append(attempt.detail or [])
    return runs, details


def _frame(jobs: Iterable[_PhillyJob]) -> "pl.DataFrame":
    import polars as pl

    rows = [
        (
            job.entry.jobid,
            job.submit_s,
            float(job.gpus),
            float(int(job.duration_s)),
            job.entry.vc or "",
            job.entry.user or "",
        )
        for job in jobs
    ]
    schema = {
        "job_id": pl.String, "submit_s": pl.Float64, "num_gpus": pl.Float64,
        "duration_s": pl.Float64, "vc": pl.String, "user": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def _runtime_s(spans: list[tuple[float, float]], runtime: str) -> float:
    if runtime == "span":
        return max(end_s for _, end_s in spans) - min(start_s for start_s, _ in spans)
    if runtime == "last":
        spans = spans[-1:]
    return ordered_sum(end_s - start_s for start_s, end_s in spans)


def _time_s(path: Path, entry: _PhillyEntry, key: str, text: str | None) -> float | None:
    if text is None or text in _MISSING:
        return None
    time_s = since_1970(text)
    if time_s is None:
        raise TraceError(
            f"{path}: job {entry.jobid!r}, key {key!r}: {text!r} is not a time: "
            f"write YYYY-MM-DD HH:MM:SS, without a zone"
        )
    return time_s


def _decode(path: Path) -> list[_PhillyEntry]:
    data = read_bytes(path, TraceError)
    decode(data, path, TraceError)
    try:
        return msgspec.json.decode(data, type=list[_PhillyEntry])
    except msgspec.ValidationError as error:
        raise TraceError(
            f"{path}: is not a job log of Philly ({error}): give a JSON array of jobs with jobid, "
            f"submitted_time and attempts"
        ) from error
    except msgspec.DecodeError as error:
        _refuse_json(path, data, error)


def _refuse_json(path: Path, data: bytes, error: msgspec.DecodeError) -> NoReturn:
    position = re.search(r"\(byte (\d+)\)", str(error))
    byte = int(position[1]) if position else len(data)
    line = data.count(b"\n", 0, byte) + 1
    if position:
        problem, remedy = f"the JSON is wrong ({error})", "correct it or fetch the file again"
    else:
        problem, remedy = "the JSON ends too early", "the file is cut off: fetch it again"
    raise TraceError(f"{path}: line {line}, byte {byte}: {problem}: {remedy}") from error
