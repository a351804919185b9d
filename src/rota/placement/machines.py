"""What is left on each node, as arrays: for placements that score all nodes at once.

Amounts are whole numbers (thousandths of GPUs and CPUs, MiB of memory), so that sums stay exact.
What is free is rounded up and what is asked down: who finds no room here has none. Rows are in the
order in which ties between nodes are broken.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np

from rota.core.topology import Vertex
from rota.placement.fragments import DUST, MILLI, Bools, Ints, JobClass, down
from rota.placement.room import Room

__all__ = ["MIB", "PLENTY", "NodeArrays", "down", "holds", "up"]

MIB = 1024  # of a GiB
PLENTY = 1 << 50  # where a cluster does not say how much there is


class NodeArrays:
    """Free amounts by row; `rows` gives the row of a node's position and `order` the way back."""

    def __init__(self, nodes: Sequence[Vertex], order: Sequence[int] | None = None) -> None:
        self.order = list(range(len(nodes)) if order is None else order)
        self.rows = {position: row for row, position in enumerate(self.order)}
        ranked = [nodes[position] for position in self.order]
        self.count = len(ranked)
        self.sizes = [node.gpus for node in ranked]
        self.types = sorted({node.gpu_type for node in ranked})
        self.kind: Ints = np.array([self.types.index(node.gpu_type) for node in ranked], np.int64)
        self.widest = max([1, *self.sizes])
        self.all_cpu: Ints = np.array([up(node.cpus * MILLI) for node in ranked], np.int64)
        self.all_mem: Ints = np.array([up(node.mem_gib * MIB) for node in ranked], np.int64)
        self.cpu: Ints = np.zeros(self.count, np.int64)
        self.mem: Ints = np.zeros(self.count, np.int64)
        self.gpus: Ints = np.zeros((self.count, self.widest), np.int64)

    def read(self, room: Room, positions: Sequence[int]) -> None:
        """Take over what is free on these nodes."""
        for position in positions:
            row = self.rows[position]
            if not room.up[position]:
                self.cpu[row] = self.mem[row] = -1  # below what anything asks for
                self.gpus[row] = 0
                continue
            self.cpu[row] = up(room.cpus[position] * MILLI) if room.has_cpus else PLENTY
            self.mem[row] = up(room.mem_gib[position] * MIB) if room.has_mem else PLENTY
            self.gpus[row] = self._devices(room, position, self.sizes[row])

    def _devices(self, room: Room, position: int, size: int) -> list[int]:
        """What is left of each GPU of a node."""
        shared = room.shares.get(position, {})
        nameless = size - len(shared) - int(room.gpus[position])  # taken, unknown which ones
        left = [0] * self.widest
        for number in range(size):
            if number in shared:
                left[number] = up(shared[number] * MILLI)
            elif nameless > 0:
                nameless -= 1
            else:
                left[number] = MILLI
        return left


def up(amount: float) -> int:
    """The next whole number, but for the dust of float sums."""
    return ceil(amount - DUST)


def holds(machines: NodeArrays, rows: Ints, kind: JobClass) -> Bools:
    """Which of these rows have the CPUs and GPUs for such a job, whatever the type of the GPUs."""
    enough: Bools = machines.cpu[rows] >= kind.cpu
    if kind.gpus:
        enough &= (machines.gpus[rows] >= kind.part).sum(axis=1) >= kind.gpus
    return enough
