"""A store is copied, checked, mended and put back; who did what cannot be changed unnoticed."""

import sqlite3
from contextlib import closing

import pytest

from rota.core.errors import ConflictError, InputError, OutputError
from rota.core.topology import Topology
from rota.daemon import upkeep
from rota.daemon.folder import StateFolder
from rota.daemon.loop import DaemonLoop
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store, StoredJob
from rota.jobfile.model import JobFile
from rota.live.inputs import Batch, JobRequest, NodeRequest, Noted, Submitted
from scripted import ScriptedDriver, ScriptedWorld

ACTS = [
    ("alice", "submit job 1"),
    ("bob", "cancel job 1"),
    ("root", "drain node n0"),
    ("", "token 'x' revoked by root"),
]


def append(store, number, *inputs, jobs=()):
    store.append(Batch(number, float(number), inputs), (), jobs)


@pytest.fixture
def state(tmp_path):
    """Return a state folder in which some have done something."""
    folder = tmp_path / "state"
    with StateFolder(folder) as made:
        store = Store(made.store, durable=False)
        store.seal(made.seal)
        DaemonLoop(store, ScriptedDriver(ScriptedWorld({})), Scheduling(), Topology.uniform(1, 1))
        job = StoredJob(1, "alice", 0.0, JobFile(run="x"))
        append(store, 1, Submitted(1, 1), jobs=[job])
        append(store, 2, JobRequest("cancel", 1, "bob"), NodeRequest("drain", "n0", "root"))
        append(store, 3, Noted("token 'x' revoked by root"))
        store.close()
    return folder


def change(state, statement):
    with closing(sqlite3.connect(state / "rota.db")) as connection:
        connection.execute(statement)
        connection.commit()


def test_who_did_what_is_written_with_it_and_the_store_is_sound(state):
    assert [(line.actor, line.act) for line in upkeep.audit_lines(state)] == ACTS
    assert upkeep.check(state) == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("update audit set actor = 'carol' where number = 2", "line 2 of the audit log was"),
        ("update audit set at_unix = at_unix - 1 where number = 1", "line 1 of the audit log was"),
        ("delete from audit where number = 1", "line 1 of the audit log was"),
        ("delete from audit where number = 4", "line 4 of the audit log is not the one that"),
        ("update snapshots set state = x'00'", "cannot be read"),
    ],
)
def test_what_was_tampered_with_is_found(state, statement, finding):
    change(state, statement)
    assert finding in "\n".join(upkeep.check(state))


def pages(store, limit):
    """The audit log in pages: lines, and what is broken."""
    after, found = 0, []
    while True:
        page = store.audit_page(after, limit)
        found += [(line.actor, line.act) for line in page.lines]
        after = page.next
        if page.end or page.broken:
            return found, page.broken


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_the_audit_log_is_read_and_checked_in_pages(state, limit):
    with closing(Store(state / "rota.db", durable=False)) as store:
        assert pages(store, limit) == (ACTS, 0)
        latest = store.audit_page(None, limit)
        assert [(line.actor, line.act) for line in latest.lines] == ACTS[-limit:]
        assert (latest.end, latest.broken, latest.last) == (True, 0, 4)
        assert store.audit_page(4, limit).lines == []
        assert store.audit_page(4, limit).broken == 0


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("update audit set actor = 'carol' where number = 2", 2),
        ("update audit set act = 'nothing' where number = 4", 4),
        ("delete from audit where number = 2", 2),
        ("delete from audit where number >= 3", 3),  # while the daemon runs: it knows better
        ("delete from audit", 1),
    ],
)
def test_a_page_tells_the_first_line_that_does_not_follow(state, statement, line, limit):
    with closing(Store(state / "rota.db", durable=False)) as store:
        change(state, statement)
        assert pages(store, limit)[1] == line


def test_a_copy_of_a_store_that_is_used_can_be_put_back(state, tmp_path):
    with StateFolder(state) as made:
        store = Store(made.store, durable=False)
        upkeep.backup(state, tmp_path / "copy.db")
        append(store, 4, Noted("later"))
        with pytest.raises(ConflictError, match="another daemon uses"):
            upkeep.restore(state, tmp_path / "copy.db")
        store.close()
    with pytest.raises(OutputError, match="is there already"):
        upkeep.backup(state, tmp_path / "copy.db")
    before = upkeep.restore(state, tmp_path / "copy.db")
    assert [(line.actor, line.act) for line in upkeep.audit_lines(state)] == ACTS
    with closing(Store(before, durable=False)) as old:
        assert old.audit_number == 5


def test_a_copy_that_is_none_is_refused(state, tmp_path):
    (tmp_path / "letter").write_text("hello " * 1000)
    with pytest.raises(InputError, match="not a store of Rota"):
        upkeep.restore(state, tmp_path / "letter")
    with pytest.raises(InputError, match=r"there is no rota\.db"):
        upkeep.check(tmp_path)


def test_a_snapshot_that_cannot_be_read_is_dropped_where_the_journal_has_it_all(state):
    change(state, "insert into snapshots values (3, x'00')")
    assert upkeep.check(state) == ["the snapshot after batch 3 cannot be read"]
    assert any("1 snapshots" in line for line in upkeep.repair(state))
    assert upkeep.check(state) == []
    assert len(list(state.glob("rota.db.*"))) >= 1


def test_a_store_without_any_state_cannot_be_mended(state):
    change(state, "update snapshots set state = x'00'")
    change(state, "insert into snapshots values (3, x'00')")
    with pytest.raises(InputError, match="put a copy back"):
        upkeep.repair(state)
