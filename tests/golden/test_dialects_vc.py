"""Helios, Lucid and PAI against the output of the simulators themselves, job by job.

The files were written by the unmodified policies (see the README of each folder), on one virtual
cluster of 32 (300 jobs) or 48 (1,000 jobs) nodes with 8 GPUs.
"""

import csv

import pytest

from rota.core.jobs import Phase
from rota.core.topology import Topology
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.reproduce.helios.dialect import HeliosDialect
from rota.reproduce.loop import PlannedCosts
from rota.reproduce.lucid.dialect import LucidDialect
from rota.reproduce.lucid.loop import SecondsRates
from rota.reproduce.pai.dialect import PaiDialect
from rota.sim.cluster import SimCluster
from rota.traces.formats import plain
from shared_data import shared

NODES = {"philly300": 32, "philly1000": 48}


def simulate(dialect, policy, workload):
    """Return the finished jobs by id."""
    topology = Topology.uniform(NODES[workload], 8)
    jobs = plain.PlainCsv().read(shared(f"reference/common/{workload}.csv"), {})
    sharing = policy == "lucid"
    options = f":profiles={shared('reference/lucid')}" if sharing else ""
    scheduler = dialect.build(policy + options, None, topology, seed=0)
    rates = SecondsRates(topology) if sharing else Uniform(topology)
    costs = {"zero": Zero, "planned": PlannedCosts}[dialect.costs]()
    cluster = SimCluster(topology, costs, rates, finish_round_s=dialect.finish_round_s)
    engine = Engine(cluster, scheduler, WorkloadSource(jobs), wake=dialect.wake)
    engine.run()
    finished = {job.id: job for job in engine.view.finished}
    assert all(job.phase == Phase.DONE for job in finished.values())
    assert len(finished) == len(jobs)
    return finished


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("dialect", "workload", "policy"),
    [
        *((HeliosDialect, "philly1000", policy) for policy in HeliosDialect.policies),
        *((LucidDialect, "philly300", policy) for policy in LucidDialect.policies),
        *((LucidDialect, "philly1000", policy) for policy in LucidDialect.policies),
    ],
)
def test_starts_ends_and_preemptions_are_those_of_the_simulator(dialect, workload, policy):
    jobs = simulate(dialect(), policy, workload)
    theirs = rows_of(shared(f"reference/{dialect.name}/{workload}/{policy}_jobs.csv"))
    columns = "start_s", "end_s", "ckpt_times"
    expected = [(row["job_id"], *(int(row[column]) for column in columns)) for row in theirs]
    ours = [
        (name, jobs[name].first_start_s, jobs[name].end_s, jobs[name].preemptions)
        for name, *_ in expected
    ]
    assert ours == expected
    assert len(expected) == len(jobs)


@pytest.mark.parametrize(
    ("dialect", "workload", "policy"),
    [
        (HeliosDialect, "philly1000", "srtf"),
        (LucidDialect, "philly300", "srtf"),
        (LucidDialect, "philly1000", "srtf"),
        (LucidDialect, "philly300", "tiresias"),
        (LucidDialect, "philly1000", "tiresias"),
    ],
)
def test_waits_of_preempted_jobs_are_those_of_the_simulator(dialect, workload, policy):
    jobs = simulate(dialect(), policy, workload)
    theirs = rows_of(shared(f"reference/{dialect.name}/{workload}/{policy}_jobs.csv"))
    expected = {row["job_id"]: int(row["queue_s"]) for row in theirs}
    ours = {}
    for name, job in jobs.items():
        overhead_s = job.preemptions * dialect().overhead_s(job.gpus) + 1  # ends are 1 s late
        ours[name] = job.end_s - job.submit_s - job.true_work - overhead_s
    assert ours == expected
    assert any(job.preemptions for job in jobs.values())


@pytest.mark.parametrize(
    ("workload", "policy"), [("philly300", "fifo"), ("philly1000", "fifo"), ("philly1000", "sjf")]
)
def test_jobs_end_as_in_pai(workload, policy):
    jobs = simulate(PaiDialect(), policy, workload)
    theirs = rows_of(shared(f"reference/pai/{workload}/{policy.upper()}_1node_jobs.csv"))
    expected = {row["job_id"]: int(row["end_s"]) for row in theirs}
    assert {name: job.end_s for name, job in jobs.items()} == expected
