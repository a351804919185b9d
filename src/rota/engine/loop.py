"""The loop: wait for events, update the state, ask the scheduler, carry out its plan."""

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Protocol

from rota.core import machine
from rota.core.changes import ON_EVERY_EVENT, Changes, Wake
from rota.core.errors import InvalidPlanError, KnowledgeError, LivelockError, OptionError
from rota.core.events import INF, JOB_SUBMIT, NODE_UP, Event
from rota.core.jobs import STOPPING, WAITING, Job, Shape
from rota.core.knowledge import Knowledge
from rota.core.log import Record
from rota.core.ports import Cluster, Scheduler, Source, Successor
from rota.core.reconcile import reconcile
from rota.core.tenants import TenantTree
from rota.core.topology import Vertex
from rota.core.view import View
from rota.core.windows import NodeWindow
from rota.engine.arrivals import Arrivals
from rota.engine.executor import Executor, on_cluster
from rota.engine.lifecycle import Lifecycle
from rota.engine.log import CHUNK, Log
from rota.engine.timers import Timers, only_phases

if TYPE_CHECKING:
    from rota.engine.calendar import Calendar

R_REASON = int(Record.REASON)
LIVELOCK = 10_000  # batches at one instant
ENDLESS = 1 << 62  # batches


class Checker(Protocol):
    """Looks at the state after every batch (see `invariants`)."""

    def after(self, engine: "Engine", events: list[Event], changes: Changes | None) -> None:
        """Raise InvariantError if something does not hold."""
        ...


