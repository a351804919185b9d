"""Budgets by month on a living cluster: time enters by the journal, and months outlive a daemon."""

import pytest

from rota.core.jobs import HELD
from rota.daemon.settings import Scheduling
from rota.server import dated
from scripted import Power, Script, ScriptedWorld, drive, job_file, make_loop

# 18 GPU-seconds; the month ends at second 120
BUDGET = "budget:default=0.005,per=month,start=2026-01-31T23:58:00"


def world():
    return ScriptedWorld({"1": 30.0, "2": 10.0, "3": 10.0}, start_s=0.0, stop_s=0.0)


def script():
    return Script([(0.0, job_file(1)), (40.0, job_file(1)), (45.0, job_file(1))])


def starts(loop):
    return [job.first_start_s for job in loop.state.engine.jobs.values()]


def test_a_held_job_starts_when_the_month_begins(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(1, 4), admission=BUDGET)
    drive(loop, place, script())
    # the third enters when the second is over: 8 of 18 GPU-seconds are left
    assert starts(loop) == [0.0, 120.0, 130.0]
    assert loop.state.engine.jobs[1].end_s == 30.0


def test_a_month_outlives_the_daemon(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(1, 4), admission=BUDGET)
    commit = loop.journal.commit

    def dies(batch):
        commit(batch)
        if batch.time_s >= 45.0:
            raise Power

    loop.journal.commit = dies
    with pytest.raises(Power):
        drive(loop, place, script())
    loop.store.close()
    place.listener = None
    again = make_loop(tmp_path / "rota.db", place, nodes=(1, 4), admission=BUDGET)
    jobs = again.state.engine.jobs
    assert [job.phase == HELD for job in jobs.values()][:2] == [False, True]
    drive(again, place, Script([]))
    assert starts(again) == [0.0, 120.0, 130.0]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("budget:of=a:1,per=month", "budget:of=a:1,per=month,start=1970-01-02T00:00:00"),
        ("budget:of=a:1,per=month,start=2026-01-01", "budget:of=a:1,per=month,start=2026-01-01"),
        ("budget:of=a:1", "budget:of=a:1"),
        ("accept-all", "accept-all"),
    ],
)
def test_a_daemon_says_once_when_its_second_0_was(text, made):
    assert dated(Scheduling(admission=text), 86400.0).admission == made
