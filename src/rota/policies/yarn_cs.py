"""YARN's capacity scheduler as Philly used it (Jeon et al., USENIX ATC 2019, section 2).

Every tenant (virtual cluster, VC) has a share of the GPUs and serves its own jobs, which are gangs,
in the order of their submission; the VC that uses the least of its share is served first. A VC may
borrow what others leave unused. When the cluster is nearly full, a job within its VC's share takes
the place of borrowed GPUs: of every VC the jobs that started when its share was used up.

A job first insists on locality: it starts only on as few nodes as its GPUs can be on. When it has
found enough free GPUs, but never close together, for `relax_s`, any placement will do. This needs a
placement that prefers few nodes without insisting on them; with one that insists (`consolidate`)
nothing is ever relaxed, and in a pool (`count`) there is no locality.

The reasons for waiting tell the paper's two delays apart: `quota` (fair-share delay: the VC has
used its share, and what it could borrow is not free) and `fragmentation` (enough GPUs are free, but
not close together). A VC within its share that finds too few free GPUs waits for `capacity`. Jobs
behind the first of their VC that cannot start wait for `quota`, too, if that would hold them back
as well, else for their turn (`order`).

Departs from the paper: locality is counted in nodes, racks are not looked at; attempts are made at
every event instead of at intervals, so that locality is relaxed after a time, not after a number of
attempts; `skip=true` lets a VC's later jobs pass one that cannot start.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from heapq import heapify, heappop, heapreplace
from itertools import accumulate
from operator import add, attrgetter
from typing import Annotated, Any

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job, Shape
from rota.core.plan import DisplacingPlan, EligibilityPlan, LocalityPlan, Plan, ReservingPlan
from rota.core.policy import IncrementalPolicy, Params
from rota.core.reasons import Reason
from rota.core.state import State, from_rows
from rota.core.sums import ordered_sum
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.view import View
from rota.policies._queue import ArrivalQueue, Entry


class YarnCsParams(Params, frozen=True):
    """`relax_s`: how long locality is insisted on; `preempt_above`: the part of GPUs in use."""

    borrow: bool = True
    preempt: bool = True
    preempt_above: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.9
    relax_s: Annotated[float, msgspec.Meta(ge=0)] = 600.0
    skip: bool = False


EPSILON = 1e-9  # shares and fractions of GPUs are floats
QUOTA, ORDER = Reason.QUOTA, Reason.ORDER
ROOM = (Reason.CAPACITY, Reason.FRAGMENTATION)  # what exactly is lacking the engine says


class EqualJobs(ArrivalQueue):
    """Waiting jobs of one tenant with equal requests."""

    __slots__ = ("gpus", "own", "shape", "told")

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.gpus = shape.gpus
        self.told: Reason | None = None  # all but those with a reason of their own
        self.own: dict[int, Job] = {}  # these

    def add(self, job: Job) -> None:
        """It comes or returns."""
        if job.reason:
            self.own[job.index] = job
        super().add(job)

    def discard(self, job: Job) -> bool:
        """It leaves."""
        self.own.pop(job.index, None)
        return super().discard(job)

    def knows(self, first: Job, reason: Reason, behind: Reason) -> bool:
        """Nobody has to be told anything: all wait as they were told together."""
        return reason == behind == self.told and not (first.reason or self.own or behind in ROOM)

    def tell(
        self, plan: Plan, tenant: str, first: Job, reason: Reason, behind: Reason
    ) -> Iterator[tuple[Job, Reason]]:
        """Why the first one and those behind it wait; yields those that are told by themselves.

        However many they are, those behind the first are told at once.
        """
        if self.shape.opened is not None:  # the log does not know them by this shape
            yield first, reason
            yield from ((job, behind) for job in self if job is not first)
            return
        if behind != self.told or behind in ROOM:  # what exactly is lacking changes by itself
            self.told = behind
            plan.explain_alike(tenant, self.shape, behind)
        if self.own:
            for job in self.own.values():
                if job is not first:
                    yield job, Reason.NONE
            self.own.clear()
        if reason != behind:
            self.own[first.index] = first
        yield first, Reason.NONE if reason == behind else reason

    def after(self, at: tuple[float, int], gone: Mapping[int, Job]) -> Entry | None:
        """The first one that came after this, without these jobs."""
        entries = self.entries
        start = 0 if at is EVER else bisect_left(entries, (at[0], at[1] + 1))
        for i in range(start, len(entries)):
            entry = entries[i]
            if entry[1] not in gone:
                return entry
        return None


class VirtualCluster:
    """One tenant: its share of the GPUs, what it uses, and its waiting jobs in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0  # the tenant of the oldest job is the first
        self.share = self.ceiling = 0.0  # the ceiling: with what it may borrow
        self.own = 0.0  # what it may have without borrowing
        self.used = 0.0
        self.lent = 0.0  # GPUs of those that started when the share was used up
        self.everybody = ArrivalQueue()
        self.lines: dict[int, EqualJobs] = {}  # who waits, by shape
        self.least = INF  # GPUs of the smallest request that waits
        self.needs = INF  # GPUs without which none of its jobs can start
        self.barrier = FOREVER  # those that came after this job wait for the same nodes
        self.touched = True  # something has happened since the reasons were told
        self.roomy = False  # somebody was told that there is no room: why not may have changed
        self.steady = (-INF, INF)  # while so many GPUs are free the reasons are the same
        self._running: list[tuple[float, int, Job]] = []  # in order of their starts
        self._held: list[float] = []  # their GPUs
        self._starts: dict[int, float] = {}
        self._within = 0  # so many of them started within the share
        self.counted = False  # what it uses is up to date

    # --- who waits and runs -----------------------------------------------------------------------

    def waits(self, job: Job) -> None:
        """It waits in order of arrival."""
        number = job.shape.number
        if number not in self.lines:
            self.lines[number] = EqualJobs(job.shape)
            self.least = min(self.least, job.gpus)
        self.lines[number].add(job)
        self.touched = True

    def runs(self, job: Job) -> None:
        """It has started; before, it waited."""
        self._starts[job.index] = job.start_s
        at = bisect_left(self._running, (job.start_s, job.index))
        self._running.insert(at, (job.start_s, job.index, job))
        self._held.insert(at, job.held_gpus)
        self.counted = False

    def leaves(self, job: Job) -> None:
        """It waits or runs no more."""
        start_s = self._starts.pop(job.index, None)
        if start_s is not None:
            at = bisect_left(self._running, (start_s, job.index))
            del self._running[at], self._held[at]
            self.counted = False
            return
        line = self.lines[job.shape.number]
        line.discard(job)
        if not line:
            del self.lines[job.shape.number]
            self.least = min((other.gpus for other in self.lines.values()), default=INF)
        self.barrier = FOREVER  # to be found out
        self.touched = True

    def entitle(self, share: float, ceiling: float) -> None:
        """It has this share from now on."""
        if (share, ceiling) != (self.share, self.ceiling):
            self.share, self.ceiling = share, ceiling
            self.own = min(share, ceiling)
            self.counted = False

    def count(self) -> None:
        """What it uses; added up in order of the starts, so that it is always the same number."""
        self.counted = self.touched = True
        sums = list(accumulate(self._held, initial=0.0))
        self._within = bisect_right(sums, self.share + EPSILON) - 1
        self.used = sums[-1]
        self.lent = self.used - sums[self._within]

    def borrowed(self) -> list[Job]:
        """Those that started when the share was used up."""
        return [job for _, _, job in self._running[self._within :]]

    def charge(self, gpus: float) -> None:
        """This decision gives it so many GPUs more."""
        self.used += gpus
        self.counted = False  # the sum is made again
        self.touched = True
        self.needs = self.least

    def look(self, plan: EligibilityPlan, *, skip: bool) -> None:
        """Find out what the next job needs, at least."""
        self.needs = self.least
        self.barrier = FOREVER
        if self.lines and not skip:
            first = min([line.entries[0] for line in self.lines.values()])
            if plan.eligible(first[2]) == plan.nodes:  # all others are behind it
                self.needs = first[2].gpus
                self.barrier = first[:2]

    # --- what it may have -------------------------------------------------------------------------

    def rank(self) -> tuple[float, int]:
        """Who has used less of its share is served first."""
        return (self.used / self.share if self.share else INF, self.number)

    def allows(self, gpus: float, *, borrowing: bool) -> bool:
        """So many more stay within the share, or within what may be borrowed too."""
        return self.used + gpus <= (self.ceiling if borrowing else self.own) + EPSILON

    def reason(self, gpus: float, free: float) -> Reason:
        """Why a job waits that could not start although so many GPUs are free."""
        if not self.allows(gpus, borrowing=True):
            return QUOTA
        if gpus <= free + EPSILON:
            return Reason.FRAGMENTATION
        return Reason.CAPACITY if self.allows(gpus, borrowing=False) else QUOTA


