"""When nodes have room, by the time limits of those who run there and of those planned before.

As in Slurm's backfill, a node that is planned for a job is all its from then on: others use it only
if they end before. Where GPUs are one pool, plans are made on their number instead.
"""

from bisect import insort
from collections.abc import Iterable, Iterator

from rota.core.allocation import Allocation
from rota.core.events import INF
from rota.core.plan import EligibilityPlan
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.core.view import View
from rota.policies.backfill.profile import Profile
from rota.policies.slurm.asks import Ask
from rota.policies.slurm.params import Tres

EPSILON = 1e-9
Amounts = dict[int, list[float]]
"""GPUs, CPUs and memory, by node."""
Hold = tuple[float, float, float, float]
"""When it ends by its limit, GPUs, CPUs, memory."""


class Site:
    """One node: who runs there, and for when it is planned."""

    __slots__ = ("_ready", "cpus", "gpus", "has", "held", "mem_gib", "planned")

    def __init__(self, node: Vertex) -> None:
        self.gpus: float = node.gpus
        self.cpus = node.cpus
        self.mem_gib = node.mem_gib
        self.has = (bool(node.cpus), bool(node.mem_gib))
        self.held: dict[int, Hold] = {}
        self.planned: list[tuple[float, float]] = []
        self._ready: dict[Tres, float] = {}

    def hold(self, index: int, hold: Hold) -> None:
        """A job runs here."""
        self.release(index)
        self.held[index] = hold
        self._change(hold, -1)

    def release(self, index: int) -> None:
        """It does not any more."""
        hold = self.held.pop(index, None)
        if hold is not None:
            self._change(hold, +1)

    def _change(self, hold: Hold, sign: int) -> None:
        self.gpus += sign * hold[1]
        self.cpus += sign * hold[2]
        self.mem_gib += sign * hold[3]
        self._ready.clear()

    def ready_s(self, each: Tres) -> float:
        """When so much is free by the limits of those who run here; -inf: it is."""
        found = self._ready.get(each)
        if found is None:
            found = self._ready[each] = self._search(each)
        return found

    def _search(self, each: Tres) -> float:
        gpus, cpus, mem_gib = self.gpus, self.cpus, self.mem_gib
        need_cpus = each.cpu if self.has[0] else 0.0
        need_mem = each.mem_gib if self.has[1] else 0.0
        at_s = -INF
        leaving = iter(sorted(self.held.values()))
        while (
            gpus < each.gpu - EPSILON or cpus < need_cpus - EPSILON or mem_gib < need_mem - EPSILON
        ):
            hold = next(leaving, None)
            if hold is None:
                return INF
            at_s = hold[0]
            gpus, cpus, mem_gib = gpus + hold[1], cpus + hold[2], mem_gib + hold[3]
        return at_s

    def free_at(self, time_s: float) -> float:
        """GPUs that are free then, by the limits of those who run here."""
        return self.gpus + ordered_sum(hold[1] for hold in self.held.values() if hold[0] <= time_s)

    def unplanned_s(self, from_s: float, seconds: float) -> float:
        """From when on nothing is planned here for so long."""
        at_s = from_s
        for start_s, end_s in self.planned:  # in order, apart from each other
            if at_s < end_s and at_s + seconds > start_s:
                at_s = end_s
        return at_s

    def plan(self, begin_s: float, start_s: float, over_s: float) -> None:
        """Keep it for a job that starts then; `begin_s` and `over_s`: rounded away from it."""
        for other_start_s, other_end_s in self.planned:
            if other_start_s <= start_s:
                begin_s = max(begin_s, other_end_s)
            else:
                over_s = min(over_s, other_start_s)
        insort(self.planned, (begin_s, over_s))


