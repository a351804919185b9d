"""From virtual to physical cells: buddy allocation, with a search for cells that can be used.

A virtual placement touches promised cells that are bound already (map inside them) and others
that are not (first find a free physical cell). Both look for healthy cells on suggested nodes and
go back when a choice leads nowhere.
"""

from collections.abc import Container

from rota.policies.hived.cells import CellList, PhysicalCell, VirtualCell
from rota.policies.hived.free_cells import FreeCells
from rota.policies.hived.pods import OPPORTUNISTIC
from rota.policies.hived.topology_search import Placement

Bindings = dict[VirtualCell, PhysicalCell]
"""The physical leaf cell for each virtual one."""


class MappingVertex:
    """A virtual cell to bind, with those below it."""

    __slots__ = ("cell", "children")

    def __init__(self, cell: VirtualCell) -> None:
        self.cell = cell
        self.children: list[MappingVertex] = []


class Usable:
    """Which physical cells a request may use."""

    def __init__(self, suggested: Container[str], *, anywhere: bool) -> None:
        self._suggested = suggested
        self._anywhere = anywhere

    def __call__(self, cells: list[PhysicalCell]) -> list[PhysicalCell]:
        """Those that can be used, fewest opportunistic leaf cells first."""
        found = [cell for cell in cells if self._fits(cell)]
        found.sort(key=lambda cell: cell.used.get(OPPORTUNISTIC, 0))
        return found

    def _fits(self, cell: PhysicalCell) -> bool:
        if cell.virtual is not None or (len(cell.nodes) == 1 and not cell.healthy):
            return False
        return self._anywhere or any(node in self._suggested for node in cell.nodes)


def binding_paths(
    placement: Placement[VirtualCell], bindings: Bindings
) -> tuple[list[MappingVertex], list[list[MappingVertex]]]:
    """The trees of unbound cells above the leaf cells of a placement.

    Returns:
        Trees that start at a promised cell; and those inside a bound cell, by that cell. Leaf
        cells that are bound already go to `bindings`.
    """
    vertices: dict[VirtualCell, MappingVertex] = {}
    tops: list[MappingVertex] = []
    inside: dict[VirtualCell, list[MappingVertex]] = {}
    for size in sorted(placement):
        for leaf in (leaf for pod in placement[size] for leaf in pod):
            if leaf.physical is not None:
                bindings[leaf] = leaf.physical
                continue
            for cell in _way_down(leaf, vertices):
                vertex = vertices[cell] = MappingVertex(cell)
                parent = cell.parent
                if parent is None:
                    tops.append(vertex)
                elif parent.physical is not None:
                    inside.setdefault(parent, []).append(vertex)
                else:
                    vertices[parent].children.append(vertex)
    return tops, list(inside.values())


def _way_down(leaf: VirtualCell, known: dict[VirtualCell, MappingVertex]) -> list[VirtualCell]:
    """The unbound ancestors of a leaf cell that are not known yet, highest first."""
    path: list[VirtualCell] = []
    cell: VirtualCell | None = leaf
    while cell is not None and cell.physical is None and cell not in known:
        path.append(cell)
        cell = cell.parent
    return path[::-1]


def map_placement(
    placement: Placement[VirtualCell],
    free_cells: FreeCells | None,
    usable: Usable,
) -> Placement[PhysicalCell] | None:
    """Physical leaf cells for virtual ones; None if only bad or unsuitable ones are left.

    `free_cells` holds the free cells of the chain; a pinned cell needs none.
    """
    bindings: Bindings = {}
    tops, inside = binding_paths(placement, bindings)
    if not all(leaf.healthy for leaf in bindings.values()):
        return None  # bad cells have taken their place when others were preempted lazily
    if tops:
        assert free_cells is not None  # noqa: S101 - promised cells that are not bound are not pinned
        trial = Trial(free_cells, usable, bindings)
        if not all(trial.place(vertex) for vertex in tops):
            return None
    for vertices in inside:
        parent = vertices[0].cell.parent
        assert parent is not None  # noqa: S101 - they are inside of it
        assert parent.physical is not None  # noqa: S101
        if _map(vertices, parent.physical.children, usable, bindings) is None:
            return None
    return {
        size: [[bindings[leaf] for leaf in pod] for pod in pods] for size, pods in placement.items()
    }


