"""The fast door: a scheduler made of a priority policy, a placement and an admission."""

from collections.abc import Mapping, Sequence
from typing import Any

from rota.core import events as ev
from rota.core.admission import Admission
from rota.core.allocation import host_of
from rota.core.errors import PolicyError
from rota.core.events import INF, Event
from rota.core.jobs import DONE, RUNNING, STOPPING, WAITING, Job
from rota.core.plan import ON_EVERY_EVENT, ROUNDING, Plan
from rota.core.policy import PriorityPolicy
from rota.core.ports import Successor
from rota.core.view import View
from rota.core.workload import Workload
from rota.engine.admission import AdmissionQueue
from rota.engine.index import IN_QUEUE, NOWHERE, ON_CLUSTER
from rota.engine.packer import Packer
from rota.placement.base import Placement

Timers = list[tuple[float, Job]]


class PriorityScheduler(Successor):
    """Keeps jobs in key order and packs after every batch of events that can change something."""

    def __init__(
        self,
        policy: PriorityPolicy[Any],
        placement: Placement,
        admission: Admission,
        *,
        frictionless: bool = False,
        patient: bool = False,
    ) -> None:
        kind = type(policy)
        self.name = policy.name
        self.trusted = True  # the placement keeps the books: plans need no second check
        self.policy = policy
        self.placement = placement
        self.knowledge = policy.knowledge
        self.wake = ON_EVERY_EVENT
        self.in_order = policy.in_order and admission.trivial
        self.refine = placement.refine if placement.refines else None
        self.admissions = AdmissionQueue(admission, placement, patient=patient)
        self._keyed_later = policy.preemptive and (policy.state_key or not frictionless)
        self.packer = Packer(
            placement,
            preemptive=policy.preemptive,
            strict=policy.strict,
            keyed_later=self._keyed_later,
        )
        self._preemptive = policy.preemptive
        self._jumps = kind.next_change is not PriorityPolicy.next_change
        self._learns = kind.finished is not PriorityPolicy.finished
        self._drifts = kind.slope is not PriorityPolicy.slope
        self._ages = self._jumps and policy.ages
        self.settles = self._jumps or self._keyed_later
        self._revision = policy.revision
        self._view: View | None = None
        self._returned: set[int] = set()  # whose places were given back before it was told
        self._again: list[Job] = []  # running jobs that changed level: keyed again after the scan

    def expect(self, workload: Workload) -> None:
        """The placement may want to know what jobs ask for."""
        if self.placement.expects:
            self.placement.expect(workload.usual)

    def step(  # noqa: C901, PLR0912 - the hot loop
        self, view: View, events: Sequence[Event]
    ) -> Plan | None:
        """Update the queues, then pack if anything can have changed."""
        now_s = view.now_s
        self._view = view
        admissions = self.admissions
        index = self.packer.index
        plan: Plan | None = None
        dirty: set[int] = set()
        shapes: set[int] = set()
        freed = False
        behind = self.packer.strict and index.waiting_count > 0
        for event in events:
            kind = event[1]
            job = event[3]
            if kind == ev.JOB_SUBMIT:
                if job.phase >= DONE:  # cancelled before anybody was told of it
                    continue
                if job.shape.number not in admissions.fine:
                    plan = plan or Plan(view.version)
                    if not admissions.enter(job, view, plan):
                        continue
                key = job.key = self.policy.key(job, now_s)
                if key is None or key != key:  # noqa: PLR0124 - nan is not equal to itself
                    raise self._bad_key(job, now_s)
                if self._drifts:
                    job.slope = self.policy.slope(job)
                if self._ages:
                    self._again.append(job)
                heap = index.push_waiting(job)
                if behind:  # only who ranks before all that compete with it may start
                    freed |= self.packer.passes(job)
                elif heap[0][3] is job:
                    shapes.add(job.shape.number)
            elif kind == ev.JOB_DONE:
                self._gone(job, dirty, now_s)
                freed = True
            elif kind == ev.LEVEL:
                freed |= self._relevel(job, dirty, now_s)
            elif kind != ev.TIMER:
                freed |= self._other(kind, job, dirty, now_s)
        if freed and admissions.held:
            plan = plan or Plan(view.version)
            for job in admissions.reconsider(view, plan):
                self._queue(job, now_s)
                shapes.add(job.shape.number)
        if self.policy.revision != self._revision:
            self._rekey_all(now_s)
            freed = True
        if (freed or shapes) and (index.waiting_count or self.packer.blamed.reasons):
            plan = plan or Plan(view.version)
            self.packer.pack(plan, now_s, shapes, dirty, everything=freed)
        if self._again:
            if not self.settles:
                self._again.clear()
                return plan
            plan = plan or Plan(view.version)
            if self.policy.state_key:
                self._confirm(plan, now_s)
        return plan

    def overhear(self, view: View, events: Sequence[Event]) -> Plan | None:
        """Events of which it is told later, in time for the reasons: places that are free now."""
        changed = False
        for event in events:
            kind, subject = event[1], event[3]
            if kind in (ev.NODE_DOWN, ev.NODE_UP):
                self.placement.set_node(subject, up=kind == ev.NODE_UP)
                changed = True
            elif kind in ev.ENDS and subject.queue == ON_CLUSTER:
                if subject.index not in self._returned:
                    self._returned.add(subject.index)
                    self.placement.give(subject, subject.allocation)
                changed = True
        if not changed or not self.packer.blamed.reasons:
            return None
        plan = Plan(view.version)
        self.packer.overhear(plan)
        return plan

    # --- events ---------------------------------------------------------------------------------

    def _bad_key(self, job: Job, now_s: float) -> PolicyError:
        return PolicyError(
            f"policy {self.name!r}: the key of job {job.id} at {now_s:g} s is {job.key}: `key` "
            f"must return something that can be compared, e.g. a number"
        )

    def _key(self, job: Job, now_s: float) -> Any:
        key = job.key = self.policy.key(job, now_s)
        if key is None or key != key:  # noqa: PLR0124 - nan is not equal to itself
            raise self._bad_key(job, now_s)
        return key

    def _queue(self, job: Job, now_s: float) -> list[Any]:
        self._key(job, now_s)
        if self._drifts:
            job.slope = self.policy.slope(job)
        if self._ages:
            self._again.append(job)
        return self.packer.index.push_waiting(job)

    def _gone(self, job: Job, dirty: set[int], now_s: float) -> None:
        allocation = job.allocation
        if job.queue == ON_CLUSTER:  # else it finished while it was being stopped
            if self._preemptive:
                self.packer.index.drop_running(job)
                if self.placement.filters:
                    dirty.update(allocation.vertices)
            else:
                job.queue = NOWHERE
            if self._returned and job.index in self._returned:
                self._returned.discard(job.index)
            else:
                self.placement.give(job, allocation)
        if self._learns:
            self.policy.finished(job, now_s)
        if not self.admissions.open:
            self.admissions.leave(job)

    def _relevel(self, job: Job, dirty: set[int], now_s: float) -> bool:
        index = self.packer.index
        if job.queue == ON_CLUSTER and self._preemptive:
            index.drop_running(job)
            self._key(job, now_s)
            index.push_running(job, now_s)
            dirty.update(job.allocation.vertices)
            self._again.append(job)
            return True
        if job.queue == IN_QUEUE:
            index.drop_waiting(job)
            self._queue(job, now_s)
            self.packer.forget_failures()
            return True
        return False

    def _other(self, kind: int, subject: Any, dirty: set[int], now_s: float) -> bool:
        """The rarer kinds; True if something was freed or lost rank."""
        if kind == ev.JOB_RUNNING:
            return self._reanchor(subject, dirty, now_s)
        if kind == ev.JOB_STOPPED:
            self.packer.forget_failures()  # what changed while it was away was not remembered
            if subject.phase == WAITING and subject.queue == NOWHERE:
                self._queue(subject, now_s)
            return True
        if kind == ev.JOB_EVICTED:
            self._release(subject)
            if subject.phase == WAITING:  # else it comes back with JOB_STOPPED
                self._queue(subject, now_s)
            return True
        if kind in (ev.NODE_DOWN, ev.NODE_UP):
            self.placement.set_node(subject, up=kind == ev.NODE_UP)
            self.packer.forget_failures()
            return True
        if kind in (ev.JOB_FAILED, ev.JOB_CANCELLED, ev.JOB_HELD):
            dirty.update(subject.allocation.vertices)
            self._over(subject)
            return True
        return False

    def _release(self, job: Job) -> None:
        if self._preemptive:
            self.packer.index.drop_running(job)
        else:
            job.queue = NOWHERE
        if job.index in self._returned:
            self._returned.discard(job.index)
        else:
            self.placement.give(job, job.allocation)
        self.packer.forget_failures()

    def _over(self, job: Job) -> None:
        """A job ended otherwise than by finishing."""
        if job in self.admissions.held:
            self.admissions.drop(job)
            return
        entered = job.started or job.queue != NOWHERE
        if job.queue == IN_QUEUE:
            self.packer.index.drop_waiting(job)
            self.packer.forget_failures()
        elif job.queue == ON_CLUSTER:
            self._release(job)
        if entered:
            self.admissions.leave(job)

    def _reanchor(self, job: Job, dirty: set[int], now_s: float) -> bool:
        """Its start is over, or its rate changed: from now on the key drifts differently."""
        if job.queue != ON_CLUSTER or not self._preemptive:
            return False
        before = job.vkey + job.slope * now_s if job.slope else job.vkey
        self.packer.index.drop_running(job)
        self._rekey_running(job, now_s)
        self._again.append(job)
        if job.key > before:  # it lost rank: somebody may displace it now
            dirty.update(job.allocation.vertices)
            return True
        return False

    def _rekey_running(self, job: Job, now_s: float) -> None:
        self._key(job, now_s)
        job.slope = self.policy.slope(job) if self._drifts and job.phase == RUNNING else 0.0
        self.packer.index.push_running(job, now_s)

    def _rekey_all(self, now_s: float) -> None:
        self._revision = self.policy.revision
        index = self.packer.index
        for job in list(index.jobs()):
            if job.queue == IN_QUEUE:
                index.drop_waiting(job)
                self._queue(job, now_s)
            else:
                index.drop_running(job)
                self._rekey_running(job, now_s)
                self._again.append(job)
        self.packer.forget_failures()

    def _confirm(self, plan: Plan, now_s: float) -> None:
        """Running jobs whose level changed and that were kept may rank differently as kept ones."""
        starting = {job.index for job, _ in plan.starts}
        for job in self._again:
            if job.phase == RUNNING and job.queue == ON_CLUSTER and job.index not in starting:
                self.packer.index.drop_running(job)
                self._rekey_running(job, now_s)

    # --- after the plan was carried out ---------------------------------------------------------

    def settle(self, view: View, plan: Plan) -> Sequence[tuple[float, Job]]:
        """Key again what the change affected; say when keys will jump."""
        now_s = view.now_s
        timers: Timers = []
        if self._keyed_later:
            for job, _ in plan.starts:
                self._rekey_running(job, now_s)
        for job in plan.stops:
            self._requeue_stopped(job, now_s)
        if self._jumps:
            self._arm_all(plan, now_s, timers)
        self._again.clear()
        return timers

    def _arm_all(self, plan: Plan, now_s: float, timers: Timers) -> None:
        for job, _ in plan.starts:
            if job.phase == RUNNING:
                self._arm(job, now_s, timers)
        if self._ages:
            for job in plan.stops:
                if job.phase == WAITING:
                    self._arm(job, now_s, timers)
        if self._again:
            armed = {job.index for job, _ in plan.starts}
            armed.update(job.index for job in plan.stops)
            for job in self._again:
                if job.index not in armed and job.phase in (WAITING, RUNNING):
                    self._arm(job, now_s, timers)

    def _requeue_stopped(self, job: Job, now_s: float) -> None:
        index = self.packer.index
        if job.phase == STOPPING:  # it comes back with JOB_STOPPED
            index.drop_waiting(job)
            self.packer.stuck = None  # it may have been the head that blocked the others
            return
        key = self.policy.key(job, now_s)
        if key != job.key:
            index.drop_waiting(job)
            job.key = key
            index.push_waiting(job)
            self.packer.stuck = None
            self.packer.forget_failures()

    def _arm(self, job: Job, now_s: float, timers: Timers) -> None:
        at_s = self.policy.next_change(job, now_s)
        if not at_s >= now_s - ROUNDING * max(1.0, now_s):
            raise PolicyError(
                f"policy {self.name!r}: `next_change` of job {job.id} at {now_s:g} s is {at_s} s: "
                "it must be a later time, or inf if the key does not jump"
            )
        if at_s < INF:
            timers.append((at_s, job))

    # --- state ----------------------------------------------------------------------------------

    def explained_shapes(self) -> list[int]:
        """Shapes for which a reason is in force in the log."""
        return list(self.packer.blamed.reasons)

    def adopt(self, view: View, placed: Sequence[Job], stopping: Sequence[Job]) -> None:
        """Take over from another scheduler: its jobs get keys of this policy."""
        if any(host_of(job.allocation) >= 0 for job in placed):
            raise PolicyError(
                f"policy {self.name!r} cannot take over while jobs share GPUs: it knows nothing of "
                "pairs; let them end first, or choose a policy that decides everything anew"
            )
        self._view = view
        for job in placed:
            self.placement.hold(job, job.allocation)
            job.queue = NOWHERE
            if self._preemptive:
                self._rekey_running(job, view.now_s)
            job.queue = ON_CLUSTER
            self._again.append(job)
        for job in stopping:
            job.queue = NOWHERE
        for job in (*placed, *stopping):
            self.admissions.assume(job)
        self.placement.close_unusable()  # after the holds: jobs go on where nothing more may start

    def snapshot(self) -> Mapping[str, Any]:
        """Everything that the jobs themselves do not carry."""
        everyone = self._view.everyone.values() if self._view is not None else ()
        return {
            "queued": [job.index for job in everyone if job.queue == IN_QUEUE],
            "placed": [job.index for job in everyone if job.queue == ON_CLUSTER],
            "policy": self.policy.snapshot(),
            "gate": self.admissions.snapshot(),
            # the order of these two decides the order of rows in the log
            "shapes": list(self.packer.index.waiting),
            "blame": list(self.packer.blamed.reasons.items()),
            "heads": list(self.packer.heads.items()),
            "stuck": _plain(self.packer.stuck),
            "again": [job.index for job in self._again],
            "returned": sorted(self._returned),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild queues and placement from the jobs."""
        self._view = view
        self.policy.restore(state["policy"])
        self._revision = self.policy.revision
        self.admissions.restore(view, state["gate"])
        self.packer.stuck = _ranks(state["stuck"])
        index = self.packer.index
        index.waiting.update((number, []) for number in state["shapes"])
        # not from the jobs' phases: there may be events that it has not been told yet
        for number in state["queued"]:
            index.push_waiting(view.everyone[number])
        self._returned = set(state.get("returned", ()))
        for number in state["placed"]:
            job = view.everyone[number]
            if number not in self._returned:
                self.placement.hold(job, job.allocation)
            if self._preemptive:
                index.insert_running(job)
            job.queue = ON_CLUSTER
        self._again = [view.everyone[number] for number in state["again"]]
        self.placement.close_unusable()  # after the holds: jobs go on where nothing more may start
        shapes = {job.shape.number: job.shape for job in view.everyone.values()}
        self.packer.heads = dict(state.get("heads") or [(n, -1) for n, _ in state["blame"]])
        for number, told in state["blame"]:
            self.packer.blamed.resume(shapes[number], told)


Stuck = dict[int, tuple[Any, int]] | None


def _plain(stuck: Stuck) -> list[tuple[str, Any, int]] | None:
    """As plain data: sets of nodes have more bits than numbers in a file may have."""
    return None if stuck is None else [(f"{nodes:x}", *rank) for nodes, rank in stuck.items()]


def _ranks(saved: Sequence[Any] | None) -> Stuck:
    """The same back; None (look again) for what was saved before queues were told apart."""
    if saved is None or any(not isinstance(entry, list | tuple) for entry in saved):
        return None
    return {
        int(nodes, 16): ((tuple(key) if isinstance(key, list) else key), index)
        for nodes, key, index in saved
    }
