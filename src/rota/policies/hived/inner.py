"""Policies inside virtual clusters: each class of jobs of a tenant is a cluster to one of them.

There is one policy for the jobs of each virtual cluster and priority. What it sees are those jobs
and the GPUs of the virtual cluster, by type.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rota.core.errors import InvalidPlanError, OptionError, PolicyError
from rota.core.events import INF
from rota.core.jobs import RUNNING, WAITING, Job
from rota.core.plan import (
    ClosingPlan,
    DisplacingPlan,
    EligibilityPlan,
    ExplicitPlan,
    Plan,
    SupplyingPlan,
    composed,
)
from rota.core.policy import DecidePolicy, IncrementalPolicy, Policy, PriorityPolicy, RoundPolicy
from rota.core.registry import POLICIES, load, names, parse_params, split, unknown
from rota.core.sums import ordered_sum
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.view import View
from rota.policies.comparing import ByComparison
from rota.policies.hived.cells import VirtualCell
from rota.policies.hived.decision import CellDecision
from rota.policies.hived.fleet import Fleet
from rota.policies.hived.tenant_plan import TenantPlan
from rota.policies.tenancy.policy import TenantPolicy

Maker = Callable[[], Policy[Any]]


def maker(text: str) -> Maker:
    """Makes policies of `name` or `name:key=value;key=value`.

    Raises:
        OptionError: There is none of this name, or it cannot run inside a virtual cluster.
    """
    name, options = split(text.replace(";", ","))
    known = names(POLICIES)
    if name not in known:
        raise OptionError(f"policy 'hived': inside: {unknown('policy', name, known)}")
    kind: type[Policy[Any]] = load(POLICIES, name)
    params = parse_params(f"policy 'hived': inside={name}", kind.Parameters, options)
    why = _unfit(kind)
    if why:
        raise OptionError(f"policy 'hived': inside={name} {why}: take e.g. fifo, srtf or easy")
    return lambda: _deciding(kind(params))


def _deciding(policy: Policy[Any]) -> Policy[Any]:
    """The policy, with a driver if it plans in rounds, or with someone to tell it what changes."""
    if isinstance(policy, IncrementalPolicy):
        return ByComparison(policy)
    if not isinstance(policy, RoundPolicy):
        return policy
    from rota.policies.rounds.drive import drive  # NumPy: only where it is needed

    return drive(policy)


def _unfit(kind: type[Policy[Any]]) -> str:
    """Why a policy cannot run inside a virtual cluster."""
    if issubclass(kind, PriorityPolicy | RoundPolicy):
        return ""
    if not issubclass(kind, DecidePolicy):
        return "is neither an order of jobs nor a policy that decides"
    if issubclass(kind, TenantPolicy):
        return "shares the cluster among tenants, but that is HiveD's part"
    wants = kind.plan_type
    return next((why for part, why in HIVEDS_PART.items() if issubclass(wants, part)), "")


HIVEDS_PART: Mapping[type[Plan], str] = {
    ExplicitPlan: "says itself on which GPUs jobs run, but that is HiveD's part",
    SupplyingPlan: "divides CPUs and memory, but they go with the cells",
    DisplacingPlan: "chooses who leaves for whom, but that is HiveD's part",
    ClosingPlan: "keeps nodes from jobs, but that is HiveD's part",
}


class InnerScheduler:
    """The policy for the jobs of a virtual cluster at one priority, with what it sees."""

    def __init__(self, policy: Policy[Any], nodes: "VirtualNodes", whole: View) -> None:
        self.policy = policy
        self._nodes = nodes
        self._view = TenantView(whole.topology, whole.tenants)
        self.patient = _is_patient(policy)
        """It decides the same as long as nothing happens in its virtual cluster."""

    def decide(self, decision: CellDecision, jobs: Sequence[Job]) -> None:
        """Ask the policy about these jobs."""
        view, whole = self._view, decision.view
        view.now_s, view.version = whole.now_s, whole.version
        view.knowledge, view.everyone = whole.knowledge, whole.everyone
        view.gpus_by_type = self._nodes.gpus(all_healthy=not decision.fleet.hived.bad_nodes)
        view.up_gpus = ordered_sum(view.gpus_by_type.values())
        view.active = {job.index: job for job in jobs}
        waiting = {job.index: job for job in jobs if not decision.runs(job)}
        running = {job.index: job for job in jobs if decision.runs(job)}
        view.by_phase = (waiting, running)
        policy = self.policy
        declared: type[Plan] = EligibilityPlan
        keeps = False
        if isinstance(policy, DecidePolicy):
            declared, keeps = policy.plan_type, policy.keeps_unnamed
        kind = composed(declared, TenantPlan)
        plan = kind(decision, policy.name, view, view.gpus_by_type, keeps_unnamed=keeps)
        view.planner = lambda: plan
        try:
            if isinstance(policy, PriorityPolicy):
                in_order(policy, view)
            elif isinstance(policy, DecidePolicy) and policy.decide(view) is not plan:
                raise PolicyError(
                    f"policy {policy.name!r} must return the plan made by `view.plan()`"
                )
        except InvalidPlanError as error:
            raise InvalidPlanError(f"inside={policy.name}: {error}") from error
        plan.settle()

    def finished(self, job: Job, now_s: float) -> None:
        """One of its jobs is done."""
        self._view.finished.append(job)
        if isinstance(self.policy, PriorityPolicy):
            self.policy.finished(job, now_s)

    def remember(self, job: Job) -> None:
        """A job that was done before the state was saved."""
        self._view.finished.append(job)

    def snapshot(self) -> Mapping[str, Any]:
        """What the policy keeps itself."""
        return self.policy.snapshot()


def _is_patient(policy: Policy[Any]) -> bool:
    return (
        isinstance(policy, PriorityPolicy)
        and not policy.preemptive
        and type(policy).next_change is PriorityPolicy.next_change
    )


def in_order(policy: PriorityPolicy[Any], view: View) -> Plan:
    """Best key first; without preemption running jobs go on."""
    plan = view.plan(EligibilityPlan)
    now_s = view.now_s
    running = {job.index for job in view.running}

    def rank(job: Job) -> tuple[Any, int]:
        return (policy.key(job, now_s), job.index)  # as where the policy stands alone

    if policy.preemptive:
        jobs = sorted(view.jobs, key=rank)
    else:
        jobs = [*view.running, *sorted(view.waiting, key=rank)]
    changed = False
    held = 0  # strict: what those who wait compete for; those behind them who run go on
    for job in jobs:
        goes_on = job.index in running
        placed = (goes_on or not held & plan.eligible(job)) and plan.place(job)
        changed |= placed != goes_on
        if policy.strict and not placed:
            held |= plan.eligible(job)
    if type(policy).next_change is not PriorityPolicy.next_change:
        # when jobs have started or stopped, ask again: only then the new levels are known
        plan.wake_at(now_s if changed else _next_change_s(policy, jobs, now_s))
    return plan


def _next_change_s(policy: PriorityPolicy[Any], jobs: Sequence[Job], now_s: float) -> float:
    phases = (WAITING, RUNNING) if policy.ages else (RUNNING,)
    changes = (policy.next_change(job, now_s) for job in jobs if job.phase in phases)
    return max(now_s, min(changes, default=INF))


class VirtualNodes:
    """The nodes of a virtual cluster, by type of GPU."""

    def __init__(self, fleet: Fleet, vc: str, types: Sequence[str]) -> None:
        self._cells: dict[str, list[VirtualCell]] = {kind: [] for kind in types}
        for search in fleet.hived.searches_of(vc):
            for cell in search.nodes:
                self._cells.setdefault(fleet.types[cell.chain], []).append(cell)
        self._all = {kind: sum(c.leaves for c in cells) for kind, cells in self._cells.items()}

    def gpus(self, *, all_healthy: bool) -> Mapping[str, float]:
        """GPUs of the nodes that are not on bad hardware."""
        if all_healthy:
            return self._all
        return {
            kind: ordered_sum(cell.leaves for cell in cells if cell.healthy)
            for kind, cells in self._cells.items()
        }


class TenantView(View):
    """What a policy sees of its virtual cluster. Nodes keep their numbers in the whole cluster."""

    __slots__ = ("gpus_by_type",)

    def __init__(self, topology: Topology, tenants: TenantTree) -> None:
        super().__init__(topology, tenants)
        self.gpus_by_type: Mapping[str, float] = {}

    @property
    def up_by_type(self) -> Mapping[str, float]:
        """GPUs of the virtual cluster that are up by GPU type."""
        return self.gpus_by_type
