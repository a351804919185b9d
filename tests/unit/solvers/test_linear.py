"""Programmes from arrays: answers, prices and named errors."""

import sys

import numpy as np
import pytest

from rota.core.errors import InfeasibleError, SolverError, SolverLimitError, UnboundedError
from rota.solvers.linear import LinearProgramme, Session, solve_linear, sparse


def programme(rows, low, high, cost, *, upper=np.inf, maximise=True, whole=None):
    dense = np.array(rows, float)
    at, to = np.nonzero(dense)
    return LinearProgramme(
        cost=np.array(cost, float),
        matrix=sparse(at, to, dense[at, to], dense.shape),
        row_lower=np.array(low, float),
        row_upper=np.array(high, float),
        lower=np.zeros(dense.shape[1]),
        upper=np.full(dense.shape[1], upper),
        maximise=maximise,
        whole=whole,
    )


def test_best_corner_and_prices():
    found = solve_linear(programme([[1, 1], [1, 0]], [-np.inf] * 2, [4, 3], [3, 2]))
    assert found.point == pytest.approx([3, 1])
    assert found.objective == pytest.approx(11)
    assert found.duals == pytest.approx([2, 1])


def test_whole_numbers():
    problem = programme([[2, 2]], [-np.inf], [5], [1, 1], whole=np.array([True, True]))
    found = solve_linear(problem)
    assert found.objective == pytest.approx(2)  # 2.5 with fractions
    assert len(found.duals) == 0


def test_entries_of_one_place_are_added_up():
    matrix = sparse(np.array([0, 0]), np.array([1, 1]), np.array([2.0, 3.0]), (2, 3))
    assert matrix.values.tolist() == [5.0]
    assert matrix.starts.tolist() == [0, 1, 1]


def test_contradiction_has_a_name():
    with pytest.raises(InfeasibleError, match="no point meets"):
        solve_linear(programme([[1]], [2], [1], [1]))


def test_missing_bound_has_a_name():
    with pytest.raises(UnboundedError, match="bound it"):
        solve_linear(programme([[1, -1]], [-np.inf], [1], [1, 1]))


def test_time_limit_has_a_name():
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 60, (25, 60))
    problem = programme(
        rows, [-np.inf] * 25, rows.sum(axis=1) // 2, rng.integers(1, 60, 60), upper=1.0,
        whole=np.ones(60, bool),
    )  # fmt: skip
    with pytest.raises(SolverLimitError, match=r"limit of 0\.001 s"):
        solve_linear(problem, time_limit_s=0.001)


def test_a_limit_of_nodes_ends_the_search_the_same_everywhere():
    rng = np.random.default_rng(2)
    rows = rng.integers(1, 60, (25, 60)).astype(float)
    problem = programme(
        rows, [-np.inf] * 25, rows.sum(axis=1) // 2, rng.integers(1, 60, 60), upper=1.0,
        whole=np.ones(60, bool),
    )  # fmt: skip
    with pytest.raises(SolverLimitError, match="no answer within the limit"):
        solve_linear(problem, node_limit=1)


def test_a_session_starts_from_the_last_answer():
    session = Session(programme([[1, 1]], [-np.inf], [4], [1, 2]))
    assert session.solve().objective == pytest.approx(8)
    session.bound_rows(np.array([0], np.int32), np.array([-np.inf]), np.array([2.0]))
    assert session.solve().objective == pytest.approx(4)
    session.set_cost(np.array([5.0, 2.0]))
    assert session.solve().point == pytest.approx([2, 0])


def test_without_the_solver_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(SolverError, match=r"\.\[solve\]"):
        solve_linear(programme([[1]], [0], [1], [1]))
