"""The store of a daemon from before it was hardened: it was killed while a job ran."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rota.core.errors import InputError
from rota.core.jobs import Phase
from rota.core.topology import Topology
from rota.daemon import tables
from rota.daemon.loop import DaemonLoop
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store
from scripted import ScriptedDriver, ScriptedWorld

MADE = Path(__file__).parents[2] / "old_states" / "before_walls.sql"  # by that daemon


@pytest.fixture
def path(tmp_path):
    """Return the store as that daemon left it."""
    path = tmp_path / "rota.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(MADE.read_text())
    return path


def test_it_is_migrated_and_every_job_is_where_it_was(path):
    store = Store(path, durable=False)
    store.seal(path.with_name("rota.seal"))
    loop = DaemonLoop(
        store, ScriptedDriver(ScriptedWorld({})), Scheduling(), Topology.uniform(2, 2)
    )
    jobs = loop.state.engine.jobs
    assert {job.spec.name: job.phase for job in jobs.values() if job.parent is None} == {
        "done": Phase.DONE, "bad": Phase.FAILED, "runs": Phase.RUNNING, "waits": Phase.WAITING,
    }  # fmt: skip
    assert [token.name for token in store.tokens()] == ["ann", "local"]
    assert loop.journal.next_number() == 5
    with store.reading() as connection:
        version = connection.exec_driver_sql("select version_num from alembic_version").scalar()
    assert version == tables.HEAD
    loop.snapshot()
    store.close()
    again = Store(path, durable=False)
    again.seal(path.with_name("rota.seal"))
    assert again.last_snapshot()[0] == store.journal_number
    again.close()


def test_one_of_a_version_that_is_not_known_yet_is_refused_with_both_versions_named(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
        connection.commit()
    with pytest.raises(InputError, match=f"version 9999.*this one reads up to {tables.HEAD}"):
        Store(path)
