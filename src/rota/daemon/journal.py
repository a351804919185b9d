"""The journal: what the daemon commits before it happens, and what of it is not written yet."""

import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from rota.core.errors import ClusterError, RotaError
from rota.core.events import INF
from rota.core.log import Row
from rota.daemon.store import Store, StoredJob, UsedKey
from rota.live.inputs import Batch

PIECE = 10_000  # rows of the log that are compared at once
KEEP_S = 0.02  # how long rows of the log wait for a batch with which they are written
MANY = 200  # rows are not kept: a batch that had to write them too would be answered late
RETRY_S = 0.25  # after a failure to write
log = logging.getLogger("rota.daemon")


class Journal:
    """Batches of inputs with their jobs, and the event log, in one store. One thread uses it.

    Rows of the log follow from the batches, so nothing is lost if they are not written at once: a
    few of them wait for the next batch, because every transaction waits for the disk.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = perf_counter) -> None:
        self.store = store
        self._clock = clock
        self._due_s = INF  # when the rows are written at the latest
        self.trouble = ""  # why nothing can be accepted at the moment
        self.since_snapshot = 0  # batches
        self._accepted: dict[int, StoredJob] = {}  # jobs that the engine has not taken yet
        self._keys: list[UsedKey] = []
        self._rows: list[Row] = []  # of the log
        self._replayed: int | None = None  # during a replay: stored rows that it gave again

    # --- jobs of the batch that is being made -----------------------------------------------------

    def accept(self, jobs: Sequence[StoredJob], key: UsedKey | None = None) -> None:
        """Take these into the batch that is being made."""
        self._accepted.update((job.number, job) for job in jobs)
        if key is not None:
            self._keys.append(key)

    def is_pending(self, actor: str, key: str) -> bool:
        """Is a submission under this key in the batch that is being made?"""
        return any((used.actor, used.key) == (actor, key) for used in self._keys)

    def accepted_by(self, user: str) -> int:
        """Jobs of a user in the batch that is being made."""
        return sum(job.user == user for job in self._accepted.values())

    def next_number(self) -> int:
        """The number of the next job."""
        return max((self.store.job_number, *self._accepted)) + 1

    def jobs(self, first: int, count: int) -> list[StoredJob]:
        """The jobs of a committed submission."""
        numbers = range(first, first + count)
        if all(number in self._accepted for number in numbers):
            return [self._accepted.pop(number) for number in numbers]
        return self.store.jobs(first, count)

    # --- writing ----------------------------------------------------------------------------------

    def log(self, rows: Sequence[Row]) -> None:
        """Rows for the event log; written with the next batch, or by `flush`."""
        self._rows += rows
        if rows:
            wait_s = KEEP_S if len(self._rows) < MANY else 0.0
            self._due_s = min(self._due_s, self._clock() + wait_s)
        if self._replayed is not None and len(self._rows) >= PIECE:
            self._replayed = self._compared(self._replayed)

    def commit(self, batch: Batch) -> None:
        """Write what is about to happen, and the log of what happened before; all or nothing."""
        jobs = sorted(self._accepted.values(), key=lambda job: job.number)
        try:
            self.store.append(batch, self._rows, jobs, self._keys)
        except RotaError as error:
            self._accepted.clear()
            self._keys.clear()
            if not self.trouble:
                log.warning("nothing can be accepted: %s", error)
            self.trouble = str(error)
            raise
        if self.trouble:
            log.warning("the store can be used again")
        self.trouble = ""
        self._written()
        self._keys = []
        self.since_snapshot += 1

    def flush(self) -> None:
        """Write the rows of the log that are still in memory."""
        if self._rows:
            self._due_s = self._clock() + RETRY_S
            self.store.append(None, self._rows)
            self._written()

    @property
    def is_behind(self) -> bool:
        """Are there rows that are not written yet?"""
        return bool(self._rows)

    def flush_in_s(self) -> float:
        """How long the rows in memory may stay there; inf: there are none."""
        return max(0.0, self._due_s - self._clock()) if self._rows else INF

    def _written(self) -> None:
        self._rows, self._due_s = [], INF

    def save(self, snapshot: bytes) -> None:
        """Keep a snapshot of the state after everything that was committed."""
        self.flush()
        self.store.save_snapshot(snapshot)
        self.since_snapshot = 0

    def probe(self) -> None:
        """Is there trouble, or is it over? To write is the only way to know that it is over."""
        try:
            self.store.check_present()
        except RotaError as error:
            self.trouble = str(error)
            return
        if self.trouble:
            try:
                self.store.append(None, self._rows)
                self._written()
                self.store.probe()
            except RotaError as error:
                self.trouble = str(error)
            else:
                self.trouble = ""

    # --- replay -----------------------------------------------------------------------------------

    def begin_replay(self, taken: int) -> None:
        """The rows from number `taken` on must be those that are stored already."""
        self._replayed = taken

    def end_replay(self) -> None:
        """The journal has been replayed; rows that are not stored yet stay here."""
        replayed, self._replayed = self._replayed or 0, None
        while replayed < self.store.log_number:
            replayed = self._compared(replayed)

    def _compared(self, replayed: int) -> int:
        """Drop rows that are stored, and raise where they differ; the last that was compared."""
        count = min(PIECE, len(self._rows))
        for number, *stored in self.store.rows(replayed, max(1, count)):
            ours = self._rows[number - replayed - 1] if count else "nothing"
            if tuple(ours) != tuple(stored):
                raise ClusterError(
                    f"{self.store.where}: row {number} of the log is {stored}, but replaying the "
                    f"journal gives {ours}: the store was written by another version of Rota or of "
                    f"a policy; start that one and stop it once, then change"
                )
        count = min(count, self.store.log_number - replayed)
        del self._rows[:count]
        return replayed + count
