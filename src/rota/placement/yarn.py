"""The `yarn` scheme of the Tiresias simulator (Gu et al., NSDI 2019): Microsoft's YARN, simplified.

A request that fits one node goes to the first node with room. A larger one takes wholly idle nodes
in order as long as it fills them, and the first other node with room for the rest. All its nodes
hang under the same switch, that is, under the same vertex directly above the nodes; switches are
tried in order.

The CPUs and the memory that Tiresias charges (2 or 6 CPUs per GPU, ...) are facts about its jobs,
not about the placement: put them into the requests and the cluster where they shall count. On nodes
of unequal size "fits one node" means the largest node; types are never mixed.
"""

from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.topology import Topology
from rota.placement.base import Placement, Room
from rota.placement.choices import Choice, first_node, whole_nodes


class Yarn(Placement):
    """First fit on a node, or idle nodes under one switch."""

    name = "yarn"
    splits = False

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        switches: dict[tuple[int, str], list[int]] = {}
        for position, node in enumerate(topology.nodes):
            if node.gpus:
                switches.setdefault((node.parent, node.gpu_type), []).append(position)
        self._switches = list(switches.values())

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """The first node with room, or idle nodes and a rest under one switch."""
        need = shape.gpus or 1
        offers = room.offers(shape)
        if self.fits_one_node(shape):
            first = first_node(need, range(len(offers)), offers)
            return None if first < 0 else [(first, need)]
        capacity = self.capacity(shape)
        for positions in self._switches:
            choice, rest = whole_nodes(need, positions, offers, capacity)
            if not rest:
                return choice
            taken = {position for position, _ in choice}
            last = first_node(rest, (p for p in positions if p not in taken), offers)
            if last >= 0:
                return [*choice, (last, rest)]
        return None
