"""What must hold after every batch of events; the engine's own accounts are not trusted.

The log is folded into replicas of all jobs (see `replica`); places are added up from what the jobs
say that they hold, and what is then free is compared with the reasons in the log. Keys of a
priority policy are compared with what it says now (`check_keys`: that is a PolicyError). A failed
check raises InvariantError with the job, the place and the time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rota.core.allocation import Allocation, host_of
from rota.core.changes import Changes
from rota.core.errors import InvariantError, PolicyError
from rota.core.events import INF, Event
from rota.core.jobs import DONE, HELD, RUNNING, STARTING, STOPPING, WAITING, Job
from rota.core.reasons import Reason
from rota.core.sharing import GPU_LABELS, mig_profiles
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.core.windows import NodeWindow
from rota.engine.blame import ROOM
from rota.engine.general import GeneralScheduler
from rota.engine.loop import Engine
from rota.engine.priority import PriorityScheduler
from rota.engine.replica import TOLERANCE, JobReplica, LogReplica, agree, close
from rota.placement.base import Placement

STILL = 10_000  # batches at one instant in which nothing happens to any job
SMALL = 256  # so many jobs are all looked at after every batch
OF_WINDOWS = (Reason.MAINTENANCE, Reason.RESERVED)
SWEEP = 64  # with more of them everybody is looked at after so many batches

Use = dict[tuple[int, str], float]
"""(vertex, kind) -> amount in use there or below."""

PLACES = {WAITING: "queue", RUNNING: "cluster", STARTING: "cluster", HELD: "admission queue"}
"""Where a scheduler of the fast door keeps a job."""


class CapacityCheck:
    """What there is at and below every vertex, counting only nodes that are up."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.vertices = len(topology.vertices)
        self._above = [(v.id, *topology.ancestors(v.id)) for v in topology.vertices]
        self._pools = {pool.id: pool.gpu_type for pool in topology.pools if pool.id}
        self._limited = {"gpu", *_hard_kinds(topology)}
        if any(node.cpus for node in topology.nodes):
            self._limited.add("cpu")
        if any(node.mem_gib for node in topology.nodes):
            self._limited.add("memory")
        self._supply: Mapping[str, float] = topology.supply
        self._whole = dict(self._supply)  # counted over the cluster, wherever it is used
        self._divides = topology.shared or topology.has_gpu_mem
        self._budgets = {kind.name for kind in topology.kinds.values() if not kind.renewable}
        self.spent: list[tuple[int, str, float]] = []
        self._up: list[bool] = []
        self._have: Use = {}

    def changed(self) -> bool:
        """Has a node gone down or come up since the last call? Adds up anew."""
        up = [node.up for node in self._topology.nodes]
        if up == self._up:
            return False
        self._up = up
        self._have = self._add_up()
        return True

    def _add_up(self) -> Use:
        have: Use = {}
        for node in self._topology.nodes:
            if not node.up:
                continue
            own = {"gpu": float(node.gpus), "cpu": node.cpus, "memory": node.mem_gib}
            own |= {"gpu_mem_gib": node.gpus * node.gpu_mem_gib, **node.resources}
            pools = [pool for pool, kind in self._pools.items() if kind == node.gpu_type]
            if not node.gpus:
                pools = list(self._pools)[:1]  # see placement `count`
            for vertex in (*self._above[node.id], *pools):
                for kind, amount in own.items():
                    have[vertex, kind] = have.get((vertex, kind), 0.0) + amount
            for device in self._topology.devices(node.id):
                have[device, "gpu"] = 1.0
        return have

    def exceeded(
        self, allocations: Iterable[Allocation]
    ) -> Iterator[tuple[Vertex, str, float, float]]:
        """(vertex, kind, used, there is) where these take more than there is, at or below it."""
        used: Use = {}
        vertices = self._topology.vertices
        for (place, kind), amount in self._given_at(allocations).items():
            lent = kind == "gpu" and vertices[place].sharing in ("timeslice", "mps")
            places = (0,) if kind in self._whole else self._above[place]
            for vertex in places:  # GPUs that jobs share are there once
                more = min(1.0, amount) if lent else amount
                used[vertex, kind] = used.get((vertex, kind), 0.0) + more
        if self._supply is not self._topology.supply:
            self._declared_anew({kind: used.get((0, kind), 0.0) for kind in self._topology.supply})
        for (vertex, kind), amount in used.items():
            there = self._whole.get(kind, self._have.get((vertex, kind), 0.0))
            if vertices[vertex].level == "gpu" and kind == "gpu_mem_gib":
                continue  # `misused` looks at single GPUs
            if kind in self._limited and amount > there + TOLERANCE:
                yield vertices[vertex], kind, amount, there

    def _given_at(self, allocations: Iterable[Allocation]) -> Use:
        """What these take at the very places that they name, and what was used up there before."""
        at: Use = {}
        for allocation in allocations:
            slices = [(vertex, "gpu", amount) for vertex, amount in allocation.slices]
            for place, kind, amount in (*slices, *allocation.extra):
                at[place, kind] = at.get((place, kind), 0.0) + amount
        for place, kind, amount in self.spent:
            if kind in self._whole or (place, kind) in at:  # else it may be down, nobody has any
                at[place, kind] = at.get((place, kind), 0.0) + amount
        return at

    def _declared_anew(self, used: Mapping[str, float]) -> None:
        """There is more or less of what the cluster has as a whole: who has some keeps it."""
        self._supply = self._topology.supply
        self._whole = {kind: max(total, used[kind]) for kind, total in self._supply.items()}
        self._limited |= _hard_kinds(self._topology)

    def spend(self, allocation: Allocation) -> None:
        """The job that had this is over: what it has used up is gone."""
        self.spent += [part for part in allocation.extra if part[1] in self._budgets]

    def misused(self, jobs: Iterable[tuple[str, Allocation]]) -> Iterator[tuple[Vertex, str]]:
        """GPUs that are shared as their mode does not allow, and why. Added up here, by itself."""
        if not self._divides:
            return
        vertices = self._topology.vertices
        on: dict[int, list[dict[str, float]]] = {}
        for _, allocation in jobs:
            mine: dict[int, dict[str, float]] = {}
            for vertex, amount in allocation.slices:
                mine.setdefault(vertex, {})["gpu"] = amount
            for vertex, kind, amount in allocation.extra:
                mine.setdefault(vertex, {})[kind] = amount
            for vertex, has in mine.items():
                if vertices[vertex].level == "gpu":
                    on.setdefault(vertex, []).append(has)
        for vertex, here in on.items():
            why = _misuse(vertices[vertex], here)
            if why:
                yield vertices[vertex], why

    def named(self, allocation: Allocation) -> set[int]:
        """The vertices that it takes from, and the nodes of its devices."""
        named = {*allocation.vertices, *(vertex for vertex, _, _ in allocation.extra)}
        nodes = (self._topology.vertices[vertex].node for vertex in named)
        return named | {node for node in nodes if node >= 0}

    def covers(self, vertex: int, allocation: Allocation) -> bool:
        """Does the allocation take from this vertex or below it?"""
        return any(vertex in self._above[place] for place in self.named(allocation))


