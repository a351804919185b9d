"""What must hold after every batch of events, checked without the engine's own books (`--check`).

The log is folded into shadows of all jobs (see `shadow`); places are added up from what the jobs say
they hold. A failed check raises InvariantError with the job, the place and the time.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from rota.core.allocation import Allocation
from rota.core.errors import InvariantError
from rota.core.events import INF, Event
from rota.core.jobs import HELD, RUNNING, STARTING, STOPPING, WAITING, Job
from rota.core.plan import Plan
from rota.core.topology import Topology, Vertex
from rota.engine.general import GeneralScheduler
from rota.engine.loop import Engine
from rota.engine.priority import PriorityScheduler
from rota.engine.shadow import TOLERANCE, Ledger, Shadow, agree, close

STILL = 10_000  # batches at one instant in which nothing happens to any job
SMALL = 256  # so many jobs are all looked at after every batch
SWEEP = 64  # with more of them everybody is looked at after so many batches

Use = dict[tuple[int, str], float]
"""(vertex, kind) -> amount in use there or below."""


class Capacity:
    """What there is at and below every vertex, counting only nodes that are up."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._above = [(v.id, *topology.ancestors(v.id)) for v in topology.vertices]
        self._up: list[bool] = []
        self._have: Use = {}
        self._pools = {pool.id: pool for pool in topology.pools if pool.id}
        self._declared = [("gpu", True)] + [
            ("cpu", any(node.cpus for node in topology.nodes)),
            ("memory", any(node.mem_gib for node in topology.nodes)),
        ]

    def have(self) -> Use:
        """Amounts by vertex and kind."""
        up = [node.up for node in self._topology.nodes]
        if up != self._up:
            self._up = up
            self._have = self._add_up()
        return self._have

    def _add_up(self) -> Use:
        have: Use = {}
        for node in self._topology.nodes:
            if not node.up:
                continue
            own = {"gpu": float(node.gpus), "cpu": node.cpus, "memory": node.mem_gib}
            pools = [p for p, pool in self._pools.items() if pool.gpu_type == node.gpu_type]
            for vertex in (*self._above[node.id], *pools):
                for kind, amount in own.items():
                    have[vertex, kind] = have.get((vertex, kind), 0.0) + amount
            for device in self._topology.devices(node.id):
                have[device, "gpu"] = 1.0
        return have

    def use(self, allocations: Iterable[Allocation]) -> Use:
        """What these take, at every vertex above it too."""
        used: Use = {}
        for allocation in allocations:
            parts = [(vertex, "gpu", amount) for vertex, amount in allocation.slices]
            for place, kind, amount in (*parts, *allocation.extra):
                for vertex in self._above[place]:
                    used[vertex, kind] = used.get((vertex, kind), 0.0) + amount
        return used

    def exceeded(self, used: Use) -> Iterator[tuple[Vertex, str, float, float]]:
        """(vertex, kind, used, there is) where there is less than is used."""
        have = self.have()
        limited = {kind for kind, declared in self._declared if declared}
        for (vertex, kind), amount in used.items():
            there = have.get((vertex, kind), 0.0)
            if kind in limited and amount > there + TOLERANCE:
                yield self._topology.vertices[vertex], kind, amount, there

    def places(self, allocation: Allocation) -> set[int]:
        """The vertices that it names, and the nodes of its devices."""
        named = {*allocation.vertices, *(vertex for vertex, _, _ in allocation.extra)}
        nodes = (self._topology.vertices[vertex].node for vertex in named)
        return named | {node for node in nodes if node >= 0}

    def covers(self, allocation: Allocation, vertex: int) -> bool:
        """Does the allocation take from this vertex or below it?"""
        return any(vertex in self._above[place] for place, _ in allocation.slices)


