"""Problems solved at the same time, in processes of their own."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar
from weakref import finalize

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """Processes that are started with the first problem and stay for the next ones."""

    def __init__(self, count: int = 0) -> None:
        self.count = count or len(os.sched_getaffinity(0))
        self._pool: ProcessPoolExecutor | None = None

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterable[Result]:
        """As the function of this name; with one process only it is that."""
        if self.count <= 1:
            return map(work, items)
        if self._pool is None:
            # threads of other libraries do not survive a fork
            self._pool = ProcessPoolExecutor(self.count, mp_context=get_context("spawn"))
            finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
        return self._pool.map(work, items)
