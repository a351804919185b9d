"""Cells, in trees of physical and virtual ones, and the affinity groups that hold them.

A cell is a set of GPUs that lie together in the topology.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Generic, Self, TypeVar

from rota.policies.hived.pods import HivedPod, PodPlacement, PodSpec, group_of, pod_numbers

FREE = -2
"""Priority of a cell that is not in use."""


class CellState(Enum):
    """What happens on a physical leaf cell."""

    FREE = "Free"
    USED = "Used"
    RESERVING = "Reserving"
    """A group uses it, another one waits for it to leave."""
    RESERVED = "Reserved"
    """It is not in use, and a preempting group has it."""


class HivedCell:
    """What physical and virtual cells have in common."""

    __slots__ = (
        "address",
        "at_node",
        "chain",
        "children",
        "leaves",
        "level",
        "parent",
        "priority",
        "type_name",
        "used",
    )

    def __init__(
        self, chain: str, level: int, type_name: str, address: str, *, at_node: bool, leaves: int
    ) -> None:
        self.chain = chain
        self.level = level
        self.type_name = type_name
        self.address = address
        self.at_node = at_node
        """At the level of nodes or above it."""
        self.leaves = leaves
        self.parent: Self | None = None
        self.children: list[Self] = []
        self.priority = FREE
        self.used: dict[int, int] = {}
        """Leaf cells in use below this one, by priority."""

    def __repr__(self) -> str:
        """The address names the cell."""
        return f"{type(self).__name__}({self.address})"

    def adopt(self, child: Self) -> None:
        """Take a cell as the next child."""
        child.parent = self
        self.children.append(child)

    def below(self) -> Iterator[Self]:
        """This cell and all in it, parents first."""
        yield self
        for child in self.children:
            yield from child.below()

    def set_priority(self, priority: int) -> None:
        """Give a cell a priority; the priority of a parent is the highest of its children."""
        cell: HivedCell = self
        while True:
            before, cell.priority = cell.priority, priority
            parent = cell.parent
            if parent is None:
                return
            if priority <= parent.priority:
                if before != parent.priority or priority >= before:
                    return
                priority = max(child.priority for child in parent.children)
            cell = parent

    def count(self, priority: int, change: int) -> None:
        """Add to the leaf cells in use at a priority, here and above."""
        cell: HivedCell | None = self
        while cell is not None:
            number = cell.used.get(priority, 0) + change
            if number:
                cell.used[priority] = number
            else:
                del cell.used[priority]
            cell = cell.parent


class PhysicalCell(HivedCell):
    """A cell of the physical cluster."""

    __slots__ = (
        "healthy",
        "indices",
        "nodes",
        "pinned",
        "reserving",
        "split",
        "state",
        "using",
        "virtual",
    )

    def __init__(
        self, chain: str, level: int, type_name: str, address: str, *, at_node: bool, leaves: int
    ) -> None:
        super().__init__(chain, level, type_name, address, at_node=at_node, leaves=leaves)
        self.nodes: tuple[str, ...] = ()
        self.indices: tuple[int, ...] = ()
        """Indices of its leaf cells on their node; empty above the level of nodes."""
        self.healthy = True
        self.split = False
        self.pinned = False
        self.virtual: VirtualCell | None = None
        self.state = CellState.FREE
        """Meaningful for leaf cells."""
        self.using: AffinityGroup | None = None
        self.reserving: AffinityGroup | None = None

    def is_free(self) -> bool:
        """Whether it, or a cell that contains it, is in the list of free cells."""
        cell = self
        while True:
            if cell.virtual is not None or cell.split:
                return False
            if cell.parent is None or cell.parent.split:
                return True
            cell = cell.parent


class VirtualCell(HivedCell):
    """A cell of a virtual cluster; bound to a physical one while it is in use."""

    __slots__ = ("physical", "preassigned", "vc")

    def __init__(
        self, chain: str, level: int, type_name: str, address: str, *, at_node: bool, leaves: int
    ) -> None:
        super().__init__(chain, level, type_name, address, at_node=at_node, leaves=leaves)
        self.vc = ""
        self.preassigned: VirtualCell = self
        """The top cell of its tree: what the virtual cluster was promised."""
        self.physical: PhysicalCell | None = None

    @property
    def healthy(self) -> bool:
        """A virtual cell is as healthy as the physical one behind it."""
        return self.physical is None or self.physical.healthy


def bind(virtual: VirtualCell, physical: PhysicalCell) -> None:
    """Tie one virtual cell to one physical cell."""
    virtual.physical = physical
    physical.virtual = virtual


def unbind(virtual: VirtualCell, physical: PhysicalCell) -> None:
    """Untie the two."""
    virtual.physical = None
    physical.virtual = None


def unbound(cells: list[VirtualCell]) -> VirtualCell | None:
    """The first virtual cell of the list without a physical one."""
    return next((cell for cell in cells if cell.physical is None), None)


C = TypeVar("C", bound=HivedCell)


class CellList(Generic[C]):
    """Cells in an order: add at the end, remove by moving the last one into the gap."""

    __slots__ = ("_place", "cells")

    def __init__(self, cells: list[C] | None = None) -> None:
        self.cells: list[C] = list(cells or ())
        self._place = {cell: place for place, cell in enumerate(self.cells)}

    def __len__(self) -> int:
        """How many."""
        return len(self.cells)

    def __contains__(self, cell: object) -> bool:
        """Whether the cell is in the list."""
        return cell in self._place

    def add(self, cell: C) -> None:
        """Append a cell."""
        self._place[cell] = len(self.cells)
        self.cells.append(cell)

    def remove(self, cell: C) -> None:
        """Take a cell out; the last one takes its place."""
        place = self._place.pop(cell)
        last = self.cells.pop()
        if last is not cell:
            self.cells[place] = last
            self._place[last] = place


class GroupState(Enum):
    """How far a group is."""

    ALLOCATED = "Allocated"
    PREEMPTING = "Preempting"
    """It waits for others to leave its cells."""
    BEING_PREEMPTED = "BeingPreempted"


CellT = TypeVar("CellT", bound=HivedCell)
Slots = dict[int, list[list[CellT | None]]]
"""Leaf cells by pod size, pod and place in the pod; None: not in the configuration (any more)."""


class AffinityGroup:
    """A group that has cells."""

    def __init__(self, spec: PodSpec, state: GroupState) -> None:
        self.spec = spec
        self.name = group_of(spec).name
        self.vc = spec.virtual_cluster
        self.lazy = spec.lazy_preemption_enable
        self.priority = spec.priority
        self.state = state
        self.numbers = pod_numbers(spec)
        self.pods: dict[int, list[HivedPod | None]] = {
            size: [None] * number for size, number in self.numbers.items()
        }
        self.preempting: set[str] = set()
        """Pods that wait for the preemption."""
        self.physical: Slots[PhysicalCell] = self._empty_slots()
        self.virtual: Slots[VirtualCell] | None = self._empty_slots()
        """None: opportunistic, from the start or since it was preempted lazily."""
        self.lazily_preempted_by: str | None = None

    def _empty_slots(self) -> Slots[CellT]:
        return {
            size: [[None] * size for _ in range(number)] for size, number in self.numbers.items()
        }

    def leaves(self) -> Iterator[PhysicalCell]:
        """Its physical leaf cells."""
        for pods in self.physical.values():
            for pod in pods:
                yield from (leaf for leaf in pod if leaf is not None)

    def virtual_leaf(self, leaf: PhysicalCell) -> VirtualCell | None:
        """The virtual cell that belongs to one of its physical ones."""
        if self.virtual is None:
            return None
        for size, pods in self.physical.items():
            for number, pod in enumerate(pods):
                for place, own in enumerate(pod):
                    if own is leaf:
                        return self.virtual[size][number][place]
        return None

    def free_slot(self, size: int) -> int | None:
        """The first pod of this size that has not been started."""
        pods = self.pods.get(size, [])
        return next((number for number, pod in enumerate(pods) if pod is None), None)

    def members(self) -> Iterator[HivedPod]:
        """Its pods that run."""
        for pods in self.pods.values():
            yield from (pod for pod in pods if pod is not None)


def place_of(
    pod: Sequence[PhysicalCell | None], virtual: Sequence[VirtualCell | None]
) -> PodPlacement | None:
    """Where a pod is; None if one of its leaf cells is not in the configuration any more."""
    known = [leaf for leaf in pod if leaf is not None]
    if len(known) < len(pod):
        return None
    types = tuple("" if leaf is None else leaf.preassigned.type_name for leaf in virtual)
    types = types or ("",) * len(pod)
    indices = tuple(leaf.indices[0] for leaf in known)
    return PodPlacement(known[0].nodes[0], indices, types)
