"""Speeds by CPUs and memory."""

import pytest

from rota.core.sensitivity import Sensitivity

TABLE = Sensitivity((1, 3, 9), (10, 50), ((0.2, 0.4), (0.5, 1.0), (0.5, 2.0)))


@pytest.mark.parametrize(
    ("cpus", "mem_gib", "speed"),
    [
        (3, 50, 1.0),
        (9, 10, 0.5),
        (2, 50, 0.7),  # half way between 0.4 and 1
        (3, 30, 0.75),
        (6, 30, 1.0),  # (0.5 + 0.5 + 1 + 2) / 4
        (0, 0, 0.2),  # beyond the points nothing changes
        (100, 1000, 2.0),
        (0.5, 1000, 0.4),
    ],
)
def test_speeds_are_interpolated_between_the_points_and_constant_beyond(cpus, mem_gib, speed):
    assert TABLE.at(cpus, mem_gib) == pytest.approx(speed)


@pytest.mark.parametrize(
    ("cpus", "mem_gib", "rates", "says"),
    [
        ((3, 1), (1,), ((1,), (1,)), "must grow"),
        ((1, 1), (1,), ((1,), (1,)), "must grow"),
        ((), (1,), (), "must grow"),
        ((1, 2), (1,), ((1,),), "a row for each number of CPUs"),
        ((1,), (1, 2), ((1,),), "as long as `mem_gib`"),
        ((1,), (1,), ((0,),), "more than 0"),
    ],
)
def test_a_table_that_is_none_is_refused(cpus, mem_gib, rates, says):
    with pytest.raises(ValueError, match=says):
        Sensitivity(cpus, mem_gib, rates)
