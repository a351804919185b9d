"""The free cells of a chain: which are left, what is promised, which promises hardware breaks.

VC safety is here: at each level at least as many cells are left as the virtual clusters together
have not yet taken. A promised cell is *doomed* when so much hardware is bad that it could only be
bound to a bad cell: it is then bound to one at once, so that the search inside the virtual cluster
avoids it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rota.core.errors import ClusterSpecError
from rota.policies.hived.build import Cells
from rota.policies.hived.cells import (
    CellList,
    PhysicalCell,
    VirtualCell,
    bind,
    unbind,
    unbound,
)
from rota.policies.hived.pods import LOWEST_GUARANTEED


class FreeCells:
    """Free cells and counts of one chain; lists are indexed by level, 0 is unused."""

    def __init__(self, chain: str, cells: Cells) -> None:
        by_level = cells.chains[chain]
        self.chain = chain
        self.top = max(by_level)
        levels = range(self.top + 1)
        self._types = cells.type_at[chain]
        self._vcs = cells.vcs
        self.children = [0, *(len(by_level[level][0].children) for level in levels[1:])]
        self.free: list[CellList[PhysicalCell]] = [CellList() for _ in levels]
        self.free[self.top] = CellList(cells.tops[chain])
        self.left = [0, *(len(by_level[level]) for level in levels[1:])]
        """Cells in the free lists, or in cells of those lists."""
        self.promised: dict[str, list[int]] = {}
        """By virtual cluster: cells that it was promised and does not use."""
        self.promised_all = [0] * (self.top + 1)
        self.bad: list[CellList[PhysicalCell]] = [CellList() for _ in levels]
        """Bad cells among those left."""
        self.doomed: dict[str, list[CellList[PhysicalCell]]] = {}
        """By virtual cluster: bad cells bound to its unused ones."""
        self.planned: frozenset[PhysicalCell | VirtualCell] = frozenset()
        """Physical cells of which a group is about to take parts, and promised cells for them."""
        self._passed: set[int] = set()
        """Levels at which one of them would have been the next to be doomed."""

    @contextmanager
    def planning(
        self, leaves: Iterable[PhysicalCell], promised: Iterable[VirtualCell]
    ) -> Iterator[None]:
        """A group takes these leaf cells one after the other: nothing of it is doomed meanwhile."""
        cells: set[PhysicalCell | VirtualCell] = set(promised)
        for leaf in leaves:
            cell: PhysicalCell | None = leaf
            while cell is not None and cell not in cells:
                cells.add(cell)
                cell = cell.parent
        before, self.planned = self.planned, self.planned | cells
        try:
            yield
        finally:
            self.planned = before
            while self._passed and not before:
                self.doom(self._passed.pop())

    def promise(self, vc: str, level: int) -> None:
        """One more cell of a level for a virtual cluster."""
        if vc not in self.promised:
            self.promised[vc] = [0] * (self.top + 1)
            self.doomed[vc] = [CellList() for _ in range(self.top + 1)]
        self.promised[vc][level] += 1
        self.promised_all[level] += 1

    def check_promises(self) -> None:
        """Split the cells from the top down and see that all promises can be kept.

        Raises:
            ClusterSpecError: They cannot.
        """
        available = len(self.free[self.top])
        for level in range(self.top, 0, -1):
            needed = self.promised_all[level]
            if needed > available:
                holders = ", ".join(vc for vc, held in self.promised.items() if held[level])
                message = (
                    f"too many cells promised: {needed} of type {self._types[level]!r} in chain "
                    f"{self.chain!r} (level {level}), but {available} available; "
                    f"lower cellNumber in {holders}"
                )
                raise ClusterSpecError(message)
            available = (available - needed) * self.children[level]

    def is_safe(self) -> bool:
        """Whether all unused promises could be kept at once, as far as numbers go."""
        available = 0
        for level in range(self.top, 0, -1):
            available += len(self.free[level]) - self.promised_all[level]
            if available < 0:
                return False
            available *= self.children[level]
        return True

    def allocate(self, cell: PhysicalCell, vc: str, *, doomed: bool = False) -> bool:
        """Give a physical cell to a promised one; whether that leaves enough for all others."""
        level = cell.level
        self._move(vc, level, -1)
        split_to = self._take(cell)
        safe = True
        parent = cell.parent
        for above in range(level + 1, split_to + 1):
            assert parent is not None  # noqa: S101 - it was split just now
            self.left[above] -= 1
            safe = safe and self.left[above] >= self.promised_all[above]
            if parent.healthy:
                self.doom(above)
            elif parent in self.bad[above]:
                self.bad[above].remove(parent)
            parent = parent.parent
        if cell.healthy:
            self.doom(level)
        else:
            self._allocate_bad(cell)
            if not doomed:
                self.spare(level)
        number = self.children[level]
        for below in range(level - 1, 0, -1):
            self.left[below] -= number
            safe = safe and self.left[below] >= self.promised_all[below]
            self.doom(below)
            number *= self.children[below]
        return safe

    def release(self, cell: PhysicalCell, vc: str, *, doomed: bool = False) -> None:
        """A promised cell does not need its physical one any more."""
        level = cell.level
        self._move(vc, level, 1)
        merged_to = self._give_back(cell)
        parent = cell.parent
        for above in range(level + 1, merged_to + 1):
            assert parent is not None  # noqa: S101 - it was merged just now
            self.left[above] += 1
            if parent.healthy:
                self.spare(above)
            else:
                self.bad[above].add(parent)
            parent = parent.parent
        if cell.healthy:
            self.spare(level)
        else:
            self._release_bad(cell)
            if not doomed:
                self.doom(level)
        number = self.children[level]
        for below in range(level - 1, 0, -1):
            self.left[below] += number
            self.spare(below)
            number *= self.children[below]

    def add_bad(self, cell: PhysicalCell) -> None:
        """A cell that is left has become bad."""
        level = cell.level
        self.bad[level].add(cell)
        if self.promised_all[level] > self.left[level] - len(self.bad[level]):
            self.doom(level)

    def remove_bad(self, cell: PhysicalCell) -> None:
        """A cell that is left has become healthy."""
        self.bad[cell.level].remove(cell)
        self.spare(cell.level)

    def doom(self, level: int) -> None:
        """Bind bad cells to unused promises that cannot get a healthy one."""
        for vc, promised in self.promised.items():
            while promised[level] > self.left[level] - len(self.bad[level]):
                tops = self._vcs[vc].free_tops.get(self.chain, {}).get(level, [])
                virtual = unbound([top for top in tops if not self._is_planned(top)])
                physical = next((c for c in self.bad[level].cells if not self._is_planned(c)), None)
                if virtual is None or physical is None:
                    break
                bind(virtual, physical)
                self.doomed[vc][level].add(physical)
                self.allocate(physical, vc, doomed=True)

    def _is_planned(self, cell: PhysicalCell | VirtualCell) -> bool:
        """Whether a group is about to need it; then its level is looked at again later."""
        found = cell in self.planned
        if found:
            self._passed.add(cell.level)
        return found

    def spare(self, level: int) -> None:
        """Let doomed promises go that can get a healthy cell again."""
        for vc, promised in self.promised.items():
            doomed = self.doomed[vc][level]
            while promised[level] < self.left[level] - len(self.bad[level]):
                # A pod may have found a healthy part of a doomed cell: that one stays bound.
                physical = next((cell for cell in doomed.cells if _is_idle(cell)), None)
                if physical is None or physical.virtual is None:
                    break
                unbind(physical.virtual, physical)
                doomed.remove(physical)
                self.release(physical, vc, doomed=True)

    def end_use(self, cell: PhysicalCell, vc: str) -> None:
        """No pod is left in a promised cell."""
        if cell in self.doomed[vc][cell.level]:
            self.spare(cell.level)
        else:
            self.release(cell, vc)

    def keep(self, cell: PhysicalCell, virtual: VirtualCell) -> None:
        """A cell in use has become healthy: if it was doomed, it is bound as any other now."""
        doomed = self.doomed[virtual.vc][cell.level]
        if virtual.parent is None and cell in doomed:
            doomed.remove(cell)

    def recover(self, cell: PhysicalCell, virtual: VirtualCell) -> None:
        """A doomed cell has become healthy and is not bound any more."""
        self.doomed[virtual.vc][cell.level].remove(cell)
        self.release(cell, virtual.vc, doomed=True)

    def _move(self, vc: str, level: int, change: int) -> None:
        self.promised[vc][level] += change
        self.promised_all[level] += change
        self.left[level] += change

    def _take(self, cell: PhysicalCell) -> int:
        """Out of the free lists; parents are split as far as needed. The highest level touched."""
        while True:
            parent = cell.parent
            done = parent is None or parent.split
            if parent is not None and not parent.split:
                for child in parent.children:
                    self.free[cell.level].add(child)
                parent.split = True
            self.free[cell.level].remove(cell)
            if done or parent is None:
                return cell.level
            cell = parent

    def _give_back(self, cell: PhysicalCell) -> int:
        """Into the free lists; complete sets of children are merged. The highest level touched."""
        while True:
            parent, free = cell.parent, self.free[cell.level]
            if parent is None:
                break
            buddies = [child for child in parent.children if child is not cell]
            if not all(buddy in free for buddy in buddies):
                break
            for buddy in buddies:
                free.remove(buddy)
            parent.split = False
            cell = parent
        self.free[cell.level].add(cell)
        return cell.level

    def _allocate_bad(self, cell: PhysicalCell) -> None:
        """A bad cell leaves; bad cells in it are bound too, so that the search can see them."""
        if cell in self.bad[cell.level]:
            self.bad[cell.level].remove(cell)
        bind_like_parent(cell)
        for child in cell.children:
            if not child.healthy:
                self._allocate_bad(child)

    def _release_bad(self, cell: PhysicalCell) -> None:
        self.bad[cell.level].add(cell)
        if cell.virtual is not None:
            unbind(cell.virtual, cell)
        for child in cell.children:
            if not child.healthy:
                self._release_bad(child)


def _is_idle(cell: PhysicalCell) -> bool:
    """No guaranteed pod is on it; its own priority may still tell of one that is leaving."""
    return cell.virtual is not None and cell.virtual.priority < LOWEST_GUARANTEED


def bind_like_parent(cell: PhysicalCell) -> None:
    """Bind a physical cell to a free place in the virtual cell that its parent is bound to."""
    if cell.virtual is None and cell.parent is not None and cell.parent.virtual is not None:
        virtual = unbound(cell.parent.virtual.children)
        if virtual is not None:
            bind(virtual, cell)


def open_free_cells(cells: Cells) -> dict[str, FreeCells]:
    """The free cells of every chain, pinned ones taken out.

    Raises:
        ClusterSpecError: More cells are promised than there are.
    """
    by_chain = {chain: FreeCells(chain, cells) for chain in cells.chains}
    for vc in cells.vcs.values():
        for top in vc.tops:
            by_chain[top.chain].promise(top.vc, top.level)
    for free_cells in by_chain.values():
        free_cells.check_promises()
    for vc in cells.vcs.values():
        for pinned, lists in vc.pinned.items():
            _pin(by_chain, cells.pinned[pinned], lists[max(lists)][0], pinned)
    return by_chain


def _pin(
    by_chain: dict[str, FreeCells], physical: PhysicalCell, virtual: VirtualCell, name: str
) -> None:
    """Bind a pinned cell for good."""
    where = f"virtual cluster {virtual.vc!r}: pinned cell {name!r} ({physical.address})"
    if not physical.is_free():
        message = f"{where} is promised to another one, or lies in or around another pinned cell"
        raise ClusterSpecError(message)
    free_cells = by_chain[physical.chain]
    free_cells.allocate(physical, virtual.vc)
    bind(virtual, physical)
    if not free_cells.is_safe():
        message = (
            f"{where} lies where it breaks a promise in chain {physical.chain!r}: "
            "pin a cell next to other pinned ones, or promise fewer large cells"
        )
        raise ClusterSpecError(message)
