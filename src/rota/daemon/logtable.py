"""The stored log as a table."""

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from rota.core.log import Record

if TYPE_CHECKING:
    import polars as pl

    from rota.daemon.store import Store


class LogTable:
    """Reads what is new and remembers the rest: a question does not read the whole store again.

    It may be asked by several threads.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._lock = Lock()
        self._upto = 0
        self._table: Any = None  # numpy is imported when somebody asks
        self._texts: list[str | None] = []

    def frame(
        self, now_s: float, counts: tuple[int, int] = (0, 0), leaving: Sequence[int] = ()
    ) -> "pl.DataFrame":
        """The whole log as a table that ends now; every row has the time at which it happened.

        Args:
            now_s: The end.
            counts: Events and decisions so far.
            leaving: Jobs that are being stopped at the end: the log will say so only later.
        """
        import numpy as np

        from rota.engine.log import as_frame

        with self._lock:
            self._read()
            table, texts = as_it_was(self._table, self._texts)
        last = max(now_s, float(table[-1, 0]) if len(table) else 0.0)
        end = [[last, float(Record.STOPPED), job, -1, -1, 0.0] for job in leaving]
        end.append([last, float(Record.END), -1, *counts, 0.0])
        whole = np.concatenate([table, np.array(end, dtype=np.float64)])
        return as_frame(whole, [*texts, *[None] * len(end)])

    def renew(self) -> None:
        """Read it all again next time: some of it may be gone."""
        with self._lock:
            self._upto, self._table, self._texts = 0, None, []

    def _read(self) -> None:
        import numpy as np

        if self._table is None:
            self._table = np.empty((0, 6))
        pieces = [self._table]
        for rows in self._store.all_rows(self._upto):
            pieces.append(np.array([row[1:7] for row in rows], dtype=np.float64))
            self._texts += [row[7] for row in rows]
            self._upto = rows[-1][0]
        if len(pieces) > 1:
            self._table = np.concatenate(pieces)


def as_it_was(table: Any, texts: Sequence[str | None]) -> tuple[Any, list[str | None]]:
    """Rows in the order in which things happened, not in that in which they were heard of.

    What a job did before something of which was heard late (it was asked to stop when it had ended
    already) is not later than that.
    """
    import numpy as np

    late = np.flatnonzero(table[:-1, 1] == Record.LATE)
    if not len(late):
        return table, list(texts)
    table = table.copy()
    table[late + 1, 0] = table[late, 5]
    kept = np.flatnonzero(table[:, 1] != Record.LATE)
    table = table[kept]
    by_job = np.argsort(table[:, 2], kind="stable")
    job, time_s = table[by_job, 2], table[by_job, 0]
    back = np.flatnonzero((job[1:] == job[:-1]) & (job[1:] >= 0) & (time_s[1:] < time_s[:-1])) + 1
    for at in back.tolist():
        before = at - 1
        while before >= 0 and job[before] == job[at] and time_s[before] > time_s[at]:
            time_s[before] = time_s[at]
            before -= 1
    table[by_job, 0] = time_s
    order = np.argsort(table[:, 0], kind="stable")
    return table[order], [texts[row] for row in kept[order].tolist()]
