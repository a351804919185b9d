"""The whole state of HiveD as plain data, so that a frozen run goes on exactly as it would have.

Adding the running pods again would not be enough: the order of free cells and of nodes decides
among equals, and it depends on everything that happened before.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.policies.hived.algorithm import Hived
from rota.policies.hived.cells import (
    FREE,
    AffinityGroup,
    CellList,
    CellState,
    GroupState,
    PhysicalCell,
    Slots,
    VirtualCell,
    bind,
)
from rota.policies.hived.pods import HivedPod, PodSpec


def save(hived: Hived) -> dict[str, Any]:
    """Everything but the configuration."""
    physical = list(_physical(hived).values())
    return {
        "bad_nodes": sorted(hived.bad_nodes),
        "bad": [cell.address for cell in physical if not cell.healthy],
        "split": [cell.address for cell in physical if cell.split],
        "bound": [(c.address, c.virtual.address) for c in physical if c.virtual is not None],
        "leaves": [_leaf(cell) for cell in physical if cell.level == 1 and cell.priority > FREE],
        "books": {  # its name since the first version
            chain: {
                "free": [_names(cells) for cells in free_cells.free],
                "bad": [_names(cells) for cells in free_cells.bad],
                "left": free_cells.left,
                "promised": free_cells.promised,
                "promised_all": free_cells.promised_all,
                "doomed": {
                    vc: [_names(cells) for cells in lists]
                    for vc, lists in free_cells.doomed.items()
                },
            }
            for chain, free_cells in hived.free_cells.items()
        },
        "orders": [[node.address for node in search.nodes] for search in hived.searches()],
        "groups": [_group(group) for group in hived.groups.values()],
    }


def _leaf(leaf: PhysicalCell) -> tuple[str, int, str, str | None, str | None]:
    using, reserving = leaf.using, leaf.reserving
    return (
        leaf.address,
        leaf.priority,
        leaf.state.value,
        None if using is None else using.name,
        None if reserving is None else reserving.name,
    )


def _names(cells: CellList[PhysicalCell]) -> list[str]:
    return [cell.address for cell in cells.cells]


def _group(group: AffinityGroup) -> dict[str, Any]:
    return {
        "spec": msgspec.to_builtins(group.spec),
        "state": group.state.value,
        "preempting": sorted(group.preempting),
        "lazily_preempted_by": group.lazily_preempted_by,
        "physical": _addresses(group.physical),
        "virtual": None if group.virtual is None else _addresses(group.virtual),
        "pods": [(size, msgspec.to_builtins(pods)) for size, pods in group.pods.items()],
    }


def _addresses(slots: Slots[Any]) -> list[Any]:
    return [
        (size, [[None if leaf is None else leaf.address for leaf in pod] for pod in pods])
        for size, pods in slots.items()
    ]


def load(hived: Hived, state: Mapping[str, Any]) -> None:
    """Put a new `Hived` of the same configuration into a saved state."""
    physical, virtual = _physical(hived), _virtual(hived)
    for cell in physical.values():
        cell.healthy, cell.split, cell.virtual = True, False, None
    for part in virtual.values():
        part.physical = None
    hived.bad_nodes = set(state["bad_nodes"])
    for address in state["bad"]:
        physical[address].healthy = False
    for address in state["split"]:
        physical[address].split = True
    for address, bound in state["bound"]:
        bind(virtual[bound], physical[address])
    _load_free_cells(hived, state["books"], physical)
    for search, order in zip(hived.searches(), state["orders"], strict=True):
        places = {node.address: node for node in search.nodes}
        search.nodes = [places[address] for address in order]
    for saved in state["groups"]:
        group = _load_group(saved, physical, virtual)
        hived.groups[group.name] = group
    _load_leaves(hived, state["leaves"], physical)


def _load_leaves(hived: Hived, saved: list[Any], physical: Mapping[str, PhysicalCell]) -> None:
    for address, priority, phase, using, reserving in saved:
        leaf = physical[address]
        leaf.state = CellState(phase)
        leaf.using = None if using is None else hived.groups[using]
        leaf.reserving = None if reserving is None else hived.groups[reserving]
        for used in (leaf, leaf.virtual if priority >= 0 else None):
            if used is not None:
                used.set_priority(priority)
                used.count(priority, 1)


def _load_free_cells(
    hived: Hived, by_chain: Mapping[str, Any], physical: Mapping[str, PhysicalCell]
) -> None:
    def cells(names: list[str]) -> CellList[PhysicalCell]:
        return CellList([physical[name] for name in names])

    for chain, saved in by_chain.items():
        free_cells = hived.free_cells[chain]
        free_cells.free = [cells(names) for names in saved["free"]]
        free_cells.bad = [cells(names) for names in saved["bad"]]
        free_cells.left = list(saved["left"])
        free_cells.promised = {vc: list(numbers) for vc, numbers in saved["promised"].items()}
        free_cells.promised_all = list(saved["promised_all"])
        free_cells.doomed = {
            vc: [cells(names) for names in lists] for vc, lists in saved["doomed"].items()
        }


def _load_group(
    saved: Mapping[str, Any],
    physical: Mapping[str, PhysicalCell],
    virtual: Mapping[str, VirtualCell],
) -> AffinityGroup:
    group = AffinityGroup(msgspec.convert(saved["spec"], PodSpec), GroupState(saved["state"]))
    group.preempting = set(saved["preempting"])
    group.lazily_preempted_by = saved["lazily_preempted_by"]
    group.physical = _slots(saved["physical"], physical)
    group.virtual = None if saved["virtual"] is None else _slots(saved["virtual"], virtual)
    group.pods = {
        size: msgspec.convert(pods, list[HivedPod | None]) for size, pods in saved["pods"]
    }
    return group


def _slots(saved: list[Any], cells: Mapping[str, Any]) -> dict[int, Any]:
    return {
        size: [[None if name is None else cells[name] for name in pod] for pod in pods]
        for size, pods in saved
    }


def _physical(hived: Hived) -> dict[str, PhysicalCell]:
    tops = (top for tops in hived.cells.tops.values() for top in tops)
    return {cell.address: cell for top in tops for cell in top.below()}


def _virtual(hived: Hived) -> dict[str, VirtualCell]:
    tops = (top for vc in hived.cells.vcs.values() for top in vc.tops)
    return {cell.address: cell for top in tops for cell in top.below()}
