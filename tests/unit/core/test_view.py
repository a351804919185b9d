"""What a policy sees."""

import numpy as np
import pytest

from live_jobs import HERE, in_phase, launch, live
from rota.core.errors import KnowledgeError
from rota.core.jobs import Phase
from rota.core.knowledge import Knowledge
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.view import View

COLUMNS = ("index", "gpus", "held_gpus", "submit_s", "running", "attained_gpu_s", "remaining_s")


@pytest.fixture
def view():
    made = View(Topology.uniform(1, 8), TenantTree())
    jobs = [
        live("a", gpus=4, index=5, at=0.0, work=50.0, known=32),
        live("b", gpus=2, index=6, at=1.0, work=80.0, known=32),
        live("c", gpus=2, index=7, at=1.0, work=10.0, known=32),
    ]
    launch(jobs[1], HERE, 10.0)
    jobs[2].belief = 2.0
    made.active = {job.index: job for job in jobs}
    made.now_s = 30.0
    return made


def ids(jobs):
    return "".join(job.id for job in jobs)


def test_rows_are_in_order_of_arrival(view):
    assert (ids(view.jobs), ids(view.waiting), ids(view.running)) == ("abc", "ac", "b")


def test_books_of_the_scheduler_are_used_when_there_are_any(view):
    a, b, c = view.jobs
    view.by_phase = ({7: c}, {6: b, 5: a})
    assert (ids(view.waiting), ids(view.running)) == ("c", "ab")


@pytest.mark.parametrize("phase", list(Phase))
def test_who_waits_and_who_runs(phase):
    view = View(Topology.uniform(1, 8), TenantTree())
    view.active = {0: in_phase(phase)}
    assert len(view.waiting) == (phase == Phase.WAITING)
    assert len(view.running) == (phase in (Phase.STARTING, Phase.RUNNING))


def test_columns_have_one_value_per_job(view):
    table = view.columns
    expected = {
        "index": [5, 6, 7],
        "gpus": [4, 2, 2],
        "held_gpus": [0, 2, 0],
        "submit_s": [0, 1, 1],
        "running": [False, True, False],
        "attained_gpu_s": [0, 40, 0],
        "remaining_s": [50, 60, 20],
    }
    assert {name: getattr(table, name).tolist() for name in COLUMNS} == expected
    assert table.remaining_s.tolist() == [job.remaining_s(30.0) for job in view.jobs]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_read_only_and_made_once(view, name):
    column = getattr(view.columns, name)
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1
    assert getattr(view.columns, name) is column
    dtypes = {"index": np.int64, "running": np.bool_}
    assert column.dtype == dtypes.get(name, np.float64)


def test_columns_are_made_again_for_the_next_decision(view):
    before = view.columns.attained_gpu_s
    view.version += 1
    view.now_s = 40.0
    assert view.columns.attained_gpu_s.tolist() == [0, 60, 0]
    assert before.tolist() == [0, 40, 0]


@pytest.mark.parametrize(
    ("columns", "order"),
    [
        (("gpus",), "bca"), (("gpus", "remaining_s"), "cba"), (("remaining_s",), "cab"),
        (("running", "gpus"), "cab"), (("submit_s",), "abc"), (("attained_gpu_s", "gpus"), "cab"),
    ],
)  # fmt: skip
def test_the_first_column_counts_most_and_ties_keep_their_order(view, columns, order):
    assert ids(view.ordered_by(*columns)) == order


def test_undeclared_columns_and_history_are_refused(view):
    for job in view.jobs:
        job.known = 0
    with pytest.raises(KnowledgeError, match=r"Knowledge\.REMAINING_WORK"):
        _ = view.columns.remaining_s
    with pytest.raises(KnowledgeError, match=r"`view\.history` without .* Knowledge\.HISTORY"):
        _ = view.history
    view.knowledge = Knowledge.HISTORY
    view.finished.append(view.jobs[0])
    assert ids(view.history) == "a"
