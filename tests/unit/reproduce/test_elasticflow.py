"""The rigid baselines of the dialect `elasticflow`, on jobs that can be followed by hand."""

import pytest

from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.elasticflow.dialect import ElasticFlowDialect
from rota.reproduce.loop import PlannedRates
from rota.sim.cluster import SimCluster


def simulate(policy, cluster, rows, origin_s=0.0):
    """Rows are (submit, GPUs, duration)."""
    topology = Topology.uniform(*cluster)
    scheduler = ElasticFlowDialect().build(policy, None, topology, seed=0)
    scheduler.trusted = False  # let the engine check every plan
    jobs = Workload(
        [JobSpec(str(i), float(s), Request.of(n)) for i, (s, n, _) in enumerate(rows)],
        [Behaviour(float(d)) for _, _, d in rows],
    )
    jobs.origin_s = origin_s
    scheduler.expect(jobs)
    cluster = SimCluster(topology, Zero(), PlannedRates(topology))
    made = Engine(cluster, scheduler, WorkloadSource(jobs), checker=Invariants())
    made.run()
    return made.jobs.values()


def ends(*args, **options):
    return [job.end_s for job in simulate(*args, **options)]


def test_overhead_delays_tiresias_jobs_only_if_an_event_comes_before_their_end():
    # 4 s of overhead: the first job has 6 s behind it at second 10; the second is not disturbed
    assert ends("tiresias", (1, 1), [(0, 1, 100), (10, 1, 100)]) == [104, 204]


def test_a_tiresias_job_that_has_run_long_makes_room_for_a_new_one():
    # 8 s of overhead: events for falls come at 813 (too early: seconds are taken for GPU seconds),
    # 1425 and 2871, so the first is in the last queue at 4000, with 3992 s behind it. The second
    # has such events at 4813 and 5425, pays once, and leaves at 6008.
    assert ends("tiresias", (1, 4), [(0, 4, 8000), (4000, 4, 2000)]) == [6008 + 4008, 6008]


@pytest.mark.parametrize(
    ("origin_s", "expected"),
    [
        (0.0, [180, 240]),  # slots end at full minutes: a minute each, in turn
        (30.0, [120, 240]),  # they never do on this clock: one after the other
    ],
)
def test_gandivas_turns_change_at_full_minutes_of_the_traces_clock(origin_s, expected):
    rows = [(0, 1, 120), (0, 1, 120)]
    assert ends("gandiva", (1, 1), rows, origin_s=origin_s) == expected


def test_gandiva_has_groups_for_some_sizes_only():
    three, four = simulate("gandiva", (1, 4), [(0, 3, 60), (0, 4, 60)])
    assert (three.phase, four.phase) == (Phase.REJECTED, Phase.DONE)


def test_gandivas_nodes_have_equally_many_gpus():
    uneven = Topology([NodeSpec("a", 4), NodeSpec("b", 8)])
    with pytest.raises(OptionError, match="equally many GPUs"):
        ElasticFlowDialect().build("gandiva", None, uneven, seed=0)
