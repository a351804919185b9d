"""Recovery: load the last snapshot, replay the journal through `apply`, compare the log.

Both are exact, so the state (the policy's own too) is what it was when the last batch was
committed. Nothing is started or stopped meanwhile: commands reach the driver from `go_live` on,
which then adopts what runs. A snapshot of an older version is migrated. One that cannot be read is
not needed as long as the journal is whole: replaying all of it gives the same state.
"""

import logging
import zlib
from array import array
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from rota.core.errors import InputError, PolicyError, RotaError
from rota.core.log import Row
from rota.core.topology import NodeSpec, Topology
from rota.daemon.forgotten import Forgotten
from rota.daemon.journal import Journal
from rota.daemon.settings import Scheduling
from rota.daemon.state import ClusterState
from rota.daemon.store import Store
from rota.engine.snapshot import VERSION as ENGINE_VERSION
from rota.engine.snapshot import freeze, migrate, restore
from rota.engine.wiring import FIRST_TASK
from rota.live.inputs import Batch, Reconfigured

VERSION = 1  # of the format around the state; the state itself has the version of the engine
PIECE = 50_000  # rows of the log that are read at once
log = logging.getLogger("rota.daemon")
T = TypeVar("T")


class Origin(msgspec.Struct):
    """What a cluster was made with. `growth`: the nodes, in the groups in which they came."""

    scheduling: Scheduling
    growth: list[list[NodeSpec]]
    levels: list[str]


class StateSnapshot(Origin, kw_only=True):
    """What a snapshot holds."""

    version: int
    engine: dict[str, Any]
    engine_version: int = 2  # of those from before it was written down
    projection: dict[str, Any] | None = None  # None: the log is whole, and is read again
    forgotten: Forgotten = msgspec.field(default_factory=Forgotten)


class ForgottenPart(msgspec.Struct):
    """Of a snapshot."""

    forgotten: Forgotten = msgspec.field(default_factory=Forgotten)


class Build(Protocol):
    """Makes an empty state."""

    def __call__(
        self, scheduling: Scheduling, growth: list[list[NodeSpec]], levels: list[str]
    ) -> ClusterState:
        """With this configuration and these nodes."""
        ...


def begin(journal: Journal, build: Build, wanted: Scheduling, topology: Topology) -> ClusterState:
    """The state of a new store; it is saved."""
    origin = Origin(wanted, [list(topology.specs)], list(topology.levels))
    state = _rebuild(origin, journal.store, build)
    journal.log(state.take_rows())
    journal.save(pack(state))
    return state


def _rebuild(origin: Origin, store: Store, build: Build) -> ClusterState:
    """The state before the first batch."""
    state = build(origin.scheduling, origin.growth, origin.levels)
    state.cluster.runs.ports = zlib.crc32(store.id.encode())
    return state


def recover(journal: Journal, build: Build, wanted: Scheduling) -> ClusterState:
    """The state after everything that was committed.

    Args:
        journal: Of a store that has a snapshot; rows of the log that are not stored stay in it.
        build: Makes an empty state.
        wanted: The scheduling that is configured now; it takes over where the former policy fails.
    """
    store = journal.store
    state, number, logged = _newest(store, build)
    journal.begin_replay(logged)
    journal.log(state.take_rows())
    repaired = _replay(state, journal, number, wanted)
    journal.end_replay()
    if any(newer > number for newer, _ in store.snapshots()):
        store.drop_snapshots(number)
    journal.since_snapshot = store.journal_number - number
    if repaired:  # the repair is not in the journal
        journal.save(pack(state))
    return state


def _newest(store: Store, build: Build) -> tuple[ClusterState, int, int]:
    """The newest state that can be read, the last batch in it, and how many rows are before it.

    A snapshot that cannot be read costs only time where the journal is whole: an older one does, or
    the beginning.
    """
    problem: InputError | None = None
    for number, packed in store.snapshots():
        if not store.is_whole_since(number):
            break
        try:
            state, logged = _load(unpack(packed, store), store, build)
        except InputError as error:
            log.warning("%s", error)
            problem = problem or error
        else:
            return state, number, logged
    origin = store.first_snapshot()
    if origin is None:
        raise InputError(
            f"{problem or store.where}; its journal does not go back to the beginning, so the "
            f"state cannot be rebuilt: use the version that wrote it"
        ) from problem
    log.warning("rebuilding the state from the journal")
    return _rebuild(unpack_origin(origin, store), store, build), 0, 0


