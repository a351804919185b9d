"""The thread of a driver: what it is ordered is done once, in order, and nothing stops it."""

import threading
from time import monotonic

import pytest

from rota.core.errors import ClusterError
from rota.live.driver import RunStatus
from rota.live.drivers.orders import HALT, KILL, DriverThread, OrderedRun, OrderedRuns

NEVER_S = 1e6


@pytest.fixture
def done():
    """Return what was done, in order."""
    return []


def test_orders_are_carried_out_in_order_by_its_own_thread(done):
    def work():
        while thread.goes_on(monotonic() + NEVER_S):
            thread.obey()

    thread = DriverThread("test", work)
    for number in range(100):
        thread.order(lambda number=number: done.append((number, threading.current_thread().name)))
    last = threading.Event()
    thread.start()
    thread.order(last.set)
    assert last.wait(60)
    thread.close()
    assert done == [(number, "test") for number in range(100)]


def test_what_the_cluster_does_not_take_now_is_tried_again(done):
    thread = DriverThread("test", lambda: None)
    troubles = [ClusterError("no answer"), ClusterError("no answer")]

    def fails_twice():
        if troubles:
            raise troubles.pop()
        done.append("first")

    thread.order(fails_twice)
    thread.order(lambda: done.append("second"))
    for _ in range(2):
        with pytest.raises(ClusterError):
            thread.obey()
        assert done == []
    assert thread.obey()
    assert done == ["first", "second"]
    assert not thread.obey()


def test_an_order_that_cannot_be_carried_out_stands_in_nobodys_way(done):
    thread = DriverThread("test", lambda: None)
    thread.order(lambda: done[7])
    thread.order(lambda: done.append("second"))
    with pytest.raises(IndexError):
        thread.obey()
    assert thread.obey()
    assert done == ["second"]


def test_it_ends_while_it_waits_and_also_if_it_never_began():
    def work():
        while thread.goes_on(monotonic() + NEVER_S):
            thread.pause(NEVER_S)

    thread = DriverThread("test", work)
    thread.start()
    thread.wake()
    thread.close()
    DriverThread("test", work).close()


def test_a_kill_is_never_taken_back(done):
    runs = OrderedRuns()
    runs.tell = done.append
    runs.runs = {"1.0": OrderedRun(None), "2.0": OrderedRun(None)}
    assert not runs.runs["1.0"].ending
    runs.end("1.0", KILL)
    runs.end("1.0", HALT)
    assert runs.runs["1.0"].want == KILL
    runs.runs["2.0"].over = RunStatus("2.0", "ended", 3)
    for name in ("2.0", "3.0"):
        runs.end(name, HALT)
    assert done == [RunStatus("2.0", "ended", 3), RunStatus("3.0", "ended", asked=True)]
