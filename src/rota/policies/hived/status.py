"""The state as plain data: groups with their cells, and the top cells of the virtual clusters."""

from typing import Any

from rota.policies.hived.algorithm import Hived
from rota.policies.hived.cells import AffinityGroup, VirtualCell


def group_status(group: AffinityGroup) -> dict[str, Any]:
    """State, priority and leaf cells of a group."""
    physical: dict[str, list[int]] = {}
    for leaf in group.leaves():
        physical.setdefault(leaf.nodes[0], []).append(leaf.indices[0])
    status: dict[str, Any] = {
        "vc": group.vc,
        "priority": group.priority,
        "state": group.state.value,
        "physical": {node: sorted(indices) for node, indices in sorted(physical.items())},
        "has_virtual_placement": group.virtual is not None,
    }
    if group.virtual is not None:
        virtual: dict[str, list[str]] = {}
        for pods in group.virtual.values():
            for part in (part for pod in pods for part in pod):
                if part is not None:
                    virtual.setdefault(part.preassigned.address, []).append(part.address)
        status["virtual"] = {top: sorted(leaves) for top, leaves in sorted(virtual.items())}
    if group.lazily_preempted_by is not None:
        status["lazy_preempted_by"] = group.lazily_preempted_by
    return status


def cell_status(cell: VirtualCell) -> dict[str, Any]:
    """Health, priority and binding of a promised cell."""
    return {
        "type": cell.type_name,
        "health": "Healthy" if cell.healthy else "Bad",
        "priority": cell.priority,
        "physical": "" if cell.physical is None else cell.physical.address,
    }


def all_groups(hived: Hived) -> dict[str, dict[str, Any]]:
    """Every group by its name."""
    return {name: group_status(group) for name, group in sorted(hived.groups.items())}


def all_promised(hived: Hived) -> dict[str, dict[str, Any]]:
    """The top cells of all virtual clusters by address."""
    return {top.address: cell_status(top) for vc in hived.cells.vcs.values() for top in vc.tops}
