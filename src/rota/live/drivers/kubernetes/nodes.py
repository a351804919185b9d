"""Nodes as Kubernetes tells of them, who holds their GPUs, and what Rota makes of that."""

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Literal

import msgspec

from rota.core.kubernetes import is_gpu, machine, part, parts, pod_gpus, quantity, text
from rota.core.launch import CONTAINER
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec
from rota.live.drivers.kubernetes.api import KubeObject
from rota.live.drivers.kubernetes.launcher import read_end
from rota.live.drivers.kubernetes.options import KubernetesOptions

Health = Literal["up", "silent", "lost"]
EFFECTS = ("NoSchedule", "NoExecute")
PASSING = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
           "node.kubernetes.io/unschedulable")  # fmt: skip
"""Taints that say what the conditions and the switch say already."""


class KubeNode(msgspec.Struct, frozen=True):
    """A node: what it has, whether it answers, and why nothing is to be started there."""

    spec: NodeSpec
    ready: bool
    closed: str  # why; empty: it is open


def read_node(item: KubeObject, options: KubernetesOptions) -> KubeNode | None:
    """A node that Rota may use; None: it is none of those."""
    labels = part(item, "metadata", "labels")
    if any(labels.get(key) != value for key, value in options.node_selector.items()):
        return None
    status = part(item, "status")
    amounts = part(status, "allocatable") or part(status, "capacity")
    gpus = int(quantity(amounts.get(options.gpu_resource)))
    if not gpus:
        return None
    spec = machine(text(part(item, "metadata"), "name"), item, "whole")
    able = tuple(dict.fromkeys((*spec.labels, CONTAINER)))
    spec = msgspec.structs.replace(spec, gpus=gpus, labels=able)
    ready = any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in parts(status, "conditions")
    )
    return KubeNode(spec, ready, _closed(item, options.tolerations))


def other_gpus(items: Iterable[KubeObject], options: KubernetesOptions) -> list[str]:
    """Resources of nodes that stand for GPUs and are not the one that Rota hands out."""
    found: set[str] = set()
    for item in items:
        status = part(item, "status")
        amounts = part(status, "allocatable") or part(status, "capacity")
        found |= {name for name, value in amounts.items() if is_gpu(name) and quantity(value)}
    return sorted(found - {options.gpu_resource})


def _closed(item: KubeObject, tolerated: Sequence[str]) -> str:
    spec = part(item, "spec")
    if spec.get("unschedulable"):
        return "cordoned in Kubernetes"
    for taint in parts(spec, "taints"):
        key = text(taint, "key")
        if taint.get("effect") in EFFECTS and key not in tolerated and key not in PASSING:
            return f"tainted in Kubernetes: {key}"
    return ""


class NodeHealth:
    """Since when nodes are not ready: after a while what runs there is given up."""

    def __init__(self, lost_s: float) -> None:
        self._lost_s = lost_s
        self._since: dict[str, float] = {}

    def of(self, name: str, *, ready: bool) -> Health:
        """How it is now."""
        if ready:
            self._since.pop(name, None)
            return "up"
        since = self._since.setdefault(name, monotonic())
        return "lost" if monotonic() - since >= self._lost_s else "silent"

    def next_s(self) -> float | None:
        """When somebody may become lost."""
        return min(self._since.values()) + self._lost_s if self._since else None


class PodOccupancy:
    """GPUs of nodes that pods hold, whoever made them: as many as they ask of this resource."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._holding: dict[tuple[str, str], tuple[str, float]] = {}
        self._held: dict[str, dict[tuple[str, str], float]] = {}

    def update(self, key: tuple[str, str], item: KubeObject | None) -> None:
        """Take in what became of a pod."""
        before = self._holding.pop(key, None)
        if before is not None:
            del self._held[before[0]][key]
        node = text(part(item, "spec"), "nodeName") if item is not None else ""
        if item is None or not node or read_end(item) is not None:
            return
        gpus = pod_gpus(part(item, "spec")).get(self._resource, 0.0)
        if gpus:
            self._holding[key] = (node, gpus)
            self._held.setdefault(node, {})[key] = gpus

    def held(self, node: str) -> float:
        """GPUs of a node that are held."""
        return ordered_sum(self._held.get(node, {}).values())

    def holders(self, node: str) -> list[tuple[str, str]]:
        """Pods that hold GPUs of a node, as (namespace, name)."""
        return sorted(self._held.get(node, {}))

    def amount(self, key: tuple[str, str]) -> float:
        """GPUs that a pod holds."""
        return self._holding.get(key, ("", 0.0))[1]

    def on(self, key: tuple[str, str]) -> str:
        """The node whose GPUs a pod holds; empty: it holds none."""
        return self._holding.get(key, ("", 0.0))[0]
