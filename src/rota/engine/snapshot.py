"""A run frozen between two events, as plain data: resuming gives the log of an uninterrupted run.

Jobs are made again from the workload (in the order in which they arrived, so that all numbers come
out the same) and get their saved state; the scheduler rebuilds its queues from them. Nothing in a
snapshot is executable: it is MessagePack, checked on loading.
"""

import zlib
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rota.core.allocation import NOTHING
from rota.core.errors import InputError
from rota.core.events import Event
from rota.core.jobs import Job
from rota.core.plan import Level, Wake
from rota.core.topology import Vertex
from rota.engine.loop import Engine

FORMAT = "rota-snapshot"
VERSION = 2

FIELDS = (
    "phase", "epoch", "version", "first_start_s", "start_s", "end_s", "preemptions", "migrations",
    "reason", "metrics", "left", "since_s", "rate", "service", "held_gpus", "run_s", "slope",
    "queue",
)  # fmt: skip


_values = attrgetter(*FIELDS)


class Snapshot(msgspec.Struct):
    """What is in the file."""

    format: str
    version: int
    config: dict[str, Any]
    state: dict[str, Any]


class FreezableCluster(Protocol):
    """A cluster that can be frozen: the simulator."""

    def snapshot(self) -> dict[str, Any]:
        """Pending events as plain data."""
        ...

    def restore(self, state: dict[str, Any], jobs: dict[int, Job]) -> None:
        """Take the state of `snapshot` up again."""
        ...


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
    cluster: FreezableCluster = engine.cluster  # type: ignore[assignment]  # only simulations are frozen
    log = engine.log.snapshot()
    number = {allocation: i for i, allocation in enumerate(engine.log.known_allocations())}
    view = engine.view
    return {
        "now_s": view.now_s,
        "version": view.version,
        "up_gpus": view.up_gpus,
        "down": [node.id for node in view.topology.nodes if not node.up],
        "closed": [node.id for node in view.topology.nodes if node.closed],
        "detained": sorted(engine.detained),
        "events": engine.events,
        "decisions": engine.decisions,
        "sequence": engine.sequence,
        "wake": (sorted(engine.wake.on) if engine.wake.on is not None else None,
                 engine.wake.at_s, engine.wake.every_s),
        "jobs": [
            (job.index, job.key, job.vkey, number.get(job.allocation, -1),
             _values(job))
            for job in engine.jobs.values()
        ],
        "active": list(view.active),
        "history": [job.index for job in view.finished],
        "waiting_for": [(k, [j.index for j in v]) for k, v in engine.arrivals.waiting_for.items()],
        "deferred": [job.index for job in engine.executor.deferred],
        "moving": sorted(engine.executor.moving),
        "ask_now": engine.ask_now,
        "levels": [
            (index, [(level.quantity, level.value) for level in levels])
            for index, levels in engine.levels.items()
        ],
        "leaving": [(i, number[a]) for i, a in engine.executor.leaving.items()],
        "backlog": [_plain(event) for event in engine.backlog],
        "timers": [(t, n, job.index, epoch) for t, n, job, epoch in sorted(engine.timers, key=_rank)
                   if epoch == job.epoch],
        "cluster": cluster.snapshot(),
        "scheduler": engine.scheduler.snapshot(),
        "log": log,
    }  # fmt: skip


def _rank(timer: tuple[float, int, Job, int]) -> tuple[float, int]:
    return timer[:2]


def _plain(event: Event) -> tuple[Any, ...]:
    time_s, kind, sequence, subject, epoch = event
    what = "job" if isinstance(subject, Job) else "vertex" if isinstance(subject, Vertex) else ""
    name = subject.index if isinstance(subject, Job) else subject.id if what else -1
    return (time_s, kind, sequence, what, name, epoch)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def restore(engine: Engine, state: dict[str, Any]) -> None:
    """Bring a freshly built engine (same workload, same options) into a saved state."""
    view = engine.view
    view.now_s, view.version, view.up_gpus = state["now_s"], state["version"], state["up_gpus"]
    for vertex in state["down"]:
        view.topology.vertices[vertex].up = False
    for vertex in state["closed"]:
        view.topology.vertices[vertex].closed = True
    engine.detained = set(state["detained"])
    engine.log.restore(state["log"])
    _restore_jobs(engine, state)
    jobs = engine.jobs
    engine.arrivals.waiting_for = {k: [jobs[i] for i in v] for k, v in state["waiting_for"]}
    view.active.update((index, jobs[index]) for index in state["active"])
    view.finished.extend(jobs[index] for index in state["history"])
    engine.events, engine.decisions = state["events"], state["decisions"]
    engine.sequence, engine.ask_now = state["sequence"], state["ask_now"]
    engine.levels = {
        index: [Level(jobs[index], quantity, value) for quantity, value in levels]
        for index, levels in state["levels"]
    }
    on, at_s, every_s = state["wake"]
    engine.wake = Wake(frozenset(on) if on is not None else None, at_s, every_s)
    engine.timers[:] = [(t, n, jobs[i], epoch) for t, n, i, epoch in state["timers"]]
    subjects: dict[str, Any] = {"job": jobs, "vertex": view.topology.vertices, "": {-1: None}}
    engine.backlog[:] = [
        (t, kind, n, subjects[what][name], epoch)
        for t, kind, n, what, name, epoch in state["backlog"]
    ]
    _restore_executor(engine, state)
    cluster: FreezableCluster = engine.cluster  # type: ignore[assignment]  # only simulations are frozen
    cluster.restore(state["cluster"], jobs)
    engine.scheduler.restore(view, state["scheduler"])


def _restore_jobs(engine: Engine, state: dict[str, Any]) -> None:
    engine.remake_jobs(state["now_s"])
    allocations = engine.log.known_allocations()
    for index, key, vkey, allocation, values in state["jobs"]:
        job = engine.jobs[index]
        for field, value in zip(FIELDS, values, strict=True):
            setattr(job, field, value)
        job.key, job.vkey = _tuples(key), _tuples(vkey)
        job.allocation = allocations[allocation] if allocation >= 0 else NOTHING


def _restore_executor(engine: Engine, state: dict[str, Any]) -> None:
    executor = engine.executor
    allocations = engine.log.known_allocations()
    executor.deferred = [engine.jobs[index] for index in state["deferred"]]
    executor.moving = set(state["moving"])
    for index in executor.moving:
        engine.jobs[index].moving = True
    executor.leaving = {index: allocations[number] for index, number in state["leaving"]}
    executor.rebuild(engine.view.active.values())
