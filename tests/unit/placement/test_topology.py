"""Topology-aware placement: as low in the tree as possible, and there as full as possible."""

import pytest

from placement_cases import Maker, cluster, put, where
from rota.placement.topology import TopologyAware


@pytest.fixture
def maker():
    return Maker()


def placed(placement, maker, *args, **asked):
    return where(placement.topology, maker.start(placement, *args, **asked).allocation)


def racks(*nodes):
    """Return nodes a, b, c, ... from pairs of GPUs and rack."""
    return cluster(*[(gpus, {"path": tuple(rack.split("."))}) for gpus, rack in nodes])


def test_one_node_is_best_and_the_fullest_of_them(maker):
    placement = TopologyAware(racks((4, "r0"), (4, "r0"), (4, "r1")))
    put(placement, maker, b=1, c=2)
    assert placed(placement, maker, 2) == {"c": 2}
    assert placed(placement, maker, 2) == {"b": 2}
    assert placed(placement, maker, 2) == {"a": 2}


def test_then_one_rack_and_the_fullest_of_them(maker):
    placement = TopologyAware(
        racks((4, "r0"), (4, "r0"), (4, "r0"), (4, "r1"), (4, "r1"), (4, "r2"))
    )
    put(placement, maker, a=1, b=1, c=1, d=1, e=2, f=3)
    # free: 3+3+3, 3+2 and 1: no node has 4, r1 (5) is fuller than r0 (9)
    assert placed(placement, maker, 4) == {"d": 3, "e": 1}
    # r1 has 1 left: 7 only fit r0, two whole parts and the rest on its third node
    assert placed(placement, maker, 7) == {"a": 3, "b": 3, "c": 1}


def test_then_several_racks_with_as_few_parts_as_possible(maker):
    placement = TopologyAware(racks((4, "r0"), (4, "r0"), (4, "r1"), (4, "r1"), (4, "r2")))
    put(placement, maker, a=3, c=1)
    # r1 has the most (7), the remaining 3 fit one node: r2 has the fullest with room for it
    assert placed(placement, maker, 10) == {"c": 3, "d": 4, "b": 3}
    # left: a 1, b 1, e 4
    assert placed(placement, maker, 6) == {"e": 4, "a": 1, "b": 1}


def test_a_remainder_prefers_to_stay_low_too(maker):
    placement = TopologyAware(
        racks((2, "p0.s0"), (2, "p0.s0"), (2, "p0.s1"), (1, "p0.s1"), (3, "p1.s2"), (3, "p1.s2"))
    )
    # 9: p0 has 7, p1 has 6. All of p0, then 2 on one node of p1
    assert placed(placement, maker, 9) == {"a": 2, "b": 2, "c": 2, "d": 1, "e": 2}


def test_deep_trees_are_climbed_level_by_level(maker):
    placement = TopologyAware(
        racks((2, "p0.s0"), (2, "p0.s0"), (2, "p0.s1"), (2, "p1.s2"), (2, "p1.s3"))
    )
    assert placed(placement, maker, 3) == {"a": 2, "b": 1}
    # s0 has 1 left: only pods have 3, and p0 (3) is fuller than p1 (4)
    assert placed(placement, maker, 3) == {"c": 2, "b": 1}
    assert placed(placement, maker, 4) == {"d": 2, "e": 2}


def test_nodes_directly_under_the_cluster_count_as_near_as_their_height_says(maker):
    placement = TopologyAware(cluster((2, {}), (2, {"path": ("r0",)}), (2, {"path": ("r0",)})))
    assert placed(placement, maker, 3) == {"b": 2, "c": 1}
    assert placed(placement, maker, 3) == {"a": 2, "c": 1}


def test_it_fits_whenever_enough_of_one_type_is_free(maker):
    placement = TopologyAware(
        cluster(
            (2, {"gpu_type": "k80", "path": ("r0",)}),
            (2, {"gpu_type": "v100", "path": ("r0",)}),
            (2, {"gpu_type": "v100", "path": ("r1",)}),
        )
    )
    assert not placement.fits(maker.shape(5))
    assert placed(placement, maker, 3) == {"b": 2, "c": 1}
    assert not placement.fits(maker.shape(3))


def test_of_several_types_the_one_that_stays_lower_is_taken(maker):
    placement = TopologyAware(
        cluster(
            (2, {"gpu_type": "k80", "path": ("r0",)}),
            (2, {"gpu_type": "k80", "path": ("r1",)}),
            (2, {"gpu_type": "v100", "path": ("r2",)}),
            (2, {"gpu_type": "v100", "path": ("r2",)}),
        )
    )
    assert placed(placement, maker, 4) == {"c": 2, "d": 2}


def test_parts_go_to_the_fullest_node(maker):
    placement = TopologyAware(cluster(2, 2))
    put(placement, maker, b=1)
    assert placed(placement, maker, 0.5) == {"b/1": 0.5}
