"""A plan: the change a scheduler wants, why, and when it wants to be asked again."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rota.core.allocation import Allocation
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.reasons import Reason


class Wake(msgspec.Struct, frozen=True):
    """When to ask again. Conditions are OR-ed; asking earlier is always allowed.

    `on` names event kinds; None means every event. `every_s` is a round, aligned to time 0.
    """

    on: frozenset[int] | None = None
    at_s: float = INF
    every_s: float = 0.0


ON_EVERY_EVENT = Wake()


class Level(msgspec.Struct, frozen=True):
    """Ask when a quantity of a job reaches a value; the engine turns it into an exact time.

    Quantities: `service` (GPU-seconds), `executed` (seconds), `progress` (0..1), `waiting` (s).
    """

    job: Job
    quantity: str
    value: float


class Plan:
    """Desired changes: a job that is not named stays as it is.

    A job in `stops` and in `starts` is restarted: that is the caller's explicit wish (it counts as
    a preemption). A running job in `starts` alone gets the new allocation: it is moved or resized.
    """

    # A plan is made at nearly every event. What is rare is therefore a class attribute until it is
    # used, and `unusual` says whether there is any of it.
    unusual = False
    cancels: Sequence[tuple[Job, Job | None]] = ()
    rejects: Sequence[tuple[Job, str]] = ()
    holds: Sequence[tuple[Job, Reason]] = ()
    admits: Sequence[Job] = ()
    reasons: Sequence[tuple[Job, Reason]] = ()
    levels: Sequence[Level] = ()
    causes: dict[int, Job] | None = None  # index of a stopped job -> who displaced it
    whys: dict[int, str] | None = None  # index of a stopped job -> for what reason, in words
    wake: Wake | None = None  # None: as before

    def __init__(self, version: int) -> None:
        self.version = version
        self.starts: list[tuple[Job, Allocation]] = []
        self.stops: list[Job] = []
        self.shape_reasons: list[tuple[int, int, Job | None]] = []

    def start(self, job: Job, allocation: Allocation) -> None:
        """Run this job on these slices (start, move or resize it)."""
        self.starts.append((job, allocation))

    def stop(self, job: Job, *, because_of: Job | None = None) -> None:
        """Take its resources away; it returns to the queue."""
        self.stops.append(job)
        if because_of is not None:
            if self.causes is None:
                self.causes = {}
            self.causes[job.index] = because_of

    def remark(self, job: Job, why: str, *, because_of: Job | None = None) -> None:
        """Say in the log why a job is stopped, and for whom."""
        if self.whys is None:
            self.whys = {}
        self.whys[job.index] = why
        if because_of is not None:
            self.causes = self.causes or {}
            self.causes[job.index] = because_of

    def cancel(self, jobs: Iterable[Job], *, because_of: Job | None = None) -> None:
        """End these jobs for good, e.g. the other trials of a search."""
        self._more("cancels").extend((job, because_of) for job in jobs)

    def reject(self, job: Job, message: str) -> None:
        """Refuse a job that has not started; the message reaches its owner."""
        self._more("rejects").append((job, message))

    def hold(self, job: Job, reason: Reason) -> None:
        """Keep a new job outside the queue."""
        self._more("holds").append((job, reason))

    def withdraw_hold(self, job: Job) -> bool:
        """Take a `hold` of this plan back; False if there was none."""
        kept = [entry for entry in self.holds if entry[0] is not job]
        found = len(kept) < len(self.holds)
        self.holds = kept
        return found

    def admit(self, job: Job) -> None:
        """Let a held job into the queue."""
        self._more("admits").append(job)

    def explain(self, job: Job, reason: Reason) -> None:
        """Say why a job waits. Only changes are recorded."""
        self._more("reasons").append((job, reason))

    def watch(self, job: Job, quantity: str, value: float) -> None:
        """Ask me when this quantity of the job reaches the value."""
        self._more("levels").append(Level(job, quantity, value))

    def _more(self, name: str) -> list[Any]:
        """The list behind a rare attribute, made on first use."""
        self.unusual = True
        made: list[Any] = self.__dict__.setdefault(name, [])
        return made

    @property
    def empty(self) -> bool:
        """It changes nothing about any job."""
        return not (self.starts or self.stops or self.cancels or self.rejects)
