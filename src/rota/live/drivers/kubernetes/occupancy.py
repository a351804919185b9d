"""Who holds GPUs of which node, kept up to date pod by pod."""

from rota.core.kubernetes import part, pod_amounts, text
from rota.live.drivers.kubernetes.api import KubeObject
from rota.live.drivers.kubernetes.launcher import read_end


class PodOccupancy:
    """GPUs of nodes that pods hold, whoever made them."""

    def __init__(self) -> None:
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
        gpus = pod_amounts(part(item, "spec"), "whole")[2]
        if gpus:
            self._holding[key] = (node, gpus)
            self._held.setdefault(node, {})[key] = gpus

    def held(self, node: str) -> float:
        """GPUs of a node that are held."""
        return sum(self._held.get(node, {}).values())

    def holders(self, node: str) -> list[tuple[str, str]]:
        """Pods that hold GPUs of a node, as (namespace, name)."""
        return sorted(self._held.get(node, {}))

    def amount(self, key: tuple[str, str]) -> float:
        """GPUs that a pod holds."""
        return self._holding.get(key, ("", 0.0))[1]

    def on(self, key: tuple[str, str]) -> str:
        """The node whose GPUs a pod holds; empty: it holds none."""
        return self._holding.get(key, ("", 0.0))[0]
