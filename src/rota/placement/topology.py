"""Topology: the smallest part of the cluster that holds the job, and there the fullest that does.

The tree of the cluster (racks, switches, nodes, ...) is searched from the nodes up: the job goes to
the lowest vertex under which enough is free; of several at the same height to the one with the
least free, the first of equals. If that is not a node, the job takes all that is free under the
child with the most, and what remains of it goes to the smallest part of the rest, and so on. So it
climbs as few levels as possible and uses few nodes. Types are never mixed within a job.

Nothing waits for a better place: whenever enough GPUs of a type are free, the job fits.
"""

from collections.abc import Sequence

from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.topology import Topology
from rota.placement.base import Placement, Room
from rota.placement.choices import Choice, enough


class TopologyAware(Placement):
    """Keep the parts of a job close together."""

    name = "topology"

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        self._paths = [(node.id, *topology.ancestors(node.id)) for node in topology.nodes]
        self._heights: dict[int, int] = {}
        self._parts: dict[int, list[int]] = {}  # vertex -> positions of the nodes under it
        for position, path in enumerate(self._paths):
            for height, vertex in enumerate(path):
                self._heights[vertex] = max(height, self._heights.get(vertex, 0))
                self._parts.setdefault(vertex, []).append(position)

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """The smallest part that holds it."""
        offers = room.offers(shape)
        need = shape.gpus or 1
        if shape.gpus < 1:
            rank = {position: room.left(position) for position, o in enumerate(offers) if o >= need}
            return [(min(rank, key=lambda p: (rank[p], p)), need)] if rank else None
        found = []
        for positions in self.kinds:
            left = {p: offers[p] for p in positions if offers[p] > 0}
            smallest = self._smallest(need, left)
            if smallest is not None:
                found.append((smallest, left))
        if not found:
            return None
        (_, _, vertex), left = min(found, key=lambda entry: entry[0])
        return self._fill(need, vertex, left)

    def feasible(self, shape: Shape, room: Room) -> bool:
        """Enough in total; what is not divided needs one node."""
        offers = room.offers(shape)
        if shape.gpus < 1:
            return max(offers) > 0
        return enough(shape.gpus, self.kinds, offers)

    def _smallest(
        self, need: float, left: dict[int, float], under: int = 0
    ) -> tuple[int, float, int] | None:
        """(height, GPUs free, vertex) of the smallest part with enough; None if there is none."""
        totals = self._totals(left, under)
        return min(
            (
                (self._heights[vertex], total, vertex)
                for vertex, total in totals.items()
                if total >= need
            ),
            default=None,
        )

    def _totals(self, left: dict[int, float], under: int) -> dict[int, float]:
        """GPUs free per vertex at and below `under`."""
        totals: dict[int, float] = {}
        for position, amount in left.items():
            path: Sequence[int] = self._paths[position]
            if under in path:
                for vertex in path[: path.index(under) + 1]:
                    totals[vertex] = totals.get(vertex, 0) + amount
        return totals

    def _fill(self, need: float, vertex: int, left: dict[int, float]) -> Choice:
        """Divide a request over the part under a vertex, which has enough but no child has."""
        choice: Choice = []
        while self._heights[vertex]:
            totals = self._totals(left, vertex)
            children = [v for v in totals if self.topology.vertices[v].parent == vertex]
            most = min(children, key=lambda v: (-totals[v], v))
            for position in self._parts[most]:
                amount = left.pop(position, 0)
                if amount:
                    choice.append((position, amount))
                    need -= amount
            smallest = self._smallest(need, left, vertex)
            if smallest is None:
                raise RuntimeError(f"{self.name}: the part under {vertex} has too little")
            vertex = smallest[2]
        position = self._parts[vertex][0]
        return [*choice, (position, need)]
