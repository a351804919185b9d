"""Workloads whose jobs are made on demand: the same jobs, whoever asks and how."""

import pytest

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import OnDemand, Workload, at, fields

COUNT = 2 * OnDemand.BLOCK + 10
REQUESTS = [Request.of(1), Request.of(8)]


class Made:
    """Specs by their number; counts how many were made."""

    def __init__(self):
        self.made = 0

    def make(self, rows):
        numbers = list(range(COUNT)[rows]) if isinstance(rows, slice) else list(rows)
        self.made += len(numbers)
        return [JobSpec(str(n), float(n), REQUESTS[n % 2]) for n in numbers]

    def field(self, name):
        return [{"submit_s": float(n), "request": REQUESTS[n % 2]}[name] for n in range(COUNT)]


@pytest.fixture
def made():
    return Made()


@pytest.fixture
def specs(made):
    return OnDemand(made, COUNT)


def test_they_are_a_sequence_like_a_list(specs, made):
    plain = made.make(slice(None))
    assert list(specs) == plain
    assert specs == plain == specs
    assert specs != plain[1:]
    assert specs != "text"
    assert (len(specs), specs[0], specs[-1]) == (COUNT, plain[0], plain[-1])
    assert specs[5:9] == plain[5:9]
    assert specs[9:5] == []
    assert specs[:-1:4000] == plain[:-1:4000]
    assert specs[10:2:-3] == plain[10:2:-3]
    with pytest.raises(IndexError):
        specs[COUNT]


def test_one_after_the_other_is_made_once(specs, made):
    assert [specs[row].id for row in range(COUNT)] == [str(row) for row in range(COUNT)]
    assert made.made == COUNT


def test_some_are_made_in_the_order_asked_for(specs, made):
    assert [spec.id for spec in at(specs, [7, 3, COUNT - 1])] == ["7", "3", str(COUNT - 1)]
    assert made.made == 3
    assert at(["a", "b", "c"], [2, 0]) == ["c", "a"]


def test_columns_are_read_without_making_anything(specs, made):
    workload = Workload(specs, [Behaviour(1.0)] * COUNT)
    assert fields(specs, "submit_s")[-1] == COUNT - 1
    assert workload.usual == [(REQUESTS[0], COUNT // 2), (REQUESTS[1], COUNT // 2)]
    assert made.made == 0
    assert fields([Behaviour(2.0)], "work") == [2.0]