def _hard_kinds(topology: Topology) -> set[str]:
    """Kinds besides GPUs, CPUs and memory of which no more can be given away than there is."""
    known = {kind for node in topology.nodes for kind in node.resources} | topology.supply.keys()
    hard = {kind for kind in known if not topology.kinds[kind].compressible}
    return hard | ({"gpu_mem_gib"} if topology.has_gpu_mem else set())


def _misuse(gpu: Vertex, here: list[dict[str, float]]) -> str:
    """What is wrong with these on one GPU; empty: nothing."""
    steps = [has.get("gpu_mem_step_gib", 0.0) for has in here]
    memory = ordered_sum(has.get("gpu_mem_gib", 0.0) for has in here)
    memory += max(steps) if gpu.sharing == "timeslice" else ordered_sum(steps)
    if memory > gpu.gpu_mem_gib + TOLERANCE:
        return f"{memory:g} GiB of its memory are given away, and {gpu.gpu_mem_gib:g} are there"
    if gpu.sharing == "exclusive" and len(here) > 1:
        return f"{len(here)} jobs have it, and it is exclusive"
    return _misdivided(gpu, here) if gpu.sharing == "mig" else ""


def _misdivided(gpu: Vertex, here: list[dict[str, float]]) -> str:
    """The same of a GPU with instances."""
    divided = [kind[4:].split(" of ") for has in here for kind in has if kind[:4] == "mig "]
    if len(divided) < len(here) and len(here) > 1:
        return "a job has a part of it without an instance"
    if len({layout for _, layout in divided}) > 1:
        return "it is divided in two ways at once"
    taken: set[int] = set()
    profiles = {profile.name: profile for profile in mig_profiles(gpu.gpu_type)}
    for instance, _ in divided:
        name, _, start = instance.partition("@")
        if name not in profiles or int(start) not in profiles[name].starts:
            return f"{instance} is not in the vendor's table"
        slots = set(range(int(start), int(start) + profiles[name].memory))
        if slots & taken:
            return f"{instance} overlaps another instance"
        taken |= slots
    return ""


