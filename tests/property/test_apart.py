"""Jobs whose tasks want nodes of their own, on every placement and under preemption."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.jobs import DONE, REJECTED, Behaviour, JobSpec, Request, TaskGroup
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.parts import make_admission, make_placement, make_policy
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster

PLACEMENTS = ["first-fit", "best-fit", "consolidate", "spread", "yarn", "random", "topology"]


def apart(nodes, gpus):
    return Request((TaskGroup("worker", nodes, gpus),), apart=True)


def run(topology, specs, policy, placement):
    workload = Workload(specs, [Behaviour(5.0 + i) for i in range(len(specs))])
    scheduler = compose(
        make_policy(policy), make_placement(placement, topology, 0), make_admission("accept-all"),
        frictionless=True,
    )  # fmt: skip
    cluster = SimCluster(topology, Zero(), Uniform(topology))
    engine = Engine(cluster, scheduler, WorkloadSource(workload), checker=Invariants())
    engine.run()
    return engine


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", ["fifo-skip", "srtf", "easy"])
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    jobs=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 8), st.booleans()),
        min_size=1, max_size=8,
    ),
)  # fmt: skip
def test_every_task_has_a_node_of_its_own(placement, policy, sizes, jobs):
    topology = Topology([NodeSpec(f"n{i}", size) for i, size in enumerate(sizes)])
    specs = [
        JobSpec(
            f"j{i}", float(at), apart(nodes, gpus) if together else Request.of(gpus), estimate_s=5.0
        )
        for i, (nodes, gpus, at, together) in enumerate(jobs)
    ]
    engine = run(topology, specs, policy, placement)
    for job, (nodes, gpus, _, together) in zip(
        engine.jobs.values(), sorted_by_time(jobs), strict=True
    ):
        if not together:
            continue
        possible = sum(size >= gpus for size in sizes) >= nodes
        assert job.phase == (DONE if possible else REJECTED)
        if possible:
            assert [amount for _, amount in job.allocation.slices] == [gpus] * nodes
            assert len({vertex for vertex, _ in job.allocation.slices}) == nodes


def sorted_by_time(jobs):
    return sorted(jobs, key=lambda job: job[2])
