"""Small runs through the real engine and simulated cluster, for tests of policies."""

from itertools import pairwise

from hypothesis import strategies as st

from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.log import WIDTH, Record
from rota.core.plan import (
    ClosingPlan,
    DisplacingPlan,
    EligibilityPlan,
    LocalityPlan,
    PairingPlan,
    ReservingPlan,
)
from rota.core.policy import DecidePolicy, Params
from rota.core.reasons import Reason
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster

PLACEMENTS = {"count": count, "consolidate": consolidate}


def job(name, gpus, work, *, at=0.0, estimate=INF, tenant="", cpus=0.0, mem_gib=0.0):
    request = Request.of(gpus, cpus=cpus, mem_gib=mem_gib)
    spec = JobSpec(name, at, request, tenant=tenant, estimate_s=estimate)
    return spec, Behaviour(work)


def engine(policy, jobs, nodes, *, placement=count, tenants=(), outages=()):
    """`nodes` is (nodes, GPUs each) or a list of `NodeSpec`."""
    topology = Topology.uniform(*nodes) if isinstance(nodes, tuple) else Topology(nodes)
    where = PLACEMENTS[placement] if isinstance(placement, str) else placement
    down = [(time_s, kind, topology.nodes[number]) for time_s, kind, number in outages]
    return Engine(
        SimCluster(topology, Zero(), Uniform(topology), outages=down),
        compose(policy, where(topology), AcceptAll()),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
        tenants=TenantTree(tenants),
    )


def run(policy, jobs, nodes, **options):
    made = engine(policy, jobs, nodes, **options)
    made.run()
    made.finish()
    return made


def everybody(made):
    return sorted([*made.view.finished, *made.view.active.values()], key=lambda j: j.index)


def starts(made):
    """First starts by name; jobs that never started are left out."""
    return {j.id: j.first_start_s for j in everybody(made) if j.started}


def ends(made):
    return {j.id: j.end_s for j in everybody(made) if j.terminal}


def rows(made, kind):
    """(time_s, job, ref, other, value) of all rows of a kind."""
    flat = [*made.log._packed, *made.log.rows]
    table = [flat[i : i + WIDTH] for i in range(0, len(flat), WIDTH)]
    return [(t, int(j), int(ref), int(other), v) for t, k, j, ref, other, v in table if k == kind]


def told(made, name):
    """The reasons that the policy gave to this job, or to all of its tenant and shape, as
    (time_s, reason)."""
    one = next(j for j in everybody(made) if j.id == name)
    alike = (-1, one.shape.number, made.log.tenants[one.tenant])
    found = rows(made, Record.REASON)
    own = [row for row in found if row[1:3] == (one.index, -1)]
    shared = [row for row in found if row[1:4] == alike]
    if not shared:
        return [(time_s, Reason(int(value))) for time_s, _, _, _, value in own]
    begun = [row[0] for row in rows(made, Record.START) if row[1] == one.index]
    times = sorted({one.submit_s, *(row[0] for row in (*own, *shared) if row[0] >= one.submit_s)})
    reasons = []
    for time_s in times:
        mine = _last(own, time_s, since_s=max([s for s in begun if s <= time_s], default=-INF))
        reason = Reason(mine or _last(shared, time_s))
        if not reasons or reasons[-1][1] != reason:
            reasons.append((time_s, reason))
    return reasons


def _last(told, time_s, since_s=-INF):
    return int(next((row[4] for row in reversed(told) if since_s < row[0] <= time_s), 0))


def delays(made, name):
    """Seconds by reason until the first start, from the reasons that the policy gave."""
    until_s = starts(made)[name]
    given = [*told(made, name), (until_s, Reason.NONE)]
    parts = {}
    for (since_s, reason), (next_s, _) in pairwise(given):
        if since_s < until_s:
            parts[reason] = parts.get(reason, 0.0) + min(next_s, until_s) - since_s
    return parts


class WholePlan(
    ReservingPlan, EligibilityPlan, ClosingPlan, DisplacingPlan, LocalityPlan, PairingPlan
):
    """All that a placement can do with jobs as they ask."""


class Scripted(DecidePolicy[Params]):
    """Decides by a function of (view, plan)."""

    name = "scripted"
    plan_type = WholePlan

    def __init__(self, decide):
        super().__init__()
        self._decide = decide

    def decide(self, view):
        plan = view.plan()
        self._decide(view, plan)
        return plan


def estimated_jobs(most_gpus):
    """Estimates are upper bounds; times are sevenths, so that sums of them are rounded."""
    one = st.tuples(
        st.integers(1, most_gpus), st.integers(0, 60), st.integers(1, 50), st.integers(0, 20)
    )
    return st.lists(one, min_size=1, max_size=25).map(
        lambda drawn: [
            job(f"j{i}", gpus, work / 7, at=at / 7, estimate=(work + slack) / 7)
            for i, (gpus, at, work, slack) in enumerate(sorted(drawn, key=lambda d: d[1]))
        ]
    )
