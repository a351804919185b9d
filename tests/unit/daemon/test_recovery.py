"""Recovery: snapshots of other versions, journals that are pruned, changes of the placement."""

import sqlite3
import zlib
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from rota.core.errors import ClusterError, InputError
from rota.core.jobs import RUNNING, WAITING
from rota.core.topology import NodeSpec
from rota.daemon import journal, recovery, tables
from rota.daemon import loop as loop_module
from rota.daemon.recovery import ENGINE_VERSION, pack
from rota.daemon.recovery import VERSION as SNAPSHOT_VERSION
from rota.daemon.store import Store
from rota.engine.invariants import Invariants
from rota.live.inputs import Reconfigured
from scripted import Script, ScriptedWorld, a_day, drive, job_file, make_loop

STORES = Path(__file__).parent / "stores"
TIRESIAS = "tiresias:limits=8/40"


def logged(loop):
    return [row[1:] for row in loop.store.rows(0, 10**9)]


def lived_twice(path, world, script):
    """Two lives with a graceful stop each, so that no snapshot but the first is near the start."""
    for _ in range(2):
        loop = make_loop(path, world, policy=TIRESIAS)
        loop.wanted = loop.state.scheduling  # it is changed by the script too
        drive(loop, world, script)
        loop.close()
        expected = logged(loop), pack(loop.state)
        loop.store.close()
    return expected


def a_lived_store(path):
    work, entries = a_day(1)
    world = ScriptedWorld(work)
    return world, *lived_twice(path, world, Script(entries))


def change_snapshots(path, change):
    """Let all snapshots be other ones."""
    store = Store(path, durable=False)
    with store.writing() as connection:
        table = tables.snapshots
        for number, packed in connection.execute(sa.select(table)).all():
            where = table.c.journal_number == number
            connection.execute(sa.update(table).where(where).values(state=change(packed)))
    store.close()


def age_snapshots(path, **changes):
    """Let all snapshots be of another version."""

    def aged(packed):
        saved = msgspec.msgpack.decode(zlib.decompress(packed)) | changes
        return zlib.compress(msgspec.msgpack.encode(saved))

    change_snapshots(path, aged)


def prune(path):
    """Drop the beginning of the journal, as older versions did."""
    store = Store(path, durable=False)
    with store.writing() as connection:
        connection.execute(sa.delete(tables.journal).where(tables.journal.c.number < 3))
    store.close()


@pytest.mark.parametrize(
    "changes",
    [{"engine_version": 1, "engine": {"unreadable": True}}, {"version": 7}, {"engine": 7}],
    ids=["engine", "format", "unreadable"],
)
def test_the_journal_rebuilds_a_snapshot_of_another_version(changes, tmp_path):
    world, log, state = a_lived_store(tmp_path / "s.db")
    age_snapshots(tmp_path / "s.db", **changes)
    loop = make_loop(tmp_path / "s.db", world, policy=TIRESIAS)
    assert loop.state.engine.jobs
    ours, theirs = (recovery.unpack(packed, loop.store) for packed in (pack(loop.state), state))
    ours.engine["cluster"]["now_s"] = theirs.engine["cluster"]["now_s"]  # that of the last batch
    assert ours == theirs
    loop.journal.flush()
    assert logged(loop) == log
    loop.store.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine_version": 1}, f"of version 1, this Rota reads {ENGINE_VERSION}"),
        ({"engine_version": 99}, f"of version 99, this Rota reads {ENGINE_VERSION}"),
        ({"version": 7}, f"snapshot is of version 7, this Rota reads {SNAPSHOT_VERSION}"),
    ],
)
def test_without_the_whole_journal_both_versions_are_named(changes, message, tmp_path):
    world, *_ = a_lived_store(tmp_path / "s.db")
    age_snapshots(tmp_path / "s.db", **changes)
    prune(tmp_path / "s.db")
    with pytest.raises(InputError, match=rf"{message}.*use the version that wrote it"):
        make_loop(tmp_path / "s.db", world)


def test_a_damaged_snapshot_is_rebuilt_only_if_the_beginning_can_be_read(tmp_path):
    world, *_ = a_lived_store(tmp_path / "s.db")
    change_snapshots(tmp_path / "s.db", lambda packed: packed[:-9])
    with pytest.raises(InputError, match="its snapshot cannot be read"):
        make_loop(tmp_path / "s.db", world)


