"""The dialect of Sia's simulator on made-up profiles; tests/golden has the real ones."""

import msgspec
import numpy as np
import pytest

from rota.core.errors import InputError, OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.workload import Workload
from rota.engine import snapshot
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import make_costs
from rota.models.rates import make_rates
from rota.reproduce.sia.dialect import SiaDialect
from rota.reproduce.sia.loop import configurations, fleets
from rota.sim.cluster import SimCluster
from rota.study.dialect import create
from rota.traces.cluster import parse_cluster
from rota.traces.formats import sia
from typed_profile_files import CLUSTER, write_all

POLICIES = ["sia", "sia:p=0.5,lambda_n=-1.1", "gavel-max-sum"]


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    profiles, path = write_all(tmp_path_factory.mktemp("sia"))
    return sia.FORMAT.load(path, {"profiles": str(profiles), "reference": "slow"}).workload


def engine(policy, jobs, *, like="sia", outages=(), cluster=CLUSTER):
    topology = parse_cluster(cluster)[0]
    dialect = create(like)
    assert isinstance(dialect, SiaDialect)
    scheduler = dialect.build(policy, None, topology, seed=0)
    scheduler.trusted = False
    jobs = dialect.adapt(jobs)
    dialect.meet(scheduler, jobs, topology)
    simulated = SimCluster(
        topology,
        make_costs(dialect.costs),
        make_rates(dialect.rates, topology),
        outages=[(at, kind, topology.nodes[node]) for at, kind, node in outages],
    )
    return Engine(
        simulated, scheduler, WorkloadSource(jobs), wake=dialect.wake, checker=Invariants()
    )


def finished(made):
    made.run()
    jobs = [made.jobs[index] for index in sorted(made.jobs)]
    assert all(job.phase == Phase.DONE for job in jobs)
    return jobs


@pytest.mark.parametrize("policy", POLICIES)
def test_all_jobs_end_at_whole_seconds(policy, workload):
    every_s = 360 if policy.startswith("gavel") else 60
    for job in finished(engine(policy, workload)):
        assert job.end_s == pytest.approx(round(job.end_s), abs=1e-4)
        assert job.first_start_s % every_s == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at_s", [1, 95, 431, 700])
def test_a_resumed_run_is_the_uninterrupted_one(policy, at_s, workload):
    whole = engine(policy, workload)
    whole.run()
    first = engine(policy, workload)
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    second = engine(policy, workload)
    snapshot.restore(second, state)
    second.run()
    for made in (whole, second):
        made.finish()
    assert second.log.frame().equals(whole.log.frame())


@pytest.mark.parametrize("policy", POLICIES)
def test_failures(policy, workload):
    outages = [
        (130.0, NODE_DOWN, 2),
        (200.5, NODE_DOWN, 0),
        (900.0, NODE_UP, 0),
        (905.0, NODE_UP, 2),
    ]
    calm = finished(engine(policy, workload))
    rough = finished(engine(policy, workload, outages=outages))
    assert sum(job.end_s for job in rough) > sum(job.end_s for job in calm)


def test_jobs_grow_step_by_step_and_rigid_ones_do_not(workload):
    made = engine("sia", workload)
    sizes = {}
    for now_s in range(60, 1200, 60):
        made.run(now_s + 1)
        for job in made.jobs.values():
            if job.running:
                sizes.setdefault(job.id, []).append(job.held_gpus)
    grown = sizes["net-0"]
    assert grown[0] == 1
    assert max(grown) > 1
    assert all(after <= 2 * max(grown[:at]) for at, after in enumerate(grown) if at)
    assert set(sizes["net-2"]) == {4}  # rigid
    assert max(sizes["net-1"]) <= 2  # only down from what was asked for


def test_a_start_takes_time_and_is_not_disturbed(workload):
    made = engine("sia", workload)
    made.run(61)
    job = made.jobs[0]
    assert (job.phase, job.start_s) == (Phase.STARTING, 60.0)
    made.run(89)
    assert job.phase == Phase.STARTING
    made.run(91)
    assert job.phase == Phase.RUNNING


def test_configurations():
    found = configurations(fleets(parse_cluster("3x4:a+2x8:b")[0]), 64)
    assert [(config.nodes, config.gpus) for config in found if config.kind == 0] == [
        (1, 1), (1, 2), (1, 4), (2, 8), (3, 12),
    ]  # fmt: skip
    assert [config.gpus for config in found if config.kind == 1] == [1, 2, 4, 8, 16]
    profiled = configurations(fleets(parse_cluster("9x8:rtx")[0]), 64)
    assert max(config.nodes for config in profiled) == 3


def test_gavel_prefers_where_the_total_is_largest(workload):
    made = engine("gavel-max-sum", workload)
    made.run(361)
    fast = made.cluster.topology.nodes[2].id
    held = {job.id: job.allocation.vertices for job in made.jobs.values() if job.running}
    assert any(vertices == [fast] for vertices in held.values())
    assert all(np.isin(vertices, [node.id for node in made.cluster.topology.nodes]).all()
               for vertices in held.values())  # fmt: skip


@pytest.mark.parametrize(
    ("text", "policy", "message"),
    [
        ("sia:interval_s=-1", "sia", "give seconds above 0"),
        ("sia", "sia:p=0", "give a power below or above 0"),
        ("sia", "fifo", "knows no policy 'fifo'"),
        ("sia", "gavel-max-sum:x=1", "x"),
    ],
)
def test_what_is_refused(text, policy, message, workload):
    with pytest.raises(OptionError, match=message):
        engine(policy, workload, like=text)


def test_nodes_of_a_type_are_alike(workload):
    with pytest.raises(OptionError, match="differ in GPUs"):
        engine("sia", workload, cluster="1x4:slow+1x2:slow+1x4:fast")


def test_a_workload_without_profiles_is_refused():
    plain = Workload([JobSpec("a", 0.0, Request.of(1))], [Behaviour(10.0)])
    with pytest.raises(OptionError, match="nothing is known of how job a trains"):
        engine("sia", plain)


def test_a_type_without_a_profile_is_refused(workload):
    with pytest.raises(InputError, match="knows the GPU types fast, slow"):
        engine("sia", workload, cluster="1x4:k80")


def test_another_placement_is_refused():
    with pytest.raises(OptionError, match="leave --placement out"):
        create("sia").build("sia", "spread", parse_cluster(CLUSTER)[0], seed=0)
