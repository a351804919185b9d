"""What a daemon must not forget."""

import sqlite3
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from postgres_server import leading
from rota.core.errors import InputError, UnavailableError
from rota.core.topology import NodeSpec
from rota.daemon import database as database_module
from rota.daemon import store as store_module
from rota.daemon import tables
from rota.daemon.database import SqliteFile
from rota.daemon.seal import Seal
from rota.daemon.store import Store, StoredJob, UsedKey, counters_of
from rota.jobfile.model import GpuRange, JobFile, Resources
from rota.live.driver import NodeStatus, RunMetrics, RunStatus
from rota.live.inputs import Batch, JobRequest, Reconfigured, Submitted


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "rota.db", durable=False)
    yield made
    made.close()


@pytest.fixture(params=["file", "postgresql"])
def any_store(request):
    """Return a store of each kind."""
    if request.param == "file":
        yield request.getfixturevalue("store")
        return
    made = Store(leading(request.getfixturevalue("database")))
    yield made
    made.close()


def again(store):
    store.close()
    database = store._database
    same = Path(store.where) if isinstance(database, SqliteFile) else database
    return Store(same, durable=False)


INPUTS = (
    Submitted(1, 2),
    RunStatus("1.0", "ended", 3, asked=True, why="exit code 3"),
    NodeStatus("n0", "up", NodeSpec("n0", 4, "a100", 8.0, 64.0, ("r1",), ("fast",)), "joined"),
    RunMetrics("1.0", {"loss": 0.5}),
    JobRequest("cancel", 1, "alice"),
    Reconfigured({"policy": "srtf"}, (NodeSpec("n1", 1),), "root"),
)


def test_inputs_come_back_as_they_were(any_store):
    store = any_store
    batch = Batch(7, 1.5, INPUTS)
    store.append(batch)
    store = again(store)
    assert list(store.batches(0)) == [batch]
    assert (store.journal_number, store.last_time_s()) == (1, 1.5)
    store.close()


def test_jobs_rows_and_keys_come_with_their_batch(any_store):
    store = any_store
    file = JobFile(run="a\nb", name="é", resources=Resources(gpus=GpuRange(1, 4)), deadline="2h")
    job = StoredJob(1, "alice", 2.0, file)
    row = (2.0, 0, 1, 0, 0, 1.0, "1")
    used = UsedKey("alice", "k", 1, 1, "abc")
    store.append(Batch(1, 2.0, (Submitted(1, 1),)), [row], [job], [used])
    store = again(store)
    assert store.jobs(1, 10) == [job]
    assert store.rows(0, 10) == [(1, *row)]
    assert store.known_key("alice", "k") == used
    assert store.known_key("bob", "k") is None
    assert (store.job_number, store.log_number) == (1, 1)
    store.close()


def test_infinity_is_a_value_of_the_log(any_store):
    store = any_store
    row = (0.0, 1, 1, 0, 0, float("inf"), None)
    store.append(None, [row])
    assert store.rows(0, 1) == [(1, *row)]


def test_any_text_can_be_stored(any_store):
    texts = ["a\0b", "\\0", "\\\0", "\0\\", "\\\\", "é\n\t", ""]
    rows = [(0.0, 1, 1, 0, 2**40, 0.0, text) for text in texts]
    any_store.append(None, rows)
    assert [row[1:] for row in any_store.rows(0, 10)] == rows


def test_a_failed_append_leaves_nothing(any_store):
    store = any_store
    job = StoredJob(1, "alice", 0.0, JobFile(run="x"))
    store.append(None, [], [job])
    with pytest.raises(UnavailableError, match=r"UNIQUE|unique"):
        store.append(Batch(1, 0.0, ()), [(0.0, 0, 1, 0, 0, 0.0, None)], [job])
    assert (store.journal_number, store.log_number) == (0, 0)
    assert store.rows(0, 10) == []


def test_the_last_two_snapshots_are_kept_and_the_first_with_the_whole_journal(any_store):
    store = any_store
    store.save_snapshot(b"first")
    for number in range(1, 7):
        store.append(Batch(number, float(number), ()))
        if number % 2 == 0:
            store.save_snapshot(b"%d" % number)
    assert store.last_snapshot() == (6, b"6")
    with store.reading() as connection:
        kept = connection.execute(sa.select(tables.snapshots.c.journal_number)).scalars().all()
    assert sorted(kept) == [0, 4, 6]
    assert [batch.version for batch in store.batches(0)] == [1, 2, 3, 4, 5, 6]
    assert store.first_snapshot() == b"first"
    store = again(store)
    assert store.journal_number == 6
    with store.writing() as connection:  # as former versions did
        connection.execute(sa.delete(tables.journal).where(tables.journal.c.number < 3))
    assert store.first_snapshot() is None
    store.close()


def test_the_beginning_and_the_name_are_decided_once(any_store):
    store = any_store
    epoch, name = store.epoch_unix, store.id
    store = again(store)
    assert (store.epoch_unix, store.id) == (epoch, name)
    store.close()


