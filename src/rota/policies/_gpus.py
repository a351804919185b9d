"""Single GPUs and who shares them: for policies that say themselves which GPU a job has.

`SharedGpus` has the GPUs with the jobs on them, and finds room for others; what fits there is what
the engine accepts (`rota.core.sharing`). `GpuSharingPolicy` is a policy around it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from rota.core.allocation import TERMS, Allocation
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.plan import ExplicitPlan, Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.reasons import Reason
from rota.core.sharing import (
    DUST,
    EPHEMERAL,
    GPU_MEM,
    OVERCOMMITS,
    GpuPart,
    conflict,
    memory_needed,
    parts_of,
)
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.core.view import View

P = TypeVar("P", bound=Params)
Terms: TypeAlias = Sequence[tuple[str, float]]
"""Kinds and amounts on each GPU: limits, weights, memory."""


class SharedGpu:
    """One GPU, and the parts of it that jobs have."""

    __slots__ = ("id", "mem_gib", "mode", "name", "node", "parts", "type")

    def __init__(self, device: Vertex, node: Vertex) -> None:
        self.id = device.id
        self.name = device.name
        self.node = node
        self.mode = device.sharing
        self.mem_gib = device.gpu_mem_gib
        self.type = device.gpu_type
        self.parts: dict[int, GpuPart] = {}  # by number of the job

    @property
    def overcommits(self) -> bool:
        """More jobs may have it than it can serve at once."""
        return self.mode in OVERCOMMITS

    @property
    def compute(self) -> float:
        """GPUs that its jobs hold of it together; above 1 if it is over-committed."""
        return ordered_sum(part.gpus for part in self.parts.values())

    @property
    def memory_gib(self) -> float:
        """Memory that its jobs need together."""
        return memory_needed(self.mode, list(self.parts.values()))

    def fits(self, part: GpuPart) -> bool:
        """May a job have this part of it beside those that are there?"""
        return not conflict(self.mode, self.mem_gib, [*self.parts.values(), part], self.type)


class SharedGpus:
    """All GPUs of nodes where something may be started, in the order of the cluster.

    CPUs, memory and other kinds of the nodes are kept, too. With `closed`, nodes that are down or
    take no jobs count as well.
    """

    def __init__(
        self,
        topology: Topology,
        jobs: Iterable[Job] = (),
        spent: Mapping[tuple[int, str], float] | None = None,
        *,
        closed: bool = False,
    ) -> None:
        vertices = topology.vertices
        self._nodes = {node.id: node for node in topology.nodes}
        self._gpus: dict[int, SharedGpu] = {}
        self._whole: dict[int, float] = {}  # by node: whole GPUs that jobs have without names
        self.nodes: Sequence[Vertex] = [node for node in topology.nodes if node.open or closed]
        self._devices = {node.id: topology.devices(node.id) for node in topology.nodes}
        self._has_cpus = any(node.cpus for node in topology.nodes)
        self._has_mem = any(node.mem_gib for node in topology.nodes)
        self._soft = {kind.name for kind in topology.kinds.values() if kind.compressible}
        self._supply = {**topology.supply}  # what is left of the kinds of the whole cluster
        self._left: dict[tuple[int, str], float] = {}
        for node in topology.nodes:
            self._left[node.id, "cpu"] = node.cpus if self._has_cpus else INF
            self._left[node.id, "memory"] = node.mem_gib if self._has_mem else INF
            for kind, amount in node.resources.items():
                self._left[node.id, kind] = amount
            for device in self._devices[node.id]:
                self._gpus[device] = SharedGpu(vertices[device], node)
        for (vertex, kind), amount in (spent or {}).items():
            self._take(vertex, kind, amount)
        for job in jobs:
            self.add(job, job.allocation)

    def __getitem__(self, device: int) -> SharedGpu:
        """By the number of its vertex."""
        return self._gpus[device]

    def __iter__(self) -> Iterator[SharedGpu]:
        """Those that may be given to jobs."""
        for node in self.nodes:
            yield from self.on(node)

    def on(self, node: Vertex) -> list[SharedGpu]:
        """The GPUs of a node that may be given away: without those that jobs have as whole ones."""
        gpus = [self._gpus[device] for device in self._devices[node.id]]
        for _ in range(round(self._whole.get(node.id, 0.0))):
            gpus.remove(next(gpu for gpu in gpus if not gpu.parts))
        return gpus

    def of(self, job: Job, allocation: Allocation | None = None) -> list[SharedGpu]:
        """The GPUs that a job has (in this allocation)."""
        held = job.allocation if allocation is None else allocation
        return [self._gpus[vertex] for vertex, _ in held.slices if vertex in self._gpus]

    def add(self, job: Job, allocation: Allocation) -> None:
        """A job has this."""
        self._change(job, allocation, -1)

    def remove(self, job: Job, allocation: Allocation) -> None:
        """It has it no more."""
        self._change(job, allocation, +1)

    def _change(self, job: Job, allocation: Allocation, sign: int) -> None:
        for vertex, part in parts_of(allocation).items():
            if vertex not in self._gpus:
                self._whole[vertex] = self._whole.get(vertex, 0.0) - sign * part.gpus
            elif sign < 0:
                self._gpus[vertex].parts[job.index] = part
            else:
                self._gpus[vertex].parts.pop(job.index, None)
        for vertex, kind, amount in allocation.extra:
            self._take(vertex, kind, -sign * amount)

    def _take(self, vertex: int, kind: str, amount: float) -> None:
        if kind in self._supply:
            self._supply[kind] -= amount
        elif (vertex, kind) in self._left:
            self._left[vertex, kind] -= amount

    def holds(self, allocation: Allocation) -> bool:
        """Have its nodes room for what it takes besides GPUs?"""
        whole: dict[str, float] = {}
        for vertex, kind, amount in allocation.extra:
            if kind in self._soft:
                continue
            if kind in self._supply:
                whole[kind] = whole.get(kind, 0.0) + amount
            elif vertex in self._nodes and self._left.get((vertex, kind), 0.0) < amount - DUST:
                return False
        return all(self._supply[kind] >= amount - DUST for kind, amount in whole.items())

    # --- where to put a job -----------------------------------------------------------------------

    def place(
        self,
        job: Job,
        fine: Callable[[SharedGpu], bool],
        rank: Callable[[SharedGpu], Any],
        terms: Terms = (),
        part: GpuPart | None = None,
    ) -> Allocation | None:
        """What a job could have: GPUs that are fine, on as few nodes as may be, lowest ranks first.

        GPUs are of one type. What one node could ever hold is not divided over several. `part` is
        what must fit on a GPU, if not what the job asks for.
        """
        if not job.gpus:
            return self._without_gpus(job)
        count = gpus_needed(job)
        if not count:
            return None
        each = count // job.shape.apart if job.shape.apart else count
        need = part or part_for(job)
        by_node = [
            (node, sorted((g for g in self.on(node) if g.fits(need) and fine(g)), key=rank))
            for node in self._suitable(job)
        ]
        if job.shape.apart:
            return self._apart(job, by_node, each, terms)
        found = [(node, gpus[:count]) for node, gpus in by_node if len(gpus) >= count]
        for _, gpus in sorted(found, key=lambda each: [rank(gpu) for gpu in each[1]]):
            allocation = on_gpus(job, gpus, terms)
            if self.holds(allocation):
                return allocation
        if found or any(node.gpus >= count for node in self._suitable(job, everywhere=True)):
            return None
        return self._over_nodes(job, by_node, count, terms)

    def _suitable(self, job: Job, *, everywhere: bool = False) -> Iterator[Vertex]:
        """Nodes of a kind that the job accepts."""
        for node in self._nodes.values() if everywhere else self.nodes:
            if self.accepts(node, job):
                yield node

    def accepts(self, node: Vertex, job: Job) -> bool:
        """Is the node of a kind that the job accepts?"""
        shape = job.shape
        return (not shape.types or node.gpu_type in shape.types) and set(shape.labels) <= set(
            node.labels
        )

    def left(self, node: Vertex, kind: str) -> float:
        """What is left of a node's CPUs, memory or another kind."""
        return self._left.get((node.id, kind), 0.0)

    def _apart(
        self, job: Job, by_node: Sequence[tuple[Vertex, list[SharedGpu]]], each: int, terms: Terms
    ) -> Allocation | None:
        """Every task on a node of its own."""
        for kind in dict.fromkeys(node.gpu_type for node, _ in by_node):
            rows = [g[:each] for node, g in by_node if node.gpu_type == kind and len(g) >= each]
            rows = [row for row in rows if self.holds(on_gpus(job, row, terms, job.shape.apart))]
            if len(rows) >= job.shape.apart:
                chosen = [gpu for row in rows[: job.shape.apart] for gpu in row]
                return on_gpus(job, chosen, terms)
        return None

    def _over_nodes(
        self, job: Job, by_node: Sequence[tuple[Vertex, list[SharedGpu]]], count: int, terms: Terms
    ) -> Allocation | None:
        """On several nodes of one type, those with most GPUs first."""
        for kind in dict.fromkeys(node.gpu_type for node, _ in by_node):
            rows = [gpus for node, gpus in by_node if node.gpu_type == kind]
            rows.sort(key=len, reverse=True)
            chosen = [gpu for row in rows for gpu in row][:count]
            if len(chosen) == count and self.holds(on_gpus(job, chosen, terms)):
                return on_gpus(job, chosen, terms)
        return None

    def _without_gpus(self, job: Job) -> Allocation | None:
        shape = job.shape
        for node in self._suitable(job):
            extra = [(node.id, "cpu", shape.cpus)]
            extra += [(node.id, "memory", shape.mem_gib)] if shape.mem_gib else []
            extra += [(node.id, kind, amount) for kind, amount in shape.resources.items()]
            allocation = Allocation((), extra)
            if self.holds(allocation):
                return allocation
        return None


