"""Dialect `elasticflow` against per-job files of ElasticFlow's simulator, through the recipe."""

import pytest

from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Phase
from rota.core.topology import Topology
from rota.engine import snapshot
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.elasticflow.dialect import ElasticFlowDialect
from rota.reproduce.elasticflow.recipe import RECIPE
from rota.reproduce.loop import PlannedRates
from rota.reproduce.recipe import CheckVerdict
from rota.reproduce.run import reproduce
from rota.sim.cluster import SimCluster
from rota.traces.read import read_trace
from shared_data import shared

CUT = 40


def test_all_195_verdicts_come_out():
    report = reproduce(RECIPE, data=shared("reference"))

    assert [check for check in report.checks if check.verdict != CheckVerdict.AGREES] == []
    assert len(report.checks) == 10


def engine(policy, outages=()):
    topology = Topology.uniform(16, 4)
    scheduler = ElasticFlowDialect().build(policy, None, topology, seed=0)
    scheduler.trusted = False  # let the engine check every plan
    trace = shared("reference/elasticflow/elasticVpollux_e.csv")
    tables = shared("reference/profiles/elasticflow")
    workload = read_trace(trace, f"elasticflow:throughputs={tables},gpu=T4").workload
    workload = workload.like(workload.specs[:CUT], workload.behaviours[:CUT])
    scheduler.expect(workload)
    events = [(at_s, kind, topology.nodes[node]) for at_s, kind, node in outages]
    cluster = SimCluster(topology, Zero(), PlannedRates(topology), outages=events)
    return Engine(cluster, scheduler, WorkloadSource(workload), checker=Invariants())


@pytest.mark.parametrize("policy", ["edf", "elasticflow"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(policy):
    whole, first, second = engine(policy), engine(policy), engine(policy)
    whole.run()
    first.run(15_000)
    snapshot.restore(second, snapshot.freeze(first))
    second.run()

    assert {job.id: job.end_s for job in second.jobs.values()} == {
        job.id: job.end_s for job in whole.jobs.values()
    }


@pytest.mark.parametrize("policy", ["edf", "elasticflow"])
def test_nodes_may_fail(policy):
    made = engine(policy, [(12_000, NODE_DOWN, 0), (12_000, NODE_DOWN, 7), (40_000, NODE_UP, 0)])
    made.run()

    assert {job.phase for job in made.jobs.values()} <= {Phase.DONE, Phase.REJECTED}
