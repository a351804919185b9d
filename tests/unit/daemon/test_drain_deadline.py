"""Drain with a deadline: nothing starts, what runs may end, and at the deadline it is stopped."""

import pytest

from daemon_slow import state
from rota.core.jobs import WAITING
from rota.live.inputs import NodeRequest
from scripted import Power, Script, ScriptedWorld, drive, job_file, make_loop


def world():
    return ScriptedWorld({"1": 30.0, "2": 300.0, "3": 10.0}, start_s=0.0, stop_s=0.0)


def script():
    return Script(
        [
            (0.0, job_file(1)),
            (0.0, job_file(1)),
            (5.0, NodeRequest("drain", "n0", "olga", 100.0)),
            (6.0, job_file(1)),
        ]
    )


def test_what_runs_may_end_until_the_deadline(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(1, 4))
    drive(loop, place, script())
    jobs = loop.state.engine.jobs
    assert jobs[1].end_s == 30.0  # in time
    assert (jobs[2].phase, jobs[2].run_s) == (WAITING, 100.0)  # stopped, and nowhere to go on
    assert jobs[3].first_start_s == float("inf")
    rows = [row for row in loop.store.rows(0, 1000) if row[2] == 3]  # STOP
    assert [row[1] for row in rows] == [100.0]
    vertex = loop.state.cluster.nodes.vertex("n0").id
    assert [row[:2] for row in loop.store.node_rows(vertex)] == [(5.0, 25)]
    assert loop.state.cluster.nodes.next_deadline_s() == float("inf")


def test_a_deadline_outlives_the_daemon(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(1, 4))
    commit, batches = loop.journal.commit, []

    def dies_at_thirty(batch):
        commit(batch)
        batches.append(batch)
        if batch.time_s >= 30.0:
            raise Power

    loop.journal.commit = dies_at_thirty
    with pytest.raises(Power):
        drive(loop, place, script())
    loop.store.close()
    place.listener = None
    again = make_loop(tmp_path / "rota.db", place, nodes=(1, 4))
    assert again.state.cluster.nodes.next_deadline_s() == 100.0
    drive(again, place, Script([]))
    job = again.state.engine.jobs[2]
    assert (job.phase, job.run_s) == (WAITING, 100.0)


def test_by_the_service_and_taken_back(running, operator, alice, file):
    with running(nodes=(1, 2)) as daemon:
        found = daemon.drain("n0", operator, deadline_s=3600.0)
        assert (found.state, 3500 < found.clear_in_s <= 3600) == ("drained", True)
        assert daemon.undrain("n0", operator).clear_in_s is None
        told = [(one.event, one.text) for one in daemon.node_history("n0")]
        assert told == [("closed", "drained by olga"), ("opened", "")]
        daemon.submit([file(1)], alice)
        daemon.drain("n0", operator, deadline_s=0.0)
        state(daemon, alice, "1", "PENDING")
