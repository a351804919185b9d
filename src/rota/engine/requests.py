"""What does not come from jobs and nodes themselves: people's wishes, lost runs, reports."""

from typing import TYPE_CHECKING

from rota.core import events as ev
from rota.core import machine
from rota.core.events import Event
from rota.core.jobs import HELD, RUNNING, STARTING, STOPPING, WAITING, Job
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.topology import Vertex
from rota.engine.executor import on_cluster
from rota.engine.outages import jobs_on

if TYPE_CHECKING:
    from rota.engine.loop import Engine


def answer(engine: "Engine", event: Event, passed: list[Event]) -> None:
    """The rarer events of living clusters; `passed` is what the scheduler has to know."""
    kind, subject = event[1], event[3]
    if kind == ev.JOB_EVICTED:
        _lost(engine, event, passed)
    elif kind == ev.JOB_CANCELLED:
        cancel(engine, subject, None, passed, text=engine.cluster.failure(subject))
    elif kind == ev.JOB_HELD:
        _hold(engine, subject, passed)
    elif kind == ev.JOB_RELEASED:
        _release(engine, subject, passed)
    elif kind == ev.REPORT:
        _report(engine, subject)
        passed.append(event)
    elif kind in (ev.NODE_CLOSED, ev.NODE_CLEARED):
        _close(engine, subject, passed)
        if kind == ev.NODE_CLEARED:
            for job in jobs_on(subject, engine.view, engine.executor.moving):
                _expel(engine, job, passed, engine.cluster.failure(subject))
    elif kind == ev.NODE_OPENED:
        _open(engine, subject, passed)
    else:
        passed.append(event)


# --- jobs -----------------------------------------------------------------------------------------


def cancel(
    engine: "Engine", job: Job, cause: Job | None, passed: list[Event], *, text: str = ""
) -> None:
    """End it for good."""
    now_s = engine.view.now_s
    if job.terminal:  # it ended in this very batch
        return
    if job.family is not None and job.parent is None:  # the whole ends with its tasks
        for task in job.family.siblings(job):
            cancel(engine, task, cause, passed, text=text)
        return
    held = job.phase in (STARTING, RUNNING, STOPPING)
    planned = on_cluster(job) or job.index in engine.executor.moving
    machine.cancel(job, now_s)
    engine.log.row(now_s, Record.CANCELLED, job.index, -1, cause.index if cause else -1)
    if text:
        engine.log.text(text)
    engine.detained.discard(job.index)
    engine.over(job, passed, held=held, planned=planned)
    passed.append(engine.event(ev.JOB_CANCELLED, job))


def _hold(engine: "Engine", job: Job, passed: list[Event]) -> None:
    if job.family is not None and job.parent is None:
        for task in job.family.siblings(job):
            _hold(engine, task, passed)
        return
    if job.terminal:  # it ended in this very batch
        return
    engine.detained.add(job.index)
    if job.running:
        _expel(engine, job, passed, engine.cluster.failure(job))
    if job.phase in (WAITING, HELD):
        detain(engine, job, passed)


def detain(engine: "Engine", job: Job, passed: list[Event]) -> None:
    """It holds nothing (any more): out of the queue with it."""
    if job.phase == WAITING:
        machine.hold(job)
    engine.log.row(engine.view.now_s, Record.HELD, job.index, -1, -1, Reason.ADMISSION)
    engine.log.text(engine.cluster.failure(job) or "held on request")
    passed.append(engine.event(ev.JOB_HELD, job))


def _release(engine: "Engine", job: Job, passed: list[Event]) -> None:
    if job.family is not None and job.parent is None:
        for task in job.family.siblings(job):
            _release(engine, task, passed)
        return
    engine.detained.discard(job.index)
    if job.phase == HELD:
        now_s = engine.view.now_s
        if engine.arrivals.blockers(job):
            engine.log.row(now_s, Record.HELD, job.index, -1, -1, Reason.DEPENDENCY)
            return
        machine.admit(job)
        engine.log.row(now_s, Record.ADMITTED, job.index)
        engine.log.text(engine.cluster.failure(job))
        passed.append(engine.event(ev.JOB_SUBMIT, job))


def _expel(engine: "Engine", job: Job, passed: list[Event], why: str) -> None:
    """Stop it in good order, although no plan says so: somebody wants it."""
    job.version = engine.view.version
    engine.executor.expelled(job, engine.view.now_s)
    if why:
        engine.log.text(why)
    passed.append(engine.event(ev.JOB_EVICTED, job))


def _lost(engine: "Engine", event: Event, passed: list[Event]) -> None:
    """Its run came to nothing, and that was not its fault (or it is to be tried again)."""
    job: Job = event[3]
    job.version = engine.view.version
    engine.executor.evicted(job, -1, engine.view.now_s, event[0])
    engine.log.text(engine.cluster.failure(job))
    passed.append(engine.event(ev.JOB_EVICTED, job))


def _report(engine: "Engine", job: Job) -> None:
    values = engine.cluster.measured(job)
    job.metrics = {**(job.metrics or {}), **values}
    for name, value in values.items():
        engine.log.row(engine.view.now_s, Record.REPORT, job.index, -1, -1, value)
        engine.log.text(name)


# --- nodes ----------------------------------------------------------------------------------------


def _close(engine: "Engine", node: Vertex, passed: list[Event]) -> None:
    if not node.closed:
        node.closed = True
        engine.log.row(engine.view.now_s, Record.NODE_CLOSED, -1, node.id)
        engine.log.text(engine.cluster.failure(node))
        if node.up:
            passed.append(engine.event(ev.NODE_DOWN, node))


def _open(engine: "Engine", node: Vertex, passed: list[Event]) -> None:
    if node.closed:
        node.closed = False
        engine.log.row(engine.view.now_s, Record.NODE_OPENED, -1, node.id)
        if node.up:
            passed.append(engine.event(ev.NODE_UP, node))
