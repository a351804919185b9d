"""Take leaf cells into use and give them back; mark nodes as bad and as healthy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from rota.policies.hived.cells import FREE, PhysicalCell, VirtualCell, bind, unbind
from rota.policies.hived.free_cells import FreeCells, bind_like_parent
from rota.policies.hived.pods import LOWEST_GUARANTEED, OPPORTUNISTIC

ByChain = Mapping[str, FreeCells]


Pairs = Sequence[tuple[PhysicalCell, VirtualCell]]
"""Leaf cells of one group with their virtual ones."""


@contextmanager
def planning(
    by_chain: ByChain, cells: Sequence[PhysicalCell], promised: Iterable[VirtualCell] = ()
) -> Iterator[None]:
    """A group takes these leaf cells one after the other; see `FreeCells.planning`."""
    tops = frozenset(promised)
    with ExitStack() as plans:
        for chain in dict.fromkeys(cell.chain for cell in cells):
            plans.enter_context(by_chain[chain].planning(cells, tops))
        yield


def allocate(
    by_chain: ByChain,
    leaf: PhysicalCell,
    virtual: VirtualCell | None,
    priority: int,
    vc: str,
    *,
    together: Pairs = (),
) -> bool:
    """Use a leaf cell, as part of a promised cell or opportunistically; whether that is safe.

    `together` are other leaf cells of the same group whose virtual ones are fixed. If a promised
    cell is newly bound, they are bound first: bad cells take what is left in it.
    """
    if virtual is None:
        leaf.set_priority(OPPORTUNISTIC)
        leaf.count(OPPORTUNISTIC, 1)
        return True
    for cell in (virtual, leaf):
        cell.set_priority(priority)
        cell.count(priority, 1)
    promised = virtual.preassigned
    newly = promised.physical is None
    if leaf.virtual is None:  # it may have been bound before, when it was bad
        _bind_up(leaf, virtual)
    if newly and promised.physical is not None:
        for other, part in together:
            if part.preassigned is promised and other.virtual is None:
                _bind_up(other, part)
        return by_chain[leaf.chain].allocate(promised.physical, vc)
    return True


def release(by_chain: ByChain, leaf: PhysicalCell, vc: str) -> None:
    """Stop using a leaf cell; the promised cell too if this was the last use of it."""
    virtual = leaf.virtual
    if virtual is not None and leaf.priority >= LOWEST_GUARANTEED:
        virtual.count(virtual.priority, -1)
        virtual.set_priority(FREE)
        promised = virtual.preassigned
        physical = promised.physical
        assert physical is not None  # noqa: S101 - a cell below it is bound
        if leaf.healthy:  # a bad one stays bound, so that the search sees it
            _unbind_up(virtual)
        if not physical.pinned and promised.priority < LOWEST_GUARANTEED:
            by_chain[physical.chain].end_use(physical, vc)
    leaf.count(leaf.priority, -1)
    leaf.set_priority(FREE)


def rerank(leaf: PhysicalCell, priority: int) -> None:
    """Give a leaf cell that is used as part of a promise another priority."""
    for cell in (leaf, leaf.virtual):
        if cell is not None:
            cell.count(cell.priority, -1)
            cell.set_priority(priority)
            cell.count(priority, 1)


def _bind_up(physical: PhysicalCell, virtual: VirtualCell) -> None:
    """Bind a leaf cell and the cells above it, up to those that are bound."""
    while virtual.physical is None:
        bind(virtual, physical)
        if virtual.parent is None or physical.parent is None:
            return
        virtual, physical = virtual.parent, physical.parent


def _unbind_up(virtual: VirtualCell) -> None:
    """Unbind a leaf cell, and the cells above it that have no bound child left."""
    while virtual.physical is not None and not virtual.physical.pinned:
        unbind(virtual, virtual.physical)
        parent = virtual.parent
        if parent is None or any(child.physical is not None for child in parent.children):
            return
        virtual = parent


def set_bad(by_chain: ByChain, leaves: Iterable[PhysicalCell]) -> None:
    """The leaf cells of a node are bad, and with them the cells that contain them."""
    for leaf in leaves:
        _set_bad(by_chain, leaf)


def _set_bad(by_chain: ByChain, cell: PhysicalCell) -> None:
    if not cell.healthy:
        return
    cell.healthy = False
    if cell.parent is not None:
        _set_bad(by_chain, cell.parent)
    if cell.is_free():
        by_chain[cell.chain].add_bad(cell)
    elif not cell.split:
        bind_like_parent(cell)


def set_healthy(by_chain: ByChain, leaves: Iterable[PhysicalCell]) -> None:
    """The leaf cells of a node are healthy, and the cells that have nothing bad in them."""
    for leaf in leaves:
        cell: PhysicalCell | None = leaf
        while cell is not None and not cell.healthy:
            _set_healthy(by_chain[cell.chain], cell)
            cell = cell.parent
            if cell is not None and not all(child.healthy for child in cell.children):
                break


def _set_healthy(free_cells: FreeCells, cell: PhysicalCell) -> None:
    cell.healthy = True
    virtual = cell.virtual
    if cell.is_free():
        free_cells.remove_bad(cell)
    elif virtual is None or cell.pinned:
        return
    elif cell.priority >= LOWEST_GUARANTEED:
        free_cells.keep(cell, virtual)
    else:
        # It was bound only because it was bad.
        unbind(virtual, cell)
        if virtual.parent is None:
            free_cells.recover(cell, virtual)
