"""Dialect `synergy` against per-job files that Synergy's simulator wrote: every end, all GPU time.

Jobs 216 and 217 of the trace are submitted in the same second. The simulator takes equal times in
the order of its heap of events; for this trace that is the later one first.
"""

import csv

import pytest

from rota.core.topology import NodeSpec, Topology
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.loop import PlannedRates
from rota.reproduce.synergy.dialect import SynergyDialect, SynergyDialectParams
from rota.sim.cluster import SimCluster
from rota.traces.formats.synergy import FORMAT
from shared_data import shared

GREEDY, FAIR, TUNE = "greedy", "proportional", "tune"
SUFFIX = {GREEDY: "", FAIR: "_fair", TUNE: "_tune"}
RECORDED = {
    ("fifo", FAIR): 16290.6, ("fifo", GREEDY): 13219.6, ("fifo", TUNE): 12796.6,
    ("las", FAIR): 7452.6, ("las", GREEDY): 6121.6, ("las", TUNE): 6175.6,
    ("srtf", FAIR): 6511.6, ("srtf", TUNE): 5195.6,
    ("ftf", FAIR): 25187.6, ("ftf", TUNE): 14562.6,
    ("drf", GREEDY): 7071.6, ("drf", TUNE): 6566.6,
    ("tetris", GREEDY): 4774.6, ("tetris", TUNE): 4844.6,
}  # fmt: skip


def simulate(order, mechanism, ties):
    """Return (end, seconds of leases) by job."""
    topology = Topology([NodeSpec(f"n{i}", 8, cpus=24, mem_gib=500) for i in range(4)])
    dialect = SynergyDialect(SynergyDialectParams(ties=ties))
    scheduler = dialect.build(f"{order}:mechanism={mechanism}", None, topology, seed=0)
    scheduler.trusted = False  # let the engine check every plan
    workload = FORMAT.read(shared("reference/blox/synergy_trace_multi300.csv"), {})
    cluster = SimCluster(
        topology, Zero(), PlannedRates(topology), finish_round_s=dialect.finish_round_s
    )
    engine = Engine(cluster, scheduler, WorkloadSource(workload), wake=dialect.wake)
    engine.run()
    return {job.id: (job.end_s, job.run_s) for job in engine.view.finished}


def recorded(order, mechanism):
    name = f"reference/blox/synergy_result_{order}{SUFFIX[mechanism]}.csv"
    with shared(name).open() as file:
        rows = list(csv.DictReader(file))
    ends = {
        row["job_id"]: (float(row["completion_time_s"]), float(row["attained_service_s"]))
        for row in rows
    }
    return ends, sum(float(row["jct_s"]) for row in rows) / len(rows)


@pytest.mark.parametrize(("order", "mechanism"), RECORDED)
def test_300_jobs_end_as_in_synergy(order, mechanism):
    theirs, mean_s = recorded(order, mechanism)
    assert simulate(order, mechanism, "reversed") == theirs
    assert len(theirs) == 300
    assert mean_s == pytest.approx(RECORDED[order, mechanism], abs=0.06)


def test_only_the_order_of_the_two_that_come_together_makes_a_difference():
    theirs, _ = recorded("fifo", FAIR)
    ours = simulate("fifo", FAIR, "file")
    assert sum(ours[job] == theirs[job] for job in theirs) == 282
    assert all(ours[job] == theirs[job] for job in theirs if int(job) < 216)
    theirs, _ = recorded("srtf", TUNE)
    assert simulate("srtf", TUNE, "file") == theirs
