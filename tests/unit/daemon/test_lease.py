"""One of several daemons leads: who, for how long, and that nobody else writes."""

import pytest
import sqlalchemy as sa

from postgres_server import leading
from rota.core.errors import InputError, UnavailableError
from rota.daemon.database import PostgresDatabase, connect
from rota.daemon.lease import FencedError, LeaderLease, LeaseKeeper
from rota.daemon.settings import masked
from rota.daemon.store import Store
from rota.live.inputs import Batch

LONG_S, SHORT_S = 600.0, 0.001  # nobody waits for the one, the other is over at once


@pytest.fixture
def engine(database):
    """Return connections to an empty database."""
    made = connect(database, lease_s=LONG_S, durable=False)
    yield made
    made.dispose()


def lease(engine, name, seconds=LONG_S, **options):
    """Return the lease of a daemon, whose row is there."""
    made = LeaderLease(engine, f"http://{name}", seconds, **options)
    made.prepare()
    return made


def test_the_first_one_leads_until_it_gives_up(engine):
    first, second = lease(engine, "a"), lease(engine, "b")
    assert first.leader() == ""
    assert first.take()
    assert not second.take()
    assert second.leader() == "http://a"
    first.renew()
    first.give_up()
    assert not first.holds
    assert second.take()
    assert second.term > first.term
    assert first.leader() == "http://b"


def test_a_lease_that_was_not_renewed_goes_to_another(engine):
    first, second = lease(engine, "a", SHORT_S), lease(engine, "b")
    assert first.take()
    while not second.take():  # at once, as soon as the database's clock has moved
        pass
    with pytest.raises(FencedError):
        first.renew()
    assert not first.holds
    with engine.begin() as connection, pytest.raises(FencedError):
        first.check(connection)
    with engine.begin() as connection:
        second.check(connection)


def test_a_daemon_knows_by_its_own_clock_that_it_may_not_lead_any_more(engine):
    now = [100.0]
    held = lease(engine, "a", 5.0, clock=lambda: now[0])
    assert held.take()
    assert held.holds
    now[0] += 4.9
    assert held.holds
    now[0] += 0.2
    assert not held.holds
    held.renew()  # nobody else wanted it
    assert held.holds


def test_an_older_copy_of_the_database_goes_on_with_a_larger_term(engine):
    """Agents obey no smaller one than they know: they must follow the daemon on the copy."""
    before = lease(engine, "a")
    assert before.take()
    before.give_up()
    with engine.begin() as connection:
        connection.execute(sa.text("update lease set term = 5"))
    after = lease(engine, "a")
    assert after.take()
    assert after.term > before.term


def test_a_new_database_begins_with_a_larger_term(engine):
    old = lease(engine, "a")
    assert old.take()
    assert old.term > 1_600_000_000


def test_a_former_leader_writes_nothing(engine):
    first = lease(engine, "a")
    assert first.take()
    store = Store(PostgresDatabase(engine, first))
    store.append(Batch(1, 0.0, ()))
    first.give_up()
    assert lease(engine, "b").take()
    with pytest.raises(FencedError, match="another daemon leads"):
        store.append(Batch(2, 1.0, ()))
    with pytest.raises(FencedError):
        store.bind_nodes(["n0"], "x")
    with pytest.raises(FencedError):
        store.save_snapshot(b"state")
    assert store.journal_number == 1
    assert [batch.version for batch in store.batches(0)] == [1]


def test_a_commit_that_was_not_confirmed_makes_a_daemon_read_everything_again(database):
    place = leading(database)
    store = Store(place)
    store.append(Batch(1, 0.0, ()))
    store.journal_number -= 1  # as if the connection had broken before the answer
    with pytest.raises(UnavailableError):
        store.append(Batch(1, 0.0, ()))
    with pytest.raises(FencedError, match="reading it again"):
        place._lease.renew()
    store.close()


class Renewals:
    """Stands in for a lease: each renewal has its outcome."""

    def __init__(self, *outcomes):
        self.seconds = 0.003
        self.holds = True
        self._outcomes = iter(outcomes)

    def renew(self):
        outcome = next(self._outcomes)
        if isinstance(outcome, Exception):
            raise outcome


def test_a_keeper_tells_when_the_lease_is_lost():
    keeper = LeaseKeeper(Renewals(None, None, FencedError("another daemon leads")))
    told = []
    keeper.on_loss = lambda: told.append(keeper.lost)
    keeper.start()
    keeper._thread.join()
    assert told == ["another daemon leads"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@h:1/db", "postgresql://me:***@h:1/db"),
        ("postgresql://me@h/db", "postgresql://me@h/db"),
        ("postgresql://me:a:b@h:x/db", "postgresql://me:***@h:x/db"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_password_is_not_shown(url, shown):
    assert masked(url) == shown


def test_a_url_that_makes_no_sense_is_refused_without_its_password():
    with pytest.raises(InputError, match=r"postgresql://me:\*\*\*@h:x/db.*USER@HOST:PORT"):
        connect("postgresql://me:secret@h:x/db", lease_s=5.0, durable=True)


def test_a_server_that_is_not_there_is_named():
    engine = connect("postgresql://me:secret@127.0.0.1:1/db", lease_s=5.0, durable=True)
    held = LeaderLease(engine, "http://a", 5.0)
    with pytest.raises(UnavailableError, match=r"postgresql://me:\*\*\*@127.0.0.1:1/db"):
        Store(PostgresDatabase(engine, held))