def part_for(job: Job) -> GpuPart:
    """What a job asks for of each GPU: a part of one, or whole ones."""
    shape = job.shape
    kept = shape.gpu_mem_gib - shape.gpu_mem_step_gib
    return GpuPart(min(1.0, job.gpus), kept, shape.gpu_mem_step_gib)


def gpus_needed(job: Job) -> int:
    """On how many GPUs it runs; 0 if it asks for none, or for one and a half."""
    if job.gpus < 1:
        return 1 if job.gpus else 0
    return 0 if job.gpus % 1 else int(job.gpus)


def on_gpus(job: Job, gpus: Sequence[SharedGpu], terms: Terms = (), parts: int = 1) -> Allocation:
    """What a job holds that has its part of each of these GPUs, on these terms (kinds, amounts).

    `parts`: these are the GPUs of one of so many equal parts of the job.
    """
    part = part_for(job)
    said = dict(terms)
    extra: list[tuple[int, str, float]] = []
    for gpu in gpus:
        if part.mem_gib and GPU_MEM not in said:
            extra.append((gpu.id, GPU_MEM, part.mem_gib))
        if part.step_gib and EPHEMERAL not in said:
            extra.append((gpu.id, EPHEMERAL, part.step_gib))
        extra += [(gpu.id, kind, amount) for kind, amount in terms]
    slices = [(gpu.id, min(1, job.gpus)) for gpu in gpus]
    return Allocation(slices, [*extra, *_on_nodes(job, gpus, parts)])


