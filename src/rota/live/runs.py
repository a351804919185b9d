"""The runs of a living cluster: what was ordered, and what is still out there."""

from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, NamedTuple

from msgspec.structs import replace

from rota.core.allocation import Allocation
from rota.core.errors import ClusterError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.launch import PER_GPU, Launch
from rota.core.resources import CPU, MEMORY
from rota.core.sharing import LIMIT, WEIGHT, parts_of
from rota.core.sums import ordered_sum
from rota.core.topology import DEVICE, Topology
from rota.live.driver import RunOrder, RunPart

TURNS = frozenset((LIMIT, WEIGHT))  # terms that say who has how many turns on a GPU
LEAST_S = 0.001  # that a run may last whose job has used up its time limit
FIRST_PORT, PORTS = 20_000, 10_000  # below the range from which systems take ports by themselves


class LiveRun:
    """One attempt. `waits`: an earlier run of the job is still ending; `halting`: it shall end;
    `over`: nobody waits for it any more (cancelled, evicted), it only has to go.
    """  # noqa: D205 - one sentence

    __slots__ = ("halting", "job", "number", "order", "over", "waits")

    def __init__(self, job: Job, number: int, order: RunOrder) -> None:
        self.job = job
        self.number = number
        self.order = order
        self.waits = False
        self.halting = False
        self.over = False


class RunTable:
    """Runs, by their names and by job. Deterministic: the same calls give the same orders."""

    def __init__(self, topology: Topology, launches: Callable[[Job], Launch]) -> None:
        self.by_id: dict[str, LiveRun] = {}
        self.current: dict[int, LiveRun] = {}  # by job: the run that the engine knows of
        self._topology = topology
        self._launches = launches
        self._numbers: dict[int, int] = {}
        self._leaving: dict[int, int] = {}  # by job: runs that are over but still there
        self.ports = 0  # where to go on; daemons on one machine begin at different places

    def make(self, job: Job) -> LiveRun:
        """The next run of a job, on its allocation."""
        if job.index in self.current:
            raise ClusterError(f"job {job.id} cannot be started: it runs already")
        number = self._numbers.get(job.index, 0)
        self._numbers[job.index] = number + 1
        launch = self._launches(job)
        parts = make_parts(self._topology, job.allocation, launch)
        port = FIRST_PORT + self.ports % PORTS
        self.ports += 1
        run = LiveRun(job, number, self._order(job, number, parts, port))
        run.waits = job.index in self._leaving
        self.by_id[run.order.run] = self.current[job.index] = run
        return run

    def _order(self, job: Job, number: int, parts: tuple[RunPart, ...], port: int) -> RunOrder:
        return RunOrder(
            run=f"{job.id}.{number}",
            job=job.id,
            launch=self._launches(job),
            parts=parts,
            world_size=sum(part.processes for part in parts),
            master_port=port,
            restart=number,
            user=job.spec.user,
            name=job.spec.name,
            limit_s=max(LEAST_S, job.spec.limit_s - job.run_s) if job.spec.limit_s < INF else 0.0,
        )

    def renew(self, job: Job) -> LiveRun:
        """The run of a job whose terms have changed, with the new ones."""
        run = self.current[job.index]
        parts = make_parts(self._topology, job.allocation, run.order.launch)
        run.order = replace(run.order, parts=parts)
        return run

    def give_up(self, job: Job) -> LiveRun | None:
        """The engine does not care for its run any more; the run, if there is one."""
        run = self.current.pop(job.index, None)
        if run is not None:
            run.over = True
            if run.waits:  # it never began
                del self.by_id[run.order.run]
                return None
            self._leaving[job.index] = self._leaving.get(job.index, 0) + 1
        return run

    def remove(self, run: LiveRun) -> LiveRun | None:
        """Nothing is left of it; the later run of the same job that waited for this."""
        index = run.job.index
        del self.by_id[run.order.run]
        if not run.over:
            del self.current[index]
            return None
        left = self._leaving.pop(index) - 1
        if left:
            self._leaving[index] = left
            return None
        following = self.current.get(index)
        if following is None or following.halting:  # its own end is on its way
            return None
        following.waits = False
        return following

    # --- what is out there ------------------------------------------------------------------------

    def on(self, node: str) -> list[LiveRun]:
        """Runs that have something on a node, even if they are given up."""
        return [
            run for run in self.by_id.values() if any(part.node == node for part in run.order.parts)
        ]

    def ending(self, job: Job) -> list[LiveRun]:
        """Runs of a job that shall end, and of which something is still there."""
        run = self.current.get(job.index)
        if run is not None and run.halting and not run.waits:
            return [run]
        if job.index not in self._leaving:
            return []
        return [run for run in self.by_id.values() if run.over and run.job is job]

    def discard(self, jobs: Iterable[int]) -> None:
        """These jobs are over, nothing of them is there, and they are forgotten."""
        for index in jobs:
            self._numbers.pop(index, None)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "runs": [
                (run.job.index, run.number, run.waits, run.halting, run.over,
                 [_plain_part(part) for part in run.order.parts], run.order.master_port)
                for run in self.by_id.values()
            ],
            "numbers": list(self._numbers.items()),
            "ports": self.ports,
        }  # fmt: skip

    def restore(self, state: dict[str, Any], jobs: dict[int, Job]) -> None:
        """Take the state of `snapshot` up again."""
        self._numbers = dict(state["numbers"])
        self.ports = state["ports"]
        for index, number, waits, halting, over, plain, port in state["runs"]:
            parts = tuple(
                RunPart(node, tuple((int(d), a) for d, a in slices), *rest)
                for node, slices, *rest in plain
            )
            run = LiveRun(jobs[index], number, self._order(jobs[index], number, parts, port))
            run.waits, run.halting, run.over = waits, halting, over
            self.by_id[run.order.run] = run
            if over:
                self._leaving[index] = self._leaving.get(index, 0) + 1
            else:
                self.current[index] = run


