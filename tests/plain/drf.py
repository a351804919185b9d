"""Dominant resource fairness (Ghodsi et al., NSDI 2011, algorithm 1).

A tenant's dominant share is the largest part that it has of any one resource: GPUs, CPUs or memory,
as far as the cluster declares them. The next job to start is the oldest one of the tenant with the
smallest dominant share, divided by the tenant's weight.

Departs from the paper: jobs are gangs of different sizes, so the next job of the poorest tenant may
not fit while another's does. Then that tenant waits and the others go on; with `strict=true` all
wait, as in the paper, where a full cluster ends the round. Nobody waits for jobs that could use
none of its nodes. Jobs are not stopped; with
`preemptive=true` the shares are dealt out anew at every event, running jobs of a tenant before its
waiting ones, and whoever is left over is stopped.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from rota.core.jobs import Job
from rota.core.plan import EligibilityPlan, Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View
from rota.policies._resources import Amounts, capacity, shares


class DrfParams(Params, frozen=True):
    """Whether running jobs may be stopped, and whether anybody may pass the poorest tenant."""

    preemptive: bool = False
    strict: bool = False


class Drf(DecidePolicy[DrfParams]):
    """Serve the tenant whose largest share of any resource is the smallest."""

    name = "drf"
    paper = (
        "Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types, "
        "NSDI 2011"
    )
    Parameters = DrfParams
    plan_type = EligibilityPlan
    coupled = "shares: who is served next depends on what its tenant has of the whole cluster"

    def __init__(self, params: DrfParams | None = None) -> None:
        super().__init__(params)
        self.preemptive = self.params.preemptive

    def decide(self, view: View) -> Plan:
        """One job at a time to the tenant with the smallest weighted dominant share."""
        plan = view.plan(EligibilityPlan)
        total = capacity(view)
        accounts: dict[str, Account] = {}
        for job in [*view.running, *view.waiting]:
            if job.tenant not in accounts:
                weight = view.tenants.get(job.tenant).weight
                accounts[job.tenant] = Account(len(accounts), weight)
            if job.running and not self.params.preemptive:
                plan.place(job)
                accounts[job.tenant].add(job, total)
            else:
                accounts[job.tenant].queue.append(job)
        held: dict[int, int] = {}  # nodes of those who wait, by tenant or, if strict, of all
        poorest = [(account.share, account.number, account) for account in accounts.values()]
        heapify(poorest)
        while poorest:
            account = heappop(poorest)[2]
            if not account.queue:
                continue
            job = account.queue.popleft()
            line = 0 if self.params.strict else account.number
            passes = job.running or not held.get(line) or not held[line] & plan.eligible(job)
            if passes and plan.place(job):
                account.add(job, total)
            else:
                held[line] = held.get(line, 0) | plan.eligible(job)
                if held[line] == plan.nodes:
                    for blocked in accounts.values() if self.params.strict else (account,):
                        blocked.start_no_more()
            heappush(poorest, (account.share, account.number, account))
        return plan


class Account:
    """What one tenant has and what it waits for."""

    def __init__(self, number: int, weight: float) -> None:
        self.number = number  # breaks ties
        self.weight = weight
        self.has = (0.0, 0.0, 0.0)
        self.queue: deque[Job] = deque()

    @property
    def share(self) -> float:
        """The weighted dominant share."""
        return max(self.has) / self.weight

    def add(self, job: Job, total: Amounts) -> None:
        """It gets this job's resources."""
        gpus, cpus, mem_gib = shares(job.shape, total)
        self.has = (self.has[0] + gpus, self.has[1] + cpus, self.has[2] + mem_gib)

    def start_no_more(self) -> None:
        """Only those that run already may go on, as far as there is room."""
        self.queue = deque(job for job in self.queue if job.running)
