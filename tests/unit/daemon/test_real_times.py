"""How long runs lasted, whoever was away meanwhile: whose clock measures a run?"""

import random

import numpy as np
import pytest

from rota.core.jobs import DONE
from rota.core.log import Record
from rota.daemon.export import export_stored, observed_workload, write_export
from rota.daemon.logtable import LogTable, as_it_was
from rota.daemon.pictures import picture_job
from rota.engine.invariants import Invariants
from rota.live.driver import RunStatus
from rota.live.inputs import JobRequest
from rota.live.mailbox import PendingCall
from rota.metrics import fold_jobs, read_history
from rota.metrics.history import RUNS
from rota.study.calibration.samples import observe
from scripted import Power, Script, ScriptedWorld, a_day, drive, job_file, make_loop

SLEEP_S, AWAY_S = 10.0, 45.0


def go_live(loop, entries=()):
    loop.go_live()
    script = Script([(0.0, entry) for entry in entries])
    script.speak(loop, loop.driver.world.now_s)
    steps(loop)


def steps(loop, count=3):
    """What is due now; the time stands still."""

    def wait_s(_):
        loop.interrupt()
        return 0.0

    loop._clock.wait_s = wait_s
    for _ in range(count):
        loop.step()
    loop.journal.flush()


def die(loop):
    loop.store.close()
    loop.driver.world.listener = None


def run_s_in_log(loop):
    """By job id, from the log alone."""
    loop.journal.flush()
    history = read_history(LogTable(loop.store).frame(loop.state.cluster.now_s))
    seconds = history.per_job(np.where(history.state == RUNS, history.length_s, 0.0))
    return dict(zip(fold_jobs(history)["job_id"], seconds[history.is_job].tolist(), strict=True))


@pytest.mark.parametrize("seen", ["began", "nothing"])
def test_a_run_is_as_long_as_it_ran_not_as_long_as_nobody_looked(seen, tmp_path):
    world = ScriptedWorld({"1": SLEEP_S, "2": SLEEP_S}, start_s=0.25)
    loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 1), checker=Invariants)
    go_live(loop, [job_file(1, estimate=SLEEP_S), job_file(1, estimate=SLEEP_S)])
    if seen == "began":
        world.go(1.0)
        steps(loop)
    die(loop)
    world.go(AWAY_S)
    loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 1), checker=Invariants)
    loop.go_live()
    steps(loop, 6)
    first = loop.state.engine.jobs[1]
    assert first.phase == DONE
    info = picture_job(
        first, loop.state.cluster, loop.state.projection, 0.0, loop.state.engine.view
    )
    began_s = world.began["1.0"]
    assert (info.run_s, info.gpu_s, info.ended_at) == (SLEEP_S, SLEEP_S, began_s + SLEEP_S)
    assert loop.state.engine.view.finished[0].run_s == SLEEP_S  # from which `when` learns
    assert run_s_in_log(loop)["1"] == SLEEP_S
    # the second one could not begin before somebody was there to start it
    assert loop.state.engine.jobs[2].start_s == AWAY_S
    die(loop)

    export = export_stored(tmp_path)
    assert export.log["time_s"].is_sorted()
    assert "late" not in set(export.log["event"])
    notes = []
    assert observed_workload(export, notes).behaviours[0].work == SLEEP_S
    (tmp_path / "out").mkdir()
    write_export(export, tmp_path / "out")
    jobs = fold_jobs(export.log)
    assert jobs["jct_s"][0] == began_s + SLEEP_S
    seen_by_calibrate = observe(export.log)
    assert seen_by_calibrate.run_s[0] == SLEEP_S
    assert seen_by_calibrate.first.seconds[0] == world.start_s


def test_what_still_runs_goes_on_from_its_real_beginning(tmp_path):
    world = ScriptedWorld({"1": 100.0})
    loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 2), policy="las", checker=Invariants)
    go_live(loop, [job_file(2)])
    die(loop)
    world.go(40.25)
    loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 2), policy="las", checker=Invariants)
    loop.go_live()
    steps(loop)
    job = loop.state.engine.jobs[1]
    assert (job.executed_s(40.25), job.attained_gpu_s(40.25)) == (40.0, 80.0)


def test_a_job_that_had_ended_when_it_was_told_to_stop(tmp_path):
    world = ScriptedWorld({"1": SLEEP_S})
    loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 1), checker=Invariants)
    go_live(loop, [job_file(1)])
    world.go(1.0)
    steps(loop)
    listener, world.listener = world.listener, None  # its agent is cut off
    world.go(30.0)
    ask = PendingCall(lambda: ([JobRequest("hold", 1, "me")], lambda: None))
    loop.mailbox._calls.append(ask)
    steps(loop)
    assert loop.state.engine.jobs[1].run_s == pytest.approx(30.0 - world.began["1.0"])
    listener(world.ended["1.0"])
    steps(loop)
    assert loop.state.engine.jobs[1].phase == DONE
    assert loop.state.engine.jobs[1].run_s == pytest.approx(SLEEP_S)
    assert run_s_in_log(loop) == {"1": pytest.approx(SLEEP_S)}


