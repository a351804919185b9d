"""Earliest deadline first."""

import pytest

from policy_runs import bare, job, runs
from rota.core.errors import KnowledgeError
from rota.core.knowledge import Knowledge
from rota.policies.edf import Edf, EdfParams


def test_the_earliest_deadline_displaces_and_jobs_without_one_come_last():
    jobs = [
        job("late", 0, 1, 4, deadline_s=50.0),
        job("any", 0, 1, 2),
        job("soon", 1, 1, 3, deadline_s=9.0),
    ]
    assert runs(Edf(), jobs) == {
        "late": [(0, 1), (4, 7)],
        "soon": [(1, 4)],
        "any": [(7, 9)],
    }


def test_without_preemption_it_waits():
    jobs = [job("a", 0, 1, 4, deadline_s=50.0), job("b", 1, 1, 3, deadline_s=9.0)]
    assert runs(Edf(EdfParams(preemptive=False)), jobs) == {"a": [(0, 4)], "b": [(4, 7)]}


def test_a_deadline_is_told_only_to_those_who_declare_it():
    assert bare(known=Knowledge.DEADLINES, deadline_s=7.0).deadline_s == 7.0
    with pytest.raises(KnowledgeError, match=r"Knowledge\.DEADLINES"):
        _ = bare(known=Knowledge.REMAINING_WORK, deadline_s=7.0).deadline_s
