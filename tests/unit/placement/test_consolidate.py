"""Consolidate: the rules by hand, in both forms; their equality is a property test."""

import random
from types import SimpleNamespace

import pytest

from placement_cases import Consolidate, Maker, cluster, put, where
from rota.core.allocation import as_guest
from rota.core.jobs import Request, Shape
from rota.core.topology import NodeSpec, Topology
from rota.placement.consolidate import SearchingConsolidate, consolidate


@pytest.fixture
def maker():
    return Maker()


both = pytest.mark.parametrize("kind", [Consolidate, SearchingConsolidate])


def test_the_fast_form_is_used_where_nodes_are_equal():
    assert type(consolidate(Topology.uniform(4, 8))) is Consolidate
    assert type(consolidate(Topology.uniform(4, 8, "v100"))) is Consolidate
    assert type(consolidate(cluster(4, 8))) is SearchingConsolidate
    assert type(consolidate(cluster(4, 4, cpus=8))) is SearchingConsolidate


@both
def test_the_fullest_node_with_room_is_taken(kind, maker):
    topology = cluster(8, 8, 8, 8)
    placement = kind(topology)
    put(placement, maker, a=7, b=4, c=4)
    assert where(topology, maker.start(placement, 2).allocation) == {"b": 2}
    assert where(topology, maker.start(placement, 2).allocation) == {"b": 2}
    assert where(topology, maker.start(placement, 1).allocation) == {"a": 1}
    assert where(topology, maker.start(placement, 5).allocation) == {"d": 5}


@pytest.mark.parametrize("seed", range(20))
def test_also_as_if_others_had_left_it_is_the_first_of_the_fullest_with_room(seed, maker):
    """`choose` is asked about a copy of what is free, in which victims have given theirs back."""
    draw = random.Random(seed)  # noqa: S311 - repeatable
    sizes = [draw.choice((4, 8)) for _ in range(8)]
    topology = cluster(*sizes)
    placement = SearchingConsolidate(topology)
    put(placement, maker, **{
        node.name: draw.randint(1, int(node.gpus)) for node in topology.nodes if draw.random() < 0.7
    })  # fmt: skip
    for node in topology.nodes:
        if draw.random() < 0.2:
            placement.set_node(node, up=False)
    room = placement.room.copy()
    for need in range(1, max(sizes) + 1):
        fitting = [
            (room.gpus[position], position)
            for position, node in enumerate(topology.nodes)
            if room.up[position] and need <= room.gpus[position]
        ]
        expected = [(min(fitting)[1], need)] if fitting else None
        assert placement.choose(maker.shape(need), room, None) == expected


@both
def test_what_fits_one_node_is_never_split(kind, maker):
    placement = kind(cluster(4, 4))
    put(placement, maker, a=2, b=2)
    assert placement.free == 4
    assert not placement.fits(maker.shape(3))
    assert placement.fits(maker.shape(2))


@both
def test_larger_requests_take_idle_nodes_and_the_best_fit_for_the_rest(kind, maker):
    topology = cluster(4, 4, 4, 4, 4)
    placement = kind(topology)
    put(placement, maker, a=1, c=2)
    assert where(topology, maker.start(placement, 10).allocation) == {"b": 4, "d": 4, "c": 2}
    assert not placement.fits(maker.shape(8))  # a has 3, e has 4
    assert where(topology, maker.start(placement, 7).allocation) == {"e": 4, "a": 3}


@both
def test_a_rest_needs_a_node_besides_the_idle_ones(kind, maker):
    placement = kind(cluster(4, 4, 4))
    put(placement, maker, c=2)
    assert placement.fits(maker.shape(8))
    assert placement.fits(maker.shape(10))
    assert not placement.fits(maker.shape(11))
    put(placement, maker, a=1)
    assert not placement.fits(maker.shape(8))
    assert placement.fits(maker.shape(7))


@both
def test_a_node_that_is_down_serves_nobody(kind, maker):
    topology = cluster(4, 4)
    placement = kind(topology)
    placement.set_node(topology.nodes[0], up=False)
    assert where(topology, maker.start(placement, 1).allocation) == {"b": 1}
    assert not placement.fits(maker.shape(4))
    assert not placement.fits(maker.shape(8))
    assert placement.never(maker.shape(8)) is None


