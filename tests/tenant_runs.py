"""Random trees of queues with random jobs, and what must hold in them after every decision."""

from collections import Counter
from random import Random

from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.tenants import PriorityClass, Tenant, TenantTree
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.placement.count import count
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, Solo

DUST = 1e-6


def tree_of(rng, gpus, *, bounds=True):
    """Two to four queues, one perhaps with queues below it; all quotas together fit."""
    parts = rng.randint(2, 4)
    cuts = sorted(rng.randint(0, gpus) for _ in range(parts - 1))
    quotas = [b - a for a, b in zip([0, *cuts], [*cuts, gpus], strict=True)]
    tenants = []
    for i, quota in enumerate(quotas):
        more = {"weight": rng.choice((1, 2, 3))}
        if bounds and rng.random() < 0.3:
            more["limit"] = quota + rng.randint(0, gpus - quota)
        if bounds and rng.random() < 0.3:
            more["borrow"] = rng.randint(0, 3)
        if bounds and rng.random() < 0.3:
            more["lend"] = rng.randint(max(0, quota - gpus // 2 // parts), quota)
        tenants.append(Tenant(f"q{i}", quota=quota, **more))
    if rng.random() < 0.6:
        own = rng.randint(0, quotas[0])
        tenants += [
            Tenant("q0a", "q0", quota=own, weight=rng.choice((1, 2))),
            Tenant("q0b", "q0", quota=quotas[0] - own),
        ]
    return tenants


def names_of(tenants):
    """Return the queues without queues below them."""
    parents = {tenant.parent for tenant in tenants}
    return [tenant.name for tenant in tenants if tenant.name not in parents]


def jobs_of(rng, tenants, gpus, *, number=20, horizon=40, priorities=(0,)):
    """Return jobs with ties in time."""
    specs, works = [], []
    for i in range(number):
        specs.append(
            JobSpec(
                f"j{i}",
                float(rng.randint(0, horizon)),
                Request.of(rng.choice([g for g in (1, 1, 1, 2, 3, 4) if g <= gpus])),
                tenant=rng.choice(names_of(tenants)),
                priority=rng.choice(priorities),
            )
        )
        works.append(Behaviour(float(rng.randint(1, 25))))
    return Workload(specs, works)


def engine_of(policy, workload, gpus, tenants, classes=(), *, checker=None, placement=count):
    """Return an engine on a pool without costs."""
    topology = Topology.uniform(1, gpus)
    cluster = SimCluster(topology, Fixed(), Solo())
    scheduler = compose(policy, placement(topology), AcceptAll(), frictionless=True)
    return Engine(
        cluster, scheduler, WorkloadSource(workload), tenants=TenantTree(tenants, classes),
        checker=checker,
    )  # fmt: skip


class Picture:
    """What every queue has and is promised at one moment, found without the policy's books."""

    def __init__(self, engine):
        view = engine.view
        self.tree = view.tenants
        self.up = view.up_gpus
        self.used, self.firm = Counter(), Counter()
        for job in view.running:
            kind = self.tree.class_of(job.spec.priority)
            for tenant in self.tree.path(job.tenant):
                self.used[tenant.name] += job.held_gpus
                self.firm[tenant.name] += job.held_gpus * kind.guaranteed
        self.total = sum(job.held_gpus for job in view.running)
        self.waiting = [
            job for job in view.waiting if self.tree.class_of(job.spec.priority).guaranteed
        ]

    def check_bounds(self):
        """Nobody exceeds its limit, borrows too much or uses what others keep."""
        for tenant in self.tree:
            used = self.used[tenant.name]
            assert used <= tenant.limit + DUST, f"{tenant} uses {used}"
            assert used <= tenant.quota + tenant.borrow + DUST, f"{tenant} uses {used}"
            if tenant.lend < INF:
                kept = max(tenant.quota - tenant.lend, used)
                assert self.total - used <= self.up - kept + DUST, f"{tenant} lent too much"

    def check_guarantees(self, spared=()):
        """Nobody waits for what is within the quota of its queue and of all above it."""
        for job in self.waiting:
            path = list(self.tree.path(job.tenant))
            owed = all(self.firm[t.name] + job.gpus <= t.quota + DUST for t in path)
            free = all(
                self.used[t.name] + job.gpus <= min(t.limit, t.quota + t.borrow) + DUST
                for t in path
            )
            assert not (owed and free) or job.id in spared, f"{job} of {path} waits: {self.firm}"


def check_all(engine, look, *, all_end=True):
    """Run to the end; `look` sees a picture whenever nothing more is to be decided at once."""
    while engine.advance():
        if not engine.timers.ask_now and not engine.lifecycle.backlog:
            look(Picture(engine))
    engine.finish()
    assert not (all_end and engine.view.active), f"never ended: {engine.view.jobs[:3]}"


def random_run(
    seed, make, look, *, gpus=8, bounds=True, priorities=(0,), classes=(), all_end=True, **more
):
    """One random case from start to end."""
    rng = Random(seed)  # noqa: S311 - a workload, not a secret
    tenants = tree_of(rng, gpus, bounds=bounds)
    workload = jobs_of(rng, tenants, gpus, priorities=priorities, **more)
    engine = engine_of(make(), workload, gpus, tenants, classes)
    check_all(engine, look, all_end=all_end)
    return engine


OPPORTUNISTIC = (PriorityClass("idle", -5, guaranteed=False), PriorityClass("usual", 0))
