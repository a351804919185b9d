"""The care of a store in a PostgreSQL database."""

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from postgres_server import leading
from rota.cli.store import store as store_command
from rota.core.errors import ConflictError, InputError
from rota.daemon import retention, shared_upkeep, tables, upkeep
from rota.daemon.retention import Pruner
from rota.daemon.settings import Retention, Settings
from rota.daemon.store import Store

KEPT = Retention(jobs_count=1)


@pytest.fixture
def lived(new_daemon, alice, file, database):
    """A database in which a daemon has worked; it has ended."""
    place = leading(database)
    with new_daemon(place, settings=Settings(retention=KEPT)) as daemon:
        jobs = daemon.submit([file(lasts=0, name="odd \\ \\0 name") for _ in range(5)], alice)
        while daemon.jobs(alice, active=True):
            daemon.wait_events(daemon.store.log_number - 1, 60)
        jobs += daemon.submit([file(lasts=1e6)], alice)
        daemon.forget_ended()
        daemon.note("time goes on")
        daemon.forget_ended()
    place._lease.give_up()
    place.engine.dispose()
    return database


def rows(store):
    with store.reading() as connection:
        return {
            table.name: sorted(connection.execute(sa.select(table)).all(), key=repr)
            for table in tables.metadata.sorted_tables
        }


def test_a_copy_is_a_file_and_comes_back(lived, tmp_path, new_daemon, alice):
    copy = tmp_path / "state" / "rota.db"
    copy.parent.mkdir(mode=0o700)
    shared_upkeep.backup(lived, copy)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert upkeep.check(copy.parent) == []
    assert shared_upkeep.check(lived) == []
    kept = Store(copy, durable=False)
    before = rows(kept)
    kept.close()
    with new_daemon(leading(lived)) as daemon:
        daemon.cancel("6", alice)
        with pytest.raises(ConflictError, match=r"http://127.0.0.1:1 leads: stop all daemons"):
            shared_upkeep.restore(lived, copy)
        daemon.store._database._lease.give_up()
        daemon.abandon()
    set_aside = shared_upkeep.restore(lived, copy)
    assert set_aside.exists()
    with shared_upkeep._reading(lived) as store:
        assert rows(store) == before
    with new_daemon(leading(lived)) as daemon:
        assert daemon.job("6", alice).state == "RUNNING", "as when it was copied"
        assert daemon.job("5", alice).name == "odd \\ \\0 name"
        daemon.store._database._lease.give_up()
        daemon.abandon()


def test_jobs_are_removed_in_steps(lived, monkeypatch):
    monkeypatch.setattr(retention, "STEP", 2)
    promised = shared_upkeep.prune(lived, KEPT, really=False)
    assert promised.jobs == 4
    assert shared_upkeep.prune(lived, KEPT, really=True) == promised
    assert not shared_upkeep.prune(lived, KEPT, really=False)
    assert shared_upkeep.check(lived) == []


def test_nobody_writes_who_does_not_lead(lived):
    with shared_upkeep._reading(lived) as store, pytest.raises(Exception, match="another daemon"):
        Pruner(store, KEPT).prune()


def test_commands(lived, tmp_path, database):
    def run(*words):
        return CliRunner().invoke(store_command, [*words, "--store", lived])

    assert run("check").output == "sound\n"
    assert " alice " in run("audit").output.splitlines()[0]
    assert run("repair").output == "there was nothing to mend\n"
    assert "4 jobs" in run("prune", "--dry-run").output
    assert run("backup", str(tmp_path / "copy.db")).exit_code == 0
    assert isinstance(run("backup", str(tmp_path / "copy.db")).exception, Exception)
    restored = run("restore", str(tmp_path / "copy.db"))
    assert "the store as it was is" in restored.output
    with shared_upkeep._led(lived) as (place, _), place.engine.begin() as connection:
        connection.execute(sa.update(tables.snapshots).values(state=b"damaged"))
    assert "cannot be read" in run("check").output


def test_other_databases_are_refused(database, tmp_path):
    with pytest.raises(InputError, match="there is no store of Rota in this database"):
        shared_upkeep.check(database)
    with pytest.raises(Exception, match="is the server there"):
        shared_upkeep.backup("postgresql://nobody@127.0.0.1:1/none", tmp_path / "copy.db")
    (tmp_path / "odd.db").write_text("no store")
    with pytest.raises(InputError, match="use another copy"):
        shared_upkeep.restore(database, tmp_path / "odd.db")