@both
def test_victims_of_a_large_request(kind, maker):
    topology = cluster(4, 4, 4)
    placement = kind(topology)
    a, b, c1, c2 = (
        put(placement, maker, a=4, b=1) + put(placement, maker, c=1) + put(placement, maker, c=2)
    )
    # 6 = one idle node + 2: idle after b is gone (4 free); c then has room only without c2
    assert placement.walk(maker.shape(6), iter([b, c2, c1, a]))
    assert placement.victims() == [c2, b]
    # without b: c is idle when both are gone, and b has 3 free
    assert placement.walk(maker.shape(6), iter([c2, c1, b, a]))
    assert placement.victims() == [c1, c2]
    assert not placement.walk(maker.shape(9), iter([c1, c2, b]))


@both
def test_of_two_nodes_freed_at_once_the_fuller_one_is_cleared(kind, maker):
    topology = cluster(5, 5)
    placement = kind(topology)
    small, _ = put(placement, maker, b=1) + put(placement, maker, b=1)
    large = maker.start(placement, 8)
    assert where(topology, large.allocation) == {"a": 5, "b": 3}
    # without both, a has 5 free and b has 4: best fit says b, so that small must go too
    assert placement.walk(maker.shape(4), iter([small, large]))
    assert placement.victims() == [large, small]


@both
def test_a_node_that_a_host_and_its_guest_leave_is_one_idle_node(kind, maker):
    placement = kind(cluster(2, 2, 2))
    host, _ = put(placement, maker, a=2) + put(placement, maker, b=2)
    guest = SimpleNamespace(index=99, allocation=as_guest(host.index, host.allocation))
    assert placement.walk(maker.shape(4), iter([host, guest]))  # c is idle, too
    other = maker.start(placement, 2)
    assert not placement.walk(maker.shape(4), iter([host, guest]))
    assert placement.walk(maker.shape(4), iter([host, guest, other]))


def test_of_unequal_nodes_the_large_ones_come_first(maker):
    topology = cluster(4, 8, 4, 8)
    placement = SearchingConsolidate(topology)
    assert where(topology, maker.start(placement, 14).allocation) == {"b": 8, "a": 4, "c": 2}
    assert placement.never(maker.shape(24)) is None
    assert placement.never(maker.shape(25)) is not None


def test_the_largest_node_decides_what_fits_one_node(maker):
    topology = cluster(4, 4, 8)
    placement = SearchingConsolidate(topology)
    put(placement, maker, c=1)
    assert not placement.fits(maker.shape(8))  # it waits for c and does not take a and b
    placement.set_node(topology.nodes[2], up=False)
    assert not placement.fits(maker.shape(8))  # a node that is gone makes no room


def test_cpus_decide_too_what_fits_one_node(maker):
    topology = cluster(8, 8, cpus=16)
    placement = SearchingConsolidate(topology)
    # 4 CPUs per GPU: a node serves 4 of them, so that 8 take two whole nodes
    assert where(topology, maker.start(placement, 8, cpus=32).allocation) == {"a": 4, "b": 4}
    assert not placement.fits(maker.shape(1, cpus=1))
    assert placement.fits(maker.shape(4))


def test_large_requests_try_one_type_after_the_other(maker):
    topology = cluster(*[(2, {"gpu_type": "k80"})] * 2, *[(2, {"gpu_type": "v100"})] * 2)
    placement = SearchingConsolidate(topology)
    put(placement, maker, a=1)
    assert where(topology, maker.start(placement, 4).allocation) == {"c": 2, "d": 2}
    assert not placement.fits(maker.shape(4))


def test_parts_are_filled_before_a_new_gpu_is_opened(maker):
    topology = cluster(2, 2)
    placement = Consolidate(topology)
    for _ in range(4):
        maker.start(placement, 0.25)
    assert placement.node_free == [1, 2]
    assert placement.fits(maker.shape(3))  # b and the other GPU of a
    maker.start(placement, 3)
    assert not placement.fits(maker.shape(0.25))


def test_a_job_without_gpus_on_a_cluster_without_cpus_goes_anywhere(maker):
    topology = cluster(2, 2)
    placement = Consolidate(topology)
    put(placement, maker, a=2, b=2)
    job = maker.start(placement, 0, cpus=100)
    assert where(topology, job.allocation) == {"a": 0}
    assert job.allocation.gpus == 0
    placement.give(job, job.allocation)
    assert placement.free == 0


