"""The journal: what the daemon commits before it happens, and what of it is not written yet."""

import logging
from collections.abc import Sequence

from rota.core.errors import ClusterError, RotaError
from rota.core.log import Row
from rota.daemon.store import Store, StoredJob, UsedKey
from rota.live.inputs import Batch

log = logging.getLogger("rota.daemon")


class Journal:
    """Batches of inputs with their jobs, and the event log, in one store. One thread uses it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.trouble = ""  # why nothing can be accepted at the moment
        self.since_snapshot = 0  # batches
        self._accepted: dict[int, StoredJob] = {}  # jobs that the engine has not taken yet
        self._keys: list[UsedKey] = []
        self._rows: list[Row] = []  # of the log

    # --- jobs of the batch that is being made -----------------------------------------------------

    def accept(self, jobs: Sequence[StoredJob], key: UsedKey | None = None) -> None:
        """Take these into the batch that is being made."""
        self._accepted.update((job.number, job) for job in jobs)
        if key is not None:
            self._keys.append(key)

    def is_pending(self, actor: str, key: str) -> bool:
        """Is a submission under this key in the batch that is being made?"""
        return any((used.actor, used.key) == (actor, key) for used in self._keys)

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
        self._rows = []
        self._keys = []
        self.since_snapshot += 1

    def flush(self) -> None:
        """Write the rows of the log that are still in memory."""
        if self._rows:
            self.store.append(None, self._rows)
            self._rows = []

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
                self._rows = []
                self.store.probe()
            except RotaError as error:
                self.trouble = str(error)
            else:
                self.trouble = ""

    def compare(self, taken: int) -> None:
        """After a replay: the rows since number `taken` must be those that were stored."""
        stored = [row[1:] for row in self.store.rows(taken, len(self._rows) + 1)]
        for number, row in enumerate(stored):
            if number >= len(self._rows) or tuple(self._rows[number]) != tuple(row):
                ours = self._rows[number] if number < len(self._rows) else "nothing"
                raise ClusterError(
                    f"{self.store.path}: row {taken + number + 1} of the log is {row}, but "
                    f"repeating the journal gives {ours}: the store was written by another version "
                    f"of Rota or of a policy; start that one and stop it once, then change"
                )
        del self._rows[: len(stored)]
