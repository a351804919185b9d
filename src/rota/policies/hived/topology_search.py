"""Find leaf cells for a gang so that it is packed, and lies close together inside each node.

The same search serves a virtual cluster (on virtual cells) and opportunistic pods (on physical
cells). The order of the nodes is kept from call to call: among equals, history decides.
"""

from collections.abc import Container, Iterable
from typing import Generic, TypeVar

from rota.policies.hived.cells import FREE, HivedCell, PhysicalCell, VirtualCell
from rota.policies.hived.pods import OPPORTUNISTIC

C = TypeVar("C", PhysicalCell, VirtualCell)

Placement = dict[int, list[list[C]]]
"""Leaf cells by pod size, pod and place in the pod."""


class TopologySearch(Generic[C]):
    """The nodes of a view: cells of a chain, of a virtual cluster's chain, or of a pinned cell."""

    def __init__(
        self, by_level: dict[int, list[C]], *, across_priorities: bool, thorough: bool = False
    ) -> None:
        self.nodes: list[C] = _nodes(by_level)
        self._across = across_priorities
        """Pack pods of all priorities together, or only those of the same priority."""
        self._thorough = thorough
        """Where first fit fails, try best fit, the largest pod first."""

    def find(
        self,
        sizes: list[int],
        priority: int,
        suggested: Container[str],
        *,
        anywhere: bool,
        apart: bool = False,
    ) -> Placement[C] | str:
        """Leaf cells for pods of these sizes (ascending); or why there are none.

        First without preemption; then cells of lower priority count as free. `anywhere` allows
        nodes outside `suggested`; `apart` wants a node for each pod.
        """
        picked: list[C] | str = ""
        level = OPPORTUNISTIC
        for level in dict.fromkeys((OPPORTUNISTIC, priority)):
            usable = self._arrange(level, suggested, anywhere=anywhere)
            picked = self._fit(sizes, level, usable, apart=apart)
            if isinstance(picked, str) and self._thorough:
                picked = self._fit_best(sizes, level, usable, apart=apart) or picked
            if not isinstance(picked, str):
                break
        if isinstance(picked, str):
            return picked
        available: dict[C, list[C]] = {}
        placement: Placement[C] = {}
        for size, node in zip(sizes, picked, strict=True):
            if node not in available:
                available[node] = _available(node, level)
            leaves = closest(available[node], size)
            taken = set(leaves)
            available[node] = [leaf for leaf in available[node] if leaf not in taken]
            placement.setdefault(size, []).append(leaves)
        return placement

    def _arrange(self, priority: int, suggested: Container[str], *, anywhere: bool) -> int:
        """Sort the nodes, best first, and those that cannot be used last; how many can be."""
        good: list[C] = []
        elsewhere: list[C] = []
        bad: list[C] = []
        for node, home in zip(self.nodes, map(_home, self.nodes), strict=True):
            if home is None or (home.healthy and (anywhere or home.nodes[0] in suggested)):
                good.append(node)
            elif home.healthy:
                elsewhere.append(node)
            else:
                bad.append(node)
        for nodes in (good, elsewhere, bad):
            if self._across:
                nodes.sort(key=lambda node: -sum(node.used.values()) if node.used else 0)
            else:
                nodes.sort(key=lambda node: _apart(node.used, priority))
        self.nodes = good + elsewhere + bad
        return len(good)

    def _fit(self, sizes: list[int], priority: int, usable: int, *, apart: bool) -> list[C] | str:
        """A node for each pod, first fit without going back; or why not."""
        picked: list[C] = []
        waiting = iter(sizes)
        size = next(waiting)
        for number, node in enumerate(self.nodes):
            free = room_on(node, priority, apart=apart)
            while free >= size:
                if number >= usable:
                    return _blocked(node)
                picked.append(node)
                free = 0 if apart else free - size
                following = next(waiting, None)
                if following is None:
                    return picked
                size = following
        return "insufficient capacity"

    def _fit_best(
        self, sizes: list[int], priority: int, usable: int, *, apart: bool
    ) -> list[C] | None:
        """A node for each pod, as tight as possible; first fit may have wasted a large one."""
        nodes = self.nodes[:usable]
        free = [room_on(node, priority, apart=apart) for node in nodes]
        places = best_fit(sizes, free, apart=apart)
        return None if places is None else [nodes[place] for place in places]


def room_on(node: HivedCell, priority: int, *, apart: bool) -> int:
    """Leaf cells of a node of the view that a priority can have; part of a node is no node."""
    if apart and not node.at_node:
        return 0
    free = node.leaves
    for at, many in node.used.items():
        if at >= priority:
            free -= many
    return free


def best_fit(sizes: list[int], free: list[int], *, apart: bool) -> list[int] | None:
    """For each pod (sizes ascending) the place with the least room that is enough; None: no way.

    Whether it succeeds depends on how much is free in each place, not on their order.
    """
    left = list(free)
    found: list[int] = []
    for size in reversed(sizes):
        fitting = [place for place, room in enumerate(left) if room >= size]
        if not fitting:
            return None
        place = min(fitting, key=left.__getitem__)
        left[place] = 0 if apart else left[place] - size
        found.append(place)
    return found[::-1]


def _blocked(node: C) -> str:
    home = _home(node)
    what = "non-suggested" if home is None or home.healthy else "bad"
    where = node.address if home is None else home.address
    return f"have to use at least one {what} node {where}"


def closest(available: list[C], size: int) -> list[C]:
    """The first so many leaf cells, in order, whose lowest common ancestor is as low as it gets."""
    over: list[HivedCell] = list(available)
    while True:
        counts: dict[HivedCell, list[C]] = {}
        for leaf, ancestor in zip(available, over, strict=True):
            counts.setdefault(ancestor, []).append(leaf)
        full = next((leaves for leaves in _in_order(counts, size)), None)
        if full is not None:
            return full[:size]
        over = [ancestor.parent or ancestor for ancestor in over]


def _in_order(counts: dict[HivedCell, list[C]], size: int) -> Iterable[list[C]]:
    # A dict keeps the order of first insertion: that of the first leaf of each ancestor.
    return (leaves for leaves in counts.values() if len(leaves) >= size)


def _apart(used: dict[int, int], priority: int) -> tuple[int, int]:
    """More at the same priority first, then less at higher ones."""
    if not used:  # most nodes of a large cluster; this is the longest loop of a call
        return 0, 0
    return -used.get(priority, 0), sum(number for at, number in used.items() if at > priority)


def _home(node: PhysicalCell | VirtualCell) -> PhysicalCell | None:
    """The physical cell of a node of the view; None while a virtual one is not bound."""
    return node if isinstance(node, PhysicalCell) else node.physical


def _available(node: C, priority: int) -> list[C]:
    """Free leaf cells of a node, then those that may be preempted."""
    leaves = [cell for cell in node.below() if cell.level == 1]
    free = [leaf for leaf in leaves if leaf.priority == FREE]
    return free + [leaf for leaf in leaves if FREE < leaf.priority < priority]


def _nodes(by_level: dict[int, list[C]]) -> list[C]:
    """Cells at the level of nodes, and top cells below it (each counts as a node)."""
    levels = sorted(by_level)
    node_level = next((at for at in levels if by_level[at][0].at_node), levels[-1])
    found: dict[C, None] = {}
    for level in range(node_level, 0, -1):
        for cell in by_level[level]:
            top = cell
            while not top.at_node and top.parent is not None:
                top = top.parent
            if top not in found:
                found[cell] = None
    return list(found)
