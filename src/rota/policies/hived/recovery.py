"""Find the cells of a pod that runs already: from its bind information to leaf cells.

After a restart, perhaps with another configuration, pods are added again. A leaf cell that is
gone is ignored; a pod whose promised cell is gone loses its place in the virtual cluster and goes
on running as an opportunistic one.
"""

from typing import NamedTuple

from rota.policies.hived.build import Cells
from rota.policies.hived.cells import FREE, PhysicalCell, VirtualCell
from rota.policies.hived.pods import HIGHEST_GUARANTEED, BindInfo, PodPlacement, PodSpec


class RecoveredGroup(NamedTuple):
    """One leaf cell of a pod that runs."""

    leaf: PhysicalCell
    virtual: VirtualCell | None
    opportunistic: bool = False
    """It never had a virtual cell."""
    lost: bool = False
    """It had one, and there is none for it now."""


def find_leaf(
    cells: Cells, chain: str, place: PodPlacement, number: int, spec: PodSpec | None
) -> RecoveredGroup | None:
    """The physical leaf cell of a pod, and the virtual one if `spec` is given."""
    leaf = _physical(cells, chain, place.physical_node, place.physical_leaf_cell_indices[number])
    if leaf is None:
        return None
    if not place.preassigned_cell_types:
        return RecoveredGroup(leaf, None, lost=True)
    if spec is None:
        return RecoveredGroup(leaf, None)
    promised = place.preassigned_cell_types[number]
    if not promised:
        return RecoveredGroup(leaf, None, opportunistic=True)
    virtual = _virtual(cells, leaf, promised, spec)
    return RecoveredGroup(leaf, virtual, lost=virtual is None)


def physical_leaves(cells: Cells, bind: BindInfo) -> list[PhysicalCell]:
    """All leaf cells of a group that are in the configuration."""
    found = (
        _physical(cells, bind.chain, place.physical_node, index)
        for places in bind.group
        for place in places
        for index in place.physical_leaf_cell_indices
    )
    return [leaf for leaf in found if leaf is not None]


def _physical(cells: Cells, chain: str, node: str, index: int) -> PhysicalCell | None:
    """The leaf cell in its chain, or in another one that it was moved to."""
    for other in (chain, *(other for other in cells.chains if other != chain)):
        leaf = cells.leaves.get((other, node, index))
        if leaf is not None:
            return leaf
    return None


def _virtual(cells: Cells, leaf: PhysicalCell, promised: str, spec: PodSpec) -> VirtualCell | None:
    """The virtual cell for a leaf cell that was part of a promised cell of this type."""
    vc = cells.vcs.get(spec.virtual_cluster)
    level = cells.levels[promised].level if promised in cells.levels else 0
    if vc is None or cells.type_at[leaf.chain].get(level) != promised:
        return None
    if spec.pinned_cell_id:
        lists = vc.pinned.get(spec.pinned_cell_id)
    else:
        lists = vc.free_tops.get(leaf.chain)
    if lists is None:
        return None
    return _map_back(leaf, lists.get(level, []), level, spec.priority)


def _map_back(
    cell: PhysicalCell, tops: list[VirtualCell], level: int, priority: int
) -> VirtualCell | None:
    """The virtual cell for a physical one, by way of the cell that contains it."""
    if cell.virtual is not None:
        return cell.virtual
    if cell.level == level:
        return _lowest(tops, priority) if cell.is_free() else None  # parts of it have been given
    if cell.parent is None:
        return None
    parent = _map_back(cell.parent, tops, level, priority)
    return None if parent is None else _lowest(parent.children, priority)


def _lowest(cells: list[VirtualCell], priority: int) -> VirtualCell | None:
    """A free virtual cell, else the one of the lowest priority below the given one."""
    found, lowest = None, HIGHEST_GUARANTEED
    for cell in cells:
        if cell.priority == FREE:
            if cell.physical is None:
                return cell  # a bound free cell stands for a bad one: it cannot be taken
        elif cell.priority < min(priority, lowest):
            found, lowest = cell, cell.priority
    return found
