"""Engines for policies that share GPUs, with somebody who watches every batch."""

from msgspec.structs import replace

from rota.core.jobs import RUNNING, Behaviour, JobSpec, Request
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.parts import make_policy
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.rates import Sharing, SharingParams
from rota.placement.consolidate import consolidate
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster


def job(name, gpus, work, *, at=0.0, demand=None, labels=(), kinds=(), spec=None, **request):
    """Return a job; `kinds`: amounts of other resources, `spec`: more fields of `JobSpec`."""
    asked = Request.of(gpus, labels=tuple(labels), **request)
    if kinds:
        group = replace(asked.groups[0], resources=tuple(sorted(dict(kinds).items())))
        asked = replace(asked, groups=(group,))
    return JobSpec(name, at, asked, **(spec or {})), Behaviour(work, demand=demand)


class Watch(Invariants):
    """All invariants, and a function that is called with (engine) after every batch."""

    def __init__(self, look=None):
        super().__init__()
        self.look = look

    def after(self, engine, events, changes):
        super().after(engine, events, changes)
        if self.look is not None:
            self.look(engine)


def engine(
    policy, jobs, nodes, *, look=None, costs=None, rates=None, tenants=None, kinds=(),
    placement=consolidate, patient=False, **how,
):  # fmt: skip
    """Return a simulated cluster with these nodes and jobs under a policy (its name, or itself)."""
    topology = Topology(nodes, kinds=kinds)
    made = make_policy(policy) if isinstance(policy, str) else policy
    rates = rates(topology) if rates else Sharing(topology, SharingParams(**how))
    return Engine(
        SimCluster(topology, costs or Zero(), rates),
        compose(made, placement(topology), AcceptAll(), patient=patient),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
        tenants=tenants or TenantTree(()),
        checker=Watch(look),
    )


def ends(made, until_s=1e7):
    """When each job has ended."""
    made.run(until_s=until_s)
    return {job.id: job.end_s for job in made.jobs.values()}


def running(made):
    """Jobs that make progress."""
    return [job for job in made.view.active.values() if job.phase == RUNNING]
