"""Dialect `elasticflow` against per-job files of ElasticFlow's simulator, through the recipe."""

import csv

import pytest

from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.core.jobs import Phase
from rota.core.topology import Topology
from rota.engine import snapshot
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.elasticflow.dialect import ElasticFlowDialect
from rota.reproduce.elasticflow.gandiva import GandivaGroups
from rota.reproduce.elasticflow.recipe import RECIPE
from rota.reproduce.loop import PlannedRates
from rota.reproduce.recipe import CheckVerdict, Scale
from rota.reproduce.run import reproduce
from rota.sim.cluster import SimCluster
from rota.traces.read import read_trace
from shared_data import shared

CUT = 40
POLICIES = ["edf", "elasticflow", "tiresias", "gandiva"]


@pytest.mark.parametrize(
    ("scale", "checks"),
    [(Scale.SMALL, 14), pytest.param(Scale.PAPER, 18, marks=pytest.mark.soak)],
)
def test_all_195_verdicts_come_out(scale, checks):
    report = reproduce(RECIPE, scale, data=shared("reference"))

    assert [check for check in report.checks if check.verdict != CheckVerdict.AGREES] == []
    assert len(report.checks) == checks


@pytest.mark.parametrize("until_s", [200_000.0, pytest.param(INF, marks=pytest.mark.soak)])
def test_gandivas_jobs_join_groups_and_end_as_recorded(until_s, monkeypatch):
    made = engine("gandiva", cut=None)
    joined = {}
    place = GandivaGroups.place

    def watched(groups, entry):
        found = place(groups, entry)
        if found:
            joined[entry.job.id] = made.view.now_s
        return found

    monkeypatch.setattr(GandivaGroups, "place", watched)
    made.run(until_s)

    path = shared("reference/elasticflow/fig8a-T4-195jobs/gandiva/job.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    first_s = min(int(row["submit_time"]) for row in rows)
    ends = {row["job_id"]: float(row["end_time"]) - first_s for row in rows}
    ends = {job: end_s for job, end_s in ends.items() if end_s <= until_s}
    done = {job.id: job.end_s for job in made.jobs.values() if job.phase == Phase.DONE}
    assert done == ends
    assert len(ends) > 100
    assert joined == {
        row["job_id"]: int(row["start_time"]) - first_s
        for row in rows
        if int(row["start_time"]) - first_s <= until_s
    }


def engine(policy, outages=(), cut=CUT):
    topology = Topology.uniform(16, 4)
    scheduler = ElasticFlowDialect().build(policy, None, topology, seed=0)
    scheduler.trusted = False  # let the engine check every plan
    trace = shared("reference/elasticflow/elasticVpollux_e.csv")
    tables = shared("reference/profiles/elasticflow")
    workload = read_trace(trace, f"elasticflow:throughputs={tables},gpu=T4").workload
    workload = workload.like(workload.specs[:cut], workload.behaviours[:cut])
    scheduler.expect(workload)
    events = [(at_s, kind, topology.nodes[node]) for at_s, kind, node in outages]
    cluster = SimCluster(topology, Zero(), PlannedRates(topology), outages=events)
    return Engine(cluster, scheduler, WorkloadSource(workload), checker=Invariants())


@pytest.mark.parametrize("policy", POLICIES)
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(policy):
    until_s = 60_000.0 if policy == "gandiva" else INF  # its turns take long
    whole, first, second = engine(policy), engine(policy), engine(policy)
    whole.run(until_s)
    first.run(15_000)
    snapshot.restore(second, snapshot.freeze(first))
    second.run(until_s)

    assert {job.id: job.end_s for job in second.jobs.values()} == {
        job.id: job.end_s for job in whole.jobs.values()
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_nodes_may_fail(policy):
    made = engine(policy, [(12_000, NODE_DOWN, 0), (12_000, NODE_DOWN, 7), (40_000, NODE_UP, 0)])
    made.run()

    assert {job.phase for job in made.jobs.values()} <= {Phase.DONE, Phase.REJECTED}
