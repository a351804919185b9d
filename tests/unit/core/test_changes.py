"""What a plan changes."""

import pytest

from live_jobs import HERE, live
from rota.core.changes import ON_EVERY_EVENT, Changes, Level, Wake
from rota.core.events import INF
from rota.core.reasons import Reason

A, B = live("a", index=1), live("b", index=2)


def test_new_changes_are_empty():
    changes = Changes(7)
    assert changes.empty
    assert not changes.unusual
    assert (changes.version, changes.starts, changes.stops, changes.wake, changes.causes) == (
        7,
        [],
        [],
        None,
        None,
    )
    assert (
        *changes.cancels,
        *changes.rejects,
        *changes.holds,
        *changes.admits,
        *changes.levels,
    ) == ()


def test_starts_and_stops_are_usual():
    changes = Changes(0)
    changes.start(A, HERE)
    changes.stop(B)
    assert (changes.starts, changes.stops, changes.causes) == ([(A, HERE)], [B], None)
    changes.stop(A, because_of=B)
    assert changes.causes == {1: B}
    assert not changes.unusual
    assert not changes.empty


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
def test_rare_changes_are_kept_apart(wish, name, expected, empty):
    changes = Changes(0)
    wish(changes)
    assert getattr(changes, name) == expected
    assert changes.unusual
    assert changes.empty is empty
    assert getattr(Changes(0), name) == ()  # nothing leaks into other plans
    wish(changes)
    assert getattr(changes, name) == expected * 2


def test_by_default_every_event_wakes():
    assert Wake(None, INF, 0.0) == ON_EVERY_EVENT
    assert Changes(0).wake is None


def test_a_hold_can_be_withdrawn():
    changes = Changes(0)
    assert not changes.withdraw_hold(A)
    changes.hold(A, Reason.QUOTA)
    changes.hold(B, Reason.QUOTA)
    assert changes.withdraw_hold(A)
    assert not changes.withdraw_hold(A)
    assert changes.holds == [(B, Reason.QUOTA)]