def test_a_lost_run_counts_until_it_was_seen_last(tmp_path):
    world = ScriptedWorld({"1": 1000.0})
    loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 1), checker=Invariants)
    go_live(loop, [job_file(1)])
    world.go(7.0)
    steps(loop)
    die(loop)
    world.go(600.0)
    world.running.clear()  # with its node: nobody ever hears of it again
    loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 1), checker=Invariants)
    loop.driver.adopt = lambda runs, halting: None
    loop.go_live()
    loop.state.cluster._receive(RunStatus("1.0", "lost", why="it did not come back"))
    steps(loop)
    assert loop.state.engine.jobs[1].run_s == pytest.approx(7.0 - world.began["1.0"])


@pytest.mark.parametrize("policy", ["fifo-skip", "las", "tiresias:limits=8/40"])
@pytest.mark.parametrize("seed", range(3))
def test_whoever_was_away_the_log_has_the_run_times_of_the_world(policy, seed, tmp_path):
    work, entries = a_day(seed)
    world, script = ScriptedWorld(work), Script(entries)
    dice = random.Random(seed)  # noqa: S311
    away = 0
    while True:
        loop = make_loop(tmp_path / "rota.db", world, policy=policy, checker=Invariants)
        loop.wanted = loop.state.scheduling
        fuse = dice.randrange(2, 9)
        append = loop.store.append

        def failing(batch, *args, append=append, **kwargs):
            nonlocal fuse
            fuse -= batch is not None
            append(batch, *args, **kwargs)
            if fuse == 0:
                raise Power

        loop.store.append = failing
        try:
            drive(loop, world, script)
        except Power:
            away += 1
            die(loop)
            world.go(world.now_s + dice.choice([0.0, 0.3, 5.0, 45.0]))
            script.forget_committed(loop.store.job_number, [what for _, what in entries])
        else:
            break
    assert away > 3
    told = run_s_in_log(loop)
    # whoever was told to stop goes on until it is gone: that is not run time
    stopped = {row[3] for row in loop.store.rows(0, 10**9) if row[2] == Record.STOP}
    jobs = loop.state.engine.jobs.values()
    calm = [job for job in jobs if job.phase == DONE and job.index not in stopped]
    assert calm
    for job in calm:
        assert told[job.id] == pytest.approx(world.done[job.id], abs=1e-6)
        assert job.run_s == pytest.approx(world.done[job.id], abs=1e-6)


def test_rows_are_put_where_they_belong():
    rows = [
        [0.0, Record.SUBMIT, 1, 0, 0, 1.0],
        [1.0, Record.START, 1, 0, 0, -1.0],
        [2.0, Record.RUN, 1, -1, -1, 1.0],
        [3.0, Record.SUBMIT, 2, 0, 0, 1.0],
        [20.0, Record.STOP, 1, 0, -1, 0.0],
        [25.0, Record.LATE, 1, -1, -1, 12.0],
        [25.0, Record.DONE, 1, -1, -1, 0.0],
        [25.0, Record.START, 2, 0, 0, -1.0],
    ]
    texts = [str(number) for number in range(len(rows))]
    table, names = as_it_was(np.array(rows, dtype=float), texts)
    assert table[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 12.0, 12.0, 25.0]
    assert names == ["0", "1", "2", "3", "4", "6", "7"]
    calm = np.array(rows[:5], dtype=float)
    assert as_it_was(calm, texts[:5])[0] is calm


def test_what_was_heard_of_late_is_right_for_the_next_daemon_too(tmp_path):
    world = ScriptedWorld({"1": SLEEP_S, "2": 60.0})
    loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 1), checker=Invariants)
    go_live(loop, [job_file(1), job_file(1)])
    world.go(1.0)
    steps(loop)
    for _ in range(2):
        loop.close()  # in good order: the next one begins with a snapshot and the log so far
        die(loop)
        world.go(world.now_s + AWAY_S)
        loop = make_loop(tmp_path / "rota.db", world, nodes=(1, 1), checker=Invariants)
        loop.go_live()
        steps(loop)
        world.go(world.now_s + 10.0)
        steps(loop)
    assert run_s_in_log(loop) == {"1": SLEEP_S, "2": 60.0}
    assert [loop.state.engine.jobs[number].run_s for number in (1, 2)] == [SLEEP_S, 60.0]