def _load(saved: StateSnapshot, store: Store, build: Build) -> tuple[ClusterState, int]:
    """The state of a snapshot, and how many rows of the log are from before it."""
    try:
        engine = migrate(saved.engine, saved.engine_version)
        state = build(saved.scheduling, saved.growth, saved.levels)
        logged = int(engine["log"]["taken"])
        state.forgotten = saved.forgotten
        _load_log(state, store, logged, saved.projection)
        jobs = {index for index, *_ in engine["jobs"] if index < FIRST_TASK}
        state.submit(1, max(jobs, default=0), jobs)
        restore(state.engine, engine)
    except InputError as error:
        raise InputError(f"{store.where}: {error}") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{store.where}: its snapshot (version {saved.engine_version}, this Rota writes "
            f"{ENGINE_VERSION}) makes no sense: {error!r}"
        ) from error
    return state, logged


def _load_log(
    state: ClusterState, store: Store, upto: int, projection: dict[str, Any] | None
) -> None:
    """Read the stored log, where that is needed.

    Older snapshots have nothing that was folded from it, and a checker of invariants knows the past
    from it only.
    """
    checked = state.engine.checker is not None
    kept = array("d")
    if projection is not None:
        state.projection.restore(projection)
        if not checked:
            return
    after = 0
    while after < upto:
        rows = [row for row in store.rows(after, PIECE) if row[0] <= upto]
        if projection is None:
            state.projection.fold(Row._make(row[1:]) for row in rows)
        if checked:
            kept.extend(value for row in rows for value in row[1:7])
        after = rows[-1][0] if rows else upto
    if checked:
        state.engine.log.kept = kept


def _replay(state: ClusterState, journal: Journal, after: int, wanted: Scheduling) -> bool:
    """Apply the batches after a number; was a policy that fails replaced by the one configured?"""
    repaired = False

    def survive(act: Callable[..., None], *batch: Batch) -> None:
        nonlocal repaired
        try:
            act(*batch)
        except Exception as error:
            ours = isinstance(error, RotaError) and not isinstance(error, PolicyError)
            if ours or wanted == state.scheduling:
                raise  # it failed then and would fail again
            repaired = True
            state.change(Reconfigured(wanted.as_dict(), by="recovery"))
        journal.log(state.take_rows())

    for batch in journal.store.batches(after):
        while batch.version > state.engine.view.version + 1 and state.follows:
            survive(state.follow)
        survive(state.apply, batch)
    while state.follows:
        survive(state.follow)
    return repaired


def pack(state: ClusterState) -> bytes:
    """A snapshot of the state between two batches."""
    saved = StateSnapshot(
        state.scheduling, state.growth, state.levels, version=VERSION, engine=freeze(state.engine),
        engine_version=ENGINE_VERSION, projection=state.projection.snapshot(),
        forgotten=state.forgotten,
    )  # fmt: skip
    return zlib.compress(msgspec.msgpack.encode(saved), 1)


def unpack(packed: bytes, store: Store) -> StateSnapshot:
    """Read a snapshot; refuse one that is damaged or of another version."""
    saved = _decode(packed, StateSnapshot, store)
    if saved.version != VERSION:
        raise InputError(
            f"{store.where}: its snapshot is of version {saved.version}, this Rota reads {VERSION}"
        )
    return saved


def forgotten_in(packed: bytes, store: Store) -> Forgotten:
    """The jobs that are forgotten in a snapshot."""
    return _decode(packed, ForgottenPart, store).forgotten


def unpack_origin(packed: bytes, store: Store) -> Origin:
    """What the first snapshot says of the beginning, whatever its version is."""
    return _decode(packed, Origin, store)


def _decode(packed: bytes, kind: type[T], store: Store) -> T:
    try:
        return msgspec.msgpack.decode(zlib.decompress(packed), type=kind)
    except (zlib.error, msgspec.DecodeError) as error:
        raise InputError(f"{store.where}: its snapshot cannot be read: {error}") from error
