"""The nodes of a living cluster: what is known of each, and which ones want to join."""

import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from rota.core import events as ev
from rota.core.events import INF
from rota.core.topology import NodeSpec, Topology, Vertex
from rota.live.driver import NodeStatus
from rota.live.inputs import NodeRequest
from rota.live.runs import RunTable

MOST_GPUS = 1024  # of a node that joins: a mistyped number would be remembered for ever
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
Growth: TypeAlias = list[list[NodeSpec]]
"""Nodes in the groups in which they came: the order gives them their numbers."""
REPLACED = "~"  # no name of a node that joins has it
log = logging.getLogger("rota.daemon")


class NodeRecord(msgspec.Struct):
    """One node: lost, silent (no heartbeat), drained or removed (on request), sick (by a check)."""

    lost: bool = False
    silent: bool = False
    drained: bool = False
    why: str = ""
    drained_by: str = ""
    removed: bool = False  # hidden until its agent comes back
    sick: str = ""  # what a check says against it: nothing is started there
    excused: str = ""  # what a check said when somebody put it back into use
    clear_at_s: float | None = None  # what still runs on the drained node then is stopped


class NodeRegistry:
    """Turns news about nodes into kinds of events; the engine only knows up and open."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.by_name: dict[str, NodeRecord] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take in the nodes by which the topology has grown."""
        self._vertices: dict[str, Vertex] = {node.name: node for node in self._topology.nodes}
        for name in self._vertices:
            self.by_name.setdefault(name, NodeRecord())

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
        if not _differs(vertex, status.spec):
            return status
        return NodeStatus(
            status.node,
            "lost",
            status.spec,  # which waits for its place
            why=f"had {_gpus(vertex.gpus, vertex.gpu_type)}, now has "
            f"{_gpus(status.spec.gpus, status.spec.gpu_type)}",
        )

    def retired(self, name: str, new_name: str) -> None:
        """Another machine took the name of this one."""
        gone = self.by_name.pop(name)
        gone.removed = gone.lost = True
        self.by_name[new_name] = gone

    def is_news(self, status: NodeStatus) -> bool:
        """Does it change anything?"""
        node = self.by_name[status.node]
        if status.state == "up":
            return node.lost or node.silent
        if status.state == "sick":
            return status.why not in (node.sick, node.excused)
        if status.state == "well":
            return bool(node.sick or node.excused)
        return not node.lost and (status.state == "lost" or not node.silent)

    def reported(self, status: NodeStatus) -> list[int]:
        """Record what the driver says; the kinds of events that follow from it."""
        node = self.by_name[status.node]
        if status.state in ("sick", "well"):
            return self._checked(status, node)
        node.why = status.why or _drained(node)
        if status.state == "silent":
            node.silent = True
            return [ev.NODE_CLOSED]
        if status.state == "lost":
            node.lost = True
            return [ev.NODE_DOWN]
        if node.removed:  # it is here again, as if it were new
            node.removed = node.drained = False
            node.why = node.sick = node.excused = ""
        kinds = [ev.NODE_UP] if node.lost else []
        node.lost = node.silent = False
        if self._vertices[status.node].closed and not node.drained and not node.sick:
            kinds.append(ev.NODE_OPENED)
        return kinds

    def _checked(self, status: NodeStatus, node: NodeRecord) -> list[int]:
        """A check speaks for or against a node."""
        if status.state == "sick":
            was_open = not (node.sick or node.drained or node.silent or node.lost)
            node.sick, node.excused = status.why, ""
            node.why = _drained(node)
            return [ev.NODE_CLOSED] if was_open else []
        was_sick, node.sick, node.excused = bool(node.sick), "", ""
        if was_sick and status.why:
            node.drained, node.drained_by = True, status.why
        node.why = _drained(node)
        opens = was_sick and not (node.drained or node.silent or node.lost)
        return [ev.NODE_OPENED] if opens else []

    def requested(self, request: NodeRequest) -> list[int]:
        """Record what an operator wants; the kinds of events that follow from it."""
        node = self.by_name[request.node]
        if request.what == "remove":
            was_lost, node.lost, node.removed = node.lost, True, True
            node.why = f"removed by {request.by}"
            return [] if was_lost else [ev.NODE_DOWN]
        if request.what == "undrain" and node.sick:
            node.sick, node.excused = "", node.sick
        node.drained = request.what != "undrain"
        node.drained_by = request.by
        node.clear_at_s = request.clear_at_s
        node.why = _drained(node)
        if node.drained:
            return [ev.NODE_CLEARED if request.what == "clear" else ev.NODE_CLOSED]
        return [] if node.silent else [ev.NODE_OPENED]

    def next_deadline_s(self) -> float:
        """When the first drained node must be empty; inf: none has to."""
        return min(
            (n.clear_at_s for n in self.by_name.values() if n.clear_at_s is not None), default=INF
        )

    def overdue(self, now_s: float) -> list[NodeRequest]:
        """To stop what still runs on nodes that should be empty by now."""
        return [
            NodeRequest("clear", name, node.drained_by)
            for name, node in self.by_name.items()
            if node.clear_at_s is not None and node.clear_at_s <= now_s
        ]

    def snapshot(self) -> list[Any]:
        """As plain data."""
        return [(name, msgspec.structs.astuple(node)) for name, node in self.by_name.items()]

    def restore(self, state: list[Any]) -> None:
        """Take the state of `snapshot` up again."""
        self.by_name.update((name, NodeRecord(*fields)) for name, fields in state)


