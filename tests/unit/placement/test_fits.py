"""First fit, best fit and spread by hand."""

import pytest

from placement_cases import Maker, cluster, put, where
from rota.core.registry import parse_params
from rota.placement.best_fit import BestFit, BestFitParams
from rota.placement.first_fit import FirstFit
from rota.placement.spread import Spread


@pytest.fixture
def maker():
    return Maker()


def placed(placement, maker, *args, **asked):
    return where(placement.topology, maker.start(placement, *args, **asked).allocation)


# --- first fit ----------------------------------------------------------------------------------


def test_first_fit_takes_the_first_node_with_room(maker):
    placement = FirstFit(cluster(4, 4, 4))
    put(placement, maker, a=3)
    assert placed(placement, maker, 2) == {"b": 2}
    assert placed(placement, maker, 1) == {"a": 1}
    assert placed(placement, maker, 2) == {"b": 2}


def test_first_fit_waits_rather_than_split_what_a_node_could_hold(maker):
    placement = FirstFit(cluster(4, 4))
    put(placement, maker, a=2, b=2)
    assert not placement.fits(maker.shape(3))


def test_first_fit_takes_what_there_is_for_more_than_a_node(maker):
    placement = FirstFit(cluster(4, 4, 4, 4))
    put(placement, maker, a=1, b=4)
    assert placed(placement, maker, 8) == {"a": 3, "c": 4, "d": 1}
    assert not placement.fits(maker.shape(5))


def test_first_fit_may_fit_a_node_that_is_down_and_still_waits(maker):
    topology = cluster(2, 2, 4)
    placement = FirstFit(topology)
    placement.set_node(topology.nodes[2], up=False)
    assert not placement.fits(maker.shape(4))


# --- best fit -----------------------------------------------------------------------------------


def test_best_fit_with_gpus_only_means_the_fewest_free(maker):
    placement = BestFit(cluster(8, 8, 4))
    put(placement, maker, a=5)
    assert placed(placement, maker, 2) == {"a": 2}
    assert placed(placement, maker, 2) == {"c": 2}
    assert placed(placement, maker, 1) == {"a": 1}


def test_best_fit_weighs_what_is_left_over(maker):
    nodes = [(4, {"cpus": 32, "mem_gib": 64}), (8, {"cpus": 8, "mem_gib": 64})]
    # GPUs: 4/8 and 8/8 of the largest; CPUs: 32/32 and 8/32; memory is equal: 1.5 against 1.25
    placement = BestFit(cluster(*nodes))
    assert placed(placement, maker, 1, cpus=1) == {"b": 1}
    # with half the weight for CPUs: 1.0 against 1.125
    placement = BestFit(cluster(*nodes), BestFitParams(cpu_weight=0.5))
    assert placed(placement, maker, 1, cpus=1) == {"a": 1}


def test_best_fit_splits_when_no_node_has_room(maker):
    placement = BestFit(cluster(4, 4, 4, 4))
    put(placement, maker, a=1, b=2, c=1, d=3)
    assert not any(free >= 4 for free in placement.room.gpus)
    # most room first: a (3), then the rest of 2 on b, which it fills, rather than on c
    assert placed(placement, maker, 5) == {"a": 3, "b": 2}
    assert placed(placement, maker, 4) == {"c": 3, "d": 1}
    assert not placement.fits(maker.shape(1))


def test_best_fit_counts_what_is_left_of_shared_gpus(maker):
    placement = BestFit(cluster(2, 2))
    assert placed(placement, maker, 0.5) == {"a/1": 0.5}
    assert placed(placement, maker, 1) == {"a": 1}  # a has 1.5 left, b has 2
    assert placed(placement, maker, 0.6) == {"b/1": 0.6}
    assert placed(placement, maker, 0.3) == {"a/1": 0.3}  # a has 0.5, b 1.4


def test_best_fit_weights_are_parameters():
    params = parse_params("best-fit", BestFit.Parameters, {"cpu_weight": "0.5", "mem_weight": "0"})
    assert params == BestFitParams(cpu_weight=0.5, mem_weight=0)


# --- spread -------------------------------------------------------------------------------------


def test_spread_gives_every_node_as_little_as_possible(maker):
    placement = Spread(cluster(4, 4, 4, 4))
    assert placed(placement, maker, 4) == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert placed(placement, maker, 6) == {"a": 2, "b": 2, "c": 1, "d": 1}
    # free now: 1 1 2 2
    assert placed(placement, maker, 1) == {"c": 1}
    assert placed(placement, maker, 2) == {"d": 1, "a": 1}


def test_spread_begins_with_the_emptiest_nodes(maker):
    placement = Spread(cluster(2, 8, 4))
    assert placed(placement, maker, 2) == {"b": 1, "c": 1}
    assert placed(placement, maker, 11) == {"b": 6, "c": 3, "a": 2}
    assert not placement.fits(maker.shape(2))
    assert placed(placement, maker, 1) == {"b": 1}


def test_spread_puts_parts_on_the_emptiest_node(maker):
    placement = Spread(cluster(1, 2))
    assert placed(placement, maker, 0.5) == {"b/1": 0.5}
    assert placed(placement, maker, 0.5) == {"b/1": 0.5}  # b has 1.5 left, a has 1
    assert placed(placement, maker, 0.5) == {"a/0": 0.5}
