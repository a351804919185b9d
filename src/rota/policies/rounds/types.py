"""GPU types as policies for mixed clusters see them: where a gang fits, how fast it is there."""

from rota.core.jobs import Job, Shape
from rota.core.spec import MARK
from rota.core.topology import Topology, Vertex
from rota.core.view import View

SLACK = 1e-9  # GPUs: parts of them are sums of floats


def room_by_type(topology: Topology, shape: Shape) -> dict[str, float]:
    """GPUs of each type that a request accepts, on nodes that have all else that it asks for."""
    room = {kind: 0.0 for kind in topology.types if not shape.types or kind in shape.types}
    labels = {label for label in shape.labels if not label.startswith(MARK)}
    has_cpus = any(node.cpus for node in topology.nodes)
    has_mem = any(node.mem_gib for node in topology.nodes)
    for node in topology.nodes:
        if node.gpus and node.gpu_type in room and labels <= set(node.labels):
            room[node.gpu_type] += _usable(node, shape, has_cpus=has_cpus, has_mem=has_mem)
    return room


def _usable(node: Vertex, shape: Shape, *, has_cpus: bool, has_mem: bool) -> float:
    """GPUs of a node for which it has enough CPUs and memory."""
    gpus = float(node.gpus)
    if has_cpus and shape.cpus:
        gpus = min(gpus, node.cpus / shape.cpus * shape.gpus)
    if has_mem and shape.mem_gib:
        gpus = min(gpus, node.mem_gib / shape.mem_gib * shape.gpus)
    return float(int(gpus + SLACK)) if shape.gpus >= 1 else gpus


def held_type(job: Job, topology: Topology) -> str | None:
    """The type of all GPUs that a running job holds; None if it holds none, or several types."""
    if len(topology.types) == 1:
        return topology.types[0]  # its pool is the whole cluster, which has no type
    found = {topology.vertices[vertex].gpu_type for vertex, _ in job.allocation.slices}
    return found.pop() if len(found) == 1 else None


class GpuTypes:
    """On which GPU types a job can run at all, and which of them it prefers."""

    def __init__(self) -> None:
        self._room: dict[int, dict[str, float]] = {}  # by the number of a shape
        self._nodes = 0
        self._preferred: dict[int, list[str]] = {}  # by the number of a job, at one decision
        self._version = -1

    def able(self, job: Job, topology: Topology) -> list[str]:
        """Types that have enough GPUs for the whole gang when all nodes are up and idle.

        Empty for a gang that no single type can hold: it may only run on several at once.
        """
        if len(topology.nodes) != self._nodes:  # a live cluster grows
            self._room, self._nodes = {}, len(topology.nodes)
        number = job.shape.number
        if number not in self._room:
            self._room[number] = room_by_type(topology, job.shape)
        return [kind for kind, gpus in self._room[number].items() if gpus + SLACK >= job.gpus]

    def preferred(self, job: Job, view: View) -> list[str]:
        """The same, the fastest first; a type on which it makes no progress is left out."""
        if view.version != self._version:
            self._preferred, self._version = {}, view.version
        if job.index not in self._preferred:
            self._preferred[job.index] = self._by_speed(job, view)
        return self._preferred[job.index]

    def _by_speed(self, job: Job, view: View) -> list[str]:
        speeds = {kind: job.speed_on(kind) for kind in self.able(job, view.topology)}
        able = [kind for kind, speed in speeds.items() if speed > 0]
        return able if len(able) == 1 else sorted(able, key=lambda kind: -speeds[kind])