def test_a_damaged_newest_snapshot_falls_back_to_the_older_one(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 5)
    world, _, state = a_lived_store(tmp_path / "s.db")
    store = Store(tmp_path / "s.db", durable=False)
    (newest, packed), (older, _), *_ = store.snapshots()
    assert newest > older > 0
    with store.writing() as connection:
        where = tables.snapshots.c.journal_number == newest
        connection.execute(sa.update(tables.snapshots).where(where).values(state=packed[:-9]))
    store.close()
    loop = make_loop(tmp_path / "s.db", world, policy=TIRESIAS)
    assert loop.journal.since_snapshot == newest - older
    ours, theirs = (recovery.unpack(each, loop.store) for each in (pack(loop.state), state))
    ours.engine["cluster"]["now_s"] = theirs.engine["cluster"]["now_s"]  # that of the last batch
    assert ours == theirs
    assert "its snapshot cannot be read" in caplog.text
    assert next(number for number, _ in loop.store.snapshots()) == older  # the bad one is gone
    loop.store.close()


@pytest.mark.parametrize("wrong", [{}, {"log": {"taken": 0}}, {"log": {"taken": "x"}}])
def test_a_snapshot_that_makes_no_sense_is_as_good_as_none(wrong, tmp_path):
    world, log, _ = a_lived_store(tmp_path / "s.db")
    age_snapshots(tmp_path / "s.db", engine=wrong)
    loop = make_loop(tmp_path / "s.db", world, policy=TIRESIAS)
    loop.journal.flush()
    assert logged(loop) == log
    loop.store.close()


def test_a_replay_that_differs_is_refused_and_compared_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "PIECE", 7)
    world, log, _ = a_lived_store(tmp_path / "s.db")
    age_snapshots(tmp_path / "s.db", version=7)
    asked = []
    rows = Store.rows

    def counted(store, after, limit, job=None):
        asked.append(limit)
        return rows(store, after, limit, job)

    monkeypatch.setattr(Store, "rows", counted)
    loop = make_loop(tmp_path / "s.db", world, policy=TIRESIAS)
    assert max(asked) <= 7
    assert sum(asked) >= len(log)
    loop.store.close()
    store = Store(tmp_path / "s.db", durable=False)
    with store.writing() as connection:
        where = tables.log.c.number == len(log) // 2
        connection.execute(sa.update(tables.log).where(where).values(value=4711.0))
    store.close()
    with pytest.raises(ClusterError, match=f"row {len(log) // 2} of the log .* replaying"):
        make_loop(tmp_path / "s.db", world, policy=TIRESIAS)


# --- stores of the last version that pruned its journal -------------------------------------------


def drive_until(loop, world, script, until_s):
    """Work until the first batch at or after this time."""

    def wait_s(limit_s):
        world.go(min(limit_s, world.next_s(), script.next_s()))
        script.speak(loop, world.now_s)
        return 0.0

    loop._clock.wait_s = wait_s
    loop.go_live()
    script.speak(loop, world.now_s)
    while world.now_s < until_s:
        loop.step()


@pytest.mark.parametrize(("policy", "name"), [(TIRESIAS, "tiresias"), ("easy", "easy")])
def test_a_store_of_the_version_that_pruned_its_journal_is_migrated(policy, name, tmp_path):
    """The stores were written by that version at 16 s of the same day."""
    logs = {}
    for who in ("ours", "theirs"):
        work, entries = a_day(1)
        world, script, path = ScriptedWorld(work), Script(entries), tmp_path / f"{who}.db"
        for until_s in (6.0, 16.0):
            loop = make_loop(path, world, policy=policy)
            drive_until(loop, world, script, until_s)
            loop.close()
            loop.store.close()
        if who == "theirs":
            for part in tmp_path.glob("theirs.db*"):
                part.unlink()
            with sqlite3.connect(path) as connection:
                connection.executescript((STORES / f"engine_state_2_{name}.sql").read_text())
            connection.close()
        loop = make_loop(path, world, policy=policy, checker=Invariants)
        drive(loop, world, script)
        logs[who] = logged(loop)
        loop.store.close()
    assert logs["theirs"] == logs["ours"]


# --- another placement ----------------------------------------------------------------------------