class Invariants:
    """Implements `Checker`. One object per run; `keys`: look at the keys of the queues, too."""

    def __init__(self, *, keys: bool = True) -> None:
        self._keys = keys
        self.batches = 0
        self._replica = LogReplica()
        self._capacity: CapacityCheck | None = None
        self._bodies: dict[int, tuple[Allocation, float, int]] = {}  # who occupies what since when
        self._now_s = -1.0
        self._still = 0
        self._held_gpu_s = 0.0  # integrated from what the jobs hold
        self._holding = 0.0

    def after(self, engine: Engine, events: list[Event], changes: Changes | None) -> None:
        """Raise InvariantError if something does not hold."""
        now_s = engine.view.now_s
        resumed = not self.batches
        self.batches += 1
        topology = engine.cluster.topology
        if self._capacity is None or self._capacity.vertices != len(topology.vertices):
            self._capacity = CapacityCheck(topology)
        self._check_time(events, now_s)
        self._replica.read(engine.log, now_s)
        self._check_still(now_s)
        for index in self._replica.touched:
            if index in engine.jobs and engine.jobs[index].terminal:
                self._capacity.spend(engine.jobs[index].allocation)
        changed = self._capacity.changed()
        everybody = len(engine.view.active) <= SMALL or self.batches % SWEEP == 0
        self._check_jobs(engine, now_s, everybody=everybody, adopt=resumed)
        changed |= everybody
        if changed or self._replica.touched:
            self._check_given(engine, self._capacity, now_s, everybody=changed)
            self._check_bodies(engine, self._capacity, now_s, adopt=resumed)
        if engine.calendar is not None:
            check_windows(engine, engine.calendar.windows.values(), changes, now_s)
        self._check_gpu_s(engine, now_s, compare=everybody, adopt=resumed)
        if everybody and not engine.timers.ask_now:  # else it is asked again at this very instant
            check_reasons(engine, self._replica, now_s, self._capacity.spent)
        if everybody and not engine.lifecycle.backlog:  # else the scheduler does not know yet
            check_books(engine, now_s)
            if self._keys and isinstance(engine.scheduler, PriorityScheduler):
                check_keys(engine, engine.scheduler, now_s)

    # --- time -------------------------------------------------------------------------------------

    def _check_time(self, events: list[Event], now_s: float) -> None:
        if now_s < self._now_s:
            raise InvariantError(f"time went back from {self._now_s:g} s to {now_s:g} s")
        for event in events:
            if event[0] > now_s:
                raise InvariantError(f"event {event} was handed out at {now_s:g} s: too early")

    def _check_still(self, now_s: float) -> None:
        self._still = 0 if now_s > self._now_s or self._replica.touched else self._still + 1
        if self._still > STILL:
            raise InvariantError(f"{STILL} batches at {now_s:g} s, and nothing happens to any job")

    # --- jobs -------------------------------------------------------------------------------------

    def _check_jobs(self, engine: Engine, now_s: float, *, everybody: bool, adopt: bool) -> None:
        log_replica = self._replica
        active = engine.view.active
        if log_replica.present.keys() != active.keys():
            lost = sorted(log_replica.present.keys() - active.keys())[:5]
            extra = sorted(active.keys() - log_replica.present.keys())[:5]
            raise InvariantError(
                f"at {now_s:g} s jobs {lost} are neither over nor present, and {extra} are present "
                "without having been submitted"
            )
        exact_end = engine.cluster.capabilities.exact_ends
        for index in (
            (*log_replica.present, *log_replica.touched) if everybody else log_replica.touched
        ):
            replica = log_replica.jobs[index]
            if replica.whole or (replica.phase >= DONE and index not in engine.jobs):  # forgotten
                continue
            job = engine.jobs[index]
            if adopt:
                _adopt(replica, job, now_s)
            agree(replica, job, now_s, exact_end=exact_end)
            if (
                replica.ref >= 0
                and index in log_replica.touched
                and job.phase in (STARTING, RUNNING)
            ):
                logged = log_replica.slices(replica.ref)
                if tuple(logged) != job.allocation.slices:
                    raise InvariantError(
                        f"job {job.id} at {now_s:g} s has {job.allocation}, the log says {logged}"
                    )

    # --- places -----------------------------------------------------------------------------------

    def _check_given(
        self, engine: Engine, capacity: CapacityCheck, now_s: float, *, everybody: bool
    ) -> None:
        """What jobs have been given exists, is up, of the right kind, and given once."""
        given = [job for job in engine.view.active.values() if job.running]
        for job in given:
            if job.phase != STOPPING and (everybody or job.index in self._replica.touched):
                _check_place(engine, job, now_s)
        for place, kind, used, there in capacity.exceeded(job.allocation for job in given):
            jobs = [job.id for job in given if capacity.covers(place.id, job.allocation)]
            raise InvariantError(
                f"{place.level} {place.name} at {now_s:g} s: {used:g} {kind} are given away, and "
                f"{there:g} are there; jobs {', '.join(jobs[:8])}"
            )
        for gpu, why in capacity.misused((job.id, job.allocation) for job in given):
            jobs = [job.id for job in given if gpu.id in capacity.named(job.allocation)]
            raise InvariantError(
                f"GPU {gpu.name} at {now_s:g} s: {why}; jobs {', '.join(jobs[:8])}"
            )

    def _check_bodies(
        self, engine: Engine, capacity: CapacityCheck, now_s: float, *, adopt: bool
    ) -> None:
        """No job is launched onto slices that another has not left yet."""
        late = {job.index for job in engine.executor.deferred}
        launched = []
        bodies: dict[int, tuple[Allocation, float, int]] = {}
        for index, job in engine.view.active.items():
            if _on_cluster(job) and index not in late:
                bodies[index] = (job.allocation, job.start_s, job.preemptions)
                if self._bodies.get(index) != bodies[index]:
                    launched.append(job)
            elif job.phase == STOPPING:
                slices = self._replica.slices(self._replica.jobs[index].body)
                bodies[index] = (Allocation(slices), job.start_s, job.preemptions)
        self._bodies = bodies
        if adopt or not launched:
            return  # then it can only be too much because nodes failed, and who leaves may linger
        exceeded = {e[0].id: e for e in capacity.exceeded(body[0] for body in bodies.values())}
        for job in launched:
            for vertex in capacity.named(job.allocation) & exceeded.keys():
                place, kind, used, there = exceeded[vertex]
                raise InvariantError(
                    f"job {job.id} was launched at {now_s:g} s on {place.level} {place.name}: "
                    f"{used:g} {kind} are occupied then, and {there:g} are there"
                )

    # --- GPU-seconds ------------------------------------------------------------------------------

    def _check_gpu_s(self, engine: Engine, now_s: float, *, compare: bool, adopt: bool) -> None:
        """Held = useful + overhead, once from the jobs and once from the log."""
        if adopt:
            self._held_gpu_s = self._replica.gpu_s(now_s) + self._replica.unheld_gpu_s
        elif now_s > self._now_s:
            self._held_gpu_s += self._holding * (now_s - self._now_s)
            logged = self._held_gpu_s
            if compare:
                logged = self._replica.gpu_s(now_s) + self._replica.unheld_gpu_s
            if not close(self._held_gpu_s, logged, now_s * max(1.0, self._holding)):
                raise InvariantError(
                    f"at {now_s:g} s jobs have held {self._held_gpu_s:g} GPU-s, but useful and "
                    f"overhead are {logged:g} GPU-s in the log"
                )
        self._now_s = now_s
        self._holding = ordered_sum(job.held_gpus for job in engine.view.active.values())


def _on_cluster(job: Job) -> bool:
    return job.phase in (STARTING, RUNNING)


def _adopt(replica: JobReplica, job: Job, now_s: float) -> None:
    """Begin with a run that was resumed: its past is taken as it is."""
    replica.at_s = now_s
    replica.useful = job.attained_gpu_s(now_s)
    replica.done = job.true_work - job.left_at(now_s)
    replica.rate = job.true_rate if job.phase == RUNNING else replica.rate


def _check_place(engine: Engine, job: Job, now_s: float) -> None:
    """A running job has what it asked for, on nodes that are up and of an acceptable kind."""
    where = f"job {job.id} at {now_s:g} s"
    allocation = job.allocation
    if job.held_gpus != allocation.gpus:
        raise InvariantError(f"{where} holds {job.held_gpus:g} GPUs in its own books: {allocation}")
    if host_of(allocation) >= 0:
        _check_pair(engine, job, where)
    elif engine.scheduler.trusted and not job.shape.request.takes(allocation.gpus):
        raise InvariantError(
            f"{where} has {allocation.gpus:g} GPUs and asked for {job.gpus:g}: all or nothing"
        )
    topology = engine.cluster.topology
    for vertex in {*allocation.vertices, *(vertex for vertex, _, _ in allocation.extra)}:
        place = topology.vertices[vertex]
        node = topology.vertices[place.node] if place.node >= 0 else place
        if not node.up:
            raise InvariantError(f"{where} is on {node.name}, which is down")
        _check_gpu_memory(job, place, node, where)
        if vertex not in allocation.vertices and allocation.vertices:
            continue  # its CPUs may be elsewhere
        types = {place.gpu_type} if place.id else set(topology.types)
        if job.shape.types and types.isdisjoint(job.shape.types):
            raise InvariantError(f"{where} is on {place.name}: it wants {job.shape.types}")
        labels = [text for text in job.spec.request.labels if not text.startswith(GPU_LABELS)]
        if place.node >= 0 and not set(labels) <= set(node.labels):
            raise InvariantError(f"{where} is on {node.name}, which lacks {job.shape.labels}")


