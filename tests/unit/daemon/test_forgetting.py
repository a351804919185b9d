"""Jobs that ended long ago are forgotten and removed, and nothing else changes by that."""

import random
import signal
import subprocess
import sys
import time
from itertools import product

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from rota.cli.usage import usage
from rota.core.errors import ConflictError, InputError, NotFoundError
from rota.daemon import loop as loop_module
from rota.daemon import retention, tables
from rota.daemon.export import export_stored, write_export
from rota.daemon.forgotten import Forgotten
from rota.daemon.retention import Pruner
from rota.daemon.settings import Retention, Settings
from rota.daemon.store import Store
from rota.daemon.upkeep import check
from rota.engine.invariants import Invariants
from rota.engine.snapshot import freeze
from rota.live.inputs import JobRequest, NodeRequest, Reconfigured
from rota.metrics import fold_jobs
from scripted import Power, Script, ScriptedWorld, a_day, drive, job_file, make_loop
from thinning import first, thinned

POLICIES = [
    "tiresias:limits=8/40", "conservative", "capacity", "qssf:estimate=user", "drf", "gavel-ftf",
    "themis", "slurm", "pollux", "gandiva-fair",
]  # fmt: skip
FORGETFUL = ["fifo", "srtf", "easy", "las"]
"""They remember nothing of jobs that are over."""
KEPT = Retention(jobs_count=1)


def forgetting(numbers, at_s):
    return at_s, Reconfigured(forget=((1, numbers),), since_s=at_s, by="retention")


def a_forgetful_day(seed):
    work, entries = a_day(seed)
    return work, [*entries, *(forgetting(n, t) for n, t in ((8, 14.0), (14, 29.0), (25, 45.0)))]


def rows_of(store):
    return {row[0]: row[1:] for row in store.rows(0, 10**9)}


# --- the same decisions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "seed"), [*thinned(POLICIES, range(3)), *first(1, product(FORGETFUL, range(3)))]
)
def test_a_crash_after_forgetting_changes_no_later_decision(policy, seed, tmp_path, monkeypatch):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 6)
    monkeypatch.setattr(retention, "STEP", 3)
    work, entries = a_forgetful_day(seed)
    calm = ScriptedWorld(work)
    expected = make_loop(tmp_path / "calm.db", calm, policy=policy, checker=Invariants)
    drive(expected, calm, Script(entries))
    assert len(expected.state.forgotten) > 10

    dice = random.Random(seed)  # noqa: S311
    world, script, committed = ScriptedWorld(work), Script(entries), []
    crashes = 0
    while True:
        loop = make_loop(tmp_path / "crash.db", world, policy=policy, checker=Invariants)
        loop.wanted = loop.state.scheduling
        dies_at_a_commit(loop, dice.randrange(1, 14), committed)
        try:
            drive(loop, world, script)
        except Power:
            crashes += 1
            world.listener = None
            Pruner(loop.store, KEPT).prune()
            loop.store.close()
            script.forget_committed(loop.store.job_number, committed)
        else:
            break
    assert crashes > 3
    assert len(set(world.launched)) == len(world.launched)
    whole, pruned = rows_of(expected.store), rows_of(loop.store)
    assert max(whole) == max(pruned)
    assert len(pruned) < len(whole)
    assert {number: whole[number] for number in pruned} == pruned
    gone = {job for job in range(1, 26) if job in loop.state.forgotten}
    of_jobs = {n for n, row in whole.items() if row[2] >= 0 and row[2] not in gone}
    assert of_jobs <= pruned.keys(), "only rows of forgotten jobs are missing"
    assert frozen(loop) == frozen(expected)
    loop.store.close()
    expected.store.close()


def frozen(loop):
    state = freeze(loop.state.engine)
    del state["cluster"]["runs"]["ports"]  # daemons on one machine begin at different places
    return state, loop.state.projection.snapshot(), loop.state.forgotten


def dies_at_a_commit(loop, fuse, committed):
    append = loop.store.append

    def failing(batch, *args, **kwargs):
        nonlocal fuse
        append(batch, *args, **kwargs)
        if batch is not None:
            fuse -= 1
            kinds = (JobRequest, NodeRequest, Reconfigured)
            committed.extend(i for i in batch.inputs if isinstance(i, kinds))
        if fuse == 0:
            raise Power

    loop.store.append = failing


def test_shapes_keep_their_numbers(tmp_path):
    entries = [
        *((0.0, job_file(gpus)) for gpus in (2, 3)),
        (5.0, job_file(4)),
        forgetting(2, 10.0),
        *((12.0, job_file(gpus)) for gpus in (1, 3)),
    ]
    worlds = [ScriptedWorld({str(n): 3.0 for n in range(1, 6)}) for _ in range(2)]
    calm = make_loop(tmp_path / "calm.db", worlds[0])
    drive(calm, worlds[0], Script(entries))
    loop = make_loop(tmp_path / "twice.db", worlds[1])
    drive(loop, worlds[1], Script(entries[:4]))
    loop.close()
    loop.store.close()
    loop = make_loop(tmp_path / "twice.db", worlds[1])
    drive(loop, worlds[1], Script(entries[4:]))
    assert rows_of(loop.store) == rows_of(calm.store)
    assert [job.shape.number for job in loop.state.engine.jobs.values()] == [2, 3, 1]
    assert list(loop.state.engine.jobs) == [3, 4, 5]
    for each in (loop, calm):
        each.store.close()


