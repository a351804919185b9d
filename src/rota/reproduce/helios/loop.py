"""The loops of Helios' and Lucid's simulators: strict queues, and quotas for those that preempt."""

from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar

from rota.core import events as ev
from rota.core.changes import Changes, Wake
from rota.core.errors import OptionError
from rota.core.events import Event
from rota.core.jobs import STARTING, WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.loop import Replanner, planned

Slices = list[tuple[int, float]]
"""Positions of nodes, with GPUs there."""


class Nodes:
    """Free GPUs of every node, by position, and the placer `consolidate`.

    A job that one node can hold goes to the node with the fewest free GPUs that suffice, the first
    of equals. A larger one takes wholly idle nodes for whole multiples of a node, and the remainder
    from the node with most free GPUs among the others: often one more idle node. The simulators
    know nodes of 8 GPUs only; here it is whatever size all nodes have.
    """

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
        return ordered_sum(self._free)

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


class HeliosJob:
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


class HeliosLoop(Replanner):
    """The jobs that wait and those that run, each in the order in which they began to."""

    def __init__(self, name: str, topology: Topology, knowledge: Knowledge, *, like: str) -> None:
        super().__init__(name, topology, knowledge)
        self.nodes = Nodes(topology, like)
        self.waiting: dict[int, HeliosJob] = {}
        self.running: dict[int, HeliosJob] = {}
        self._told: dict[int, int] = {}  # shape -> why its jobs wait

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:
        """To the end of the queue."""
        self.joins(HeliosJob(job, now_s))

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
        """Take or return its GPUs."""
        self.nodes.set_node(node, up=up)

    # --- for subclasses ---------------------------------------------------------------------------

    def joins(self, entry: HeliosJob) -> None:
        """It waits from now on."""
        self.waiting[entry.job.index] = entry

    def leaves(self, entry: HeliosJob) -> None:
        """It does not wait any more."""
        del self.waiting[entry.job.index]

    @abstractmethod
    def interrupted(self, entry: HeliosJob, now_s: float) -> None:
        """The run of a job ends before the job does, because its node failed."""

    def requeue(self, entry: HeliosJob) -> None:
        """From its nodes to the end of the queue."""
        self._vacate(entry)
        self.joins(entry)

    def _vacate(self, entry: HeliosJob) -> None:
        self.nodes.change(entry.held or [], +1)
        entry.held = None
        del self.running[entry.job.index]

    def launch(self, entry: HeliosJob, changes: Changes, start_s: float) -> bool:
        """Start it if there is a place."""
        found = self.nodes.find(entry.job.gpus)
        if found is None:
            return False
        self.leaves(entry)
        self._occupy(entry, found)
        slices = [(self.nodes.vertices[position], part) for position, part in found]
        changes.starts.append((entry.job, planned(slices, start_s)))
        return True

    def _occupy(self, entry: HeliosJob, held: Slices) -> None:
        self.nodes.change(held, -1)
        entry.held = held
        self.running[entry.job.index] = entry

    def tell(self, changes: Changes, blocked: Mapping[int, Job]) -> None:
        """Say why the jobs of these shapes wait; all others lack nothing."""
        free = self.nodes.free
        for number in [number for number in self._told if number not in blocked]:
            del self._told[number]
            changes.shape_reasons.append((number, 0, None))
        for number, job in blocked.items():
            reason = int(Reason.CAPACITY if free < job.gpus else Reason.FRAGMENTATION)
            if self._told.get(number) != reason:
                self._told[number] = reason
                changes.shape_reasons.append((number, reason, job))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Both orders; where jobs run is in their allocations."""
        return {
            "waiting": [_frozen(entry) for entry in self.waiting.values()],
            "running": [_frozen(entry) for entry in self.running.values()],
            "told": list(self._told.items()),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the accounts from the jobs, also of those whose end is still to be reported."""
        jobs = view.everyone
        for node in self.topology.nodes:
            self.nodes.set_node(node.id, up=node.up)
        for index, *others in state["waiting"]:
            self.joins(HeliosJob(jobs[index], *others))
        position = self.nodes.position
        for index, *others in state["running"]:
            entry = HeliosJob(jobs[index], *others)
            slices = entry.job.allocation.slices
            self._occupy(entry, [(position[vertex], part) for vertex, part in slices])
        self._told = dict(state["told"])


