"""Which concrete GPUs of the machine a job gets for its slices."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.topology import DEVICE, NODE, Topology

EPSILON = 1e-6

Share: TypeAlias = tuple[int, float]
"""(device vertex, part of it)."""


class Devices:
    """Books of the devices: whole ones are exclusive, fractions may share one.

    All nodes of the topology are parts of this machine, so their GPUs are numbered through: on two
    nodes with two GPUs each the second has 2 and 3. `names` replaces the numbers by what
    CUDA_VISIBLE_DEVICES shall say (other numbers, UUIDs), in the same order.
    """

    def __init__(self, topology: Topology, names: Sequence[str] | None = None) -> None:
        self._topology = topology
        all_devices = [d for node in topology.nodes for d in topology.devices(node.id)]
        if names is None:
            names = [str(number) for number in range(len(all_devices))]
        if len(names) != len(all_devices):
            raise OptionError(
                f"devices names {len(names)} GPUs, but the cluster has {len(all_devices)}: "
                f"give one name for each"
            )
        self._names = dict(zip(all_devices, names, strict=True))
        self._used = dict.fromkeys(all_devices, 0.0)

    def take(self, allocation: Allocation) -> list[Share] | None:
        """Devices for an allocation, from now on its own; None if not all of it is free."""
        taken: list[Share] = []
        vertices = self._topology.vertices
        # slices that name their device come first, lest a node's slice takes it
        for vertex, amount in sorted(
            allocation.slices, key=lambda part: vertices[part[0]].level != DEVICE
        ):
            shares = self._choose(vertex, amount)
            if shares is None:
                self.give(taken)
                return None
            for device, part in shares:
                self._used[device] += part
            taken += shares
        return taken

    def give(self, shares: Sequence[Share]) -> None:
        """Free them again."""
        for device, part in shares:
            left = self._used[device] - part
            self._used[device] = left if left > EPSILON else 0.0

    def visible(self, shares: Sequence[Share]) -> str:
        """The value of CUDA_VISIBLE_DEVICES; empty (no GPU at all) for a job without GPUs."""
        held = {device for device, _ in shares}
        return ",".join(name for device, name in self._names.items() if device in held)

    def _choose(self, vertex: int, amount: float) -> list[Share] | None:
        """Whole devices in order; a remaining fraction goes to the fullest one with room for it."""
        whole = int(amount + EPSILON)
        rest = amount - whole
        candidates = list(self._below(vertex))
        idle = [device for device in candidates if not self._used[device]]
        if len(idle) < whole:
            return None
        shares: list[Share] = [(device, 1.0) for device in idle[:whole]]
        if rest > EPSILON:
            taken = set(idle[:whole])
            room = [d for d in candidates if d not in taken and self._used[d] + rest <= 1 + EPSILON]
            if not room:
                return None
            shares.append((max(room, key=self._used.__getitem__), rest))
        return shares

    def _below(self, vertex: int) -> Iterator[int]:
        """The devices that a slice of this place may mean, on nodes that are up."""
        place = self._topology.vertices[vertex]
        if place.level == DEVICE:
            yield vertex
            return
        for node in self._topology.nodes:
            if place.level == NODE:
                inside = node is place
            elif place in self._topology.pools and place.id:
                inside = node.gpu_type == place.gpu_type
            else:
                inside = place.id in self._topology.ancestors(node.id)
            if inside and node.up:
                yield from self._topology.devices(node.id)