# --- what is kept ---------------------------------------------------------------------------------


def settle(daemon, jobs, actor):
    """Until these jobs are over."""
    after = 0
    unfinished = ("PENDING", "STARTING", "RUNNING")
    while any(daemon.job(job.id, actor).state in unfinished for job in jobs):
        daemon.wait_events(after, 60)
        after = daemon.store.log_number


FORGETFUL = Settings(retention=KEPT)


def test_what_unfinished_jobs_need_stays(running, alice, file):
    with running(settings=FORGETFUL) as daemon:
        first, grouped, other = daemon.submit(
            [file(lasts=0), file(lasts=0, group="search"), file(lasts=0)], alice
        )
        settle(daemon, (first, grouped, other), alice)
        needs, trial, held = daemon.submit(
            [
                file(lasts=0, depends_on=(first.id,), hold=True),
                file(lasts=1e6, group="search"),
                file(lasts=0, hold=True),
            ],
            alice,
        )
        assert daemon.forget_ended() == 0, "one is kept, and the others are needed"
        daemon.cancel(trial.id, alice)
        while daemon._ask(lambda: bool(daemon.state.cluster.runs.by_id)):
            time.sleep(0.01)  # it is being stopped
        late = daemon.submit([file(lasts=0)], alice)
        settle(daemon, late, alice)
        assert daemon.forget_ended() == 3
        assert [job.id for job in daemon.jobs(alice)] == [first.id, needs.id, held.id, late[0].id]
        daemon.release(needs.id, alice)
        settle(daemon, [needs], alice)
        assert daemon.job(needs.id, alice).state == "SUCCEEDED"


def test_a_dependency_that_comes_at_the_last_moment_stays(tmp_path):
    """It is accepted after the choice was made whom to forget."""
    world = ScriptedWorld({"1": 1.0, "2": 1.0, "3": 1.0})
    loop = make_loop(tmp_path / "s.db", world)
    script = Script(
        [
            (0.0, job_file()),
            (0.0, job_file()),
            (9.0, job_file(depends_on=("1",))),
            forgetting(2, 9.0),
        ]
    )
    drive(loop, world, script)
    assert sorted(loop.state.engine.jobs) == [1, 3]
    assert loop.state.engine.jobs[3].end_s < 20.0, "it was not kept waiting"
    loop.store.close()


def test_what_is_forgotten_is_named(running, alice, bob, file, tmp_path):
    with running(settings=FORGETFUL) as daemon:
        jobs = [daemon.submit([file(lasts=0)], alice, key=str(n))[0] for n in range(4)]
        settle(daemon, jobs, alice)
        daemon.forget_ended()
        assert [job.id for job in daemon.jobs(alice)] == [jobs[-1].id]
        for ask in (daemon.job, daemon.explain, daemon.when, daemon.cancel):
            with pytest.raises(NotFoundError, match="job 1 is over and was forgotten"):
                ask("1", bob)
        with pytest.raises(ConflictError, match="jobs that are over and were forgotten"):
            daemon.submit([file(lasts=0)], alice, key="0")
        with pytest.raises(InputError, match="you have no such job"):
            daemon.submit([file(depends_on=("1",))], alice)
        assert daemon.status()["forgotten"] == 3
        acts = [(line.actor, line.act) for line in daemon.store.audit(0, 100)]
        assert ("retention", "forget up to 3 jobs that ended, 1 and later") in acts
        assert daemon.status()["history_since"] > daemon.store.epoch_unix
        assert daemon.expired(["1", "4", "77"]) == [], "folders are kept for ever"
        kept = Retention(jobs_count=1, folders_days=30)
        daemon._settings = Settings(retention=kept)
        assert daemon.expired(["1", "4", "77"]) == ["1"]
        assert daemon.forget_ended() == 0


# --- removed from the store -----------------------------------------------------------------------


def a_pruned_life(running, alice, file, jobs=9):
    """A daemon that forgot most jobs, with a snapshot more; yields it and what was known before."""
    with running(settings=FORGETFUL) as daemon:
        made = daemon.submit([file(lasts=0) for _ in range(jobs)], alice)
        settle(daemon, made, alice)
        runs = daemon.submit([file(lasts=1e6), file(gpus=4, lasts=0)], alice)
        export = daemon.export()
        assert daemon.forget_ended() == jobs - 1
        pruner = Pruner(daemon.store, KEPT)
        assert not pruner.look().jobs, "the older one of the snapshots knows them"
        daemon.note("time goes on")
        assert daemon.forget_ended() == 0
        return made, runs, export


