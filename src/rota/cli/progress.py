"""A bar on stderr for runs that take a while, and only on a terminal."""

import sys
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0  # shorter runs show nothing


class ProgressBar:
    """A context; call it with (done, total) and the simulated time if there is one."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._begun_s = perf_counter()
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def retitle(self, title: str) -> "ProgressBar":
        """Go on with something else; with the same, as before."""
        if title == self._title:
            return self
        self._title = title
        if self._shown is not None:
            progress, task = self._shown
            progress.reset(task, description=title)
        return self

    def __call__(self, done: float, total: int, now_s: float | None = None) -> None:
        """Show how far it is."""
        if self._shown is None:
            if not sys.stderr.isatty() or perf_counter() - self._begun_s < PATIENCE_S:
                return
            self._shown = self._begin(total)
        progress, task = self._shown
        title = self._title if now_s is None else f"{self._title} (day {now_s / 86400:.1f})"
        progress.update(task, completed=done, total=total, description=title)

    def _begin(self, total: int) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        task = progress.add_task(self._title, total=total)
        progress.start()
        return progress, task

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown is not None:
            self._shown[0].stop()
