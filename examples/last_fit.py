"""Last fit: the last node, in the order of the cluster, that holds all of the request.

Small jobs gather at the end of the list, so that nodes at its beginning stay whole for large ones.
A request that is larger than every node takes nodes in order, each as far as it goes.
"""

from rota.core.jobs import Job, Shape
from rota.placement.base import Choice, Placement, Room
from rota.placement.choices import enough, first_node, in_order


class LastFit(Placement):
    """Look at the nodes from the last to the first and take the first that will do."""

    name = "last-fit"

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        """The last node with room; for more than a node holds, nodes in order."""
        need = shape.gpus or 1
        offers = room.offers(shape)
        if self.fits_one_node(shape):
            last = first_node(need, reversed(range(len(offers))), offers)
            return None if last < 0 else [(last, need)]
        for positions in self.kinds:
            choice = in_order(need, positions, offers)
            if choice is not None:
                return choice
        return None

    def feasible(self, shape: Shape, room: Room) -> bool:
        """One node with room, or enough in total; quicker than `choose`."""
        need = shape.gpus or 1
        offers = room.offers(shape)
        if self.fits_one_node(shape):
            return max(offers) >= need
        return enough(need, self.kinds, offers)
