"""Why a job does not start now, and the smallest change with which it would.

The reason is that of the log. What shows it is counted in the frozen state. Changes are tried: the
job is submitted anew with each, at this very instant, in a copy of the state in which it does not
wait itself; what starts then would start. Fewer GPUs come first (the most that start), then another
GPU type, another queue, a shorter time limit; where nothing helps, the time at which it is expected
to start.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from rota.core.events import INF
from rota.core.jobs import HELD, STOPPING, Job, JobSpec, Request
from rota.core.knowledge import Knowledge
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.topology import Vertex
from rota.core.verdict import Remedy, Verdict
from rota.core.windows import declared_s
from rota.core.words import TEXTS, brief
from rota.engine.executor import on_cluster
from rota.engine.general import GeneralScheduler
from rota.engine.loop import Engine
from rota.engine.priority import PriorityScheduler
from rota.placement.base import EPSILON
from rota.sim.foresight import Foreseen, Frozen, is_placed
from rota.sim.proposal import Proposal

FEW = 5  # jobs that are named
MOST_SIZES = 64  # numbers of GPUs that are tried
_HOUR, _DAY = 3_600.0, 86_400.0
OF_WINDOWS = (Reason.MAINTENANCE.label, Reason.RESERVED.label)
LIMITS_S = (
    *(days * _DAY for days in (7, 5, 3, 2, 1)),
    *(hours * _HOUR for hours in (12, 8, 6, 4, 3, 2, 1)),
    *(minutes * 60.0 for minutes in (30, 15, 10, 5)),
)  # fmt: skip
"""Time limits that are tried, from long to short."""
_SMALL = 1e-9


class Explained(Frozen, Protocol):
    """A frozen state that knows why its jobs wait."""

    def newest(self, engine: Engine) -> Job:
        """The job that a proposal has become."""
        ...

    def reason(self, engine: Engine, job: Job) -> str:
        """Why a job of a thawed state waits; empty: it does not."""
        ...

    def ahead(self, engine: Engine, job: Job) -> list[Job]:
        """Who is served before it, in this order."""
        ...

    def held_by(self, engine: Engine, job: Job) -> str:
        """What a job that is not in the queue waits for, in words; empty: nothing more is known."""
        ...

    def queues(self) -> Sequence[str]:
        """Where it might be submitted instead."""
        ...

    def in_queue(self, spec: JobSpec, queue: str) -> JobSpec:
        """The same job in another queue."""
        ...


# --- what is free ---------------------------------------------------------------------------------


class FreeByNode:
    """GPUs by node: of those that are up and take jobs, and what of them nobody holds."""

    def __init__(self, engine: Engine) -> None:
        self._topology = topology = engine.view.topology
        self.nodes = [node for node in topology.nodes if node.gpus]
        self.total = {node.id: float(node.gpus) for node in self.nodes}
        self.free = {node.id: float(node.gpus) if node.open else 0.0 for node in self.nodes}
        self._held = dict.fromkeys((pool.id for pool in topology.pools), 0.0)  # nobody knows where
        scheduler = engine.scheduler
        self._pooled = (
            isinstance(scheduler, PriorityScheduler | GeneralScheduler)
            and not scheduler.placement.names_nodes
        )
        for job in engine.view.active.values():
            if on_cluster(job) or job.phase == STOPPING:
                for vertex, amount in job.allocation.slices:
                    node = topology.vertices[vertex].node
                    if node in self.free:
                        self.free[node] = max(0.0, self.free[node] - amount)
                    elif vertex in self._held:
                        self._held[vertex] += amount

    def of(self, request: Request) -> "tuple[float, float, float]":
        """On nodes that it accepts: free, the most on one node, and all that there are."""
        mem_gib = max((group.gpu_mem_gib for group in request.groups if group.gpus), default=0.0)
        nodes = [
            node
            for node in self.nodes
            if (not request.gpu_types or node.gpu_type in request.gpu_types)
            and all(label in node.labels for label in request.labels)
            and (not mem_gib or mem_gib <= self._memory_of(node) + EPSILON)
        ]
        free = [self.free[node.id] for node in nodes]
        pools = {self._topology.pool_of(node).id for node in nodes}
        all_free = max(
            0.0, ordered_sum(free) - ordered_sum(self._held[pool] for pool in sorted(pools))
        )
        return (
            all_free,
            min(all_free, max(free, default=0.0)),
            ordered_sum(self.total[node.id] for node in nodes),
        )

    def _memory_of(self, node: Vertex) -> float:
        """Of each GPU; of a pool nobody knows which GPUs a job would get: that of the smallest."""
        if not self._pooled:
            return node.gpu_mem_gib
        pool_of = self._topology.pool_of
        return min(n.gpu_mem_gib for n in self.nodes if pool_of(n) is pool_of(node))


def evidence(engine: Engine, job: Job, reason: str, ahead: Sequence[Job]) -> list[str]:
    """Numbers that show the reason."""
    request = job.shape.request
    counts = FreeByNode(engine)
    everywhere = counts.of(Request())
    free, on_one, there = counts.of(request)
    asked = job.shape.describe()
    kind = f" of its kind ({asked.partition(' GPU')[2].lstrip('s').strip(' ,')})"
    special = bool(request.gpu_types or request.labels or job.shape.gpu_mem_gib)
    told = []
    if reason == Reason.CAPACITY.label or (reason == Reason.CONSTRAINT.label and not special):
        told.append(f"{everywhere[0]:g} of {everywhere[2]:g} GPUs are free, it asks for {asked}")
    elif reason == Reason.CONSTRAINT.label:
        told.append(f"it asks for {asked}: {free:g} of {there:g} GPUs{kind} are free")
        told.append(f"of all kinds {everywhere[0]:g} of {everywhere[2]:g} are free")
    elif reason == Reason.MEMORY.label:
        told.append(
            f"{free:g} of {there:g} GPUs are free, with too little memory; it asks for {asked}"
        )
    elif reason in (Reason.FRAGMENTATION.label, Reason.GANG.label):
        told.append(
            f"{free:g} GPUs are free, at most {on_one:g} of them on one node; it asks for {asked}"
        )
    elif reason == Reason.ORDER.label:
        told.append(f"{free:g} of {there:g} GPUs that it could use are free, it asks for {asked}")
    elif reason == Reason.QUOTA.label:
        told += _quota(engine, job)
    elif reason in OF_WINDOWS and engine.calendar is not None:
        told.append(engine.calendar.why(job))
    if reason == Reason.CAPACITY.label:
        lacking = lacking_supplies(engine, job)
        told = [
            f"{left:g} of {engine.view.topology.supply[kind]:g} {kind} are free, it asks for "
            f"{job.shape.resources[kind]:g}"
            for kind, left in lacking.items()
        ] + told
    if ahead and reason in (Reason.ORDER.label, Reason.CAPACITY.label):
        gpus = ordered_sum(other.gpus for other in ahead)
        first = ", ".join(f"{other.id} ({other.gpus:g})" for other in ahead[:FEW])
        more = ", ..." if len(ahead) > FEW else ""
        told.append(f"served first, with {gpus:g} GPUs in all: {first}{more}")
    return told


def lacking_supplies(engine: Engine, job: Job) -> dict[str, float]:
    """What the cluster has as a whole (licences) and too little of which is free, and how much."""
    supply = engine.view.topology.supply
    asked = {kind: need for kind, need in job.shape.resources.items() if kind in supply}
    left = {kind: supply[kind] for kind in asked}
    for other in engine.view.active.values() if asked else ():
        if on_cluster(other) or other.phase == STOPPING:
            for _, kind, amount in other.allocation.extra:
                if kind in left:
                    left[kind] -= amount
    return {
        kind: max(0.0, round(left[kind], 6))
        for kind, need in asked.items()
        if left[kind] < need - _SMALL
    }


def _quota(engine: Engine, job: Job) -> list[str]:
    """What its tenants hold and may hold."""
    told = []
    for tenant in engine.view.tenants.path(job.tenant):
        below = {
            each.name
            for each in engine.view.tenants
            if tenant.name in [above.name for above in engine.view.tenants.path(each.name)]
        } | {tenant.name}
        held = ordered_sum(
            one.held_gpus
            for one in engine.view.active.values()
            if on_cluster(one) and one.tenant in below
        )
        most = f", its limit is {tenant.limit:g}" if tenant.limit < INF else ""
        quota = f", its quota is {tenant.quota:g}" if tenant.quota else ""
        told.append(
            f"queue {tenant.name!r} uses {held:g} GPUs{quota}{most}; this asks for {job.gpus:g}"
        )
    return told


# --- what would help ------------------------------------------------------------------------------


def starts_now(frozen: Explained, proposal: Proposal) -> bool:
    """Does it start at this instant, or at the next round of a policy that works in rounds?"""
    engine = frozen.thaw(None, proposal)
    job = frozen.newest(engine)
    while not is_placed(job) and not job.terminal and engine.horizon_s() <= frozen.now_s:
        engine.advance(frozen.now_s)
    if not is_placed(job) and not job.terminal and engine.timers.wake.every_s:
        engine.advance(engine.horizon_s())
    return is_placed(job)


def smaller(request: Request) -> Iterator[tuple[float, Request]]:
    """The same request with fewer tasks, from many to few."""
    place = next((i for i, group in enumerate(request.groups) if group.gpus), None)
    if place is None:
        return
    group = request.groups[place]
    step = -(-group.count // MOST_SIZES)
    rest = ordered_sum(other.count * other.gpus for other in request.groups if other is not group)
    for count in range(group.count - step, 0, -step):
        fewer = msgspec.structs.replace(group, count=count, min_count=0, max_count=0)
        groups = (*request.groups[:place], fewer, *request.groups[place + 1 :])
        yield rest + count * group.gpus, msgspec.structs.replace(request, groups=groups)


def _counted(gpus: float) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus:g} GPUs"


class Remedies:
    """Changes that would start a job now."""

    def __init__(self, frozen: Explained, asked: Proposal, engine: Engine) -> None:
        self._frozen = frozen
        self._asked = asked
        self._types = [name for name in engine.view.topology.types if name]
        self._most_gib = max((node.gpu_mem_gib for node in engine.view.topology.nodes), default=0.0)
        self._estimates = bool(engine.scheduler.knowledge & Knowledge.USER_ESTIMATE)
        self._windows = engine.calendar is not None and bool(engine.calendar.windows)

    def find(self) -> list[Remedy]:
        """One of each kind, the smallest first."""
        return [*self._sizes(), *self._memory(), *self._kinds(), *self._queues(), *self._limits()]

    def _helps(self, spec: JobSpec) -> bool:
        return starts_now(self._frozen, msgspec.structs.replace(self._asked, spec=spec))

    def _with(self, request: Request) -> JobSpec:
        return msgspec.structs.replace(self._asked.spec, request=request)

    def _sizes(self) -> Iterator[Remedy]:
        for gpus, request in smaller(self._asked.spec.request):
            if self._helps(self._with(request)):
                yield Remedy(
                    kind="gpus", gpus=gpus, text=f"with {_counted(gpus)} it would start now"
                )
                return

    def _memory(self) -> Iterator[Remedy]:
        """As many whole GiB of each GPU's memory as would do."""
        groups = self._asked.spec.request.groups
        least = 0
        asked_gib = max((group.gpu_mem_gib for group in groups), default=0.0)
        beyond = min(math.ceil(asked_gib), math.floor(self._most_gib) + 1)
        while beyond - least > 1:
            gib = (least + beyond) // 2 if least else 1
            least, beyond = (gib, beyond) if self._helps(self._within(gib)) else (least, gib)
        if least:
            text = f"with {least} GiB of each GPU's memory it would start now"
            yield Remedy(kind="memory", gpu_mem_gib=least, text=text)

    def _within(self, gib: float) -> JobSpec:
        request = self._asked.spec.request
        groups = tuple(
            msgspec.structs.replace(
                group,
                gpu_mem_gib=min(gib, group.gpu_mem_gib),
                gpu_mem_step_gib=min(gib, group.gpu_mem_step_gib),
            )
            for group in request.groups
        )
        return self._with(msgspec.structs.replace(request, groups=groups))

    def _kinds(self) -> Iterator[Remedy]:
        request = self._asked.spec.request
        for name in self._types if request.gpu_types else ():
            if name not in request.gpu_types and self._helps(
                self._with(msgspec.structs.replace(request, gpu_types=(name,)))
            ):
                yield Remedy(
                    kind="type", gpu_type=name, text=f"on GPUs of type {name} it would start now"
                )
                return

    def _queues(self) -> Iterator[Remedy]:
        for name in self._frozen.queues():
            moved = self._frozen.in_queue(self._asked.spec, name)
            if moved != self._asked.spec and self._helps(moved):
                yield Remedy(
                    kind="queue", queue=name, text=f"in the queue {name!r} it would start now"
                )
                return

    def _limits(self) -> Iterator[Remedy]:
        spec = self._asked.spec
        told_s = declared_s(spec) if self._windows else spec.estimate_s
        for limit_s in LIMITS_S if self._windows or (self._estimates and told_s < INF) else ():
            shorter = msgspec.structs.replace(spec, estimate_s=limit_s)
            if spec.limit_s < INF:
                shorter = msgspec.structs.replace(shorter, limit_s=limit_s)
            if limit_s < told_s and self._helps(shorter):
                yield Remedy(
                    kind="limit", limit_s=limit_s,
                    text=f"with a time limit of {brief(limit_s)} it would start now",
                )  # fmt: skip
                return


