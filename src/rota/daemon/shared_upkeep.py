"""The care of a store in a PostgreSQL database: the same as `rota.daemon.upkeep` for a file.

A copy is a file as SQLite daemons have it, so a store can move from one kind to the other. What
writes takes the lease: no daemon leads meanwhile. Damage of the database itself (indexes, pages) is
the server's business.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from rota.core.errors import ConflictError, InputError, OutputError
from rota.daemon import tables
from rota.daemon.audit import AuditLine
from rota.daemon.database import PostgresDatabase, connect, spelled, unreachable
from rota.daemon.lease import LeaderLease, LeaseKeeper
from rota.daemon.retention import Dispensable, Pruner
from rota.daemon.settings import Retention
from rota.daemon.store import Store
from rota.daemon.upkeep import SEAL, damage_of, drop_unreadable, findings, lines_of

LEASE_S = 10.0
PIECE = 5_000  # rows that are copied at once
ADDRESS = "rota store"  # who leads meanwhile


def backup(url: str, target: Path) -> None:
    """Copy the database into a file, as it is at one moment, also while a daemon uses it."""
    if target.exists():
        raise OutputError(f"{target}: is there already: name a new file")
    with _database(url) as database:
        _check_version(database.engine)
        _copy_out(database.engine, target)


def restore(url: str, source: Path) -> Path | None:
    """Put a copy in place of what the database has; where that is now (None: there was nothing)."""
    damage = damage_of(source)
    if damage:
        raise InputError(f"{source}: {damage}: use another copy")
    before: Path | None = None
    with _led(url) as (database, lease), _file(source) as copy:
        _check_version(copy)
        if _version(database.engine) is not None:
            before = source.with_name(f"{source.name}.before-{time.strftime('%Y%m%dT%H%M%S')}")
            _copy_out(database.engine, before)
        with copy.connect() as rows, database.engine.begin() as connection:
            database.lock_tables(connection)
            lease.check(connection)  # until the end nobody else leads
            tables.metadata.drop_all(connection)
            tables.metadata.create_all(connection)
            _copy(rows, connection)
    return before


def check(url: str, folder: Path | None = None) -> list[str]:
    """What is wrong with the store; `folder`: of a daemon, whose seal knows the audit log."""
    with _reading(url) as store:
        return findings(store, (folder or Path()) / SEAL)


def repair(url: str) -> list[str]:
    """Drop snapshots that cannot be read, where that loses nothing; what was done."""
    with _led(url) as (database, _), closing(Store(database)) as store:
        return drop_unreadable(store) or ["there was nothing to mend"]


def prune(url: str, retention: Retention, *, really: bool) -> Dispensable:
    """Remove what is too old; not `really`: only look, which is possible while a daemon leads."""
    if not really:
        with _reading(url) as store:
            return Pruner(store, retention).look()
    with _led(url) as (database, _), closing(Store(database)) as store:
        return Pruner(store, retention).prune()


def audit_lines(url: str) -> Iterator[AuditLine]:
    """Who did what, oldest first."""
    with _reading(url) as store:
        yield from lines_of(store)


# --- connections ----------------------------------------------------------------------------------


@contextmanager
def _database(url: str) -> Iterator[PostgresDatabase]:
    """The database, for somebody who does not lead: every write of a store is refused."""
    engine = connect(url, lease_s=600.0, durable=True)
    try:
        with engine.connect():
            pass
        yield PostgresDatabase(engine, LeaderLease(engine, ADDRESS, LEASE_S))
    except DBAPIError as error:
        raise unreachable(engine, error) from error
    finally:
        engine.dispose()


@contextmanager
def _reading(url: str) -> Iterator[Store]:
    with _database(url) as database:
        _check_version(database.engine)
        with closing(Store(database)) as store:
            yield store


@contextmanager
def _led(url: str) -> Iterator[tuple[PostgresDatabase, LeaderLease]]:
    """The database while no daemon leads, and none can."""
    with _database(url) as database:
        engine = database.engine
        lease = LeaderLease(engine, ADDRESS, LEASE_S)
        lease.prepare()
        if not lease.take():
            raise ConflictError(
                f"{spelled(engine.url)}: {lease.leader() or 'a daemon'} leads: stop all daemons "
                f"that use it first"
            )
        keeper = LeaseKeeper(lease)
        keeper.start()
        try:
            yield PostgresDatabase(engine, lease), lease
        finally:
            keeper.stop()
            lease.give_up()


# --- copies ---------------------------------------------------------------------------------------


@contextmanager
def _file(path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"sqlite:///{path}")
    try:
        yield engine
    finally:
        engine.dispose()


def _copy_out(engine: sa.Engine, target: Path) -> None:
    part = target.with_name(target.name + ".part")
    try:
        part.unlink(missing_ok=True)
        part.touch(0o600)
        with (
            _file(part) as file,
            engine.connect().execution_options(isolation_level="REPEATABLE READ") as source,
            file.begin() as sink,
        ):
            tables.metadata.create_all(sink)
            _copy(source, sink)
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputError(f"{target}: the copy cannot be written: {error.strerror}") from error


def _copy(source: sa.Connection, sink: sa.Connection) -> None:
    for table in tables.metadata.sorted_tables:
        found = source.execution_options(yield_per=PIECE).execute(sa.select(table))
        for rows in found.mappings().partitions():
            sink.execute(table.insert(), [dict(row) for row in rows])


def _version(engine: sa.Engine) -> str | None:
    """Of the tables; None: there are none."""
    with engine.connect() as connection:
        if not sa.inspect(connection).has_table(tables.made_by.name):
            return None
        return connection.execute(sa.select(tables.made_by.c.version_num)).scalar()


def _check_version(engine: sa.Engine) -> None:
    version = _version(engine)
    if version is None:
        raise InputError(f"{spelled(engine.url)}: there is no store of Rota in this database")
    if version != tables.HEAD:
        raise InputError(
            f"its tables are of version {version}, this Rota reads {tables.HEAD}: let a daemon of "
            f"this version use it first"
        )