def _check_gpu_memory(job: Job, place: Vertex, node: Vertex, where: str) -> None:
    """GPUs are large enough for what it asks for, unless a part of that is elsewhere."""
    wants = job.shape.gpu_mem_gib
    if wants and place.node >= 0 and node.gpus and wants > node.gpu_mem_gib + TOLERANCE:
        if any(kind == "gpu_mem_spill_gib" for _, kind, _ in job.allocation.extra):
            return
        if place.id not in job.allocation.vertices:
            return
        raise InvariantError(
            f"{where} is on {node.name}, whose GPUs have {node.gpu_mem_gib:g} GiB: it wants "
            f"{wants:g}"
        )


def _check_pair(engine: Engine, guest: Job, where: str) -> None:
    """It shares all GPUs of one other job, which asked for as many, and with no third one."""
    number = host_of(guest.allocation)
    host = engine.view.active.get(number)
    if host is None or not host.running:
        raise InvariantError(f"{where} shares the GPUs of job number {number}, which has none")
    if host.allocation.vertices != guest.allocation.vertices:
        raise InvariantError(f"{where} is not where {host.id} is, whose GPUs it shares")
    if guest.allocation.gpus or host.allocation.gpus != guest.gpus or guest.gpus % 1:
        raise InvariantError(
            f"{where} asked for {guest.gpus:g} GPUs and shares {host.allocation.gpus:g} "
            f"with {host.id}"
        )
    others = [
        job.id
        for job in engine.view.active.values()
        if job.running and job is not guest and host_of(job.allocation) in (number, guest.index)
    ]
    if others or host_of(host.allocation) >= 0:
        raise InvariantError(
            f"{where} shares GPUs with {host.id} and {', '.join(others) or 'more'}"
        )