def _frozen(entry: HeliosJob) -> tuple[int, float, float, float]:
    return entry.job.index, entry.arrived_s, entry.debt_s, entry.served_s


# --- Policies that never preempt ------------------------------------------------------------------

Rank = tuple[float, ...]


def by_submission(job: Job) -> Rank:
    """FIFO."""
    return job.submit_s, job.index


def by_duration(job: Job) -> Rank:
    """SJF; sorts are stable, so equals stay in order of arrival."""
    return job.duration_s(), job.submit_s, job.index


def by_service(job: Job) -> Rank:
    """QSSF; equals stay in the order of a sort by GPUs."""
    return job.duration_s() * job.gpus, job.gpus, job.submit_s, job.index


ORDERS: dict[str, tuple[Callable[[Job], Rank], Knowledge]] = {
    "fifo": (by_submission, Knowledge.NOTHING),
    "sjf": (by_duration, Knowledge.REMAINING_WORK),
    "qssf": (by_service, Knowledge.REMAINING_WORK),
}
"""By policy: the rank of a job, and what it reads."""

_gpus = attrgetter("job.gpus")


class HeadOfLine(HeliosLoop):
    """FIFO, SJF and QSSF: a sorted queue, served from its head.

    Jobs start until one finds no place: nobody passes it. The simulators look every second; nothing
    changes between two events, so looking at events is the same.

    QSSF has a quirk. Jobs get a priority (estimated duration times GPUs) only once a job waited
    already before this second. As long as all jobs in the queue are new, it is served by their
    number of GPUs instead.
    """

    def __init__(self, name: str, topology: Topology, *, like: str) -> None:
        rank, knowledge = ORDERS[name]
        super().__init__(name, topology, knowledge, like=like)
        self._rank = rank
        self._new_by_gpus = name == "qssf"
        self._queue: list[tuple[Rank, HeliosJob]] = []  # ranks are unique

    def joins(self, entry: HeliosJob) -> None:
        """To its place in the order."""
        super().joins(entry)
        insort(self._queue, (self._rank(entry.job), entry))

    def leaves(self, entry: HeliosJob) -> None:
        """Mostly from the head."""
        super().leaves(entry)
        # the rank alone is less than the pair with its entry: just before it
        del self._queue[bisect_left(self._queue, (self._rank(entry.job),))]

    def interrupted(self, entry: HeliosJob, now_s: float) -> None:
        """It takes its place in the order again."""

    def decide(self, view: View, changes: Changes) -> Changes:
        """Start jobs until one has to wait."""
        blocked: dict[int, Job] = {}
        for entry in self._order(view.now_s):
            if entry.job.phase != WAITING or not self.launch(entry, changes, 0.0):
                blocked[entry.job.shape.number] = entry.job
                break
        self.tell(changes, blocked)
        return changes

    def _order(self, now_s: float) -> list[HeliosJob]:
        if self._new_by_gpus and all(entry.arrived_s == now_s for entry in self.waiting.values()):
            return sorted(self.waiting.values(), key=_gpus)
        return [entry for _, entry in self._queue]


# --- Policies that preempt ------------------------------------------------------------------------

LATE_S = 1.0  # the countdown reaches 0, and the next second sees it
Overhead = Callable[[float], float]
"""Seconds that the preemption of a job on so many GPUs costs."""


