"""Everything that must survive: a SQLite file or a PostgreSQL database, through SQLAlchemy Core.

One thread writes (the engine's); others read, and write only tokens. Nothing is acknowledged before
it is committed.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, time
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from rota.core.errors import InputError, UnavailableError
from rota.core.log import COLUMNS, Record, Row
from rota.daemon import tables
from rota.daemon.audit import BEGINNING, AuditLine, acts_of, broken_at
from rota.daemon.database import Database, SqliteFile
from rota.daemon.seal import Counters, Seal
from rota.jobfile.model import JobFile
from rota.live.agent.processes import boot_id
from rota.live.clock import boot_time_s
from rota.live.inputs import DECODER, ENCODER, Batch
from rota.wire import AuditEntry, AuditPage

log = logging.getLogger("rota.daemon")

KEEP_SNAPSHOTS = 2
CLOCK_STEP_S = 86_400.0  # by more a clock is not corrected: it was or is wrong
LONGEST_AWAY_S = 366 * 86_400.0  # that a daemon is down over a restart of its machine
SKIPPED = "skipped_to"  # a fact: numbers of jobs up to this one are not given any more
GAPS = "log_gaps"  # a fact: see `LogGaps`
PIECE = 50_000  # rows that are read at once
ID = "id"  # a fact: which store it is
PROBE = "probe"  # a fact that only shows that the store can be written


class StoredJob(msgspec.Struct, frozen=True):
    """A submission."""

    number: int
    user: str
    submit_s: float
    file: JobFile


class UsedKey(msgspec.Struct, frozen=True):
    """An idempotency key of an actor, and what was submitted under it: these jobs.

    `digest` is that of the request; empty in stores of older versions.
    """

    actor: str
    key: str
    first: int
    count: int
    digest: str = ""


class StoredToken(msgspec.Struct, frozen=True):
    """What is known of a token: whose it is (`person`; empty: nobody's but its holder's)."""

    name: str
    role: str
    digest: str
    after_job: int = 0
    person: str = ""
    until_unix: float | None = None  # None: until it is revoked


class LogGaps(msgspec.Struct, frozen=True):
    """Rows of the log that were pruned: so many, none of them after the row `upto`."""

    rows: int = 0
    upto: int = 0


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(JobFile).decode


class Store:
    """The daemon's memory."""

    def __init__(self, place: Path | Database, *, durable: bool = True) -> None:
        """Open it, or make it.

        Args:
            place: A file, or a database that is open.
            durable: For a file: survive a loss of power too, not only of the process (a write
                takes longer).
        """
        self._database: Database = (
            SqliteFile(place, durable=durable) if isinstance(place, Path) else place
        )
        self._engine = self._database.engine
        self._seal: Seal | None = None
        self._boot = boot_id()
        self._moment = 0.0, "", 0.0  # the last batch: time of the cluster, boot, time since then
        self.observe: Callable[[float], None] = lambda _: (
            None
        )  # called with the seconds of each commit
        try:
            self._open()
        except BaseException:
            self._engine.dispose()  # nobody has a store that he could close
            raise

    def _open(self) -> None:
        """Bring the tables up to date and read how far the store is."""
        try:
            self._migrate()
        except DBAPIError as error:
            raise self._database.unusable(error) from error
        self.epoch_unix = float(self.fact("epoch_unix", repr(time())))
        self.id = self.fact(ID, f"{int(self.epoch_unix * 1000):x}")
        with self.reading() as connection:
            found = _counted(connection, self.id)
        self.journal_number, self.job_number = found.journal, found.jobs
        self.log_number, self.audit_number = found.log, found.audit
        self._audit_digest = found.audit_digest or BEGINNING

    @property
    def where(self) -> str:
        """The file or the URL, for messages."""
        return self._database.where

    def close(self) -> None:
        """Let the connections go."""
        self._engine.dispose()
        seal, self._seal = self._seal, None
        if seal is not None:
            seal.close()

    # --- the seal ---------------------------------------------------------------------------------

    def seal(self, path: Path, *, accept_loss: bool = False) -> None:
        """From now on note outside how far this store has come; raise if it had come further.

        Args:
            path: The file of the seal.
            accept_loss: Go on with what there is. No number that was given is given again.
        """
        seal = Seal(path)
        known = seal.read()
        if known is not None:
            lost = known.missing(self._counters())
            if lost and not accept_loss:
                seal.close()
                raise InputError(
                    f"{self.where} went back in time: {lost}. Nothing was started or stopped. Put "
                    "the newest copy back; or give --accept-loss to go on without what is missing: "
                    "then what still runs of those jobs is ended"
                )
            self.skip_to(known.jobs)
            if known.store == self.id:
                self._follow_clock(known)
                self._moment = known.reached_s, known.boot, known.up_s
        self._seal = seal
        self._write_seal()

    def _follow_clock(self, known: Counters) -> None:
        """Somebody set the clock of this machine by days or years: move the beginning with it.

        Else all that time would have passed for the jobs, and could never be taken back.
        """
        shown_s = time() - self.epoch_unix
        same_boot = known.boot == boot_id()
        passed_s = boot_time_s() - known.up_s if same_boot else shown_s - known.reached_s
        if not same_boot and not -CLOCK_STEP_S < passed_s < LONGEST_AWAY_S:
            passed_s = 0.0  # unknown
        wrong_s = shown_s - (known.reached_s + passed_s)
        if known.boot and abs(wrong_s) > CLOCK_STEP_S:
            log.warning(
                "the clock of this machine was set by %.0f days: no time passes for that",
                wrong_s / 86_400,
            )
            self.epoch_unix += wrong_s
            self.change_fact("epoch_unix", repr(self.epoch_unix))

    def _counters(self) -> Counters:
        return Counters(
            self.id,
            self.journal_number,
            self.job_number,
            self.log_number,
            *self._moment,
            self.audit_number,
            self._audit_digest,
        )

    def _write_seal(self) -> None:
        if self._seal is None:
            return
        try:
            self._seal.write(self._counters())
        except OSError as error:  # the commit itself is safe
            log.warning("%s cannot be written: %s", self._seal.path, error)

    # --- plumbing ---------------------------------------------------------------------------------

    def _migrate(self) -> None:
        with self._engine.connect() as connection:
            names = _tables_of_ours(connection)
            version = (
                connection.execute(sa.text("select version_num from alembic_version")).scalar()
                if "alembic_version" in names
                else None
            )
        if version == tables.HEAD:
            return
        if not names:
            self._create()
            return
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        try:
            with self._engine.begin() as connection:
                self._database.lock_tables(connection)
                self._database.check_writer(connection)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as error:
            raise InputError(
                f"{self.where}: made by a newer Rota: its tables are of version {version}, this "
                f"one reads up to {tables.HEAD}: use that one"
            ) from error

    def _create(self) -> None:
        """A new store has the newest tables at once: nothing is to be migrated."""
        with self._engine.begin() as connection:
            self._database.lock_tables(connection)
            self._database.check_writer(connection)
            if not _tables_of_ours(connection):  # nobody was faster
                tables.metadata.create_all(connection)
                connection.execute(tables.made_by.insert().values(version_num=tables.HEAD))

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection for questions."""
        with _translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction: all of it or nothing."""
        began = perf_counter()
        self.check_present()
        try:
            with _translated(), self._engine.begin() as connection:
                self._database.check_writer(connection)
                yield connection
        except UnavailableError as error:
            if isinstance(error.__cause__, IntegrityError):
                self._database.doubt()
            raise
        self.observe(perf_counter() - began)

    def check_present(self) -> None:
        """Raise if what is written now would be lost."""
        self._database.check_present()

    # --- facts ------------------------------------------------------------------------------------

    def fact(self, name: str, first: str) -> str:
        """A fact that is decided once."""
        with self.reading() as connection:
            value = connection.execute(
                sa.select(tables.facts.c.value).where(tables.facts.c.name == name)
            ).scalar()
        if value is None:
            with self.writing() as connection:
                connection.execute(tables.facts.insert().values(name=name, value=first))
            return first
        return str(value)

    def probe(self) -> None:
        """Write something; raises if that is not possible."""
        with self.writing() as connection:
            connection.execute(sa.delete(tables.facts).where(tables.facts.c.name == PROBE))
            connection.execute(tables.facts.insert().values(name=PROBE, value=repr(time())))

    def note(self, name: str, values: Sequence[str]) -> list[str]:
        """Keep a list under a name; what was kept there before."""
        text = msgspec.json.encode(list(values)).decode()
        before: list[str] = msgspec.json.decode(self.fact(name, text), type=list[str])
        self.change_fact(name, text)
        return before

    def change_fact(self, name: str, value: str) -> None:
        """Replace a fact."""
        with self.writing() as connection:
            connection.execute(
                sa.update(tables.facts).where(tables.facts.c.name == name).values(value=value)
            )

    def note_fact(self, name: str, value: str) -> None:
        """Make or replace a fact."""
        if self.fact(name, value) != value:
            self.change_fact(name, value)

    def skip_to(self, number: int) -> None:
        """Give no number up to this one: an older copy was restored, and their folders are there.

        A new job must not find the checkpoint or the output of one that the store does not know.
        """
        if number > self.job_number:
            self.note(SKIPPED, [str(number)])
            self.job_number = number

    # --- jobs -------------------------------------------------------------------------------------

    def jobs(self, first: int, count: int) -> list[StoredJob]:
        """Submissions by number."""
        columns = tables.jobs.c
        query = (
            sa.select(columns.number, columns.user, columns.submit_s, columns.body)
            .where(columns.number >= first, columns.number < first + count)
            .order_by(columns.number)
        )
        with self.reading() as connection:
            return [StoredJob(n, u, s, _DECODE(b)) for n, u, s, b in connection.execute(query)]

    def count_jobs(self) -> int:
        """Submissions that are kept."""
        with self.reading() as connection:
            count = sa.select(sa.func.count()).select_from(tables.jobs)
            return int(connection.execute(count).scalar() or 0)

    def known_key(self, actor: str, key: str) -> UsedKey | None:
        """What was submitted under this key."""
        columns = tables.keys.c
        query = sa.select(columns.first, columns.count, columns.digest).where(
            columns.actor == actor, columns.key == key
        )
        with self.reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else UsedKey(actor, key, int(row[0]), int(row[1]), row[2] or "")

    # --- journal ----------------------------------------------------------------------------------

    def append(
        self,
        batch: Batch | None,
        rows: Sequence[Row] = (),
        jobs: Sequence[StoredJob] = (),
        keys: Sequence[UsedKey] = (),
    ) -> None:
        """A batch of inputs with the jobs in it, and the log of what happened before."""
        acts = [] if batch is None else self._acts(batch, jobs)
        with self.writing() as connection:
            _insert_rows(connection, self.log_number, rows)
            if jobs:
                connection.execute(
                    tables.jobs.insert(),
                    [
                        {"number": j.number, "user": j.user, "submit_s": j.submit_s,
                         "body": _ENCODE(j.file)}
                        for j in jobs
                    ],
                )  # fmt: skip
            if acts:
                connection.execute(tables.audit.insert(), list(map(msgspec.structs.asdict, acts)))
            for used in keys:
                connection.execute(tables.keys.insert().values(**msgspec.structs.asdict(used)))
            if batch is not None:
                connection.execute(
                    tables.journal.insert().values(
                        number=self.journal_number + 1, time_s=batch.time_s,
                        batch=ENCODER.encode(batch),
                    )
                )  # fmt: skip
        self.log_number += len(rows)
        if batch is not None:
            self.journal_number += 1
            self._moment = batch.time_s, self._boot, boot_time_s()
        if jobs:
            self.job_number = jobs[-1].number
        if acts:
            self.audit_number, self._audit_digest = acts[-1].number, acts[-1].digest
        self._write_seal()

    def _acts(self, batch: Batch, jobs: Sequence[StoredJob]) -> list[AuditLine]:
        """The lines of the audit log for a batch."""
        now_unix, digest = time(), self._audit_digest
        found: list[AuditLine] = []
        owners = {job.number: job.user for job in jobs}
        for number, (actor, act) in enumerate(acts_of(batch.inputs, owners), self.audit_number + 1):
            found.append(AuditLine.after(digest, number, now_unix, actor, act))
            digest = found[-1].digest
        return found

    def audit_page(self, after: int | None, limit: int) -> AuditPage:
        """Lines after this number (None: the latest), with the check of their chain."""
        last = self.audit_number
        after = max(0, last - limit) if after is None else after
        lines = self.audit(max(0, after - 1), limit + 1)
        before = BEGINNING
        if after and lines and lines[0].number == after:
            before = lines[0].digest
            lines = lines[1:]
        lines = lines[:limit]
        broken = broken_at(lines, before, after + 1)
        if not broken and len(lines) < limit and after + len(lines) < last:
            broken = after + len(lines) + 1  # cut off: more was written
        return AuditPage(
            lines=[
                AuditEntry(line.number, line.at_unix, line.actor, line.act, line.digest)
                for line in lines
            ],
            next=lines[-1].number if lines else after,
            end=len(lines) < limit or lines[-1].number >= last,
            broken=broken,
            last=last,
        )

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        """Lines of the audit log."""
        query = sa.select(tables.audit).where(tables.audit.c.number > after)
        with self.reading() as connection:
            found = connection.execute(query.order_by(tables.audit.c.number).limit(limit))
            return [AuditLine(*row) for row in found]

    def last_time_s(self) -> float:
        """When the last batch was taken in."""
        with self.reading() as connection:
            return float(
                connection.execute(sa.select(sa.func.max(tables.journal.c.time_s))).scalar() or 0.0
            )

    def reached_s(self) -> float:
        """The latest time that is known here."""
        rows = self.rows(self.log_number - 1, 1) if self.log_number else []
        return max(self.last_time_s(), rows[-1][1] if rows else 0.0)

    def batches(self, after: int) -> Iterator[Batch]:
        """The journal from there on, in pieces."""
        while True:
            query = (
                sa.select(tables.journal.c.number, tables.journal.c.batch)
                .where(tables.journal.c.number > after)
                .order_by(tables.journal.c.number)
                .limit(1000)
            )
            with self.reading() as connection:
                found = connection.execute(query).all()
            if not found:
                return
            for number, batch in found:
                after = number
                yield DECODER.decode(batch)

    # --- snapshots --------------------------------------------------------------------------------

    def save_snapshot(self, state: bytes) -> None:
        """Keep it, the one before it and the very first, from which the journal rebuilds all."""
        columns = tables.snapshots.c
        with self.writing() as connection:
            connection.execute(
                sa.delete(tables.snapshots).where(columns.journal_number == self.journal_number)
            )
            connection.execute(
                tables.snapshots.insert().values(journal_number=self.journal_number, state=state)
            )
            numbers = connection.execute(
                sa.select(columns.journal_number).order_by(columns.journal_number.desc())
            ).scalars()
            oldest = list(numbers)[:KEEP_SNAPSHOTS][-1]
            connection.execute(
                sa.delete(tables.snapshots).where(
                    columns.journal_number > 0, columns.journal_number < oldest
                )
            )

    def drop_snapshots(self, after: int) -> None:
        """Those after this batch cannot be read: they must not take the place of good ones."""
        columns = tables.snapshots.c
        with self.writing() as connection:
            connection.execute(sa.delete(tables.snapshots).where(columns.journal_number > after))

    def first_snapshot(self) -> bytes | None:
        """The one from before the first batch, if the journal since then is whole."""
        columns = tables.snapshots.c
        query = sa.select(columns.state).where(columns.journal_number == 0)
        with self.reading() as connection:
            state = connection.execute(query).scalar()
        return bytes(state) if state is not None and self.is_whole_since(0) else None

    def is_whole_since(self, number: int) -> bool:
        """Is every batch after this one in the journal?"""
        count = sa.select(sa.func.count()).where(tables.journal.c.number > number)
        with self.reading() as connection:
            return connection.execute(count).scalar() == self.journal_number - number

    def last_snapshot(self) -> tuple[int, bytes] | None:
        """The newest one, with the number of the last batch that is in it."""
        return next(iter(self.snapshots()), None)

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        """All of them, the newest first, each with the number of the last batch that is in it."""
        columns = tables.snapshots.c
        with self.reading() as connection:
            numbers = (
                connection.execute(
                    sa.select(columns.journal_number).order_by(columns.journal_number.desc())
                )
                .scalars()
                .all()
            )
        for number in numbers:
            query = sa.select(columns.state).where(columns.journal_number == number)
            with self.reading() as connection:
                yield int(number), bytes(connection.execute(query).scalar_one())

    # --- log --------------------------------------------------------------------------------------

    def rows(self, after: int, limit: int, job: int | None = None) -> list[tuple[Any, ...]]:
        """Rows of the event log: number, time, event, job, ref, other, value, text."""
        query = sa.select(tables.log).where(tables.log.c.number > after)
        if job is not None:
            query = query.where(tables.log.c.job == job)
        with self.reading() as connection:
            found = connection.execute(query.order_by(tables.log.c.number).limit(limit))
            return [tuple(row) for row in found]

    def node_rows(self, node: int) -> list[tuple[float, int, str | None]]:
        """Rows about a node, by its number: time, event, text."""
        kinds = (Record.NODE_DOWN, Record.NODE_UP, Record.NODE_CLOSED, Record.NODE_OPENED)
        log = tables.log.c
        query = sa.select(log.time_s, log.event, log.text).where(
            log.event.in_([int(kind) for kind in kinds]), log.ref == node
        )
        with self.reading() as connection:
            return [tuple(row) for row in connection.execute(query.order_by(log.number))]

    def all_rows(self, after: int) -> Iterator[Sequence[tuple[Any, ...]]]:
        """The log from there on, in pieces, as it is at one moment: old jobs may go meanwhile."""
        query = sa.select(tables.log).where(tables.log.c.number > after)
        with self.reading() as connection:
            found = connection.execution_options(yield_per=PIECE).execute(
                query.order_by(tables.log.c.number)
            )
            for rows in found.partitions():
                yield [tuple(row) for row in rows]

    def count_rows(self, upto: int) -> int:
        """Rows of the log up to a number."""
        count = sa.select(sa.func.count()).where(tables.log.c.number <= upto)
        with self.reading() as connection:
            return int(connection.execute(count).scalar() or 0)

    def log_gaps(self) -> LogGaps:
        """What is missing in the log because it was pruned."""
        with self.reading() as connection:
            return log_gaps(connection)

    # --- nodes ------------------------------------------------------------------------------------

    def node_tokens(self) -> dict[str, str]:
        """Nodes, each with the name of the token that speaks for it."""
        with self.reading() as connection:
            return {str(n): str(t) for n, t in connection.execute(sa.select(tables.nodes))}

    def bind_nodes(self, nodes: Sequence[str], token: str) -> None:
        """Let a token speak for nodes; empty: none does."""
        with self.writing() as connection:
            connection.execute(sa.delete(tables.nodes).where(tables.nodes.c.name.in_(nodes)))
            if token:
                connection.execute(
                    tables.nodes.insert(), [{"name": node, "token": token} for node in nodes]
                )

    # --- tokens -----------------------------------------------------------------------------------

    def save_token(self, token: StoredToken) -> None:
        """Keep the digest of a token; a name has one."""
        with self.writing() as connection:
            connection.execute(sa.delete(tables.tokens).where(tables.tokens.c.name == token.name))
            connection.execute(
                tables.tokens.insert().values(**msgspec.structs.asdict(token), made_unix=time())
            )

    def tokens(self) -> list[StoredToken]:
        """All of them, by name."""
        columns = tables.tokens.c
        query = sa.select(*(columns[key] for key in StoredToken.__struct_fields__))
        with self.reading() as connection:
            return [StoredToken(*row) for row in connection.execute(query.order_by(columns.name))]

    def drop_token(self, name: str) -> bool:
        """Forget it; False if there was none."""
        with self.writing() as connection:
            gone = connection.execute(sa.delete(tables.tokens).where(tables.tokens.c.name == name))
            return bool(gone.rowcount)


