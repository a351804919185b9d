"""Dominant resource fairness (Ghodsi et al., NSDI 2011, algorithm 1).

A tenant's dominant share is the largest part that it has of any one resource: GPUs, CPUs or memory,
as far as the cluster declares them. The next job to start is the oldest one of the tenant with the
smallest dominant share, divided by the tenant's weight.

Departs from the paper: jobs are gangs of different sizes, so the next job of the poorest tenant may
not fit while another's does. Then that tenant waits and the others go on; with `strict=true` all
wait, as in the paper, where a full cluster ends the round. Nobody waits for jobs that could use
none of its nodes. Jobs are not stopped; with
`preemptive=true` the shares are dealt out anew at every event, running jobs of a tenant before its
waiting ones, and jobs that are left over are stopped.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from rota.core.jobs import Job
from rota.core.plan import EligibilityPlan, Plan, ReservingPlan
from rota.core.policy import IncrementalPolicy, Params
from rota.core.view import View
from rota.policies._queue import ArrivalQueue
from rota.policies._resources import Amounts, capacity, shares


class DrfParams(Params, frozen=True):
    """Whether running jobs may be stopped, and whether anybody may pass the poorest tenant."""

    preemptive: bool = False
    strict: bool = False


class DrfPlan(ReservingPlan, EligibilityPlan):
    """Who could start, and who competes with whom."""


class Drf(IncrementalPolicy[DrfParams]):
    """Serve the tenant whose largest share of any resource is the smallest."""

    name = "drf"
    paper = (
        "Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types, "
        "NSDI 2011"
    )
    Parameters = DrfParams
    plan_type = DrfPlan
    coupled = "shares: who is served next depends on what its tenant has of the whole cluster"

    def __init__(self, params: DrfParams | None = None) -> None:
        super().__init__(params)
        self.preemptive = self.params.preemptive
        self.keeps_unnamed = not self.params.preemptive
        self._total: Amounts = (0.0, 0.0, 0.0)
        self._wants: dict[int, Amounts] = {}  # by shape, as parts of the total
        self._accounts: dict[str, Account] = {}
        self._waiting: dict[str, Account] = {}  # of tenants whose jobs wait

    # --- what it hears ----------------------------------------------------------------------------

    def cluster_changed(self, view: View) -> None:
        """Shares are parts of what is up."""
        self._total = capacity(view)
        self._wants.clear()
        for account in self._accounts.values():
            account.has = None

    def submitted(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """It waits in the queue of its tenant."""
        account = self._accounts.get(job.tenant)
        if account is None:
            account = self._accounts[job.tenant] = Account()
        account.queue.add(job)
        self._waiting[job.tenant] = account

    def started(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """Its tenant has what it asks for."""
        account = self._leaves(job)
        account.running.add(job)
        account.has = None

    def ended(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """Its tenant has less, or waits for less."""
        account = self._accounts[job.tenant]
        if account.running.discard(job):
            account.has = None
        else:
            self._leaves(job)

    def _leaves(self, job: Job) -> "Account":
        account = self._accounts[job.tenant]
        account.queue.discard(job)
        if not account.queue:
            self._waiting.pop(job.tenant, None)
        return account

    # --- what it decides --------------------------------------------------------------------------

    def decide(self, view: View) -> Plan:
        """One job at a time to the tenant with the smallest weighted dominant share."""
        plan = view.plan(DrfPlan)
        if self.params.preemptive:
            lines = self._all_lines(view)
        else:
            heads = (account.queue.first for account in self._waiting.values())
            if next(plan.candidates(heads), None) is None:
                return plan
            able = [
                (name, account)
                for name, account in self._waiting.items()
                if self._may_start(plan, account.queue.first)
            ]
            lines = [
                ServedTenant(
                    account.rank(),
                    view.tenants.get(name).weight,
                    self._has(account) if len(able) > 1 else NONE,  # alone it comes first
                    iter(account.queue),
                )
                for name, account in able
            ]
        self._deal(plan, lines)
        return plan

    def _may_start(self, plan: DrfPlan, first: Job) -> bool:
        """Whether one of a tenant's jobs could start, of which this is the first."""
        return self.params.strict or plan.fits(first) or plan.eligible(first) != plan.nodes

    def _all_lines(self, view: View) -> "list[ServedTenant]":
        """Everything is dealt out anew, to running jobs before waiting ones."""
        return [
            ServedTenant(
                account.rank(),
                view.tenants.get(name).weight,
                NONE,
                iter([*account.running, *account.queue]),
            )
            for name, account in self._accounts.items()
            if account.running or account.queue
        ]

    def _deal(self, plan: EligibilityPlan, lines: "list[ServedTenant]") -> None:
        strict, preemptive = self.params.strict, self.params.preemptive
        held: dict[Rank, int] = {}  # nodes of those who wait, by tenant or, if strict, of all
        blocked: set[Rank] = set()  # nobody who waits there can start any more
        poorest = [(line.share, line.rank, line) for line in lines]
        heapify(poorest)
        while poorest:
            line = heappop(poorest)[2]
            key = ANYBODY if strict else line.rank
            job = next(line.jobs, None)
            if key in blocked:
                if not preemptive:
                    continue
                while job is not None and not job.running:
                    job = next(line.jobs, None)
            if job is None:
                continue
            passes = job.running or not held.get(key) or not held[key] & plan.eligible(job)
            if passes and plan.place(job):
                line.add(self._want(job))
            else:
                held[key] = held.get(key, 0) | plan.eligible(job)
                if held[key] == plan.nodes:
                    blocked.add(key)
            heappush(poorest, (line.share, line.rank, line))

    def _want(self, job: Job) -> Amounts:
        number = job.shape.number
        if number not in self._wants:
            self._wants[number] = shares(job.shape, self._total)
        return self._wants[number]

    def _has(self, account: "Account") -> Amounts:
        """What a tenant has; added up in order of arrival, so that it is always the same number."""
        if account.has is None:
            gpus = cpus = mem_gib = 0.0
            for job in account.running:
                want = self._want(job)
                gpus, cpus, mem_gib = gpus + want[0], cpus + want[1], mem_gib + want[2]
            account.has = (gpus, cpus, mem_gib)
        return account.has


Rank = tuple[int, float, int]
ANYBODY: Rank = (-1, 0.0, 0)
NONE: Amounts = (0.0, 0.0, 0.0)


class Account:
    """What one tenant has and what it waits for."""

    __slots__ = ("has", "queue", "running")

    def __init__(self) -> None:
        self.queue = ArrivalQueue()
        self.running = ArrivalQueue()
        self.has: Amounts | None = None  # None: to be added up

    def rank(self) -> Rank:
        """Breaks ties: by the oldest job, of tenants with running jobs first."""
        entries = self.running.entries
        if entries:
            return (0, *entries[0][:2])
        return (1, *self.queue.entries[0][:2])


class ServedTenant:
    """One tenant in one decision."""

    __slots__ = ("has", "jobs", "rank", "share", "weight")

    def __init__(self, rank: Rank, weight: float, has: Amounts, jobs: Iterator[Job]) -> None:
        self.rank = rank
        self.weight = weight
        self.has = has
        self.jobs = jobs  # in the order in which they are served
        self.share = max(has) / weight  # the weighted dominant share

    def add(self, want: Amounts) -> None:
        """It gets what a job asks for."""
        self.has = (self.has[0] + want[0], self.has[1] + want[1], self.has[2] + want[2])
        self.share = max(self.has) / self.weight
