"""Where the tables of a store are: one SQLite file, or a database of a PostgreSQL server.

Only what differs between the two is here. A file belongs to the one daemon that has locked its
folder. A database may be used by several daemons: the one that holds the lease
(`rota.daemon.lease`) writes, and every transaction of it checks the lease.
"""

from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError

from rota.core.errors import InputError, RotaError, UnavailableError, install
from rota.daemon import tables
from rota.daemon.lease import LeaderLease
from rota.daemon.settings import masked

BUSY_MS = 5_000  # how long a write waits for somebody else's lock on the file
CONNECT_S = 5  # how long to wait for a server
TABLES_LOCK = 7842  # the advisory lock of whoever makes or migrates tables
SCHEME = "postgresql"
AUTHORITY = "authority"  # a fact: the fingerprint of the one whose certificates machines have


class Database(Protocol):
    """What a store needs of it."""

    @property
    def where(self) -> str:
        """For messages; it has no password."""
        ...

    @property
    def engine(self) -> sa.Engine:
        """The connections."""
        ...

    def lock_tables(self, connection: sa.Connection) -> None:
        """Begin a transaction in which nobody else makes or changes tables."""
        ...

    def check_present(self) -> None:
        """Raise if what is written now would be lost."""
        ...

    def check_writer(self, connection: sa.Connection) -> None:
        """Raise unless this process is the one that may write, until the transaction ends."""
        ...

    def doubt(self) -> None:
        """What was to be written is there already: a commit that seemed to fail did not."""
        ...

    def unusable(self, error: DBAPIError) -> RotaError:
        """Why it cannot be opened."""
        ...


class SqliteFile:
    """A file, with a write-ahead log beside it."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        """Open it, or make it.

        Args:
            path: The file.
            durable: Survive a loss of power too, not only of the process (a write takes longer).
        """
        self._path = path
        path.touch(0o600)
        self._inode = path.stat().st_ino
        self.engine = sa.create_engine(f"sqlite:///{path}")
        sa.event.listen(self.engine, "connect", _prepare_file(durable=durable))

    @property
    def where(self) -> str:
        """The path."""
        return str(self._path)

    def lock_tables(self, connection: sa.Connection) -> None:
        """Say explicitly where the transaction begins.

        Else every table is a transaction of its own, and a crash between two of them leaves
        something that is neither old nor new.
        """
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def check_present(self) -> None:
        """Raise if the file was removed or replaced."""
        try:
            there = self._path.stat().st_ino == self._inode
        except OSError:
            there = False
        if not there:
            raise UnavailableError(
                f"{self._path} was removed or replaced while the daemon runs: nothing is accepted; "
                "put it back, or stop the daemon"
            )

    def check_writer(self, connection: sa.Connection) -> None:
        """Whoever has the folder may write."""

    def doubt(self) -> None:
        """A commit to a file is known to succeed or to fail: this is some other mistake."""

    def unusable(self, error: DBAPIError) -> RotaError:
        """It is another kind of file."""
        return InputError(f"{self._path}: not a store of Rota: {error.orig}")


def _prepare_file(*, durable: bool) -> Any:
    def prepare(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        cursor.close()

    return prepare


class PostgresDatabase:
    """A database of a PostgreSQL server, written by the daemon that holds the lease."""

    def __init__(self, engine: sa.Engine, lease: LeaderLease) -> None:
        self.engine = engine
        self._lease = lease

    @property
    def where(self) -> str:
        """The URL."""
        return spelled(self.engine.url)

    def lock_tables(self, connection: sa.Connection) -> None:
        """Wait until nobody else makes or changes tables."""
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(TABLES_LOCK)))

    def check_present(self) -> None:
        """The server knows: every write asks it."""

    def check_writer(self, connection: sa.Connection) -> None:
        """Raise if another daemon leads."""
        self._lease.check(connection)

    def doubt(self) -> None:
        """The connection broke during a commit: lead anew, from what the database has."""
        self._lease.doubt("the database has more than this daemon knows: reading it again")

    def unusable(self, error: DBAPIError) -> RotaError:
        """The server does not answer, or not for us."""
        return unreachable(self.engine, error)


def connect(url: str, *, lease_s: float, durable: bool) -> sa.Engine:
    """The connections to a PostgreSQL server.

    A process that was stopped in the middle of a transaction keeps its locks only as long as a
    lease: then the server ends its session.
    """
    try:
        parsed = sa.make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        raise InputError(
            f"store {masked(url)!r}: write postgresql://USER@HOST:PORT/DATABASE, or leave it empty "
            "for a file in the state folder"
        ) from None
    idle_ms = max(1000, int(1000 * lease_s))
    options = f"-c idle_in_transaction_session_timeout={idle_ms}"
    if not durable:
        options += " -c synchronous_commit=off"
    try:
        return sa.create_engine(
            parsed,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": CONNECT_S,
                "tcp_user_timeout": 1000 * CONNECT_S,
                "options": options,
            },
        )
    except ImportError as error:
        raise RotaError(
            f"{error.name} is missing, which a store on PostgreSQL needs: {install('postgres')}"
        ) from error


def known_authority(engine: sa.Engine) -> str | None:
    """The authority of the daemon that led last; empty: it had none; None: nobody led yet."""
    with engine.connect() as connection:
        if not sa.inspect(connection).has_table(tables.facts.name):
            return None
        query = sa.select(tables.facts.c.value).where(tables.facts.c.name == AUTHORITY)
        value = connection.execute(query).scalar()
        return None if value is None else str(value)


def unreachable(engine: sa.Engine, error: DBAPIError) -> UnavailableError:
    """The server does not answer, or not for us."""
    return UnavailableError(
        f"store {spelled(engine.url)}: {str(error.orig).strip()}: is the server there, may this "
        "user log in, and does the database exist?"
    )


def spelled(url: sa.URL) -> str:
    """As it stands in the configuration, without the password."""
    return url.set(drivername=SCHEME).render_as_string(hide_password=True)
