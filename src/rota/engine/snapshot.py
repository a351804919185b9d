"""A run frozen between two events, as plain data: resuming gives the log of an uninterrupted run.

Jobs are made again from the workload (in the order in which they arrived, so that all numbers come
out the same) and get their saved state; the scheduler rebuilds its queues from them. Nothing in a
snapshot is executable: it is MessagePack, checked on loading.
"""

import zlib
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from rota.core.allocation import NOTHING, Allocation
from rota.core.errors import InputError
from rota.engine.loop import Engine

FORMAT = "rota-snapshot"
VERSION = 3

FIELDS = (
    "phase", "epoch", "version", "first_start_s", "start_s", "end_s", "preemptions", "migrations",
    "reason", "metrics", "left", "since_s", "rate", "service", "held_gpus", "run_s",
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
        **engine.lifecycle.snapshot(),
        **engine.timers.snapshot(),
        **engine.executor.snapshot(number),
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
    allocations = engine.log.known_allocations()
    _restore_jobs(engine, state, allocations)
    engine.events, engine.decisions = state["events"], state["decisions"]
    engine.lifecycle.restore(state)
    engine.timers.restore(state, engine.jobs)
    engine.executor.restore(state, engine.jobs, allocations)
    engine.cluster.restore(state["cluster"], engine.jobs)
    engine.scheduler.restore(view, state["scheduler"])


def _restore_jobs(engine: Engine, state: dict[str, Any], allocations: Sequence[Allocation]) -> None:
    engine.lifecycle.remake(engine.source.take(state["now_s"]))
    for index, allocation, values in state["jobs"]:
        job = engine.jobs[index]
        for field, value in zip(FIELDS, values, strict=True):
            setattr(job, field, value)
        job.allocation = allocations[allocation] if allocation >= 0 else NOTHING