def wait_for(found: Foreseen, now_s: float) -> Remedy:
    """When it starts as it is."""
    if found.starts_s is None:
        return Remedy(kind="none", text="nothing that was tried would start it")
    in_s = found.starts_s - now_s
    return Remedy(kind="wait", starts_in_s=in_s, text=f"as it is, it {found.text}")


# --- the verdict ----------------------------------------------------------------------------------


def judge(
    frozen: Explained,
    engine: Engine,
    job: Job,
    asked: Proposal,
    *,
    state: str,
    forecast: Callable[[], Foreseen],
) -> Verdict:
    """Why a job of a thawed state does not run.

    Args:
        frozen: The state.
        engine: The state, thawed.
        job: The job in it.
        asked: The job as it would be submitted anew.
        state: What the job's state is called.
        forecast: Called if no change would start it.
    """
    if is_placed(job) or job.terminal:
        what = "it runs" if is_placed(job) else "it is over"
        return Verdict(id=job.id, state=state, reason="", text=what)
    ahead = frozen.ahead(engine, job)
    reason = frozen.reason(engine, job)
    held = frozen.held_by(engine, job) if job.phase == HELD else ""
    told = [*([held] if held else []), *evidence(engine, job, reason, ahead)]
    remedies: list[Remedy] = []
    if job.phase == HELD and reason == Reason.DEPENDENCY.label:
        remedies = [Remedy(kind="after", text="it can start when those have ended")]
    elif (
        job.phase == HELD
        and reason == Reason.ADMISSION.label
        and job.index in (engine.lifecycle.detained)
    ):
        text = "leave out `hold`" if asked.held else f"release it: `rota release {job.id}`"
        remedies = [Remedy(kind="release", text=text)]
    elif reason not in (Reason.BACKOFF.label, Reason.ARRAY.label):  # no change ends these
        remedies = Remedies(frozen, asked, engine).find()
    if not remedies or remedies[0].kind == "after":
        remedies.append(wait_for(forecast(), frozen.now_s))
    cause = TEXTS[Reason[reason.upper()]] if reason else "nothing keeps it from starting"
    if reason == Reason.CAPACITY.label and lacking_supplies(engine, job):
        cause = f"fewer {', '.join(lacking_supplies(engine, job))} are free than it asks for"
    shown = f" ({told[0]})" if told else ""
    return Verdict(
        id=job.id,
        state=state,
        reason=reason,
        text=f"{cause}{shown}; {remedies[0].text}",
        evidence=told,
        ahead=[other.id for other in ahead[:FEW]],
        ahead_count=len(ahead),
        remedy=remedies[0],
        others=remedies[1:],
    )
