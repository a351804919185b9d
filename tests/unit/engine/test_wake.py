"""When a scheduler is asked."""

import pytest

from decisions import Scripted, engine, job
from rota.core import events as ev
from rota.core.changes import Wake
from rota.core.errors import LivelockError
from rota.engine import loop
from rota.engine.timers import next_boundary, on_boundary

JOBS = [job("a", 1, 10), job("b", 1, 20, at=3), job("c", 1, 1, at=3)]
DONE = frozenset({ev.JOB_DONE})


def asked(wake, script=None, jobs=JOBS, gpus=4):
    """Times at which a policy that runs everybody is asked."""
    times = []

    def decide(view, plan):
        times.append(view.now_s)
        plan.fill(view.jobs)
        if script is not None:
            script(view, plan)

    policy = Scripted(decide)
    policy.wake = wake
    made = engine(policy, jobs, (1, gpus))
    made.run(until_s=1e6)
    assert made.decisions == len(times)
    return times


@pytest.mark.parametrize(
    ("wake", "times"),
    [
        (Wake(), [0, 3, 4, 10, 23]),
        (Wake(on=frozenset({ev.JOB_SUBMIT})), [0, 3]),
        (Wake(on=frozenset({ev.JOB_SUBMIT, ev.JOB_DONE})), [0, 3, 4, 10, 23]),
        (Wake(on=DONE, at_s=6.0), [6, 16, 26, 7]),
        (Wake(on=frozenset(), every_s=8.0), [0, 8, 16, 24, 32]),
        (Wake(on=frozenset()), []),
        (Wake(on=None, at_s=6.0), [0, 3, 4, 6, 10, 23]),
        (Wake(on=None, every_s=8.0), [0, 3, 4, 8, 10, 16, 23]),
    ],
)  # fmt: skip
def test_the_wake_condition_says_when(wake, times):
    assert asked(wake) == sorted(times)


def test_a_policy_may_ask_for_a_time_once():
    def script(view, plan):
        if view.now_s == 0.0:
            plan.wake_at(7.0)
            plan.wake_at(5.5)

    assert asked(Wake(), script) == [0, 3, 4, 5.5, 10, 23]


def test_a_watched_level_wakes_even_who_sleeps_through_other_events():
    def script(view, plan):
        for each in view.jobs:
            if each.id == "a":
                plan.watch(each, "executed", 6.0)

    assert asked(Wake(on=frozenset({ev.JOB_SUBMIT})), script) == [0, 3, 6]


def test_events_slept_through_are_told_later():
    told = []
    policy = Scripted(lambda _view, plan: plan.fill(_view.jobs))
    policy.wake = Wake(on=frozenset(), every_s=8.0)
    made = engine(policy, JOBS, (1, 4))
    step = made.scheduler.step

    def listen(view, events):
        told.append((view.now_s, [event[1] for event in events]))
        return step(view, events)

    made.scheduler.step = listen
    made.run()
    assert told[:2] == [(0.0, [ev.JOB_SUBMIT]), (8.0, [ev.JOB_SUBMIT, ev.JOB_SUBMIT])]


def test_asking_for_the_same_instant_again_and_again_is_refused(monkeypatch):
    monkeypatch.setattr(loop, "LIVELOCK", 50)
    times = []

    def script(view, plan):
        times.append(view.now_s)
        if view.now_s == 3.0:
            plan.wake_at(3.0)

    with pytest.raises(LivelockError, match="'scripted' was woken 50 times at 3 s: it must ask"):
        asked(Wake(), script)
    assert times == [0.0] + [3.0] * 51


def test_a_few_repetitions_are_fine(monkeypatch):
    monkeypatch.setattr(loop, "LIVELOCK", 50)
    times = []

    def script(view, plan):
        times.append(view.now_s)
        if times.count(view.now_s) < 40:
            plan.wake_at(view.now_s)

    asked(Wake(), script)
    assert [times.count(now_s) for now_s in (0, 3, 4, 10, 23)] == [40] * 5


@pytest.mark.parametrize(
    ("quantity", "value"),
    [("executed", 2860.822305113916), ("service", 5721.644610227832)],
)
def test_a_level_that_is_watched_at_every_decision_is_reached(quantity, value):
    def script(view, plan):
        for each in view.jobs:
            plan.watch(each, quantity, value)

    at_s = 268847.3580469019
    times = asked(Wake(), script, [job("a", 2, 3000.0, at=at_s)])
    assert times == [at_s, pytest.approx(at_s + 2860.822305113916), at_s + 3000.0]


@pytest.mark.parametrize("every_s", [0.1, 1e-3, 7e-7, 300.0])
def test_rounds_are_found_however_many_there_were(every_s):
    counts = [1, 3, *range(50_000_000, 50_000_300), *range(3 * 10**9, 3 * 10**9 + 300)]
    for count in counts:
        now_s = count * every_s
        assert on_boundary(now_s, every_s)
        assert next_boundary(now_s, every_s) == (count + 1) * every_s
        assert not on_boundary((count + 0.5) * every_s, every_s)
