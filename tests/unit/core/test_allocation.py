"""Allocations are values."""

import pytest

from rota.core.allocation import NOTHING, Allocation


def test_equal_slices_are_equal_whatever_they_were_made_of():
    one, other = Allocation(((1, 2), (3, 1))), Allocation([(1, 2.0), (3, 1.0)], [], {})
    assert one == other
    assert hash(one) == hash(other)
    assert {one: "x"}[other] == "x"


@pytest.mark.parametrize(
    "other",
    [
        Allocation(((1, 1),)),
        Allocation(((2, 2),)),
        Allocation(((1, 1), (1, 1))),
        Allocation(((1, 2),), ((1, "cpu", 4.0),)),
        Allocation(((1, 2),), config={"batch": 32}),
        NOTHING,
        ((1, 2),),
        None,
    ],
)
def test_anything_else_differs(other):
    assert Allocation(((1, 2),)) != other


def test_equal_configurations_need_not_be_hashable():
    one, other = (Allocation(((1, 2),), config={"plan": [1, 2]}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Allocation(((1, 2),), config={"plan": [2, 1]})


@pytest.mark.parametrize(
    ("slices", "gpus"), [((), 0), (((1, 2), (4, 3)), 5), (((1, 0.5),), 0.5), (((1, 0.5),) * 2, 1)]
)
def test_gpus_are_added_up(slices, gpus):
    made = Allocation(slices)
    assert made.gpus == gpus
    assert isinstance(made.gpus, float if gpus % 1 else int)


def test_places_and_text():
    assert Allocation([(4, 1), (2, 3)]).vertices == [4, 2]
    assert repr(Allocation([(4, 1)])) == "Allocation(((4, 1),))"
