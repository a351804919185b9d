"""What is free on each node, and what it could serve."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from placement_cases import Maker, cluster
from rota.core.jobs import Request, Shape, TaskGroup
from rota.core.topology import NodeSpec, Topology
from rota.placement.choices import best_node
from rota.placement.consolidate import _tightest
from rota.placement.room import WHOLE, Room


@pytest.fixture
def maker():
    return Maker()


def test_a_plain_request_is_offered_what_is_free_on_nodes_that_are_up(maker):
    room = Room(cluster(4, 2, 8).nodes)
    room.change(0, WHOLE, -1)
    assert list(room.offers(maker.shape(5))) == [3, 2, 8]
    room.up[2] = False
    assert list(room.offers(maker.shape(5))) == [3, 2, 0]


def test_types_and_labels_exclude_nodes(maker):
    room = Room(
        cluster(
            (4, {"gpu_type": "v100"}),
            (4, {"gpu_type": "k80", "labels": ("fast", "new")}),
            (4, {"gpu_type": "t4", "labels": ("fast",)}),
        ).nodes
    )
    assert list(room.offers(maker.shape(1, gpu_types=("v100", "k80")))) == [4, 4, 0]
    assert list(room.offers(maker.shape(1, labels=("fast", "new")))) == [0, 4, 0]
    assert list(room.offers(maker.shape(1, gpu_types=("v100",), labels=("fast",)))) == [0, 0, 0]
    assert list(room.offers(maker.shape(1, labels=("#a note", "fast")))) == [0, 4, 4]


def test_cpus_and_memory_limit_the_gpus_that_can_be_used(maker):
    room = Room(cluster((8, {"cpus": 10, "mem_gib": 100}), (8, {"cpus": 64, "mem_gib": 7})).nodes)
    # 4 GPUs with 3 CPUs and 2 GiB each: 10 CPUs serve 3 of them, 7 GiB also 3
    assert list(room.offers(maker.shape(4, cpus=12, mem_gib=8))) == [3, 3]
    assert list(room.offers(maker.shape(4, cpus=12))) == [3, 8]
    assert list(room.offers(maker.shape(4, mem_gib=8))) == [8, 3]


def test_cpus_that_no_node_declares_do_not_count(maker):
    room = Room(cluster(8).nodes)
    assert list(room.offers(maker.shape(2, cpus=1000, mem_gib=1000))) == [8]


def test_a_request_without_gpus_is_all_or_nothing(maker):
    room = Room(cluster((0, {"cpus": 4}), (2, {"cpus": 16})).nodes)
    assert list(room.offers(maker.shape(0, cpus=8))) == [0, 1]
    room.change_extra(1, "cpu", -9)
    assert list(room.offers(maker.shape(0, cpus=8))) == [0, 0]
    assert list(room.offers(maker.shape(0, cpus=7))) == [0, 1]


def test_parts_share_the_fullest_gpu_that_has_room(maker):
    room = Room(cluster(3).nodes)
    assert room.device_for(0, 0.5) == 2
    room.change(0, 2, -0.5)
    assert room.gpus == [2]  # the third GPU is not whole any more
    assert room.device_for(0, 0.6) == 1  # does not fit beside the first part
    room.change(0, 1, -0.7)
    assert room.device_for(0, 0.3) == 1  # 0.3 are left there, 0.5 on the other
    assert room.device_for(0, 0.4) == 2
    assert list(room.offers(maker.shape(0.5))) == [0.5]
    assert list(room.offers(maker.shape(2))) == [1]
    assert room.left(0) == pytest.approx(1 + 0.5 + 0.3)


def test_a_gpu_is_whole_again_when_the_last_part_is_given_back():
    room = Room(cluster(1).nodes)
    for part in (-0.9, -0.1):
        room.change(0, 0, part)
    assert room.device_for(0, 0.1) is None
    room.change(0, 0, 0.9)
    assert room.gpus == [0]
    room.change(0, 0, 0.1)
    assert room.gpus == [1]
    assert room.shares == {}


def test_parts_that_add_up_to_one_fit_in_spite_of_rounding(maker):
    room = Room(cluster(1).nodes)
    room.change(0, 0, -0.9)  # 1 - 0.9 is less than 0.1 in floats
    assert list(room.offers(maker.shape(0.1))) == [0.1]


def test_a_part_needs_its_cpus_too(maker):
    room = Room(cluster((2, {"cpus": 3})).nodes)
    assert list(room.offers(maker.shape(0.5, cpus=3))) == [0.5]
    assert list(room.offers(maker.shape(0.5, cpus=4))) == [0]


def test_nothing_between_one_gpu_and_two_on_a_node_but_in_a_pool(maker):
    assert list(Room(cluster(4).nodes).offers(maker.shape(1.5))) == [0]
    assert list(Room(cluster(4).nodes, divisible=True).offers(maker.shape(1.5))) == [4]


def test_a_copy_changes_alone():
    room = Room(cluster((2, {"cpus": 4})).nodes)
    room.change(0, 1, -0.5)
    copy = room.copy()
    copy.change(0, 1, -0.25)
    copy.change(0, WHOLE, -1)
    copy.change_extra(0, "cpu", -1)
    assert (room.gpus, room.shares, room.cpus) == ([1], {0: {1: 0.5}}, [4])
    assert (copy.gpus, copy.shares, copy.cpus) == ([0], {0: {1: 0.25}}, [3])


@given(data=st.data(), divisible=st.booleans(), gpus=st.sampled_from([1, 2, 3, 4, 8, 1.5, 2.5]))
def test_quick_answers_for_all_nodes_are_those_of_each(data, divisible, gpus):
    nodes = data.draw(
        st.lists(
            st.builds(
                NodeSpec, st.just("n"), st.integers(0, 8), st.sampled_from(["a", "b"]),
                st.sampled_from([0.0, 7.0, 64.0]), st.sampled_from([0.0, 100.0]),
            ),
            min_size=1, max_size=6,
        )
    )  # fmt: skip
    named = [replace(node, name=f"n{number}") for number, node in enumerate(nodes)]
    room = Room(Topology(named).nodes, divisible=divisible)
    for position, node in enumerate(named):
        room.up[position] = data.draw(st.booleans())
        room.gpus[position] -= data.draw(st.integers(0, node.gpus))
        room.cpus[position] *= data.draw(st.sampled_from([1, 0.5, 0]))
    asked = TaskGroup(
        "", 1, gpus, data.draw(st.sampled_from([0.0, 6.0])), data.draw(st.sampled_from([0.0, 30.0]))
    )
    shape = Shape(0, Request((asked,), gpu_types=data.draw(st.sampled_from([(), ("a",)]))))

    one_by_one = [room.usable(position, shape) for position in range(len(named))]
    assert list(room.offers(shape)) == one_by_one
    best = best_node(gpus, range(len(named)), one_by_one, room.gpus.__getitem__)
    assert _tightest(gpus, shape, room, range(len(named))) == best
