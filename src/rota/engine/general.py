"""The general door: a policy that decides everything, a placement and an admission."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.core import events as ev
from rota.core.admission import Admission
from rota.core.changes import Changes
from rota.core.errors import InvalidPlanError, PolicyError
from rota.core.events import INF, Event
from rota.core.jobs import HELD, STOPPING, WAITING, Job, Shape
from rota.core.plan import ExplicitPlan, Plan, SupplyingPlan
from rota.core.policy import DecidePolicy
from rota.core.ports import Successor
from rota.core.reasons import Reason
from rota.core.view import View, arrival
from rota.core.workload import Workload
from rota.engine.admission import AdmissionQueue
from rota.engine.blame import CAPACITY, ROOM, why_not
from rota.engine.pairs import Guests, Pairs, SharedPlan, guests_of
from rota.engine.plans import NoPairs, PlacementPlan, Shapes, plan_class
from rota.placement.base import Placement

ORDER = int(Reason.ORDER)


class GeneralScheduler(Successor):
    """Keeps the placement up to date between decisions, and turns plans into changes."""

    settles = True

    def __init__(
        self,
        policy: DecidePolicy[Any],
        placement: Placement,
        admission: Admission,
        *,
        patient: bool = False,
    ) -> None:
        self.name = policy.name
        self.trusted = not policy.writes(ExplicitPlan)
        self.policy = policy
        self.placement = placement
        self.knowledge = policy.knowledge
        self.wake = policy.wake
        self.in_order = policy.in_order and admission.trivial
        self.refine = placement.refine if placement.refines else None
        self._shapes = Shapes()
        self.compresses = policy.writes(SupplyingPlan)
        self._must_have = self._shapes.without_supply if self.compresses else None
        self.admissions = AdmissionQueue(
            admission, placement, patient=patient, must_have=self._must_have
        )
        self.running: dict[int, Job] = {}
        self._stopping: dict[int, Job] = {}
        self._queue: dict[int, Job] = {}  # who waits, in order of arrival once `_sorted`
        self._sorted = True
        self._last: tuple[float, int] = (-INF, -1)
        self._waiting: dict[int, int] = {}  # shape -> how many wait
        self._shape_of: dict[int, Shape] = {}
        self._blame: dict[int, int] = {}
        self._made: Plan | None = None
        self._view: View | None = None  # what the policy sees
        self._guests: Guests = {}
        self._returned: set[int] = set()  # whose places were given back before the event came
        self._refused = False  # the policy turned jobs away that admission had let in

    def expect(self, workload: Workload) -> None:
        """The placement may want to know what jobs ask for."""
        if self.placement.expects:
            self.placement.expect(workload.usual)

    def step(  # noqa: C901 - one branch per kind
        self, view: View, events: Sequence[Event]
    ) -> Changes | None:
        """Update the queues and the placement, then ask the policy for its desired state."""
        entry = Changes(view.version)
        released, self._refused = self._refused, False
        for _, kind, _, subject, _ in events:
            if kind == ev.JOB_SUBMIT:
                if not subject.terminal and self.admissions.enter(subject, view, entry):
                    self._waits(subject, +1)
            elif kind in ev.ENDS:
                released = True
                self._ended(kind, subject)
            elif kind == ev.JOB_STOPPED:
                self._stopping.pop(subject.index, None)
                if subject.phase == WAITING and subject.index not in self._queue:
                    self._waits(subject, +1)
            elif kind in (ev.NODE_DOWN, ev.NODE_UP):
                self.placement.set_node(subject, up=kind == ev.NODE_UP)
        if released and self.admissions.held:
            for job in self.admissions.reconsider(view, entry):
                self._waits(job, +1)
        plan = self._decide(view, entry)
        if plan.rejects and self.admissions.held:  # held jobs may enter now: ask again at once
            self._refused = True
            plan.wake = msgspec.structs.replace(plan.wake or self.wake, at_s=view.now_s)
        if entry.unusual:
            plan.unusual = True
            refused = {job.index for job, _ in plan.rejects}
            plan.rejects = (*entry.rejects, *plan.rejects)
            plan.holds = entry.holds
            plan.admits = [job for job in entry.admits if job.index not in refused]
        return plan

    def _waits(self, job: Job, sign: int) -> None:
        number = job.shape.number
        self._waiting[number] = self._waiting.get(number, 0) + sign
        self._shape_of[number] = (
            job.shape if self._must_have is None else self._must_have(job.shape)
        )
        if sign < 0:
            del self._queue[job.index]
            return
        self._queue[job.index] = job
        rank = (job.submit_s, job.index)
        if rank < self._last:
            self._sorted = False
        else:
            self._last = rank

    def _ended(self, kind: int, job: Job) -> None:
        if job in self.admissions.held:
            self.admissions.drop(job)
            return
        self._stopping.pop(job.index, None)
        if self.running.pop(job.index, None) is not None:
            if job.index in self._returned:
                self._returned.discard(job.index)
            elif self.trusted:
                self._give(job)
        elif job.index in self._queue:
            self._waits(job, -1)
        if kind != ev.JOB_EVICTED:
            self.admissions.leave(job)
        elif job.phase == WAITING:
            if job.index not in self._queue:
                self._waits(job, +1)
        elif job.phase == STOPPING:  # it comes back with JOB_STOPPED
            self._stopping[job.index] = job

    def overhear(self, view: View, events: Sequence[Event]) -> Changes | None:
        """Events that `step` gets later, in time for the reasons: places that are free now."""
        changed = False
        for _, kind, _, subject, _ in events:
            if kind in (ev.NODE_DOWN, ev.NODE_UP):
                self.placement.set_node(subject, up=kind == ev.NODE_UP)
                changed = True
            elif kind in ev.ENDS and subject.index in self.running:
                if subject.index not in self._returned:
                    self._returned.add(subject.index)
                    if self.trusted:
                        self._give(subject)
                changed = True
        if not changed:
            return None
        plan = Changes(view.version)
        if self.trusted:
            for job in self._queue.values():
                if job.reason in ROOM:
                    fits = self.placement.fits(self._shape_of[job.shape.number])
                    lacks = Reason.ORDER if fits else self._told(job, Reason(job.reason))
                    plan.explain(job, lacks)
        self._tell(plan)
        return plan

    def _give(self, job: Job) -> None:
        self.placement.give(job, job.allocation)
        if self._guests:
            self._part(job)

    def _part(self, job: Job) -> None:
        """One of a pair is over: its host, whose GPUs are the guest's now, or the guest."""
        guests = dict(self._guests)
        guest, held = guests.pop(job.index, (None, None))
        if guest is not None and held is not None:
            self.placement.give(guest, held)
            self.placement.hold(guest, guest.allocation)
        self._guests = {host: pair for host, pair in guests.items() if pair[0] is not job}

    def _decide(self, view: View, entry: Changes) -> Changes:
        seen = self._seen(view, entry)
        try:
            plan = self.policy.decide(seen)
            made, self._made = self._made, None
            if made is None or plan is not made:
                raise PolicyError(
                    f"policy {self.name!r} must return the plan made by `view.plan()`"
                )
            changes = made.finish(self.wake)
        except InvalidPlanError as error:
            raise self._blamed(error, view) from error
        self._guests = made.pairs() if isinstance(made, SharedPlan) else {}
        self._book(changes)
        return changes

    def _seen(self, view: View, entry: Changes) -> View:
        """What the policy sees: no jobs that admission turns away, or that are being stopped."""
        hidden = {job.index for job, _ in (*entry.rejects, *entry.holds)}
        hidden.update(job.index for job in self.admissions.held)
        hidden.update(self._stopping)
        active = view.active
        hidden.update(self._dependants(active))
        if hidden:
            active = {i: job for i, job in active.items() if i not in hidden}
        if not self._sorted:
            self._queue = {job.index: job for job in sorted(self._queue.values(), key=arrival)}
            self._sorted = True
        seen = self._view
        if seen is None or seen.topology is not view.topology:
            seen = self._view = View(view.topology, view.tenants)
        seen.follow(view, active)
        seen.by_phase = (self._queue, self.running)
        seen.planner = self._plan
        return seen

    def _blamed(self, error: InvalidPlanError, view: View) -> InvalidPlanError:
        return InvalidPlanError(f"policy {self.name!r} at {view.now_s:g} s: {error}")

    def _dependants(self, everyone: Mapping[int, Job]) -> list[int]:
        """Jobs that wait for another job have not been announced yet."""
        known = len(self.running) + len(self._stopping) + len(self._queue)
        if known + len(self.admissions.held) >= len(everyone):
            return []
        return [index for index, job in everyone.items() if job.phase == HELD]

    def _book(self, plan: Changes) -> None:
        for job, _ in plan.rejects:
            self._waits(job, -1)
            self.admissions.leave(job)
        for job in plan.stops:
            del self.running[job.index]
            self._waits(job, +1)
        for job, _ in plan.starts:
            if job.index not in self.running:
                self._waits(job, -1)
                self.running[job.index] = job
            job.reason = 0
        if plan.reasons and self.trusted:
            plan.reasons = [(job, self._told(job, reason)) for job, reason in plan.reasons]
        self._tell(plan)

    def _tell(self, plan: Changes) -> None:
        """What the heads of all shapes lack, where that has changed."""
        free = self.placement.free if self.trusted else self._left(plan)
        for number, count in self._waiting.items():
            reason = 0
            if count:
                shape = self._shape_of[number]
                fits = shape.gpus <= free and (not self.trusted or self.placement.fits(shape))
                reason = ORDER if fits else CAPACITY
                if not fits and self.trusted:
                    reason = why_not(self.placement, shape)
            if self._blame.get(number, 0) != reason:
                self._blame[number] = reason
                plan.shape_reasons.append((number, reason, None))

    def _left(self, plan: Changes) -> float:
        """GPUs that a policy without a placement has not given away in its plan."""
        vertices = self.placement.topology.vertices
        left: float = sum(node.gpus for node in self.placement.topology.nodes if node.open)
        given = {job.index: allocation for job, allocation in plan.starts}
        for index, job in self.running.items():
            if index not in self._returned:
                for vertex, amount in given.get(index, job.allocation).slices:
                    if not 0 <= vertex < len(vertices):
                        continue  # refused when the plan is carried out
                    node = vertices[vertex].node
                    if node < 0 or vertices[node].open:
                        left -= amount
        return left

    def _told(self, job: Job, reason: Reason) -> Reason:
        """What a policy says of a job; which kind of room it lacks is for the placement to say."""
        if reason not in ROOM or job.shape.number not in self._shape_of:
            return reason
        return Reason(why_not(self.placement, self._shape_of[job.shape.number]))

    def _plan(self) -> Plan:
        view, declared = self._view, self.policy.plan_type
        assert view is not None  # noqa: S101 - only policies that were shown one ask
        if self._made is not None:
            raise PolicyError(f"policy {self.name!r} asked for a second plan in one decision")
        if issubclass(declared, ExplicitPlan):
            self._made = declared(view.version, view.now_s, view.active, view.topology)
        elif view.sharing:
            shared = plan_class(declared, SharedPlan, Pairs)
            self._made = shared(view, self.placement, self._shapes, self.running, self._guests)
        else:
            kind = plan_class(declared, PlacementPlan, NoPairs)
            self._made = kind(view, self.placement, self._shapes, self.running)
        return self._made

    def settle(self, view: View, plan: Changes) -> Sequence[tuple[float, Job]]:  # noqa: ARG002
        """A stop that takes time hides the job until it is over."""
        for job in plan.stops:
            if job.phase == STOPPING and job.index not in self.running:
                self._stopping[job.index] = job
                self._waits(job, -1)
        return ()

    def explained_shapes(self) -> list[int]:
        """Shapes for which a reason is in force in the log."""
        return [number for number, reason in self._blame.items() if reason]

    def adopt(self, view: View, placed: Sequence[Job], stopping: Sequence[Job]) -> None:  # noqa: ARG002
        """Take over from another scheduler."""
        for job in placed:
            self.running[job.index] = job
            self.admissions.assume(job)
            if self.trusted:
                self.placement.hold(job, job.allocation)
        self._guests = guests_of(placed)
        for job in stopping:
            self._stopping[job.index] = job
            self.admissions.assume(job)
        self.placement.close_unusable()  # after the holds: jobs go on where nothing more may start

    def snapshot(self) -> Mapping[str, Any]:
        """Everything that the jobs themselves do not carry."""
        return {
            "queued": list(self._queue),
            "running": list(self.running),
            "stopping": list(self._stopping),
            "policy": self.policy.snapshot(),
            "gate": self.admissions.snapshot(),
            "placement": self.placement.snapshot(),
            "blame": list(self._blame.items()),
            "shapes": list(self._waiting),  # their order decides the order of rows in the log
            "refused": self._refused,
            "returned": sorted(self._returned),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild queues and placement from the jobs."""
        self.policy.restore(state["policy"])
        self.admissions.restore(view, state["gate"])
        if state["placement"] is not None:
            self.placement.restore(state["placement"])
        self._blame = dict(state["blame"])
        self._waiting = dict.fromkeys(state["shapes"], 0)
        self._refused = state.get("refused", False)
        # not from the jobs' phases: there may be events that have not reached it yet
        for index in state["queued"]:
            self._waits(view.everyone[index], +1)
        self._returned = set(state.get("returned", ()))
        for index in state["running"]:
            job = self.running[index] = view.everyone[index]
            if self.trusted and index not in self._returned:
                self.placement.hold(job, job.allocation)
        self._guests = guests_of(self.running.values())
        self._stopping = {index: view.everyone[index] for index in state["stopping"]}
        self.placement.close_unusable()  # after the holds: jobs go on where nothing more may start
