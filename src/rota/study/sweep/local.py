"""Runs in processes of this machine. A process that dies takes nothing but its own run with it."""

import signal
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeAlias

import msgspec

from rota.core.errors import RotaError
from rota.study.pool import cores
from rota.study.sweep.store import Runs
from rota.study.sweep.work import Failure, SweepTask, attempt

ATTEMPTS = 2  # of a run whose process died: the memory may have been taken by another
PATIENCE_S = 5.0


Answers: TypeAlias = Generator[tuple[str, Failure | None], None, None]


class RunExecutor(Protocol):
    """Carries out tasks, wherever that is."""

    def run(self, tasks: Sequence[SweepTask], runs: Runs) -> Answers:
        """Put every run among `runs`; gives its key, and why it failed if it did, as they end.

        Closing the generator ends what is going on.
        """


class Local:
    """In processes of their own.

    Args:
        workers: How many at the same time; 0: one after the other in this process; default: as many
            as there are cores.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = cores() if workers is None else workers

    def run(self, tasks: Sequence[SweepTask], runs: Runs) -> Answers:
        """See `RunExecutor`."""
        if not self._workers:
            for task in tasks:
                yield task.key, attempt(task, runs)
            return
        crew = _Crew(runs)
        try:
            yield from self._feed(deque(tasks), crew)
        finally:
            crew.dismiss()

    def _feed(self, waiting: deque[SweepTask], crew: "_Crew") -> Answers:
        deaths: dict[str, int] = {}
        while waiting or crew.busy:
            while waiting and len(crew.busy) < self._workers:
                crew.give(waiting.popleft())
            for task, answer in crew.answers():
                if not isinstance(answer, _Death):
                    yield task.key, answer
                    continue
                deaths[task.key] = deaths.get(task.key, 0) + 1
                if deaths[task.key] < ATTEMPTS:
                    waiting.append(task)
                else:
                    yield task.key, Failure(f"its process died {ATTEMPTS} times ({answer.how})")


class _Death(msgspec.Struct, frozen=True):
    how: str


class _Worker(msgspec.Struct, frozen=True):
    process: BaseProcess
    line: Connection


class _Crew:
    """Worker processes: idle ones are used again, those that died are not."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._idle: list[_Worker] = []
        self._ready: set[Connection] = set()
        self.busy: dict[Connection, tuple[_Worker, SweepTask]] = {}

    def give(self, task: SweepTask) -> None:
        """Let an idle worker, or a new one, do it."""
        while True:
            worker = self._idle.pop() if self._idle else self._hire()
            self.busy[worker.line] = (worker, task)
            try:
                worker.line.send(task)
            except OSError:  # it died while it was idle
                del self.busy[worker.line]
                self._bury(worker)
            else:
                return

    def _hire(self) -> _Worker:
        context = get_context("spawn")  # threads of polars do not survive a fork
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._runs), daemon=True)
        process.start()
        theirs.close()  # so that its end is seen at ours
        return _Worker(process, ours)

    def answers(self) -> Iterator[tuple[SweepTask, Failure | _Death | None]]:
        """Wait for at least one; a dead worker's end of the line is closed, which is one too."""
        talking: list[Any] = wait(list(self.busy))
        for line in talking:
            worker, task = self.busy[line]
            try:
                answer: Failure | _Death | None = worker.line.recv()
            except (EOFError, OSError):
                answer = self._died(worker)
            else:
                if line not in self._ready:  # its first word is that it is there
                    self._ready.add(line)
                    continue
                self._idle.append(worker)
            del self.busy[line]
            yield task, answer

    def _died(self, worker: _Worker) -> _Death:
        how = self._bury(worker)
        if worker.line not in self._ready and (worker.process.exitcode or 0) > 0:
            raise RotaError(
                f"a process for runs cannot be started ({how}; its message is above): a script "
                f'must start runs below `if __name__ == "__main__":`, or with jobs=0'
            )
        return _Death(how)

    def _bury(self, worker: _Worker) -> str:
        worker.line.close()
        worker.process.join(PATIENCE_S)
        code = worker.process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        more = ": out of memory?" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{more}"

    def dismiss(self) -> None:
        """End all; what is half done is lost."""
        everyone = [*self._idle, *(worker for worker, _ in self.busy.values())]
        for worker in everyone:
            worker.line.close()
            worker.process.terminate()
        for worker in everyone:
            worker.process.join(PATIENCE_S)


def _serve(line: Connection, runs: Runs) -> None:
    """The life of a worker; it ends with its parent, or when that has no more work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's to answer
    with suppress(EOFError, OSError):  # the parent has gone
        line.send(None)
        while True:
            task = line.recv()
            line.send(attempt(task, runs))