def _map(
    vertices: list[MappingVertex],
    candidates: list[PhysicalCell],
    usable: Usable,
    bindings: Bindings,
) -> list[PhysicalCell] | None:
    """A different candidate for each virtual cell, and so on below; going back where needed."""
    candidates = usable(candidates)
    if len(candidates) < len(vertices):
        return None
    picks = [0] * len(vertices)
    taken: set[int] = set()
    at = 0
    while at >= 0:
        choice = _next_choice(vertices[at], candidates, (picks[at], taken), usable, bindings)
        if choice is None:
            at -= 1
            if at >= 0:
                taken.discard(picks[at])
                picks[at] += 1
            continue
        picks[at] = choice
        taken.add(choice)
        if at == len(vertices) - 1:
            return [candidates[pick] for pick in picks]
        at += 1
    return None


def _next_choice(
    vertex: MappingVertex,
    candidates: list[PhysicalCell],
    where: tuple[int, set[int]],
    usable: Usable,
    bindings: Bindings,
) -> int | None:
    """The next candidate, from a place on, that this virtual cell can be mapped to."""
    start, taken = where
    for number in range(start, len(candidates)):
        if number in taken:
            continue
        candidate = candidates[number]
        if candidate.level == 1:
            bindings[vertex.cell] = candidate
            return number
        if _map(vertex.children, candidate.children, usable, bindings) is not None:
            return number
    return None


class Trial:
    """Buddy allocation on a copy of the free lists: nothing is taken before a pod is added."""

    def __init__(self, free_cells: FreeCells, usable: Usable, bindings: Bindings) -> None:
        self._free_cells = free_cells
        self._usable = usable
        self._bindings = bindings
        self.free = [CellList(cells.cells) for cells in free_cells.free]
        self.promised = list(free_cells.promised_all)

    def place(self, vertex: MappingVertex) -> bool:
        """Find a free physical cell for a promised one."""
        level = vertex.cell.level
        start = self._lowest(level)
        if start is None:
            self._merge()
            start = self._lowest(level)
        found = start is not None and self._descend(vertex, start)
        found = found or self._split_more(vertex)
        self.promised[level] -= found
        return found

    def _lowest(self, level: int) -> int | None:
        """The lowest level with a free cell, from a level on."""
        return next((at for at in range(level, len(self.free)) if self.free[at]), None)

    def _descend(self, vertex: MappingVertex, level: int) -> bool:
        """Take a free cell of this level, split down to the level of the promised cell."""
        if level == vertex.cell.level:
            return self._pick(vertex)
        for cell in self._usable(self.free[level].cells):
            for child in cell.children:
                self.free[level - 1].add(child)
            if self._descend(vertex, level - 1):
                self.free[level].remove(cell)
                return True
            self.free[level - 1] = CellList()
        return False

    def _pick(self, vertex: MappingVertex) -> bool:
        """Take a free cell of the very level of the promised cell."""
        free = self.free[vertex.cell.level]
        picked = _map([vertex], free.cells, self._usable, self._bindings)
        if picked is None:
            return False
        free.remove(picked[0])
        return True

    def _split_more(self, vertex: MappingVertex) -> bool:
        """Split higher cells than needed, as far as no promise is broken."""
        level = vertex.cell.level
        spare = self._spare()
        if spare is None:
            self._merge()
            spare = self._spare()
        if spare is None:
            return False
        for above in range(level + 1, len(self.free)):
            # One cell of each level in between is broken up too: all of them must be spare.
            number = min(len(self.free[above]), *spare[level + 1 : above + 1])
            if number <= 0:
                continue
            pieces: list[PhysicalCell] = []
            for _ in range(number):
                first = self.free[above].cells[0]
                self.free[above].remove(first)
                pieces.append(first)
            for _ in range(above, level, -1):
                pieces = [child for piece in pieces for child in piece.children]
            self.free[level] = CellList(pieces + self.free[level].cells)
            if self._pick(vertex):
                return True
        return False

    def _spare(self) -> list[int] | None:
        """How many cells of each level the promises can do without; None: not even enough."""
        spare = [0] * len(self.free)
        carried = 0
        for level in range(len(self.free) - 1, 0, -1):
            spare[level] = len(self.free[level]) - self.promised[level] + carried
            if spare[level] < 0:
                return None
            carried = spare[level] * self._free_cells.children[level]
        return spare

    def _merge(self) -> None:
        """Put complete sets of free children together again (a split went further than needed)."""
        for level in range(1, len(self.free) - 1):
            free = self.free[level]
            for parent in {cell.parent: None for cell in free.cells}:
                if parent is not None and all(child in free for child in parent.children):
                    for child in parent.children:
                        free.remove(child)
                    self.free[level + 1].add(parent)