@contextmanager
def _translated() -> Iterator[None]:
    """Full disks and locks are not our caller's fault, and pass."""
    try:
        yield
    except DBAPIError as error:
        raise UnavailableError(
            f"the store cannot be used: {error.orig}: nothing was accepted, try again"
        ) from error


def _tables_of_ours(connection: sa.Connection) -> set[str]:
    """The tables of a store that are there."""
    return set(tables.metadata.tables).intersection(sa.inspect(connection).get_table_names())


def log_gaps(connection: sa.Connection) -> LogGaps:
    """What is missing in the log because it was pruned."""
    query = sa.select(tables.facts.c.value).where(tables.facts.c.name == GAPS)
    value = connection.execute(query).scalar()
    return LogGaps() if value is None else msgspec.json.decode(value, type=LogGaps)


def widen_gaps(connection: sa.Connection, rows: int, upto: int) -> None:
    """So many more rows are gone, none of them after `upto`."""
    before = log_gaps(connection)
    gaps = LogGaps(before.rows + rows, max(before.upto, upto))
    connection.execute(sa.delete(tables.facts).where(tables.facts.c.name == GAPS))
    value = msgspec.json.encode(gaps).decode()
    connection.execute(tables.facts.insert().values(name=GAPS, value=value))


def counters_of(engine: sa.Engine) -> Counters | None:
    """How far a store has come that another process writes; None: there is none of this version."""
    with engine.connect() as connection:
        ours = _tables_of_ours(connection)
        made_by = sa.select(tables.made_by.c.version_num)
        if "alembic_version" not in ours or connection.execute(made_by).scalar() != tables.HEAD:
            return None
        name = connection.execute(
            sa.select(tables.facts.c.value).where(tables.facts.c.name == ID)
        ).scalar()
        return None if name is None else _counted(connection, str(name))


