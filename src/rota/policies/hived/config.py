"""What a HiveD configuration says: types of cells, the physical cells, who was promised what.

The keys are those of HiveD's own files (`physicalCluster`, `virtualClusters`). Addresses and types
that a file leaves out are filled in here, and whatever makes no sense is refused with the cell's
name.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core.errors import ClusterSpecError


class CellType(msgspec.Struct, frozen=True, rename="camel"):
    """A cell of this type has so many children of that type."""

    child_cell_type: str
    child_cell_number: int
    is_node_level: bool = False


class PhysicalSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One physical cell, with those in it."""

    cell_type: str = ""
    cell_address: str | int = ""
    pinned_cell_id: str = ""
    cell_children: tuple["PhysicalSpec", ...] = ()

    @property
    def address(self) -> str:
        """The address as text: a leaf's index is often written as a number."""
        return str(self.cell_address)


class VirtualSpec(msgspec.Struct, frozen=True, rename="camel"):
    """So many cells of a type, written as the way down from the top of the chain: `TOP.X.Y`."""

    cell_type: str
    cell_number: int = 1

    @property
    def chain(self) -> str:
        """The type of the top cell."""
        return self.cell_type.partition(".")[0]

    @property
    def name(self) -> str:
        """The type of the cell itself."""
        return self.cell_type.rpartition(".")[2]


class PinnedSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A certain physical cell."""

    pinned_cell_id: str


class VirtualClusterSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What one tenant was promised."""

    virtual_cells: tuple[VirtualSpec, ...] = ()
    pinned_cells: tuple[PinnedSpec, ...] = ()


class Sku(msgspec.Struct, frozen=True):
    """What goes with one leaf cell."""

    gpu: float = 0
    cpu: float = 0
    memory: str | float = 0


class PhysicalClusterSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The hardware."""

    cell_types: dict[str, CellType] = {}
    physical_cells: tuple[PhysicalSpec, ...] = ()
    sku_types: dict[str, Sku] = {}


class HivedConfig(msgspec.Struct, frozen=True, rename="camel"):
    """A whole configuration, addresses filled in."""

    physical_cluster: PhysicalClusterSpec
    virtual_clusters: dict[str, VirtualClusterSpec] = {}


class CellLevel(msgspec.Struct, frozen=True):
    """A type of cell in its chain; leaf cells are level 1."""

    name: str
    level: int
    child: str
    children: int
    at_node: bool
    above_node: bool
    leaf: str
    leaves: int


def load_config(data: Mapping[str, Any]) -> HivedConfig:
    """Read a configuration from plain data and complete it.

    Raises:
        ClusterSpecError: Something is missing, of the wrong type or inconsistent.
    """
    try:
        config = msgspec.convert(data, HivedConfig)
    except msgspec.ValidationError as error:
        message = f"HiveD configuration: {error}"
        raise ClusterSpecError(message) from error
    levels = cell_levels(config)
    cells = tuple(
        _complete(spec, spec.cell_type, levels, str(place), "")
        for place, spec in enumerate(config.physical_cluster.physical_cells)
    )
    cluster = msgspec.structs.replace(config.physical_cluster, physical_cells=cells)
    config = msgspec.structs.replace(config, physical_cluster=cluster)
    _check_places(cells)
    _check_promises(config, levels)
    return config


def cell_levels(config: HivedConfig) -> dict[str, CellLevel]:
    """Each type of cell with its level; a type without children of its own is a leaf."""
    types = config.physical_cluster.cell_types
    levels: dict[str, CellLevel] = {}
    for name in types:
        _add_level(name, types, levels, ())
    return levels


def _add_level(
    name: str, types: Mapping[str, CellType], levels: dict[str, CellLevel], way: tuple[str, ...]
) -> CellLevel:
    if name in levels:
        return levels[name]
    if name not in types:
        levels[name] = CellLevel(
            name, 1, "", 0, at_node=False, above_node=False, leaf=name, leaves=1
        )
        return levels[name]
    if name in way:
        message = f"cell type {name!r} contains itself: {' > '.join((*way, name))}"
        raise ClusterSpecError(message)
    spec = types[name]
    if spec.child_cell_number < 1:
        message = f"cell type {name!r}: childCellNumber is {spec.child_cell_number}, not 1 or more"
        raise ClusterSpecError(message)
    child = _add_level(spec.child_cell_type, types, levels, (*way, name))
    if spec.is_node_level and child.at_node:
        message = f"cell type {name!r} is a node, and so is a type in it: leave one isNodeLevel out"
        raise ClusterSpecError(message)
    levels[name] = CellLevel(
        name,
        child.level + 1,
        child.name,
        spec.child_cell_number,
        at_node=child.at_node or spec.is_node_level,
        above_node=child.at_node,
        leaf=child.leaf,
        leaves=child.leaves * spec.child_cell_number,
    )
    return levels[name]


def _complete(
    spec: PhysicalSpec, name: str, levels: Mapping[str, CellLevel], default: str, prefix: str
) -> PhysicalSpec:
    """One physical cell with its type, its whole address and all cells in it."""
    address = spec.address or default
    if not address.startswith(prefix):
        address = prefix + address
    level = _known_level(spec, name, levels, address, top=not prefix)
    if level.level == 1:
        if not address.rpartition("/")[2].isdecimal():
            message = f"leaf cell {address!r}: its address must end in the index on its node"
            raise ClusterSpecError(message)
        return msgspec.structs.replace(spec, cell_type=name, cell_address=address)
    children = spec.cell_children or (PhysicalSpec(),) * level.children
    if len(children) != level.children:
        message = (
            f"physical cell {address!r} has {len(children)} children, "
            f"but its type {name!r} has {level.children}"
        )
        raise ClusterSpecError(message)
    is_node = level.at_node and not level.above_node
    number = default.rpartition("/")[2]
    # Indices of leaf cells start again on each node; above nodes they only keep addresses apart.
    first = 0 if is_node else int(number) * level.children
    completed = tuple(
        _complete(child, level.child, levels, str(first + place), f"{address}/")
        for place, child in enumerate(children)
    )
    return msgspec.structs.replace(
        spec, cell_type=name, cell_address=address, cell_children=completed
    )


def _known_level(
    spec: PhysicalSpec, name: str, levels: Mapping[str, CellLevel], address: str, *, top: bool
) -> CellLevel:
    if name not in levels:
        message = f"physical cell {address!r}: there is no cell type {name!r} in cellTypes"
        raise ClusterSpecError(message)
    if spec.cell_type not in ("", name):
        message = f"physical cell {address!r} is of type {spec.cell_type!r}, expected {name!r}"
        raise ClusterSpecError(message)
    if top and not levels[name].at_node:
        message = f"physical cell {address!r}: its type {name!r} is smaller than a node"
        raise ClusterSpecError(message)
    return levels[name]


def _check_places(cells: tuple[PhysicalSpec, ...]) -> None:
    """No two cells at one address, no two with one pinned id."""
    addresses: set[str] = set()
    pinned: dict[str, str] = {}
    waiting = list(cells)
    while waiting:
        cell = waiting.pop()
        waiting += cell.cell_children
        if cell.address in addresses:
            message = f"two physical cells have the address {cell.address!r}"
            raise ClusterSpecError(message)
        addresses.add(cell.address)
        if cell.pinned_cell_id:
            other = pinned.setdefault(cell.pinned_cell_id, cell.address)
            if other != cell.address:
                message = (
                    f"physical cells {other!r} and {cell.address!r} "
                    f"have the same pinnedCellId {cell.pinned_cell_id!r}"
                )
                raise ClusterSpecError(message)


def _check_promises(config: HivedConfig, levels: Mapping[str, CellLevel]) -> None:
    """Every promise names cells that exist; the counts are checked when the cells are built."""
    chains = {spec.cell_type for spec in config.physical_cluster.physical_cells}
    for vc, promise in config.virtual_clusters.items():
        for spec in promise.virtual_cells:
            where = f"virtual cluster {vc!r}: virtual cell {spec.cell_type!r}"
            if spec.chain not in chains:
                message = f"{where}: no physical cell has the type {spec.chain!r}"
                raise ClusterSpecError(message)
            if spec.cell_number < 0:
                message = f"{where}: cellNumber is {spec.cell_number}, not 0 or more"
                raise ClusterSpecError(message)
            _check_way(where, spec, levels)


def _check_way(where: str, spec: VirtualSpec, levels: Mapping[str, CellLevel]) -> None:
    """`TOP.X.Y` leads down, perhaps over several levels at a time."""
    name = spec.chain
    for step in spec.cell_type.split(".")[1:]:
        while name != step:
            name = levels[name].child
            if not name:
                message = f"{where}: there is no {step!r} in {spec.chain!r}"
                raise ClusterSpecError(message)
