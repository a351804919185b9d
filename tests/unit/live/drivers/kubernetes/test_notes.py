"""Notes on objects: what is told, and what not, by a clock of the test."""

import pytest

from rota.core.errors import ClusterError
from rota.live.drivers.kubernetes.api import CONFLICT, KubeError
from rota.live.drivers.kubernetes.notes import BURST, ObjectNotes


class Server:
    """Keeps what is written."""

    def __init__(self):
        self.events, self.trouble = [], None

    def create(self, path, body):
        if self.trouble is not None:
            raise self.trouble
        self.events.append((body["involvedObject"]["name"], body["reason"], body["message"]))

    def patch(self, path, change, **_):
        self.events.append((path.rpartition("/")[2], "again", change["message"]))


@pytest.fixture
def world():
    """Return the server, the notes, and `at(second, ...)` which tells at a time."""
    server, now = Server(), [0.0]
    notes = ObjectNotes(server, 10.0, lambda: now[0])

    def at(second, name="a", reason="RotaOrder", message="m", **more):
        now[0] = second
        item = {"metadata": {"name": name, "namespace": "x", "uid": name}}
        notes.tell("v1", "Pod", item, reason, message, more.pop("condition", None), **more)

    return server, notes, at


def test_nobody_is_told_that_it_waits_before_it_has_waited(world):
    server, notes, at = world
    for second in (0, 0.5, 9.9):
        at(second)
    assert server.events == []
    at(10)
    at(11)
    assert server.events == [("a", "RotaOrder", "m")]
    assert notes.requests == 1


def test_a_change_is_told_but_not_at_once_and_only_the_latest(world):
    server, _, at = world
    at(0)
    at(10)
    for second, reason in ((12, "RotaCapacity"), (40, "RotaQuota"), (69.9, "RotaCapacity")):
        at(second, reason=reason)
    assert len(server.events) == 1
    at(70, reason="RotaQuota")
    assert server.events[1:] == [("a", "RotaQuota", "m")]
    at(75, reason="RotaQuota")
    assert len(server.events) == 2


def test_a_reason_that_comes_and_goes_costs_nothing(world):
    server, _, at = world
    at(0)
    at(10)
    for second in range(11, 300):
        at(second, reason="RotaOrder" if second % 60 == 10 else "RotaQuota")
    assert server.events.count(("a", "RotaQuota", "m")) <= 5
    assert len(server.events) <= 6


def test_what_ends_the_waiting_is_told_at_once(world):
    server, notes, at = world
    conditions = []
    at(0, reason="RotaRefuses", message="no", urgent=True, condition=conditions.append)
    at(1, reason="RotaRefuses", message="no", urgent=True, condition=conditions.append)
    at(2, reason="RotaEnded", message="over", urgent=True, condition=conditions.append)
    assert [reason for _, reason, _ in server.events] == ["RotaRefuses", "RotaEnded"]
    assert [one["reason"] for one in conditions] == ["RotaRefuses", "RotaEnded"]
    assert notes.requests == 4


def test_all_together_are_told_one_a_second_the_oldest_first(world):
    server, _, at = world
    names = [f"p{number:03}" for number in range(100)]
    for second in (0, 10, 15, 15):
        for name in names:
            at(second, name)
    assert [name for name, *_ in server.events] == names[: int(BURST) + 5]
    at(15, "late", "RotaRefuses", "no", urgent=True)
    assert server.events[-1][0] == "late"


def test_a_note_that_could_not_be_written_is_written_later(world):
    server, _, at = world
    server.trouble = ClusterError("no answer", retryable=True)
    at(0)
    at(10)
    server.trouble = None
    at(10.5)
    assert server.events == [("a", "RotaOrder", "m")]


def test_what_is_gone_is_forgotten(world):
    server, notes, at = world
    at(0)
    at(10)
    notes.forget([])
    at(11)
    assert len(server.events) == 1, "it is new, and has not waited"
    at(21)
    assert len(server.events) == 2


def test_the_same_reason_again_is_the_same_event(world):
    server, notes, at = world
    server.trouble = KubeError("it is there", CONFLICT)
    at(0, reason="RotaRefuses", urgent=True)
    assert server.events == [("rota-a-rotarefuses", "again", "m")]
    assert notes.requests == 2
