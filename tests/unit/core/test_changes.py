"""A plan collects wishes."""

import pytest

from live_jobs import HERE, live
from rota.core.changes import ON_EVERY_EVENT, Changes, Level, Wake
from rota.core.events import INF
from rota.core.reasons import Reason

A, B = live("a", index=1), live("b", index=2)


def test_a_new_plan_wants_nothing():
    plan = Changes(7)
    assert plan.empty
    assert not plan.unusual
    assert (plan.version, plan.starts, plan.stops, plan.wake, plan.causes) == (
        7,
        [],
        [],
        None,
        None,
    )
    assert (*plan.cancels, *plan.rejects, *plan.holds, *plan.admits, *plan.levels) == ()


def test_starts_and_stops_are_usual():
    plan = Changes(0)
    plan.start(A, HERE)
    plan.stop(B)
    assert (plan.starts, plan.stops, plan.causes) == ([(A, HERE)], [B], None)
    plan.stop(A, because_of=B)
    assert plan.causes == {1: B}
    assert not plan.unusual
    assert not plan.empty


@pytest.mark.parametrize(
    ("wish", "name", "expected", "empty"),
    [
        (lambda p: p.cancel([A, B], because_of=A), "cancels", [(A, A), (B, A)], False),
        (lambda p: p.reject(A, "no"), "rejects", [(A, "no")], False),
        (lambda p: p.hold(A, Reason.QUOTA), "holds", [(A, Reason.QUOTA)], True),
        (lambda p: p.admit(A), "admits", [A], True),
        (lambda p: p.explain(A, Reason.ORDER), "reasons", [(A, Reason.ORDER)], True),
        (lambda p: p.watch(A, "service", 5), "levels", [Level(A, "service", 5)], True),
    ],
)
def test_rare_wishes_are_kept_apart_and_make_a_plan_unusual(wish, name, expected, empty):
    plan = Changes(0)
    wish(plan)
    assert getattr(plan, name) == expected
    assert plan.unusual
    assert plan.empty is empty
    assert getattr(Changes(0), name) == ()  # nothing leaks into other plans
    wish(plan)
    assert getattr(plan, name) == expected * 2


def test_by_default_every_event_wakes():
    assert Wake(None, INF, 0.0) == ON_EVERY_EVENT
    assert Changes(0).wake is None


def test_a_hold_can_be_withdrawn():
    plan = Changes(0)
    assert not plan.withdraw_hold(A)
    plan.hold(A, Reason.QUOTA)
    plan.hold(B, Reason.QUOTA)
    assert plan.withdraw_hold(A)
    assert not plan.withdraw_hold(A)
    assert plan.holds == [(B, Reason.QUOTA)]
