"""The contract that the packer needs of a placement, and a general implementation of it.

Feasibility must be monotone: taking devices away never makes a request fit. A concrete placement
only has to say which nodes it would choose (`choose`); the bookkeeping, the "would it fit if these
jobs were gone" walk and the choice of victims are shared. `count` and `consolidate` override them
with faster equivalents.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from rota.core.allocation import Allocation
from rota.core.jobs import Job, Request, Shape
from rota.core.policy import Params
from rota.core.topology import Topology, Vertex

EPSILON = 1e-9  # fractions of GPUs and CPUs are sums of floats

Choice = list[tuple[int, float]]
"""(position of a node, GPUs taken there)."""


class Room:
    """What is free on each node, by position in `topology.nodes`."""

    def __init__(self, nodes: Sequence[Vertex]) -> None:
        self.nodes = nodes
        self.gpus: list[float] = [node.gpus for node in nodes]
        self.cpus: list[float] = [node.cpus for node in nodes]
        self.mem_gib: list[float] = [node.mem_gib for node in nodes]
        self.up = [True] * len(nodes)
        self.has_cpus = any(self.cpus)
        self.has_mem = any(self.mem_gib)

    def copy(self) -> "Room":
        """An independent copy."""
        other = Room.__new__(Room)
        other.nodes = self.nodes
        other.gpus, other.cpus, other.mem_gib = self.gpus[:], self.cpus[:], self.mem_gib[:]
        other.up = self.up
        other.has_cpus, other.has_mem = self.has_cpus, self.has_mem
        return other

    def matches(self, position: int, shape: Shape) -> bool:
        """The node is up and of an acceptable kind."""
        node = self.nodes[position]
        return (
            self.up[position]
            and (not shape.types or node.gpu_type in shape.types)
            and all(label in node.labels for label in shape.labels)
        )

    def usable(self, position: int, shape: Shape) -> float:
        """How many of the request's GPUs this node could serve now (1 for a request without GPUs)."""
        if not self.matches(position, shape):
            return 0
        total = shape.gpus
        share = 1 / total if total else 1.0
        usable = self.gpus[position] if total else 1.0
        if shape.cpus and self.has_cpus:
            usable = min(usable, _parts(self.cpus[position], shape.cpus * share))
        if shape.mem_gib and self.has_mem:
            usable = min(usable, _parts(self.mem_gib[position], shape.mem_gib * share))
        return usable

    def change(self, slices: Iterable[tuple[int, float]], shape: Shape, sign: int) -> None:
        """Take (-1) or give (+1) a job's slices, by position."""
        total = shape.gpus
        for position, amount in slices:
            self.gpus[position] += sign * (amount if total else 0)
            share = amount / total if total else 1.0
            self.cpus[position] += sign * shape.cpus * share
            self.mem_gib[position] += sign * shape.mem_gib * share


def _parts(have: float, need: float) -> float:
    """Whole times that `need` goes into `have`."""
    return int(have / need + EPSILON) if need > 0 else have