def _shares(view: View, present: Iterable[str]) -> dict[str, float]:
    """Declared quotas; where there is none, the GPUs that are up in proportion to the weights."""
    parents = {tenant.parent for tenant in view.tenants}
    declared = {tenant.name: tenant for tenant in view.tenants if tenant.name not in parents}
    if any(tenant.quota for tenant in declared.values()):
        return {name: tenant.quota for name, tenant in declared.items()}
    names = dict.fromkeys((*declared, *present))
    weights = {name: view.tenants.get(name).weight for name in names}
    total = ordered_sum(weights.values())
    return {name: view.up_gpus * weight / total for name, weight in weights.items()}


def fewest_nodes(topology: Topology, shape: Shape) -> int:
    """On how few nodes of one type the GPUs of a request can be."""
    return min(
        (_nodes_of(topology, kind, shape.gpus) for kind in shape.types or topology.types), default=1
    )


def _nodes_of(topology: Topology, kind: str, gpus: float) -> int:
    count = 0
    for size in sorted((n.gpus for n in topology.nodes if n.gpu_type == kind), reverse=True):
        if gpus <= 0:
            break
        gpus -= size
        count += 1
    return max(count, 1)


class YarnCsState(State):
    """Since when only locality keeps a job waiting, by index."""

    scattered_s: dict[int, float] = {}

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - there is one
        """From version 0."""
        return {"scattered_s": from_rows(fields["scattered_s"])}