def test_removed_when_no_snapshot_needs_them(running, alice, file, tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "STEP", 4)
    made, runs, before = a_pruned_life(running, alice, file)
    store = Store(tmp_path / "rota.db", durable=False)
    store.seal(tmp_path / "rota.seal")
    pruner = Pruner(store, KEPT)
    promised = pruner.look()
    assert promised.jobs == 8
    assert promised.rows > 3 * 8
    assert pruner.prune() == promised
    assert not pruner.look()
    assert [job.number for job in store.jobs(1, 100)] == [9, 10, 11]
    store.close()
    assert check(tmp_path) == []
    after = export_stored(tmp_path)
    names = ["job_id", "submit_s", "start_s", "wait_s", "gpus"]
    known = [job.id for job in made[-1:]]
    old, new = (
        fold_jobs(each.log).filter(fold_jobs(each.log)["job_id"].is_in(known))
        for each in (before, after)
    )
    assert old.equals(new), names
    with running(settings=FORGETFUL) as daemon:
        daemon.store.seal(tmp_path / "rota.seal")  # nothing went back in time
        assert [job.id for job in daemon.jobs(alice)] == [made[-1].id, *(job.id for job in runs)]
        assert daemon.job(runs[0].id, alice).state == "RUNNING"
        assert daemon.explain(runs[1].id, alice).reason == "capacity"
        assert daemon.when(runs[1].id, alice, runs=2).id == runs[1].id
        (new,) = daemon.submit([file(lasts=0)], alice)
        assert int(new.id) == int(runs[-1].id) + 1
        settle(daemon, [new], alice)
        for job in runs:
            daemon.cancel(job.id, alice)
        while daemon._ask(lambda: bool(daemon.state.cluster.runs.by_id)):
            time.sleep(0.01)
        daemon.forget_ended()
        daemon.note("time goes on")
        daemon.forget_ended()
        Pruner(daemon.store, KEPT).prune()
        daemon.abandon()
    assert check(tmp_path) == []
    with running(settings=FORGETFUL) as daemon:
        last = daemon.jobs(alice)[-1]
        assert len(daemon.jobs(alice)) == 2, "the newest, and the one that ended last"
        (new,) = daemon.submit([file(lasts=0)], alice)
        assert int(new.id) == int(last.id) + 1, "numbers are not given again"


def test_histories_say_where_they_begin(running, alice, file, tmp_path):
    a_pruned_life(running, alice, file)
    store = Store(tmp_path / "rota.db", durable=False)
    Pruner(store, KEPT).prune()
    store.close()
    (tmp_path / "out").mkdir()
    notes = write_export(export_stored(tmp_path), tmp_path / "out")
    assert any("the history reaches back to 20" in note for note in notes)
    told = CliRunner().invoke(usage, [str(tmp_path)])
    assert told.exit_code == 0
    assert "the history reaches back to" in told.stderr


def test_rows_that_go_missing_otherwise_are_found(running, alice, file, tmp_path):
    a_pruned_life(running, alice, file)
    store = Store(tmp_path / "rota.db", durable=False)
    Pruner(store, KEPT).prune()
    with store.writing() as connection:
        row = sa.select(sa.func.min(tables.log.c.number)).where(tables.log.c.job == 9)
        number = connection.execute(row).scalar()
        connection.execute(sa.delete(tables.log).where(tables.log.c.number == number))
    store.close()
    assert "1 rows of the log" in check(tmp_path)[0]


KILLED = """
import sys
from pathlib import Path
from rota.daemon import retention
from rota.daemon.store import Store
retention.STEP = 1
store = Store(Path(sys.argv[1]), durable=False)
left = 4
def widen(*args, before=retention.widen_gaps):
    global left
    left -= 1
    before(*args)
    if not left:  # in the middle of a transaction
        print("removes", flush=True)
        sys.stdin.read()
retention.widen_gaps = widen
retention.Pruner(store, retention.Retention(jobs_count=1)).prune()
"""


def test_a_killed_pruning_leaves_a_sound_store(running, alice, file, tmp_path):
    a_pruned_life(running, alice, file)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "rota.db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "removes\n"
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    process.stdout.close()
    process.stdin.close()
    assert check(tmp_path) == []
    with running(settings=FORGETFUL) as daemon:
        assert [job.id for job in daemon.jobs(alice)] == ["9", "10", "11"]
        left = Pruner(daemon.store, KEPT).prune()
        assert left.jobs == 8 - 3, "the fourth was not committed"
        assert daemon.store.count_jobs() == 3
    assert check(tmp_path) == []


def test_numbers_in_ranges():
    found = Forgotten()
    found.add([3, 1, 2, 9], 5.0)
    found.add([4, 8, 20], 3.0)
    assert found.ranges == [(1, 4), (8, 9), (20, 20)]
    assert [n for n in range(-1, 25) if n in found] == [1, 2, 3, 4, 8, 9, 20]
    assert (len(found), found.since_s) == (7, 5.0)