class Invariants:
    """Implements `Checker`. One object per run."""

    def __init__(self) -> None:
        self.batches = 0
        self._ledger = Ledger()
        self._capacity: Capacity | None = None
        self._bodies: dict[
            int, tuple[Allocation, float, int]
        ] = {}  # what occupies slices, since when
        self._now_s = -1.0
        self._still = 0
        self._held_gpu_s = 0.0  # integrated from what the jobs hold
        self._holding = 0.0

    def after(self, engine: Engine, events: list[Event], plan: Plan | None) -> None:  # noqa: ARG002
        """Raise InvariantError if something does not hold."""
        now_s = engine.view.now_s
        first = not self.batches
        self.batches += 1
        if self._capacity is None:
            self._capacity = Capacity(engine.cluster.topology)
        self._check_time(engine, events, now_s)
        self._ledger.read(engine.log, now_s)
        self._check_still(now_s)
        everybody = len(engine.view.active) <= SMALL or self.batches % SWEEP == 0
        self._check_jobs(engine, now_s, everybody=everybody, adopt=first)
        holding = [job for job in engine.view.active.values() if job.phase in (STARTING, RUNNING)]
        for job in holding:
            _check_place(engine, job, now_s)
        self._check_planned(engine, holding, now_s)
        self._check_bodies(engine, now_s)
        self._check_ledger(engine, now_s, adopt=first)
        if everybody and not engine.backlog:  # else the scheduler does not know yet
            check_books(engine, now_s)

    # --- time -----------------------------------------------------------------------------------

    def _check_time(self, engine: Engine, events: list[Event], now_s: float) -> None:
        if now_s < self._now_s:
            raise InvariantError(f"time went back from {self._now_s:g} s to {now_s:g} s")
        for event in events:
            if event[0] > now_s:
                raise InvariantError(
                    f"event {event} was handed out at {now_s:g} s, before its time"
                )

    def _check_still(self, now_s: float) -> None:
        self._still = 0 if now_s > self._now_s or self._ledger.touched else self._still + 1
        if self._still > STILL:
            raise InvariantError(
                f"{STILL} batches at {now_s:g} s in which nothing happened to any job"
            )

    # --- jobs -----------------------------------------------------------------------------------

    def _check_jobs(self, engine: Engine, now_s: float, *, everybody: bool, adopt: bool) -> None:
        ledger = self._ledger
        active = engine.view.active
        if ledger.present.keys() != active.keys():
            lost = sorted(ledger.present.keys() - active.keys())[:5]
            extra = sorted(active.keys() - ledger.present.keys())[:5]
            raise InvariantError(
                f"at {now_s:g} s jobs {lost} are neither over nor present, and {extra} are present "
                "without having been submitted"
            )
        exact_end = getattr(engine.cluster, "finish_round_s", INF) == 0.0  # real clusters are late
        for index in (*ledger.present, *ledger.touched) if everybody else ledger.touched:
            shadow, job = ledger.jobs[index], engine.jobs[index]
            if shadow.whole:
                continue
            if adopt:
                _adopt(shadow, job, now_s)
            agree(shadow, job, now_s, exact_end=exact_end)
            if shadow.ref >= 0 and index in ledger.touched and job.phase in (STARTING, RUNNING):
                logged = ledger.slices(shadow.ref)
                if tuple(logged) != job.allocation.slices:
                    raise InvariantError(
                        f"job {job.id} at {now_s:g} s holds {job.allocation}, but the log says {logged}"
                    )

    # --- places ---------------------------------------------------------------------------------

    def _check_planned(self, engine: Engine, holding: list[Job], now_s: float) -> None:
        """What jobs have been given fits what is up."""
        capacity = self._capacity
        assert capacity is not None  # noqa: S101 - made in `after`
        moving = [j for j in engine.view.active.values() if j.index in engine.executor.moving]
        given = [*holding, *moving]
        for place, kind, used, there in capacity.exceeded(
            capacity.use(job.allocation for job in given)
        ):
            jobs = [job.id for job in given if capacity.covers(job.allocation, place.id)]
            raise InvariantError(
                f"{place.level} {place.name} at {now_s:g} s: {used:g} {kind} are given away, there are "
                f"{there:g}; jobs {', '.join(jobs[:8])}"
            )

    def _check_bodies(self, engine: Engine, now_s: float) -> None:
        """Nobody is launched onto slices that another job has not left yet."""
        capacity = self._capacity
        assert capacity is not None  # noqa: S101 - made in `after`
        deferred = {job.index for job in engine.executor.deferred}
        launched = []
        bodies: dict[int, tuple[Allocation, float, int]] = {}
        for index, job in engine.view.active.items():
            if job.phase in (STARTING, RUNNING) and index not in deferred:
                bodies[index] = (job.allocation, job.start_s, job.preemptions)
                before = self._bodies.get(index)
                if before != bodies[index]:
                    launched.append(job)
            elif job.phase == STOPPING:
                slices = self._ledger.slices(self._ledger.jobs[index].body)
                bodies[index] = (Allocation(slices), job.start_s, job.preemptions)
        self._bodies = bodies
        if not launched:
            return  # then only failing nodes can have made it too much, and those who leave may linger
        exceeded = {
            place.id: (place, kind, used, there)
            for place, kind, used, there in capacity.exceeded(
                capacity.use(body[0] for body in bodies.values())
            )
        }
        for job in launched:
            for vertex in capacity.places(
                job.allocation
            ):  # not above: others may linger on dead nodes
                if vertex in exceeded:
                    place, kind, used, there = exceeded[vertex]
                    raise InvariantError(
                        f"job {job.id} was launched at {now_s:g} s on {place.level} {place.name}, where "
                        f"{used:g} {kind} are occupied then and there are {there:g}"
                    )

    # --- GPU-seconds ----------------------------------------------------------------------------

    def _check_ledger(self, engine: Engine, now_s: float, *, adopt: bool) -> None:
        """Held = useful + overhead, once from the jobs and once from the log."""
        if adopt:
            self._held_gpu_s = self._ledger.gpu_s(now_s)
        elif now_s > self._now_s:
            self._held_gpu_s += self._holding * (now_s - self._now_s)
            logged = self._ledger.gpu_s(now_s)
            if not close(self._held_gpu_s, logged, now_s * max(1.0, self._holding)):
                raise InvariantError(
                    f"at {now_s:g} s jobs have held {self._held_gpu_s:g} GPU-s, but useful and overhead "
                    f"are {logged:g} GPU-s in the log"
                )
        self._now_s = now_s
        self._holding = sum(job.held_gpus for job in engine.view.active.values())


