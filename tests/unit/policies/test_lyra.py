"""Lyra: a knapsack of saved time, and lent nodes that are given back."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runs import elastic, ends, engine, held
from rota.core.signals import Signal
from rota.core.topology import NodeSpec, Topology
from rota.policies.lyra import GrowthChoice, Lyra, knapsack

LINEAR = [1.0, 2.0, 3.0, 4.0]
CHOICES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 50)), max_size=4)


def worth(jobs, picked):
    chosen = [jobs[i][n] for i, n in enumerate(picked) if n >= 0]
    return sum(c.gpus for c in chosen), sum(c.value for c in chosen)


@given(st.lists(CHOICES, max_size=4), st.integers(0, 10))
def test_the_knapsack_is_as_good_as_the_best_of_all_combinations(jobs, gpus):
    jobs = [[GrowthChoice(size, float(value)) for size, value in choices] for choices in jobs]
    every = product(*(range(-1, len(choices)) for choices in jobs))
    best = max(value for size, value in (worth(jobs, one) for one in every) if size <= gpus)
    size, value = worth(jobs, knapsack(jobs, gpus))

    assert size <= gpus
    assert value == best


def test_everyone_gets_its_base_first_and_the_rest_saves_most():
    jobs = [elastic("long", 0, 400, LINEAR), elastic("short", 0, 40, LINEAR)]
    made = engine(Lyra(), jobs)

    assert held(made, 1.0) == {"long": 3, "short": 1}


def lent(steps, guests=2):
    topology = Topology([
        NodeSpec("own", 2),
        *(NodeSpec(f"guest{i}", 2, labels=("lent",)) for i in range(guests)),
    ])  # fmt: skip
    topology.signals["lent"] = Signal("lent", steps)
    return topology


def test_nodes_are_given_back_where_the_fewest_have_to_stop():
    rigid = [1.0, 2.0]
    jobs = [elastic("grows", 0, 600, LINEAR), elastic("rigid", 0, 300, rigid)]
    topology = lent([(0, 2), (50, 1)])
    made = engine(Lyra(), jobs, topology=topology, placement="consolidate")

    assert sum(held(made, 10.0).values()) == 6
    after = held(made, 51.0)
    assert sum(after.values()) == 4
    assert all(after.values())
    used = {
        topology.vertices[topology.vertices[v].node].name
        for job in made.jobs.values() for v in job.allocation.vertices
    }  # fmt: skip
    assert len(used) == 2
    assert ends(made).keys() == {"grows", "rigid"}


def test_all_that_is_lent_can_be_taken_back_and_lent_again():
    topology = lent([(0, 2), (50, 0), (100, 2)])
    made = engine(
        Lyra(), [elastic("a", 0, 600, LINEAR)], topology=topology, placement="consolidate"
    )

    assert [held(made, at_s)["a"] for at_s in (10.0, 60.0, 110.0)] == [4, 2, 4]


@pytest.mark.parametrize("placement", ["count", "consolidate"])
def test_without_a_signal_all_nodes_are_its_own(placement):
    topology = lent([(0, 0)])
    topology.signals.clear()
    made = engine(Lyra(), [elastic("a", 0, 60, LINEAR)], topology=topology, placement=placement)

    assert held(made, 1.0) == {"a": 4}
