"""One leader of several daemons: a row in the database that they share.

The row says who leads, until when (on the database's clock, so no other clock matters), and in
which *term*, a number that grows with every change. A leader renews it three times before it ends.
Every write of it holds the row for reading and checks the term in the same transaction: a daemon
that was stopped, or cut off, and comes back writes nothing any more. Agents know the term, too, and
obey no older one.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from rota.core.errors import UnavailableError
from rota.live.clock import boot_time_s

RENEWALS = 3  # within the time of a lease
ROW_LOCK = 7843  # the advisory lock of whoever makes the row
log = logging.getLogger("rota.daemon")

_metadata = sa.MetaData()
_lease = sa.Table(
    "lease",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("holder", sa.String, nullable=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("until", sa.DateTime(timezone=True), nullable=False),
)
# A term is at least the time in milliseconds: agents that knew another database, or this one before
# an older copy took its place, follow to it.
_FIRST = sa.text(
    "insert into lease values (1, '', extract(epoch from clock_timestamp())::bigint, "
    "clock_timestamp()) on conflict do nothing"
)
_TAKE = sa.text(
    "update lease set holder = :holder, "
    "term = greatest(term + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint), "
    "until = clock_timestamp() + make_interval(secs => :seconds) "
    "where id = 1 and until < clock_timestamp() returning term"
)
_RENEW = sa.text(
    "update lease set until = clock_timestamp() + make_interval(secs => :seconds) "
    "where id = 1 and term = :term returning term"
)
_GIVE_UP = sa.text("update lease set until = clock_timestamp() where id = 1 and term = :term")
_CHECK = sa.text("select 1 from lease where id = 1 and term = :term for share")
_WHO = sa.text("select holder from lease where id = 1 and until > clock_timestamp()")


class FencedError(UnavailableError):
    """Another daemon leads."""


class LeaderLease:
    """The right to lead, for one daemon. Safe from any thread."""

    def __init__(
        self,
        engine: sa.Engine,
        address: str,
        seconds: float,
        *,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        """Ask for it with `take`.

        Args:
            engine: The database.
            address: Where others find this daemon while it leads.
            seconds: How long it lasts without a renewal.
            clock: Of this machine; to know without a question that it cannot hold any more.
        """
        self.seconds = seconds
        self.term = 0  # 0: never held
        self._engine = engine
        self._address = address
        self._clock = clock
        self._until_s = 0.0
        self._doubt = ""

    def prepare(self) -> None:
        """Make the row, where nobody has."""
        with self._engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ROW_LOCK)))
            _metadata.create_all(connection)
            connection.execute(_FIRST)

    def take(self) -> bool:
        """Lead from now on, if nobody else does."""
        asked_s = self._clock()
        values = {"holder": self._address, "seconds": self.seconds}
        with self._engine.begin() as connection:
            term = connection.execute(_TAKE, values).scalar()
        if term is None:
            return False
        self.term = int(term)
        self._doubt = ""
        self._until_s = asked_s + self.seconds
        return True

    def renew(self) -> None:
        """Lead for longer; raises `FencedError` if another daemon leads."""
        if self._doubt:
            raise FencedError(self._doubt)
        asked_s = self._clock()
        with self._engine.begin() as connection:
            values = {"term": self.term, "seconds": self.seconds}
            if connection.execute(_RENEW, values).scalar() is None:
                raise self._fenced()
        self._until_s = asked_s + self.seconds

    def check(self, connection: sa.Connection) -> None:
        """Raise if another daemon leads; none will until this transaction ends."""
        if connection.execute(_CHECK, {"term": self.term}).scalar() is None:
            raise self._fenced()

    def _fenced(self) -> FencedError:
        self._until_s = 0.0
        return FencedError("another daemon leads now: nothing was accepted, ask that one")

    def doubt(self, why: str) -> None:
        """Lead no longer: this daemon does not know what the database holds."""
        self._doubt, self._until_s = why, 0.0

    @property
    def holds(self) -> bool:
        """Can nobody else lead at this moment? Asks nobody."""
        return self._clock() < self._until_s

    def leader(self) -> str:
        """Where the daemon is that leads; empty: none does."""
        with self._engine.connect() as connection:
            return str(connection.execute(_WHO).scalar() or "")

    def give_up(self) -> None:
        """Let another daemon lead at once."""
        self._until_s = 0.0
        with self._engine.begin() as connection:
            connection.execute(_GIVE_UP, {"term": self.term})


class LeaseKeeper:
    """Renews a lease that is held, in a thread; tells when that is not possible any more."""

    def __init__(self, lease: LeaderLease) -> None:
        self.lease = lease
        self.lost = ""  # why it does not lead any more
        self.on_loss: Callable[[], Any] = lambda: None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="rota-lease", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; the lease runs out by itself unless it is given up."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _keep(self) -> None:
        while not self._end.wait(self.lease.seconds / RENEWALS):
            try:
                self.lease.renew()
            except FencedError as error:
                self._lose(str(error))
                return
            except DBAPIError as error:
                log.warning("the lease cannot be renewed: %s", str(error.orig).strip())
                if not self.lease.holds:
                    self._lose("the database did not answer for longer than the lease")
                    return

    def _lose(self, why: str) -> None:
        self.lost = why
        self.on_loss()
