"""Nodes that are out there and have no place in the topology yet."""

from rota.core.topology import NodeSpec
from rota.live.machines import Machines, acceptable, differs
from rota.live.orders import NodeStatus
from rota.live.runs import Runs


class Joining:
    """Who wants to join. Not journaled: after a restart agents say it again.

    A node that comes with other GPUs than before is a new one under the same name: it may join when
    the former one is lost and nothing of what ran there is left. One that was drained stays so.
    """

    def __init__(self, machines: Machines, runs: Runs) -> None:
        self._machines = machines
        self._runs = runs
        self._specs: dict[str, NodeSpec] = {}

    def hear(self, status: NodeStatus) -> None:
        """Note whoever is up and has no place."""
        spec, name = status.spec, status.node
        if status.state == "lost" and spec is None:
            self._specs.pop(name, None)
        if spec is None or status.state != "up":
            return
        known = self._machines.knows(name)
        if known and not differs(self._machines.vertex(name), spec):
            self._specs.pop(name, None)
        elif acceptable(spec):
            self._specs[name] = spec

    def ready(self) -> tuple[NodeSpec, ...]:
        """Those who can have a place now."""
        if not self._specs:
            return ()
        return tuple(spec for name, spec in self._specs.items() if self._is_free(name))

    def _is_free(self, name: str) -> bool:
        if not self._machines.knows(name):
            return True
        machine = self._machines.by_name[name]
        kept = machine.drained and not machine.removed
        return not (kept or self._machines.vertex(name).up or self._runs.on(name))

    def joined(self) -> None:
        """The topology has grown: forget those who have their place."""
        self._specs = {
            name: spec
            for name, spec in self._specs.items()
            if not self._machines.knows(name) or differs(self._machines.vertex(name), spec)
        }
