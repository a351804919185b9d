"""Who occupies what."""

import pytest

from live_jobs import live
from rota.core.allocation import Allocation
from rota.core.errors import InvalidPlanError
from rota.core.topology import NodeSpec, Topology
from rota.engine.occupancy import Occupancy

# vertices: 0 cluster, 1 node a with 2..5, 6 node b with 7..10
SPECS = [NodeSpec("a", 4, cpus=8.0), NodeSpec("b", 4, cpus=8.0)]


@pytest.fixture
def topology():
    return Topology(SPECS)


def gpus(vertex, amount):
    return Allocation(((vertex, amount),))


def test_what_is_occupied_is_not_free_until_it_is_vacated(topology):
    occupied = Occupancy(topology)
    assert occupied.fits(gpus(1, 4))
    assert not occupied.fits(gpus(1, 5))
    occupied.change(gpus(1, 3), +1)
    assert occupied.fits(gpus(1, 1))
    assert not occupied.fits(gpus(1, 2))
    assert occupied.fits(gpus(6, 4))
    occupied.change(gpus(1, 3), -1)
    assert occupied.fits(gpus(1, 4))


def test_slices_of_one_place_add_up(topology):
    assert not Occupancy(topology).fits(Allocation(((1, 2), (1, 3))))
    assert Occupancy(topology).fits(Allocation(((1, 2), (1, 2))))


def test_a_shared_gpu_is_one_whole_gpu_less_for_its_node(topology):
    occupied = Occupancy(topology)
    occupied.change(gpus(2, 0.25), +1)
    assert occupied.fits(gpus(2, 0.75))
    assert not occupied.fits(gpus(2, 0.8))
    assert occupied.fits(gpus(1, 3))
    assert not occupied.fits(gpus(1, 4))
    occupied.change(gpus(1, 3), +1)
    assert occupied.fits(gpus(2, 0.75))
    assert not occupied.fits(gpus(3, 0.25))


def test_other_resources_count_where_they_are_declared(topology):
    occupied = Occupancy(topology)
    assert occupied.fits(Allocation(((1, 1),), ((1, "cpu", 8.0),)))
    assert not occupied.fits(Allocation(((1, 1),), ((1, "cpu", 9.0),)))
    assert occupied.fits(Allocation(((1, 1),), ((1, "memory", 1e9),)))  # declared nowhere
    occupied.change(Allocation((), ((1, "cpu", 9.0),)), +1)
    assert occupied.exceeded(1)
    assert not occupied.exceeded(6)


def test_a_pool_shrinks_with_its_nodes():
    topology = Topology([NodeSpec("a", 2, "x"), NodeSpec("b", 3, "y"), NodeSpec("c", 4, "x")])
    pool_x, pool_y = topology.pools
    occupied = Occupancy(topology)
    assert occupied.fits(gpus(pool_x.id, 6))
    assert not occupied.fits(gpus(pool_x.id, 7))
    occupied.change(gpus(pool_x.id, 5), +1)
    occupied.change(gpus(pool_y.id, 3), +1)
    assert not occupied.exceeded(pool_x.id)
    topology.nodes[0].up = False
    assert occupied.exceeded(pool_x.id)
    assert not occupied.exceeded(pool_y.id)


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        (gpus(1, 5), r"^job a: Allocation\(\(\(1, 5\),\)\) over-commits a place"),
        (gpus(1, 0), "^job a: 0 GPUs at a: give more than 0"),
        (gpus(2, -0.5), "^job a: -0.5 GPUs at a/0: give more than 0"),
        (gpus(6, 1), "^job a: placed on b, which is down"),
        (gpus(7, 0.5), "^job a: placed on b/0, which is down"),
    ],
)
def test_impossible_allocations_are_refused(topology, allocation, message):
    topology.nodes[1].up = False
    occupied = Occupancy(topology)
    occupied.check(live(), gpus(1, 4))
    with pytest.raises(InvalidPlanError, match=message):
        occupied.check(live(), allocation)
