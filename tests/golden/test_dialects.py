"""Dialects against the output of the simulators themselves: every job's end, start and preemptions.

The files were written by the unmodified simulators (see the README of each folder).
"""

import csv

import pytest

from rota.core.jobs import Phase
from rota.core.topology import NodeSpec, Topology
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.reproduce.blox.dialect import BloxDialect, BloxParams
from rota.reproduce.tiresias.dialect import TiresiasDialect
from rota.sim.cluster import SimCluster
from rota.traces.formats import plain, tiresias
from shared_data import shared


def simulate(dialect, policy, topology, workload, placement=None):
    """Return the finished jobs by id."""
    scheduler = dialect.build(policy, placement, topology, seed=0)
    cluster = SimCluster(topology, Zero(), Uniform(topology), finish_round_s=dialect.finish_round_s)
    engine = Engine(cluster, scheduler, WorkloadSource(workload), wake=dialect.wake)
    engine.run()
    jobs = {job.id: job for job in engine.view.finished}
    assert all(job.phase == Phase.DONE for job in jobs.values())
    assert len(jobs) == len(workload)
    return jobs


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def mean_jct_s(jobs):
    return sum(job.end_s - job.submit_s for job in jobs.values()) / len(jobs)


# --- Tiresias -------------------------------------------------------------------------------------

SCHEDULES = {
    "fifo": "fifo",
    "fjf": "fifo-skip",
    "sjf": "smallest",
    "shortest": "srtf",
    "shortest-gpu": "srsf",
    "dlas": "las",
    "dlas-gpu": "tiresias",
    "dlas-gpu-1": "tiresias:promote=1",
    "dlas-gpu-8": "tiresias:promote=8",
    "dlas-gpu-gittins": "gittins",
}
YARN = ["fifo", "fjf"]


def check_tiresias(run, schedule, scheme, topology, workload):
    policy = SCHEDULES[schedule]
    if policy == "gittins":
        policy += f":distribution={shared('reference/tiresias/yarn-gput1000.csv')}"
    jobs = simulate(TiresiasDialect(), policy, topology, workload, scheme)
    theirs = rows_of(shared(f"reference/tiresias/{run}/{schedule}-{scheme}.csv"))
    expected = [
        (row["job_id"], int(row["start_time"]), int(row["end_time"]), int(row["preempt"]))
        for row in theirs
    ]
    ours = [
        (row[0], jobs[row[0]].first_start_s, jobs[row[0]].end_s, jobs[row[0]].preemptions)
        for row in expected
    ]
    assert ours == expected
    assert len(expected) == len(workload)


@pytest.mark.parametrize(
    ("schedule", "scheme"),
    [
        *((schedule, "count") for schedule in SCHEDULES if schedule != "dlas-gpu-1"),
        *((schedule, "yarn") for schedule in YARN),
    ],
)
def test_a_thousand_philly_jobs_end_as_in_tiresias(schedule, scheme):
    workload = plain.PlainCsv().read(shared("reference/common/philly1000.csv"), {})
    check_tiresias("philly1000_n48g8", schedule, scheme, Topology.uniform(48, 8), workload)


@pytest.mark.parametrize(
    ("schedule", "scheme"),
    [*((schedule, "count") for schedule in SCHEDULES), *((schedule, "yarn") for schedule in YARN)],
)
def test_the_sixty_jobs_of_tiresias_end_as_there(schedule, scheme):
    workload = tiresias.FORMAT.read(shared("reference/tiresias/60_job.csv"), {})
    nodes = [NodeSpec(f"n{i}", 4, cpus=40, mem_gib=256) for i in range(4)]
    check_tiresias("60j_n4g4", schedule, scheme, Topology(nodes), workload)


# --- Blox -----------------------------------------------------------------------------------------

NODES = {"single300": 6, "multi300": 8, "multi2000": 40}


def blox_run(workload, policy, scatter="blox"):
    jobs = plain.PlainCsv().read(shared(f"reference/blox/jobs_{workload}.csv"), {})
    cluster = Topology.uniform(NODES[workload], 4)
    return simulate(BloxDialect(BloxParams(scatter=scatter)), policy, cluster, jobs)


@pytest.mark.parametrize(
    ("workload", "policy", "preemptions"),
    [
        ("single300", "fifo", 0),
        ("single300", "las", 245),
        ("single300", "tiresias", 245),
        ("single300", "srtf", 88),
        ("multi300", "fifo", 0),
        ("multi300", "las", 1763),
        ("multi300", "tiresias", 1763),
        ("multi300", "srtf", 103),
    ],
)
def test_jobs_end_as_in_blox(workload, policy, preemptions):
    jobs = blox_run(workload, policy)
    theirs = rows_of(shared(f"reference/blox/result_{workload}_{policy}.csv"))
    expected = {row["job_id"]: float(row["completion_time_s"]) for row in theirs}
    assert {name: job.end_s for name, job in jobs.items()} == expected
    assert sum(job.preemptions for job in jobs.values()) == preemptions


@pytest.mark.parametrize(
    ("workload", "policy", "scatter", "jct_s"),
    [
        ("multi300", "fifo", "fixed", 18421.6),
        ("multi300", "las", "fixed", 11087.6),
        ("multi300", "srtf", "fixed", 6992.6),
        ("single300", "las", "fixed", 6517.1),
        ("multi2000", "fifo", "blox", 161113.3),
        ("multi2000", "fifo", "fixed", 13172.3),
        ("multi2000", "las", "blox", 14616.8),
        ("multi2000", "srtf", "blox", 212937.1),
    ],
)
def test_averages_are_those_of_the_reference(workload, policy, scatter, jct_s):
    assert round(mean_jct_s(blox_run(workload, policy, scatter)), 1) == jct_s