def _adopt(shadow: Shadow, job: Job, now_s: float) -> None:
    """Begin with a run that was resumed: its past is taken as it is."""
    shadow.at_s = now_s
    shadow.useful = job.attained_gpu_s(now_s)
    shadow.done = job.work - job.left_at(now_s)
    shadow.rate = job.rate if job.phase == RUNNING else shadow.rate


def _check_place(engine: Engine, job: Job, now_s: float) -> None:
    """A running job has what it asked for, on nodes that are up and of an acceptable kind."""
    where = f"job {job.id} at {now_s:g} s"
    allocation = job.allocation
    gpus = allocation.gpus
    if job.held_gpus != gpus:
        raise InvariantError(f"{where} holds {job.held_gpus:g} GPUs in its own books, {allocation}")
    if engine.scheduler.trusted and not _acceptable(job, gpus):
        raise InvariantError(
            f"{where} has {gpus:g} GPUs and asked for {job.gpus:g}: all or nothing"
        )
    vertices = engine.cluster.topology.vertices
    places = {*allocation.vertices, *(vertex for vertex, _, _ in allocation.extra)}
    for place in (vertices[vertex] for vertex in places):
        node = vertices[place.node] if place.node >= 0 else place
        if not node.up:
            raise InvariantError(f"{where} is on {node.name}, which is down")
        types = {place.gpu_type} if place.id else set(engine.cluster.topology.types)
        if job.shape.types and not types & set(job.shape.types):
            raise InvariantError(
                f"{where} is on {place.name} ({place.gpu_type}), it wants {job.shape.types}"
            )
        if place.node >= 0 and not set(job.shape.labels) <= set(node.labels):
            raise InvariantError(
                f"{where} is on {node.name}, which lacks one of {job.shape.labels}"
            )


