"""The bookkeeping that all placements share, and messages."""

import pytest

from placement_cases import ON_NODES, Maker, cluster, put, where
from rota.core.jobs import Request
from rota.placement.consolidate import SearchingConsolidate
from rota.placement.count import PooledCount
from rota.placement.first_fit import FirstFit


@pytest.fixture
def maker():
    return Maker()


def test_free_counts_only_nodes_that_are_up(maker):
    topology = cluster(4, 4)
    placement = FirstFit(topology)
    job = maker.start(placement, 3)
    assert placement.free == 5
    placement.set_node(topology.nodes[0], up=False)
    assert placement.free == 4
    placement.set_node(topology.nodes[0], up=False)
    placement.give(job, job.allocation)
    assert placement.free == 4  # what it gave back is down
    placement.set_node(topology.nodes[0], up=True)
    assert placement.free == 8


def test_parts_leave_exact_amounts_free(maker):
    placement = FirstFit(cluster(1))
    maker.start(placement, 0.9)
    assert placement.free == 0.1  # not 0.0999...: the engine compares it with what is asked
    maker.start(placement, 0.1)
    assert placement.free == 0
    assert not placement.fits(maker.shape(0.1))


@pytest.mark.parametrize("kind", ON_NODES)
def test_parts_of_a_gpu_name_it_and_never_overlap(kind, maker):
    topology = cluster(2)
    placement = kind(topology)
    first, second = (maker.start(placement, 0.6) for _ in range(2))
    assert {**where(topology, first.allocation), **where(topology, second.allocation)} == {
        "a/0": 0.6,
        "a/1": 0.6,
    }
    assert not placement.fits(maker.shape(0.6))
    assert not placement.fits(maker.shape(1))
    third = maker.start(placement, 0.4)
    assert where(topology, third.allocation) in ({"a/0": 0.4}, {"a/1": 0.4})
    placement.give(third, third.allocation)
    placement.give(second, second.allocation)
    assert placement.fits(maker.shape(1))


@pytest.mark.parametrize("kind", ON_NODES)
def test_a_job_without_gpus_goes_to_a_node_with_cpus(kind, maker):
    topology = cluster((2, {"cpus": 2}), (0, {"cpus": 8}))
    placement = kind(topology)
    job = maker.start(placement, 0, cpus=6)
    assert where(topology, job.allocation) == {"b": 0}
    assert job.allocation.extra == ((topology.nodes[1].id, "cpu", 6.0),)
    assert not placement.fits(maker.shape(0, cpus=3))
    assert placement.free == 2
    placement.give(job, job.allocation)
    assert placement.fits(maker.shape(0, cpus=8))


@pytest.mark.parametrize("kind", ON_NODES)
def test_cpus_and_memory_follow_the_gpus(kind, maker):
    topology = cluster(2, 2, 2, cpus=8, mem_gib=10)
    placement = kind(topology)
    job = maker.start(placement, 4, cpus=12, mem_gib=2)
    held = {}
    for vertex, amount in job.allocation.slices:
        held[vertex, "cpu"] = 3.0 * amount
        held[vertex, "memory"] = 0.5 * amount
    assert {(vertex, kind): amount for vertex, kind, amount in job.allocation.extra} == held


@pytest.mark.parametrize("kind", ON_NODES)
def test_types_are_never_mixed_and_labels_and_downs_respected(kind, maker):
    topology = cluster(
        (2, {"gpu_type": "k80"}),
        (2, {"gpu_type": "v100"}),
        (2, {"gpu_type": "k80", "labels": ("ssd",)}),
    )
    placement = kind(topology)
    assert not placement.fits(maker.shape(5))
    assert placement.never(maker.shape(5)) is not None
    assert placement.fits(maker.shape(4))
    assert not placement.fits(maker.shape(4, gpu_types=("v100",)))
    assert where(topology, maker.start(placement, 2, labels=("ssd",)).allocation) == {"c": 2}
    assert where(topology, maker.start(placement, 2, gpu_types=("v100",)).allocation) == {"b": 2}
    placement.set_node(topology.nodes[0], up=False)
    assert not placement.fits(maker.shape(1))


def test_what_can_never_fit_is_refused_with_a_reason(maker):
    placement = FirstFit(cluster(4, 4, gpu_type="k80"))
    assert placement.never(maker.shape(8)) is None
    assert placement.never(maker.shape(9)) == (
        "asks for 9 GPUs, which placement 'first-fit' can never find on this cluster of 2 nodes "
        "with 8 GPUs in all"
    )
    assert "of type v100" in placement.never(maker.shape(1, gpu_types=("v100",)))
    assert placement.never(maker.shape(1.5)) == (
        "asks for 1.5 GPUs: placement 'first-fit' gives whole GPUs or a part of one: ask for 2, or "
        "use placement 'count'"
    )


