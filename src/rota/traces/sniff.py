"""Which format a file has, by its beginning alone: no reader is imported for it.

`PATTERNS` holds what Rota's own formats look like. A format of another package says it by its
method `recognises`; it is imported and asked only if no pattern here is certain (see `read`).
"""

import csv
import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TypeAlias

import msgspec

from rota.core.errors import TraceError
from rota.traces.sources import decode, files_in, is_folder, read_bytes

CERTAIN = 1.0
TRACE_FILE = "trace.json"
"""The description in a folder that Rota wrote: a folder with it is a stored trace."""
EVENTS_FILE = "events.parquet"
"""The event log in a folder of a run."""

_HEAD_BYTES = 1 << 16
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


class Head(msgspec.Struct, frozen=True):
    """The beginning of a file, or the list of a folder: enough to recognise its format."""

    text: str
    columns: tuple[str, ...] = ()  # of the first line, when the file is not JSON
    name: str = ""  # of the file
    files: tuple[str, ...] = ()  # in the folder

    @property
    def is_json(self) -> bool:
        """It starts like a JSON array or object."""
        return self.text.lstrip()[:1] in ("[", "{")

    @property
    def first_line(self) -> str:
        """The first line that is not blank."""
        return next(filter(str.strip, self.text.splitlines()), "")


def first_look(path: Path) -> Head:
    """Read the beginning of a file, or list a folder."""
    if is_folder(path):
        names = [item.name for item in files_in(path, TraceError)]
        return Head("", name=path.name, files=tuple(names))
    data = read_bytes(path, TraceError, limit=_HEAD_BYTES)
    head = Head(decode(data, path, TraceError, whole=False), name=path.name)
    if head.is_json:
        return head
    titles = next(csv.reader([head.first_line], skipinitialspace=True))
    return msgspec.structs.replace(head, columns=tuple(title.strip() for title in titles))


# --- patterns ------------------------------------------------------------------------------------

Claim: TypeAlias = Callable[[Head], float]
"""How sure a format is that a file is its own: 0 (no) to 1 (certainly)."""


def columns(*titles: str, needs: str = "", without: str = "") -> Claim:
    """The share of these titles that a table has; 0 unless it has one title and lacks another."""

    def claim(head: Head) -> float:
        if (needs and needs not in head.columns) or (without and without in head.columns):
            return 0.0
        return sum(title in head.columns for title in titles) / len(titles)

    return claim


def keys(*texts: str, enough: int) -> Claim:
    """JSON in which so many of these texts are found; with fewer, their share of that number."""

    def claim(head: Head) -> float:
        if not head.is_json:
            return 0.0
        return min(1.0, sum(text in head.text for text in texts) / enough)

    return claim


def either(*claims: Claim) -> Claim:
    """The surest of several forms of a format."""
    return lambda head: max(claim(head) for claim in claims)


def _tiresias(head: Head) -> float:
    """Chronus and ElasticFlow have these columns, too."""
    share = columns("job_id", "num_gpu", "submit_time", "duration")(head)
    others = {"expect_time_list", "ddl"}.intersection(head.columns)
    return share * (0.9 if others else 1.0)


def _synergy(head: Head) -> float:
    """A first row that is no header: number, name and three numbers."""
    numbers = [_is_number(cell) for cell in head.columns]
    return float(not head.is_json and numbers == [True, False, True, True, True])


def _kubectl_yaml(head: Head) -> float:
    """What `kubectl get -o yaml` begins with; a description of a job has no time of creation."""
    marks = ("apiVersion: ", "kind: ", "creationTimestamp: ")
    return float(not head.is_json and all(mark in head.text for mark in marks))


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) < inf
    except ValueError:
        return False


def _pai(head: Head) -> float:
    """The names of the tables, or the columns of the job table."""
    if head.files:
        return float(any("job_table" in name for name in head.files))
    if "pai_job_table" in head.name:
        return 1.0
    return columns("job_name", "inst_id", "user", "status", "start_time", "end_time")(head)


def _pollux_results(head: Head) -> float:
    """The keys of its lines."""
    return float('"submitted_jobs"' in head.text and '"timestamp"' in head.text)


def _gavel(head: Head) -> float:
    """Ten or twelve fields separated by tabs, with numbers where they belong."""
    fields = head.first_line.split("\t")
    if len(fields) not in (10, 12):
        return 0.0
    numbers = (*fields[5:7], fields[9])
    return float(all(text.strip().replace(".", "", 1).isdigit() for text in numbers))


def _swf(head: Head) -> float:
    """18 numbers in the first line that is no comment."""
    lines = head.text.splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith(";")), "")
    fields = first.split()
    if not fields:
        return 0.9 if head.text.startswith(";") and "Version:" in head.text else 0.0
    return float(len(fields) == 18 and all(map(_NUMBER.fullmatch, fields)))  # noqa: PLR2004


def _sacct(head: Head) -> float:
    """The titles of `sacct --parsable2`."""
    if head.is_json:
        return 0.0
    titles = head.first_line.lower().split("|")
    if "jobid" not in titles and "jobidraw" not in titles:
        return 0.0
    usual = (
        "submit", "eligible", "start", "end", "state",
        "alloctres", "reqtres", "allocgres", "reqgres",
    )  # fmt: skip
    return 1.0 if sum(title in titles for title in usual) > 1 else 0.5


def _stored(head: Head) -> float:
    return float(TRACE_FILE in head.files or '"rota_trace"' in head.text)


def _rota_log(head: Head) -> float:
    """The tables of a stored trace are not a log."""
    return float(EVENTS_FILE in head.files and TRACE_FILE not in head.files)


_POLLUX = ("name", "time", "application", "num_replicas", "batch_size")

PATTERNS: dict[str, Claim] = {
    "csv": columns("job_id", "submit_s", "num_gpus", "duration_s"),
    "philly": either(
        columns("timestamp", "duration", "num_gpus", "gpu_time", "cluster"),
        keys('"jobid"', '"attempts"', enough=1),
    ),
    "tiresias": _tiresias,
    "synergy": _synergy,
    "helios": columns("gpu_num", "cpu_num", "node_num", "submit_time", "queue"),
    "alibaba-2020": _pai,
    "openb": columns("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", needs="name"),
    "spot": columns("organization", "gpu_model", "gpu_request", "worker_num"),
    "pollux": columns(*_POLLUX, without="category"),
    "sia": columns(*_POLLUX, "category", needs="category"),
    "pollux-results": _pollux_results,
    "gavel": _gavel,
    "elasticflow": columns("job_id", "submit_time", "iteration", "model_name", "ddl", "batch_size"),
    "deepboot": lambda head: 0.0,  # noqa: ARG005 - looks like pollux: only if it is named
    "chronus": columns("job_id", "num_gpu", "expect_time_list", "expect_value_list"),
    "swf": _swf,
    "batsim": keys('"nb_res"', '"profiles"', '"subtime"', '"walltime"', enough=2),
    "rota": _stored,
    "sacct": either(
        _sacct,
        keys(
            '"jobs"',
            '"submission"',
            '"eligible"',
            '"tres"',
            '"openapi/db',
            '"data_parser',
            enough=3,
        ),
    ),
    "kubernetes": either(
        keys('"apiVersion"', '"kind"', '"items"', '"Pod"', '"creationTimestamp"', enough=4),
        keys('"apiVersion"', '"kind"', '"items"', '"Workload"', '"podSets"', enough=5),
        keys('"rawObjects"', '"schedulerParams"', enough=2),
        _kubectl_yaml,
    ),
    "rota-log": _rota_log,
}
"""By the name of a format: what its files look like."""