def with_terms(
    allocation: Allocation, terms: Mapping[int, Terms], kinds: Sequence[str]
) -> Allocation:
    """The same allocation with other amounts of these kinds on its GPUs (by vertex)."""
    kept = [part for part in allocation.extra if part[1] not in kinds]
    more = [(vertex, kind, amount) for vertex, some in terms.items() for kind, amount in some]
    return Allocation(allocation.slices, [*kept, *more], allocation.config)


def _on_nodes(job: Job, gpus: Sequence[SharedGpu], parts: int) -> Iterator[tuple[int, str, float]]:
    """CPUs, memory and other kinds, in proportion to the GPUs on each node."""
    nodes: dict[int, int] = {}
    for gpu in gpus:
        nodes[gpu.node.id] = nodes.get(gpu.node.id, 0) + 1
    for number, here in nodes.items():
        share = here / len(gpus) / parts
        for kind, amount in (("cpu", job.shape.cpus), ("memory", job.shape.mem_gib)):
            if amount:
                yield number, kind, amount * share
        for kind, amount in job.shape.resources.items():
            if kind not in TERMS:
                yield number, kind, amount * share


def fits_idle(job: Job, idle: SharedGpus, part: GpuPart | None = None) -> bool:
    """Is there any place (for `part` on each GPU, if not for what the job asks for)?"""
    return idle.place(job, lambda _: True, lambda gpu: gpu.id, part=part) is not None


