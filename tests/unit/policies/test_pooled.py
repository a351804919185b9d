"""GPUs in boxes and in a pool, and what a remote GPU costs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_sharing import ends, engine, job
from rota.core.topology import NodeSpec
from rota.models.remote import RemoteParams, RemoteRates

BOXES = [NodeSpec("a", 4, cpus=4), NodeSpec("b", 0, cpus=64)]


def remote(**params):
    def make(topology):
        return RemoteRates(topology, RemoteParams(**params))

    return make


def test_a_pool_uses_gpus_whose_cpus_are_gone():
    submitted = [job(f"j{i}", 1, 10.0, cpus=4) for i in range(4)]
    boxed = ends(engine("pooled:remote=no", submitted, BOXES))
    assert sorted(boxed.values()) == [10.0, 20.0, 30.0, 40.0]
    pooled = engine("pooled", submitted, BOXES)
    assert set(ends(pooled).values()) == {10.0}


def test_a_remote_gpu_costs_bytes_calls_and_shared_links():
    free = remote(step_s=0.5, gib=1.0, calls=100, gib_s=10.0, rtt_s=0.001)
    alone = engine(
        "pooled", [job("near", 1, 5.0, cpus=4), job("far", 1, 5.0, cpus=4)], BOXES, rates=free
    )
    assert ends(alone) == pytest.approx({"near": 5.0, "far": 5.0 * 0.7 / 0.5})
    two = engine(
        "pooled", [job(name, 1, 5.0, cpus=4) for name in ("near", "far", "away")], BOXES, rates=free
    )
    assert ends(two) == pytest.approx(
        {"near": 5.0, "far": 8.0, "away": 8.0}
    )  # (0.5 + 0.2 + 0.1) / 0.5


def test_a_pool_collects_gpus_of_several_nodes():
    nodes = [NodeSpec("a", 4, cpus=8), NodeSpec("b", 4, cpus=8)]
    submitted = [job("x", 3, 10.0), job("y", 3, 10.0), job("both", 2, 10.0, cpus=2)]
    boxed = ends(engine("pooled:remote=no", submitted, nodes))
    assert boxed == {"x": 10.0, "y": 10.0, "both": 20.0}
    assert ends(engine("pooled", submitted, nodes)) == {"x": 10.0, "y": 10.0, "both": 10.0}


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8), st.integers(1, 30)), max_size=8))
@settings(deadline=None)
def test_a_pool_serves_whoever_a_box_serves_first(asked):
    """Until the pool starts a job that no box has room for, both do the same."""
    nodes = [NodeSpec("a", 4, cpus=8), NodeSpec("b", 4, cpus=8)]
    submitted = [job(f"j{i}", g, 10.0, cpus=float(c)) for i, (g, c, _) in enumerate(asked)]
    started = {}
    for policy in ("pooled:remote=no", "pooled"):
        made = engine(policy, submitted, nodes)
        made.run(until_s=1.0)
        started[policy] = [bool(each.held_gpus) for each in made.jobs.values()]
        made.run(until_s=1e5)
        assert all(each.phase == 5 for each in made.jobs.values())
    assert (
        started["pooled"] >= started["pooled:remote=no"]
    )  # at the first difference it has started
