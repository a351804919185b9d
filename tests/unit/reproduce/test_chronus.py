"""The dialect `chronus` on jobs that can be followed by hand. Times are minutes."""

import pytest

from rota.core.errors import OptionError
from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.reproduce.chronus.accounts import whole_share
from rota.reproduce.chronus.dialect import ChronusDialect, ChronusDialectParams
from rota.reproduce.loop import PlannedRates
from rota.sim.cluster import SimCluster


def simulate(cluster, rows, *, origin=0, outages=(), until=INF):
    """Rows are (submit, GPUs, duration, deadline)."""
    topology = Topology.uniform(*cluster)
    dialect = ChronusDialect()
    scheduler = dialect.build("chronus", None, topology, seed=0)
    scheduler.trusted = False  # let the engine check every plan
    jobs = Workload(
        [
            JobSpec(str(i), 60.0 * submit, Request.of(gpus), deadline_s=60.0 * deadline)
            for i, (submit, gpus, _, deadline) in enumerate(rows)
        ],
        [Behaviour(60.0 * duration) for _, _, duration, _ in rows],
    )
    jobs.origin_s = 60.0 * origin
    dialect.meet(scheduler, jobs, topology)
    events = [(60.0 * at, kind, topology.nodes[node]) for at, kind, node in outages]
    cluster = SimCluster(topology, Zero(), PlannedRates(topology), outages=events)
    made = Engine(cluster, scheduler, WorkloadSource(jobs), checker=Invariants())
    made.run(60.0 * until)
    return list(made.jobs.values())


def ends(*args, **options):
    return [round(job.end_s / 60, 6) for job in simulate(*args, **options)]


def test_a_job_is_looked_at_with_the_next_slot_and_each_start_makes_it_longer():
    # from 5 on; stopped and started at 20: twice half a minute
    assert ends((1, 1), [(1, 1, 20, INF)]) == [5 + 20 + 1]
    # with 4 GPUs a start takes three times as long
    assert ends((1, 4), [(1, 4, 10, INF)]) == [5 + 10 + 1.5]


def test_leases_are_counted_on_the_clock_of_the_file():
    # it comes in minute 16, runs from 20 on, and is stopped and started at 40
    assert ends((1, 1), [(0, 1, 20, INF)], origin=16) == [4 + 20 + 1]


def test_free_gpus_are_filled_in_odd_minutes_with_the_minutes_since_the_slot():
    # the first is done at 10.5; at 11 the second is given the GPU as if it had had it since 10
    first, second = ends((1, 1), [(0, 1, 10, INF), (1, 1, 8, INF)])
    assert (first, second) == (10.5, 18)


def test_leases_leave_room_for_a_declined_job_but_promises_are_kept():
    # the first needs two of the three leases before 80, the second cannot have two before 50: it
    # is declined, but served from 5 to 31. At 31 the first fills in, as if from 30 on, and goes on
    # with its leases from 40: it is never charged a start.
    assert ends((1, 1), [(1, 1, 35, 80), (1, 1, 25, 50)]) == [65, 31]


def test_parts_of_a_node_count_as_powers_of_two():
    assert [whole_share(gpus) for gpus in (1, 2, 3, 4, 5, 7, 8, 9, 16)] == [
        1, 2, 4, 4, 8, 8, 8, 9, 16,
    ]  # fmt: skip


def test_a_job_may_be_on_many_nodes():
    wide, *_ = simulate((3, 2), [(0, 3, 30, INF), (0, 3, 30, INF)])
    assert wide.end_s == 60 * (30 + 2 * 0.5 * (1 + 1.584962500721156))


def test_nodes_may_fail():
    rows = [(0, 2, 90, 400), (3, 1, 60, INF), (7, 2, 30, 90), (9, 4, 50, INF), (30, 1, 5, 60)]
    outages = [(27, NODE_DOWN, 0), (95, NODE_UP, 0)]
    jobs = simulate((2, 2), rows, outages=outages)
    assert {job.phase for job in jobs} == {Phase.DONE}


@pytest.mark.parametrize("text", ["lease=7", "lease=0", "slot=0", "lease=5,slot=10"])
def test_a_lease_has_whole_slots(text):
    params = ChronusDialectParams(**{k: int(v) for k, v in (p.split("=") for p in text.split(","))})
    with pytest.raises(OptionError, match="a lease of one or more slots"):
        ChronusDialect(params).build("chronus", None, Topology.uniform(1, 8), seed=0)


def test_what_it_does_not_know_is_refused():
    topology = Topology.uniform(1, 8)
    with pytest.raises(OptionError, match="knows no policy 'fifo'"):
        ChronusDialect().build("fifo", None, topology, seed=0)
    with pytest.raises(OptionError, match="leave --placement out"):
        ChronusDialect().build("chronus", "spread", topology, seed=0)
    uneven = Topology([NodeSpec("a", 4), NodeSpec("b", 8)])
    with pytest.raises(OptionError, match="knows equal nodes only"):
        ChronusDialect().build("chronus", None, uneven, seed=0)