def described(store):
    """Return all tables of a store: columns, keys, indexes."""
    with store.reading() as connection:
        inspector = sa.inspect(connection)
        return {
            name: (
                [{**column, "type": str(column["type"])} for column in inspector.get_columns(name)],
                inspector.get_pk_constraint(name)["constrained_columns"],
                inspector.get_indexes(name),
                inspector.get_unique_constraints(name),
                inspector.get_foreign_keys(name),
            )
            for name in inspector.get_table_names()
        }


def test_a_new_store_is_like_one_that_was_migrated_from_the_first_version(store, tmp_path):
    path = tmp_path / "old.db"
    before = sqlite3.connect(path)
    before.execute("create table alembic_version (version_num varchar(32) not null primary key)")
    before.close()
    migrated = Store(path)

    assert described(store) == described(migrated)
    migrated.close()


def test_the_tables_are_those_of_the_migrations(store):
    with store.reading() as connection:
        inspector = sa.inspect(connection)
        for table in tables.metadata.sorted_tables:
            made = {column["name"]: column for column in inspector.get_columns(table.name)}
            assert list(made) == [column.name for column in table.columns]
            for column in table.columns:
                assert str(made[column.name]["type"]) == str(column.type.compile())
                assert made[column.name]["nullable"] == column.nullable
        version = connection.execute(sa.text("select version_num from alembic_version")).scalar()
    assert version == tables.HEAD


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "rota.db"
    path.write_text("hello, this is a letter and not a data base at all" * 100)
    with pytest.raises(InputError, match="not a store of Rota"):
        Store(path)


def test_a_store_of_a_newer_version_is_refused(store):
    with store.writing() as connection:
        connection.execute(sa.text("update alembic_version set version_num = '9999'"))
    store.close()
    with pytest.raises(InputError, match="newer Rota"):
        Store(Path(store.where))


def test_a_locked_store_is_told_and_passes(store, monkeypatch):
    monkeypatch.setattr(database_module, "BUSY_MS", 50)
    quick = again(store)
    other = sqlite3.connect(store.where)
    other.execute("begin exclusive")
    with pytest.raises(UnavailableError, match="locked: nothing was accepted"):
        quick.append(Batch(1, 0.0, ()))
    other.rollback()
    other.close()
    quick.append(Batch(1, 0.0, ()))
    assert quick.journal_number == 1
    quick.close()


def with_jobs(store, count):
    for _ in range(count):
        number = store.job_number + 1
        job = StoredJob(number, "alice", 0.0, JobFile(run="x"))
        store.append(Batch(number, 0.0, (Submitted(number, 1),)), (), [job])


def test_a_store_that_went_back_in_time_is_refused(tmp_path):
    path, seal = tmp_path / "rota.db", tmp_path / "rota.seal"
    store = Store(path, durable=False)
    store.seal(seal)
    with_jobs(store, 4)
    with store.writing() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = path.read_bytes()
    with_jobs(store, 26)
    store.close()
    path.write_bytes(copy)
    store = Store(path, durable=False)
    assert store.job_number == 4
    with pytest.raises(InputError, match=r"26 of 30 jobs, 26 of 30 batches.*--accept-loss"):
        store.seal(seal)
    store.close()
    store = Store(path, durable=False)
    store.seal(seal, accept_loss=True)
    assert store.job_number == 30  # no number is given twice
    store.close()
    store = again(store)
    store.seal(seal)  # it was accepted once and for all
    store.close()


