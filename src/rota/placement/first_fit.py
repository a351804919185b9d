"""First fit: the first node, in the order of the cluster, that holds all of the request.

What is larger than every node takes nodes in order, each as far as it goes. A request that one node
could hold is never split: it waits until one has room.
"""

from rota.core.jobs import Job, Shape
from rota.placement.base import Placement, Room
from rota.placement.choices import Choice, enough, first_node, in_order


class FirstFit(Placement):
    """Look at the nodes in order and take the first that will do."""

    name = "first-fit"
    splits = False

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """The first node with room; for more than a node holds, nodes in order."""
        need = shape.gpus or 1
        offers = room.offers(shape)
        if self.fits_one_node(shape):
            first = first_node(need, range(len(offers)), offers)
            return None if first < 0 else [(first, need)]
        for positions in self.kinds:
            choice = in_order(need, positions, offers)
            if choice is not None:
                return choice
        return None

    def feasible(self, shape: Shape, room: Room) -> bool:
        """One node with room, or enough in total."""
        need = shape.gpus or 1
        offers = room.offers(shape)
        if self.fits_one_node(shape):
            return max(offers) >= need
        return enough(need, self.kinds, offers)