def _counted(connection: sa.Connection, store: str) -> Counters:
    """The numbers of the last batch, job, row of the log and line of the audit log."""
    facts, audit = tables.facts.c, tables.audit.c
    skipped = connection.execute(sa.select(facts.value).where(facts.name == SKIPPED)).scalar()
    skipped_to = int(msgspec.json.decode(skipped, type=list[str])[0]) if skipped else 0
    lines = _largest(connection, audit.number)
    digest = connection.execute(sa.select(audit.digest).where(audit.number == lines)).scalar()
    return Counters(
        store,
        journal=max(
            _largest(connection, tables.journal.c.number),
            _largest(connection, tables.snapshots.c.journal_number),
        ),
        jobs=max(_largest(connection, tables.jobs.c.number), skipped_to),
        log=_largest(connection, tables.log.c.number),
        audit=lines,
        audit_digest=digest or "",
    )


def _largest(connection: sa.Connection, column: Any) -> int:
    return int(connection.execute(sa.select(sa.func.max(column))).scalar() or 0)


def _insert_rows(connection: sa.Connection, after: int, rows: Sequence[Row]) -> None:
    if rows:
        connection.execute(
            tables.log.insert(),
            [
                {"number": number, **dict(zip(COLUMNS, row, strict=True))}
                for number, row in enumerate(rows, after + 1)
            ],
        )
