"""Maintenance and reservations of a daemon: journaled, recovered, and asked for by operators."""

import pytest

from daemon_slow import state
from rota.core.errors import ConflictError, InputError, NotFoundError, OptionError
from rota.core.windows import NodeWindow
from rota.daemon.settings import Permissions, Queue, Scheduling
from rota.engine.invariants import Invariants
from rota.live.inputs import NodeRequest, Reconfigured, WindowChange
from rota.wire import NewWindow
from scripted import Power, Script, ScriptedWorld, drive, job_file, make_loop

PDU = NodeWindow(
    name="pdu", kind="maintenance", nodes=("n0",), start_s=60.0, end_s=90.0, at_start="preempt"
)
MINE = NodeWindow(
    name="mine", kind="reservation", nodes=("n1",), start_s=20.0, end_s=200.0, users=("ann",)
)


def world():
    return ScriptedWorld(
        {"1": 300.0, "2": 10.0, "3": 40.0, "4": 5.0, "5": 5.0}, start_s=0.0, stop_s=0.0
    )


def script():
    return Script(
        [
            (0.0, job_file(1)),  # on n0, for ever as far as anybody knows
            (5.0, WindowChange("olga", PDU)),
            (6.0, WindowChange("olga", MINE)),
            (10.0, job_file(1, estimate=10.0)),  # ends at 20 s: fine on n1
            (21.0, job_file(1, estimate=40.0)),  # would end at 61 s: one second too late
            (30.0, job_file(1)),
            (31.0, job_file(1, time_limit="20")),
            (40.0, NodeRequest("drain", "n1", "olga", None)),
            (100.0, WindowChange("olga", remove="mine")),
            (150.0, NodeRequest("undrain", "n1", "olga", None)),
        ]
    )


def story(loop):
    jobs = loop.state.engine.jobs
    return {n: (job.first_start_s, job.end_s, job.preemptions) for n, job in jobs.items()}


EXPECTED = {
    1: (0.0, 330.0, 0),  # stopped at 60 s, back at 90 s, without having lost anything
    2: (10.0, 20.0, 0),
    3: (90.0, 130.0, 0),
    4: (90.0, 95.0, 0),
    5: (31.0, 36.0, 0),
}


def test_windows_of_a_scripted_cluster(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(2, 4), checker=Invariants)
    drive(loop, place, script())
    assert story(loop) == EXPECTED
    assert not loop.state.windows


@pytest.mark.parametrize("dies_at_s", [5.0, 6.0, 10.0, 60.0, 90.0, 100.0])
def test_they_outlive_the_daemon(tmp_path, dies_at_s):
    """It dies between the journal and what follows from it; with and without a snapshot."""
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(2, 4), checker=Invariants)
    commit, wishes = loop.journal.commit, []

    def dies(batch):
        commit(batch)
        wishes.extend(batch.inputs)
        if batch.time_s >= dies_at_s:
            raise Power

    loop.journal.commit = dies
    told = script()
    with pytest.raises(Power):
        drive(loop, place, told)
    submitted = sum(item.count for item in wishes if hasattr(item, "count"))
    loop.store.close()
    place.listener = None
    again = make_loop(tmp_path / "rota.db", place, nodes=(2, 4), checker=Invariants)
    again.snapshot()
    again.store.close()
    again = make_loop(tmp_path / "rota.db", place, nodes=(2, 4), checker=Invariants)
    told.forget_committed(submitted, wishes)
    drive(again, place, told)
    assert story(again) == EXPECTED


def test_a_policy_that_names_gpus_cannot_take_over(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(2, 4))
    loop.go_live()
    loop.state.apply(loop._batch((WindowChange("olga", PDU),)))
    change = Reconfigured(Scheduling(policy="hived").as_dict(), by="olga")
    with pytest.raises(OptionError, match="keeps to no maintenance or reservation"):
        loop.state.check_change(change)


