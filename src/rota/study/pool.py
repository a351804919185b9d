"""The same work on many things, in processes of their own where several cores are at hand.

Processes are forked where that is safe: they begin at once, and they share what this process has
read, such as a workload. Where other threads are at work (polars has computed something, a
notebook runs) they are started anew and import everything for themselves. The results are the same.

A process that dies takes nothing but its own item with it. An interruption (Ctrl-C) is answered by
this process, which ends the others.
"""

import gc
import os
import pickle
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rota.core.errors import RotaError

Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_S = 0.25  # between two looks at how far the others are
PATIENCE_S = 5.0  # for a process that was ended
HARMLESS = ("jemalloc_bg_thd", "polars-ooc-clea")
"""Threads of polars that are there once it is imported: idle, or prepared for a fork. The others
come with its first computation, and a forked process would wait for them for ever."""

Told = Callable[[float], object]
"""Called with how many items are done; one that is half done counts as a half."""


class DeadWorkerError(RotaError):
    """The process that did the work has died; `how` says of what."""

    how = ""


def cores() -> int:
    """How many processes can really run at the same time."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def each(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int | None = None,
    *,
    told: Told | None = None,
    apart: bool = False,
) -> Generator[tuple[int, Result | Exception], None, None]:
    """Do the work on every item; gives (number of the item, result or error) as they end.

    One failure does not stop the others. Closing the generator ends what is going on.

    Args:
        work: A function of a module (another process may find it by its name).
        items: Plain data that can be sent to another process.
        workers: Processes; 1: in this one; default: as many as there are cores.
        told: Called from time to time; work says how far it is with `report`.
        apart: In other processes even if one is enough: it may die.
    """
    count = min(workers or cores(), len(items))
    if count < 1 or (count == 1 and not apart):
        yield from _here(work, items, told)
        return
    crew = _Crew(work, items)
    waiting = deque(range(len(items)))
    done = 0
    try:
        while waiting or crew.busy:
            while waiting and len(crew.busy) < count:
                crew.give(waiting.popleft())
            for number, answer in crew.answers():
                done += 1
                crew.shares[number] = 0.0
                yield number, answer
            if told is not None:
                told(done + sum(crew.shares))
    finally:
        crew.dismiss()


def _here(
    work: Callable[[Item], Result], items: Sequence[Item], told: Told | None
) -> Iterator[tuple[int, Result | Exception]]:
    for number, item in enumerate(items):
        with _reporting(None if told is None else partial(_tell_part, told, number)):
            try:
                answer: Result | Exception = work(item)
            except Exception as error:  # noqa: BLE001 - the caller says whose failure it was
                answer = error
        if told is not None:
            told(number + 1)
        yield number, answer


# --- how far work is -----------------------------------------------------------------------------

_listener: Callable[[float], object] | None = None


def report(done: float, total: float, now_s: float = 0.0) -> None:  # noqa: ARG001 - as `Progress`
    """Report how far the work on the present item is."""
    if _listener is not None and total:
        _listener(min(done / total, 1.0))


def _tell_part(told: Told, before: int, share: float) -> None:
    if share < 1.0:  # the whole is told once, with its answer
        told(before + share)


@contextmanager
def _reporting(listener: Callable[[float], object] | None) -> Iterator[None]:
    global _listener  # noqa: PLW0603 - a process works on one item at a time
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


# --- other processes -----------------------------------------------------------------------------


class _Worker(NamedTuple):
    process: BaseProcess
    line: Connection


class _Crew:
    """Worker processes: idle ones are used again, those that died are not."""

    def __init__(self, work: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self._work = work
        self._items = items
        self._context: Any = get_context("fork" if _can_fork() else "spawn")
        self._idle: list[_Worker] = []
        self._ready: set[Connection] = set()
        self.busy: dict[Connection, tuple[_Worker, int]] = {}
        self.shares: Any = self._context.RawArray("d", len(items))  # done of each that has begun

    def give(self, number: int) -> None:
        """Let an idle worker, or a new one, do it."""
        while True:
            worker = self._idle.pop() if self._idle else self._hire()
            self.busy[worker.line] = (worker, number)
            try:
                worker.line.send((number, self._items[number]))
            except OSError:  # it died while it was idle
                del self.busy[worker.line]
                self._bury(worker)
            else:
                return

    def _hire(self) -> _Worker:
        if self._context.get_start_method() == "fork" and not _can_fork():
            self._context = get_context("spawn")  # a bar is shown by a thread, for instance
        ours, theirs = self._context.Pipe()
        forked = self._context.get_start_method() == "fork"
        others = [ours, *(one.line for one in self._everyone())] if forked else []
        process = self._context.Process(
            target=_serve, args=(theirs, self._work, self.shares, others), daemon=True
        )
        with _begun_in_peace():
            process.start()
        theirs.close()  # so that its end is seen at ours
        return _Worker(process, ours)

    def answers(self) -> Iterator[tuple[int, Any]]:
        """Wait a moment; a dead worker's end of the line is closed, which is an answer too."""
        talking: list[Any] = wait(list(self.busy), LOOK_S)
        for line in talking:
            worker, number = self.busy[line]
            try:
                answer = worker.line.recv()
            except (EOFError, OSError):
                answer = self._died(worker)
            else:
                if line not in self._ready:  # its first word is that it is there
                    self._ready.add(line)
                    continue
                self._idle.append(worker)
            del self.busy[line]
            yield number, answer

    def _died(self, worker: _Worker) -> DeadWorkerError:
        how = self._bury(worker)
        if worker.line not in self._ready and (worker.process.exitcode or 0) > 0:
            raise RotaError(
                f"a process for runs cannot be started ({how}; its message is above): a script "
                f'must start runs below `if __name__ == "__main__":`, or in one process'
            )
        error = DeadWorkerError(f"its process died ({how})")
        error.how = how
        return error

    def _bury(self, worker: _Worker) -> str:
        worker.line.close()
        worker.process.join(PATIENCE_S)
        code = worker.process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        more = ": out of memory?" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{more}"

    def _everyone(self) -> list[_Worker]:
        return [*self._idle, *(worker for worker, _ in self.busy.values())]

    def dismiss(self) -> None:
        """End all; what is half done is lost."""
        everyone = self._everyone()
        for worker in everyone:
            worker.line.close()
            worker.process.terminate()
        for worker in everyone:
            worker.process.join(PATIENCE_S)


