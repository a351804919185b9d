"""Amounts of all kinds of resources, for the policies that weigh them against each other."""

from rota.core.jobs import Shape
from rota.core.sums import ordered_sum
from rota.core.view import View

Amounts = tuple[float, float, float]
"""GPUs, CPUs, memory in GiB."""


def capacity(view: View) -> Amounts:
    """What the nodes that are up have; 0 for a kind that the cluster does not declare."""
    nodes = [node for node in view.topology.nodes if node.up]
    return (
        view.up_gpus,
        ordered_sum(node.cpus for node in nodes),
        ordered_sum(node.mem_gib for node in nodes),
    )


def shares(shape: Shape, total: Amounts) -> Amounts:
    """What a request asks for as parts of the cluster; nothing of a kind that it does not have."""
    gpus, cpus, mem_gib = total
    return (
        shape.gpus / gpus if gpus else 0.0,
        shape.cpus / cpus if cpus else 0.0,
        shape.mem_gib / mem_gib if mem_gib else 0.0,
    )