# --- the scheduler's accounts ---------------------------------------------------------------------


def check_books(engine: Engine, now_s: float) -> None:
    """Every job is in one of the scheduler's places, and its placement knows what is free."""
    scheduler = engine.scheduler
    moving = {index for index, job in engine.view.active.items() if job.moving}
    if moving != engine.executor.moving:
        wrong = sorted(moving ^ engine.executor.moving)[:5]
        raise InvariantError(f"at {now_s:g} s it is not clear who is being moved: {wrong}")
    if isinstance(scheduler, PriorityScheduler):
        _check_seen(engine, scheduler, _seen(scheduler, now_s), now_s)
    elif isinstance(scheduler, GeneralScheduler):
        running = {i for i, job in engine.view.active.items() if job.running}
        if scheduler.running.keys() != running:
            wrong = sorted(scheduler.running.keys() ^ running)[:5]
            raise InvariantError(f"at {now_s:g} s the scheduler is wrong about who runs: {wrong}")
    else:
        return
    if scheduler.trusted:
        _check_free(engine, scheduler.placement.free, now_s)


def _check_free(engine: Engine, free: float, now_s: float) -> None:
    topology = engine.cluster.topology
    closed = {node.id for node in topology.nodes if not node.open}
    given = ordered_sum(
        topology.occupied(vertex, amount)
        for job in engine.view.active.values()
        if job.running
        for vertex, amount in job.allocation.slices
        if topology.vertices[vertex].node not in closed
    )
    there = sum(node.gpus for node in topology.nodes if node.open)
    if abs(there - given - free) > TOLERANCE:
        raise InvariantError(
            f"at {now_s:g} s the placement believes that {free:g} GPUs are free: {there:g} may be "
            f"used, {given:g} are given away"
        )
    up = sum(node.gpus for node in topology.nodes if node.up)
    if abs(up - engine.view.up_gpus) > TOLERANCE:
        raise InvariantError(
            f"at {now_s:g} s {up:g} GPUs are up, and the view says {engine.view.up_gpus:g}"
        )


def _seen(scheduler: PriorityScheduler, now_s: float) -> dict[int, str]:
    """Where each job is, by index; raises if one is in two places."""
    index = scheduler.packer.index
    seen: dict[int, str] = {}
    queue = [entry.job for entry in index.queued()]
    cluster = [entry.job for entry in index.placed()]
    for place, jobs in (
        ("queue", queue),
        ("cluster", cluster),
        ("admission queue", scheduler.admissions.held),
    ):
        for job in jobs:
            if job.index in seen:
                raise InvariantError(
                    f"job {job.id} at {now_s:g} s is in two places: {seen[job.index]} and {place}"
                )
            seen[job.index] = place
    if len(queue) != index.waiting_count:
        raise InvariantError(f"at {now_s:g} s {len(queue)} jobs queue, not {index.waiting_count}")
    return seen


def _check_seen(
    engine: Engine, scheduler: PriorityScheduler, seen: dict[int, str], now_s: float
) -> None:
    blocked = {job.index for jobs in engine.arrivals.waiting_for.values() for job in jobs}
    for number, job in engine.view.active.items():
        want = "cluster" if job.moving else PLACES.get(job.phase)
        if want == "cluster" and not scheduler.policy.preemptive:
            want = None  # nobody needs their order
        if want == "admission queue" and (number in blocked or engine.lifecycle.is_outside(job)):
            want = None  # not announced
        if seen.pop(number, None) != want:
            raise InvariantError(f"{job} at {now_s:g} s is not in its place: {want or 'nowhere'}")
    if seen:
        raise InvariantError(f"at {now_s:g} s the scheduler knows jobs that are gone: {set(seen)}")


# --- windows --------------------------------------------------------------------------------------


