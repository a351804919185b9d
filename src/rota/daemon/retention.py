"""What a store can do without after a while: batches of the journal, and submission keys.

A recovery takes the newest snapshot that can be read and the batches after it, so those up to the
older one of the snapshots that are kept are never needed again, except to rebuild a state from the
very beginning (see `rota.daemon.recovery`). Jobs and rows of the log are not touched: a state is
made from them at each start, and exports and explanations rest on them.
"""

import logging
import threading
from collections.abc import Callable
from time import time

import msgspec
import sqlalchemy as sa

from rota.core.errors import RotaError
from rota.daemon import tables
from rota.daemon.settings import Retention
from rota.daemon.store import Store

DAY_S = 86_400.0
STEP = 1_000  # rows that go in one transaction: others have to write in between
EVERY_S = 3_600.0
log = logging.getLogger("rota.daemon")


class Dispensable(msgspec.Struct, frozen=True):
    """How much of a store is older than it has to be kept."""

    batches: int = 0
    snapshots: int = 0
    keys: int = 0

    def __bool__(self) -> bool:
        return bool(self.batches or self.snapshots or self.keys)


class Pruner:
    """Removes what is too old from a store, in small steps. `clock`: Unix seconds."""

    def __init__(
        self, store: Store, retention: Retention, clock: Callable[[], float] = time
    ) -> None:
        self._store = store
        self._retention = retention
        self._clock = clock

    def look(self) -> Dispensable:
        """What would go."""
        with self._store.reading() as connection:
            last = self._last_batch(connection)
            batches = _count(connection, tables.journal, tables.journal.c.number <= last)
            snapshots = _count(connection, tables.snapshots, self._useless(last))
            keys = _count(
                connection, tables.keys, tables.keys.c.first <= self._last_key(connection)
            )
        return Dispensable(batches, snapshots, keys)

    def prune(self) -> Dispensable:
        """Remove it; what went."""
        batches = snapshots = keys = 0
        with self._store.reading() as connection:
            last, last_key = self._last_batch(connection), self._last_key(connection)
        if last:  # the beginning first: without the batches it would be worth nothing
            with self._store.writing() as connection:
                gone = connection.execute(sa.delete(tables.snapshots).where(self._useless(last)))
                snapshots = gone.rowcount
        while step := self._step(tables.journal, tables.journal.c.number, last):
            batches += step
        while step := self._step(tables.keys, tables.keys.c.first, last_key):
            keys += step
        return Dispensable(batches, snapshots, keys)

    def _step(self, table: sa.Table, column: "sa.Column[int]", last: int) -> int:
        """The oldest rows up to a number; how many they were."""
        with self._store.writing() as connection:
            oldest = sa.select(column).where(column <= last).order_by(column).limit(STEP)
            upto = connection.execute(sa.select(sa.func.max(oldest.subquery().c[0]))).scalar()
            if upto is None:
                return 0
            return connection.execute(sa.delete(table).where(column <= upto)).rowcount

    @staticmethod
    def _useless(last: int) -> "sa.ColumnElement[bool]":
        """The very first snapshot, once its journal is not whole any more."""
        return sa.and_(tables.snapshots.c.journal_number == 0, sa.literal(last) > 0)

    def _last_batch(self, connection: sa.Connection) -> int:
        """The newest batch that is old enough and that no snapshot needs; 0: none."""
        days = self._retention.journal_days
        if days is None:
            return 0
        numbers = tables.snapshots.c.journal_number
        kept = connection.execute(sa.select(sa.func.min(numbers)).where(numbers > 0)).scalar() or 0
        before_s = self._clock() - self._store.epoch_unix - days * DAY_S
        journal = tables.journal.c
        query = sa.select(sa.func.max(journal.number)).where(
            journal.number <= kept,
            journal.time_s < before_s,
            journal.number < self._store.journal_number,  # which tells the time
        )
        return int(connection.execute(query).scalar() or 0)

    def _last_key(self, connection: sa.Connection) -> int:
        """The newest job whose key need not be known any more; 0: none."""
        days = self._retention.keys_days
        if days is None:
            return 0
        before_s = self._clock() - self._store.epoch_unix - days * DAY_S
        jobs = tables.jobs.c
        query = sa.select(sa.func.max(jobs.number)).where(jobs.submit_s < before_s)
        return int(connection.execute(query).scalar() or 0)


def _count(connection: sa.Connection, table: sa.Table, where: "sa.ColumnElement[bool]") -> int:
    query = sa.select(sa.func.count()).select_from(table).where(where)
    return int(connection.execute(query).scalar() or 0)


class RetentionThread:
    """Prunes a store while its daemon runs; what fails is tried again later."""

    def __init__(self, pruner: Pruner, every_s: float = EVERY_S) -> None:
        self._pruner = pruner
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-retention", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the step that is under way."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                gone = self._pruner.prune()
            except RotaError as error:
                log.warning("retention.delayed", extra={"why": str(error)})
            else:
                if gone:
                    log.info("retention", extra=msgspec.structs.asdict(gone))
