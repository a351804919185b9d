"""Rota's own event log: a folder of `rota simulate` or `rota export`, or its `events.parquet`.

The log tells what was asked (GPUs, tenant) and what happened (nodes, starts, stops). The run time
of a job is what it held its nodes for, in all its attempts. Nodes come from the log; the log of a
daemon also has their GPU types, CPUs and memory, and the users and estimates of its jobs. Jobs that
never ran are left out; those that ran at the end of the log are cut there. Of a job whose tasks
started one by one only the first start and the last end are known, without its nodes.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.errors import TraceError
from rota.core.eventlog import EventLog
from rota.core.log import LABELS, Record
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.formats.store import node_problem, read_parquet
from rota.traces.imported import Imported
from rota.traces.observed import (
    CANCELLED,
    DONE,
    FAILED,
    NODE_FAIL,
    PREEMPTED,
    RUNNING,
    TIMEOUT,
    Seen,
)
from rota.traces.sources import is_folder, read_bytes
from rota.traces.tidy import Common, Rest, attempts_frame, import_rows

if TYPE_CHECKING:
    import polars as pl

EVENTS = "events.parquet"
ENDS = {
    Record.STOP: PREEMPTED,
    Record.EVICTED: NODE_FAIL,
    Record.DONE: DONE,
    Record.FAILED: FAILED,
    Record.CANCELLED: CANCELLED,
    Record.TIMEOUT: TIMEOUT,
}
OVER = (Record.DONE, Record.FAILED, Record.CANCELLED, Record.TIMEOUT)
PLACED = (Record.START, Record.MOVE)
LIFE = (Record.SUBMIT, Record.TASK, *PLACED, *ENDS)
SAID = ("name", "group", "model")  # keys of a job file that say for what it is
_RUN = "rota_run"


class _Made(msgspec.Struct):
    """What the log of a daemon says of itself, as far as it matters here."""

    nodes: list[NodeSpec] = []
    jobs: list[list[Any]] = []
    epoch_unix: float | None = None  # second 0


class _LoggedJob(msgspec.Struct):
    name: str
    submit_s: float
    gpus: float
    tenant: str
    seen: list[Seen] = []

    def stopped(
        self,
        event: Record,
        time_s: float,
        begun: tuple[float, int] | None,
        places: Mapping[int, list[tuple[str, float]]],
    ) -> None:
        """An attempt that began then and there has ended; None: none was going on."""
        if begun is not None:
            self.seen.append(_seen(begun, time_s, places, ENDS.get(event, PREEMPTED)))
        elif self.seen and event in OVER:  # it ended by itself while it was stopped, or waited
            self.seen[-1] = msgspec.structs.replace(self.seen[-1], state=ENDS[event])


class RotaLog(Reader):
    """Reads an event log."""

    name = "rota-log"
    description = "event log of Rota (folder of simulate or export, or events.parquet)"
    verified = True
    params = Common

    def beside(self, path: Path, params: Common) -> Sequence[Path]:  # noqa: ARG002 - always
        """The log in its folder."""
        return (path / EVENTS,) if is_folder(path) else ()

    def import_file(self, path: Path, params: Common) -> Imported:
        """Everything that ran."""
        import polars as pl

        log, made = _read(path / EVENTS if is_folder(path) else path)
        jobs = _jobs(log)
        if not jobs:
            raise TraceError(f"{path}: holds no jobs: nothing was submitted")
        quality = Quality(rows=len(jobs))
        owners = {str(entry[0]): entry[1:] for entry in made.jobs if len(entry) > 1}
        end_s = float(log.time_s.max(initial=0.0))
        rows = [_row(job, end_s, owners.get(job.name, [""])) for job in jobs]
        schema = {
            "job_id": pl.String, "submit_s": pl.Float64, "num_gpus": pl.Float64,
            "duration_s": pl.Float64, "vc": pl.String, "user": pl.String,
            "estimate_s": pl.Float64, **dict.fromkeys(SAID, pl.String), "_status": pl.String,
            "_cut": pl.Boolean,
        }  # fmt: skip
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        cluster = tuple(made.nodes) or _nodes(log)
        name = path.name if is_folder(path) else path.stem
        rest = Rest(name=name, cluster=cluster)
        seen = attempts_frame({job.name: job.seen for job in jobs})
        imported = import_rows(path, frame, params, quality, rest=rest, attempts=seen)
        if made.epoch_unix is not None:  # of a daemon: its log tells the date
            first_s = made.epoch_unix + float(imported.origin.removesuffix(" s"))
            imported.origin = str(datetime.fromtimestamp(first_s, UTC).replace(tzinfo=None))
        return imported


FORMAT = RotaLog()


def _read(path: Path) -> tuple[EventLog, _Made]:
    import polars as pl

    def problem(why: str) -> TraceError:
        return TraceError(
            f"{path}: is not an event log of Rota ({why[:80]}): name the folder of a run"
        )

    wanted = [
        pl.col("time_s").cast(pl.Float64),
        pl.col("event").cast(pl.String),
        pl.col("job", "ref", "other").cast(pl.Int64),
        pl.col("value").cast(pl.Float64),
        pl.col("text").cast(pl.String),
    ]
    log, notes = read_parquet(read_bytes(path, TraceError), wanted, problem)
    try:
        made = msgspec.json.decode(notes.get(_RUN, "{}"), type=_Made)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise problem(str(error)) from error
    wrong = _wrong(log) or node_problem(made.nodes)
    if wrong:
        raise problem(wrong)
    known = log.filter(pl.col("event").is_in(LABELS)).with_columns(
        pl.col("event").cast(pl.Enum(LABELS)),
        pl.col("job", "ref", "other").fill_null(-1),
        pl.col("value").fill_null(0.0),
    )
    return EventLog(known), made


def _wrong(log: "pl.DataFrame") -> str:
    """What a log cannot have; empty: nothing."""
    import polars as pl

    event, value = pl.col("event"), pl.col("value")
    amount = event.is_in(_labels((Record.SUBMIT, Record.VERTEX, Record.ALLOCATION)))
    checks = {
        "an event has no time or no name": ~pl.col("time_s").is_finite() | event.is_null(),
        "an event of a job names none": event.is_in(_labels(LIFE)) & pl.col("job").is_null(),
        "an amount is not a number, at least 0": amount & ~value.is_between(0, 1e300),
        "a start names no allocation": event.is_in(_labels(PLACED)) & pl.col("ref").is_null(),
    }
    found = log.select(wrong.fill_null(value=True).any().alias(what)
                       for what, wrong in checks.items()).row(0, named=True)  # fmt: skip
    return next((what for what, wrong in found.items() if wrong), "")


def _labels(kinds: Sequence[Record]) -> list[str]:
    return [LABELS[kind] for kind in kinds]


def _nodes(log: EventLog) -> tuple[NodeSpec, ...]:
    """Vertices at the level of nodes."""
    sizes = zip(log.nodes.names, log.nodes.gpus.tolist(), strict=True)
    found = {
        name: NodeSpec(name, int(gpus))
        for name, gpus in sizes
        if name and 0 <= gpus < 1e6  # noqa: PLR2004 - nonsense
    }
    return tuple(found.values())


def _places(log: EventLog) -> dict[int, list[tuple[str, float]]]:
    """Nodes and GPUs of every allocation; empty when it is not by nodes."""
    names = dict(zip(log.nodes.number.tolist(), log.nodes.names, strict=True))
    parents = dict(zip(log.vertices.number.tolist(), log.vertices.parent.tolist(), strict=True))
    found: dict[int, list[tuple[str, float]]] = {}
    for number, vertex, gpus in zip(*(column.tolist() for column in log.slices), strict=True):
        place = names.get(vertex) or names.get(parents.get(vertex, -1), "")
        found.setdefault(number, []).append((place, gpus))
    return {
        number: parts if all(name for name, _ in parts) else [] for number, parts in found.items()
    }


def _jobs(log: EventLog) -> list[_LoggedJob]:
    """Every job with its attempts, in order of submission."""
    places = _places(log)
    jobs: dict[int, _LoggedJob] = {}
    owners: dict[int, int] = {}  # of tasks
    running: dict[int, tuple[float, int]] = {}
    for row in log.only(*LIFE):
        job = row.job
        if row.event == Record.SUBMIT:
            tenant = log.tenants.get(row.tenant, "")
            jobs[job] = _LoggedJob(row.text or str(job), row.time_s, row.value, tenant)
        elif row.event == Record.TASK:
            owners[job] = row.parent
        else:
            owner = jobs.get(owners.get(job, job))
            begun = running.pop(job, None)
            if owner is not None:
                owner.stopped(Record(row.event), row.time_s, begun, places)
            if row.event in PLACED:
                running[job] = (row.time_s, row.allocation)
    for job, begun in running.items():
        owner = jobs.get(owners.get(job, job))
        if owner is not None:
            owner.seen.append(_seen(begun, None, places, RUNNING))
    for task in owners.values():
        if task in jobs:
            jobs[task].seen = _together(jobs[task].seen)
    return list(jobs.values())


def _seen(
    begun: tuple[float, int],
    end_s: float | None,
    places: Mapping[int, list[tuple[str, float]]],
    state: str,
) -> Seen:
    start_s, allocation = begun
    by_node: dict[str, float] = {}
    for name, gpus in places.get(allocation, ()):
        by_node[name] = by_node.get(name, 0.0) + gpus
    return Seen(0, start_s, end_s, tuple(by_node), tuple(by_node.values()), state)


def _together(seen: list[Seen]) -> list[Seen]:
    """One span over all tasks."""
    if not seen:
        return []
    ends_s = [one.end_s for one in seen]
    known_s = [end_s for end_s in ends_s if end_s is not None]
    end_s = max(known_s) if len(known_s) == len(ends_s) else None
    state = RUNNING if end_s is None else seen[-1].state
    return [Seen(0, min(one.start_s for one in seen), end_s, state=state)]


def _row(job: _LoggedJob, end_s: float, owner: Sequence[Any]) -> tuple[Any, ...]:
    """`owner`: who submitted it, the job file and the estimate, if the log is of a daemon."""
    spans = [(one.end_s if one.end_s is not None else end_s) - one.start_s for one in job.seen]
    said = owner[1] if len(owner) > 1 and isinstance(owner[1], dict) else {}
    goes_on = bool(job.seen) and job.seen[-1].state in (RUNNING, PREEMPTED, NODE_FAIL)
    return (
        job.name,
        job.submit_s,
        job.gpus,
        ordered_sum(spans) if spans else None,
        job.tenant,
        str(owner[0]),
        _estimate_s(owner),
        *(str(said.get(key, "")) for key in SAID),
        job.seen[-1].state if job.seen else "",
        goes_on,
    )


def _estimate_s(owner: Sequence[Any]) -> float | None:
    """What the user said, if the log tells it; it comes from a file, so it may be anything."""
    said = owner[2] if len(owner) > 2 else None  # noqa: PLR2004 - see `_row`
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return float(said) if 0 < said < inf else None