class JoinQueue:
    """Nodes that are out there and have no place in the topology yet.

    Not journaled: after a restart agents announce themselves again. A node that comes with other
    GPUs than before is a new one under the same name: it may join when the former one is lost and
    nothing of what ran there is left. One that was drained stays so.
    """

    def __init__(self, nodes: NodeRegistry, runs: RunTable) -> None:
        self._nodes = nodes
        self._runs = runs
        self._specs: dict[str, NodeSpec] = {}

    def consider(self, status: NodeStatus) -> None:
        """Queue a node that is up and has no place."""
        spec, name = status.spec, status.node
        if status.state == "lost" and spec is None:
            self._specs.pop(name, None)
        if spec is None or status.state != "up":
            return
        known = self._nodes.knows(name)
        if known and self._nodes.vertex(name).labels == spec.labels and not self._is_other(spec):
            self._specs.pop(name, None)
        elif _acceptable(spec):
            self._specs[name] = spec

    def ready(self) -> tuple[NodeSpec, ...]:
        """Those that can have a place now."""
        if not self._specs:
            return ()
        return tuple(spec for name, spec in self._specs.items() if self._is_free(name))

    def _is_other(self, spec: NodeSpec) -> bool:
        return _differs(self._nodes.vertex(spec.name), spec)

    def _is_free(self, name: str) -> bool:
        if not self._nodes.knows(name) or not self._is_other(self._specs[name]):
            return True  # it has its place, and only other labels
        node = self._nodes.by_name[name]
        kept = node.drained and not node.removed
        return not (kept or self._nodes.vertex(name).up or self._runs.on(name))

    def refresh(self) -> None:
        """The topology has grown: drop those that have their place."""
        self._specs = {
            name: spec
            for name, spec in self._specs.items()
            if not self._nodes.knows(name) or self._is_other(spec)
        }


def _acceptable(spec: NodeSpec) -> bool:
    """May this node join? If not, the log says why."""
    if _NAME.fullmatch(spec.name) and spec.name == spec.name.strip() and spec.gpus <= MOST_GPUS:
        return True
    log.warning(
        "node %r with %d GPUs may not join: names have letters, digits, '.', '_' and '-', and "
        "there may be %d GPUs", spec.name[:100], spec.gpus, MOST_GPUS,
    )  # fmt: skip
    return False


def _differs(vertex: Vertex, spec: NodeSpec) -> bool:
    """Is this another machine than the one with this place in the topology?"""
    return (vertex.gpus, vertex.gpu_type) != (spec.gpus, spec.gpu_type)


def _drained(node: NodeRecord) -> str:
    if node.drained:
        return f"drained by {node.drained_by}"
    return f"unhealthy: {node.sick}" if node.sick else ""


def _gpus(count: int, kind: str) -> str:
    return f"{count} GPUs of type {kind}" if kind else f"{count} GPUs"


class GrownNodes(NamedTuple):
    """How a cluster grows: what it has then, old names to new ones, who is new, who only changed.

    Numbers of nodes are in the event log, so none is ever given up: a node that was replaced keeps
    its own under another name. One that comes again with other labels is the same.
    """

    growth: Growth
    renamed: dict[str, str]
    new: list[NodeSpec]
    relabelled: list[NodeSpec]


def extended(growth: Growth, nodes: Sequence[NodeSpec]) -> GrownNodes:
    """With more nodes, or others, or other labels of the same."""
    taken = {spec.name: spec for group in growth for spec in group}
    same = {
        spec.name: spec
        for spec in nodes
        if spec.name in taken
        and (taken[spec.name].gpus, taken[spec.name].gpu_type) == (spec.gpus, spec.gpu_type)
    }
    new = [spec for spec in nodes if spec.name not in same]
    renamed = {spec.name: _unused(spec.name, {*taken}) for spec in new if spec.name in taken}
    before = [
        [
            msgspec.structs.replace(spec, name=renamed[spec.name])
            if spec.name in renamed
            else msgspec.structs.replace(spec, labels=same[spec.name].labels)
            if spec.name in same
            else spec
            for spec in group
        ]
        for group in growth
    ]
    return GrownNodes([*before, new] if new else before, renamed, new, list(same.values()))


def _unused(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}{REPLACED}{number}" in taken:
        number += 1
    return f"{name}{REPLACED}{number}"
