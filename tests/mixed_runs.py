"""Small runs on clusters with several GPU types, for tests of policies that know them."""

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.rates import Types
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed

PLACEMENTS = {"count": count, "consolidate": consolidate}


def nodes(text):
    """`2x4:fast+1x2:slow` as nodes; without types `2x4`."""
    specs = []
    for part in text.split("+"):
        shape, _, kind = part.partition(":")
        many, gpus = shape.split("x")
        specs += [NodeSpec(f"{kind or 'n'}{i}", int(gpus), kind) for i in range(int(many))]
    return specs


def job(name, gpus, work, *, at=0.0, speeds=None, tenant="", model="", **request):
    spec = JobSpec(name, at, Request.of(gpus, **request), tenant=tenant, model=model)
    return spec, Behaviour(work, speeds=speeds)


def engine(policy, jobs, cluster, *, placement="consolidate", tenants=(), costs=None, outages=()):
    topology = Topology(nodes(cluster) if isinstance(cluster, str) else cluster)
    down = [(time_s, kind, topology.nodes[number]) for time_s, kind, number in outages]
    placed = PLACEMENTS[placement](topology)
    made = SimCluster(topology, costs or Fixed(), Types(topology), outages=down)
    return Engine(
        made,
        compose(policy, placed, AcceptAll(), frictionless=made.capabilities.frictionless),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
        tenants=TenantTree(tenants),
        checker=Invariants(),
    )


def run(policy, jobs, cluster, until_s=None, **options):
    made = engine(policy, jobs, cluster, **options)
    made.run() if until_s is None else made.run(until_s)
    return made


def named(made):
    return {job.id: job for job in made.jobs.values()}


def done(made):
    """Work done so far, by name."""
    now_s = made.cluster.now_s
    return {job.id: job.true_work - job.left_at(now_s) for job in made.jobs.values()}


def kinds(made):
    """GPU types of those that run, by name."""
    vertices = made.cluster.topology.vertices
    return {
        job.id: {vertices[vertex].gpu_type for vertex in job.allocation.vertices}
        for job in made.view.running
    }
