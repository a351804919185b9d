"""The same work on many things, in processes of their own where several cores are at hand."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """How many processes can really run at the same time."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def each(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[tuple[int, Result | Exception]]:
    """Do the work on every item; gives (number of the item, result or error) as they end.

    One failure does not stop the others. Leaving the loop early cancels what has not begun.

    Args:
        work: A function of a module (it is found by name in the other processes).
        items: Plain data that can be sent to another process.
        workers: Processes; 1: in this one; default: as many as there are cores.
    """
    count = min(workers or cores(), len(items))
    if count <= 1:
        yield from _here(work, items)
        return
    context = get_context("spawn")  # threads of polars do not survive a fork
    with ProcessPoolExecutor(count, mp_context=context, initializer=_die_quietly) as pool:
        with _deaf():  # processes are begun here, and inherit it while they import
            numbers = {pool.submit(work, item): number for number, item in enumerate(items)}
        try:
            for future in as_completed(numbers):
                error = future.exception()
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield numbers[future], future.result() if error is None else error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _here(
    work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[int, Result | Exception]]:
    for number, item in enumerate(items):
        try:
            result = work(item)
        except Exception as error:  # noqa: BLE001 - whose failure it was is for the caller to say
            yield number, error
        else:
            yield number, result


@contextmanager
def _deaf() -> Iterator[None]:
    """An interruption is not heard for a moment (only the main thread can ask for that)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _die_quietly() -> None:
    """An interruption is the parent's to report."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
