"""Who physically occupies what: for clusters where stopping takes time, and for untrusted plans."""

from rota.core.allocation import Allocation
from rota.core.errors import InvalidPlanError
from rota.core.jobs import Job
from rota.core.topology import DEVICE, NODE, Topology

EPSILON = 1e-6


class Occupancy:
    """GPUs in use per vertex. A slice of a device counts on its node too."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._vertices = topology.vertices
        self._used: dict[int, float] = {}

    def _places(self, allocation: Allocation) -> list[tuple[int, float]]:
        places = list(allocation.slices)
        for vertex, amount in allocation.slices:
            if self._vertices[vertex].level == DEVICE:
                places.append((self._vertices[vertex].node, amount))
        return places

    def change(self, allocation: Allocation, sign: int) -> None:
        """Occupy (+1) or vacate (-1)."""
        for vertex, amount in self._places(allocation):
            self._used[vertex] = self._used.get(vertex, 0.0) + sign * amount

    def fits(self, allocation: Allocation) -> bool:
        """Is there room besides what is occupied?"""
        wanted: dict[int, float] = {}
        for vertex, amount in self._places(allocation):
            wanted[vertex] = wanted.get(vertex, 0.0) + amount
        return all(
            self._used.get(vertex, 0.0) + amount <= self._capacity(vertex) + EPSILON
            for vertex, amount in wanted.items()
        )

    def _capacity(self, vertex: int) -> float:
        place = self._vertices[vertex]
        if place.level in (NODE, DEVICE):
            return place.gpus
        return sum(
            node.gpus
            for node in self._topology.nodes
            if node.up and (not place.gpu_type or node.gpu_type == place.gpu_type)
        )

    def check(self, job: Job, allocation: Allocation) -> None:
        """Refuse an allocation that cannot be."""
        for vertex, amount in allocation.slices:
            place = self._vertices[vertex]
            if amount <= 0:
                raise InvalidPlanError(
                    f"job {job.id}: {amount:g} GPUs at {place.name}: give more than 0"
                )
            if place.level in (NODE, DEVICE) and not self._vertices[place.node].up:
                raise InvalidPlanError(f"job {job.id}: placed on {place.name}, which is down")
        if not self.fits(allocation):
            raise InvalidPlanError(
                f"job {job.id}: {allocation} over-commits a place: its GPUs are taken already"
            )
