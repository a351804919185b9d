"""Elastic jobs through the real engine."""

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.rates import Scaling
from rota.models.speeds import TrueSpeeds
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster

PLACEMENTS = {"count": count, "consolidate": consolidate}


def elastic(name, submit_s, work, rates, deadline_s=float("inf")):
    """Return a job; `rates[i]` is its speed on i + 1 GPUs, and `work` its seconds on one."""
    request = Request.of(1, min_gpus=1, max_gpus=len(rates))
    scaling = tuple((float(gpus), rate) for gpus, rate in enumerate(rates, start=1))
    return (
        JobSpec(name, float(submit_s), request, deadline_s=float(deadline_s)),
        Behaviour(float(work), scaling=scaling),
    )


def engine(
    policy, jobs, *, nodes=1, gpus=4, placement="count", topology=None, costs=None, outages=()
):
    """Return an engine whose invariants are checked at every event."""
    topology = topology or Topology.uniform(nodes, gpus)
    rates = Scaling(topology)
    cluster = SimCluster(topology, costs or Zero(), rates, outages=outages)
    scheduler = compose(policy, PLACEMENTS[placement](topology), AcceptAll(), frictionless=False)
    source = WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs]))
    made = Engine(cluster, scheduler, source, checker=Invariants())
    made.arrivals.book = TrueSpeeds(rates)
    return made


def held(made, at_s):
    """Run up to a time; GPUs of each job then."""
    made.run(at_s)
    return {job.id: job.held_gpus if job.running else 0 for job in made.jobs.values()}


def ends(made):
    """Run to the end; when each job was done."""
    made.run()
    return {job.id: job.end_s for job in made.jobs.values()}
