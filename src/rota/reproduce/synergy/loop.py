"""Synergy's loop: in every round all jobs are put in order and allocated anew.

Leases last one round, so no job keeps anything by running. A job that does not fit is passed over.
Progress is counted in whole iterations of a round, and a job that has made its last one ends with
the round.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop
from math import floor
from typing import Any

from rota.core.allocation import Allocation
from rota.core.changes import Changes, Wake
from rota.core.events import Event
from rota.core.jobs import STOPPING, Job
from rota.core.knowledge import Knowledge
from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.loop import RATE, Blame, Replanner

Amounts = tuple[float, float, float]
"""GPUs, CPUs, memory in GiB."""
Taken = dict[int, Amounts]
"""By position of the server."""

UNPROFILED_STEP_S = 1.0


class SynergyJob:
    """A job with its demand; `held` is what it has this round, `speedup` what that gives it.

    Progress is counted in iterations of `step_s` seconds at the proportional share; `unit` is the
    work of one of them.
    """

    __slots__ = (
        "demand", "full", "gpus", "held", "iterations", "job", "speedup", "step_s", "total", "unit",
    )  # fmt: skip

    def __init__(self, job: Job, node: Amounts, share: Amounts) -> None:
        shape = job.shape
        gpus = self.gpus = int(shape.gpus)
        asked = (gpus, shape.cpus or share[1] * gpus, shape.mem_gib or share[2] * gpus)
        table = job.truth.sensitivity
        speedup = table.at(asked[1] / gpus, asked[2] / gpus) if table else 1.0
        self.step_s = (table.step_s if table else 0.0) or UNPROFILED_STEP_S
        self.unit = self.step_s / speedup
        self.total = round(job.true_work / self.unit) or 1
        self.job = job
        self.demand, self.full = clamped(asked, speedup, node, share)
        self.speedup = self.full
        self.held: Taken | None = None
        self.iterations = 0  # of this round

    def left(self, now_s: float) -> int:
        """Iterations that it still needs."""
        return max(0, round(self.job.left_at(now_s) / self.unit))

    def progress(self, round_s: float, *, fair: bool) -> None:
        """Whole iterations in a round; one of a round or longer counts as one."""
        step_s = self.step_s if fair else self.step_s / self.speedup
        self.iterations = max(1, floor(round_s / step_s))

    def has(self) -> Amounts:
        """All that it holds."""
        parts = list((self.held or {}).values())
        return (
            self.gpus,
            ordered_sum(part[1] for part in parts),
            ordered_sum(part[2] for part in parts),
        )


def clamped(asked: Amounts, speedup: float, node: Amounts, share: Amounts) -> tuple[Amounts, float]:
    """A demand that is cut to one server, and the speedup that is left.

    The speedup shrinks on a straight line by CPUs, from the ideal demand to the proportional share,
    also when only the memory is cut. Jobs larger than a server get their share.
    """
    gpus, cpus, mem_gib = asked
    if cpus <= node[1] and mem_gib <= node[2]:
        return asked, speedup
    fair_cpus = gpus * share[1]
    if gpus > node[0]:
        return (gpus, min(cpus, fair_cpus), min(mem_gib, gpus * share[2])), 1.0
    kept = (gpus, min(cpus, node[1]), min(mem_gib, node[2]))
    if cpus == fair_cpus:
        return kept, speedup
    return kept, 1 + (speedup - 1) / (cpus - fair_cpus) * (kept[1] - fair_cpus)


class Servers:
    """What is free on every server in this round; a server that is down has nothing.

    A job is placed GPU by GPU: servers in order, of each as many GPUs as there are with the CPUs
    and memory for each of them; jobs are not kept together. `tune` gives a job what it asks for if
    that fits; else its proportional share; and if other jobs hold so much that not even that fits,
    those are cut to their shares, in the order in which the simulator looks at them.
    """

    def __init__(self, free: Iterable[Amounts], share: Amounts, round_s: float) -> None:
        self.free = list(free)
        self._share = share
        self._round_s = round_s
        self._tenants: list[list[SynergyJob]] = [[] for _ in self.free]

    @property
    def gpus(self) -> float:
        """All that are free."""
        return ordered_sum(free[0] for free in self.free)

    def proportional(self, entry: SynergyJob) -> bool:
        """Give it its share, whatever it asks for."""
        return self._give(entry, self._fair(entry), fair=True)

    def greedy(self, entry: SynergyJob) -> bool:
        """Give it all that it asks for, or nothing."""
        return self._give(entry, entry.demand, fair=False)

    def tune(self, entry: SynergyJob) -> bool:
        """All that it asks for, else its share, else its share after others were cut to theirs."""
        if self._give(entry, entry.demand, fair=False):
            return True
        demand = self._cut(entry)
        if self._give(entry, demand, fair=False):
            return True
        for position, gpus in self._emptiest(entry.gpus).items():
            part = _times(demand, gpus / entry.gpus)
            for other in self._generous(position, part):
                self._reduce(other)
        return self._give(entry, demand, fair=False)

    def _fair(self, entry: SynergyJob) -> Amounts:
        return _times(self._share, entry.gpus)

    def _cut(self, entry: SynergyJob) -> Amounts:
        """Its share if it asks for more of anything, and then it is as fast as with its share."""
        fair = self._fair(entry)
        if all(want <= has for want, has in zip(entry.demand, fair, strict=True)):
            return entry.demand
        entry.speedup = 1.0
        return fair

    def _give(self, entry: SynergyJob, demand: Amounts, *, fair: bool) -> bool:
        found = self._find(demand)
        if found is None:
            return False
        self._hold(entry, found, fair=fair)
        for position in found:
            self._tenants[position].append(entry)
        return True

    def _hold(self, entry: SynergyJob, taken: Taken, *, fair: bool) -> None:
        for position, amounts in taken.items():
            self.free[position] = _minus(self.free[position], amounts)
        entry.held = taken
        entry.progress(self._round_s, fair=fair)

    def _find(self, demand: Amounts) -> Taken | None:
        missing = demand[0]
        each = _divided(demand, missing)
        found: Taken = {}
        for position, free in enumerate(self.free):
            taken = (0.0, 0.0, 0.0)
            while missing and _fits(each, _minus(free, taken)):
                taken = _plus(taken, each)
                missing -= 1
            if taken[0]:
                found[position] = taken
            if not missing:
                return found
        return None

    def _emptiest(self, gpus: int) -> dict[int, float]:
        """Where a job could go by GPUs alone: the first server for all of it, else the fullest."""
        if gpus > 1:
            for position, free in enumerate(self.free):
                if free[0] >= gpus:
                    return {position: gpus}
        queue = [(free[0], position) for position, free in enumerate(self.free) if free[0]]
        heapify(queue)
        chosen: dict[int, float] = {}
        missing: float = gpus
        while missing > 0 and queue:
            there, position = heappop(queue)
            chosen[position] = min(there, missing)
            missing -= chosen[position]
        return chosen

    def _generous(self, position: int, wanted: Amounts) -> list[SynergyJob]:
        """Jobs to be cut on a server, so that it has room: those with the most for each GPU first.

        Jobs that hold nothing in excess are among them: the simulator's test for them never holds,
        since no GPUs are missing.
        """
        missing = _positive(_minus(wanted, self.free[position]))
        if not any(missing):
            return []
        tenants = self._tenants[position]
        tenants.sort(key=_generosity)
        chosen = []
        for entry in tenants:
            here = (entry.held or {})[position][0]
            part = _times(entry.has(), here / entry.gpus)
            excess = _positive(_minus(part, _times(self._share, here)))
            missing = _positive(_minus(missing, excess))
            chosen.append(entry)
            if not any(missing):
                break
        return chosen

    def _reduce(self, entry: SynergyJob) -> None:
        """Cut a job to its share where it is; its round starts again."""
        held = entry.held or {}
        for position, amounts in held.items():
            self.free[position] = _plus(self.free[position], amounts)
        demand = self._cut(entry)
        taken = {
            position: _times(demand, amounts[0] / entry.gpus) for position, amounts in held.items()
        }
        self._hold(entry, taken, fair=True)


def _generosity(entry: SynergyJob) -> tuple[int, float, float]:
    gpus, cpus, mem_gib = entry.has()
    return (len(entry.held or ()), -cpus / gpus, -mem_gib / gpus)


def _fits(wanted: Amounts, free: Amounts) -> bool:
    return wanted[0] <= free[0] and wanted[1] <= free[1] and wanted[2] <= free[2]


def _plus(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _minus(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def _times(a: Amounts, factor: float) -> Amounts:
    return (a[0] * factor, a[1] * factor, a[2] * factor)


def _divided(a: Amounts, by: float) -> Amounts:
    return (a[0] / by, a[1] / by, a[2] / by)


def _positive(a: Amounts) -> Amounts:
    return (max(0.0, a[0]), max(0.0, a[1]), max(0.0, a[2]))


def total_of(nodes: Sequence[Amounts]) -> Amounts:
    """The sum."""
    total = (0.0, 0.0, 0.0)
    for node in nodes:
        total = _plus(total, node)
    return total


def extras(held: Mapping[int, Amounts]) -> list[tuple[int, str, float]]:
    """CPUs and memory as an allocation names them."""
    found = []
    for place, (_, cpus, mem_gib) in held.items():
        found += [(place, "cpu", cpus), (place, "memory", mem_gib)]
    return found


# --- Orders and rounds ----------------------------------------------------------------------------

Key = Callable[[SynergyJob, float, "LeaseRounds"], float]

SLACK = 1e-10
"""Rates are that much too high: else a job whose last iteration ends with its round could miss the
end of it by a rounding error. One iteration more or less is never that near."""


def remaining_s(entry: SynergyJob, now_s: float, leases: "LeaseRounds") -> float:
    """With the speedup of the last round, or at the proportional share in `proportional`."""
    seconds = entry.step_s * entry.left(now_s)
    return seconds if leases.fair else seconds / entry.speedup


def submission(entry: SynergyJob, now_s: float, leases: "LeaseRounds") -> float:  # noqa: ARG001
    """First come, first served."""
    return entry.job.submit_s


def attained(entry: SynergyJob, now_s: float, leases: "LeaseRounds") -> float:  # noqa: ARG001
    """GPU-seconds of leases."""
    return entry.job.executed_s(now_s) * entry.gpus


def unfairness(entry: SynergyJob, now_s: float, leases: "LeaseRounds") -> float:
    """Finish time in relation to that of a job alone; the least delayed come first."""
    waited_s = now_s - entry.job.submit_s + remaining_s(entry, now_s, leases)
    return waited_s / (entry.step_s * entry.total)


def dominant_share(entry: SynergyJob, now_s: float, leases: "LeaseRounds") -> float:  # noqa: ARG001
    """The largest part that it wants of any resource."""
    return max(want / all_ for want, all_ in zip(entry.demand, leases.total, strict=True))


def weighted_demand(entry: SynergyJob, now_s: float, leases: "LeaseRounds") -> float:
    """Remaining time x the sum of its parts of all resources."""
    seconds = remaining_s(entry, now_s, leases)
    parts = [want / all_ for want, all_ in zip(entry.demand, leases.total, strict=True)]
    return ordered_sum([part * seconds for part in parts])


ORDERS: dict[str, tuple[Key, Knowledge]] = {
    "fifo": (submission, Knowledge.NOTHING),
    "las": (attained, Knowledge.NOTHING),
    "srtf": (remaining_s, Knowledge.REMAINING_WORK),
    "ftf": (unfairness, Knowledge.REMAINING_WORK),
    "drf": (dominant_share, Knowledge.NOTHING),
    "tetris": (weighted_demand, Knowledge.REMAINING_WORK),
}


class LeaseRounds(Replanner):
    """One round after the other."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        *,
        order: str,
        mechanism: str,
        round_s: int,
        reversed_ties: bool,
    ) -> None:
        self._key, knowledge = ORDERS[order]
        super().__init__(name, topology, knowledge)
        self.wake = Wake(on=frozenset(), every_s=round_s)
        self.fair = mechanism == "proportional"
        self._mechanism = mechanism
        self._las = order == "las"
        self._round_s = round_s
        self._tie = -1 if reversed_ties else 1
        self._nodes: list[Amounts] = [(n.gpus, n.cpus, n.mem_gib) for n in topology.nodes]
        self._share = tuple(amount / self._nodes[0][0] for amount in self._nodes[0])
        self.total = total_of(self._nodes)
        self._entries: dict[int, SynergyJob] = {}
        self._decided_s = -1.0
        self._blame = Blame()

    # --- what happened ----------------------------------------------------------------------------

    def step(self, view: View, events: Sequence[Event]) -> Changes | None:
        """Between rounds only the accounts are updated."""
        if events:
            return super().step(view, events)
        return self.decide(view, Changes(view.version)) if self._entries else None

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It takes part from the next round on."""
        gpus, cpus, mem_gib = self._share
        self._entries[job.index] = SynergyJob(job, self._nodes[0], (gpus, cpus, mem_gib))
        self._blame.joins(job)

    def ended(self, job: Job) -> None:
        """Its lease is over."""
        entry = self._entries.pop(job.index, None)
        if entry is not None and entry.held is None:
            self._blame.leaves(job)

    def lost(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It waits for the next round."""
        self._entries[job.index].held = None
        self._blame.joins(job)

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """Allocate everything anew, once per round."""
        now_s = view.now_s
        if now_s % self._round_s or now_s == self._decided_s:
            return changes
        self._decided_s = now_s
        key, tie = self._key, self._tie
        order = sorted(
            self._entries.values(),
            key=lambda entry: (
                key(entry, now_s, self), entry.job.submit_s, tie * entry.job.index,
            ),
        )  # fmt: skip
        before = {entry.job.index for entry in order if entry.held is not None}
        for entry in order:
            entry.speedup = entry.full
            entry.held = None
        self._allocate([entry for entry in order if entry.job.phase != STOPPING])
        for entry in order:
            self._tell(entry, changes, held_before=entry.job.index in before)
        self._blame.tell(changes)
        return changes

    def _allocate(self, order: list[SynergyJob]) -> None:
        up = [node.up for node in self.topology.nodes]
        free = [node if ok else (0, 0.0, 0.0) for node, ok in zip(self._nodes, up, strict=True)]
        servers = Servers(free, self._share, self._round_s)  # type: ignore[arg-type]  # three
        give = getattr(servers, self._mechanism)
        for entry in self._chosen(order, servers.gpus) if self._las else order:
            if entry.gpus <= servers.gpus:
                give(entry)

    def _chosen(self, order: list[SynergyJob], gpus: float) -> list[SynergyJob]:
        """Las alone chooses by GPUs before it allocates, and `tune` then takes large jobs first."""
        chosen = []
        for entry in order:
            if entry.gpus <= gpus:
                chosen.append(entry)
                gpus -= entry.gpus
        if self._mechanism == "tune":
            chosen.sort(key=lambda entry: -entry.gpus)
        return chosen

    def _tell(self, entry: SynergyJob, changes: Changes, *, held_before: bool) -> None:
        job = entry.job
        if entry.held is None:
            if held_before:
                changes.stop(job)
                self._blame.joins(job)
            return
        if not held_before:
            self._blame.leaves(job)
        rate = entry.iterations * entry.unit / self._round_s * (1 + SLACK)
        nodes = self.topology.nodes
        held = {nodes[position].id: amounts for position, amounts in entry.held.items()}
        slices = [(place, int(amounts[0])) for place, amounts in held.items()]
        allocation = Allocation(slices, extras(held), {RATE: rate})
        if not held_before or allocation != job.allocation:
            changes.starts.append((job, allocation))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Who is there, the speedups of the last round, and who had a lease in it."""
        return {
            "jobs": [
                (index, entry.speedup, entry.held is not None)
                for index, entry in self._entries.items()
            ],
            "decided_s": self._decided_s,
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the accounts; what a lease holds does not matter for the next round."""
        for index, speedup, held in state["jobs"]:
            job = view.everyone[index]
            self.arrived(job, view.now_s)
            entry = self._entries[index]
            entry.speedup = speedup
            if held:  # not by its phase: there may be events that it has not been told yet
                entry.held = {}
                self._blame.leaves(job)
        self._blame.told = set(state["told"])
        self._decided_s = state["decided_s"]
