"""The fast door: a scheduler made of a priority policy, a placement and an admission."""

from collections.abc import Mapping, Sequence
from typing import Any

from rota.core import events as ev
from rota.core.admission import Admission, BudgetUse
from rota.core.allocation import host_of
from rota.core.changes import ON_EVERY_EVENT, ROUNDING, Changes
from rota.core.errors import PolicyError
from rota.core.events import INF, JOB_DONE, JOB_SUBMIT, LEVEL, TIMER, Event
from rota.core.jobs import DONE, RUNNING, STOPPING, WAITING, Job, Shape
from rota.core.knowledge import Knowledge
from rota.core.policy import PriorityPolicy
from rota.core.ports import Successor
from rota.core.view import View
from rota.core.wake import Wake
from rota.core.workload import Workload
from rota.engine.admission import AdmissionQueue
from rota.engine.packer import IN_QUEUE, NOWHERE, ON_CLUSTER, Entry, Packer, WaitEntry
from rota.placement.base import Placement

Timers = list[tuple[float, Job]]
AT_REST = (WAITING, RUNNING)  # phases in which keys change by time alone
FOLLOWS_PROGRESS = Knowledge.PROGRESS | Knowledge.RATE | Knowledge.REMAINING_WORK


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
        self.trusted = True  # the placement knows what is free: plans need no second check
        self.policy = policy
        self.placement = placement
        self.knowledge = policy.knowledge
        self.wake = ON_EVERY_EVENT
        self.hears_phases = bool(policy.knowledge & FOLLOWS_PROGRESS)  # its keys may depend on them
        self.in_order = policy.in_order and admission.trivial
        self.looks_back = bool(policy.knowledge & Knowledge.HISTORY) or not admission.trivial
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
        self._filters = placement.filters
        self._jumps = kind.next_change is not PriorityPolicy.next_change
        self._learns = kind.finished is not PriorityPolicy.finished
        self._drifts = kind.slope is not PriorityPolicy.slope
        self._ages = self._jumps and policy.ages
        self.settles = self._jumps or self._keyed_later
        policy.revision = self._revision = policy.revision  # its own: that of its class is slow
        self._view: View | None = None
        self._nothing = Changes(0)
        self._returned: set[int] = set()  # whose places were given back before the event came
        self._again: list[Entry] = []  # running jobs that changed level: keyed again after the scan

    def expect(self, workload: Workload) -> None:
        """The placement may want to know what jobs ask for."""
        if self.placement.expects:
            self.placement.expect(workload.usual)

    def step(  # noqa: C901, PLR0912 - the hot loop
        self, view: View, events: Sequence[Event]
    ) -> Changes | None:
        """Update the queues, then pack if anything can have changed."""
        now_s = view.now_s
        self._view = view
        packer = self.packer
        index = packer.index
        policy = self.policy
        admissions = self.admissions
        changes: Changes | None = None
        dirty: set[int] = set()
        shapes: set[int] = set()
        freed = admissions.timed and admissions.admission.tick(view)
        behind = packer.strict and index.waiting_count > 0
        for event in events:
            kind = event[1]
            job = event[3]
            if kind == JOB_SUBMIT:
                if job.phase >= DONE:  # cancelled before it was announced
                    continue
                number = job.shape.number
                if number not in admissions.fine:
                    changes = changes or Changes(view.version)
                    if not admissions.enter(job, view, changes):
                        continue
                entry = index.entries.get(job.index)
                if entry is None:
                    entry = index.entries[job.index] = Entry(job)
                key = entry.key = policy.key(job, now_s)  # `_queue`, written out: it is hot
                if key is None or key != key:  # noqa: PLR0124 - nan is not equal to itself
                    raise self._bad_key(entry, now_s)
                if self._drifts:
                    entry.slope = policy.slope(job)
                if self._ages:
                    self._again.append(entry)
                heap = index.push_waiting(entry)
                if behind:  # only a job that ranks before all that compete with it may start
                    freed |= packer.passes(entry)
                elif heap[0][3] is entry:
                    shapes.add(number)
            elif kind == JOB_DONE:
                self._gone(job, dirty, now_s)
                freed = True
            elif kind == LEVEL:
                freed |= self._relevel(job, dirty, now_s)
            elif kind != TIMER:
                freed |= self._other(kind, job, dirty, now_s)
        if freed and admissions.held:
            changes = changes or Changes(view.version)
            for job in admissions.reconsider(view, changes):
                self._queue(index.entry(job), now_s)
                shapes.add(job.shape.number)
        if policy.revision != self._revision:
            self._rekey_all(now_s)
            freed = True
        if (freed or shapes) and (index.waiting_count or packer.blamed.reasons):
            changes = changes or Changes(view.version)
            packer.pack(changes, now_s, index.waiting if freed else shapes, dirty)
        if self._again:
            if not self.settles:
                self._again.clear()
            elif changes is None:  # nothing changes, but timers have to be set: see `settle`
                changes = self._nothing
                changes.version = view.version
        return self._wake_in_time(view, changes) if admissions.timed else changes

    def _wake_in_time(self, view: View, changes: Changes | None) -> Changes | None:
        """Ask to be woken when admission wants to know the time."""
        at_s = self.admissions.next_s(view)
        if at_s != self.wake.at_s:
            self.wake = ON_EVERY_EVENT if at_s == INF else Wake(at_s=at_s)
            if changes is None or changes is self._nothing:
                changes = Changes(view.version)
            changes.wake = self.wake
        return changes

    def overhear(self, view: View, events: Sequence[Event]) -> Changes | None:
        """Events that `step` gets later, in time for the reasons: places that are free now."""
        changed = False
        for event in events:
            kind, subject = event[1], event[3]
            if kind in (ev.NODE_DOWN, ev.NODE_UP):
                self.placement.set_node(subject, up=kind == ev.NODE_UP)
                changed = True
            elif kind in ev.ENDS and self._where(subject) == ON_CLUSTER:
                if subject.index not in self._returned:
                    self._returned.add(subject.index)
                    self.placement.give(subject, subject.allocation)
                changed = True
        if not changed or not self.packer.blamed.reasons:
            return None
        changes = Changes(view.version)
        self.packer.overhear(changes)
        return changes

    # --- events ---------------------------------------------------------------------------------

    def _key(self, entry: Entry, now_s: float) -> Any:
        key = entry.key = self.policy.key(entry.job, now_s)
        if key is None or key != key:  # noqa: PLR0124 - nan is not equal to itself
            raise self._bad_key(entry, now_s)
        return key

    def _bad_key(self, entry: Entry, now_s: float) -> PolicyError:
        return PolicyError(
            f"policy {self.name!r}: the key of job {entry.job.id} at {now_s:g} s is {entry.key}: "
            f"`key` must return something that can be compared, e.g. a number"
        )

    def _where(self, job: Job) -> int:
        entry = self.packer.index.entries.get(job.index)
        return NOWHERE if entry is None else entry.where

    def _queue(self, entry: Entry, now_s: float) -> list[WaitEntry]:
        self._key(entry, now_s)
        if self._drifts:
            entry.slope = self.policy.slope(entry.job)
        if self._ages:
            self._again.append(entry)
        return self.packer.index.push_waiting(entry)

    def reshape(self, job: Job, shape: Shape, now_s: float) -> None:  # noqa: ARG002
        """It waits among those of another shape from now on; LEVEL tells to look again."""
        index = self.packer.index
        entry = index.entries.get(job.index)
        job.shape = shape
        if entry is None:
            return
        queued = entry.where == IN_QUEUE
        if queued:
            index.drop_waiting(entry)
        entry.shape = shape
        if queued:
            index.push_waiting(entry)
            self.packer.stuck = None
            self.packer.forget_failures()

    def _gone(self, job: Job, dirty: set[int], now_s: float) -> None:
        allocation = job.allocation
        entry = self.packer.index.entries.pop(job.index)
        if entry.where == ON_CLUSTER:  # else it finished while it was being stopped
            if self._preemptive:
                self.packer.index.drop_running(entry)
                if self._filters:
                    dirty.update(allocation.vertices)
            else:
                entry.where = NOWHERE
            if self._returned and job.index in self._returned:
                self._returned.discard(job.index)
            else:
                self.placement.give(job, allocation)
        if self._learns:
            self.policy.finished(job, now_s)
        if not self.admissions.open:
            self.admissions.leave(job)

    def _relevel(self, job: Job, dirty: set[int], now_s: float) -> bool:
        packer = self.packer
        index = packer.index
        entry = index.entries.get(job.index) or index.entry(job)
        if entry.where == ON_CLUSTER and self._preemptive:
            index.drop_running(entry)
            key = entry.key = self.policy.key(job, now_s)  # `_key`, written out: it is hot
            if key is None or key != key:  # noqa: PLR0124 - nan is not equal to itself
                raise self._bad_key(entry, now_s)
            index.push_running(entry, now_s)
            self._again.append(entry)
            if packer.concerns(entry) or self.admissions.held:
                dirty.update(job.allocation.vertices)
                return True
            return False
        if entry.where == IN_QUEUE:
            index.drop_waiting(entry)
            self._queue(entry, now_s)
            self.packer.forget_failures()
            return True
        return self.packer.strict  # a head that is being stopped blocks no other: see `settle`

    def _other(self, kind: int, subject: Any, dirty: set[int], now_s: float) -> bool:
        """The rarer kinds; True if something was freed or lost rank."""
        index = self.packer.index
        if kind in (ev.JOB_RUNNING, ev.JOB_PHASE):
            return self._reanchor(subject, dirty, now_s)
        if kind == ev.JOB_STOPPED:
            self.packer.forget_failures()  # what changed while it was away was not remembered
            if subject.phase == WAITING and self._where(subject) == NOWHERE:
                self._queue(index.entry(subject), now_s)
            return True
        if kind == ev.JOB_EVICTED:
            entry = index.entries[subject.index]
            self._release(entry)
            if subject.phase == WAITING:  # else it comes back with JOB_STOPPED
                self._queue(entry, now_s)
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

    def _release(self, entry: Entry) -> None:
        job = entry.job
        if self._preemptive:
            self.packer.index.drop_running(entry)
        else:
            entry.where = NOWHERE
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
        index = self.packer.index
        entry = index.entries.get(job.index)
        where = NOWHERE if entry is None else entry.where
        if entry is not None:
            if where == IN_QUEUE:
                index.drop_waiting(entry)
                self.packer.forget_failures()
            elif where == ON_CLUSTER:
                self._release(entry)
            if job.terminal:  # else it is held and may come back
                del index.entries[job.index]
        if job.started or where != NOWHERE:
            self.admissions.leave(job)

    def _reanchor(self, job: Job, dirty: set[int], now_s: float) -> bool:
        """Its start is over, or its rate changed: from now on the key drifts differently."""
        index = self.packer.index
        entry = index.entries.get(job.index)
        if entry is None or entry.where != ON_CLUSTER or not self._preemptive:
            return False
        before = entry.vkey + entry.slope * now_s if entry.slope else entry.vkey
        index.drop_running(entry)
        self._rekey_running(entry, now_s)
        self._again.append(entry)
        if entry.key > before:  # it lost rank: somebody may displace it now
            dirty.update(job.allocation.vertices)
            return True
        return False

    def _rekey_running(self, entry: Entry, now_s: float) -> None:
        self._key(entry, now_s)
        self._anchor(entry, now_s)

    def _anchor(self, entry: Entry, now_s: float) -> None:
        """Insert it among those that run, by its key as of now."""
        if self._drifts:
            runs = entry.job.phase == RUNNING
            entry.slope = self.policy.slope(entry.job) if runs else 0.0
        self.packer.index.push_running(entry, now_s)

    def _rekey_all(self, now_s: float) -> None:
        self._revision = self.policy.revision
        index = self.packer.index
        for entry in list(index.queued()):
            index.drop_waiting(entry)
            self._queue(entry, now_s)
        for entry in list(index.placed()):
            index.drop_running(entry)
            self._rekey_running(entry, now_s)
            self._again.append(entry)
        self.packer.forget_failures()

    # --- after the plan was carried out ---------------------------------------------------------

    def settle(self, view: View, changes: Changes) -> Sequence[tuple[float, Job]]:
        """Key again what the change affected; say when keys will jump."""
        now_s = view.now_s
        timers: Timers = []
        starts, stops = changes.starts, changes.stops
        if starts and self._keyed_later:
            entries = self.packer.index.entries
            for job, _ in starts:
                self._rekey_running(entries[job.index], now_s)
        for job in stops:
            self._requeue_stopped(self.packer.index.entries[job.index], now_s)
            if self.packer.strict and job.phase == STOPPING:  # those behind it are looked at now,
                timers.append((now_s, job))  # not when something happens elsewhere
        if self._jumps:
            if starts or stops:
                self._arm_changed(changes, now_s, timers)
            for entry in self._again:
                if entry.job.phase in AT_REST:
                    self._arm(entry.job, now_s, timers)
        self._again.clear()
        return timers

    def _arm_changed(self, changes: Changes, now_s: float, timers: Timers) -> None:
        """Timers of jobs that have started or stopped; the others of `_again` are left there."""
        starts, stops = changes.starts, changes.stops
        for job, _ in starts:
            if job.phase == RUNNING:
                self._arm(job, now_s, timers)
        if self._ages:
            for job in stops:
                if job.phase == WAITING:
                    self._arm(job, now_s, timers)
        if self._again:
            armed = {job.index for job, _ in starts}
            armed.update(job.index for job in stops)
            self._again = [entry for entry in self._again if entry.index not in armed]

    def _requeue_stopped(self, entry: Entry, now_s: float) -> None:
        index = self.packer.index
        if entry.job.phase == STOPPING:  # it comes back with JOB_STOPPED
            index.drop_waiting(entry)
            self.packer.stuck = None  # it may have been the head that blocked the others
            return
        key = self.policy.key(entry.job, now_s)
        if key != entry.key:
            index.drop_waiting(entry)
            entry.key = key
            index.push_waiting(entry)
            self.packer.stuck = None
            self.packer.forget_failures()

    def _arm(self, job: Job, now_s: float, timers: Timers) -> None:
        at_s = self.policy.next_change(job, now_s)
        if not (at_s >= now_s or at_s >= now_s - ROUNDING * max(1.0, now_s)):
            raise PolicyError(
                f"policy {self.name!r}: `next_change` of job {job.id} at {now_s:g} s is {at_s} s: "
                "it must be a later time, or inf if the key does not jump"
            )
        if at_s < INF:
            timers.append((at_s, job))

    # --- state ----------------------------------------------------------------------------------

    def rank(self, job: Job) -> tuple[Any, int]:
        """Its key, and its number among equals."""
        entry = self.packer.index.entries.get(job.index)
        return (0.0 if entry is None else entry.key), job.index

    def head(self, shape: int) -> Job | None:
        """The first of the heap of a shape."""
        heap = self.packer.index.waiting.get(shape)
        return heap[0][3].job if heap else None

    def why_held(self, job: Job, view: View) -> str:
        """What a job that admission holds waits for."""
        return self.admissions.why(job, view)

    def budgets(self, view: View, now_s: float) -> Sequence[BudgetUse]:
        """What was used of budgets."""
        return self.admissions.admission.budgets(view, now_s)

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
        self.placement.deplete(view.spent)
        for job in placed:
            self.placement.hold(job, job.allocation)
            entry = self.packer.index.entry(job)
            if self._preemptive:
                self._rekey_running(entry, view.now_s)
            entry.where = ON_CLUSTER
            self._again.append(entry)
        for job in stopping:
            self.packer.index.entry(job)
        for job in (*placed, *stopping):
            self.admissions.assume(job, view)
        self.placement.close_unusable()  # after the holds: jobs go on where nothing more may start

    def snapshot(self) -> Mapping[str, Any]:
        """Everything that the jobs themselves do not carry."""
        entries = self.packer.index.entries
        everyone = self._view.everyone if self._view is not None else ()
        known = [entries[number] for number in everyone if number in entries]
        return {
            "entries": [(entry.index, entry.where, entry.key, entry.vkey, entry.slope)
                        for entry in known],
            "policy": self.policy.snapshot(),
            "gate": self.admissions.snapshot(),
            "placement": self.placement.snapshot(),
            # the order of these two decides the order of rows in the log
            "shapes": list(self.packer.index.waiting),
            "blame": list(self.packer.blamed.reasons.items()),
            "heads": list(self.packer.heads.items()),
            "stuck": _plain(self.packer.stuck),
            "again": [entry.index for entry in self._again],
            "anew": self._revision != self.policy.revision,
            "returned": sorted(self._returned),
        }  # fmt: skip

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild queues and placement from the jobs."""
        self._view = view
        self.policy.restore(state["policy"])
        self._revision = self.policy.revision
        self.admissions.restore(view, state["gate"])
        if state["placement"] is not None:
            self.placement.restore(state["placement"])
            self.packer.stuck = _ranks(state["stuck"])
        if state["placement"] is None or state["anew"]:
            self._revision -= 1  # what did not fit may fit by another placement: look again
        index = self.packer.index
        index.waiting.update((number, []) for number in state["shapes"])
        self._returned = set(state["returned"])
        # not from the jobs' phases: there may be events that have not reached it yet
        for number, where, key, vkey, slope in state["entries"]:
            job = view.everyone[number]
            entry = index.entry(job)
            entry.key, entry.vkey, entry.slope = _tuples(key), _tuples(vkey), slope
            if where == IN_QUEUE:
                index.push_waiting(entry)
            elif where == ON_CLUSTER:
                if number not in self._returned:
                    self.placement.hold(job, job.allocation)
                if self._preemptive:
                    index.insert_running(entry)
                entry.where = ON_CLUSTER
        self._again = [index.entries[number] for number in state["again"]]
        self.placement.close_unusable()  # after the holds: jobs go on where nothing more may start
        shapes = {job.shape.number: job.shape for job in view.everyone.values()}
        self.packer.heads = dict(state.get("heads") or [(n, -1) for n, _ in state["blame"]])
        for number, told in state["blame"]:
            if number in shapes:  # else everybody with it is over and forgotten
                self.packer.blamed.resume(shapes[number], told)


Stuck = dict[int, tuple[Any, int]] | None


def _tuples(value: Any) -> Any:
    """Keys may be tuples, which plain data does not tell from lists."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


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
