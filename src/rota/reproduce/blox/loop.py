"""Blox's loop: every round the active jobs are put in order and placed by one walk along it.

Running jobs keep their GPUs. A waiting job that finds no place evicts running jobs from the end of
the order, one by one, until it does. Evictions are kept even if it never does, and then the walk
stops: nobody passes the first job that cannot be placed. A job evicted in a walk may be placed
again later in the same walk; that is a preemption all the same.

Placing is "scatter": nodes in order, as many GPUs of each as are free and the job asks for, until
the sum is exactly what it asks for. It asks every node for all its GPUs instead of for what is
missing, so the sum can overshoot, and then the job counts as not placeable (need 2, free 1 and 4).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rota.core.allocation import Allocation
from rota.core.changes import Changes, Wake
from rota.core.events import Event
from rota.core.jobs import RUNNING, STARTING, STOPPING, Job
from rota.core.knowledge import Knowledge
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.loop import Replanner

Slices = list[tuple[int, float]]
Key = Callable[[Job, float], float]
Scatter = Callable[[float, Sequence[float]], Slices | None]

NO_ONE = (-1, 0)


def scatter(need: float, free: Sequence[float]) -> Slices | None:
    """As Blox does it: an overshoot never recovers (placement.py compares with `==`)."""
    got: float = 0
    taken: Slices = []
    for position, room in enumerate(free):
        if room:
            part = min(room, need)
            taken.append((position, part))
            got += part
            if got >= need:
                return taken if got == need else None
    return None


def scatter_fixed(need: float, free: Sequence[float]) -> Slices | None:
    """Repaired: of every node only what is still missing."""
    taken: Slices = []
    for position, room in enumerate(free):
        if room:
            part = min(room, need)
            taken.append((position, part))
            need -= part
            if not need:
                return taken
    return None


class _BloxJob:
    """An active job; `held` are positions of nodes with GPUs there, None while it waits."""

    __slots__ = ("held", "job", "key")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.held: Slices | None = None
        self.key = 0.0


def _key(entry: _BloxJob) -> float:
    return entry.key


class RoundScheduler(Replanner):
    """One walk per round. `drifts`: the order can change by itself, from jobs' progress alone."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        *,
        key: Key,
        knowledge: Knowledge,
        drifts: bool,
        round_s: int,
        place: Scatter,
    ) -> None:
        super().__init__(name, topology, knowledge)
        self.wake = Wake(on=frozenset(), every_s=round_s)
        self._job_key = key
        self._drifts = drifts
        self._round_s = round_s
        self._place = place
        self._nodes = [node.id for node in topology.nodes]
        self._position = {vertex: position for position, vertex in enumerate(self._nodes)}
        self._free: list[float] = [node.gpus for node in topology.nodes]
        self._down: dict[int, float] = {}  # position -> what is free on a node that is down
        self._entries: dict[int, _BloxJob] = {}  # in order of arrival
        self._waiting = 0
        self._changed = False  # something happened since the last walk
        self._walked_s = -1.0
        self._blamed = NO_ONE  # shape of the job that stops everybody, and why

    def step(self, view: View, events: Sequence[Event]) -> Changes | None:
        """Between rounds only the accounts are updated."""
        if events:
            self._changed = True
            return super().step(view, events)
        if self._changed or (self._drifts and self._waiting):
            return self.decide(view, Changes(view.version))
        return None

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """Last among its equals."""
        self._entries[job.index] = _BloxJob(job)
        self._waiting += 1

    def ended(self, job: Job) -> None:
        """Its GPUs are free."""
        entry = self._entries.pop(job.index, None)
        if entry is None:
            return
        if entry.held is None:
            self._waiting -= 1
        else:
            self._release(entry)

    def lost(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It waits again."""
        self._release(self._entries[job.index])
        self._waiting += 1

    def node_changed(self, node: int, *, up: bool) -> None:
        """A node that is down has no free GPUs."""
        position = self._position[node]
        if up and position in self._down:
            self._free[position] = self._down.pop(position)
        elif not up and position not in self._down:
            self._down[position] = self._free[position]
            self._free[position] = 0

    def _release(self, entry: _BloxJob) -> None:
        for position, part in entry.held or ():
            if position in self._down:
                self._down[position] += part
            else:
                self._free[position] += part
        entry.held = None

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """Walk once per round."""
        now_s = view.now_s
        if now_s % self._round_s or now_s == self._walked_s:
            return changes
        self._walked_s = now_s
        self._changed = False
        if self._waiting:
            key = self._job_key
            for entry in self._entries.values():
                entry.key = key(entry.job, now_s)
            self._walk(sorted(self._entries.values(), key=_key), changes)
        elif self._blamed != NO_ONE:
            self._blame(changes, None)
        return changes

    def _walk(self, order: list[_BloxJob], changes: Changes) -> None:
        placed: list[_BloxJob] = []
        last = len(order)  # none from here on runs
        blocked: Job | None = None
        for position, entry in enumerate(order):
            if not self._waiting:
                break
            if entry.held is not None or entry.job.phase == STOPPING:
                continue
            found = self._find(entry.job.gpus)
            while found is None and last > position + 1:
                last -= 1
                if self._evict(order[last], entry.job, changes):
                    found = self._find(entry.job.gpus)
            if found is not None:
                self._take(entry, found)
                placed.append(entry)
            elif self._hopeless():
                self._give_up(entry.job, changes)
            else:
                blocked = entry.job
                break
        nodes = self._nodes
        for entry in placed:
            slices = [(nodes[position], part) for position, part in entry.held or ()]
            changes.starts.append((entry.job, Allocation(slices)))
        self._blame(changes, blocked)

    def _find(self, gpus: float) -> Slices | None:
        return self._place(gpus, self._free)

    def _take(self, entry: _BloxJob, found: Slices) -> None:
        for position, part in found:
            self._free[position] -= part
        entry.held = found
        self._waiting -= 1

    def _evict(self, entry: _BloxJob, winner: Job, changes: Changes) -> bool:
        if entry.held is None:
            return False
        self._release(entry)
        self._waiting += 1
        changes.stop(entry.job, because_of=winner)
        return True

    # --- jobs that would wait for ever ------------------------------------------------------------

    def _hopeless(self) -> bool:
        """It found no place, and the cluster is as empty as can be: Blox would loop for ever."""
        nodes = self.topology.nodes
        return not self._down and all(
            free == node.gpus for free, node in zip(self._free, nodes, strict=True)
        )

    def _give_up(self, job: Job, changes: Changes) -> None:
        del self._entries[job.index]
        self._waiting -= 1
        if job.started:
            changes.cancel([job])
            return
        sizes = sorted({node.gpus for node in self.topology.nodes})
        changes.reject(
            job,
            f"asks for {job.shape.describe()}: Blox's scatter placement takes as many of each node "
            f"as it can, overshoots on empty nodes of {' or '.join(map(str, sizes))} GPUs and "
            f"would try for ever; ask for another size, or use --like blox:scatter=fixed",
        )

    def _blame(self, changes: Changes, job: Job | None) -> None:
        """Only the first blocked job is told: the others wait for it."""
        now = NO_ONE
        if job is not None:
            lacks = ordered_sum(self._free) < job.gpus
            now = (job.shape.number, int(Reason.CAPACITY if lacks else Reason.FRAGMENTATION))
        if now != self._blamed:
            if self._blamed[0] not in (-1, now[0]):
                changes.shape_reasons.append((self._blamed[0], 0, None))
            if job is not None:
                changes.shape_reasons.append((*now, job))
            self._blamed = now

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Arrival order; where jobs run is in their allocations."""
        return {
            "jobs": list(self._entries),
            "changed": self._changed,
            "walked_s": self._walked_s,
            "blamed": self._blamed,
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the accounts from the jobs."""
        for node in self.topology.nodes:
            if not node.up:
                self.node_changed(node.id, up=False)
        for index in state["jobs"]:
            job = view.active[index]
            self.arrived(job, view.now_s)
            if job.phase in (RUNNING, STARTING):
                held = [(self._position[vertex], part) for vertex, part in job.allocation.slices]
                self._take(self._entries[index], held)
        self._changed = state["changed"]
        self._walked_s = state["walked_s"]
        self._blamed = tuple(state["blamed"])
