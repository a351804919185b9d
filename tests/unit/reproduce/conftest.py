"""Running a dialect on a small workload."""

from types import SimpleNamespace

import pytest

from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster


def workload(rows):
    """Rows are (submit, GPUs, duration)."""
    return Workload(
        [JobSpec(str(i), float(s), Request.of(n)) for i, (s, n, _) in enumerate(rows)],
        [Behaviour(float(d)) for _, _, d in rows],
    )


def engine_for(
    dialect, policy, cluster, rows, *, placement=None, costs=None, outages=(), checker=None
):
    topology = cluster if isinstance(cluster, Topology) else Topology.uniform(*cluster)
    scheduler = dialect.build(policy, placement, topology, seed=0)
    scheduler.trusted = False  # let the engine check every plan
    jobs = rows if isinstance(rows, Workload) else workload(rows)
    return Engine(
        SimCluster(
            topology,
            costs or Zero(),
            Uniform(topology),
            outages=[(t, kind, topology.nodes[node]) for t, kind, node in outages],
            finish_round_s=dialect.finish_round_s,
        ),
        scheduler,
        WorkloadSource(jobs),
        wake=dialect.wake,
        checker=checker,
    )


def simulate(dialect, policy, cluster, rows, **options):
    """Return (end or None, preemptions, state) of every job, in the order of the rows."""
    engine = engine_for(dialect, policy, cluster, rows, checker=Invariants(), **options)
    engine.run()
    return outcome(engine)


def outcome(engine):
    jobs = engine.jobs
    return [
        (
            jobs[i].end_s if jobs[i].phase == Phase.DONE else None,
            jobs[i].preemptions,
            Phase(jobs[i].phase).name.lower(),
        )
        for i in sorted(jobs)
    ]


@pytest.fixture(scope="session")
def lab():
    """Return the helpers above."""
    return SimpleNamespace(
        workload=workload, engine_for=engine_for, simulate=simulate, outcome=outcome
    )
