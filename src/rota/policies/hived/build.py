"""The cells of a cluster, from its configuration."""

from collections.abc import Iterable, Mapping

from rota.core.errors import ClusterSpecError
from rota.policies.hived.cells import PhysicalCell, VirtualCell
from rota.policies.hived.config import (
    CellLevel,
    HivedConfig,
    PhysicalSpec,
    VirtualClusterSpec,
    cell_levels,
)


class HivedCluster:
    """The cells of one tenant, by chain and level."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tops: list[VirtualCell] = []
        """All its top cells, in the order of the configuration."""
        self.free_tops: dict[str, dict[int, list[VirtualCell]]] = {}
        """Top cells that are not pinned."""
        self.cells: dict[str, dict[int, list[VirtualCell]]] = {}
        """All cells that are not pinned."""
        self.pinned: dict[str, dict[int, list[VirtualCell]]] = {}
        """All cells of each pinned cell."""


class Cells:
    """Everything that stays: the trees of physical and virtual cells, and ways to find them."""

    def __init__(self, config: HivedConfig) -> None:
        self.levels = cell_levels(config)
        self.chains: dict[str, dict[int, list[PhysicalCell]]] = {}
        self.tops: dict[str, list[PhysicalCell]] = {}
        self.pinned: dict[str, PhysicalCell] = {}
        self.leaves: dict[tuple[str, str, int], PhysicalCell] = {}
        """Leaf cells by chain, node and index."""
        self.on_node: dict[str, list[PhysicalCell]] = {}
        for spec in config.physical_cluster.physical_cells:
            top = self._physical(spec, spec.cell_type, "")
            self.tops.setdefault(top.chain, []).append(top)
        self.type_at = {chain: self._types(chain) for chain in self.chains}
        self.leaves_at = {
            chain: {level: self.levels[name].leaves for level, name in types.items()}
            for chain, types in self.type_at.items()
        }
        self.vcs = {
            name: self._virtual(name, promise) for name, promise in config.virtual_clusters.items()
        }

    def chains_of_leaves(self, order: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """For each type of leaf cell the chains to try, in the order asked for."""
        found: dict[str, list[str]] = {}
        for chain in self.chains:
            found.setdefault(self.levels[chain].leaf, []).append(chain)
        for leaf, chains in order.items():
            known = found.get(leaf, [])
            first = [chain for chain in chains if chain in known]
            found[leaf] = first + [chain for chain in known if chain not in first]
        return {leaf: found[leaf] for leaf in sorted(found)}

    def tops_of(self, vc: str, chain: str, pinned: str) -> list[VirtualCell]:
        """What a virtual cluster was promised of a chain, or one pinned cell of it."""
        held = self.vcs[vc]
        by_level = held.pinned[pinned] if pinned else held.free_tops.get(chain, {})
        if pinned:
            return by_level[max(by_level)]
        return [top for tops in by_level.values() for top in tops]

    def _types(self, chain: str) -> dict[int, str]:
        types, name = {}, chain
        while name:
            types[self.levels[name].level] = name
            name = self.levels[name].child
        return types

    def _physical(self, spec: PhysicalSpec, chain: str, node: str) -> PhysicalCell:
        level = self.levels[spec.cell_type]
        cell = PhysicalCell(
            chain,
            level.level,
            level.name,
            spec.address,
            at_node=level.at_node,
            leaves=level.leaves,
        )
        self.chains.setdefault(chain, {}).setdefault(level.level, []).append(cell)
        last = spec.address.rpartition("/")[2]
        if level.at_node and not level.above_node:
            node = last
        if spec.pinned_cell_id:
            self.pinned[spec.pinned_cell_id] = cell
            cell.pinned = True
        if level.level == 1:
            self._leaf(cell, node, int(last))
            return cell
        for child in spec.cell_children:
            cell.adopt(self._physical(child, chain, node))
        _take_over(cell, level)
        return cell

    def _leaf(self, cell: PhysicalCell, node: str, index: int) -> None:
        cell.nodes, cell.indices = (node,), (index,)
        if (cell.chain, node, index) in self.leaves:
            message = f"leaf cell {cell.address!r}: index {index} is twice on node {node!r}"
            raise ClusterSpecError(message)
        self.leaves[cell.chain, node, index] = cell
        self.on_node.setdefault(node, []).append(cell)

    def _virtual(self, name: str, promise: VirtualClusterSpec) -> HivedCluster:
        vc = HivedCluster(name)
        for spec in promise.virtual_cells:
            level = self.levels[spec.name]
            for _ in range(spec.cell_number):
                lists = vc.cells.setdefault(spec.chain, {})
                top = self._tree(vc, spec.chain, level, lists)
                tops = vc.free_tops.setdefault(spec.chain, {})
                tops.setdefault(level.level, []).append(top)
        for pinned in promise.pinned_cells:
            cell = self.pinned.get(pinned.pinned_cell_id)
            if cell is None:
                message = (
                    f"virtual cluster {name!r}: no physical cell has "
                    f"the pinnedCellId {pinned.pinned_cell_id!r}"
                )
                raise ClusterSpecError(message)
            lists = vc.pinned.setdefault(pinned.pinned_cell_id, {})
            self._tree(vc, cell.chain, self.levels[cell.type_name], lists)
        return vc

    def _tree(
        self, vc: HivedCluster, chain: str, level: CellLevel, lists: dict[int, list[VirtualCell]]
    ) -> VirtualCell:
        """One promised cell with all cells in it."""
        address = f"{vc.name}/{len(vc.tops)}"
        top = self._branch(vc.name, chain, level, (address, 0), lists)
        for cell in top.below():
            cell.preassigned = top
        vc.tops.append(top)
        return top

    def _branch(
        self,
        vc: str,
        chain: str,
        level: CellLevel,
        place: tuple[str, int],
        lists: dict[int, list[VirtualCell]],
    ) -> VirtualCell:
        address, number = place
        cell = VirtualCell(
            chain, level.level, level.name, address, at_node=level.at_node, leaves=level.leaves
        )
        cell.vc = vc
        lists.setdefault(level.level, []).append(cell)
        for child in range(number * level.children, (number + 1) * level.children):
            below = (f"{address}/{child}", child)
            cell.adopt(self._branch(vc, chain, self.levels[level.child], below, lists))
        return cell


def _take_over(cell: PhysicalCell, level: CellLevel) -> None:
    """Nodes and indices of a cell from its children."""
    if level.above_node:
        cell.nodes = tuple(node for child in cell.children for node in child.nodes)
    else:
        cell.nodes = cell.children[0].nodes
        cell.indices = tuple(index for child in cell.children for index in child.indices)
