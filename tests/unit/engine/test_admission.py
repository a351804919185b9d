"""The way into the queue."""

import pytest

from live_jobs import live
from rota.core import machine
from rota.core.admission import Admission
from rota.core.changes import Changes
from rota.core.jobs import HELD, WAITING, Shape
from rota.core.reasons import Reason
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.view import View
from rota.engine.admission import AdmissionQueue
from rota.placement.consolidate import consolidate
from rota.placement.skew import Skew
from rota.policies.admission.accept_all import AcceptAll


class Few(Admission):
    """At most `room` jobs inside; nobody called `bad`."""

    def __init__(self, room):
        super().__init__()
        self.room = room
        self.inside = []

    def refuse(self, job, view):
        return "not you" if job.id == "bad" else None

    def consider(self, job, view):
        return None if len(self.inside) < self.room else Reason.ADMISSION

    def entered(self, job):
        self.inside.append(job.id)

    def left(self, job):
        self.inside.remove(job.id)


@pytest.fixture
def topology():
    return Topology.uniform(2, 4)


@pytest.fixture
def view(topology):
    return View(topology, TenantTree())


def gate(topology, admission):
    return AdmissionQueue(admission, consolidate(topology))


def test_what_can_never_fit_is_rejected_with_a_message(topology, view):
    changes = Changes(0)
    assert not gate(topology, AcceptAll()).enter(live(gpus=9), view, changes)
    ((job, message),) = changes.rejects
    assert job.id == "a"
    assert "asks for 9 GPUs" in message
    assert "2 nodes with 8 GPUs" in message


def test_an_open_gate_remembers_which_shapes_are_fine(topology, view):
    made, changes = gate(topology, AcceptAll()), Changes(0)
    assert made.enter(live(gpus=2, number=3), view, changes)
    assert not made.enter(live(gpus=9, number=4), view, changes)
    assert made.fine == {3}
    assert gate(topology, Few(9)).fine == set()


def test_the_question_is_asked_once_per_shape(topology, view):
    made = gate(topology, AcceptAll())
    asked = []
    answer = made.placement.never
    made.placement.never = lambda shape: asked.append(shape.number) or answer(shape)
    for number in (0, 0, 1, 0):
        made.never(live(number=number))
    assert asked == [0, 1]


def test_admission_refuses_holds_and_lets_in(topology, view):
    made, changes = gate(topology, Few(1)), Changes(0)
    names = ("a", "bad", "b", "c")
    jobs = [live(name, index=index) for index, name in enumerate(names)]
    assert [made.enter(job, view, changes) for job in jobs] == [True, False, False, False]
    assert changes.rejects == [(jobs[1], "not you")]
    assert changes.holds == [(jobs[2], Reason.ADMISSION), (jobs[3], Reason.ADMISSION)]
    assert made.admission.inside == ["a"]


def test_held_jobs_enter_in_their_order_when_there_is_room(topology, view):
    made, changes = gate(topology, Few(1)), Changes(0)
    a, b, c, d = jobs = [live(name, index=index) for index, name in enumerate("abcd")]
    for job in jobs:
        made.enter(job, view, changes)
    for job, _ in changes.holds:  # as the engine does
        machine.hold(job)
    assert made.reconsider(view, Changes(0)) == []
    made.drop(b)
    made.leave(a)
    later = Changes(1)
    assert made.reconsider(view, later) == [c]
    assert (later.admits, made.held, made.admission.inside) == ([c], [d], ["c"])
    assert (c.phase, d.phase) == (WAITING, HELD)


def test_a_job_held_and_let_in_by_one_plan_was_never_held(topology, view):
    made, changes = gate(topology, Few(1)), Changes(0)
    a, b = jobs = [live(name, index=index) for index, name in enumerate("ab")]
    for job in jobs:
        made.enter(job, view, changes)
    made.leave(a)
    assert made.reconsider(view, changes) == [b]
    assert (list(changes.holds), list(changes.admits)) == ([], [])


def test_a_snapshot_keeps_who_is_held(topology, view):
    made, again = gate(topology, Few(1)), gate(topology, Few(1))
    a, b, c = jobs = [live(name, index=index) for index, name in enumerate("abc")]
    for job in jobs:
        made.enter(job, view, Changes(0))
    view.everyone = {job.index: job for job in jobs}
    assert made.snapshot() == {"held": [1, 2], "inside": [0], "admission": {}}
    again.restore(view, made.snapshot())
    assert again.held == [b, c]
    again.admission.inside.append("a")
    again.leave(b)  # never entered: does not count
    assert again.admission.inside == ["a"]
    again.leave(a)
    assert again.admission.inside == []


def test_only_placements_that_tell_jobs_apart_refine(topology):
    assert not consolidate(topology).refines
    assert Skew(topology).refines


def test_a_fresh_placement_learns_which_nodes_are_down(topology):
    placement = consolidate(topology)
    topology.nodes[0].up = False
    eight = Shape(0, live(gpus=8).spec.request)
    assert placement.fits(eight)
    placement.close_unusable()
    assert not placement.fits(eight)
    assert placement.free == 4
