"""Rota's own event log: a folder of `rota simulate` or `rota export`, or its `events.parquet`.

The log tells what was asked (GPUs, tenant) and what happened (nodes, starts, stops). The run time
of a job is what it held its nodes for, in all its attempts. Nodes come from the log; the log of a
daemon also has their GPU types, CPUs and memory, and the users of its jobs. Jobs that never ran are
left out; those that ran at the end of the log are cut there. Of a job whose tasks started one by
one only the first start and the last end are told, without its nodes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.errors import TraceError
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.formats.store import node_problem, read_parquet
from rota.traces.imported import Imported
from rota.traces.observed import CANCELLED, DONE, FAILED, NODE_FAIL, PREEMPTED, RUNNING, Seen
from rota.traces.sources import is_folder, read_bytes
from rota.traces.tidy import Common, Rest, attempts_frame, import_rows

if TYPE_CHECKING:
    import polars as pl

EVENTS = "events.parquet"
COLUMNS = ("time_s", "event", "job", "ref", "other", "value", "text")
ENDS = {
    "stop": PREEMPTED,
    "evicted": NODE_FAIL,
    "done": DONE,
    "failed": FAILED,
    "cancelled": CANCELLED,
}
LIFE = ("submit", "task", "start", "move", *ENDS)
_RUN = "rota_run"


class _Made(msgspec.Struct):
    """What the log of a daemon says of itself, as far as it matters here."""

    nodes: list[NodeSpec] = []
    jobs: list[list[Any]] = []


class _Job(msgspec.Struct):
    name: str
    submit_s: float
    gpus: float
    tenant: str
    seen: list[Seen] = []


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
        users = {str(entry[0]): str(entry[1]) for entry in made.jobs if len(entry) > 1}
        end_s = float(log["time_s"].max() or 0.0)  # type: ignore[arg-type]  # a column of floats
        rows = [_row(job, end_s, users) for job in jobs]
        schema = {
            "job_id": pl.String, "submit_s": pl.Float64, "num_gpus": pl.Float64,
            "duration_s": pl.Float64, "vc": pl.String, "user": pl.String, "_status": pl.String,
            "_cut": pl.Boolean,
        }  # fmt: skip
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        cluster = tuple(made.nodes) or _nodes(log)
        name = path.name if is_folder(path) else path.stem
        rest = Rest(name=name, cluster=cluster)
        seen = attempts_frame({job.name: job.seen for job in jobs})
        return import_rows(path, frame, params, quality, rest=rest, attempts=seen)


FORMAT = RotaLog()


def _read(path: Path) -> "tuple[pl.DataFrame, _Made]":
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
    return log, made


def _wrong(log: "pl.DataFrame") -> str:
    """What a log cannot have; empty: nothing."""
    import polars as pl

    event, value = pl.col("event"), pl.col("value")
    amount = event.is_in(["submit", "vertex", "allocation"])
    checks = {
        "an event has no time or no name": ~pl.col("time_s").is_finite() | event.is_null(),
        "an event of a job names none": event.is_in(LIFE) & pl.col("job").is_null(),
        "an amount is not a number, at least 0": amount & ~value.is_between(0, 1e300),
        "a start names no allocation": event.is_in(["start", "move"]) & pl.col("ref").is_null(),
    }
    found = log.select(wrong.fill_null(value=True).any().alias(what)
                       for what, wrong in checks.items()).row(0, named=True)  # fmt: skip
    return next((what for what, wrong in found.items() if wrong), "")


def _nodes(log: "pl.DataFrame") -> tuple[NodeSpec, ...]:
    """Vertices at the level of nodes."""
    found: dict[str, NodeSpec] = {}
    for text, gpus in log.filter(event="vertex").select("text", "value").iter_rows():
        level, _, name = (text or "").partition(":")
        if level == "node" and name and 0 <= gpus < 1e6:  # noqa: PLR2004 - nonsense
            found[name] = NodeSpec(name, int(gpus))
    return tuple(found.values())


def _places(log: "pl.DataFrame") -> dict[int, list[tuple[str, float]]]:
    """Nodes and GPUs of every allocation; empty when it is not by nodes."""
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    for number, parent, text in log.filter(event="vertex").select("ref", "other", "text").rows():
        level, _, name = (text or "").partition(":")
        parents[number] = parent
        if level == "node":
            names[number] = name
    found: dict[int, list[tuple[str, float]]] = {}
    slices = log.filter(event="allocation").select("ref", "other", "value")
    for number, vertex, gpus in slices.iter_rows():
        place = names.get(vertex) or names.get(parents.get(vertex, -1), "")
        found.setdefault(number, []).append((place, gpus))
    return {
        number: parts if all(name for name, _ in parts) else [] for number, parts in found.items()
    }


def _jobs(log: "pl.DataFrame") -> list[_Job]:
    """Every job with its attempts, in order of submission."""
    import polars as pl

    places = _places(log)
    tenants = dict(log.filter(event="tenant").select("ref", "text").rows())
    jobs: dict[int, _Job] = {}
    owners: dict[int, int] = {}  # of tasks
    running: dict[int, tuple[float, int]] = {}
    life = log.filter(pl.col("event").is_in(list(LIFE)))
    for time_s, event, job, ref, other, value, text in life.select(COLUMNS).iter_rows():
        if event == "submit":
            jobs[job] = _Job(text or str(job), time_s, value, tenants.get(other) or "")
        elif event == "task":
            owners[job] = other
        else:
            owner = jobs.get(owners.get(job, job))
            begun = running.pop(job, None)
            if begun is not None and owner is not None:
                state = ENDS.get(event, PREEMPTED)
                owner.seen.append(_seen(begun, time_s, places, state))
            if event in ("start", "move"):
                running[job] = (time_s, ref)
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


def _row(job: _Job, end_s: float, users: Mapping[str, str]) -> tuple[Any, ...]:
    spans = [(one.end_s if one.end_s is not None else end_s) - one.start_s for one in job.seen]
    goes_on = bool(job.seen) and job.seen[-1].state in (RUNNING, PREEMPTED, NODE_FAIL)
    return (
        job.name,
        job.submit_s,
        job.gpus,
        sum(spans) if spans else None,
        job.tenant,
        users.get(job.name, ""),
        job.seen[-1].state if job.seen else "",
        goes_on,
    )
