"""The same engine on the simulator and on real processes takes the same decisions."""

import pytest

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.log import WIDTH, Record
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.live.drivers.local import LocalCluster
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster
from rota.testing.rehearsal import (
    MARGIN_S,
    decisions,
    five_jobs,
    rehearse,
    rehearse_locally,
    topology,
)


def simulate(workload, places, **options):
    return rehearse(SimCluster(places, Zero(), Uniform(places)), workload, **options)


def assert_same(live, simulated, tolerance_s):
    found, expected = decisions(live.log), decisions(simulated.log)
    assert [d.without_time() for d in found] == [d.without_time() for d in expected]
    times = [d.time_s for d in found]
    assert times == pytest.approx([d.time_s for d in expected], abs=tolerance_s)


def test_the_five_jobs_wait_skip_and_preempt():
    engine = simulate(five_jobs(), topology())
    found = decisions(engine.log)
    first, second = (node.id for node in engine.view.topology.nodes)
    assert [d.without_time() for d in found] == [
        ("start", "pair", ((first, 2),)),
        ("start", "one", ((second, 1),)),
        ("start", "small", ((second, 1),)),  # passes `whole`
        ("stop", "pair", ((first, 2),)),
        ("start", "late", ((first, 1),)),
        ("done", "one", ((second, 1),)),
        ("done", "small", ((second, 1),)),
        ("start", "pair", ((second, 2),)),
        ("done", "late", ((first, 1),)),
        ("stop", "pair", ((second, 2),)),
        ("start", "whole", ((first, 2), (second, 2))),
        ("done", "whole", ((first, 2), (second, 2))),
        ("start", "pair", ((first, 2),)),
        ("done", "pair", ((first, 2),)),
    ]
    assert [d.time_s for d in found] == pytest.approx(
        [0, 0, 0, 1.0, 1.0, 1.45, 2.4, 2.4, 2.85, 2.85, 2.85, 4.2, 4.2, 4.65]
    )


@pytest.mark.soak  # in real time: the machine must be idle
def test_processes_take_the_decisions_of_the_simulator(tmp_path):
    live = rehearse_locally(five_jobs(), topology(), tmp_path)
    assert_same(live, simulate(five_jobs(), topology()), MARGIN_S)


@pytest.mark.soak  # in real time: the machine must be idle
def test_a_job_that_waited_for_its_victim_is_demoted_in_time(tmp_path):
    asked = [("first", 0.0, 1.1), ("second", 0.3, 1.1), ("third", 0.9, 0.5)]
    workload = Workload(
        [JobSpec(name, submit_s, Request.of(1)) for name, submit_s, _ in asked],
        [Behaviour(work) for *_, work in asked],
    )
    simulated = simulate(workload, Topology.uniform(1, 1), limit_gpu_s=0.6)
    assert [d.without_time()[:2] for d in decisions(simulated.log)] == [
        ("start", "first"),
        ("stop", "first"),
        ("start", "second"),
        ("stop", "second"),
        ("start", "third"),
        ("done", "third"),
        ("start", "first"),
        ("done", "first"),
        ("start", "second"),
        ("done", "second"),
    ]
    live = rehearse_locally(workload, Topology.uniform(1, 1), tmp_path, limit_gpu_s=0.6)
    assert_same(live, simulated, 0.3)


def test_a_job_that_fails_frees_its_gpus(tmp_path):
    names = ["bad", "next"]
    workload = Workload([JobSpec(n, 0.0, Request.of(1)) for n in names], [Behaviour(1.0)] * 2)
    commands = {"bad": ["sh", "-c", "exit 3"], "next": ["true"]}
    with LocalCluster(Topology.uniform(1, 1), commands, tmp_path / "agent") as cluster:
        engine = rehearse(cluster, workload)
        assert cluster.failure(engine.jobs[0]) == "exit code 3"
    assert [(d.what, d.job) for d in decisions(engine.log)] == [
        ("start", "bad"),
        ("start", "next"),
        ("done", "next"),
    ]
    kinds = engine.log._packed[1::WIDTH]
    assert kinds.count(Record.FAILED) == 1