class YarnPlan(ReservingPlan, EligibilityPlan, LocalityPlan, DisplacingPlan):
    """Partitions, limits on the number of nodes, and borrowers that make room."""


class YarnCs(IncrementalPolicy[YarnCsParams]):
    """First come first served within each tenant's share of the GPUs, on few nodes if possible."""

    name = "yarn-cs"
    paper = (
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training "
        "Workloads, USENIX ATC 2019"
    )
    Parameters = YarnCsParams
    plan_type = YarnPlan
    coupled = "shared quotas: a tenant's share of the GPUs counts wherever it uses them"

    def __init__(self, params: YarnCsParams | None = None) -> None:
        super().__init__(params)
        self.state: YarnCsState = YarnCsState()
        self._fewest: dict[int, int] = {}  # nodes, by shape
        self._clusters: dict[str, VirtualCluster] = {}
        self._order: list[VirtualCluster] | None = None  # None: to be found out
        self._shared: tuple[float, TenantTree] | None = None  # what the shares are parts of
        self._calm_s = -INF  # nobody can start until then, unless something happens
        self._used = -1.0  # by all; -1: to be found out

    # --- what it hears ----------------------------------------------------------------------------

    def cluster_changed(self, view: View) -> None:  # noqa: ARG002
        """Which nodes a job could use may have changed."""
        self._fewest.clear()
        self._order = None
        self._calm_s = -INF
        for cluster in self._clusters.values():
            cluster.touched = True

    def submitted(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It waits in the queue of its tenant."""
        cluster = self._clusters.get(job.tenant)
        if cluster is None:
            cluster = self._clusters[job.tenant] = VirtualCluster(job.tenant)
        cluster.everybody.add(job)
        if cluster.everybody.first is job:
            self._order = None
        if (job.submit_s, job.index) < cluster.barrier:  # else it waits behind others
            self._calm_s = -INF
        cluster.waits(job)

    def started(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """Its tenant uses more."""
        self.state.scattered_s.pop(job.index, None)
        self._stir()
        cluster = self._clusters[job.tenant]
        cluster.leaves(job)
        cluster.runs(job)

    def changed(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It may have been moved."""
        self._stir()
        cluster = self._clusters[job.tenant]
        cluster.leaves(job)
        cluster.runs(job)

    def ended(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """Its tenant uses less, or waits for less."""
        self.state.scattered_s.pop(job.index, None)
        self._stir()
        cluster = self._clusters[job.tenant]
        cluster.leaves(job)
        if cluster.everybody.first is job:
            self._order = None
        cluster.everybody.discard(job)
        if not cluster.everybody:
            del self._clusters[job.tenant]

    def _stir(self) -> None:
        """Who uses what has changed, or who may."""
        self._calm_s, self._used = -INF, -1.0

    # --- what it decides --------------------------------------------------------------------------

    def decide(self, view: View) -> Plan:
        """Jobs within the shares, then those that were borrowing, then new borrowers."""
        clusters = self._present(view)
        waiting = [cluster for cluster in clusters if cluster.lines]
        if not waiting:
            return view.plan(YarnPlan)
        turn = YarnDecision(self, view, clusters, waiting)
        if view.now_s >= self._calm_s:
            self._calm_s = turn.serve_all()
            if self._calm_s == -INF:
                self._used = -1.0
        turn.explain()
        return turn.plan

    def _present(self, view: View) -> list[VirtualCluster]:
        """Everybody who has jobs here, in order of their oldest ones."""
        shared = (view.up_gpus, view.tenants)
        if self._order is None or shared != self._shared:
            self._shared = shared
            self._stir()
            clusters = self._clusters.values()
            self._order = sorted(clusters, key=lambda cluster: cluster.everybody.entries[0][:2])
            shares = _shares(view, [cluster.name for cluster in self._order])
            for number, cluster in enumerate(self._order):
                share, limit = shares.get(cluster.name, 0.0), view.tenants.get(cluster.name).limit
                cluster.number = number
                cluster.entitle(share, limit if self.params.borrow else min(share, limit))
        return self._order

    def used(self) -> float:
        """GPUs that all use."""
        if self._used < 0:
            clusters = self._order or ()
            for cluster in clusters:
                if not cluster.counted:
                    cluster.count()
            self._used = reduce(add, map(_used, clusters), 0.0)  # always in the same way
        return self._used

    def cluster_of(self, job: Job) -> VirtualCluster:
        """Its tenant."""
        return self._clusters[job.tenant]

    def fewest_nodes(self, view: View, shape: Shape) -> int:
        """On how few nodes its GPUs can be."""
        number = shape.number
        if number not in self._fewest:
            self._fewest[number] = fewest_nodes(view.topology, shape)
        return self._fewest[number]


class YarnDecision:
    """One decision."""

    def __init__(
        self,
        policy: YarnCs,
        view: View,
        clusters: Sequence[VirtualCluster],
        waiting: Sequence[VirtualCluster],
    ) -> None:
        self.plan = view.plan(YarnPlan)
        self._policy = policy
        self._view = view
        self._skip = policy.params.skip
        self._clusters = clusters
        self._waiting = waiting  # those with jobs that wait
        used = policy.used()
        for cluster in waiting:
            if cluster.touched:
                cluster.look(self.plan, skip=self._skip)
        self._free = view.up_gpus - used
        # else GPUs that no job should have are in use: what is really free the placement knows
        self._exact = view.up_gpus == view.topology.gpus and not view.sharing
        self._used = used
        self._gone: dict[int, Job] = {}  # started
        self._displaced: dict[int, Job] = {}
        self._borrowed: list[Job] = []  # those that give way, in order of their starts
        self._relaxed_s = INF  # when somebody need not insist on locality any more

    def serve_all(self) -> float:
        """Start who can start; returns until when nobody else can, if nothing happens."""
        params = self._policy.params
        if params.preempt and self._used >= params.preempt_above * self._view.up_gpus:
            self._find_borrowed()
        self._serve(borrowing=False)
        if self._displaced:
            self._return_borrowers()
        self._serve(borrowing=True)
        return -INF if self._gone or self._displaced else self._relaxed_s

    def _find_borrowed(self) -> None:
        """If anybody within its share could take it back."""
        needs = [c.needs for c in self._waiting if c.used + c.needs <= c.own + EPSILON]
        if not needs:
            return
        clusters = self._clusters
        if min(needs) <= self._most(ordered_sum([cluster.lent for cluster in clusters])):
            borrowed = [job for cluster in clusters for job in cluster.borrowed()]
            self._borrowed = sorted(borrowed, key=_begun)

    def _most(self, lent: float) -> float:
        """No job that asks for more than this can start, if so many GPUs are taken back."""
        return self._free + lent + EPSILON if self._exact else INF

    # --- who starts -------------------------------------------------------------------------------

    def _serve(self, *, borrowing: bool) -> None:
        """Start jobs of the VC that has used the least of its share, until none can start."""
        victims = [] if borrowing else self._borrowed[::-1]
        most = self._most(ordered_sum([victim.held_gpus for victim in victims]))
        turns = [
            (cluster.rank(), ServedCluster(cluster))
            for cluster in self._waiting
            if cluster.needs <= most
            and cluster.used + cluster.needs  # as `allows`
            <= (cluster.ceiling if borrowing else cluster.own) + EPSILON
        ]
        if len(turns) > 1:
            heapify(turns)
        while turns:
            queue = turns[0][1]
            if self._start_next(queue, victims, borrowing=borrowing):
                heapreplace(turns, (queue.cluster.rank(), queue))
            else:
                heappop(turns)

    def _start_next(
        self, queue: "ServedCluster", victims: Sequence[Job], *, borrowing: bool
    ) -> bool:
        """Start the next job of a VC that can start; False: there is none."""
        cluster, plan = queue.cluster, self.plan
        while (job := queue.next(self._gone, borrowing=borrowing)) is not None:
            if not cluster.allows(job.gpus, borrowing=borrowing):
                if not self._skip:  # who is behind it needs the same share
                    return False
                queue.over.add(job.shape.number)
                continue
            nodes = 0 if self._skip else plan.eligible(job)
            if not queue.held & nodes and self._start(job, victims):
                cluster.charge(job.gpus)
                self._free -= job.gpus
                self._gone[job.index] = job
                return True
            if not self._skip:
                queue.held |= nodes
                queue.behind.add(job.shape.number)
                if queue.held == plan.nodes:
                    return False
            elif job.gpus > self._free + EPSILON:
                queue.over.add(job.shape.number)
        return False

    def _start(self, job: Job, victims: Sequence[Job]) -> bool:
        """Close together, or after `relax_s` anywhere."""
        view, scattered_s = self._view, self._policy.state.scattered_s
        relax_s = self._policy.params.relax_s
        since_s = scattered_s.get(job.index, view.now_s)
        if view.now_s >= since_s + relax_s:
            return self._place(job, victims, None)
        if self._place(job, victims, self._policy.fewest_nodes(view, job.shape)):
            return True
        if job.gpus <= self._free + EPSILON:
            scattered_s[job.index] = since_s
            self.plan.wake_at(since_s + relax_s)
            self._relaxed_s = min(self._relaxed_s, since_s + relax_s)
        return False

    def _place(self, job: Job, victims: Sequence[Job], max_nodes: int | None) -> bool:
        """On so many nodes, if need be in the place of some of these."""
        plan = self.plan
        if not victims:
            return plan.place_on(job, max_nodes=max_nodes)
        displaced = plan.displace(job, victims)
        if displaced is None:
            return False
        if max_nodes is not None and self._nodes(job) > max_nodes:
            plan.withdraw(job)
            return False
        self._displaced.update((victim.index, victim) for victim in displaced)
        return True

    def _nodes(self, job: Job) -> int:
        """On how many nodes it is placed; pools are no nodes."""
        vertices = self._view.topology.vertices
        return len({vertices[v].node for v in self.plan.holding(job).vertices} - {-1})

    def _return_borrowers(self) -> None:
        """Those that gave way go elsewhere, if need be in the place of later borrowers."""
        for number, job in enumerate(self._borrowed, start=1):
            if job.index not in self._displaced:
                continue
            displaced = self.plan.displace(job, self._borrowed[: number - 1 : -1])
            if displaced is not None:
                self._displaced.update((victim.index, victim) for victim in displaced)
                continue
            gpus = job.held_gpus
            self._policy.cluster_of(job).charge(-gpus)
            self._free += gpus
            self.plan.explain(job, QUOTA)

    # --- why others wait --------------------------------------------------------------------------

    def explain(self) -> None:
        """Say why jobs wait, where that may have changed."""
        news: list[tuple[int, float, int, Job, Reason]] = []
        free = self._free + EPSILON
        for cluster in self._waiting:
            low, high = cluster.steady
            if cluster.touched or cluster.roomy or not low <= free < high:
                told = self._reasons(cluster)
                news += [(cluster.number, job.submit_s, job.index, job, why) for job, why in told]
        news.sort(key=lambda row: row[:3])
        for _, _, _, job, why in news:
            self.plan.explain(job, why)

    def _heads(self, cluster: VirtualCluster) -> list[Entry]:
        """The first ones of those that wait, by shape."""
        lines = cluster.lines.values()
        if not self._gone:
            return [line.entries[0] for line in lines]
        heads = [line.after(EVER, self._gone) for line in lines]
        return [head for head in heads if head is not None]

    def _reasons(self, cluster: VirtualCluster) -> Iterator[tuple[Job, Reason]]:
        """Of the jobs of a VC, without those that know already."""
        cluster.touched = cluster.roomy = False
        low, high = -INF, INF
        held = 0  # nodes of those who wait before
        for _, _, job in sorted(self._heads(cluster)):
            gpus = job.gpus
            if gpus <= self._free + EPSILON:
                low = max(low, gpus)
            else:
                high = min(high, gpus)
            reason = behind = cluster.reason(gpus, self._free)
            if not self._skip:
                nodes = self.plan.eligible(job)
                if reason != QUOTA and nodes:
                    behind = ORDER
                    if held & nodes:
                        reason = ORDER
                held |= nodes if cluster.allows(gpus, borrowing=True) else self.plan.nodes
            cluster.roomy = cluster.roomy or reason in ROOM or behind in ROOM
            line = cluster.lines[job.shape.number]
            if line.knows(job, reason, behind):
                continue
            for other, why in line.tell(self.plan, cluster.name, job, reason, behind):
                if (why in ROOM or other.reason != why) and other.index not in self._gone:
                    yield other, why
        cluster.steady = (low, high)


class ServedCluster:
    """How far a VC has been served."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.held = 0  # nodes of those who wait
        self.behind: set[int] = set()  # shapes that wait for these nodes
        self.over: set[int] = set()  # shapes that cannot start any more
        self._at = EVER

    def next(self, gone: Mapping[int, Job], *, borrowing: bool) -> Job | None:
        """The next job; of those behind others only such as the share does not allow any more."""
        cluster, first = self.cluster, None
        for number, line in cluster.lines.items():
            if number in self.over:
                continue
            if number in self.behind and cluster.allows(line.gpus, borrowing=borrowing):
                continue
            entry = line.after(self._at, gone) if gone or self._at is not EVER else line.entries[0]
            if entry is not None and (first is None or entry < first):
                first = entry
        if first is None:
            return None
        self._at = first[:2]
        return first[2]


EVER = (-INF, -1)
FOREVER = (INF, -1)
_used = attrgetter("used")
_begun = attrgetter("start_s", "index")
