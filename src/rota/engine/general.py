"""The general doors: a policy that writes plans, a placement and an admission.

A plan is the whole desired state (`DecidePolicy`), or what shall change, written by a policy that
hears what has changed (`IncrementalPolicy`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rota.core import events as ev
from rota.core.admission import Admission, BudgetUse
from rota.core.changes import Changes
from rota.core.errors import InvalidPlanError, OptionError, PolicyError
from rota.core.events import INF, Event
from rota.core.jobs import HELD, STOPPING, WAITING, Job, Shape
from rota.core.plan import ExplicitPlan, Plan, SupplyingPlan
from rota.core.policy import DecidePolicy, IncrementalPolicy
from rota.core.ports import Successor
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.view import View, arrival
from rota.core.workload import Workload
from rota.engine.admission import AdmissionQueue
from rota.engine.blame import CAPACITY, ROOM, why_not
from rota.engine.pairs import Guests, Pairs, SharedChangePlan, SharedPlan, guests_of
from rota.engine.plans import ChangePlan, NoPairs, PlacementPlan, Shapes, plan_class
from rota.placement.alike import Alike
from rota.placement.base import EPSILON, Placement

ORDER = int(Reason.ORDER)
UNTOLD = (0, CAPACITY)
"""Reasons that say nothing of single nodes."""
QUIET = (ev.REPORT, ev.LEVEL, ev.TIMER)
"""Events that leave what is free as it is."""


class LiveView(View):
    """What a policy sees that hears of changes: lists of jobs are made when it asks for them."""

    __slots__ = ()

    @property
    def jobs(self) -> Sequence[Job]:
        """All jobs in the queue or on the cluster, in order of arrival."""
        return sorted((*self.waiting, *self.running), key=arrival)

    @property
    def waiting(self) -> list[Job]:
        """Jobs in the queue, in order of arrival."""
        assert self.by_phase is not None  # noqa: S101 - the scheduler sets it
        return sorted(self.by_phase[0].values(), key=arrival)


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
        self.trusted = not issubclass(policy.plan_type, ExplicitPlan)
        self.policy = policy
        self.placement = placement
        if policy.divides:
            placement.leave_sharing()
        self.knowledge = policy.knowledge
        self.wake = policy.wake
        self.in_order = policy.in_order and admission.trivial
        self.refine = placement.refine if placement.refines else None
        self._shapes = Shapes()
        self.compresses = issubclass(policy.plan_type, SupplyingPlan)
        self._must_have = self._shapes.without_supply if self.compresses else None
        self.admissions = AdmissionQueue(
            admission, placement, patient=patient, must_have=self._must_have,
            smallest=self._shapes.smallest if policy.elastic else None, unplaceable=policy.never,
        )  # fmt: skip
        self.running: dict[int, Job] = {}
        self._stopping: dict[int, Job] = {}
        self._queue: dict[int, Job] = {}  # who waits, in order of arrival once `_sorted`
        self._sorted = True
        self._last: tuple[float, int] = (-INF, -1)
        self._waiting: dict[int, int] = {}  # shape -> how many wait
        self._shape_of: dict[int, Shape] = {}
        self._blame: dict[int, int] = {}
        self._depends_on: dict[int, Alike | None] = {}  # shape -> nodes of one kind
        self._told_at: dict[int, int] = {}  # shape -> their changes when it was told
        self._made: Plan | None = None
        self._view: View | None = None  # what the policy sees
        self._hears = policy if isinstance(policy, IncrementalPolicy) else None
        if self._hears is not None and not self.trusted:
            raise OptionError(
                f"policy {self.name!r}: plans of changes need a placement: an explicit policy is a "
                "DecidePolicy"
            )
        self._entry = Changes(0)  # what becomes of those that arrive in a step
        self._dirty = True  # what is free has changed since reasons were told
        self._touched: set[int] = set()  # shapes of which others wait since then
        self._began: list[Job] = []  # those that the last plan starts
        self._refusals: list[Job] = []  # those that it turns away
        self._kind: type[PlacementPlan] | None = None
        self._guests: Guests = {}
        self._returned: set[int] = set()  # whose places were given back before the event came
        self._reshaped = False  # windows let jobs use other nodes: to policies the cluster changed
        self._refused = False  # the policy turned jobs away that admission had let in

    def expect(self, workload: Workload) -> None:
        """The placement may want to know what jobs ask for."""
        if self.placement.expects:
            self.placement.expect(workload.usual)

    def step(  # noqa: C901, PLR0912 - one branch per kind
        self, view: View, events: Sequence[Event]
    ) -> Changes | None:
        """Update the queues and the placement, then ask the policy."""
        entry = self._entry
        hears, now_s = self._hears, view.now_s
        if self._view is None and hears is not None:
            hears.cluster_changed(view)
        released, self._refused = self._refused, False
        if self.admissions.timed:
            released |= self.admissions.admission.tick(view)
        nodes, self._reshaped = self._reshaped, False
        for _, kind, _, subject, _ in events:
            if kind == ev.JOB_SUBMIT:
                if not subject.terminal and self.admissions.enter(subject, view, entry):
                    self._enters(subject, now_s)
            elif kind in ev.ENDS:
                released = True
                self._ended(kind, subject, now_s)
            elif kind == ev.JOB_STOPPED:
                self._stopping.pop(subject.index, None)
                if subject.phase == WAITING and subject.index not in self._queue:
                    self._enters(subject, now_s)
            elif kind in (ev.NODE_DOWN, ev.NODE_UP):
                self.placement.set_node(subject, up=kind == ev.NODE_UP)
                self._dirty = nodes = True
            elif kind in (ev.JOB_RUNNING, ev.JOB_PHASE):
                if hears is not None and subject.index in self.running:
                    hears.changed(subject, now_s)
            elif kind not in QUIET:
                self._dirty = nodes = True
        if nodes and hears is not None:
            hears.cluster_changed(view)
        if released and self.admissions.held:
            for job in self.admissions.reconsider(view, entry):
                self._enters(job, now_s)
        if entry.unusual:
            self._entry = Changes(view.version)
        changes = self._decide(view, entry)
        if changes.rejects and self.admissions.held:  # held jobs may enter now: ask again at once
            self._refused = True
            changes.wake = msgspec.structs.replace(changes.wake or self.wake, at_s=view.now_s)
        if self.admissions.timed:
            wake = changes.wake or self.wake
            at_s = min(wake.at_s, self.admissions.next_s(view))
            changes.wake = msgspec.structs.replace(wake, at_s=at_s)
        if entry.unusual:
            changes.unusual = True
            refused = {job.index for job, _ in changes.rejects}
            changes.rejects = (*entry.rejects, *changes.rejects)
            changes.holds = entry.holds
            changes.admits = [job for job in entry.admits if job.index not in refused]
        return changes

    def _enters(self, job: Job, now_s: float) -> None:
        """It waits from now on."""
        self._waits(job, +1)
        if self._hears is not None:
            self._hears.submitted(job, now_s)

    def reshape(self, job: Job, shape: Shape, now_s: float) -> None:
        """For an account of those who wait it leaves and comes again."""
        known = job.index in self._queue
        if known:
            self._waits(job, -1)
            if self._hears is not None:
                self._hears.ended(job, now_s)
        job.shape = shape
        if known:
            self._enters(job, now_s)
            self._dirty = self._reshaped = True

    def _waits(self, job: Job, sign: int) -> None:
        number = job.shape.number
        self._touched.add(number)
        self._waiting[number] = self._waiting.get(number, 0) + sign
        shape = job.shape if self._must_have is None else self._must_have(job.shape)
        if self._shape_of.get(number) is not shape:
            self._shape_of[number] = shape
            self._depends_on[number] = self.placement.only_nodes(shape) if self.trusted else None
        if sign < 0:
            del self._queue[job.index]
            return
        self._queue[job.index] = job
        rank = (job.submit_s, job.index)
        if rank < self._last:
            self._sorted = False
        else:
            self._last = rank

    def _ended(self, kind: int, job: Job, now_s: float) -> None:  # noqa: C901 - a case each
        if job in self.admissions.held:
            self.admissions.drop(job)
            return
        self._stopping.pop(job.index, None)
        known = True
        if self.running.pop(job.index, None) is not None:
            self._dirty = True
            if job.index in self._returned:
                self._returned.discard(job.index)
            elif self.trusted:
                self._give(job)
        elif job.index in self._queue:
            self._waits(job, -1)
        else:
            known = False
        if known and self._hears is not None:
            self._hears.ended(job, now_s)
        if kind != ev.JOB_EVICTED:
            self.admissions.leave(job)
        elif job.phase == WAITING:
            if job.index not in self._queue:
                self._enters(job, now_s)
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
        self._dirty = True
        changes = Changes(view.version)
        if self.trusted:
            self._look_again(view, changes)
        self._tell(changes)
        return changes

    def _look_again(self, view: View, changes: Changes) -> None:
        """Those who wait for room may lack something else now, or only have to wait their turn."""
        for job in self._queue.values():
            if job.reason in ROOM:
                changes.explain(job, self._now_lacks(job.shape.number))
        for (tenant, number), told in view.shared_reasons.items():
            if told in ROOM:
                changes.explain_alike(tenant, number, self._now_lacks(number))

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
        active = view.active
        seen = self._view
        if seen is None or seen.topology is not view.topology:
            kind = View if self._hears is None else LiveView
            seen = self._view = kind(view.topology, view.tenants)
            seen.planner, seen.spent = self._plan, view.spent
            seen.by_phase = (self._queue, self.running)
        if self._hears is None:
            hidden = {job.index for job, _ in (*entry.rejects, *entry.holds)}
            hidden.update(job.index for job in self.admissions.held)
            hidden.update(self._stopping)
            hidden.update(self._dependants(active))
            if hidden:
                active = {i: job for i, job in active.items() if i not in hidden}
            if not self._sorted:
                self._queue = {job.index: job for job in sorted(self._queue.values(), key=arrival)}
                self._sorted = True
                seen.by_phase = (self._queue, self.running)
        seen.follow(view, active)
        return seen

    def _blamed(self, error: InvalidPlanError, view: View) -> InvalidPlanError:
        return InvalidPlanError(f"policy {self.name!r} at {view.now_s:g} s: {error}")

    def _dependants(self, everyone: Mapping[int, Job]) -> list[int]:
        """Jobs that wait for another job have not been announced yet."""
        known = len(self.running) + len(self._stopping) + len(self._queue)
        if known + len(self.admissions.held) >= len(everyone):
            return []
        return [index for index, job in everyone.items() if job.phase == HELD]

    def _book(self, changes: Changes) -> None:
        self._refusals = [job for job, _ in changes.rejects]
        for job in self._refusals:
            self._waits(job, -1)
            self.admissions.leave(job)
        for job in changes.stops:
            self.running.pop(job.index, None)
            self._waits(job, +1)
        began = self._began = []
        for job, _ in changes.starts:
            if job.index in self._queue:
                self._waits(job, -1)
                began.append(job)
            self.running[job.index] = job
            job.reason = 0
        if changes.starts or changes.stops:
            self._dirty = True
        if changes.reasons and self.trusted:
            changes.reasons = [
                (job, self._lacks(job.shape.number, reason)) for job, reason in changes.reasons
            ]
        if changes.shared_reasons and self.trusted:
            changes.shared_reasons = [
                (tenant, number, self._lacks(number, reason))
                for tenant, number, reason in changes.shared_reasons
            ]
        self._tell(changes)

    def _tell(self, changes: Changes) -> None:  # noqa: C901 - a case each
        """What the heads of all shapes lack, where that has changed."""
        trusted, placement, blame = self.trusted, self.placement, self._blame
        if not self._queue and not any(blame.values()):  # nobody waits, and nothing was said
            self._dirty = False
            self._touched.clear()
            return
        free = placement.free if trusted else self._left(changes)
        whole = {} if trusted else self._left_whole(changes)
        waiting = self._waiting
        if not self._dirty and trusted:
            waiting = {n: count for n, count in waiting.items() if n in self._touched}
        self._dirty, self._touched = False, set()
        depends_on, told_at = self._depends_on, self._told_at
        for number, count in waiting.items():
            before = blame.get(number, 0)
            if not count:
                if not before:
                    continue
                reason = 0
            elif (shape := self._shape_of[number]).gpus > free and shape.opened is None:
                reason = CAPACITY
            elif (alike := depends_on.get(number)) is not None:
                if before not in UNTOLD and told_at.get(number) == alike.changes:
                    continue
                told_at[number] = alike.changes
                reason = ORDER if placement.fits(shape) else why_not(placement, shape)
            elif not trusted:
                reason = CAPACITY if whole and _short(shape, whole) else ORDER
            elif placement.fits(shape):
                reason = ORDER
            else:
                reason = why_not(placement, shape)
            if before != reason:
                blame[number] = reason
                changes.shape_reasons.append((number, reason, None))

    def _left(self, changes: Changes) -> float:
        """GPUs that a policy without a placement has not given away in its plan."""
        topology = self.placement.topology
        vertices = topology.vertices
        left: float = ordered_sum(node.gpus for node in topology.nodes if node.open)
        given = {job.index: allocation for job, allocation in changes.starts}
        for index, job in self.running.items():
            if index not in self._returned:
                for vertex, amount in given.get(index, job.allocation).slices:
                    if not 0 <= vertex < len(vertices):
                        continue  # refused when the plan is carried out
                    node = vertices[vertex].node
                    if node < 0 or vertices[node].open:
                        left -= topology.occupied(vertex, amount)
        return left

    def _left_whole(self, changes: Changes) -> dict[str, float]:
        """What such a policy has left of kinds that the cluster has as a whole (licences)."""
        topology, view = self.placement.topology, self._view
        kinds = topology.kinds
        left = {kind: n for kind, n in topology.supply.items() if not kinds[kind].compressible}
        if not left or view is None:
            return {}
        given = {job.index: allocation for job, allocation in changes.starts}
        spent = [(kind, amount) for (_, kind), amount in view.spent.items()]
        taken = [
            (kind, amount)
            for index, job in self.running.items()
            if index not in self._returned
            for _, kind, amount in given.get(index, job.allocation).extra
        ]
        for kind, amount in (*spent, *taken):
            if kind in left:
                left[kind] -= amount
        return left

    def _lacks(self, number: int, reason: Reason) -> Reason:
        """What a policy says of jobs; which kind of room they lack is for the placement to say."""
        if reason not in ROOM or number not in self._shape_of:
            return reason
        return Reason(why_not(self.placement, self._shape_of[number]))

    def _now_lacks(self, number: int) -> Reason:
        shape = self._shape_of[number]
        return Reason.ORDER if self.placement.fits(shape) else self._lacks(number, Reason.CAPACITY)

    def _plan(self) -> Plan:
        view = self._view
        assert view is not None  # noqa: S101 - only policies that were shown one ask
        if self._made is not None:
            raise PolicyError(f"policy {self.name!r} asked for a second plan in one decision")
        kind = self._kind
        if kind is not None and not view.sharing:
            made = self._made = kind(view, self.placement, self._shapes, self.running)
            return made
        declared, keeps = self.policy.plan_type, self.policy.keeps_unnamed
        if issubclass(declared, ExplicitPlan):
            self._made = declared(view.version, view.now_s, view.active, view.topology)
        elif view.sharing:
            shared = plan_class(declared, SharedChangePlan if keeps else SharedPlan, Pairs)
            self._made = shared(view, self.placement, self._shapes, self.running, self._guests)
        else:
            base = ChangePlan if keeps else PlacementPlan
            kind = self._kind = plan_class(declared, base, NoPairs)
            self._made = kind(view, self.placement, self._shapes, self.running)
        return self._made

    def settle(self, view: View, changes: Changes) -> Sequence[tuple[float, Job]]:
        """A stop that takes time hides the job until it has finished."""
        for job in changes.stops:
            if job.phase == STOPPING and job.index not in self.running:
                self._stopping[job.index] = job
                self._waits(job, -1)
        if self._hears is not None:
            self._report(self._hears, changes, view.now_s)
        return ()

    def _report(self, hears: IncrementalPolicy[Any], changes: Changes, now_s: float) -> None:
        """What has become of the plan."""
        for job in changes.stops:
            hears.ended(job, now_s)
            if job.index in self._queue:
                hears.submitted(job, now_s)
        if changes.rejects:
            for job in self._refusals:
                hears.ended(job, now_s)
        for job in self._began:
            hears.started(job, now_s)
        if len(self._began) < len(changes.starts):
            began = {job.index for job in self._began}
            for job, _ in changes.starts:
                if job.index not in began:
                    hears.changed(job, now_s)

    def _replay(self, view: View, placed: Iterable[Job]) -> None:
        """Let the policy hear of all jobs that it has to know."""
        now_s = view.now_s
        hears = self._hears
        if hears is not None:
            hears.cluster_changed(view)
            for job in sorted(placed, key=arrival):
                hears.submitted(job, now_s)
                hears.started(job, now_s)
            for job in sorted(self._queue.values(), key=arrival):
                hears.submitted(job, now_s)

    def why_held(self, job: Job, view: View) -> str:
        """What a job that admission holds waits for."""
        return self.admissions.why(job, view)

    def budgets(self, view: View, now_s: float) -> Sequence[BudgetUse]:
        """What was used of budgets."""
        return self.admissions.admission.budgets(view, now_s)

    def explained_shapes(self) -> list[int]:
        """Shapes for which a reason is in force in the log."""
        return [number for number, reason in self._blame.items() if reason]

    def adopt(self, view: View, placed: Sequence[Job], stopping: Sequence[Job]) -> None:
        """Take over from another scheduler."""
        self.placement.deplete(view.spent)
        for job in placed:
            self.running[job.index] = job
            self.admissions.assume(job, view)
            if self.trusted:
                self.placement.hold(job, job.allocation)
        self._guests = guests_of(placed)
        for job in stopping:
            self._stopping[job.index] = job
            self.admissions.assume(job, view)
        self._replay(view, placed)
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
        self._replay(view, self.running.values())
        self.placement.close_unusable()  # after the holds: jobs go on where nothing more may start


def _short(shape: Shape, left: Mapping[str, float]) -> bool:
    """Does it ask for more of what the cluster has as a whole than is left?"""
    return any(need > left.get(kind, INF) + EPSILON for kind, need in shape.resources.items())