def _acceptable(job: Job, gpus: float) -> bool:
    groups = job.spec.request.groups
    if not any(group.max_count for group in groups):
        return gpus == job.gpus
    least = sum((group.min_count or group.count) * group.gpus for group in groups)
    most = sum((group.max_count or group.count) * group.gpus for group in groups)
    return least <= gpus <= most


def check_books(engine: Engine, now_s: float) -> None:
    """Every job is in exactly one of the scheduler's places, and its placement agrees about what is free."""
    scheduler = engine.scheduler
    if isinstance(scheduler, PriorityScheduler):
        _check_index(engine, scheduler, now_s)
    elif isinstance(scheduler, GeneralScheduler):
        moving = engine.executor.moving
        running = {i for i, j in engine.view.active.items() if j.running or i in moving}
        if scheduler.running.keys() != running:
            wrong = sorted(scheduler.running.keys() ^ running)[:5]
            raise InvariantError(f"at {now_s:g} s the scheduler is wrong about who runs: {wrong}")
    else:
        return
    if scheduler.trusted:
        _check_free(engine, scheduler.placement.free, now_s)


def _check_free(engine: Engine, free: float, now_s: float) -> None:
    moving = engine.executor.moving
    given = sum(
        job.allocation.gpus
        for index, job in engine.view.active.items()
        if job.running or index in moving
    )
    up = sum(node.gpus for node in engine.cluster.topology.nodes if node.up)
    if abs(up - given - free) > TOLERANCE:
        raise InvariantError(
            f"at {now_s:g} s the placement believes that {free:g} GPUs are free: {up:g} are up, "
            f"{given:g} are given away"
        )
    if abs(up - engine.view.up_gpus) > TOLERANCE:
        raise InvariantError(
            f"at {now_s:g} s {up:g} GPUs are up, the view says {engine.view.up_gpus:g}"
        )


def _check_index(engine: Engine, scheduler: PriorityScheduler, now_s: float) -> None:
    index = scheduler.packer.index
    seen: dict[int, str] = {}

    def see(job: Job, place: str) -> None:
        if job.index in seen:
            raise InvariantError(
                f"job {job.id} at {now_s:g} s is in two places: {seen[job.index]} and {place}"
            )
        seen[job.index] = place

    for heap in index.waiting.values():
        for _, _, stamp, job in heap:
            if stamp == job.stamp:
                see(job, "queue")
    waiting = len(seen)
    for entries in index.running.values():
        for _, _, job in entries:
            see(job, "cluster")
    for job in scheduler.gate.held:
        see(job, "gate")
    if waiting != index.waiting_count:
        raise InvariantError(f"at {now_s:g} s {waiting} jobs queue, not {index.waiting_count}")
    _check_seen(engine, scheduler, seen, now_s)


def _check_seen(
    engine: Engine, scheduler: PriorityScheduler, seen: dict[int, str], now_s: float
) -> None:
    blocked = {job.index for jobs in engine.arrivals.waiting_for.values() for job in jobs}
    active: dict[int, Job] = engine.view.active
    places: dict[int, Any] = {
        WAITING: "queue",
        RUNNING: "cluster",
        STARTING: "cluster",
        HELD: "gate",
    }
    for number, job in active.items():
        want = places.get(job.phase)
        if job.phase == STOPPING and number in engine.executor.moving:
            want = "cluster"
        if want == "cluster" and not scheduler.policy.preemptive:
            want = None  # nobody needs their order
        if want == "gate" and number in blocked:
            want = None  # not announced yet
        if seen.pop(number, None) != want:
            raise InvariantError(
                f"{job} at {now_s:g} s is not where it belongs ({want or 'nowhere'})"
            )
    if seen:
        raise InvariantError(
            f"at {now_s:g} s the scheduler knows jobs that are gone: {sorted(seen)[:5]}"
        )
