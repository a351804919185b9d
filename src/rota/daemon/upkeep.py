"""The care of a store in a file: copy it while a daemon runs, look for damage, put a copy back."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rota.core.errors import InputError, OutputError
from rota.daemon.audit import AuditLine, broken_at
from rota.daemon.folder import StateFolder
from rota.daemon.recovery import unpack
from rota.daemon.retention import Dispensable, Pruner
from rota.daemon.seal import Seal
from rota.daemon.settings import Retention
from rota.daemon.store import Store
from rota.daemon.tables import HEAD

STORE, SEAL = "rota.db", "rota.seal"
BESIDE = ("-wal", "-shm")  # files of SQLite that belong to the store
PIECE = 10_000  # lines that are read at once


def backup(folder: Path, target: Path) -> None:
    """Copy the store of a folder as it is at one moment, also while a daemon uses it."""
    source = _store_in(folder)
    if target.exists():
        raise OutputError(f"{target}: is there already: name a new file")
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(source)) as connection:
            connection.execute("VACUUM INTO ?", (str(part),))
        part.chmod(0o600)
        handle = os.open(part, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        part.replace(target)
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise OutputError(f"{target}: the copy cannot be written: {error}") from error


def restore(folder: Path, source: Path) -> Path:
    """Put a copy in place of the store of a daemon that does not run; where that one is now.

    The seal stays: it says which numbers were given, and they are not given again.
    """
    damage = damage_of(source)
    if damage:
        raise InputError(f"{source}: {damage}: use another copy")
    with StateFolder(folder) as state:
        store = Path(state.store)
        before = _set_aside(store)
        part = store.with_name(store.name + ".part")
        shutil.copyfile(source, part)
        part.chmod(0o600)
        for name in BESIDE:
            store.with_name(store.name + name).unlink(missing_ok=True)
        part.replace(store)
    return before


def check(folder: Path) -> list[str]:
    """What is wrong with the store of a folder; empty: nothing. A daemon may use it meanwhile."""
    path = _store_in(folder)
    damage = damage_of(path)
    if damage:
        return [f"{damage}: `rota store repair`, or put a copy back"]
    store = _opened(path)
    try:
        return findings(store, folder / SEAL)
    finally:
        store.close()


def findings(store: Store, seal: Path) -> list[str]:
    """What is wrong with what a store holds; empty: nothing."""
    return [*_snapshots(store), *_log(store), *_audit(store, seal)]


def repair(folder: Path) -> list[str]:
    """Mend what can be mended without losing anything; what was done. No daemon may run.

    Indexes are made anew, and snapshots that cannot be read are dropped where an older one and the
    journal give the same state. The store as it was is set aside first.
    """
    with StateFolder(folder) as state:
        path = Path(state.store)
        _store_in(folder)
        done = [f"the store as it was is {_set_aside(path)}"]
        try:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("REINDEX")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be mended ({error}): put a copy back") from error
        done.append("indexes were made anew")
        store = Store(path)
        try:
            done += drop_unreadable(store)
        finally:
            store.close()
    return done


def prune(folder: Path, retention: Retention, *, really: bool) -> Dispensable:
    """Remove what is too old from the store of a daemon that does not run, and give its room back.

    Not `really`: only look, which is possible while a daemon runs, too.
    """
    path = _store_in(folder)
    if not really:
        store = _opened(path)
        try:
            return Pruner(store, retention).look()
        finally:
            store.close()
    with StateFolder(folder):
        store = _opened(path)
        try:
            gone = Pruner(store, retention).prune()
        finally:
            store.close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")
    return gone


def audit_lines(folder: Path) -> Iterator[AuditLine]:
    """Who did what, oldest first."""
    store = _opened(_store_in(folder))
    try:
        yield from lines_of(store)
    finally:
        store.close()


def _opened(path: Path) -> Store:
    """A store of this version; one of another is not migrated, a daemon may be using it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        version = connection.execute("select version_num from alembic_version").fetchone()[0]
    if version != HEAD:
        raise InputError(
            f"{path}: its tables are of version {version}, this Rota reads {HEAD}: let its daemon "
            f"be of this version first"
        )
    return Store(path)


