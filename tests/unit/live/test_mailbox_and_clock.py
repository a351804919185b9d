"""How other threads reach the engine's, and how time passes."""

import threading
import time

import pytest

from rota.core.errors import UnavailableError
from rota.live import clock
from rota.live.clock import WallClock
from rota.live.driver import RunStatus
from rota.live.mailbox import Mailbox, PendingCall

NEWS = RunStatus("1.0", "running")


def test_a_message_ends_a_wait():
    box = Mailbox()
    threading.Timer(0.05, box.post, [NEWS]).start()
    box.wait(1e6)  # only the message ends it
    assert box.take() == ([NEWS], [])


def test_what_is_put_back_comes_first():
    box = Mailbox()
    later = RunStatus("2.0", "running")
    box.post(later)
    box.put_back([NEWS])
    assert box.take()[0] == [NEWS, later]


def test_an_ask_is_answered_by_the_owner():
    box = Mailbox()

    def own():
        box.wait(5.0)
        _, (ask,) = box.take()
        _, answer = ask.act()
        ask.future.set_result(answer())

    owner = threading.Thread(target=own)
    owner.start()
    assert box.call(PendingCall(lambda: ([], lambda: 42))) == 42
    owner.join()


def test_the_owner_must_not_ask():
    box = Mailbox()
    box.owner = threading.get_ident()
    with pytest.raises(RuntimeError, match="must not wait for itself"):
        box.call(PendingCall(lambda: ([], lambda: 0)))


def test_nobody_waits_for_a_closed_box():
    box = Mailbox()
    failed = []

    def ask():
        try:
            box.call(PendingCall(lambda: ([], lambda: 0)))
        except UnavailableError as error:
            failed.append(str(error))

    asker = threading.Thread(target=ask)
    asker.start()
    while not box._calls:
        time.sleep(0.001)
    box.close()
    asker.join(300)
    assert failed == ["the daemon is stopping: try again in a moment"]
    with pytest.raises(UnavailableError):
        box.call(PendingCall(lambda: ([], lambda: 0)))


def test_an_owner_that_does_not_answer_is_reported():
    with pytest.raises(UnavailableError, match="did not answer within"):
        Mailbox().call(PendingCall(lambda: ([], lambda: 0)), timeout_s=0.01)


@pytest.fixture
def hands(monkeypatch):
    """The hands of both clocks of the system."""
    now = {"wall": 1000.0, "steady": 5.0}
    monkeypatch.setattr(clock, "time", lambda: now["wall"])
    monkeypatch.setattr(clock, "monotonic", lambda: now["steady"])
    return now


def test_a_step_of_the_wall_clock_changes_nothing_within_a_life(hands):
    made = WallClock(990.0)
    assert made.now_s() == 10.0
    hands["wall"] -= 500
    hands["steady"] += 2
    assert made.now_s() == 12.0
    assert made.wait_s(20.0) == 8.0


def test_time_never_goes_back_between_lives(hands):
    hands["wall"] = 100.0  # stepped back by a lot
    made = WallClock(990.0, 10.0)
    assert made.now_s() == 10.0
    hands["steady"] += 1
    assert made.now_s() == 11.0


def test_a_step_forwards_is_believed_between_lives(hands):
    assert WallClock(990.0, 5.0).now_s() == 10.0


def test_it_can_run_faster(hands):
    made = WallClock(1000.0, speed=10.0)
    hands["steady"] += 1
    assert made.now_s() == 10.0
    assert made.wait_s(20.0) == 1.0
