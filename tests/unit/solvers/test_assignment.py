"""Assignments against all of them tried."""

import itertools

import numpy as np
import pytest

from rota.core.errors import InfeasibleError
from rota.solvers.assignment import assign


def cheapest(cost, capacity):
    rows, columns = cost.shape
    return min(
        sum(cost[row, column] for row, column in enumerate(places))
        for places in itertools.product(range(columns), repeat=rows)
        if all(places.count(column) <= room for column, room in enumerate(capacity))
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_cheapest_of_all(seed):
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    capacity = rng.integers(1, 4, columns)
    capacity[0] += rows
    cost = rng.integers(-5, 10, (rows, columns)).astype(float)  # small numbers: many ties
    found = assign(cost, capacity)
    assert cost[np.arange(rows), found].sum() == cheapest(cost, capacity)
    assert (np.bincount(found, minlength=columns) <= capacity).all()


def test_one_place_per_column_unless_said_otherwise():
    cost = np.array([[1.0, 2.0], [1.0, 5.0]])
    assert assign(cost).tolist() == [1, 0]


def test_forbidden_places_are_left_alone():
    cost = np.array([[np.inf, 9.0], [1.0, 1.0]])
    assert assign(cost).tolist() == [1, 0]


@pytest.mark.parametrize(
    "cost", [np.ones((3, 2)), np.array([[np.inf, np.inf]]), np.array([[np.inf, 1], [np.inf, 1]])]
)
def test_a_row_without_a_place_is_an_error(cost):
    with pytest.raises(InfeasibleError, match="finds no column"):
        assign(cost)
