"""What Synergy's allocator does with the servers in one round.

A job is placed GPU by GPU: servers in order, of each as many GPUs as there are with the CPUs and
memory for each of them; jobs are not kept together. `tune` gives a job what it asks for if that
fits; else its proportional share; and if other jobs hold so much that not even that fits, those are
cut to their shares, in the order in which the simulator looks at them.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop
from math import floor

from rota.core.jobs import Job

Amounts = tuple[float, float, float]
"""GPUs, CPUs, memory in GiB."""
Taken = dict[int, Amounts]
"""By position of the server."""

UNPROFILED_STEP_S = 1.0


class Entry:
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
        table = job.behaviour.sensitivity
        speedup = table.at(asked[1] / gpus, asked[2] / gpus) if table else 1.0
        self.step_s = (table.step_s if table else 0.0) or UNPROFILED_STEP_S
        self.unit = self.step_s / speedup
        self.total = round(job.work / self.unit) or 1
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
            sum(part[1] for part in parts),
            sum(part[2] for part in parts),
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
    """What is free on every server in this round; a server that is down has nothing."""

    def __init__(self, free: Iterable[Amounts], share: Amounts, round_s: float) -> None:
        self.free = list(free)
        self._share = share
        self._round_s = round_s
        self._tenants: list[list[Entry]] = [[] for _ in self.free]

    @property
    def gpus(self) -> float:
        """All that are free."""
        return sum(free[0] for free in self.free)

    def proportional(self, entry: Entry) -> bool:
        """Give it its share, whatever it asks for."""
        return self._give(entry, self._fair(entry), fair=True)

    def greedy(self, entry: Entry) -> bool:
        """Give it all that it asks for, or nothing."""
        return self._give(entry, entry.demand, fair=False)

    def tune(self, entry: Entry) -> bool:
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

    def _fair(self, entry: Entry) -> Amounts:
        return _times(self._share, entry.gpus)

    def _cut(self, entry: Entry) -> Amounts:
        """Its share if it asks for more of anything, and then it is as fast as with its share."""
        fair = self._fair(entry)
        if all(want <= has for want, has in zip(entry.demand, fair, strict=True)):
            return entry.demand
        entry.speedup = 1.0
        return fair

    def _give(self, entry: Entry, demand: Amounts, *, fair: bool) -> bool:
        found = self._find(demand)
        if found is None:
            return False
        self._hold(entry, found, fair=fair)
        for position in found:
            self._tenants[position].append(entry)
        return True

    def _hold(self, entry: Entry, taken: Taken, *, fair: bool) -> None:
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

    def _generous(self, position: int, wanted: Amounts) -> list[Entry]:
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

    def _reduce(self, entry: Entry) -> None:
        """Cut a job to its share where it is; its round starts again."""
        held = entry.held or {}
        for position, amounts in held.items():
            self.free[position] = _plus(self.free[position], amounts)
        demand = self._cut(entry)
        taken = {
            position: _times(demand, amounts[0] / entry.gpus) for position, amounts in held.items()
        }
        self._hold(entry, taken, fair=True)


def _generosity(entry: Entry) -> tuple[int, float, float]:
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