def check_windows(
    engine: Engine, windows: Iterable[NodeWindow], changes: Changes | None, now_s: float
) -> None:
    """Nobody is sent where it would not end before a window that is not for it.

    And when one has begun that wants the others gone, they are.
    """
    vertices = engine.cluster.topology.vertices
    started = [job for job, _ in changes.starts] if changes is not None else []
    for window in windows:
        nodes = set(window.nodes)
        cleared = window.at_start == "preempt" and window.start_s <= now_s
        for job in engine.view.active.values() if cleared else started:
            if window.admits(job.spec) or job.terminal or not job.running:
                continue
            held = {*job.allocation.vertices, *(vertex for vertex, _, _ in job.allocation.extra)}
            names = {vertices[vertices[v].node].name for v in held if vertices[v].node >= 0}
            if names.isdisjoint(nodes):
                continue
            declared_s = job.spec.limit_s if job.spec.limit_s < INF else job.spec.estimate_s
            end_s = now_s + max(0.0, declared_s - job.run_s)
            where = f"job {job.id} at {now_s:g} s is on {', '.join(sorted(names & nodes))}"
            if cleared:
                raise InvariantError(f"{where} during the {window.describe()}")
            if end_s > window.start_s + TOLERANCE:
                raise InvariantError(
                    f"{where} until {end_s:g} s, into the {window.describe()} from "
                    f"{window.start_s:g} s on"
                )


# --- reasons --------------------------------------------------------------------------------------