def _plain_part(part: RunPart) -> tuple[Any, ...]:
    return (part.node, part.slices, part.node_rank, part.first_rank, part.processes, part.cpus,
            part.mem_gib, part.gpu_mem_gib, part.gpu_limit, part.gpu_weight,
            part.paused)  # fmt: skip


def make_parts(topology: Topology, allocation: Allocation, launch: Launch) -> tuple[RunPart, ...]:
    """What an allocation means on each of its nodes; nodes are ranked in its order."""
    slices: dict[int, list[tuple[int, float]]] = {}
    extra: dict[int, dict[str, float]] = {}
    for vertex, amount in allocation.slices:
        place = topology.vertices[vertex]
        if place.node < 0:
            raise ClusterError(
                f"the allocation {allocation} names no node: a real cluster needs a placement "
                f"that does, e.g. consolidate"
            )
        device = topology.devices(place.node).index(vertex) if place.level == DEVICE else -1
        slices.setdefault(place.node, []).append((device, amount))
    for vertex, kind, amount in allocation.extra:
        node = topology.vertices[vertex].node
        slices.setdefault(node, [])
        held = extra.setdefault(node, {})
        held[kind] = held.get(kind, 0.0) + amount
    terms = _terms(topology, allocation)
    parts: list[RunPart] = []
    rank = 0
    for node_rank, (node, held_slices) in enumerate(slices.items()):
        gpus = ordered_sum(amount for _, amount in held_slices)
        processes = max(1, ceil(gpus)) if launch.per == PER_GPU else 1
        held = extra.get(node, {})
        parts.append(
            RunPart(topology.vertices[node].name, tuple(held_slices), node_rank, rank, processes,
                 held.get(CPU.name, 0.0), held.get(MEMORY.name, 0.0),
                 *terms.get(node, NO_TERMS))
        )  # fmt: skip
        rank += processes
    return tuple(parts)


class _Terms(NamedTuple):
    """Of each GPU of a node that an allocation names: the most of them."""

    mem_gib: float = 0.0
    limit: float = 0.0
    weight: float = 0.0
    paused: bool = False


NO_TERMS = _Terms()


def _terms(topology: Topology, allocation: Allocation) -> dict[int, _Terms]:
    """By node; who has whole GPUs of a node, whichever they are, may use all of their memory."""
    found: dict[int, _Terms] = {}
    limits = {(vertex, kind): amount for vertex, kind, amount in allocation.extra if kind in TURNS}
    for vertex, part in parts_of(allocation).items():
        place = topology.vertices[vertex]
        if place.level == DEVICE:
            known = found.get(place.node, NO_TERMS)
            found[place.node] = _Terms(
                max(known.mem_gib, part.mem_gib + part.step_gib),
                max(known.limit, part.limit),
                max(known.weight, limits.get((vertex, WEIGHT), 0.0)),
                paused=known.paused or limits.get((vertex, LIMIT)) == 0,
            )
    return found
