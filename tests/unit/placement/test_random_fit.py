"""Random placement: every free GPU is equally likely, and the draw can be repeated."""

from collections import Counter

import pytest

from placement_cases import Maker, cluster, put, where
from rota.placement.random_fit import Random


@pytest.fixture
def maker():
    return Maker()


def test_it_fits_whenever_enough_is_free_anywhere(maker):
    placement = Random(cluster(4, 4, 4))
    put(placement, maker, a=3, b=2, c=3)
    assert placement.fits(maker.shape(4))
    assert not placement.fits(maker.shape(5))
    assert where(placement.topology, maker.start(placement, 4).allocation) == {
        "a": 1,
        "b": 2,
        "c": 1,
    }


def test_the_seed_and_the_job_decide_and_nothing_else(maker):
    topology = cluster(8, 8, 8, 8)
    jobs = [maker.job(5) for _ in range(20)]
    placement, same, other = Random(topology), Random(topology), Random(topology, seed=1)
    choices = [placement.choose(job.shape, placement.room, job) for job in jobs]
    assert len({str(choice) for choice in choices}) > 10
    # asked in another order, and some of them more than once
    for job in [*reversed(jobs), *jobs]:
        assert same.choose(job.shape, same.room, job) == choices[job.index]
    assert [other.choose(job.shape, other.room, job) for job in jobs] != choices


def test_every_free_gpu_is_equally_likely(maker):
    placement = Random(cluster(8, 8, 8))
    put(placement, maker, a=4, b=8)
    shape = maker.shape(3)
    drawn = Counter()
    for _ in range(4000):
        for position, amount in placement.choose(shape, placement.room, maker.job(shape)):
            drawn[position] += amount
    # 12 GPUs are free, 4 of them on a: a third of 12,000, give or take four deviations
    assert drawn[0] + drawn[2] == 12_000
    assert abs(drawn[0] - 4_000) < 4 * 50
    assert drawn[1] == 0


def test_types_are_not_mixed_but_drawn_too(maker):
    placement = Random(cluster((4, {"gpu_type": "k80"}), (4, {"gpu_type": "v100"})))
    shape = maker.shape(3)
    choices = [placement.choose(shape, placement.room, maker.job(shape)) for _ in range(40)]
    assert {choice[0][0] for choice in choices} == {0, 1}
    assert all(len(choice) == 1 for choice in choices)


def test_parts_go_to_a_node_that_has_room(maker):
    placement = Random(cluster(1, 1, 1, 1))
    put(placement, maker, b=1, d=1)
    shape = maker.shape(0.5)
    chosen = {placement.choose(shape, placement.room, maker.job(shape))[0] for _ in range(40)}
    assert chosen == {(0, 0.5), (2, 0.5)}