def test_a_placements_own_notes_are_not_shown(maker):
    message = FirstFit(cluster(4)).never(maker.shape(5, labels=("ssd", "#note")))
    assert "on nodes labelled ssd," in message


def test_never_does_not_depend_on_the_present_state(maker):
    topology = cluster(4)
    placement = FirstFit(topology)
    maker.start(placement, 4)
    placement.set_node(topology.nodes[0], up=False)
    assert placement.never(maker.shape(4)) is None


def test_a_job_may_hold_another_size_than_it_asked_for(maker):
    topology = cluster(4, 4, cpus=8)
    placement = FirstFit(topology)
    job = maker.job(2, cpus=2)
    job.allocation = placement.take(job, maker.shape(4, cpus=4))
    assert where(topology, job.allocation) == {"a": 4}
    assert (placement.free, placement.room.cpus) == (4, [4, 8])
    placement.give(job, job.allocation)
    assert (placement.free, placement.room.cpus) == (8, [8, 8])


def test_taking_what_does_not_fit_is_an_error(maker):
    placement = FirstFit(cluster(1))
    maker.start(placement)
    with pytest.raises(RuntimeError, match="does not fit"):
        placement.take(maker.job(1))


def test_victims_are_the_worst_ranked_that_must_go(maker):
    topology = cluster(4, 4)
    placement = SearchingConsolidate(topology)
    a1, a3, b2, b1 = (
        put(placement, maker, a=1)
        + put(placement, maker, a=3)
        + put(placement, maker, b=2)
        + put(placement, maker, b=1)
    )
    # b has 1 free: b1 and b2 together make 4, as do a1 and a3; the worst-ranked come first
    assert placement.walk(maker.shape(4), iter([b1, a1, b2, a3]))
    assert placement.victims() == [b2, b1]
    # for 2 it is enough that b1 goes: the walk ends there
    assert placement.walk(maker.shape(2), iter([b1, a1, b2, a3]))
    assert placement.victims() == [b1]
    # a1 was looked at but is of no use, and stays
    assert placement.walk(maker.shape(3), iter([a1, b2, b1, a3]))
    assert placement.victims() == [b2]


def test_a_better_ranked_job_stays_where_there_is_room_beside_the_newcomer(maker):
    placement = FirstFit(cluster(8))
    small, large = put(placement, maker, a=2) + put(placement, maker, a=6)
    assert placement.walk(maker.shape(5), iter([small, large]))
    assert placement.victims() == [large]


def test_victims_for_a_part_of_a_gpu(maker):
    topology = cluster(2)
    placement = FirstFit(topology)
    whole = maker.start(placement, 1)
    first, second = maker.start(placement, 0.5), maker.start(placement, 0.5)
    # 0.8 needs a device of its own: one half is not enough, both are; or the whole one
    assert placement.walk(maker.shape(0.8), iter([first, second, whole]))
    assert placement.victims() == [second, first]
    assert placement.walk(maker.shape(0.8), iter([first, whole, second]))
    assert placement.victims() == [whole]
    assert placement.walk(maker.shape(0.5), iter([second, first]))
    assert placement.victims() == [second]
    assert not placement.walk(maker.shape(0.8), iter([first]))


def test_victims_for_cpus(maker):
    topology = cluster((1, {"cpus": 8}), (1, {"cpus": 8}))
    placement = FirstFit(topology)
    on_a = maker.start(placement, 0, cpus=5)
    on_b = maker.start(placement, 0, cpus=4)
    with_gpu = maker.start(placement, 1, cpus=3)
    assert [where(topology, job.allocation) for job in (on_a, on_b, with_gpu)] == [
        {"a": 0},
        {"b": 0},
        {"a": 1},
    ]
    assert placement.walk(maker.shape(1, cpus=8), iter([with_gpu, on_b, on_a]))
    assert placement.victims() == [on_b]


def test_requests_are_left_alone_by_default(maker):
    request = Request.of(3)
    assert FirstFit(cluster(4)).refine(maker.job(request).spec) is request


def test_pools_are_no_nodes(maker):
    placement = PooledCount(cluster((2, {"cpus": 4}), (2, {"cpus": 4})))
    assert placement.fits(maker.shape(3, cpus=7))
    job = maker.start(placement, 3, cpus=6)
    assert job.allocation.slices == ((0, 3),)
    assert job.allocation.extra == ((0, "cpu", 6.0),)
    assert not placement.fits(maker.shape(1, cpus=3))
