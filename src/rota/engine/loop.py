"""The loop: wait for events, update the state, ask the scheduler, carry out its plan."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from rota.core import events as ev
from rota.core import machine
from rota.core.errors import InvalidPlanError, KnowledgeError, LivelockError
from rota.core.events import INF, Event
from rota.core.jobs import (
    DONE,
    STARTING,
    STOPPING,
    WAITING,
    Behaviour,
    Job,
    JobSpec,
)
from rota.core.knowledge import Knowledge
from rota.core.log import Record
from rota.core.plan import Level, Plan, Wake
from rota.core.ports import Cluster, Scheduler, Source
from rota.core.reasons import Reason
from rota.core.reconcile import reconcile
from rota.core.tenants import TenantTree
from rota.core.topology import Vertex
from rota.core.view import View
from rota.engine import requests
from rota.engine.arrivals import Arrivals
from rota.engine.checker import Checker
from rota.engine.executor import ENDINGS, Executor
from rota.engine.levels import level_time
from rota.engine.log import CHUNK, Log
from rota.engine.outages import jobs_hit
from rota.engine.rounds import next_boundary, on_boundary

R_SUBMIT, R_DONE, R_REASON = int(Record.SUBMIT), int(Record.DONE), int(Record.REASON)
LIVELOCK = 10_000  # batches at one instant

Overhear: TypeAlias = Callable[[View, Sequence[Event]], Plan | None]
"""Of a scheduler: events that it is not asked about yet; returns a plan with new reasons only."""


class Engine:
    """One scheduler on one cluster. The clock is the cluster's."""

    def __init__(
        self,
        cluster: Cluster,
        scheduler: Scheduler,
        source: Source,
        *,
        tenants: TenantTree | None = None,
        wake: Wake | None = None,
        first_task: int = 1 << 24,
        belief: Callable[[int], float] | None = None,
        checker: Checker | None = None,
    ) -> None:
        self.cluster = cluster
        self.scheduler = scheduler
        self.source = source
        self.log = Log()
        self.jobs: dict[int, Job] = {}  # everyone who ever arrived, tasks of non-gang jobs too
        self.view = View(cluster.topology, tenants or TenantTree())
        self.view.knowledge = scheduler.knowledge
        self.view.everyone = self.jobs
        self.view.sharing = getattr(cluster, "shares", False)
        self.arrivals = Arrivals(
            scheduler.knowledge, first_task, belief,
            linked=source.linked, refine=getattr(scheduler, "refine", None),
        )  # fmt: skip
        self.executor = Executor(cluster, self.view, self.log, trusted=scheduler.trusted)
        self.checker = checker
        self.settles = getattr(scheduler, "settles", True)
        self.overhear: Overhear | None = getattr(scheduler, "overhear", None)
        self.fixed_wake = wake  # rounds imposed from outside win over the scheduler's wishes
        self.wake = wake or scheduler.wake
        self.events = 0
        self.decisions = 0
        self.levels: dict[int, list[Level]] = {}  # of jobs that are being started
        self.detained: set[int] = set()  # jobs that somebody wants kept out of the queue
        self.backlog: list[Event] = []
        self.timers: list[tuple[float, int, Job, int]] = []
        self.sequence = 0
        self._still = 0
        self._idle_rounds = 0
        self.ask_now = False  # at this very instant, whatever the wake condition says
        self._known_shapes = 0
        self.log.topology(cluster.topology)

    # --- running --------------------------------------------------------------------------------

    def run(self, until_s: float = INF) -> None:
        """Process everything up to `until_s`, or until nothing can happen any more."""
        advance = self.advance
        while advance(until_s):
            pass

    def advance(self, until_s: float = INF) -> bool:  # noqa: C901, PLR0912 - the hot loop
        """One batch of simultaneous events; False when there is none (up to `until_s`)."""
        horizon_s = self.horizon_s()
        timers, wake = self.timers, self.wake
        events = self.cluster.poll(min(until_s, horizon_s))
        now_s = self.cluster.now_s
        arrival_s = self.source.next_s  # on a living cluster jobs come while we wait
        if not events and now_s < horizon_s and arrival_s > now_s:
            return False
        view = self.view
        if now_s == view.now_s and not events and arrival_s > now_s:
            self._refuse_livelock(now_s)
        else:
            self._still = 0
        view.now_s = now_s
        view.version += 1
        if events:
            events = self._happened(events, now_s)
        if arrival_s <= now_s:
            self._arrive(events, now_s)
        while timers and timers[0][0] <= now_s:
            _, sequence, job, epoch = heappop(timers)
            if epoch == job.epoch:
                events.append((now_s, ev.LEVEL, sequence, job, epoch))
        self.events += len(events)
        self._idle_rounds = 0 if events else self._idle_rounds + 1
        if self.ask_now:
            self.ask_now = False
        elif (wake.on is not None or wake.at_s <= now_s) and self._asleep(events, now_s):
            self.backlog += events
            if self.overhear is not None and events:
                self._overhear(self.overhear, events, now_s)
            if not self.cluster.frictionless:
                self._rerate(now_s)
            if self.checker is not None:
                self.checker.after(self, events, None)
            return True
        if self.backlog:
            events = self.backlog + events
            self.backlog = []
        self.decisions += 1
        plan = self.scheduler.step(view, events)
        if plan is not None:
            self._carry_out(plan, now_s)
        elif not self.cluster.frictionless:
            self._rerate(now_s)
        if self.checker is not None:
            self.checker.after(self, events, plan)
        if len(self.log.rows) > CHUNK:
            self.log.pack()
        return True

    def finish(self) -> None:
        """Close the log."""
        self.log.row(self.view.now_s, Record.END, -1, self.events, self.decisions, 0.0)

    # --- when to ask ----------------------------------------------------------------------------

    def horizon_s(self) -> float:
        """When it acts next if nothing happens before: a wake, a timer or a known submission."""
        timers = self.timers
        while timers and timers[0][3] != timers[0][2].epoch:
            heappop(timers)
        if self.ask_now:
            return self.cluster.now_s
        wake = self.wake
        horizon_s = self._wake_s() if wake.every_s else wake.at_s
        horizon_s = min(horizon_s, self.source.next_s)
        return min(horizon_s, timers[0][0]) if timers else horizon_s

    def _wake_s(self) -> float:
        wake = self.wake
        at_s = wake.at_s
        if wake.every_s and self._idle_rounds < LIVELOCK and (self.view.active or self.backlog):
            at_s = min(at_s, next_boundary(self.view.now_s, wake.every_s))
        return at_s

    def _asleep(self, events: list[Event], now_s: float) -> bool:
        """Does nothing in this batch meet the wake condition?"""
        wake = self.wake
        if wake.at_s <= now_s:
            self.wake = Wake(wake.on, INF, wake.every_s)
            events.append((now_s, ev.TIMER, 0, None, 0))
            return False
        if wake.on is None:
            return False
        if wake.every_s and on_boundary(now_s, wake.every_s):
            return False
        levels = self.fixed_wake is None  # imposed rounds are not broken by levels either
        return not any(event[1] in wake.on or (levels and event[1] == ev.LEVEL) for event in events)

    def _refuse_livelock(self, now_s: float) -> None:
        self._still += 1
        if self._still > LIVELOCK:
            raise LivelockError(
                f"scheduler {self.scheduler.name!r} was woken {LIVELOCK} times at {now_s:g} s: it "
                f"must ask to be woken at a later time"
            )

    # --- what happened --------------------------------------------------------------------------

    def _happened(  # noqa: C901, PLR0912 - one branch per kind
        self, events: list[Event], now_s: float
    ) -> list[Event]:
        """Drive the jobs' state machine; returns what the scheduler has to know."""
        passed: list[Event] = []
        for event in events:
            at_s, kind, _, subject, _ = event
            if at_s < now_s:  # on a living cluster: nobody saw it when it happened
                self.log.row(now_s, Record.LATE, subject.index, -1, -1, at_s)
            if kind == ev.JOB_DONE:
                planned = subject.phase != STOPPING or subject.index in self.executor.moving
                machine.finish(subject, at_s)
                self.log.rows += (now_s, R_DONE, subject.index, -1, -1, 0.0)
                self.over(subject, passed, held=True, planned=planned)
                passed.append(event)
            elif kind == ev.JOB_RUNNING:
                self.executor.running(subject, now_s, at_s)
                for level in self.levels.pop(subject.index, ()):
                    self._watch(level, now_s)
                passed.append(event)
            elif kind == ev.JOB_STOPPED:
                if self.executor.stopped(subject, now_s, at_s):
                    passed.append(event)
                    if subject.index in self.detained:
                        requests.detain(self, subject, passed)
            elif kind == ev.JOB_FAILED:
                planned = subject.phase != STOPPING or subject.index in self.executor.moving
                machine.fail(subject, at_s)
                self.log.row(now_s, Record.FAILED, subject.index)
                self.log.text(self.cluster.failure(subject))
                self.over(subject, passed, held=True, planned=planned)
                passed.append(event)
            elif kind in (ev.NODE_DOWN, ev.NODE_UP):
                if subject.up != (kind == ev.NODE_UP):  # outages may overlap
                    if not subject.closed:  # else its scheduler does not use it anyway
                        passed.append(event)
                    self._node_changed(subject, passed, now_s, up=kind == ev.NODE_UP)
            else:
                requests.answer(self, event, passed)
        if self.executor.deferred:
            self.executor.launch_deferred(now_s)
        if self.executor.begun:
            passed += self._begun()
        return passed

    def _begun(self) -> list[Event]:
        begun, self.executor.begun = self.executor.begun, []
        return [self.event(ev.JOB_RUNNING, job) for job in begun]

    def over(self, job: Job, passed: list[Event], *, held: bool, planned: bool) -> None:
        """Book-keeping for a job that will never run again."""
        job.version = self.view.version
        self.view.active.pop(job.index, None)
        if job.phase == DONE:
            self.view.finished.append(job)
        self.executor.ended(job, held=held, planned=planned)
        if self.arrivals.waiting_for:
            self._resolve_dependants(job, passed)
        if job.parent is not None and not job.parent.terminal:
            self._end_parent(job, passed)

    def _end_parent(self, task: Job, passed: list[Event]) -> None:
        """A non-gang job is over when its last task is."""
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
        now_s = self.view.now_s
        for dependant in self.arrivals.released_by(job):
            if dependant.terminal:
                continue
            if job.phase != DONE:
                self._reject(dependant, f"depends on job {job.id}, which did not finish")
            elif not self.arrivals.blockers(dependant) and dependant.index not in self.detained:
                machine.admit(dependant)
                self.log.row(now_s, Record.ADMITTED, dependant.index)
                passed.append(self.event(ev.JOB_SUBMIT, dependant))

    def event(self, kind: int, subject: Job | Vertex) -> Event:
        """An event that is made here, now."""
        self.sequence += 1
        return (self.view.now_s, kind, self.sequence, subject, subject.epoch)

    def _node_changed(self, node: Vertex, passed: list[Event], now_s: float, *, up: bool) -> None:
        node.up = up
        self.view.up_gpus += node.gpus if up else -node.gpus
        self.log.row(now_s, Record.NODE_UP if up else Record.NODE_DOWN, -1, node.id)
        if not up:
            for job in jobs_hit(node, self.view, self.executor.moving):
                job.version = self.view.version
                self.executor.evicted(job, node.id, now_s, now_s)
                passed.append(self.event(ev.JOB_EVICTED, job))

    def _arrive(self, events: list[Event], now_s: float) -> None:
        log = self.log
        view = self.view
        shapes = self.arrivals.shapes
        for index, spec, behaviour in self.source.take(now_s):
            job = self.arrivals.simple(index, spec, behaviour)
            if job is None:
                self._submit_complex(index, spec, behaviour, events)
                continue
            if self._known_shapes < len(shapes):
                self._define_shapes()
            tenant = log.tenants.get(spec.tenant)
            if tenant is None:
                tenant = log.tenant(now_s, spec.tenant)
            log.rows += (now_s, R_SUBMIT, index, job.shape.number, tenant, job.gpus)
            log.names.append(spec.id)
            job.version = view.version
            view.active[index] = self.jobs[index] = job
            self.sequence += 1
            events.append((now_s, ev.JOB_SUBMIT, self.sequence, job, 0))

    def remake_jobs(self, until_s: float) -> None:
        """Make all jobs that arrived up to a time, without announcing them (see `snapshot`)."""
        for index, spec, behaviour in self.source.take(until_s):
            made = self.arrivals.make(index, spec, behaviour)
            self.jobs.update((job.index, job) for job in made)
            if self.arrivals.linked:
                self.arrivals.by_id[spec.id] = made[0]
        self._known_shapes = len(self.arrivals.shapes)

    def _define_shapes(self) -> None:
        for shape in self.arrivals.shapes[self._known_shapes :]:
            self.log.shape(self.view.now_s, shape)
        self._known_shapes = len(self.arrivals.shapes)

    def _submit_complex(
        self, index: int, spec: JobSpec, behaviour: Behaviour, events: list[Event]
    ) -> None:
        """A member of a group, the tasks of a non-gang job, or a job with dependencies."""
        now_s = self.view.now_s
        log = self.log
        whole, *tasks = self.arrivals.make(index, spec, behaviour)
        self._define_shapes()
        tenant = log.tenant(now_s, spec.tenant)
        log.rows += (now_s, R_SUBMIT, index, whole.shape.number, tenant, whole.gpus)
        log.names.append(spec.id)
        for task in tasks:
            log.row(now_s, Record.TASK, task.index, task.shape.number, whole.index, task.gpus)
        self.jobs[index] = self.arrivals.by_id[spec.id] = whole
        for job in tasks or [whole]:
            self.jobs[job.index] = job
            job.version = self.view.version
            self.view.active[job.index] = job
            blockers = self.arrivals.blockers(job)
            failed = self.arrivals.hopeless(job) if blockers else ""
            if failed:
                self._reject(job, f"depends on job {failed}, which did not finish")
            elif blockers or job.index in self.detained:
                machine.hold(job)
                self.arrivals.await_all(job, blockers)
                reason = Reason.DEPENDENCY if blockers else Reason.ADMISSION
                log.row(now_s, Record.HELD, job.index, -1, -1, reason)
            else:
                events.append(self.event(ev.JOB_SUBMIT, job))

    # --- what to do -----------------------------------------------------------------------------

    def _carry_out(self, plan: Plan, now_s: float) -> None:  # noqa: C901 - in order
        if plan.unusual:
            self._turn_away(plan, now_s)
        if plan.version != self.view.version:
            self.ask_again()  # parts of it may be void
        if plan.starts or plan.stops:
            try:
                self.executor.execute(reconcile(plan, self.view.version), plan.causes, plan.whys)
            except InvalidPlanError as error:
                raise InvalidPlanError(
                    f"policy {self.scheduler.name!r} at {now_s:g} s: {error}"
                ) from error
        if plan.wake is not None and self.fixed_wake is None:
            self.wake = plan.wake
        if plan.shape_reasons:
            self._blame(plan, now_s)
        if plan.unusual:
            self._cancel(plan, now_s)
            self._explain(plan, now_s)
            for level in plan.levels:
                self._watch(level, now_s)
        if not self.cluster.frictionless:
            self._rerate(now_s)
        if self.settles:
            for at_s, job in self.scheduler.settle(self.view, plan):
                self.sequence += 1
                heappush(self.timers, (at_s, self.sequence, job, job.epoch))

    def _rerate(self, now_s: float) -> None:
        """Rates that changed with the neighbours; late starters that a plan made room for."""
        for job, rate in self.cluster.rerated():
            self.executor.rate_changed(job, rate, now_s)
            self.executor.begun.append(job)
        if self.executor.begun:
            self.backlog += self._begun()
            self.ask_again()

    def _overhear(self, overhear: Overhear, events: list[Event], now_s: float) -> None:
        """Nobody decides now, but reasons follow what is free."""
        plan = overhear(self.view, events)
        if plan is not None:
            self._blame(plan, now_s)
            self._explain(plan, now_s)

    def ask_again(self) -> None:
        """The scheduler must learn of something at this instant (unless rounds are imposed)."""
        if self.fixed_wake is None:
            self.ask_now = True

    def _turn_away(self, plan: Plan, now_s: float) -> None:
        for job, message in plan.rejects:
            self._reject(job, message)
        for job, reason in plan.holds:
            machine.hold(job)
            self.log.row(now_s, Record.HELD, job.index, -1, -1, reason)
        for job in plan.admits:
            machine.admit(job)
            self.log.row(now_s, Record.ADMITTED, job.index)

    def _reject(self, job: Job, message: str) -> None:
        machine.reject(job, self.view.now_s)
        self.log.row(self.view.now_s, Record.REJECTED, job.index)
        self.log.text(message)
        self.over(job, self.backlog, held=False, planned=False)

    def _cancel(self, plan: Plan, now_s: float) -> None:
        for job, cause in plan.cancels:
            if not job.terminal:
                self.cancel(job, cause, now_s)

    def cancel(self, job: Job, cause: Job | None, now_s: float) -> None:
        """End a job for good; the scheduler learns of it with the next events."""
        now_s = max(now_s, self.cluster.now_s)  # a request from outside comes between batches
        self.view.now_s = now_s
        requests.cancel(self, job, cause, self.backlog)
        self.ask_again()
        if not self.ask_now and self.overhear is not None:
            self._overhear(self.overhear, self.backlog, now_s)
        self.executor.launch_deferred(now_s)  # it may have been what others waited for

    def _blame(self, plan: Plan, now_s: float) -> None:
        rows = self.log.rows
        for number, reason, head in plan.shape_reasons:
            rows += (now_s, R_REASON, head.index if head is not None else -1, number, -1, reason)

    def _explain(self, plan: Plan, now_s: float) -> None:
        for job, reason in plan.reasons:
            if job.reason != reason and job.phase == WAITING:
                job.reason = int(reason)
                self.log.row(now_s, Record.REASON, job.index, -1, -1, reason)

    def _watch(self, level: Level, now_s: float) -> None:
        job = level.job
        if level.quantity == "progress" and not self.scheduler.knowledge & Knowledge.PROGRESS:
            raise KnowledgeError(
                f"scheduler {self.scheduler.name!r} watches the progress of job {job.id} without "
                f"declaring Knowledge.PROGRESS"
            )
        if job.phase == STARTING:
            self.levels.setdefault(job.index, []).append(level)  # armed when progress begins
            return
        at_s = level_time(level, now_s)
        if at_s < INF:
            self.sequence += 1
            heappush(self.timers, (at_s, self.sequence, job, job.epoch))