def _can_fork() -> bool:
    """Whether no thread of this process but the main one may hold a lock; Linux tells it."""
    if threading.active_count() > 1:
        return False
    try:
        names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
        main = Path("/proc/self/comm").read_text().strip()
    except OSError:
        return False
    # Threads of linear algebra have the name of the process, and are prepared for a fork.
    return bool(names) and all(name == main or name in HARMLESS for name in names)


@contextmanager
def _begun_in_peace() -> Iterator[None]:
    """A process begins without an interruption; this one hears it afterwards.

    What is there now is not looked at by the collector, neither here nor there: pages that nobody
    writes to stay shared.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    gc.freeze()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: see `_can_fork`
            yield
    finally:
        gc.unfreeze()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _packed(answer: Any) -> bytes:
    """An answer for the line; one that would not arrive as it is becomes an error in words."""
    try:
        packed = pickle.dumps(answer)
        if isinstance(answer, Exception):
            pickle.loads(packed)  # noqa: S301 - our own: may need arguments that it did not keep
    except Exception as error:  # noqa: BLE001 - classes of users may do anything
        what = answer if isinstance(answer, Exception) else error
        packed = pickle.dumps(RotaError(f"{type(what).__name__}: {what}"))
    return packed


def _serve(
    line: Connection, work: Callable[[Any], Any], shares: Any, others: Sequence[Connection]
) -> None:
    """The life of a worker; it ends with its parent, or when that has no more work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in others:  # the ends of the parent, which a fork copies
        other.close()
    with suppress(EOFError, OSError):  # the parent has gone
        line.send(None)
        while True:
            number, item = line.recv()
            with _reporting(partial(shares.__setitem__, number)):
                try:
                    answer = work(item)
                except Exception as error:  # noqa: BLE001 - the caller says whose failure it was
                    answer = error
            line.send_bytes(_packed(answer))