def test_another_store_in_the_same_place_is_refused(tmp_path):
    store = Store(tmp_path / "rota.db", durable=False)
    store.seal(tmp_path / "rota.seal")
    with_jobs(store, 3)
    store.close()
    for name in ("rota.db", "rota.db-wal", "rota.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    time.sleep(0.002)  # the name of a store is the millisecond of its beginning
    store = Store(tmp_path / "rota.db", durable=False)
    with pytest.raises(InputError, match="another store than the one that gave numbers to 3 jobs"):
        store.seal(tmp_path / "rota.seal")
    store.close()


def test_who_only_looks_at_a_store_knows_how_far_it_had_come(any_store, tmp_path):
    """As a daemon that stands by does: it never led, and notices that the store went back."""
    store, seal = any_store, Seal(tmp_path / "rota.seal")
    engine = store._engine
    assert seal.witness(counters_of(engine)) == ""
    with_jobs(store, 2)
    assert seal.witness(counters_of(engine)) == ""
    seen = seal.read()
    assert (seen.journal, seen.jobs, seen.audit) == (2, 2, 2)
    assert seen == counters_of(engine)
    with store.writing() as connection:  # an older copy takes its place
        for table in (tables.journal, tables.jobs, tables.audit):
            connection.execute(sa.delete(table))
    assert "missing: 2 of 2 jobs, 2 of 2 batches" in seal.witness(counters_of(engine))
    assert seal.read() == seen  # it is still known
    seal.close()
    store = again(store)
    with pytest.raises(InputError, match="went back in time: missing: 2 of 2 jobs"):
        store.seal(tmp_path / "rota.seal")
    store.close()


def test_who_looks_keeps_its_own_clocks_and_writes_only_news(store, tmp_path, monkeypatch):
    path = tmp_path / "rota.seal"
    store.seal(path)
    with_jobs(store, 1)
    seal = Seal(path)
    before = seal.read()
    assert before.boot
    store._seal = None  # from now on another daemon writes
    with_jobs(store, 1)
    assert seal.witness(counters_of(store._engine)) == ""
    after = seal.read()
    assert after.jobs == 2
    assert (after.reached_s, after.boot, after.up_s) == (
        before.reached_s, before.boot, before.up_s,
    )  # fmt: skip
    monkeypatch.setattr(seal, "write", None)
    assert seal.witness(counters_of(store._engine)) == ""
    seal.close()


def test_a_store_that_is_not_there_yet_has_no_counters(tmp_path):
    engine = SqliteFile(tmp_path / "new.db", durable=False).engine
    assert counters_of(engine) is None
    engine.dispose()


@pytest.mark.parametrize("text", ["", "nonsense", '{"store": 3}'])
def test_a_seal_that_cannot_be_read_is_made_anew(tmp_path, text):
    (tmp_path / "rota.seal").write_text(text)
    store = Store(tmp_path / "rota.db", durable=False)
    store.seal(tmp_path / "rota.seal")
    with_jobs(store, 1)
    store.close()
    assert Seal(tmp_path / "rota.seal").read().jobs == 1


DAY_S = 86_400.0


@pytest.fixture
def machine(monkeypatch):
    """Return the clocks of a machine, as a mapping that tests change."""
    clocks = {"wall_s": 1.7e9, "up_s": 500.0, "boot": "first"}
    monkeypatch.setattr(store_module, "time", lambda: clocks["wall_s"])
    monkeypatch.setattr(store_module, "boot_time_s", lambda: clocks["up_s"])
    monkeypatch.setattr(store_module, "boot_id", lambda: clocks["boot"])
    return clocks


def shown_s(store, machine):
    """What the cluster's clock shows at the start of a daemon."""
    return machine["wall_s"] - store.epoch_unix


@pytest.mark.parametrize("years", [-11, 11])
@pytest.mark.parametrize("boot", ["first", "second"])
def test_a_clock_that_jumps_by_years_passes_no_time(tmp_path, machine, caplog, years, boot):
    store = Store(tmp_path / "rota.db", durable=False)
    store.seal(tmp_path / "rota.seal")
    store.append(Batch(1, 100.0, ()))
    store.close()
    machine["wall_s"] += years * 365 * DAY_S + 60
    machine["boot"] = boot
    machine["up_s"] = machine["up_s"] + 60 if boot == "first" else 5.0
    store = again(store)
    store.seal(tmp_path / "rota.seal")
    passed_s = shown_s(store, machine) - 100.0
    assert passed_s == pytest.approx(60 if boot == "first" else 0, abs=1e-3)
    assert f"set by {years * 365} days" in caplog.text
    store.append(Batch(2, 170.0, ()))
    store.close()
    machine["wall_s"] -= years * 365 * DAY_S  # and back
    machine["up_s"] += 30
    store = again(store)
    store.seal(tmp_path / "rota.seal")
    assert shown_s(store, machine) - 170.0 == pytest.approx(30, abs=1e-3)
    store.close()


@pytest.mark.parametrize("boot", ["first", "second"])
@pytest.mark.parametrize("away_s", [60.0, 30 * DAY_S])
def test_a_daemon_that_was_down_has_missed_that_time(tmp_path, machine, caplog, boot, away_s):
    store = Store(tmp_path / "rota.db", durable=False)
    store.seal(tmp_path / "rota.seal")
    machine["wall_s"] += 100.0
    machine["up_s"] += 100.0
    store.append(Batch(1, 100.0, ()))
    store.close()
    machine["wall_s"] += away_s
    machine["boot"] = boot
    machine["up_s"] = machine["up_s"] + away_s if boot == "first" else 5.0
    store = again(store)
    store.seal(tmp_path / "rota.seal")
    assert shown_s(store, machine) - 100.0 == pytest.approx(away_s, abs=1e-3)
    assert not caplog.text
    store.close()


def test_a_start_that_fails_after_days_moves_nothing(tmp_path, machine, caplog):
    store = Store(tmp_path / "rota.db", durable=False)
    store.seal(tmp_path / "rota.seal")
    machine["wall_s"] += 100.0
    machine["up_s"] += 100.0
    store.append(Batch(1, 100.0, ()))
    epoch = store.epoch_unix
    for _ in range(3):  # each ends before its first batch
        store.close()
        machine["wall_s"] += 3 * DAY_S
        machine["up_s"] += 3 * DAY_S
        store = again(store)
        store.seal(tmp_path / "rota.seal")
    assert store.epoch_unix == epoch
    assert not caplog.text
    store.close()


def test_a_seal_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch, caplog):
    store = Store(tmp_path / "rota.db", durable=False)
    store.seal(tmp_path / "rota.seal")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Seal, "write", full)
    with_jobs(store, 2)
    assert store.job_number == 2
    assert "No space left" in caplog.text
    store.close()
