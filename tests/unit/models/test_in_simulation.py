"""Costs and rates at work: a few jobs through the real engine, their ends computed by hand."""

import pytest

from placement_cases import cluster
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import (
    Bytes,
    Custom,
    Decima,
    FixedParams,
    HeliosCosts,
    LucidCosts,
    Migrate8,
    Pollux30,
    Suspend,
    Zero,
)
from rota.models.rates import (
    Locality,
    LocalityParams,
    Scaling,
    Sharing,
    SharingParams,
    Types,
    Uniform,
)
from rota.placement.best_fit import BestFit
from rota.placement.skew import Skew
from rota.policies.admission.accept_all import AcceptAll
from rota.policies.fifo import Fifo
from rota.policies.srtf import Srtf
from rota.sim.cluster import SimCluster


def ends(topology, policy, jobs, *, costs=None, rates=None, placement=BestFit, outages=()):
    """Return when the jobs end: each is (submission, GPUs, work or behaviour, model)."""
    events = [(at_s, kind, topology.nodes[node]) for at_s, kind, node in outages]
    made = SimCluster(topology, costs or Zero(), rates or Uniform(topology), outages=events)
    free = made.capabilities.frictionless
    scheduler = compose(policy, placement(topology), AcceptAll(), frictionless=free)
    specs = [
        JobSpec(f"j{i}", submit_s, Request.of(gpus), model=model)
        for i, (submit_s, gpus, _, model) in enumerate(jobs)
    ]
    behaviours = [
        work if isinstance(work, Behaviour) else Behaviour(work) for _, _, work, _ in jobs
    ]
    engine = Engine(made, scheduler, WorkloadSource(Workload(specs, behaviours)))
    seen = {}
    engine.checker = type(
        "Watch", (), {"after": lambda _, engine, *__: seen.update(engine.view.active)}
    )()
    engine.run()
    return [round(seen[i].end_s, 6) for i in range(len(jobs))]


# A job of 100 s is preempted at 40 s by one of 10 s, on one GPU.
TWO = [(0.0, 1, 100.0, ""), (40.0, 1, 10.0, "")]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        (Zero(), [110, 50]),
        # progress from 30 to 40 s, then 70..80 s for the other, again 30 s, then 90 s of work
        (Pollux30(), [200, 80]),
        (Migrate8(), [110, 50]),
        # the first stops until 40.1 s; the other runs for 10 s; the first resumes at 50.2 s
        (Suspend(), [110.2, 50.1]),
        # 3 s, 37 s of work; 43..53 s; 56 s and 63 s of work
        (Decima(), [119, 53]),
        (HeliosCosts(), [117, 50]),
        # 40 s of work are done again: nothing of them is left
        (LucidCosts(), [150, 50]),
        # 10 s, 30 s of work; a stop of 1 s; 51..61 s; 11 s and 70 s of work
        (Bytes(), [142, 61]),
        # 10 + 20 s of work in 40 s; 5 + 5 s of work until 60 s for the other; 70 s in 80 s
        (Custom(FixedParams(slow_s=20, slow_factor=0.5)), [140, 60]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_preemption_costs_what_the_preset_says(costs, expected):
    assert ends(cluster(1), Srtf(), TWO, costs=costs) == expected


@pytest.mark.parametrize(
    ("checkpoint_s", "expected"), [(0, 110), (30, 120), (100, 150), (float("inf"), 150)]
)
def test_a_failure_costs_the_work_since_the_last_checkpoint(checkpoint_s, expected):
    # the node is down from 40 to 50 s; 0, 10, 40 or all 40 s of the work are done again
    outages = [(40.0, NODE_DOWN, 0), (50.0, NODE_UP, 0)]
    costs = Zero(FixedParams(checkpoint_s=checkpoint_s))
    jobs = [(0.0, 1, 100.0, "")]
    assert ends(cluster(1), Fifo(), jobs, costs=costs, outages=outages) == [expected]


def test_types():
    topology = cluster((1, {"gpu_type": "k80"}), (1, {"gpu_type": "v100"}))
    speeds = Behaviour(100.0, speeds={"k80": 0.5, "v100": 2.0})
    jobs = [(0.0, 1, speeds, ""), (0.0, 1, speeds, "")]
    assert ends(topology, Fifo(), jobs, rates=Types(topology)) == [200, 50]


def test_locality_with_a_placement_that_looks_at_models():
    topology = cluster(2, 2)
    rates = Locality(topology, LocalityParams(factor=0.5))
    jobs = [(0.0, 1, 100.0, ""), (0.0, 2, 100.0, "resnet50"), (1.0, 2, 100.0, "vgg16")]
    # resnet50 takes what is left of a, and one GPU of b: half as fast. vgg16 waits for a
    # whole node, which there is only when resnet50 ends at 200 s
    assert ends(topology, Fifo(), jobs, rates=rates, placement=Skew) == [100, 200, 300]
    jobs[1] = (0.0, 2, 100.0, "vgg11")
    # vgg11 takes b; vgg16 waits until it ends, then a (free since 100 s) or b
    assert ends(topology, Fifo(), jobs, rates=rates, placement=Skew) == [100, 100, 200]


def test_neighbours_come_and_go():
    topology = cluster(1)
    rates = Sharing(topology, SharingParams(factor=0.5))
    jobs = [(0.0, 0.5, 100.0, ""), (40.0, 0.5, 30.0, "")]
    # the second needs 60 s beside the first, which does 40 + 30 s of work until 100 s
    assert ends(topology, Fifo(), jobs, rates=rates) == [130, 100]


def test_scaling_without_resizing_changes_nothing():
    topology = cluster(4)
    jobs = [(0.0, 2, Behaviour(100.0, scaling=[(1, 0.6), (2, 1.0), (4, 1.5)]), "")]
    assert ends(topology, Fifo(), jobs, rates=Scaling(topology)) == [100]
