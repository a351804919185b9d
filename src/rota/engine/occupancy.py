"""Who physically occupies what: for clusters where stopping takes time, and for untrusted plans."""

from collections.abc import Mapping

from rota.core.allocation import Allocation
from rota.core.errors import InvalidPlanError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.resources import CPU, GPU, MEMORY
from rota.core.topology import DEVICE, NODE, Topology, Vertex

EPSILON = 1e-6
GPUS = GPU.name


class Occupancy:
    """What is in use per vertex and kind. A shared GPU is one whole GPU less for its node."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._vertices = topology.vertices
        self._used: dict[tuple[int, str], float] = {}

    def _places(self, allocation: Allocation) -> dict[tuple[int, str], float]:
        wanted: dict[tuple[int, str], float] = {}
        for vertex, amount in allocation.slices:
            wanted[vertex, GPUS] = wanted.get((vertex, GPUS), 0.0) + amount
        for vertex, kind, amount in allocation.extra:
            wanted[vertex, kind] = wanted.get((vertex, kind), 0.0) + amount
        return wanted

    def change(self, allocation: Allocation, sign: int) -> None:
        """Occupy (+1) or vacate (-1)."""
        for place, amount in self._places(allocation).items():
            self._used[place] = self._used.get(place, 0.0) + sign * amount

    def fits(self, allocation: Allocation) -> bool:
        """Is there room besides what is occupied?"""
        wanted = self._places(allocation)
        if any(
            self._used.get(place, 0.0) + amount > self._capacity(*place) + EPSILON
            for place, amount in wanted.items()
        ):
            return False
        nodes = {self._vertices[vertex].node for vertex, kind in wanted if kind == GPUS}
        return all(node < 0 or self._whole_gpus(node, wanted) for node in nodes)

    def _whole_gpus(self, node: int, wanted: Mapping[tuple[int, str], float]) -> bool:
        """Do whole GPUs and shared ones go together on a node?"""
        total = self._used.get((node, GPUS), 0.0) + wanted.get((node, GPUS), 0.0)
        for device in self._topology.devices(node):
            in_use = self._used.get((device, GPUS), 0.0) + wanted.get((device, GPUS), 0.0)
            total += in_use > EPSILON
        return total <= self._vertices[node].gpus + EPSILON

    def exceeded(self, vertex: int) -> bool:
        """Is more of anything in use there than there is?"""
        return any(
            used > self._capacity(place, kind) + EPSILON
            for (place, kind), used in self._used.items()
            if place == vertex
        )

    def _capacity(self, vertex: int, kind: str) -> float:
        place = self._vertices[vertex]
        if place.level in (NODE, DEVICE):
            return _amount(place, kind) if self._declared(kind) else INF
        return sum(
            _amount(node, kind) if self._declared(kind) else INF
            for node in self._topology.nodes
            if node.up and (not place.gpu_type or node.gpu_type == place.gpu_type)
        )

    def _declared(self, kind: str) -> bool:
        """A cluster that declares no CPUs (or memory) anywhere does not limit them."""
        return kind == GPUS or any(_amount(node, kind) for node in self._topology.nodes)

    def _place(self, job: Job, vertex: int) -> Vertex:
        if not 0 <= vertex < len(self._vertices):
            raise InvalidPlanError(
                f"job {job.id}: there is no place {vertex}: use the `id` of a node, a GPU or a "
                "pool of `view.topology`"
            )
        return self._vertices[vertex]

    def check(self, job: Job, allocation: Allocation) -> None:
        """Refuse an allocation that cannot be."""
        for vertex, kind, amount in allocation.extra:
            node = self._place(job, vertex)
            if not 0 <= amount < INF:
                raise InvalidPlanError(
                    f"job {job.id}: {amount} of {kind} at {node.name}: give 0 or more"
                )
        for vertex, amount in allocation.slices:
            place = self._place(job, vertex)
            if not 0 < amount < INF:
                raise InvalidPlanError(
                    f"job {job.id}: {amount:g} GPUs at {place.name}: give more than 0"
                )
            if place.level not in (NODE, DEVICE):
                if place not in self._topology.pools:
                    raise InvalidPlanError(
                        f"job {job.id}: {place.level} {place.name} cannot be given away as such: "
                        f"name nodes, GPUs or a pool"
                    )
                continue
            node = self._vertices[place.node]
            if not node.open:
                raise InvalidPlanError(
                    f"job {job.id}: placed on {place.name}, which is "
                    f"{'drained' if node.up else 'down'}: use nodes that are `open`"
                )
            shape = job.shape
            if (shape.types and node.gpu_type not in shape.types) or not node.suits(shape.labels):
                raise InvalidPlanError(
                    f"job {job.id} asks for {shape.describe()}: {place.name} is not of that kind"
                )
        total = sum(used for (_, kind), used in self._used.items() if kind == GPUS)
        up = sum(node.gpus for node in self._topology.nodes if node.up)
        # pools and nodes overlap: together they must not exceed what is up
        if not self.fits(allocation) or total + allocation.gpus > up + EPSILON:
            raise InvalidPlanError(
                f"job {job.id}: {allocation} over-commits a place: its resources are taken already"
            )


def _amount(place: Vertex, kind: str) -> float:
    return {GPUS: place.gpus, CPU.name: place.cpus, MEMORY.name: place.mem_gib}.get(kind, INF)