class QuotaScheduler(HeliosLoop):
    """SRTF and Lucid's Tiresias: a quota as large as the cluster, dealt out along an order.

    A job that asks for more than is left of the quota is skipped, and preempted if it runs. Only
    then places are looked for. The quota knows nothing of nodes, so a job can have its share, and
    victims have left for it, and still wait because no node has room. A preempted job has so many
    seconds more to run.

    The end of a job is noticed one second late: it ends after its time plus 1 s. Here that second,
    and the overhead of preemptions, is time to start (see `PlannedCosts`).

    SRTF looks every second, which is the same as at every arrival and end: by running, a job only
    moves ahead of others, and keeps its share then. Tiresias looks once a minute.
    """

    def __init__(
        self, name: str, topology: Topology, knowledge: Knowledge, *, like: str, overhead: Overhead
    ) -> None:
        super().__init__(name, topology, knowledge, like=like)
        self._overhead = overhead

    @abstractmethod
    def order(self, now_s: float) -> list[HeliosJob]:
        """All jobs, best first."""

    def decide(self, view: View, changes: Changes) -> Changes:
        """Deal out, preempt, place."""
        quota = view.up_gpus
        chosen: list[HeliosJob] = []
        victims: list[HeliosJob] = []
        without: list[HeliosJob] = []
        for entry in self.order(view.now_s):
            if entry.job.gpus <= quota:
                quota -= entry.job.gpus
                if entry.held is None:
                    chosen.append(entry)
            elif entry.held is not None:
                victims.append(entry)
            else:
                without.append(entry)
        for entry in victims:
            self._preempt(entry, changes, chosen[0].job if chosen else None, view.now_s)
        failed = [entry for entry in chosen if not self._start(entry, changes)]
        others = (*failed, *without, *victims)
        self.tell(changes, {entry.job.shape.number: entry.job for entry in reversed(others)})
        return changes

    def _start(self, entry: HeliosJob, changes: Changes) -> bool:
        if entry.job.phase != WAITING:  # it still leaves its old place
            return False
        return self.launch(entry, changes, entry.debt_s + LATE_S)

    def _preempt(
        self, entry: HeliosJob, changes: Changes, winner: Job | None, now_s: float
    ) -> None:
        job = entry.job
        owed_s = entry.debt_s - (now_s - job.start_s) if job.phase == STARTING else -LATE_S
        self.interrupted(entry, now_s)
        entry.debt_s = owed_s + self._overhead(job.gpus)
        self.requeue(entry)
        changes.stop(job, because_of=winner)

    def interrupted(self, entry: HeliosJob, now_s: float) -> None:
        """Remember how long it ran; a failure costs no overhead."""
        ran_s = now_s - entry.job.start_s
        entry.served_s += ran_s
        entry.debt_s = max(0.0, entry.debt_s - ran_s)


class RemainingScheduler(QuotaScheduler):
    """SRTF: who would end first. Of equals those who wait go first, in order of arrival."""

    wake_on: ClassVar[frozenset[int]] = frozenset(
        {
            *(ev.JOB_SUBMIT, ev.JOB_DONE, ev.JOB_FAILED, ev.JOB_CANCELLED),
            *(ev.JOB_STOPPED, ev.JOB_EVICTED, ev.NODE_DOWN, ev.NODE_UP),
        }
    )

    def __init__(self, name: str, topology: Topology, *, like: str, overhead: Overhead) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK, like=like, overhead=overhead)
        self.wake = Wake(on=self.wake_on)

    def order(self, now_s: float) -> list[HeliosJob]:
        """By what remains, overhead included."""
        keyed = [
            (entry.job.remaining_s(now_s) + entry.debt_s, entry) for entry in self.waiting.values()
        ]
        for entry in self.running.values():
            job = entry.job
            owed_s = entry.debt_s - (now_s - job.start_s) if job.phase == STARTING else -LATE_S
            keyed.append((job.remaining_s(now_s) + owed_s, entry))
        keyed.sort(key=_first)
        return [entry for _, entry in keyed]


def _first(pair: tuple[float, HeliosJob]) -> float:
    return pair[0]


class TwoQueueScheduler(QuotaScheduler):
    """Lucid's Tiresias: two queues by GPU-seconds, FIFO within each, asked once per round.

    Overhead counts as service. Of jobs submitted together those that run go first.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        *,
        like: str,
        overhead: Overhead,
        limit: float,
        round_s: int,
    ) -> None:
        super().__init__(name, topology, Knowledge.NOTHING, like=like, overhead=overhead)
        self.wake = Wake(on=frozenset(), every_s=round_s)
        self._round_s = round_s
        self._limit = limit

    def step(self, view: View, events: Sequence[Event]) -> Changes | None:
        """While no job waits there is nothing to do."""
        return super().step(view, events) if events or self.waiting else None

    def decide(self, view: View, changes: Changes) -> Changes:
        """Only at the round."""
        return changes if view.now_s % self._round_s else super().decide(view, changes)

    def order(self, now_s: float) -> list[HeliosJob]:
        """Those above the limit last."""
        limit = self._limit

        def rank(entry: HeliosJob) -> tuple[bool, float]:
            job = entry.job
            ran_s = now_s - job.start_s if entry.held is not None else 0.0
            return (entry.served_s + ran_s) * job.gpus > limit, job.submit_s

        return sorted([*self.running.values(), *self.waiting.values()], key=rank)