def test_by_the_service(running, operator, alice, file):
    with running(nodes=(2, 2)) as daemon:
        epoch = daemon.store.epoch_unix
        soon = epoch + daemon._ask(lambda: daemon.state.cluster.now_s) + 3600
        made = daemon.add_window(
            NewWindow(kind="maintenance", nodes=["n0"], start=soon, end=soon + 60, note="PDU"),
            operator,
        )
        assert (made.name, made.state, made.gpus, made.by, made.jobs) == (
            "maintenance-1", "planned", 2.0, operator.name, [],
        )  # fmt: skip
        other = daemon.add_window(
            NewWindow(kind="reservation", gpus=2, users=["bob"], name="bobs"), operator
        )
        assert (other.nodes, other.state, other.end) == (["n1"], "active", None)
        assert [window.name for window in daemon.windows()] == ["bobs", "maintenance-1"]
        why = {node.name: node.why for node in daemon.nodes()}
        assert why["n1"] == "reserved for bob"
        assert why["n0"].startswith("maintenance in ")
        (job,) = daemon.submit([file(1)], alice)
        state(daemon, alice, job.id, "PENDING")
        assert daemon.job(job.id, alice).reason == "maintenance"
        told = daemon.explain(job.id, alice)
        assert "give a time limit (--time)" in told.text
        verdict = daemon.why(job.id, alice)
        assert (verdict.reason, verdict.remedy.kind) == ("maintenance", "limit")
        assert daemon.audit() == []  # windows end: it is not stuck for ever
        daemon.remove_window("maintenance-1", operator)
        state(daemon, alice, job.id, "RUNNING", "SUCCEEDED")


def test_a_reservation_is_for_the_queues_below_too(running, operator, alice, file):
    queues = (Queue("research"), Queue("vision", parent="research"), Queue("other"))
    with running(nodes=(1, 2), queues=queues) as daemon:
        for wrong, hint in (
            ("resaerch", "did you mean 'research'"),
            ("x", "known: other, research"),
        ):
            with pytest.raises(InputError, match=hint):
                daemon.add_window(
                    NewWindow(kind="reservation", nodes=["n0"], queues=[wrong]), operator
                )
        daemon._permissions = Permissions(undeclared_queues=True)
        later = NewWindow(kind="reservation", nodes=["n0"], queues=["x"], name="later")
        assert daemon.add_window(later, operator).queues == ["x"]
        daemon.remove_window("later", operator)
        made = daemon.add_window(
            NewWindow(kind="reservation", nodes=["n0"], queues=["research"]), operator
        )
        assert made.queues == ["research", "vision"]
        others, own = daemon.submit([file(1, queue="other"), file(1, queue="vision")], alice)
        state(daemon, alice, own.id, "RUNNING", "SUCCEEDED")
        assert daemon.job(others.id, alice).state == "PENDING"


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"kind": "maintenance", "nodes": ["n7"]}, InputError, "there is no node 'n7'"),
        ({"kind": "maintenance", "nodes": ["n0"], "end": 1.0}, InputError, "its end is in the"),
        ({"kind": "reservation", "nodes": ["n0"]}, InputError, "is for nobody"),
        ({"kind": "reservation", "gpus": 64, "users": ["a"]}, ConflictError, "64 GPUs cannot be"),
        ({"kind": "maintenance", "nodes": ["n0"], "name": "pdu"}, ConflictError, "'pdu' already"),
        ({"kind": "maintenance", "nodes": ["n0"], "name": "a b"}, InputError, "names have letters"),
    ],
)
def test_what_cannot_be(running, operator, asked, error, message):
    with running(nodes=(2, 2)) as daemon:
        daemon.add_window(NewWindow(kind="maintenance", nodes=["n1"], name="pdu"), operator)
        with pytest.raises(error, match=message):
            daemon.add_window(NewWindow(**asked), operator)
        with pytest.raises(NotFoundError, match="there is no maintenance or reservation"):
            daemon.remove_window("other", operator)
