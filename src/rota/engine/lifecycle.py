"""The life of every job, from its submission to its end: what happens to jobs and nodes.

Every transition goes through `core.machine`, is written into the log, and is passed on to the
scheduler as an event.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rota.core import events as ev
from rota.core import machine
from rota.core.allocation import host_of
from rota.core.events import JOB_DONE, JOB_SUBMIT, Event
from rota.core.jobs import (
    CANCELLED,
    DONE,
    FAILED,
    HELD,
    REJECTED,
    RUNNING,
    STARTING,
    STOPPING,
    TIMEOUT,
    WAITING,
    Behaviour,
    Job,
    JobSpec,
    Request,
)
from rota.core.log import Record
from rota.core.machine import finish
from rota.core.ports import Cluster
from rota.core.reasons import Reason
from rota.core.topology import Vertex
from rota.core.view import View
from rota.core.words import duration
from rota.engine.arrays import ArrayGate
from rota.engine.arrivals import Arrivals
from rota.engine.executor import Executor, on_cluster
from rota.engine.log import Log
from rota.engine.occupancy import Occupancy
from rota.engine.timers import Timers

R_SUBMIT, R_DONE = int(Record.SUBMIT), int(Record.DONE)

ENDINGS = {
    DONE: Record.DONE,
    FAILED: Record.FAILED,
    REJECTED: Record.REJECTED,
    CANCELLED: Record.CANCELLED,
    TIMEOUT: Record.TIMEOUT,
}


class Lifecycle:
    """Owns all jobs, those that are held on request, and events that await the next decision.

    `passed` collects the events of a batch that the scheduler has to know.
    """

    def __init__(
        self,
        cluster: Cluster,
        view: View,
        log: Log,
        arrivals: Arrivals,
        executor: Executor,
        timers: Timers,
    ) -> None:
        self.cluster = cluster
        self.view = view
        self.log = log
        self.arrivals = arrivals
        self.executor = executor
        self.timers = timers
        self.jobs: dict[int, Job] = {}  # all that ever arrived, tasks of non-gang jobs too
        self.forgotten = 0  # except those that are over and were let go
        self.detained: set[int] = set()  # jobs that are kept out of the queue on request
        self.backlog: list[Event] = []
        self.arrays = ArrayGate()
        self.failures: dict[int, int] = {}  # by job: runs that failed and were tried again
        self.returning: dict[int, float] = {}  # by job that failed: when it is tried again
        self._logged_shapes = 0

    def event(self, kind: int, subject: Job | Vertex) -> Event:
        """An event that is made by the engine, now."""
        self.timers.sequence += 1
        return (self.view.now_s, kind, self.timers.sequence, subject, subject.epoch)

    # --- submission -----------------------------------------------------------------------------

    def submit(
        self, submissions: Iterable[tuple[int, JobSpec, Behaviour]], passed: list[Event]
    ) -> None:
        """New jobs."""
        log = self.log
        view = self.view
        now_s = view.now_s
        timers = self.timers
        arrivals = self.arrivals
        for index, spec, behaviour in submissions:
            job = arrivals.job(index, spec, behaviour)
            shape = job.shape
            tasks = () if shape.gang else arrivals.tasks(job)
            if self._logged_shapes < len(arrivals.shapes):
                self.log_shapes()
            tenant = log.tenants.get(job.tenant)
            if tenant is None:
                tenant = log.tenant(now_s, job.tenant)
            log.rows += (now_s, R_SUBMIT, index, shape.number, tenant, job.gpus)
            log.names.append(job.id)
            self.jobs[index] = job
            if tasks or arrivals.linked:
                self._submit_linked(job, tasks, passed)
                continue
            job.version = view.version
            view.active[index] = job
            timers.sequence += 1
            passed.append((now_s, JOB_SUBMIT, timers.sequence, job, 0))

    def _submit_linked(self, whole: Job, tasks: Sequence[Job], passed: list[Event]) -> None:
        """A job that may depend on others, or that is submitted as several tasks."""
        now_s = self.view.now_s
        log = self.log
        for task in tasks:
            log.row(now_s, Record.TASK, task.index, task.shape.number, whole.index, task.gpus)
        self.arrivals.by_id[whole.id] = whole
        for job in tasks or [whole]:
            self.jobs[job.index] = job
            job.version = self.view.version
            self.view.active[job.index] = job
            blockers = self.arrivals.blockers(job)
            if blockers and self._give_up(job, passed):
                continue
            reason = self._keeps_out(job, blockers)
            if reason:
                machine.hold(job)
                self.arrivals.await_all(job, blockers)
                log.row(now_s, Record.HELD, job.index, -1, -1, reason)
            else:
                passed.append(self.event(JOB_SUBMIT, job))

    def _keeps_out(self, job: Job, blockers: Collection[str]) -> Reason:
        """Why it may not enter the queue now; NONE: it may."""
        if blockers:
            return Reason.DEPENDENCY
        if job.index in self.detained:
            return Reason.ADMISSION
        if job.index in self.returning:
            return Reason.BACKOFF
        return Reason.NONE if self.arrays.enter(job) else Reason.ARRAY

    def is_outside(self, job: Job) -> bool:
        """Is it kept out of the queue by something else than a dependency or an admission?"""
        index = job.index
        return index in self.detained or index in self.returning or self.arrays.is_outside(job)

    def _give_up(self, job: Job, passed: list[Event]) -> bool:
        """End a job whose dependencies cannot come true any more; did it?"""
        arrivals = self.arrivals
        failed = arrivals.hopeless(job)
        if failed:
            self.reject(job, f"depends on job {failed}, which did not succeed")
            return True
        spared = arrivals.spared(job)
        if spared:
            text = f"was to run only if job {spared} failed, which finished"
            self.cancel(job, arrivals.by_id[spared], passed, text=text)
        return bool(spared)

    def _let_in(self, job: Job, passed: list[Event], *, text: str = "") -> None:
        """Into the queue with a job that was held, unless something keeps it out."""
        now_s = self.view.now_s
        reason = self._keeps_out(job, self.arrivals.blockers(job))
        if reason:
            self.log.row(now_s, Record.HELD, job.index, -1, -1, reason)
            return
        machine.admit(job)
        self.log.row(now_s, Record.ADMITTED, job.index)
        if text:
            self.log.text(text)
        passed.append(self.event(JOB_SUBMIT, job))

    def log_shapes(self) -> None:
        """Define the shapes that are new."""
        for shape in self.arrivals.shapes[self._logged_shapes :]:
            self.log.shape(self.view.now_s, shape)
        self._logged_shapes = len(self.arrivals.shapes)

    # --- what the cluster reports -----------------------------------------------------------------

    def happened(  # noqa: C901, PLR0912 - one branch per kind
        self, events: Iterable[Event], now_s: float
    ) -> list[Event]:
        """Carry out what the cluster reports; returns what the scheduler has to know."""
        passed: list[Event] = []
        executor = self.executor
        for event in events:
            at_s, kind, _, subject, _ = event
            if at_s < now_s:  # on a living cluster: it was not seen when it happened
                self.log.row(now_s, Record.LATE, subject.index, -1, -1, at_s)
            if kind == JOB_DONE:
                planned = subject.phase != STOPPING or subject.index in executor.moving
                finish(subject, at_s)
                self.log.rows += (now_s, R_DONE, subject.index, -1, -1, 0.0)
                self._ended(subject, passed, True, planned)  # noqa: FBT003 - hot
                passed.append(event)
            elif kind == ev.JOB_RUNNING:
                executor.running(subject, now_s, at_s)
                self.timers.progressing(subject, now_s)
                passed.append(event)
            elif kind == ev.JOB_STOPPED:
                self._has_stopped(event, passed)
            elif kind == ev.JOB_FAILED:
                self._failed(event, passed)
            elif kind == ev.JOB_TIMEOUT:
                if subject.phase != WAITING:  # else its node was lost at this very instant
                    self._end_badly(event, TIMEOUT, passed)
            elif kind in (ev.NODE_DOWN, ev.NODE_UP):
                if subject.up != (kind == ev.NODE_UP):  # outages may overlap
                    if not subject.closed:  # else its scheduler does not use it anyway
                        passed.append(event)
                    self._node_changed(subject, passed, up=kind == ev.NODE_UP)
            elif kind == ev.JOB_PHASE:
                if subject.phase == RUNNING and subject.epoch == event[4]:  # else it stops just now
                    executor.phase_changed(subject, now_s)
                    self.timers.repaced(subject, now_s)
                    passed.append(event)
            else:
                self._requested(event, passed)
        if executor.deferred:
            executor.launch_deferred(now_s)
        if executor.begun:
            passed += self.begun()
        if self.arrays.freed:
            self.take_turns(passed)
        return passed

    def begun(self) -> list[Event]:
        """Jobs that began to make progress later than their START row said."""
        begun, self.executor.begun = self.executor.begun, []
        return [self.event(ev.JOB_RUNNING, job) for job in begun]

    def _requested(self, event: Event, passed: list[Event]) -> None:
        """The rarer events of living clusters: requests of people, lost runs, reports."""
        kind, subject = event[1], event[3]
        if kind == ev.JOB_EVICTED:
            self._lost(subject, event[0], passed)
        elif kind == ev.JOB_CANCELLED:
            self.cancel(subject, None, passed, text=self.cluster.failure(subject))
        elif kind == ev.JOB_HELD:
            self._hold(subject, passed)
        elif kind == ev.JOB_RELEASED:
            self._release(subject, passed)
        elif kind == ev.REPORT:
            self._report(subject)
            passed.append(event)
        elif kind in (ev.NODE_CLOSED, ev.NODE_CLEARED):
            self._close(subject, passed)
            if kind == ev.NODE_CLEARED:
                for job in jobs_on(subject, self.view, self.executor.moving):
                    self.expel(job, passed, self.cluster.failure(subject))
        elif kind == ev.NODE_OPENED:
            self._open(subject, passed)
        else:
            passed.append(event)

    def _failed(self, event: Event, passed: list[Event]) -> None:
        """A run failed: that is the end of the job, or it is tried again."""
        at_s, _, _, job, _ = event
        failures = self.failures.get(job.index, 0) + 1
        if failures > job.spec.retries:
            self._end_badly(event, FAILED, passed)
            return
        self.failures[job.index] = failures
        if job.phase == STOPPING:  # it was to make room anyway
            self._has_stopped((at_s, ev.JOB_STOPPED, event[2], job, event[4]), passed)
            return
        self._lost(job, at_s, passed)
        wait_s = job.spec.backoff_after(failures)
        if wait_s > 0:
            self._send_back(job, wait_s, passed)

    def _send_back(self, job: Job, wait_s: float, passed: list[Event]) -> None:
        """It is tried again, but not at once."""
        now_s = self.view.now_s
        tries, most = self.failures[job.index], job.spec.retries + 1
        machine.hold(job)
        self.returning[job.index] = now_s + wait_s
        self.timers.arm(now_s + wait_s, job)
        self.log.row(now_s, Record.HELD, job.index, -1, -1, Reason.BACKOFF)
        self.log.text(
            f"try {tries} of {most} failed ({self.cluster.failure(job) or 'no reason is known'}): "
            f"the next one {duration(wait_s)} later"
        )
        passed.append(self.event(ev.JOB_HELD, job))

    def readmit(self, events: list[Event]) -> None:
        """Let those in that have waited long enough since they failed; their timers are done."""
        now_s = self.view.now_s
        due = [
            event[3]
            for event in events
            if event[1] == ev.LEVEL and self.returning.get(event[3].index, ev.INF) <= now_s
        ]
        events[:] = [event for event in events if event[1] != ev.LEVEL or event[3] not in due]
        for job in due:
            del self.returning[job.index]
            if job.phase == HELD and job.index not in self.detained:
                self._let_in(job, events)

    def _end_badly(self, event: Event, phase: int, passed: list[Event]) -> None:
        """It failed, or reached its time limit; for the scheduler that is the same."""
        at_s, _, number, job, epoch = event
        planned = job.phase != STOPPING or job.index in self.executor.moving
        (machine.time_out if phase == TIMEOUT else machine.fail)(job, at_s)
        self.log.row(self.view.now_s, ENDINGS[phase], job.index)
        self.log.text(self.cluster.failure(job))
        self._ended(job, passed, True, planned)  # noqa: FBT003 - hot
        passed.append((at_s, ev.JOB_FAILED, number, job, epoch))

    def _has_stopped(self, event: Event, passed: list[Event]) -> None:
        """Its resources are free again after a stop."""
        at_s, _, _, job, _ = event
        if self.executor.stopped(job, self.view.now_s, at_s):
            passed.append(event)
            if job.index in self.detained:
                self._detain(job, passed)

    def _lost(self, job: Job, at_s: float, passed: list[Event]) -> None:
        """Its run came to nothing, and that was not its fault (or it is to be tried again)."""
        job.version = self.view.version
        self.executor.evicted(job, -1, self.view.now_s, at_s)
        self.log.text(self.cluster.failure(job))
        passed.append(self.event(ev.JOB_EVICTED, job))

    def _report(self, job: Job) -> None:
        values = self.cluster.measured(job)
        job.metrics = {**(job.metrics or {}), **values}
        for name, value in values.items():
            self.log.row(self.view.now_s, Record.REPORT, job.index, -1, -1, value)
            self.log.text(name)
        self.executor.hear(job)

    # --- ends -------------------------------------------------------------------------------------

    def reject(self, job: Job, message: str) -> None:
        """Refuse a job that has not started; the scheduler learns of it with the next events."""
        machine.reject(job, self.view.now_s)
        self.log.row(self.view.now_s, Record.REJECTED, job.index)
        self.log.text(message)
        self._ended(job, self.backlog, False, False)  # noqa: FBT003 - hot

    def cancel(self, job: Job, cause: Job | None, passed: list[Event], *, text: str = "") -> None:
        """End a job for good."""
        if job.terminal:  # it ended in this very batch
            return
        if job.family is not None and job.parent is None:  # the whole ends with its tasks
            for task in job.family.siblings(job):
                self.cancel(task, cause, passed, text=text)
            return
        now_s = self.view.now_s
        held = job.phase in (STARTING, RUNNING, STOPPING)
        planned = on_cluster(job) or job.index in self.executor.moving
        machine.cancel(job, now_s)
        self.log.row(now_s, Record.CANCELLED, job.index, -1, cause.index if cause else -1)
        if text:
            self.log.text(text)
        self.detained.discard(job.index)
        self._ended(job, passed, held, planned)
        passed.append(self.event(ev.JOB_CANCELLED, job))

    def _ended(self, job: Job, passed: list[Event], held: bool, planned: bool) -> None:  # noqa: FBT001 - hot
        """A job will never run again. `held`: it was on the cluster; `planned`: as planned."""
        view = self.view
        job.version = view.version
        view.active.pop(job.index, None)
        if job.phase == DONE:
            view.finished.append(job)
        self.executor.ended(job, held, planned)
        if self.returning:
            self.returning.pop(job.index, None)
        if job.spec.array_limit:
            self.arrays.leave(job)
        if self.arrivals.waiting_for:
            self._resolve_dependants(job, passed)
        if job.parent is not None and not job.parent.terminal:
            self._end_parent(job, passed)

    def _end_parent(self, task: Job, passed: list[Event]) -> None:
        """A non-gang job ends with its last task."""
        parent = task.parent
        family = task.family
        if parent is None or family is None or not all(t.terminal for t in family.members):
            return
        parent.phase = max(t.phase for t in family.members)  # done only if all of them are
        parent.end_s = max(t.end_s for t in family.members if t is not parent)
        now_s = self.view.now_s
        if parent.end_s < now_s:
            self.log.row(now_s, Record.LATE, parent.index, -1, -1, parent.end_s)
        self.log.row(now_s, ENDINGS[parent.phase], parent.index)
        self._resolve_dependants(parent, passed)

    def _resolve_dependants(self, job: Job, passed: list[Event]) -> None:
        for dependant in self.arrivals.released_by(job):
            if dependant.phase != HELD:  # over, or let in when another one ended just now
                continue
            if self._give_up(dependant, passed):
                continue
            if not self.arrivals.blockers(dependant) and dependant.index not in self.detained:
                self._let_in(dependant, passed)

    def take_turns(self, passed: list[Event]) -> None:
        """Some of an array are over, or held: the next may enter."""
        for index in self.arrays.turns():
            self._let_in(self.jobs[index], passed)

    def forget(self) -> None:
        """Let go of all jobs that are over: the log has what they did."""
        jobs, finished = self.jobs, self.view.finished
        before = len(jobs)
        for job in finished:
            jobs.pop(job.index, None)
        if len(jobs) > len(self.view.active):  # some ended otherwise, or consist of tasks
            for index in [index for index, job in jobs.items() if job.phase >= DONE]:
                del jobs[index]
        finished.clear()
        self.forgotten += before - len(jobs)

    def discard(self, jobs: Sequence[Job]) -> set[int]:
        """Let go of whole jobs to which nothing refers any more; their numbers, and of tasks."""
        gone = {each.index for job in jobs for each in with_tasks(job)}
        for job in jobs:
            self.arrivals.discard(job)
        for index in gone:
            del self.jobs[index]
            self.failures.pop(index, None)
        self.view.finished[:] = [job for job in self.view.finished if job.index not in gone]
        self.timers.discard(gone)
        return gone

    # --- held and released on request -------------------------------------------------------------

    def _hold(self, job: Job, passed: list[Event]) -> None:
        if job.family is not None and job.parent is None:
            for task in job.family.siblings(job):
                self._hold(task, passed)
            return
        if job.terminal:  # it ended in this very batch
            return
        self.detained.add(job.index)
        if job.running:
            self.expel(job, passed, self.cluster.failure(job))
        if job.phase in (WAITING, HELD):
            self._detain(job, passed)

    def _detain(self, job: Job, passed: list[Event]) -> None:
        """It holds nothing (any more): out of the queue with it."""
        if job.phase == WAITING:
            machine.hold(job)
        self.log.row(self.view.now_s, Record.HELD, job.index, -1, -1, Reason.ADMISSION)
        self.log.text(self.cluster.failure(job) or "held on request")
        passed.append(self.event(ev.JOB_HELD, job))
        if job.spec.array_limit:
            self.arrays.leave(job)

    def _release(self, job: Job, passed: list[Event]) -> None:
        if job.family is not None and job.parent is None:
            for task in job.family.siblings(job):
                self._release(task, passed)
            return
        self.detained.discard(job.index)
        if job.phase == HELD:
            self.returning.pop(job.index, None)  # whoever wants it now need not wait
            self._let_in(job, passed, text=self.cluster.failure(job))

    def expel(self, job: Job, passed: list[Event], why: str) -> None:
        """Stop it in good order, although no plan says so: it was requested."""
        job.version = self.view.version
        self.executor.expelled(job, self.view.now_s)
        if why:
            self.log.text(why)
        passed.append(self.event(ev.JOB_EVICTED, job))

    def announce(self) -> None:
        """Tell a new scheduler of the jobs that wait; a former admission holds none any more."""
        for job in list(self.view.active.values()):
            if job.index in self.returning:
                self.timers.arm(self.returning[job.index], job)
            if job.phase == HELD and not self._keeps_out(job, self.arrivals.blockers(job)):
                machine.admit(job)
                self.log.row(self.view.now_s, Record.ADMITTED, job.index)
            if job.phase == WAITING:
                self.backlog.append(self.event(JOB_SUBMIT, job))

    # --- nodes ------------------------------------------------------------------------------------

    def _node_changed(self, node: Vertex, passed: list[Event], *, up: bool) -> None:
        now_s = self.view.now_s
        node.up = up
        self.view.up_gpus += node.gpus if up else -node.gpus
        self.log.row(now_s, Record.NODE_UP if up else Record.NODE_DOWN, -1, node.id)
        if not up:
            for job in jobs_hit(node, self.view, self.executor.moving):
                job.version = self.view.version
                self.executor.evicted(job, node.id, now_s, now_s)
                passed.append(self.event(ev.JOB_EVICTED, job))

    def _close(self, node: Vertex, passed: list[Event]) -> None:
        if not node.closed:
            node.closed = True
            self.log.row(self.view.now_s, Record.NODE_CLOSED, -1, node.id)
            self.log.text(self.cluster.failure(node))
            if node.up:
                passed.append(self.event(ev.NODE_DOWN, node))

    def _open(self, node: Vertex, passed: list[Event]) -> None:
        if node.closed:
            node.closed = False
            self.log.row(self.view.now_s, Record.NODE_OPENED, -1, node.id)
            if node.up:
                passed.append(self.event(ev.NODE_UP, node))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """As plain data, without the state of the jobs themselves (see `snapshot`)."""
        waiting_for = self.arrivals.waiting_for
        return {
            "shapes": [msgspec.to_builtins(shape.request) for shape in self.arrivals.shapes],
            "tasks": [(job.index, job.family.members[0].index) for job in self.jobs.values()
                      if job.family is not None and job.parent is None],
            "next_task": self.arrivals.next_task,
            "detained": sorted(self.detained),
            "active": list(self.view.active),
            "history": [job.index for job in self.view.finished],
            "waiting_for": [(name, [j.index for j in jobs]) for name, jobs in waiting_for.items()],
            "backlog": [_plain(event) for event in self.backlog],
            "failures": list(self.failures.items()),
            "returning": list(self.returning.items()),
            "arrays": self.arrays.snapshot(),
        }  # fmt: skip

    def remake(
        self,
        submissions: Iterable[tuple[int, JobSpec, Behaviour]],
        refined: Mapping[int, Request] | None,
        numbers: Mapping[str, Any],
    ) -> None:
        """Make jobs that arrived before a snapshot as they were, without announcing them.

        Args:
            submissions: Those that the snapshot has; others that came before may be forgotten.
            refined: Requests by which jobs are placed, where these are not their own; None: as the
                present placement refines them.
            numbers: Those of shapes and tasks in the snapshot; where there are none (older ones),
                nobody was forgotten, and they come out as they were.
        """
        arrivals = self.arrivals
        for request in numbers["shapes"] or ():
            arrivals.shape(msgspec.convert(request, Request))
        first_task = dict(numbers["tasks"] or ())
        for index, spec, behaviour in submissions:
            request = None if refined is None else refined.get(index, spec.request)
            whole = self.jobs[index] = arrivals.job(index, spec, behaviour, request)
            if not whole.shape.gang:
                arrivals.next_task = first_task.get(index, arrivals.next_task)
                self.jobs.update((task.index, task) for task in arrivals.tasks(whole))
            if arrivals.linked:
                arrivals.by_id[spec.id] = whole
        arrivals.next_task = max(arrivals.next_task, numbers["next_task"])
        self._logged_shapes = len(arrivals.shapes)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of `snapshot`, after the jobs were made again."""
        view, jobs = self.view, self.jobs
        self.detained = set(state["detained"])
        self.failures = dict(state["failures"])
        self.returning = dict(state["returning"])
        self.arrays.restore(state["arrays"])
        self.arrivals.waiting_for = {k: [jobs[i] for i in v] for k, v in state["waiting_for"]}
        view.active.update((index, jobs[index]) for index in state["active"])
        view.finished.extend(jobs[index] for index in state["history"])
        subjects: dict[str, Any] = {"job": jobs, "vertex": view.topology.vertices, "": {-1: None}}
        self.backlog[:] = [
            (t, kind, n, subjects[what][name], epoch)
            for t, kind, n, what, name, epoch in state["backlog"]
        ]


