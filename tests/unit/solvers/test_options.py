import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.solvers import options
from rota.solvers.options import OptionProgramme, choose_options


def drawn(seed, *, grain=0.01, whole=True):
    """A few jobs with options of two or three kinds; costs around that of having none."""
    rng = np.random.default_rng(seed)
    jobs, kinds = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    owner = np.repeat(np.arange(jobs), rng.integers(0, 5, jobs))
    size = rng.integers(1, 6, len(owner)).astype(float)
    if not whole:
        size += 0.5
    cost = rng.uniform(0.2, 1.4, len(owner))
    capacity = rng.integers(0, 9, kinds).astype(float)
    return OptionProgramme(
        owner,
        rng.integers(0, kinds, len(owner)),
        size,
        np.round(cost, 2) if grain else cost,
        np.full(jobs, 1.1),
        capacity,
        grain,
    )


def fits(programme, chosen):
    used = np.zeros(len(programme.capacity))
    for option in chosen:
        if option >= 0:
            used[programme.kind[option]] += programme.size[option]
    return (used <= programme.capacity + 1e-9).all()


def cost_of(programme, chosen):
    return sum(
        programme.cost[option] if option >= 0 else programme.idle[job]
        for job, option in enumerate(chosen)
    )


def cheapest(programme):
    """By trying everything."""
    alternatives = [
        [-1, *np.flatnonzero(programme.owner == job)] for job in range(len(programme.idle))
    ]
    return min(
        cost_of(programme, chosen)
        for chosen in itertools.product(*alternatives)
        if fits(programme, chosen)
    )


def assert_valid(programme, choice):
    assert fits(programme, choice.options)
    for job, option in enumerate(choice.options):
        assert option < 0 or programme.owner[option] == job
    assert choice.cost == pytest.approx(cost_of(programme, choice.options))


@given(seed=st.integers(0, 10**9), grain=st.sampled_from([0.0, 0.01]), whole=st.booleans())
def test_no_choice_is_cheaper(seed, grain, whole):
    programme = drawn(seed, grain=grain, whole=whole)
    choice = choose_options(programme)
    assert_valid(programme, choice)
    assert choice.cost == pytest.approx(cheapest(programme))
    assert choice.gap == pytest.approx(0, abs=1e-6)


@given(seed=st.integers(0, 10**9))
def test_the_solver_and_the_table_agree(seed):
    programme = drawn(seed)
    by_table = choose_options(programme)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "TABLE_CELLS", 0)
        by_solver = choose_options(programme)
    assert by_solver.cost == pytest.approx(by_table.cost)


@given(seed=st.integers(0, 10**9))
def test_a_bound_is_never_above_the_cheapest_and_the_gap_is_kept(seed):
    programme = drawn(seed, grain=0.0)
    choice = choose_options(programme, gap=0.1)
    assert_valid(programme, choice)
    assert choice.bound <= cheapest(programme) + 1e-6
    assert choice.gap <= 0.1 + 1e-6


def test_many_jobs_are_within_the_gap_without_a_search(monkeypatch):
    rng = np.random.default_rng(1)
    jobs, sizes = 300, np.array([1.0, 2, 4, 8, 16])
    owner = np.repeat(np.arange(jobs), 3 * len(sizes))
    kind = np.tile(np.repeat(np.arange(3), len(sizes)), jobs)
    size = np.tile(sizes, 3 * jobs)
    bend = np.repeat(rng.uniform(0.5, 0.95, jobs), 3 * len(sizes))
    fast = np.repeat(rng.uniform(1, 4, 3 * jobs), len(sizes))
    cost = (fast * size**bend) ** -0.5
    programme = OptionProgramme(
        owner, kind, size, cost, np.full(jobs, 1.1), np.array([200.0, 200, 200])
    )

    def search(*_):
        pytest.fail("rounding was not good enough")

    monkeypatch.setattr(options._OptionSearch, "_improve", search)
    choice = choose_options(programme, gap=0.005)
    assert_valid(programme, choice)
    assert choice.gap <= 0.005


def test_nothing_fits():
    none = choose_options(
        OptionProgramme(
            np.array([0]), np.array([0]), np.array([4.0]), np.array([0.5]), np.array([1.1, 1.1]),
            np.array([2.0]),
        )
    )  # fmt: skip
    assert none.options.tolist() == [-1, -1]
    assert none.cost == none.bound == 2.2
