"""Helios' and Lucid's placer `consolidate`, and the books that their loops share.

A job that one node can hold goes to the node with the fewest free GPUs that suffice, the first of
equals. A larger one takes wholly idle nodes for whole multiples of a node, and the remainder from
the node with most free GPUs among the others: often one more idle node. The simulators know nodes
of 8 GPUs only; here it is whatever size all nodes have.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from rota.core.errors import OptionError
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.reasons import Reason
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.helios.costs import planned
from rota.reproduce.replan import Replanner

Slices = list[tuple[int, float]]
"""Positions of nodes, with GPUs there."""


class Nodes:
    """Free GPUs of every node, by position."""

    def __init__(self, topology: Topology, dialect: str) -> None:
        sizes = sorted({node.gpus for node in topology.nodes})
        if len(sizes) > 1:
            raise OptionError(
                f"dialect {dialect!r} knows equal nodes only, this cluster has nodes of "
                f"{' and '.join(map(str, sizes))} GPUs: use a uniform cluster, or leave --like out"
            )
        self.size = sizes[0]
        self.vertices = [node.id for node in topology.nodes]
        self.position = {vertex: position for position, vertex in enumerate(self.vertices)}
        self._free: list[float] = [node.gpus for node in topology.nodes]
        self._down: dict[int, float] = {}  # what is free on nodes that are down

    @property
    def free(self) -> float:
        """GPUs that are free now, wherever they are."""
        return sum(self._free)

    def find(self, gpus: float) -> Slices | None:
        """Where the job would go; None if it has to wait."""
        free = self._free
        if gpus <= self.size:
            best = min(
                ((room, position) for position, room in enumerate(free) if room >= gpus),
                default=None,
            )
            return None if best is None else [(best[1], gpus)]
        whole, rest = divmod(int(gpus), self.size)
        order = sorted(range(len(free)), key=lambda position: -free[position])
        wanted: list[float] = [*[self.size] * whole, *([rest] if rest else [])]
        if len(order) < len(wanted):
            return None
        found: Slices = list(zip(order, wanted, strict=False))
        return found if all(free[position] >= part for position, part in found) else None

    def change(self, slices: Slices, sign: int) -> None:
        """Take (-1) or give back (+1)."""
        for position, part in slices:
            books = self._down if position in self._down else self._free
            books[position] += sign * part

    def set_node(self, vertex: int, *, up: bool) -> None:
        """A node that is down has nothing free."""
        position = self.position[vertex]
        if up and position in self._down:
            self._free[position] = self._down.pop(position)
        elif not up and position not in self._down:
            self._down[position] = self._free[position]
            self._free[position] = 0


class Entry:
    """An active job.

    Attributes:
        job: The job.
        held: Where it runs; None while it waits.
        arrived_s: When it joined the queue first.
        debt_s: Overhead of preemptions that is to be worked off at the next start.
        served_s: Seconds on GPUs in earlier runs, overhead included.
    """

    __slots__ = ("arrived_s", "debt_s", "held", "job", "served_s")

    def __init__(
        self, job: Job, arrived_s: float, debt_s: float = 0.0, served_s: float = 0.0
    ) -> None:
        self.job = job
        self.held: Slices | None = None
        self.arrived_s = arrived_s
        self.debt_s = debt_s
        self.served_s = served_s


class Loop(Replanner):
    """Books of a loop: who waits and who runs, each in the order in which they began to."""

    def __init__(self, name: str, topology: Topology, knowledge: Knowledge, *, like: str) -> None:
        super().__init__(name, topology, knowledge)
        self.nodes = Nodes(topology, like)
        self.waiting: dict[int, Entry] = {}
        self.running: dict[int, Entry] = {}
        self._told: dict[int, int] = {}  # shape -> why its jobs wait

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:
        """To the end of the queue."""
        self.joins(Entry(job, now_s))

    def ended(self, job: Job) -> None:
        """Its GPUs are free."""
        if job.index in self.waiting:
            self.leaves(self.waiting[job.index])
        elif job.index in self.running:
            self._vacate(self.running[job.index])

    def lost(self, job: Job, now_s: float) -> None:
        """It waits again."""
        entry = self.running[job.index]
        self.interrupted(entry, now_s)
        self.requeue(entry)

    def node_changed(self, node: int, *, up: bool) -> None:
        """Keep the books of it."""
        self.nodes.set_node(node, up=up)

    # --- for subclasses ---------------------------------------------------------------------------

    def joins(self, entry: Entry) -> None:
        """It waits from now on."""
        self.waiting[entry.job.index] = entry

    def leaves(self, entry: Entry) -> None:
        """It does not wait any more."""
        del self.waiting[entry.job.index]

    @abstractmethod
    def interrupted(self, entry: Entry, now_s: float) -> None:
        """The run of a job ends before the job does, because its node failed."""

    def requeue(self, entry: Entry) -> None:
        """From its nodes to the end of the queue."""
        self._vacate(entry)
        self.joins(entry)

    def _vacate(self, entry: Entry) -> None:
        self.nodes.change(entry.held or [], +1)
        entry.held = None
        del self.running[entry.job.index]

    def launch(self, entry: Entry, plan: Plan, start_s: float) -> bool:
        """Start it if there is a place."""
        found = self.nodes.find(entry.job.gpus)
        if found is None:
            return False
        self.leaves(entry)
        self._occupy(entry, found)
        slices = [(self.nodes.vertices[position], part) for position, part in found]
        plan.starts.append((entry.job, planned(slices, start_s)))
        return True

    def _occupy(self, entry: Entry, held: Slices) -> None:
        self.nodes.change(held, -1)
        entry.held = held
        self.running[entry.job.index] = entry

    def tell(self, plan: Plan, blocked: Mapping[int, Job]) -> None:
        """Say why the jobs of these shapes wait; nobody else lacks anything."""
        free = self.nodes.free
        for number in [number for number in self._told if number not in blocked]:
            del self._told[number]
            plan.shape_reasons.append((number, 0, None))
        for number, job in blocked.items():
            reason = int(Reason.CAPACITY if free < job.gpus else Reason.FRAGMENTATION)
            if self._told.get(number) != reason:
                self._told[number] = reason
                plan.shape_reasons.append((number, reason, job))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Both orders; where jobs run is in their allocations."""
        return {
            "waiting": [_frozen(entry) for entry in self.waiting.values()],
            "running": [_frozen(entry) for entry in self.running.values()],
            "told": list(self._told.items()),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the books from the jobs, also of those whose end is still to be told."""
        jobs = view.everyone
        for node in self.topology.nodes:
            self.nodes.set_node(node.id, up=node.up)
        for index, *others in state["waiting"]:
            self.joins(Entry(jobs[index], *others))
        position = self.nodes.position
        for index, *others in state["running"]:
            entry = Entry(jobs[index], *others)
            slices = entry.job.allocation.slices
            self._occupy(entry, [(position[vertex], part) for vertex, part in slices])
        self._told = dict(state["told"])


def _frozen(entry: Entry) -> tuple[int, float, float, float]:
    return entry.job.index, entry.arrived_s, entry.debt_s, entry.served_s