class Engine:
    """One scheduler on one cluster. The clock is the cluster's.

    `lifecycle` owns the jobs and what happens to them, `arrivals` makes them, `timers` know when
    to ask the scheduler, and `executor` carries its commands out.
    """

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
        self.checker = checker
        self.log = Log()
        self.view = View(cluster.topology, tenants or TenantTree())
        self.view.knowledge = scheduler.knowledge
        self.view.rank, self.view.head = scheduler.rank, scheduler.head
        self.view.sharing = cluster.capabilities.shares
        self.timers = Timers(scheduler.wake, imposed=wake)
        self.timers.hears_phases = scheduler.hears_phases
        self.arrivals = Arrivals(
            scheduler.knowledge, first_task, belief, linked=source.linked, refine=scheduler.refine
        )
        self.executor = Executor(cluster, self.view, self.log, trusted=scheduler.trusted)
        self.lifecycle = Lifecycle(
            cluster, self.view, self.log, self.arrivals, self.executor, self.timers
        )
        self.jobs = self.view.everyone = self.lifecycle.jobs
        self.calendar: Calendar | None = None  # windows, once there are any
        self.events = 0
        self.decisions = 0
        self._frictionless = cluster.capabilities.frictionless
        self._still = self._still_at = 0  # empty batches in a row, and when the last of them was
        self.log.topology(cluster.topology)

    # --- running --------------------------------------------------------------------------------

    def advance(self, until_s: float = INF) -> bool:
        """One batch of simultaneous events; False when there is none (up to `until_s`)."""
        return self.run(until_s, 1)

    def run(  # noqa: C901, PLR0912, PLR0915 - the hot loop, in one piece: every call costs
        self, until_s: float = INF, batches: int = ENDLESS, busy: Sized | None = None
    ) -> bool:
        """Process everything up to `until_s`, or until nothing can happen any more: then False.

        It ends earlier, and there may be more to do (True), after so many batches, or when `busy`
        (for example the active jobs) is empty and no further submission is known.
        """
        timers, lifecycle, view = self.timers, self.lifecycle, self.view
        cluster, source, scheduler = self.cluster, self.source, self.scheduler
        poll, checker, frictionless = cluster.poll, self.checker, self._frictionless
        calendar = self.calendar
        phased = cluster.capabilities.phased and not timers.hears_phases
        rows, due = self.log.rows, timers.heap
        for _ in range(batches):  # not `while`: CPython 3.11 would not specialise its code
            horizon_s = source.next_s
            if horizon_s == INF and not busy and busy is not None:
                break
            wake = timers.wake
            if wake is not ON_EVERY_EVENT or timers.ask_now:
                horizon_s = self.horizon_s()
            elif due:
                timer = due[0]
                if timer[3] != timer[2].epoch:  # of a run that is over
                    horizon_s = timers.before(horizon_s)
                elif timer[0] < horizon_s:
                    horizon_s = timer[0]
            events = poll(horizon_s if horizon_s < until_s else until_s)  # noqa: FURB136 - hot
            now_s = cluster.now_s
            arrives = source.next_s <= now_s  # on a living cluster jobs come while we wait
            if not events and not arrives:
                if now_s < horizon_s:
                    return False
                if now_s == view.now_s:
                    self._refuse_livelock(now_s)
            view.now_s = now_s
            view.version += 1
            if events:
                events = lifecycle.happened(events, now_s)
            if arrives:
                lifecycle.submit(source.take(now_s), events)
            if due and due[0][0] <= now_s:
                timers.expire(now_s, events)
                if lifecycle.returning:
                    lifecycle.readmit(events)
                if calendar is not None:
                    calendar.turn(events)
            self.events += len(events)
            if not events:
                timers.idle_rounds += 1
            elif timers.idle_rounds:
                timers.idle_rounds = 0
            if wake is not ON_EVERY_EVENT or phased or timers.ask_now:
                if timers.ask_now:
                    timers.ask_now = False
                elif (
                    timers.asleep(events, now_s)
                    if wake is not ON_EVERY_EVENT
                    else events and only_phases(events)
                ):
                    self._defer(events, now_s)
                    continue
            if lifecycle.backlog:
                events = lifecycle.backlog + events
                lifecycle.backlog = []
            if calendar is not None:
                calendar.attend(events)
            self.decisions += 1
            changes = scheduler.step(view, events)
            if changes is not None:
                self._carry_out(changes, now_s)
                scheduler = self.scheduler  # it may have handed over
            elif not frictionless:
                self._rerate(now_s)
            if checker is not None:
                checker.after(self, events, changes)
            if len(rows) > CHUNK:
                self.log.pack()
        return True

    def horizon_s(self) -> float:
        """When it acts next if nothing happens before: a wake, a timer or a known submission."""
        timers = self.timers
        if timers.ask_now:
            return self.cluster.now_s
        at_s = timers.wake.at_s
        if timers.heap or timers.wake.every_s:
            at_s = timers.next_s(self.view.now_s, self.view.active or self.lifecycle.backlog)
        return min(at_s, self.source.next_s)

    def ahead_of(self, job: Job) -> list[Job]:
        """Those in the queue that rank before it, in the order of the scheduler."""
        if job.phase != WAITING:
            return []
        rank = self.scheduler.rank
        waiting = [other for other in self.view.active.values() if other.phase == WAITING]
        try:
            return sorted((other for other in waiting if rank(other) < rank(job)), key=rank)
        except TypeError:  # keys that cannot be compared
            return [other for other in waiting if other.index < job.index]

    def note(self, text: str) -> None:
        """A remark in the log."""
        self.log.row(self.view.now_s, Record.NOTE)
        self.log.text(text)

    def finish(self) -> None:
        """Close the log."""
        self.log.row(self.view.now_s, Record.END, -1, self.events, self.decisions, 0.0)

    def _refuse_livelock(self, now_s: float) -> None:
        """Count the batches in a row that are empty and take no time."""
        version = self.view.version
        self._still = self._still + 1 if version == self._still_at + 1 else 1
        self._still_at = version
        if self._still > LIVELOCK:
            raise LivelockError(
                f"scheduler {self.scheduler.name!r} was woken {LIVELOCK} times at {now_s:g} s: it "
                f"must ask to be woken at a later time"
            )

    def _defer(self, events: list[Event], now_s: float) -> None:
        """The scheduler is not asked now: the events await the next decision."""
        self.lifecycle.backlog += events
        if events:
            self._overhear(events, now_s)
        if not self._frictionless:
            self._rerate(now_s)
        if self.checker is not None:
            self.checker.after(self, events, None)

    def _overhear(self, events: Sequence[Event], now_s: float) -> None:
        """No decision now, but reasons follow what is free."""
        changes = self.scheduler.overhear(self.view, events)
        if changes is not None:
            self._blame(changes, now_s)
            self._explain(changes, now_s)

    # --- what to do -----------------------------------------------------------------------------

    def _carry_out(  # noqa: C901, PLR0912 - in order
        self, changes: Changes, now_s: float
    ) -> None:
        version = self.view.version
        if changes.unusual:
            self._turn_away(changes, now_s)
        if changes.version != version:
            self.timers.ask_again()  # parts of it may be void
        if changes.starts or changes.stops:
            try:
                self.executor.execute(reconcile(changes, version), changes.causes, changes.whys)
            except InvalidPlanError as error:
                raise InvalidPlanError(
                    f"policy {self.scheduler.name!r} at {now_s:g} s: {error}"
                ) from error
        if changes.wake is not None:
            self.timers.request(changes.wake)
        if changes.shape_reasons:
            self._blame(changes, now_s)
        if changes.unusual:
            for job, cause in changes.cancels:
                if not job.terminal:
                    self.cancel(job, cause, now_s)
            self._explain(changes, now_s)
            self._watch(changes, now_s)
            for successor, why in changes.successors:
                self.note(why)
                self.hand_over(successor)
                return
        if not self._frictionless:
            self._rerate(now_s)
        if self.scheduler.settles:
            for at_s, job in self.scheduler.settle(self.view, changes):
                self.timers.arm(at_s, job)
        if self.calendar is not None:
            self.calendar.after(changes)

    def _rerate(self, now_s: float) -> None:
        """Rates that changed with the neighbours; late starters for which there is room now."""
        for job, rate in self.cluster.rerated():
            self.executor.rate_changed(job, rate, now_s)
            self.executor.begun.append(job)
        if self.executor.begun:
            self.lifecycle.backlog += self.lifecycle.begun()
            self.timers.ask_again()

    def _turn_away(self, changes: Changes, now_s: float) -> None:
        lifecycle = self.lifecycle
        for job, message in changes.rejects:
            lifecycle.reject(job, message)
        if lifecycle.arrays.freed:
            lifecycle.take_turns(lifecycle.backlog)
        if changes.rejects and any(event[1] == JOB_SUBMIT for event in lifecycle.backlog):
            self.timers.ask_again()  # others waited for one that will never run
        for job, reason in changes.holds:
            machine.hold(job)
            self.log.row(now_s, Record.HELD, job.index, -1, -1, reason)
        for job in changes.admits:
            self.log.row(now_s, Record.ADMITTED, job.index)

    def cancel(self, job: Job, cause: Job | None, now_s: float) -> None:
        """End a job for good; the scheduler learns of it with the next events."""
        now_s = max(now_s, self.cluster.now_s)  # a request from outside comes between batches
        self.view.now_s = now_s
        backlog = self.lifecycle.backlog
        self.lifecycle.cancel(job, cause, backlog)
        self.lifecycle.take_turns(backlog)
        self.timers.ask_again()
        if not self.timers.ask_now:
            self._overhear(backlog, now_s)
        self.executor.launch_deferred(now_s)  # others may have waited for its slices

    def _blame(self, changes: Changes, now_s: float) -> None:
        rows, calendar = self.log.rows, self.calendar
        for number, reason, head in changes.shape_reasons:
            if calendar is not None and calendar.explain(number, reason, head):
                continue
            rows += (now_s, R_REASON, head.index if head is not None else -1, number, -1, reason)

    def _explain(self, changes: Changes, now_s: float) -> None:
        for job, reason in changes.reasons:
            if job.reason != reason and job.phase == WAITING:
                job.reason = int(reason)
                self.log.row(now_s, Record.REASON, job.index, -1, -1, reason)
        told = self.view.shared_reasons
        for tenant, number, reason in changes.shared_reasons:
            if told.get((tenant, number), 0) != reason:
                told[tenant, number] = int(reason)
                self.log.row(now_s, Record.REASON, -1, number, self.log.tenants[tenant], reason)

    def _watch(self, changes: Changes, now_s: float) -> None:
        for level in changes.levels:
            if level.quantity == "progress" and not self.scheduler.knowledge & Knowledge.PROGRESS:
                raise KnowledgeError(
                    f"scheduler {self.scheduler.name!r} watches the progress of job "
                    f"{level.job.id} without declaring Knowledge.PROGRESS"
                )
            self.timers.watch(level, now_s)

    # --- windows --------------------------------------------------------------------------------

    def schedule(self) -> "Calendar":
        """The calendar of windows; made when there is one for the first time."""
        if self.calendar is None:
            from rota.engine.calendar import Calendar  # few runs need it

            self.calendar = Calendar(self.lifecycle, self._reshape)
        return self.calendar

    def add_window(self, window: NodeWindow) -> None:
        """Nodes are not for everybody for some time (see `core.windows`)."""
        if not self.scheduler.trusted:
            raise OptionError(
                f"policy {self.scheduler.name!r} chooses GPUs itself, as the system that it is "
                f"made after, which knows no maintenance or reservation: use one that leaves "
                f"places to the placement, e.g. capacity or hierarchical-fair"
            )
        self.schedule().add(window)
        self.timers.ask_again()

    def remove_window(self, name: str, by: str = "") -> None:
        """They are again, earlier than was said."""
        self.schedule().remove(name, by)
        self.timers.ask_again()

    def _reshape(self, job: Job, shape: Shape, now_s: float) -> None:
        self.scheduler.reshape(job, shape, now_s)

    # --- another scheduler ----------------------------------------------------------------------

    def hand_over(
        self,
        scheduler: Successor,
        state: Mapping[str, Any] | None = None,
        *,
        joined: Sequence[Vertex] = (),
    ) -> None:
        """From the next decision on another scheduler decides: a new policy, or more nodes.

        `state` is what the former one saved, if both are of the same making. Otherwise the new one
        finds the jobs where they are, and those that wait are announced to it as if they came now.
        `joined` are nodes that are new.
        """
        view = self.view
        if state is None:
            self._take_reasons_back()
        self.scheduler = scheduler
        view.knowledge = scheduler.knowledge
        view.rank, view.head = scheduler.rank, scheduler.head
        self.arrivals.knowledge = int(scheduler.knowledge)
        self.arrivals.refine = scheduler.refine
        for job in view.active.values():
            job.known = int(scheduler.knowledge)
        self.timers.request(scheduler.wake)
        self.timers.hears_phases = scheduler.hears_phases
        self.log.topology(self.cluster.topology, view.now_s)  # it may have grown
        self.executor.renew(view.active.values(), trusted=scheduler.trusted)
        if state is not None:
            scheduler.restore(view, state)
        else:
            self._adopt(scheduler)
        if self.calendar is not None:
            self.calendar.rearm()
        self.timers.ask_again()
        self.lifecycle.backlog += [self.lifecycle.event(NODE_UP, node) for node in joined]

    def _take_reasons_back(self) -> None:
        """What the former scheduler said of those who wait is not true of the new one."""
        now_s = self.view.now_s
        for number in self.scheduler.explained_shapes():
            self.log.row(now_s, Record.REASON, -1, number)
        for job in self.view.active.values():
            if job.reason and job.phase == WAITING:
                self.log.row(now_s, Record.REASON, job.index)
        for (tenant, number), reason in self.view.shared_reasons.items():
            if reason:
                self.log.row(now_s, Record.REASON, -1, number, self.log.tenants[tenant])
        self.view.shared_reasons.clear()

    def _adopt(self, scheduler: Successor) -> None:
        active = list(self.view.active.values())
        moving = self.executor.moving
        for job in active:
            job.reason = 0
        self.timers.clear()
        self.lifecycle.backlog.clear()  # nothing in it that cannot be seen from the jobs
        placed = [job for job in active if on_cluster(job) or job.index in moving]
        stopping = [job for job in active if job.phase == STOPPING and job.index not in moving]
        scheduler.adopt(self.view, placed, stopping)
        self.lifecycle.announce()