class Sites:
    """All nodes of a cluster."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.sites: list[Site] = []
        self._position: dict[int, int] = {}
        self.everywhere = 0  # all nodes, as a set
        self.grow()

    def grow(self) -> bool:
        """Take in nodes that have come; False if there are none."""
        new = self._topology.nodes[len(self.sites) :]
        for node in new:
            self._position[node.id] = len(self.sites)
            self.everywhere |= 1 << len(self.sites)
            self.sites.append(Site(node))
        return bool(new)

    def hold(self, index: int, allocation: Allocation, end_s: float) -> tuple[int, ...]:
        """A job runs there until then; on which nodes that is (pools are none)."""
        found: dict[int, list[float]] = {}
        vertices, position = self._topology.vertices, self._position
        parts = [(vertex, 0, gpus) for vertex, gpus in allocation.slices]
        parts += [
            (vertex, 1 if kind == "cpu" else 2, amount)
            for vertex, kind, amount in allocation.extra
            if kind in ("cpu", "memory")
        ]
        for vertex, which, amount in parts:
            at = position.get(vertices[vertex].node)
            if at is not None:
                found.setdefault(at, [0.0, 0.0, 0.0])[which] += amount
        for at, (gpus, cpus, mem_gib) in found.items():
            self.sites[at].hold(index, (end_s, gpus, cpus, mem_gib))
        return tuple(found)

    def release(self, index: int, nodes: Iterable[int]) -> None:
        """It does not any more."""
        for at in nodes:
            self.sites[at].release(index)

    def sums(self, runs: Iterable[tuple[int, Iterable[int]]]) -> Amounts:
        """What these hold together on each node."""
        found: Amounts = {}
        for index, nodes in runs:
            for at in nodes:
                total = found.setdefault(at, [0.0, 0.0, 0.0])
                for which, amount in enumerate(self.sites[at].held[index][1:]):
                    total[which] += amount
        return found

    def would_hold(self, ask: Ask, more: Amounts, avoid: int) -> bool:
        """Whether so many nodes would have room for it if so much more were free there."""
        count = ask.amounts.node
        for at in bits(ask.nodes & ~avoid):
            site = self.sites[at]
            if at in more:
                gpus, cpus, mem_gib = more[at]
                each = Tres(
                    max(ask.each.cpu - cpus, 0.0),
                    max(ask.each.mem_gib - mem_gib, 0.0),
                    1,
                    max(ask.each.gpu - gpus, 0.0),
                )
            else:
                each = ask.each
            count -= site.ready_s(each) == -INF
            if count <= 0:
                return True
        return False


class NodePlan:
    """Plans of one run of backfill, on nodes."""

    def __init__(
        self, plan: EligibilityPlan, sites: Sites, now_s: float, resolution_s: float
    ) -> None:
        self._sites = sites.sites
        self._now_s = now_s
        self._step_s = resolution_s
        self._up = plan.nodes
        self._fits: dict[tuple[int, Tres, float], bool] = {}
        for site in self._sites:
            site.planned.clear()

    def fits(self, ask: Ask) -> bool:
        """There is room for it now, if no other job is planned before it."""
        key = (ask.nodes, ask.each, ask.amounts.node)
        found = self._fits.get(key)
        if found is None:
            free = (self._sites[at].ready_s(ask.each) == -INF for at in bits(ask.nodes & self._up))
            found = self._fits[key] = sum(free) >= ask.amounts.node
        return found

    def earliest(self, ask: Ask) -> tuple[float, int]:
        """The first time at which enough nodes are free for as long as its limit, and which."""
        each, seconds, count = ask.each, ask.limit_s, int(ask.amounts.node)
        now_s = self._now_s
        soon_s = now_s + self._step_s
        times: dict[int, float] = {}
        for at in bits(ask.nodes & self._up):
            site = self._sites[at]
            ready_s = site.ready_s(each)
            if ready_s < INF:
                # who has outlived its limit ends at any moment, but has not ended yet
                begin_s = now_s if ready_s == -INF else max(ready_s, soon_s)
                times[at] = site.unplanned_s(begin_s, seconds)
        while True:
            ordered = sorted(times.values())
            first_s = ordered[count - 1] if len(ordered) >= count else INF
            if first_s == INF:
                return INF, 0
            free = 0
            for at, time_s in times.items():
                if time_s < first_s:
                    times[at] = self._sites[at].unplanned_s(first_s, seconds)
                if times[at] == first_s:
                    free |= 1 << at
            if free.bit_count() >= count:
                return first_s, free

    def unplanned(self, ask: Ask) -> int:
        """Nodes on which no job is planned while it would run from now on."""
        return sum(
            1 << at
            for at in bits(ask.nodes & self._up)
            if self._sites[at].unplanned_s(self._now_s, ask.limit_s) == self._now_s
        )

    def start(self, ask: Ask) -> None:
        """It starts now: the sites know."""

    def take(self, ask: Ask, start_s: float, nodes: int) -> None:
        """Keep as many of these nodes for it as it needs, the fullest then first; whole steps."""
        step_s = self._step_s
        begin_s = start_s // step_s * step_s
        over_s = (start_s + ask.limit_s) // step_s * step_s + step_s
        count = int(ask.amounts.node)
        chosen = list(bits(nodes))
        if len(chosen) > count:
            chosen.sort(key=lambda at: self._sites[at].free_at(start_s))
        for at in chosen[:count]:
            self._sites[at].plan(begin_s, start_s, over_s)


class PoolPlan:
    """Plans of one run of backfill, on the number of GPUs."""

    def __init__(
        self, view: View, holds: Iterable[tuple[float, float]], resolution_s: float
    ) -> None:
        """`holds`: until when running jobs hold how many GPUs."""
        self._now_s = view.now_s
        soon_s = view.now_s + resolution_s
        uses = [(view.now_s, max(end_s, soon_s), gpus) for end_s, gpus in holds]
        self._profile = Profile(view.now_s, view.up_gpus, uses)

    def fits(self, ask: Ask) -> bool:
        """Enough is free now."""
        return ask.job.gpus <= self._profile.free[0] + EPSILON

    def earliest(self, ask: Ask) -> tuple[float, int]:
        """The first time at which enough GPUs are free for as long as its limit; on any node."""
        return self._profile.earliest(ask.job.gpus, ask.limit_s), ask.nodes

    def unplanned(self, ask: Ask) -> int:
        """Nodes do not matter."""
        return ask.nodes

    def start(self, ask: Ask) -> None:
        """It starts now."""
        self._profile.take(self._now_s, self._now_s + ask.limit_s, ask.job.gpus)

    def take(self, ask: Ask, start_s: float, nodes: int) -> None:  # noqa: ARG002 - see above
        """Keep its GPUs for it."""
        self._profile.take(start_s, start_s + ask.limit_s, ask.job.gpus)


def bits(nodes: int) -> Iterator[int]:
    """Positions of the nodes of a set, in order."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest
