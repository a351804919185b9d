"""From changes to commands."""

import pytest

from live_jobs import HERE, in_phase
from rota.core.allocation import Allocation
from rota.core.changes import Changes
from rota.core.errors import InvalidPlanError
from rota.core.jobs import Phase
from rota.core.reconcile import reconcile

P = Phase
THERE = Allocation(((9, 2),))


def job(phase, name="a", index=0, version=0):
    made = in_phase(phase, name, index=index)
    made.version = version
    return made


def wanted(*, start=(), stop=(), made_at=5, now=5):
    """(stops, starts, moves) by name."""
    changes = Changes(made_at)
    for each, where in start:
        changes.start(each, where)
    for each in stop:
        changes.stop(each)
    stops, starts, moves = reconcile(changes, now)
    return (
        [each.id for each in stops],
        [(each.id, where) for each, where in starts],
        [(each.id, where) for each, where in moves],
    )


def test_waiting_jobs_are_started_and_running_ones_stopped():
    new, old = job(P.WAITING), job(P.RUNNING, "b", 1)
    assert wanted(start=[(new, HERE)], stop=[old]) == (["b"], [("a", HERE)], [])


def test_an_empty_plan_does_nothing():
    assert wanted() == ([], [], [])


@pytest.mark.parametrize("phase", [P.RUNNING, P.STARTING])
def test_a_job_on_the_cluster_is_moved_or_just_renewed(phase):
    assert wanted(start=[(job(phase), THERE)]) == ([], [], [("a", THERE)])
    assert wanted(start=[(job(phase), Allocation(HERE.slices))]) == ([], [], [])
    bigger = Allocation(((1, 3),))
    assert wanted(start=[(job(phase), bigger)]) == ([], [], [("a", bigger)])
    tuned = Allocation(HERE.slices, config={"batch": 64})
    assert wanted(start=[(job(phase), tuned)]) == ([], [], [("a", tuned)])


@pytest.mark.parametrize("where", [HERE, THERE])
def test_stopped_and_started_is_a_restart_even_in_place(where):
    old = job(P.RUNNING)
    assert wanted(start=[(old, where)], stop=[old]) == (["a"], [("a", where)], [])


def test_starts_and_moves_are_told_apart_in_their_order():
    jobs = [job(phase, name, i) for i, (name, phase) in enumerate(
        zip("abcd", (P.WAITING, P.RUNNING, P.WAITING, P.RUNNING), strict=True)
    )]  # fmt: skip
    stops, starts, moves = wanted(start=[(each, THERE) for each in jobs])
    assert (stops, [n for n, _ in starts], [n for n, _ in moves]) == ([], ["a", "c"], ["b", "d"])


def test_parts_about_jobs_that_changed_since_are_dropped():
    fresh, changed = job(P.WAITING, "a", 0, version=5), job(P.WAITING, "b", 1, version=6)
    runs, gone = job(P.RUNNING, "c", 2, version=3), job(P.DONE, "d", 3, version=7)
    start = [(fresh, HERE), (changed, THERE)]
    assert wanted(start=start, stop=[runs, gone], now=7) == (["c"], [("a", HERE)], [])


def test_a_plan_for_the_present_state_is_never_stale():
    late = job(P.WAITING, version=9)
    assert wanted(start=[(late, HERE)]) == ([], [("a", HERE)], [])


@pytest.mark.parametrize(
    ("verb", "phase"), [("start", P.WAITING), ("start", P.RUNNING), ("stop", P.RUNNING)]
)
def test_naming_a_job_twice_is_refused(verb, phase):
    others = [job(phase, "x", 1), job(phase, "y", 2)]
    twice = [others[0], job(phase), others[1], job(phase)]
    wishes = [(each, THERE) for each in twice] if verb == "start" else twice
    with pytest.raises(InvalidPlanError, match=f"^the plan {verb}s a job twice: a$"):
        wanted(**{verb: wishes})


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (P.RUNNING, P.STARTING)])
def test_only_jobs_on_the_cluster_are_stopped(phase):
    message = f"^the plan wants to stop job a, which is {phase.name.lower()}$"
    with pytest.raises(InvalidPlanError, match=message):
        wanted(stop=[job(phase)])


@pytest.mark.parametrize("phase", [P.HELD, P.STOPPING, *list(P)[P.DONE :]])
def test_only_waiting_jobs_and_those_on_the_cluster_are_started(phase):
    message = f"^the plan wants to start job a, which is {phase.name.lower()}$"
    with pytest.raises(InvalidPlanError, match=message):
        wanted(start=[(job(P.WAITING, "b", 1), THERE), (job(phase), HERE)])
