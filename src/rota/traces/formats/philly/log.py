"""The original job log of Philly, `cluster_job_log`: a JSON array with the attempts of every job.

There is no field for what was asked: the GPUs of a job are those of its first attempt that lists
any, so a job without attempts has no known size and is dropped. Missing times are null, "None" or
"". A job whose last attempt has no end was still running when the log was taken: it is cut at the
latest time in the log (censored). Every such step is counted in the workload's `Quality`.
"""

import re
from datetime import datetime
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

import msgspec

from rota.core.errors import TraceError
from rota.core.workload import Quality
from rota.traces.format import decode, read_bytes
from rota.traces.observed import CANCELLED, DONE, FAILED, RUNNING, Seen

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the log's times have no zone, neither has this one

STATES = {"Pass": DONE, "Killed": CANCELLED, "Failed": FAILED}

_MISSING = (None, "", "None")

Run: TypeAlias = tuple[float, float | None]


class LogParams(msgspec.Struct, frozen=True):
    """How run times are taken from attempts, which jobs are kept, and a file about the machines."""

    utilisation: str = ""
    runtime: Literal["sum", "span", "last"] = "sum"
    unfinished: Literal["censor", "drop"] = "censor"
    statuses: tuple[str, ...] = ()


class Batch(msgspec.Struct):
    """Jobs as columns; times are seconds since 1970 on the log's own clock. No ids: number them."""

    ids: list[str]
    times_s: list[float]
    durations_s: list[float]
    gpus: list[float]
    tenants: list[str]
    users: list[str]
    seen: list[list[Seen]] = []  # the attempts of each job; `job` is not set yet
    sizes: list[dict[str, int]] = []  # of each job: machines, as large as its GPUs' numbers show


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


class _Entry(msgspec.Struct):
    jobid: str
    status: str = ""
    vc: str | None = None
    user: str | None = None
    submitted_time: str | None = None
    attempts: list[_Attempt] = []


class _Kept(msgspec.Struct):
    entry: _Entry
    time_s: float
    gpus: int
    runs: list[Run]
    details: list[list[_Detail]]  # of each run


def read_log(path: Path, params: LogParams) -> tuple[Batch, Quality]:
    """All jobs of known size, in the order of the log."""
    entries = _decode(path)
    if not entries:
        raise TraceError(f"{path}: holds no jobs: the JSON array is empty")
    quality = Quality(rows=len(entries))
    kept: dict[str, _Kept] = {}
    for entry in entries:
        job, problem = _examine(path, entry, params, quality)
        if job is not None and entry.jobid in kept:
            problem = "job id seen before"
        if job is None or problem:
            count(quality.dropped, problem)
        else:
            kept[entry.jobid] = job
    return _batch(list(kept.values()), params, quality), quality


def read_time(text: str) -> float | None:
    """A time without zone as seconds since 1970; None when it is not one."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if time.tzinfo else (time - EPOCH).total_seconds()


def count(counts: dict[str, int], what: str) -> None:
    """One more of these."""
    counts[what] = counts.get(what, 0) + 1


def _examine(
    path: Path, entry: _Entry, params: LogParams, quality: Quality
) -> tuple[_Kept | None, str]:
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
    return _Kept(entry, time_s, gpus, runs, details), ""


def _runs(path: Path, entry: _Entry, quality: Quality) -> tuple[list[Run], list[list[_Detail]]]:
    """Start, end and place of the attempts that have them; only the last may lack its end."""
    runs: list[Run] = []
    details: list[list[_Detail]] = []
    for number, attempt in enumerate(entry.attempts, 1):
        start_s = _time_s(path, entry, "start_time", attempt.start_time)
        end_s = _time_s(path, entry, "end_time", attempt.end_time)
        if start_s is None:
            count(quality.repaired, "attempt without start ignored")
        elif end_s is None and number < len(entry.attempts):
            count(quality.repaired, "attempt without end ignored, though others follow")
        elif end_s is not None and end_s < start_s:
            count(quality.repaired, "attempt that ends before it starts ignored")
        else:
            runs.append((start_s, end_s))
            details.append(attempt.detail or [])
    return runs, details


def _batch(jobs: list[_Kept], params: LogParams, quality: Quality) -> Batch:
    latest_s = max((_latest_s(job) for job in jobs), default=0.0)
    durations_s = []
    for job in jobs:
        if job.runs[-1][1] is None:
            count(quality.repaired, "still running at the end of the log: cut there")
        spans = [(start_s, latest_s if end_s is None else end_s) for start_s, end_s in job.runs]
        durations_s.append(_runtime_s(spans, params.runtime))
    return Batch(
        ids=[job.entry.jobid for job in jobs],
        times_s=[job.time_s for job in jobs],
        durations_s=durations_s,
        gpus=[float(job.gpus) for job in jobs],
        tenants=[job.entry.vc or "" for job in jobs],
        users=[job.entry.user or "" for job in jobs],
        seen=[_seen(job) for job in jobs],
        sizes=[_sizes(job) for job in jobs],
    )


def _sizes(job: _Kept) -> dict[str, int]:
    """A machine with gpu7 has 8 GPUs at least; one without numbers as many as are named."""
    sizes: dict[str, int] = {}
    for detail in (detail for details in job.details for detail in details if detail.ip):
        numbers = [name.removeprefix("gpu") for name in detail.gpus]
        known = [int(text) + 1 for text in numbers if text.isdecimal() and len(text) <= 4]  # noqa: PLR2004
        size = max([*known, len(detail.gpus)], default=0)
        sizes[detail.ip or ""] = max(size, sizes.get(detail.ip or "", 0))
    return sizes


def _seen(job: _Kept) -> list[Seen]:
    """What happened; every attempt but the last failed, or another would not have followed."""
    out = []
    last = len(job.runs) - 1
    for number, ((start_s, end_s), details) in enumerate(zip(job.runs, job.details, strict=True)):
        state = STATES.get(job.entry.status, "") if number == last else FAILED
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


def _latest_s(job: _Kept) -> float:
    return max(job.time_s, *(start_s if end_s is None else end_s for start_s, end_s in job.runs))


def _runtime_s(spans: list[tuple[float, float]], runtime: str) -> float:
    if runtime == "span":
        return max(end_s for _, end_s in spans) - min(start_s for start_s, _ in spans)
    if runtime == "last":
        spans = spans[-1:]
    return sum(end_s - start_s for start_s, end_s in spans)


def _time_s(path: Path, entry: _Entry, key: str, text: str | None) -> float | None:
    if text is None or text in _MISSING:
        return None
    time_s = read_time(text)
    if time_s is None:
        raise TraceError(
            f"{path}: job {entry.jobid!r}, key {key!r}: {text!r} is not a time: "
            f"write YYYY-MM-DD HH:MM:SS, without a zone"
        )
    return time_s


def _decode(path: Path) -> list[_Entry]:
    data = read_bytes(path, TraceError)
    decode(data, path, TraceError)
    try:
        return msgspec.json.decode(data, type=list[_Entry])
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
