"""Single GPUs and who shares them: for policies that say themselves which GPU a job has.

Such a policy declares `plan_type = ExplicitPlan`, makes a `SharedGpus` of the jobs that go on,
looks for room on it, and adds what it places. What fits by `SharedGpus` is what the engine accepts
(`rota.core.sharing`).
"""

from collections.abc import Iterable, Iterator, Sequence

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.core.sharing import (
    EPHEMERAL,
    GPU_MEM,
    OVERCOMMITS,
    GpuPart,
    conflict,
    memory_needed,
    parts_of,
)
from rota.core.topology import Topology, Vertex


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
        return sum(part.gpus for part in self.parts.values())

    @property
    def memory_gib(self) -> float:
        """Memory that its jobs need together."""
        return memory_needed(self.mode, list(self.parts.values()))

    def fits(self, part: GpuPart) -> bool:
        """May a job have this part of it beside those that are there?"""
        return not conflict(self.mode, self.mem_gib, [*self.parts.values(), part], self.type)


class SharedGpus:
    """All GPUs of nodes where something may be started, in the order of the cluster."""

    def __init__(self, topology: Topology, jobs: Iterable[Job] = ()) -> None:
        vertices = topology.vertices
        self._nodes = {node.id: node for node in topology.nodes}
        self._gpus: dict[int, SharedGpu] = {}
        self._whole: dict[int, float] = {}  # by node: whole GPUs that jobs have without names
        self._order = [node for node in topology.nodes if node.open]
        self._devices = {node.id: topology.devices(node.id) for node in topology.nodes}
        for node in topology.nodes:
            for device in self._devices[node.id]:
                self._gpus[device] = SharedGpu(vertices[device], node)
        for job in jobs:
            self.add(job, job.allocation)

    def __getitem__(self, device: int) -> SharedGpu:
        """By the number of its vertex."""
        return self._gpus[device]

    def __iter__(self) -> Iterator[SharedGpu]:
        """Those that may be given to jobs."""
        for node in self._order:
            yield from self.on(node)

    @property
    def nodes(self) -> Sequence[Vertex]:
        """Nodes where something may be started."""
        return self._order

    def on(self, node: Vertex) -> list[SharedGpu]:
        """The GPUs of a node that may be given away: without those that jobs have as whole ones."""
        gpus = [self._gpus[device] for device in self._devices[node.id]]
        nameless = round(self._whole.get(node.id, 0.0))
        for _ in range(nameless):
            gpus.remove(next(gpu for gpu in gpus if not gpu.parts))
        return gpus

    def add(self, job: Job, allocation: Allocation) -> None:
        """A job has this."""
        for vertex, part in parts_of(allocation).items():
            if vertex in self._gpus:
                self._gpus[vertex].parts[job.index] = part
            elif vertex in self._nodes and part.gpus:
                self._whole[vertex] = self._whole.get(vertex, 0.0) + part.gpus

    def remove(self, job: Job, allocation: Allocation) -> None:
        """It has it no more."""
        for vertex, part in parts_of(allocation).items():
            if vertex in self._gpus:
                self._gpus[vertex].parts.pop(job.index, None)
            elif vertex in self._nodes and part.gpus:
                self._whole[vertex] -= part.gpus

    def accepts(self, node: Vertex, job: Job) -> bool:
        """Is the node of a kind that the job accepts?"""
        shape = job.shape
        return (not shape.types or node.gpu_type in shape.types) and set(shape.labels) <= set(
            node.labels
        )


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


def on_gpus(
    job: Job, gpus: Sequence[SharedGpu], terms: Sequence[tuple[str, float]] = ()
) -> Allocation:
    """What a job holds that has its part of each of these GPUs, on these terms (kinds, amounts)."""
    part = part_for(job)
    extra: list[tuple[int, str, float]] = []
    for gpu in gpus:
        said = dict(terms)
        if part.mem_gib and GPU_MEM not in said:
            extra.append((gpu.id, GPU_MEM, part.mem_gib))
        if part.step_gib and EPHEMERAL not in said:
            extra.append((gpu.id, EPHEMERAL, part.step_gib))
        extra += [(gpu.id, kind, amount) for kind, amount in terms]
    each = min(1, job.gpus)
    return Allocation([(gpu.id, each) for gpu in gpus], [*extra, *_on_node(job, gpus)])


def _on_node(job: Job, gpus: Sequence[SharedGpu]) -> Iterator[tuple[int, str, float]]:
    """CPUs and memory, in proportion to the GPUs on each node."""
    nodes: dict[int, list[SharedGpu]] = {}
    for gpu in gpus:
        nodes.setdefault(gpu.node.id, []).append(gpu)
    for number, here in nodes.items():
        share = len(here) / len(gpus)
        if job.shape.cpus and here[0].node.cpus:
            yield number, "cpu", job.shape.cpus * share
        if job.shape.mem_gib and here[0].node.mem_gib:
            yield number, "memory", job.shape.mem_gib * share
        for kind, amount in job.shape.resources.items():
            yield number, kind, amount * share
