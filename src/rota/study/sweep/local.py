"""Runs in processes of this machine. A process that dies takes nothing but its own run with it."""

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol, TypeAlias

from rota.study.pool import DeadWorkerError, cores, each
from rota.study.sweep.store import Runs
from rota.study.sweep.work import Failure, SweepTask, attempt

ATTEMPTS = 2  # of a run whose process died: the memory may have been taken by another


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
        work = partial(attempt, runs=runs, again=True)
        for turn in range(1, ATTEMPTS + 1):
            dead = []
            with closing(each(work, tasks, self._workers, apart=True)) as answers:
                for number, answer in answers:
                    if isinstance(answer, DeadWorkerError) and turn < ATTEMPTS:
                        dead.append(tasks[number])
                    elif isinstance(answer, DeadWorkerError):
                        why = f"its process died {ATTEMPTS} times ({answer.how})"
                        yield tasks[number].key, Failure(why)
                    elif isinstance(answer, Exception):
                        raise answer
                    else:
                        yield tasks[number].key, answer
            if not dead:
                return
            tasks = dead
