"""Tiresias' placement scheme `yarn`: first fit on one node, or whole idle nodes of one switch.

A job that one node can hold goes to the first node with enough GPUs, CPUs (2 for a job of one GPU,
else 6 per GPU) and 5 GB of memory, whatever its size. A larger one takes as many wholly idle nodes
as it fills, and the first other node that can serve the remainder, all below one switch; every GPU
of it takes 6 CPUs and 6 + 0.1 n + 5 GB (n: its GPUs in all). What jobs themselves say about CPUs
and memory is not read. The level directly above the nodes stands for the switch.
"""

from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.jobs import Job, Shape
from rota.core.policy import Params
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.placement.base import Choice, Placement, Room
from rota.study.dialect import refusal

CPUS_ALONE = 2
CPUS_PER_GPU = 6
WORKER_GB = 5
SERVER_GB = 6  # of a parameter server ...
SERVER_GB_PER_WORKER = 0.1  # ... and for each of its workers
DEFAULT_CPUS_PER_GPU = 16
DEFAULT_GB_PER_GPU = 64


class NodeStock:
    """Free GPUs, CPUs and GB of every node; where the cluster declares none, defaults hold."""

    def __init__(self, topology: Topology) -> None:
        nodes = topology.nodes
        self.size = nodes[0].gpus
        self.gpus: list[float] = [node.gpus for node in nodes]
        self.cpus = [node.cpus or DEFAULT_CPUS_PER_GPU * node.gpus for node in nodes]
        self.mem_gb = [node.mem_gib or DEFAULT_GB_PER_GPU * node.gpus for node in nodes]
        self.up = [True] * len(nodes)

    def _needs(self, gpus: float, part: float) -> tuple[float, float]:
        """CPUs and GB that `part` of a job's GPUs need on one node."""
        if gpus <= self.size:
            return (CPUS_ALONE if gpus == 1 else CPUS_PER_GPU * gpus), WORKER_GB
        per_gpu = SERVER_GB + gpus * SERVER_GB_PER_WORKER + WORKER_GB
        return CPUS_PER_GPU * part, per_gpu * part

    def serves(self, position: int, gpus: float, part: float) -> bool:
        """This node has room for `part` of a job's GPUs."""
        cpus, mem_gb = self._needs(gpus, part)
        return (
            self.gpus[position] >= part
            and self.cpus[position] >= cpus
            and self.mem_gb[position] >= mem_gb
            and self.up[position]
        )

    def change(self, choice: Choice, gpus: float, sign: int) -> None:
        """Take (-1) or give (+1)."""
        for position, part in choice:
            cpus, mem_gb = self._needs(gpus, part)
            self.gpus[position] += sign * part
            self.cpus[position] += sign * cpus
            self.mem_gb[position] += sign * mem_gb


class TiresiasYarn(Placement):
    """First fit by node order, with its own accounts. For schedules that do not preempt."""

    name = "yarn"

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        super().__init__(topology, params, seed=seed)
        sizes = sorted({node.gpus for node in topology.nodes})
        if len(sizes) > 1:
            raise OptionError(
                f"placement 'yarn' of dialect 'tiresias' knows equal nodes only, this cluster has "
                f"nodes of {' and '.join(map(str, sizes))} GPUs: use --placement count"
            )
        self._books = NodeStock(topology)
        self._positions_of = {node.id: i for i, node in enumerate(topology.nodes)}
        below: dict[int, list[int]] = {}
        for position, node in enumerate(topology.nodes):
            below.setdefault(node.parent, []).append(position)
        self._switches = list(below.values())
        self._known: dict[float, Choice | None] = {}  # by GPUs, until something changes

    # --- choosing ---------------------------------------------------------------------------------

    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:  # noqa: ARG002
        """Nodes on the present state; `room` is not read, the accounts are this placement's own."""
        gpus = shape.gpus
        if gpus not in self._known:
            self._known[gpus] = self._find(gpus, self._books)
        return self._known[gpus]

    def _find(self, gpus: float, books: NodeStock) -> Choice | None:
        """The first switch that can serve the job."""
        for positions in self._switches:
            if gpus <= books.size:
                choice = _on_one(gpus, books, positions)
            else:
                choice = _across(gpus, books, positions)
            if choice is not None:
                return choice
        return None

    def never(self, shape: Shape) -> str | None:
        """Why even the empty cluster has no place; None if it has."""
        message = refusal(shape, self.topology)
        if message is None and self._find(shape.gpus, NodeStock(self.topology)) is None:
            message = (
                f"asks for {shape.describe()}, which Tiresias' placement 'yarn' can never find on "
                f"this cluster of {len(self.topology.nodes)} nodes with {self.topology.gpus} GPUs"
            )
        return message

    def fits(self, shape: Shape) -> bool:
        """Is there a place now?"""
        return self.choose(shape, self.room, None) is not None

    # --- what is free -----------------------------------------------------------------------------

    def take(self, job: Job, shape: Shape | None = None) -> Allocation:
        """Choose and reserve."""
        choice = self.choose(shape or job.shape, self.room, job)
        if choice is None:
            raise RuntimeError(f"{self.name}: {job} does not fit")
        nodes = self.topology.nodes
        allocation = Allocation([(nodes[position].id, part) for position, part in choice])
        self.hold(job, allocation)
        return allocation

    def hold(self, job: Job, allocation: Allocation) -> None:  # noqa: ARG002 - see the base
        """Reserve exactly this."""
        self._change(allocation, -1)

    def give(self, job: Job, allocation: Allocation) -> None:  # noqa: ARG002 - see the base
        """Take it back."""
        self._change(allocation, +1)

    def _change(self, allocation: Allocation, sign: int) -> None:
        choice = [(self._positions_of[vertex], part) for vertex, part in allocation.slices]
        self._books.change(choice, allocation.gpus, sign)
        self.free += sign * ordered_sum(
            part for position, part in choice if self._books.up[position]
        )
        self._known.clear()

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """A node went down or came back."""
        books, position = self._books, self._positions_of[node.id]
        if books.up[position] != up:
            books.up[position] = up
            self.free += books.gpus[position] if up else -books.gpus[position]
            self._known.clear()


def _on_one(gpus: float, books: NodeStock, positions: list[int]) -> Choice | None:
    for position in positions:
        if books.serves(position, gpus, gpus):
            return [(position, gpus)]
    return None


def _across(gpus: float, books: NodeStock, positions: list[int]) -> Choice | None:
    size = books.size
    count, rest = divmod(int(gpus), size)
    choice: Choice = []
    for position in positions:
        if books.gpus[position] == size and books.serves(position, gpus, size):
            choice.append((position, size))
            if len(choice) == count:
                break
    if len(choice) < count:
        return None
    if rest:
        taken = {position for position, _ in choice}
        for position in positions:
            if position not in taken and books.serves(position, gpus, rest):
                return [*choice, (position, rest)]
        return None
    return choice