def test_equal_single_node_allocations_are_one_object(maker):
    placement = Consolidate(cluster(4, 4))
    first = maker.start(placement, 4)
    placement.give(first, first.allocation)
    assert maker.start(placement, 4).allocation is first.allocation


def test_a_request_that_failed_can_only_fit_where_something_changed(maker):
    topology = cluster(4, 4)
    placement = Consolidate(topology)
    low, high, last = (
        put(placement, maker, a=2) + put(placement, maker, a=2) + put(placement, maker, b=4)
    )
    head, large = maker.job(3).shape, maker.job(8).shape
    a, b = ({node.id} for node in topology.nodes)

    assert placement.changed(head, a) == [(0, {low.index: 2, high.index: 2})]
    assert placement.changed(head, b) == [(0, {last.index: 4})]
    assert placement.changed(head, set()) == []
    assert placement.changed(large, a) is None  # a large one may fit elsewhere, too


def test_what_was_found_out_about_a_label_holds_until_its_own_nodes_change(maker):
    nodes = [(4, {"labels": (label,), "cpus": 8}) for label in "ab"]
    placement = consolidate(cluster(*nodes))
    one, other = (maker.shape(4, labels=(label,), cpus=2) for label in "ab")
    asked = []
    placement.feasible = lambda shape, room: asked.append(shape) or True
    assert placement.fits(one)
    assert placement.fits(other)
    taken = placement.take(maker.job(4, labels=("b",)))
    assert placement.fits(one)
    assert asked == [one, other]
    assert placement.fits(other)
    assert asked == [one, other, other]
    placement.give(maker.job(4, labels=("b",)), taken)
    placement.set_node(placement.topology.nodes[0], up=False)
    assert placement.fits(one)
    assert asked == [one, other, other, one]


def test_nobody_searches_for_whole_gpus_of_labelled_nodes(maker):
    """Nodes that are alike are counted: also over several of them, and when some go down."""
    nodes = [(4, {"labels": (label,)}) for label in "aabb"]
    placement = consolidate(cluster(*nodes))
    placement.feasible = None
    one, two = maker.shape(3, labels=("a",)), maker.shape(6, labels=("a",))
    assert placement.fits(one)
    assert placement.fits(two)
    job = maker.start(placement, two)
    assert where(placement.topology, job.allocation) == {"a": 4, "b": 2}
    assert not placement.fits(one)
    assert not placement.fits(two)
    assert placement.fits(maker.shape(8, labels=("b",)))
    placement.set_node(placement.topology.nodes[3], up=False)
    assert not placement.fits(maker.shape(8, labels=("b",)))
    assert placement.walk(two, [job])
    assert placement.victims() == [job]
    placement.give(job, job.allocation)
    assert placement.fits(two)


def test_it_is_known_when_nothing_has_changed_for_a_label(maker):
    placement = consolidate(cluster(*((4, {"labels": (label,)}) for label in "ab")))
    alike = placement.only_nodes(maker.shape(4, labels=("a",)))
    before = alike.changes
    maker.start(placement, 2, labels=("b",))
    assert alike.changes == before
    assert placement.only_nodes(maker.shape(1)) is None  # of both
    assert placement.only_nodes(maker.shape(0.5, labels=("a",))) is None  # a part of a GPU
    placement.set_node(placement.topology.nodes[0], up=False)
    assert alike.changes != before


@pytest.mark.parametrize("seed", range(3))
def test_of_nodes_that_differ_in_gpus_only_the_quick_choice_is_that_of_a_search(seed):
    """In a room in which some have left: the fewest free GPUs that suffice, then the first."""
    dice = random.Random(seed)  # noqa: S311 - rooms
    sizes = [8, *(dice.choice((2, 4, 8)) for _ in range(11))]
    topology = Topology([NodeSpec(f"n{i}", size) for i, size in enumerate(sizes)])
    placement = SearchingConsolidate(topology)
    room = placement.room.copy()
    for _ in range(40):
        for position, size in enumerate(sizes):
            room.gpus[position] = dice.randint(0, size)
            room.up[position] = dice.random() < 0.8
        need = dice.randint(1, 8)
        fitting = [
            (free, position)
            for position, (free, up) in enumerate(zip(room.gpus, room.up, strict=True))
            if up and free >= need
        ]
        chosen = placement.choose(Shape(need, Request.of(need)), room, None)
        assert chosen == ([(min(fitting)[1], need)] if fitting else None)