class Left:
    """What is not given to any job, on nodes where something may be started."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        spent: Iterable[tuple[int, str, float]] = (),
    ) -> None:
        topology = engine.cluster.topology
        self._nodes = [node for node in topology.nodes if node.open]
        self._whole = topology.supply
        self._pools = {} if placement.names_nodes else _kinds_of_pools(topology)
        self._used: list[tuple[Vertex, str, float]] = []  # place, kind, amount
        vertices = topology.vertices
        for job in engine.view.active.values():
            if job.running:
                slices = [
                    (vertex, "gpu", topology.occupied(vertex, amount))
                    for vertex, amount in job.allocation.slices
                ]
                for vertex, kind, amount in (*slices, *job.allocation.extra):
                    place = vertices[vertex]
                    place = vertices[place.node] if place.node >= 0 else place
                    if place.node < 0 or place.open or kind in self._whole:
                        self._used.append((place, kind, amount))
        self._used += [(vertices[vertex], kind, amount) for vertex, kind, amount in spent]
        self.kinds = {"gpu"}
        if any(node.cpus for node in topology.nodes):
            self.kinds.add("cpu")
        if any(node.mem_gib for node in topology.nodes):
            self.kinds.add("memory")
        self.kinds |= _hard_kinds(topology) - {"gpu_mem_gib"}

    def enough(
        self,
        needs: dict[str, float],
        types: tuple[str, ...] = (),
        labels: tuple[str, ...] = (),
        gpu_mem_gib: float = 0.0,
    ) -> bool:
        """Is as much left as this, on nodes of these GPU types with all these labels?"""

        def counts(place: Vertex) -> bool:
            gpu_type, mem_gib = self._pools.get(place.id, (place.gpu_type, place.gpu_mem_gib))
            return (
                (not types or gpu_type in types)
                and set(labels) <= set(place.labels)
                and gpu_mem_gib <= mem_gib + TOLERANCE
            )

        left = {kind: self._whole.get(kind, 0.0) for kind in needs}
        for node in filter(counts, self._nodes):
            own = {"gpu": node.gpus, "cpu": node.cpus, "memory": node.mem_gib, **node.resources}
            for kind, amount in own.items():
                left[kind] = left.get(kind, 0.0) + amount
        for place, kind, amount in self._used:
            if kind in left and (kind in self._whole or counts(place)):
                left[kind] -= amount
        return all(need <= left[kind] + TOLERANCE for kind, need in needs.items())


def _kinds_of_pools(topology: Topology) -> dict[int, tuple[str, float]]:
    """GPU type and GPU memory that count for pools and their nodes.

    Which of a pool's GPUs a job has nobody knows: it has the memory of the smallest. Nodes without
    GPUs add to the first pool (see placement `count`).
    """
    with_gpus = [node for node in topology.nodes if node.gpus]
    types = topology.types or ("",)
    kinds = [
        (kind, min((n.gpu_mem_gib for n in with_gpus if n.gpu_type == kind), default=0.0))
        for kind in types
    ]
    found = {pool.id: kind for pool, kind in zip(topology.pools, kinds, strict=True)}
    for node in topology.nodes:
        found[node.id] = kinds[types.index(node.gpu_type)] if node.gpus else kinds[0]
    return found


def check_reasons(
    engine: Engine,
    log_replica: LogReplica,
    now_s: float,
    spent: Iterable[tuple[int, str, float]] = (),
) -> None:
    """Who waits for want of room lacks what the log says at this very moment (see `blame`)."""
    scheduler = engine.scheduler
    if not isinstance(scheduler, PriorityScheduler | GeneralScheduler) or not scheduler.trusted:
        return
    gpus_only = isinstance(scheduler, GeneralScheduler) and scheduler.compresses
    left: Left | None = None
    seen: set[tuple[int, int]] = set()
    for index, replica in log_replica.present.items():
        job = engine.jobs[index]
        shape = job.shape.opened or job.shape  # what is not for windows is as if there were none
        reason = log_replica.reason(index, shape.number)
        if reason in OF_WINDOWS:
            continue
        if replica.phase != WAITING or reason not in ROOM or (shape.number, reason) in seen:
            continue
        seen.add((shape.number, reason))
        left = left or Left(engine, scheduler.placement, spent)
        needs = {"gpu": shape.gpus, "cpu": shape.cpus, "memory": shape.mem_gib, **shape.resources}
        needs = {kind: need for kind, need in needs.items() if kind in left.kinds and need}
        if gpus_only and shape.gpus:  # those without GPUs get the CPUs and memory they ask for
            needs = {kind: need for kind, need in needs.items() if kind not in ("cpu", "memory")}
        true = Reason.CAPACITY
        if left.enough(needs):
            labels = tuple(
                label for label in job.spec.request.labels if not label.startswith(GPU_LABELS)
            )
            fine = left.enough(needs, shape.types, labels, shape.gpu_mem_gib)
            true = Reason.FRAGMENTATION if fine else Reason.CONSTRAINT
        finer = (Reason.GANG, Reason.MEMORY) if shape.gpu_mem_gib else (Reason.GANG,)
        if true != (Reason.FRAGMENTATION if reason in finer else reason):
            raise InvariantError(
                f"job {job.id} at {now_s:g} s asks for {shape.describe()} and waits by "
                f"{Reason(reason).label} according to the log, but what is free makes it "
                f"{true.label}"
            )


# --- promises of a priority policy ----------------------------------------------------------------


RULE = (
    "a waiting job's key is constant, and a running job's changes by `slope` per second and jumps "
    "when `next_change` says: define these (by default keys are constant), or use DecidePolicy"
)


def check_keys(engine: Engine, scheduler: PriorityScheduler, now_s: float) -> None:
    """Raise PolicyError if a key is not what the policy would say now.

    Keys change only as the policy promises, so that queues can be kept: a waiting job's key is
    constant, and a running job's changes with `slope` except at the times of `next_change`. A
    policy that breaks this is served in an order that it did not want, and nothing else goes wrong.
    """
    if engine.lifecycle.backlog:
        return  # it has not been told everything
    index = scheduler.packer.index
    due = {job.index for at_s, _, job, _ in engine.timers.heap if at_s <= now_s}  # will be asked
    for heap in index.waiting.values():
        for key, number, stamp, entry in heap:
            if stamp == entry.stamp and number not in due:
                _compare(scheduler, entry.job, key, now_s)
    for slope, entries in index.running.items():
        for vkey, number, job in entries:
            if number not in due:
                kept = vkey + slope * now_s if slope else vkey
                _compare(scheduler, job, kept, now_s)


def _compare(scheduler: PriorityScheduler, job: Job, kept: Any, now_s: float) -> None:
    says = scheduler.policy.key(job, now_s)
    if not _same(kept, says, now_s):
        raise PolicyError(
            f"policy {scheduler.name!r} breaks the promise of its keys: {job} at {now_s:g} s is "
            f"queued by {kept}, as promised, but `key` says {says} now; {RULE}"
        )


def _same(kept: Any, says: Any, now_s: float) -> bool:
    if isinstance(says, float) and isinstance(kept, (int, float)):
        return close(kept, says, now_s)
    return bool(kept == says)
