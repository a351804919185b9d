"""Best fit: the node on which the least is left over.

What would stay free of each declared resource (GPUs, CPUs, memory) is measured against the largest
node of the cluster and summed with weights; the node with the smallest sum wins, the first of
equals. With GPUs only this is the node with the fewest free GPUs that suffices.

When no single node has room, the request is split over the fewest nodes: those with the most room
first, the last part on the fullest node that holds it. This is what sets it apart from
`consolidate`, which would rather wait.
"""

from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.topology import Topology
from rota.placement.base import Placement, Room
from rota.placement.choices import Choice, best_node, enough, fewest_nodes


class BestFitParams(Params, frozen=True):
    """Weights of what is left over of each resource."""

    gpu_weight: float = 1.0
    cpu_weight: float = 1.0
    mem_weight: float = 1.0


class BestFit(Placement):
    """Leave as little as possible over on the node."""

    name = "best-fit"
    Parameters = BestFitParams

    def __init__(
        self, topology: Topology, params: BestFitParams | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(topology, params, seed=seed)
        weights = params or BestFitParams()
        nodes = topology.nodes
        # weight per GPU, per CPU and per GiB
        self._per_gpu = weights.gpu_weight / (max(node.gpus for node in nodes) or 1)
        self._per_cpu = weights.cpu_weight / (max(node.cpus for node in nodes) or 1)
        self._per_gib = weights.mem_weight / (max(node.mem_gib for node in nodes) or 1)

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """The node with the least left over; if none has room, the fewest nodes."""
        need = shape.gpus or 1
        offers = room.offers(shape)

        def left_over(position: int) -> float:
            # what the request takes is the same everywhere, so that free amounts rank alike
            return (
                self._per_gpu * room.left(position)
                + self._per_cpu * room.cpus[position]
                + self._per_gib * room.mem_gib[position]
            )

        best = best_node(need, range(len(offers)), offers, left_over)
        if best >= 0:
            return [(best, need)]
        if shape.gpus < 1:
            return None
        for positions in self.kinds:
            choice = fewest_nodes(need, positions, offers)
            if choice is not None:
                return choice
        return None

    def feasible(self, shape: Shape, room: Room) -> bool:
        """Enough in total; what is not divided needs one node."""
        offers = room.offers(shape)
        if shape.gpus < 1:
            return max(offers) > 0
        return enough(shape.gpus, self.kinds, offers)