def split_in_two(policy):
    """One GPU of each of two nodes is in use, and a job waits for two."""
    work = {"1": 100.0, "2": 100.0, "3": 5.0}
    world = ScriptedWorld(work)
    nodes = [NodeSpec("a", 2), NodeSpec("b", 2)]
    return world, nodes, {"policy": policy, "placement": "spread"}


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "las", "easy"])
def test_what_fits_by_another_placement_starts_at_once(policy, tmp_path):
    world, nodes, scheduling = split_in_two(policy)
    script = Script(
        [
            (0.0, Reconfigured(scheduling, by="me")),
            (1.0, job_file(1, estimate=100.0)),
            (2.0, job_file(1, estimate=100.0)),
            (3.0, Reconfigured({"policy": policy, "placement": "consolidate"}, by="me")),
            (4.0, job_file(2, estimate=5.0)),
            (10.0, Reconfigured(scheduling, by="me")),
        ]
    )
    loop = make_loop(tmp_path / "s.db", world, policy=policy, nodes=nodes, checker=Invariants)
    drive_until(loop, world, script, 9.0)
    third = loop.state.engine.jobs[3]
    assert third.phase == WAITING
    drive_until_phase(loop, third)
    assert third.start_s == 10.0
    loop.store.close()


def test_another_placement_is_used_after_a_restart_right_after_the_change(tmp_path):
    world, nodes, scheduling = split_in_two("fifo")
    path = tmp_path / "s.db"
    script = Script(
        [(1.0, job_file(1)), (2.0, job_file(1)), (3.0, job_file(2))]  # the third finds no one node
    )
    loop = make_loop(path, world, policy="fifo", nodes=nodes)
    loop.wanted = msgspec.convert(scheduling, type(loop.wanted))
    drive_until(loop, world, script, 2.2)
    loop.reconfigure(Reconfigured({"policy": "fifo", "placement": "consolidate"}, by="me"))
    while 3 not in loop.state.engine.jobs:
        loop.step()
    assert loop.state.engine.jobs[3].phase == WAITING
    loop.reconfigure(Reconfigured(scheduling, by="me"))
    loop.close()
    loop.store.close()
    loop = make_loop(path, world, policy="fifo", nodes=nodes)
    loop.wanted = loop.state.scheduling
    drive_until(loop, world, script, world.now_s + 1.0)
    assert loop.state.engine.jobs[3].start_s == 3.0
    loop.store.close()


def drive_until_phase(loop, job):
    for _ in range(10):
        if job.phase == RUNNING:
            return
        loop.step()


def test_what_a_placement_learnt_is_kept_with_it_and_not_handed_to_another(tmp_path):
    world = ScriptedWorld({"1": 5.0, "2": 5.0})
    loop = make_loop(tmp_path / "s.db", world)

    def learnt(**scheduling):
        change = Reconfigured({"policy": "fifo-skip", "placement": "fgd"} | scheduling, by="me")
        loop.reconfigure(change)
        return loop.state.engine.scheduler.placement.snapshot()["fields"]["asked"]

    assert learnt() == []
    loop.wanted = loop.state.scheduling
    drive(loop, world, Script([(0.5, job_file(1)), (1.0, job_file(1))]))
    assert [count for _, count in learnt(queues=[{"name": "a", "weight": 2}])] == [2]
    assert learnt(seed=1) == []
    loop.store.close()


def test_jobs_are_remade_as_they_were_whatever_the_placement_is_now(tmp_path):
    """`skew` tells models apart: those that came before it are not told apart afterwards."""
    path = tmp_path / "s.db"
    world = ScriptedWorld({str(number): 50.0 for number in range(1, 5)})
    scheduling = {"policy": "fifo-skip", "placement": "skew"}
    script = Script(
        [
            (1.0, job_file(2, model="vgg16")),
            (2.0, Reconfigured(scheduling, by="me")),
            (3.0, job_file(2, model="vgg16")),
            (4.0, job_file(1)),
        ]
    )
    loop = make_loop(path, world, nodes=(2, 4))
    drive_until(loop, world, script, 4.0)
    loop.step()
    before = shapes_of(loop)
    assert before[1] != before[2]
    loop.close()
    loop.store.close()
    loop = make_loop(path, world, nodes=(2, 4), checker=Invariants)
    assert shapes_of(loop) == before
    loop.store.close()


def shapes_of(loop):
    jobs = loop.state.engine.jobs
    return {index: (job.shape.number, job.shape.request) for index, job in jobs.items()}
