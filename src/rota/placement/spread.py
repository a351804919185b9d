"""Spread: as few GPUs per node as possible.

The GPUs of a job go one by one to the nodes in turn, those with the most free GPUs first, so that a
job of four on four nodes with room gets one on each. Jobs that one GPU suffices go where the most
is free. The opposite of `consolidate`: good for jobs that fight for the resources of a node, bad
for those that talk a lot.
"""

from rota.core.jobs import Job, Shape
from rota.core.sums import ordered_sum
from rota.placement.base import Placement, Room
from rota.placement.choices import Choice, best_node, enough


class Spread(Placement):
    """Use the emptiest nodes, and many of them."""

    name = "spread"

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """Deal the GPUs out in turn, beginning with the emptiest node."""
        offers = room.offers(shape)
        if shape.gpus < 1:
            need = shape.gpus or 1
            best = best_node(need, range(len(offers)), offers, lambda p: -room.left(p))
            return None if best < 0 else [(best, need)]
        for positions in self.kinds:
            if ordered_sum(offers[p] for p in positions) >= shape.gpus:
                order = sorted(positions, key=lambda p: (-offers[p], p))
                return _dealt(int(shape.gpus), [(p, int(offers[p])) for p in order])
        return None

    def feasible(self, shape: Shape, room: Room) -> bool:
        """Enough in total; what is not divided needs one node."""
        offers = room.offers(shape)
        if shape.gpus < 1:
            return max(offers) > 0
        return enough(shape.gpus, self.kinds, offers)


def _dealt(need: int, nodes: list[tuple[int, int]]) -> Choice:
    """One GPU per node and turn, until all are dealt out; the nodes have enough."""
    amounts = dict.fromkeys((position for position, _ in nodes), 0)
    turn = 0
    while need:
        turn += 1
        for position, offer in nodes:
            if offer < turn:
                break  # the nodes after it offer even less
            amounts[position] += 1
            need -= 1
            if not need:
                break
    return [(position, amount) for position, amount in amounts.items() if amount]
