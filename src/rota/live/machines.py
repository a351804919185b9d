"""What is known of the nodes of a living cluster, apart from what runs on them."""

import logging
import re
from typing import Any

import msgspec

from rota.core import events as ev
from rota.core.topology import NodeSpec, Topology, Vertex
from rota.live.inputs import NodeWish
from rota.live.orders import NodeStatus

MOST_GPUS = 1024  # of a node that joins: a mistyped number would be remembered for ever
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
log = logging.getLogger("rota.daemon")


def acceptable(spec: NodeSpec) -> bool:
    """May this node join? If not, the log says why."""
    if _NAME.fullmatch(spec.name) and spec.name == spec.name.strip() and spec.gpus <= MOST_GPUS:
        return True
    log.warning(
        "node %r with %d GPUs may not join: names have letters, digits, '.', '_' and '-', and "
        "there may be %d GPUs", spec.name[:100], spec.gpus, MOST_GPUS,
    )  # fmt: skip
    return False


class Machine(msgspec.Struct):
    """One node: lost, silent (not heard of), drained or removed (by somebody)."""

    lost: bool = False
    silent: bool = False
    drained: bool = False
    why: str = ""
    drained_by: str = ""
    removed: bool = False  # nobody wants to hear of it, until it comes back


class Machines:
    """Turns news about nodes into kinds of events; the engine only knows up and open."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.by_name: dict[str, Machine] = {}
        self.refresh()

    def refresh(self) -> None:
        """The topology has grown."""
        self._vertices: dict[str, Vertex] = {node.name: node for node in self._topology.nodes}
        for name in self._vertices:
            self.by_name.setdefault(name, Machine())

    def knows(self, name: str) -> bool:
        """Is it a node of this cluster?"""
        return name in self._vertices

    def vertex(self, name: str) -> Vertex:
        """Its place in the topology."""
        return self._vertices[name]

    def recognised(self, status: NodeStatus) -> NodeStatus:
        """A node that comes back with other GPUs is not the one we know: that one is lost."""
        if status.spec is None or status.node not in self._vertices:
            return status
        vertex = self._vertices[status.node]
        if not differs(vertex, status.spec):
            return status
        return NodeStatus(
            status.node,
            "lost",
            status.spec,  # who waits for its place
            why=f"had {_gpus(vertex.gpus, vertex.gpu_type)}, now has "
            f"{_gpus(status.spec.gpus, status.spec.gpu_type)}",
        )

    def retired(self, name: str, new_name: str) -> None:
        """Another machine took the name of this one."""
        gone = self.by_name.pop(name)
        gone.removed = gone.lost = True
        self.by_name[new_name] = gone

    def news(self, status: NodeStatus) -> bool:
        """Does it change anything?"""
        machine = self.by_name[status.node]
        if status.state == "up":
            return machine.lost or machine.silent
        return not machine.lost and (status.state == "lost" or not machine.silent)

    def heard(self, status: NodeStatus) -> list[int]:
        """What follows from it: kinds of events about the node."""
        machine = self.by_name[status.node]
        machine.why = status.why or _drained(machine)
        if status.state == "silent":
            machine.silent = True
            return [ev.NODE_CLOSED]
        if status.state == "lost":
            machine.lost = True
            return [ev.NODE_DOWN]
        if machine.removed:  # it is here again, as if it were new
            machine.removed = machine.drained = False
            machine.why = ""
        kinds = [ev.NODE_UP] if machine.lost else []
        machine.lost = machine.silent = False
        if self._vertices[status.node].closed and not machine.drained:
            kinds.append(ev.NODE_OPENED)
        return kinds

    def wished(self, wish: NodeWish) -> list[int]:
        """What follows from somebody's wish."""
        machine = self.by_name[wish.node]
        if wish.what == "remove":
            was_lost, machine.lost, machine.removed = machine.lost, True, True
            machine.why = f"removed by {wish.by}"
            return [] if was_lost else [ev.NODE_DOWN]
        machine.drained = wish.what != "undrain"
        machine.drained_by = wish.by
        machine.why = _drained(machine)
        if machine.drained:
            return [ev.NODE_CLEARED if wish.what == "clear" else ev.NODE_CLOSED]
        return [] if machine.silent else [ev.NODE_OPENED]

    def snapshot(self) -> list[Any]:
        """As plain data."""
        return [(name, msgspec.structs.astuple(m)) for name, m in self.by_name.items()]

    def restore(self, state: list[Any]) -> None:
        """Take the state of `snapshot` up again."""
        self.by_name.update((name, Machine(*fields)) for name, fields in state)


def differs(vertex: Vertex, spec: NodeSpec) -> bool:
    """Is this another machine than the one with this place in the topology?"""
    return (vertex.gpus, vertex.gpu_type) != (spec.gpus, spec.gpu_type)


def _drained(machine: Machine) -> str:
    return f"drained by {machine.drained_by}" if machine.drained else ""


def _gpus(count: int, kind: str) -> str:
    return f"{count} GPUs of type {kind}" if kind else f"{count} GPUs"