def _plain(event: Event) -> tuple[Any, ...]:
    time_s, kind, sequence, subject, epoch = event
    what = "job" if isinstance(subject, Job) else "vertex" if isinstance(subject, Vertex) else ""
    name = subject.index if isinstance(subject, Job) else subject.id if what else -1
    return (time_s, kind, sequence, what, name, epoch)


def with_tasks(job: Job) -> list[Job]:
    """A whole job and its tasks; a task alone."""
    return [job, *job.family.members] if job.family is not None and job.parent is None else [job]


# --- jobs that an outage hits ---------------------------------------------------------------------


def jobs_hit(node: Vertex, view: View, moving: Collection[int]) -> list[Job]:
    """Jobs on the node (or on their way to it). Call it after the node was marked down.

    A pool has no nodes: there the latest starters go until the rest fits what is still up.
    """
    running = [job for job in view.active.values() if on_cluster(job) or job.index in moving]
    hit = jobs_on(node, view, moving)
    pool = view.topology.pool_of(node)
    users = [job for job in running if pool.id in _places(job)]
    return hit + _over_the_pool(users, pool, view) if users else hit


def jobs_on(node: Vertex, view: View, moving: Collection[int]) -> list[Job]:
    """Jobs that hold anything of a node (or are on their way to it)."""
    vertices = view.topology.vertices
    return [
        job
        for job in view.active.values()
        if (on_cluster(job) or job.index in moving)
        and any(vertices[v].node == node.id for v in _places(job))
    ]


def _places(job: Job) -> set[int]:
    """Vertices that it holds anything of: a job without GPUs holds CPUs or memory there."""
    extra = {vertex for vertex, _, _ in job.allocation.extra}
    return extra.union(job.allocation.vertices)


def _over_the_pool(users: list[Job], pool: Vertex, view: View) -> list[Job]:
    occupied = Occupancy(view.topology)
    for job in users:
        occupied.change(job.allocation, +1)
    over = []
    guests = {host_of(job.allocation): job for job in users}  # those who share go with their hosts
    for job in sorted(users, key=lambda job: (job.start_s, job.index), reverse=True):
        if not occupied.exceeded(pool.id):
            break
        if host_of(job.allocation) >= 0:
            continue
        for each in (job, guests.get(job.index)):
            if each is not None:
                occupied.change(each.allocation, -1)
                over.append(each)
    return over