class Placement(ABC):
    """General bookkeeping around `choose`."""

    name: ClassVar[str] = ""
    Parameters: ClassVar[type[Params]] = Params
    filters: ClassVar[bool] = False
    """`maybe` can say no."""
    pooled: ClassVar[bool] = False
    """A request fits whenever enough GPUs are free, wherever they are."""

    def __init__(self, topology: Topology, params: Params | None = None, *, seed: int = 0) -> None:
        self.topology = topology
        self.params = params if params is not None else self.Parameters()
        self.seed = seed
        self.room = Room(topology.nodes)
        self.free: float = topology.gpus
        self.position = {node.id: i for i, node in enumerate(topology.nodes)}
        self._trial = self.room
        self._shape = Shape(-1, Request())
        self._tail: list[Job] = []
        self._clock = 0
        self._fits: dict[int, tuple[int, bool]] = {}

    @abstractmethod
    def choose(self, shape: Shape, room: Room, job: Job | None) -> Choice | None:
        """Nodes for a request, or None. Whether there is one must not depend on `job`."""

    # --- the contract -----------------------------------------------------------------------------

    def never(self, shape: Shape) -> str | None:
        """Why this request can never fit, even with every node up and empty; None if it can."""
        if self.choose(shape, Room(self.topology.nodes), None) is not None:
            return None
        return (
            f"asks for {shape.describe()}, which placement {self.name!r} can never find on this "
            f"cluster of {len(self.topology.nodes)} nodes with {self.topology.gpus} GPUs"
        )

    def fits(self, shape: Shape) -> bool:
        """Is there a placement now?"""
        known = self._fits.get(shape.number)
        if known is not None and known[0] == self._clock:
            return known[1]
        fits = self.choose(shape, self.room, None) is not None
        self._fits[shape.number] = (self._clock, fits)
        return fits

    def take(self, job: Job) -> Allocation:
        """Choose and reserve; only after `fits` said yes."""
        choice = self.choose(job.shape, self.room, job)
        if choice is None:
            raise RuntimeError(f"{self.name}: {job} does not fit")
        allocation = self.allocation(job.shape, choice)
        self.room.change(choice, job.shape, -1)
        self.free -= allocation.gpus
        self._clock += 1
        return allocation

    def allocation(self, shape: Shape, choice: Choice) -> Allocation:
        """The allocation that a choice of nodes stands for."""
        nodes = self.topology.nodes
        extra: list[tuple[int, str, float]] = []
        total = shape.gpus
        for position, amount in choice:
            share = amount / total if total else 1.0
            if shape.cpus:
                extra.append((nodes[position].id, "cpu", shape.cpus * share))
            if shape.mem_gib:
                extra.append((nodes[position].id, "memory", shape.mem_gib * share))
        return Allocation(
            [(nodes[position].id, amount) for position, amount in choice if total], extra
        )

    def hold(self, job: Job, allocation: Allocation) -> None:
        """Reserve exactly this for the job."""
        self._change(job, allocation, -1)

    def give(self, job: Job, allocation: Allocation) -> None:
        """Take back what the job held."""
        self._change(job, allocation, +1)

    def set_node(self, node: Vertex, *, up: bool) -> None:
        """A node went down or came back; the jobs on it are told separately."""
        position = self.position[node.id]
        if self.room.up[position] != up:
            self.room.up[position] = up
            self.free += self.room.gpus[position] if up else -self.room.gpus[position]
            self._clock += 1

    # --- would it fit if these were gone? -------------------------------------------------------------

    def begin(self, shape: Shape) -> None:
        """Start a walk: nothing is gone yet."""
        self._shape = shape
        self._trial = self.room.copy()
        self._tail = []

    def add(self, job: Job) -> bool:
        """This running job is gone too: would it fit now?"""
        self._tail.append(job)
        self._trial.change(self._places(job, job.allocation), job.shape, +1)
        return self.choose(self._shape, self._trial, None) is not None

    def walk(self, shape: Shape, lower: Iterable[Job]) -> bool:
        """Would it fit if some of these were gone? Takes no more of them than it needs."""
        self.begin(shape)
        return any(self.add(job) for job in lower)

    def victims(self) -> list[Job]:
        """Who must go: from the best-ranked down, whoever still leaves room on the chosen nodes stays."""
        shape = self._shape
        choice = self.choose(shape, self._trial, None) or []
        trial = self._trial
        trial.change(choice, shape, -1)
        chosen = {position for position, _ in choice}
        out = []
        for job in reversed(self._tail):
            places = self._places(job, job.allocation)
            if not any(position in chosen for position, _ in places):
                continue
            trial.change(places, job.shape, -1)
            if any(self._over(position) for position, _ in places if position in chosen):
                trial.change(places, job.shape, +1)
                out.append(job)
        return out

    def maybe(self, job: Job, now_s: float, dirty: set[int]) -> bool:  # noqa: ARG002
        """The waiting job did not fit before something changed on the `dirty` vertices: may it now?

        False must be certain.
        """
        return True

    # --- shared detail ----------------------------------------------------------------------------------

    def _over(self, position: int) -> bool:
        room = self._trial
        return (
            room.gpus[position] < -EPSILON
            or (room.has_cpus and room.cpus[position] < -EPSILON)
            or (room.has_mem and room.mem_gib[position] < -EPSILON)
        )

    def _places(self, job: Job, allocation: Allocation) -> Choice:
        if job.shape.gpus:
            return [(self.position[vertex], amount) for vertex, amount in allocation.slices]
        places = {vertex for vertex, _, _ in allocation.extra}
        return [(self.position[vertex], 1.0) for vertex in sorted(places)]

    def _change(self, job: Job, allocation: Allocation, sign: int) -> None:
        places = self._places(job, allocation)
        self.room.change(places, job.shape, sign)
        for position, amount in places:
            if self.room.up[position] and job.shape.gpus:
                self.free += sign * amount
        self._clock += 1
