"""Who has to leave for whom: victims, reservations, lazy preemption, and taking them back."""

from contextlib import AbstractContextManager

from rota.policies.hived import leaves
from rota.policies.hived.cells import (
    AffinityGroup,
    CellState,
    GroupState,
    PhysicalCell,
    Slots,
    VirtualCell,
)
from rota.policies.hived.leaves import ByChain
from rota.policies.hived.pods import OPPORTUNISTIC, PodSpec
from rota.policies.hived.topology_search import Placement

Groups = dict[str, AffinityGroup]


def victims_on(group_leaves: list[PhysicalCell]) -> tuple[list[AffinityGroup], list[AffinityGroup]]:
    """Groups that use these leaf cells, and groups that wait for them."""
    using: dict[str, AffinityGroup] = {}
    waiting: dict[str, AffinityGroup] = {}
    for leaf in group_leaves:
        if leaf.state in (CellState.USED, CellState.RESERVING) and leaf.using is not None:
            using[leaf.using.name] = leaf.using
        if leaf.state in (CellState.RESERVING, CellState.RESERVED) and leaf.reserving is not None:
            waiting[leaf.reserving.name] = leaf.reserving
    return list(using.values()), list(waiting.values())


def reserve(
    by_chain: ByChain,
    spec: PodSpec,
    physical: Placement[PhysicalCell],
    virtual: Placement[VirtualCell],
) -> AffinityGroup:
    """A group that has its cells at once, although others are still to leave them."""
    group = AffinityGroup(spec, GroupState.PREEMPTING)
    group.physical = {size: [list(pod) for pod in pods] for size, pods in physical.items()}
    group.virtual = {size: [list(pod) for pod in pods] for size, pods in virtual.items()}
    pairs = _pairs(group.physical, group.virtual)
    tops = [virtual_leaf.preassigned for _, virtual_leaf in pairs]
    with leaves.planning(by_chain, list(group.leaves()), tops):
        for leaf, virtual_leaf in pairs:
            used = leaf.using
            if leaf.state is CellState.USED and used is not None:
                leaves.release(by_chain, leaf, used.vc)
                used.state = GroupState.BEING_PREEMPTED
            leaves.allocate(by_chain, leaf, virtual_leaf, group.priority, group.vc, together=pairs)
            leaf.reserving = group
            leaf.state = CellState.RESERVED if used is None else CellState.RESERVING
    return group


def _pairs(
    physical: Slots[PhysicalCell], virtual: Slots[VirtualCell]
) -> list[tuple[PhysicalCell, VirtualCell]]:
    """The leaf cells of a group with their virtual ones."""
    return [
        (leaf, part)
        for size, pods in physical.items()
        for pod, virtual_pod in zip(pods, virtual.get(size, ()), strict=False)
        for leaf, part in zip(pod, virtual_pod, strict=True)
        if leaf is not None and part is not None
    ]


def cancel(by_chain: ByChain, group: AffinityGroup) -> None:
    """A group gives up waiting; its cells go back to those who still use them."""
    cells = list(group.leaves())
    before = [leaf.using.virtual_leaf(leaf) if leaf.using is not None else None for leaf in cells]
    tops = [virtual.preassigned for virtual in before if virtual is not None]
    with leaves.planning(by_chain, cells, tops):
        for leaf, virtual in zip(cells, before, strict=True):
            leaves.release(by_chain, leaf, group.vc)
            leaf.reserving = None
            used = leaf.using
            if leaf.state is CellState.RESERVING and used is not None:
                leaf.state = CellState.USED
                leaves.allocate(by_chain, leaf, virtual, used.priority, used.vc)
            else:
                leaf.state = CellState.FREE


def take_over(group: AffinityGroup) -> None:
    """The last victim has left: the group uses its cells."""
    for leaf in group.leaves():
        leaf.reserving = None
        leaf.using = group
        leaf.state = CellState.USED
    group.state = GroupState.ALLOCATED
    group.preempting = set()


def preempt_lazily(by_chain: ByChain, victim: AffinityGroup, by: str) -> Slots[VirtualCell]:
    """Take a group out of its virtual cluster; it goes on running as an opportunistic one."""
    before = victim.virtual or {}
    for size in before:
        for virtual in (leaf for pod in before[size] for leaf in pod):
            if virtual is not None and virtual.physical is not None:
                leaf = virtual.physical
                leaves.release(by_chain, leaf, victim.vc)
                leaves.allocate(by_chain, leaf, None, OPPORTUNISTIC, victim.vc)
    victim.virtual = None
    victim.lazily_preempted_by = by
    return before


def preempt_cell(by_chain: ByChain, cell: VirtualCell, by: str) -> None:
    """Preempt lazily every group inside a virtual cell."""
    for leaf in cell.below():
        physical = leaf.physical
        if leaf.level != 1 or physical is None or physical.state is not CellState.USED:
            continue
        if physical.using is not None:
            preempt_lazily(by_chain, physical.using, by)


def planning(by_chain: ByChain, placement: Placement[VirtualCell]) -> AbstractContextManager[None]:
    """A group is about to be given this placement; see `FreeCells.planning`.

    Groups that are preempted lazily for it may get back what they have.
    """
    wanted = [leaf for pods in placement.values() for pod in pods for leaf in pod]
    lazy = {group.name: group for leaf in wanted for group in _lazy_on(leaf)}
    cells = [leaf for group in lazy.values() for leaf in group.leaves()]
    tops = [leaf.preassigned for leaf in wanted]
    for group in lazy.values():
        tops += [virtual.preassigned for _, virtual in _pairs(group.physical, group.virtual or {})]
    return leaves.planning(by_chain, cells, tops)


def _lazy_on(virtual: VirtualCell) -> list[AffinityGroup]:
    """The group that uses a virtual leaf cell, if it can be preempted lazily."""
    leaf = virtual.physical
    if leaf is None or leaf.state is not CellState.USED or leaf.using is None:
        return []
    return [leaf.using] if leaf.using.lazy else []


def preempt_on(
    by_chain: ByChain, placement: Placement[VirtualCell], by: str
) -> list[tuple[AffinityGroup, Slots[VirtualCell]]]:
    """Preempt lazily the groups on a placement that allow it; they, and where they were."""
    preempted: list[tuple[AffinityGroup, Slots[VirtualCell]]] = []
    for size in sorted(placement):
        for virtual in (leaf for pod in placement[size] for leaf in pod):
            lazy = _lazy_on(virtual)
            preempted += [(group, preempt_lazily(by_chain, group, by)) for group in lazy]
    return preempted


def revert(by_chain: ByChain, group: AffinityGroup, before: Slots[VirtualCell]) -> None:
    """Undo a lazy preemption."""
    pairs = _pairs(group.physical, before)
    tops = [virtual.preassigned for _, virtual in pairs]
    with leaves.planning(by_chain, list(group.leaves()), tops):
        for leaf, virtual in pairs:
            leaves.release(by_chain, leaf, group.vc)
            leaves.allocate(by_chain, leaf, virtual, group.priority, group.vc, together=pairs)
    group.virtual = before
    group.lazily_preempted_by = None
