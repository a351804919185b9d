"""Count: GPUs are one pool, or one per type."""

import pytest

from placement_cases import Count, Maker, PooledCount, cluster
from rota.core.topology import Topology
from rota.placement.count import count


@pytest.fixture
def maker():
    return Maker()


def test_the_fast_form_is_used_where_only_gpus_count():
    assert type(count(Topology.uniform(4, 8))) is Count
    assert type(count(cluster(4, 8, 0))) is Count
    assert type(count(cluster(4, (8, {"labels": ("fast",)})))) is Count
    assert type(count(cluster((4, {"gpu_type": "v100"}), (4, {"gpu_type": "k80"})))) is PooledCount
    assert type(count(cluster(4, (4, {"cpus": 8})))) is PooledCount


both = pytest.mark.parametrize("kind", [Count, PooledCount])


@both
def test_only_the_number_matters(kind, maker):
    placement = kind(cluster(4, 4, 4))
    job = maker.start(placement, 7)
    assert job.allocation.slices == ((0, 7),)
    assert placement.fits(maker.shape(5))
    assert not placement.fits(maker.shape(6))
    placement.give(job, job.allocation)
    assert placement.fits(maker.shape(12))
    assert placement.never(maker.shape(13)) == (
        "asks for 13 GPUs, but the whole cluster has 12 GPUs"
    )


@both
def test_fractions_are_amounts(kind, maker):
    placement = kind(cluster(1, 1))
    maker.start(placement, 0.6)
    maker.start(placement, 0.6)
    maker.start(placement, 0.6)  # one of them straddles two devices: a pool does not care
    assert placement.free == 0.2
    assert placement.fits(maker.shape(0.2))
    assert not placement.fits(maker.shape(0.3))
    assert placement.never(maker.shape(1.5)) is None


@both
def test_nodes_leave_and_join_once(kind, maker):
    topology = cluster(4, 2)
    placement = kind(topology)
    for _ in range(2):
        placement.set_node(topology.nodes[0], up=False)
    assert placement.free == 2
    assert not placement.fits(maker.shape(3))
    for _ in range(2):
        placement.set_node(topology.nodes[0], up=True)
    assert placement.free == 6


@both
def test_victims_make_just_enough_room(kind, maker):
    placement = kind(cluster(8))
    three, two, one = (maker.start(placement, n) for n in (3, 2, 1))
    assert placement.walk(maker.shape(5), iter([one, two, three]))
    assert placement.victims() == [two, one]
    assert placement.walk(maker.shape(5), iter([one, three, two]))
    assert placement.victims() == [three]
    assert not placement.walk(maker.shape(6), iter([one, two]))


@both
def test_victims_of_fractions_in_spite_of_rounding(kind, maker):
    placement = kind(cluster(1))
    first, second, third = (maker.start(placement, part) for part in (0.1, 0.7, 0.2))
    # 0.1 + 0.7 + 0.2 is less than 1 in floats, as is 0.7 + 0.1 less than 0.8
    assert placement.walk(maker.shape(1), iter([first, second, third]))
    assert placement.walk(maker.shape(0.8), iter([second, first, third]))
    assert placement.victims() == [first, second]


@both
def test_a_job_without_gpus_always_fits(kind, maker):
    placement = kind(cluster(1))
    maker.start(placement, 1)
    job = maker.start(placement, 0, cpus=4)
    assert job.allocation.slices == ()
    placement.give(job, job.allocation)
    assert placement.free == 0


def test_one_pool_per_type(maker):
    topology = cluster((4, {"gpu_type": "k80"}), (2, {"gpu_type": "v100"}), (0, {"cpus": 4.0}))
    placement = PooledCount(topology)
    k80, v100 = (pool.id for pool in topology.pools)
    assert maker.start(placement, 1, gpu_types=("v100",)).allocation.slices == ((v100, 1),)
    assert maker.start(placement, 5).allocation.slices == ((k80, 4), (v100, 1))
    assert placement.free == 0
    placement.set_node(topology.nodes[2], up=False)  # it has no GPUs, and so no pool of its own
    assert placement.free == 0
    assert placement.never(maker.shape(3, gpu_types=("v100",))) == (
        "asks for 3 GPUs of type v100, but the whole cluster has 4 GPUs of type k80, 2 GPUs of "
        "type v100, 4 CPUs"
    )


def test_a_fraction_comes_from_one_pool(maker):
    placement = PooledCount(cluster((1, {"gpu_type": "k80"}), (1, {"gpu_type": "v100"})))
    maker.start(placement, 0.7)
    job = maker.start(placement, 0.5)
    assert len(job.allocation.slices) == 1
    assert not placement.fits(maker.shape(0.6))  # 0.3 and 0.5 are left


def test_a_typed_node_leaves_its_own_pool(maker):
    topology = cluster(4, (2, {"gpu_type": "v100"}))
    placement = PooledCount(topology)
    placement.set_node(topology.nodes[1], up=False)
    assert not placement.fits(maker.shape(1, gpu_types=("v100",)))
    assert placement.fits(maker.shape(4))


def test_pooled_cpus_limit_the_gpus(maker):
    topology = cluster((4, {"cpus": 4}), (4, {"cpus": 8}))
    placement = PooledCount(topology)
    assert placement.fits(maker.shape(8, cpus=12))
    assert placement.never(maker.shape(8, cpus=16)) == (
        "asks for 8 GPUs, 16 CPUs, but the whole cluster has 8 GPUs, 12 CPUs"
    )
    placement.set_node(topology.nodes[1], up=False)
    assert not placement.fits(maker.shape(4, cpus=8))


def test_labels_are_refused_because_a_pool_has_no_nodes(maker):
    placement = count(cluster((4, {"labels": ("fast",)})))
    assert placement.never(maker.shape(1, labels=("fast",))) == (
        "asks for nodes labelled fast, but placement 'count' knows no nodes: use another one, e.g. "
        "'consolidate'"
    )