def no_place(policy: str, job: Job, kind: str = " of one type") -> str:
    """What the owner of a job is told that finds no place although all GPUs are idle."""
    return (
        f"asks for {job.shape.describe()}, for which policy {policy!r} has no place even while all "
        f"GPUs are idle: it gives whole GPUs{kind}, or a part of one, on nodes with CPUs and "
        f"memory for them"
    )


class GpuSharingPolicy(DecidePolicy[P]):
    """A policy that says which GPUs jobs have, and on which terms: jobs stay where they are.

    In order of arrival (`order`), a job that waits gets GPUs that are `welcome`, the lowest `rank`
    first; who finds none waits, and others may pass. Then `settle` sets the terms of all.
    """

    plan_type = ExplicitPlan
    preemptive = False

    def decide(self, view: View) -> Plan:
        """Who runs goes on; who waits is placed if there is room."""
        plan = view.plan(ExplicitPlan)
        gpus = SharedGpus(view.topology, spent=view.spent)
        placed: dict[int, tuple[Job, Allocation]] = {}
        for job in view.running:
            placed[job.index] = (job, job.allocation)
            gpus.add(job, job.allocation)
        self.begin(view, gpus, placed)
        for job in self.order(view.waiting):
            allocation = self.find(job, gpus)
            if allocation is not None:
                placed[job.index] = (job, allocation)
                gpus.add(job, allocation)
            elif job.shape.gpu_mem_gib:
                lacking = self.lacks_memory(job, gpus)
                plan.explain(job, Reason.MEMORY if lacking else Reason.NONE)
        self.settle(view, plan, gpus, placed)
        for job, allocation in placed.values():
            if job.running and allocation == job.allocation:
                plan.keep(job)
            else:
                plan.place_at(job, allocation)
        return plan

    def order(self, waiting: list[Job]) -> Iterable[Job]:
        """Who is placed first."""
        return waiting

    def begin(self, view: View, gpus: SharedGpus, placed: "Placings") -> None:
        """Before anybody is placed."""

    def find(self, job: Job, gpus: SharedGpus) -> Allocation | None:
        """Where a job goes; None: it waits."""
        return gpus.place(job, lambda gpu: self.welcome(job, gpu), self.rank)

    def never(self, job: Job, topology: Topology) -> str | None:
        """A placement may know places that this policy does not: `count` mixes types of GPUs."""
        fits = self.could_have(job, SharedGpus(topology, closed=True))
        return None if fits else no_place(self.name, job)

    def could_have(self, job: Job, idle: SharedGpus) -> bool:
        """Would it find a place on the idle cluster?"""
        return fits_idle(job, idle)

    def lacks_memory(self, job: Job, gpus: SharedGpus) -> bool:
        """Would a job that found no place find one if it needed no memory of GPUs?"""
        part = GpuPart(min(1.0, job.gpus))
        fine = partial(self.welcome, job)
        return gpus.place(job, fine, self.rank, part=part) is not None

    def welcome(self, job: Job, gpu: SharedGpu) -> bool:  # noqa: ARG002 - part of the interface
        """May the job have this GPU, on which there is room?"""
        return True

    def rank(self, gpu: SharedGpu) -> Any:
        """Lower ones are taken first."""
        return len(gpu.parts)

    def settle(self, view: View, plan: ExplicitPlan, gpus: SharedGpus, placed: "Placings") -> None:
        """Set the terms of those who are placed."""


Placings = dict[int, tuple[Job, Allocation]]
"""By number of the job: what it holds in a plan."""
