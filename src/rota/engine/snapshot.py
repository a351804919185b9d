"""A run frozen between two events, as plain data: resuming gives the log of an uninterrupted run.

Jobs are made again from the workload (in the order in which they arrived, so that all numbers come
out the same) and get their saved state; the scheduler rebuilds its queues from them. Nothing in a
snapshot is executable: it is MessagePack, checked on loading.

Versions of the state:

* 2: jobs carried the scheduler's keys and the queue that they were in;
* 3: the scheduler keeps entries of its own;
* 4: requests that a placement refined are saved, and the placement's state is apart from that of
  admission;
* 5: what jobs have told of themselves, and the levels of their progress that are watched;
* 6: the numbers of shapes and tasks, which the jobs do not tell once some of them are forgotten;
* 7: how often jobs failed, when they are tried again, and who of an array is let in;
* 8: windows, and whom they bar.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from rota.core.allocation import NOTHING, Allocation
from rota.core.errors import InputError
from rota.core.hints import Hints
from rota.core.jobs import Request
from rota.engine.loop import Engine

FORMAT = "rota-snapshot"
VERSION = 8

FIELDS = (
    "phase", "epoch", "version", "first_start_s", "start_s", "end_s", "preemptions", "migrations",
    "reason", "metrics", "true_left", "since_s", "true_rate", "service", "held_gpus", "run_s",
)  # fmt: skip


_values = attrgetter(*FIELDS)


class Snapshot(msgspec.Struct):
    """What is in the file."""

    format: str
    version: int
    config: dict[str, Any]
    state: dict[str, Any]


def save(engine: Engine, path: Path, config: dict[str, Any]) -> None:
    """Write a snapshot (to a temporary file first)."""
    snapshot = Snapshot(FORMAT, VERSION, config, freeze(engine))
    part = path.with_name(path.name + ".part")
    part.write_bytes(zlib.compress(msgspec.msgpack.encode(snapshot), 1))
    part.replace(path)


def load(path: Path) -> Snapshot:
    """Read a snapshot and check that it is one."""
    try:
        snapshot = msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=Snapshot)
    except OSError as error:
        raise InputError(f"{path}: cannot read the snapshot: {error.strerror}") from error
    except (zlib.error, msgspec.DecodeError) as error:
        raise InputError(f"{path}: not a snapshot of Rota: make one with --snapshot-at") from error
    if snapshot.format != FORMAT:
        raise InputError(f"{path}: not a snapshot of Rota: make one with --snapshot-at")
    if snapshot.version != VERSION:
        raise InputError(
            f"{path}: snapshot version {snapshot.version}, this Rota reads {VERSION}: make it again"
        )
    return snapshot


def freeze(engine: Engine) -> dict[str, Any]:
    """The state of a run between two events."""
    log = engine.log.snapshot()
    number = {allocation: i for i, allocation in enumerate(engine.log.known_allocations())}
    view = engine.view
    return {
        "now_s": view.now_s,
        "version": view.version,
        "up_gpus": view.up_gpus,
        "down": [node.id for node in view.topology.nodes if not node.up],
        "closed": [node.id for node in view.topology.nodes if node.closed],
        "events": engine.events,
        "decisions": engine.decisions,
        "jobs": [
            (job.index, number.get(job.allocation, -1), _values(job))
            for job in engine.jobs.values()
        ],
        "refined": _refined(engine),
        "told": [
            (job.index, job.told.snapshot())
            for job in engine.jobs.values()
            if job.told is not None
        ],
        "shared_reasons": [(*of, reason) for of, reason in view.shared_reasons.items()],
        **engine.lifecycle.snapshot(),
        **engine.timers.snapshot(),
        **engine.executor.snapshot(number),
        "calendar": None if engine.calendar is None else engine.calendar.snapshot(),
        "cluster": engine.cluster.snapshot(),
        "scheduler": engine.scheduler.snapshot(),
        "log": log,
    }  # fmt: skip


def restore(engine: Engine, state: dict[str, Any]) -> None:
    """Bring a freshly built engine (same workload, same options) into a saved state."""
    view = engine.view
    view.now_s, view.version, view.up_gpus = state["now_s"], state["version"], state["up_gpus"]
    for vertex in state["down"]:
        view.topology.vertices[vertex].up = False
    for vertex in state["closed"]:
        view.topology.vertices[vertex].closed = True
    engine.log.restore(state["log"])
    told = state.get("shared_reasons", ())  # older states have none
    view.shared_reasons = {(tenant, number): reason for tenant, number, reason in told}
    allocations = engine.log.known_allocations()
    _restore_jobs(engine, state, allocations)
    engine.events, engine.decisions = state["events"], state["decisions"]
    engine.lifecycle.restore(state)
    engine.timers.restore(state, engine.jobs)
    if state["calendar"] is not None:
        engine.schedule().restore(state["calendar"], engine.jobs)
    engine.executor.restore(state, engine.jobs, allocations)
    engine.cluster.restore(state["cluster"], engine.jobs)
    engine.scheduler.restore(view, state["scheduler"])


def _refined(engine: Engine) -> dict[str, Any]:
    """Requests that the placement of the time refined: by shape, and the jobs that have them."""
    jobs = [
        (job.index, job.shape)
        for job in engine.jobs.values()
        if job.parent is None
        and job.shape.request is not job.spec.request
        and job.shape.request != job.spec.request
    ]
    requests = {shape.number: shape.request for _, shape in jobs}
    return {
        "requests": [(number, msgspec.to_builtins(r)) for number, r in requests.items()],
        "jobs": [(index, shape.number) for index, shape in jobs],
    }


def _restore_jobs(engine: Engine, state: dict[str, Any], allocations: Sequence[Allocation]) -> None:
    refined: dict[int, Request] | None = None
    if state["refined"] is not None:
        requests = {n: msgspec.convert(r, Request) for n, r in state["refined"]["requests"]}
        refined = {index: requests[number] for index, number in state["refined"]["jobs"]}
    engine.lifecycle.remake(engine.source.take(state["now_s"]), refined, state)
    for index, allocation, values in state["jobs"]:
        job = engine.jobs[index]
        for field, value in zip(FIELDS, values, strict=True):
            setattr(job, field, value)
        job.allocation = allocations[allocation] if allocation >= 0 else NOTHING
    for index, told in state["told"]:
        engine.jobs[index].told = Hints.restored(told)


# --- older versions -------------------------------------------------------------------------------


def migrate(state: Mapping[str, Any], version: int) -> dict[str, Any]:
    """The state of an older version as this one has it; one that is unknown is refused."""
    migrated = dict(state)
    if version > VERSION or any(step not in MIGRATIONS for step in range(version, VERSION)):
        raise InputError(
            f"the state of its engine is of version {version}, this Rota reads {VERSION} and "
            f"migrates from {min(MIGRATIONS)} on"
        )
    for step in range(version, VERSION):
        migrated = MIGRATIONS[step](migrated)
    return migrated


def _from_2(state: dict[str, Any]) -> dict[str, Any]:
    """Keys and queues move from the jobs to the entries of a scheduler that has such."""
    slope = len(FIELDS_OF_3)  # after it came `queue`
    scheduler = dict(state["scheduler"])
    if "placed" in scheduler:
        where = dict.fromkeys(scheduler.pop("queued"), 1) | dict.fromkeys(
            scheduler.pop("placed"), 2
        )
        known = {*where, *scheduler["again"], *state["active"]}
        scheduler["entries"] = [
            (index, where.get(index, 0), key, vkey, values[slope])
            for index, key, vkey, _, values in state["jobs"]
            if index in known
        ]
    jobs = [
        (index, allocation, values[:slope]) for index, _, _, allocation, values in state["jobs"]
    ]
    return {**state, "jobs": jobs, "scheduler": scheduler}


def _from_3(state: dict[str, Any]) -> dict[str, Any]:
    """What was refined is unknown: it is done again, by the placement of the snapshot."""
    gate = dict(state["scheduler"]["gate"])
    placement = gate.pop("placement", {})
    scheduler = {**state["scheduler"], "gate": gate, "placement": placement, "anew": False}
    return {**state, "refined": None, "scheduler": scheduler}


def _from_4(state: dict[str, Any]) -> dict[str, Any]:
    """Nothing was told, and rates never changed by themselves."""
    return {**state, "told": [], "progress": []}


def _from_5(state: dict[str, Any]) -> dict[str, Any]:
    """Nobody was forgotten: all numbers come out as they were."""
    return {**state, "shapes": None, "tasks": None, "next_task": 0}


def _from_6(state: dict[str, Any]) -> dict[str, Any]:
    """The runs of a living cluster counted the failures; nobody waited, and no array was limited.

    A simulated job that failed was over.
    """
    cluster = state["cluster"]
    runs = dict(cluster["runs"]) if "runs" in cluster else {}
    failures = runs.pop("failures", [])
    cluster = {**cluster, "runs": runs} if runs else {**cluster, "limits": []}
    return {**state, "failures": failures, "returning": [], "arrays": [], "cluster": cluster}


def _from_7(state: dict[str, Any]) -> dict[str, Any]:
    """There were no windows."""
    return {**state, "calendar": None}


FIELDS_OF_3 = FIELDS
MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    2: _from_2, 3: _from_3, 4: _from_4, 5: _from_5, 6: _from_6,
    7: _from_7,
}  # fmt: skip
