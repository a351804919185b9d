"""What a store can do without after a while: batches, submission keys, jobs and rows of the log.

A recovery takes the newest snapshot that can be read and the batches after it, so those up to the
older one of the snapshots that are kept are never needed again, except to rebuild a state from the
very beginning (see `rota.daemon.recovery`).

Jobs go in two steps. The daemon forgets them (`rota.daemon.forgotten`), which is an input like any
other. Once both kept snapshots are from after that, nothing reads them any more, and they are
removed here with their rows of the log: a job and its rows in one transaction, so that whoever
reads finds all of it or nothing. A process that is killed in between leaves fewer jobs to remove.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import time

import msgspec
import sqlalchemy as sa

from rota.core.log import Record
from rota.daemon import tables
from rota.daemon.forgotten import DAY_S, Forgotten
from rota.daemon.periodic import PeriodicThread
from rota.daemon.recovery import forgotten_in
from rota.daemon.settings import Retention
from rota.daemon.store import KEEP_SNAPSHOTS, Store, widen_gaps
from rota.engine.wiring import FIRST_TASK

STEP = 1_000  # rows that go in one transaction: others have to write in between
EVERY_S = 3_600.0
log = logging.getLogger("rota.daemon")


class Dispensable(msgspec.Struct, frozen=True):
    """How much of a store is older than it has to be kept."""

    batches: int = 0
    snapshots: int = 0
    keys: int = 0
    jobs: int = 0
    rows: int = 0  # of the event log

    def __bool__(self) -> bool:
        return any(msgspec.structs.astuple(self))


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
            keys = _count(
                connection, tables.keys, tables.keys.c.first <= self._last_key(connection)
            )
            jobs = rows = 0
            forgotten = self._forgotten()
            for piece in _pieces(connection, forgotten):
                jobs += len(piece)
                rows += _count(connection, tables.log, _rows_of(connection, piece))
            if len(forgotten):
                rows += _count(connection, tables.log, _of_no_job(connection, forgotten))
            snapshots = _count(connection, tables.snapshots, self._useless(last or jobs))
        return Dispensable(batches, snapshots, keys, jobs, rows)

    def prune(self) -> Dispensable:
        """Remove it; what went."""
        batches = snapshots = keys = 0
        with self._store.reading() as connection:
            last, last_key = self._last_batch(connection), self._last_key(connection)
            forgotten = self._forgotten()
            pieces = list(_pieces(connection, forgotten))
        if last or pieces:  # the beginning first: without what follows it is worth nothing
            with self._store.writing() as connection:
                gone = connection.execute(sa.delete(tables.snapshots).where(self._useless(1)))
                snapshots = gone.rowcount
        while step := self._step(tables.journal, tables.journal.c.number, last):
            batches += step
        while step := self._step(tables.keys, tables.keys.c.first, last_key):
            keys += step
        rows = sum(map(self._remove, pieces))
        while step := self._shorten(forgotten):
            rows += step
        return Dispensable(batches, snapshots, keys, sum(map(len, pieces)), rows)

    def _forgotten(self) -> Forgotten:
        """Jobs that no snapshot knows which a recovery might begin with."""
        kept = list(islice(self._store.snapshots(), KEEP_SNAPSHOTS))
        if len(kept) < KEEP_SNAPSHOTS or not kept[-1][0]:
            return Forgotten()
        return forgotten_in(kept[-1][1], self._store)

    def _remove(self, jobs: Sequence[int]) -> int:
        """Jobs with their rows of the log; how many rows."""
        with self._store.writing() as connection:
            rows = connection.execute(sa.delete(tables.log).where(_rows_of(connection, jobs)))
            connection.execute(sa.delete(tables.jobs).where(tables.jobs.c.number.in_(jobs)))
            widen_gaps(connection, rows.rowcount, self._store.log_number)
            return rows.rowcount

    def _shorten(self, forgotten: Forgotten) -> int:
        """Rows that are about no job, from before the first one that is kept; how many."""
        if not len(forgotten):
            return 0
        with self._store.writing() as connection:
            some = sa.select(tables.log.c.number).where(_of_no_job(connection, forgotten))
            numbers = connection.execute(some.limit(STEP)).scalars().all()
            if numbers:
                connection.execute(sa.delete(tables.log).where(tables.log.c.number.in_(numbers)))
                widen_gaps(connection, len(numbers), self._store.log_number)
            return len(numbers)

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


def _pieces(connection: sa.Connection, forgotten: Forgotten) -> Iterator[list[int]]:
    """Numbers of forgotten jobs that are still in the store, a few at a time."""
    number = tables.jobs.c.number
    for first, last in forgotten.ranges:
        after = first - 1
        while True:
            query = sa.select(number).where(number > after, number <= last).order_by(number)
            found = list(connection.execute(query.limit(STEP)).scalars())
            if not found:
                break
            yield found
            after = found[-1]


def _rows_of(connection: sa.Connection, jobs: Sequence[int]) -> "sa.ColumnElement[bool]":
    """The rows of these jobs, and of their tasks; not why all of a shape waited."""
    log = tables.log.c
    tasks = sa.select(log.job).where(
        log.job >= FIRST_TASK, log.event == Record.TASK, log.other.in_(jobs)
    )
    actors = [*jobs, *connection.execute(tasks).scalars()]
    return sa.and_(log.job.in_(actors), sa.not_(_of_shape()))


def _of_shape() -> "sa.ColumnElement[bool]":
    return sa.and_(tables.log.c.event == Record.REASON, tables.log.c.ref >= 0)


def _of_no_job(connection: sa.Connection, forgotten: Forgotten) -> "sa.ColumnElement[bool]":
    """Rows about no job from before the first job that is kept, except what still holds then."""
    log = tables.log.c
    submitted = sa.select(log.number, log.job).where(log.event == Record.SUBMIT)
    found = connection.execution_options(yield_per=STEP).execute(submitted.order_by(log.number))
    oldest = next((number for number, job in found if job not in forgotten), 0)
    found.close()
    last = [
        sa.select(sa.func.max(log.number)).where(log.number < oldest, kind).group_by(*of)
        for kind, *of in (
            (_of_shape(), log.ref, log.other),
            (log.event.in_([Record.NODE_UP, Record.NODE_DOWN]), log.ref),
            (log.event.in_([Record.NODE_CLOSED, Record.NODE_OPENED]), log.ref),
        )
    ]
    nodes = (Record.NODE_UP, Record.NODE_DOWN, Record.NODE_CLOSED, Record.NODE_OPENED)
    return sa.and_(
        log.number < oldest,
        sa.or_(_of_shape(), log.event.in_([*nodes, Record.NOTE])),
        *(log.number.not_in(each) for each in last),
    )


def _count(connection: sa.Connection, table: sa.Table, where: "sa.ColumnElement[bool]") -> int:
    query = sa.select(sa.func.count()).select_from(table).where(where)
    return int(connection.execute(query).scalar() or 0)


class RetentionThread(PeriodicThread):
    """Prunes a store while its daemon runs.

    `forget` lets the daemon forget jobs before.
    """

    def __init__(
        self,
        pruner: Pruner,
        every_s: float = EVERY_S,
        forget: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__("retention", self._prune, every_s)
        self._pruner = pruner
        self._forget = forget

    def _prune(self) -> None:
        self._forget()
        gone = self._pruner.prune()
        if gone:
            log.info("retention", extra=msgspec.structs.asdict(gone))
