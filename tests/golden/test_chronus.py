"""Dialect `chronus` against per-job files of Chronus' simulator, through the recipe."""

import pytest

from rota.core.topology import Topology
from rota.engine import snapshot
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.chronus.dialect import ChronusDialect
from rota.reproduce.chronus.recipe import OPTIMA, RECIPE
from rota.reproduce.loop import PlannedRates
from rota.reproduce.recipe import CheckVerdict
from rota.reproduce.run import reproduce
from rota.sim.cluster import SimCluster
from rota.traces.read import read_trace
from shared_data import shared


def test_200_jobs_come_out_one_by_one_and_1000_on_average():
    report = reproduce(RECIPE, data=shared("reference"))

    checks = {check.quantity: check for check in report.checks}
    odd = [check for check in report.checks if check.verdict != CheckVerdict.AGREES]
    assert [(check.quantity, check.verdict, check.reason) for check in odd] == [
        ("p1000: minutes to the end, preemptions", CheckVerdict.DEVIATES, OPTIMA)
    ]
    assert len(checks) == 10
    assert checks["p200: minutes to the end, preemptions"].ours == "200 of 200 equal"
    assert checks["p1000: mean JCT (min)"].ours == pytest.approx(185.07, rel=0.01)


def engine():
    topology = Topology.uniform(16, 8)
    dialect = ChronusDialect()
    scheduler = dialect.build("chronus", None, topology, seed=0)
    scheduler.trusted = False  # let the engine check every plan
    workload = read_trace(shared("reference/chronus/p200.csv"), "chronus").workload
    dialect.meet(scheduler, workload, topology)
    cluster = SimCluster(topology, Zero(), PlannedRates(topology))
    return Engine(cluster, scheduler, WorkloadSource(workload), checker=Invariants())


@pytest.mark.parametrize("cut_s", [61.0, 4_150.0, 9_000.0])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(cut_s):
    whole, first, second = engine(), engine(), engine()
    whole.run()
    first.run(cut_s)
    snapshot.restore(second, snapshot.freeze(first))
    second.run()

    assert {job.id: (job.end_s, job.preemptions) for job in second.jobs.values()} == {
        job.id: (job.end_s, job.preemptions) for job in whole.jobs.values()
    }
