"""How the nodes of a store came, in groups: the order gives them their numbers."""

from collections.abc import Sequence

import msgspec

from rota.core.topology import NodeSpec

Growth = list[list[NodeSpec]]
MARK = "~"  # no name of a node that joins has it


def extended(growth: Growth, nodes: Sequence[NodeSpec]) -> tuple[Growth, dict[str, str]]:
    """With more nodes; and new names for those whose names the newcomers take.

    Numbers of nodes are in the event log, so none is ever given up: a node that was replaced keeps
    its own under another name.
    """
    taken = {spec.name for group in growth for spec in group}
    renamed = {spec.name: _free(spec.name, taken) for spec in nodes if spec.name in taken}
    before = [
        [
            msgspec.structs.replace(spec, name=renamed[spec.name]) if spec.name in renamed else spec
            for spec in group
        ]
        for group in growth
    ]
    return [*before, list(nodes)], renamed


def _free(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}{MARK}{number}" in taken:
        number += 1
    return f"{name}{MARK}{number}"
