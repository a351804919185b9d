"""Ways of dividing a request over nodes, shared by the placements.

`offers` is what every node could serve now, `need` the GPUs asked. Each function is feasible for
fewer requests, never for more, when an offer shrinks.
"""

from collections.abc import Callable, Iterable, Sequence

from rota.core.sums import ordered_sum
from rota.placement.room import EPSILON

Choice = list[tuple[int, float]]
"""(position of a node, GPUs taken there; 1 for a request without GPUs)."""


def in_order(need: float, positions: Iterable[int], offers: Sequence[float]) -> Choice | None:
    """Nodes in this order, each as far as it goes."""
    choice: Choice = []
    for position in positions:
        amount = min(offers[position], need)
        if amount > 0:
            choice.append((position, amount))
            need -= amount
            if need <= EPSILON:
                return choice
    return None


def one_each(
    nodes: int, part: float, positions: Iterable[int], offers: Sequence[float]
) -> Choice | None:
    """So many nodes with the same part on each: those that offer least beyond it, ties in order."""
    suitable = [position for position in positions if offers[position] >= part]
    if len(suitable) < nodes:
        return None
    part = int(part) if part == int(part) else part
    chosen = sorted(suitable, key=lambda position: (offers[position], position))[:nodes]
    return [(position, part) for position in sorted(chosen)]


def first_node(need: float, positions: Iterable[int], offers: Sequence[float]) -> int:
    """The first node that holds all of it; -1 if none does."""
    for position in positions:
        if offers[position] >= need:
            return position
    return -1


def best_node(
    need: float, positions: Iterable[int], offers: Sequence[float], rank: Callable[[int], float]
) -> int:
    """Of the nodes that hold all of it the one with the lowest rank, ties in order; -1 if none."""
    best, lowest = -1, 0.0
    for position in positions:
        if offers[position] >= need:
            here = rank(position)
            if best < 0 or here < lowest:
                best, lowest = position, here
    return best


def fewest_nodes(need: float, positions: Iterable[int], offers: Sequence[float]) -> Choice | None:
    """The nodes with the most first; the last part goes to the fullest node with room for it."""
    order = sorted((p for p in positions if offers[p] > 0), key=lambda p: (-offers[p], p))
    choice: Choice = []
    for i, position in enumerate(order):
        if offers[position] >= need:
            last = min((p for p in order[i:] if offers[p] >= need), key=lambda p: (offers[p], p))
            return [*choice, (last, need)]
        choice.append((position, offers[position]))
        need -= offers[position]
    return None


def whole_nodes(
    need: float, order: Iterable[int], offers: Sequence[float], capacity: Sequence[float]
) -> tuple[Choice, float]:
    """Idle nodes in this order as long as the request fills them, and what remains of it.

    Idle means: the node offers all that it could ever serve of this request.
    """
    choice: Choice = []
    for position in order:
        size = capacity[position]
        if 0 < size <= need and offers[position] >= size:
            choice.append((position, size))
            need -= size
    return choice, need


def enough(need: float, kinds: Iterable[Iterable[int]], offers: Sequence[float]) -> bool:
    """Do the nodes of one kind have enough in total?"""
    return any(ordered_sum(offers[p] for p in positions) >= need for positions in kinds)