def _store_in(folder: Path) -> Path:
    path = folder / STORE
    if not path.is_file():
        raise InputError(
            f"{folder}: there is no {STORE}: name the state folder of a daemon with --state, or "
            f"its database with --store postgresql://..."
        )
    return path


def damage_of(path: Path) -> str:
    """What SQLite says against a file; empty: it is sound and has the tables of a store."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
            connection.execute("select version_num from alembic_version").fetchall()
    except sqlite3.Error as error:
        return f"not a store of Rota, or damaged ({error})"
    return "" if found == ["ok"] else f"damaged ({found[0]})"


def _set_aside(path: Path) -> Path:
    """Copy a store, with what is in its write-ahead log, to a name with the present time."""
    before = path.with_name(f"{path.name}.{time.strftime('%Y%m%dT%H%M%S')}")
    number = 1
    while before.exists():
        number += 1
        before = path.with_name(f"{path.name}.{time.strftime('%Y%m%dT%H%M%S')}-{number}")
    for name in ("", *BESIDE):
        source = path.with_name(path.name + name)
        if source.exists():
            shutil.copyfile(source, before.with_name(before.name + name))
            before.with_name(before.name + name).chmod(0o600)
    return before


def _snapshots(store: Store) -> list[str]:
    """Is there a state to begin with?"""
    readable = _readable(store)
    found = [f"the snapshot after batch {n} cannot be read" for n, good in readable if not good]
    usable = any(good and store.is_whole_since(number) for number, good in readable)
    if readable and not usable and store.first_snapshot() is None:
        found.append("no snapshot with a whole journal after it: put a copy back")
    return found


def _readable(store: Store) -> list[tuple[int, bool]]:
    """The snapshots, newest first: can each be read?"""
    found = []
    for number, packed in store.snapshots():
        try:
            unpack(packed, store)
        except InputError:
            found.append((number, False))
        else:
            found.append((number, True))
    return found


def drop_unreadable(store: Store) -> list[str]:
    """Drop snapshots that cannot be read, where that loses nothing; what was done."""
    readable = _readable(store)
    good = max((number for number, fine in readable if fine), default=None)
    newer = [number for number, fine in readable if not fine and number > (good or 0)]
    if not newer:
        return []
    if good is None or not store.is_whole_since(good):
        raise InputError(
            f"{store.where}: the newest snapshot cannot be read, and the journal does not go back "
            f"to an older one: put a copy back"
        )
    store.drop_snapshots(good)
    return [f"{len(newer)} snapshots that cannot be read were dropped: the journal has it all"]


def _log(store: Store) -> list[str]:
    """Are the rows of the log numbered without a gap but those that pruning made?"""
    gaps = store.log_gaps()
    there, after = store.count_rows(gaps.upto), gaps.upto
    missing = gaps.upto - gaps.rows - there
    if missing:
        return [f"{missing:,} rows of the log that were not pruned are missing: put a copy back"]
    while rows := store.rows(after, PIECE):
        if rows[-1][0] != after + len(rows):
            return [f"rows of the log after {after:,} are missing: put a copy back"]
        after = rows[-1][0]
    return []


def lines_of(store: Store) -> Iterator[AuditLine]:
    """The audit log, oldest first."""
    after = 0
    while lines := store.audit(after, PIECE):
        yield from lines
        after = lines[-1].number


def _audit(store: Store, path: Path) -> list[str]:
    """Is the audit log what was written?"""
    broken = broken_at(lines_of(store))
    if broken:
        return [f"line {broken} of the audit log was changed, removed or slipped in"]
    if not path.exists():
        return []
    seal = Seal(path)
    try:
        known = seal.read()
    finally:
        seal.close()
    if known is None or known.store != store.id or not known.audit:
        return []
    line = store.audit(known.audit - 1, 1)
    if not line or line[0].digest != known.audit_digest:
        return [f"line {known.audit} of the audit log is not the one that the seal knows"]
    return []
