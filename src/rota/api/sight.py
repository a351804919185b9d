"""Who may see which rows of the event log, and what a row looks like to clients."""

import threading
from functools import lru_cache

import msgspec

from rota.daemon.info import Actor, LogRow
from rota.daemon.ports import Service

SEES_ALL = frozenset({"operator", "admin"})
NOTE = "note"
READ_AT_ONCE = 1_000
SCANNED_AT_MOST = 50_000  # rows for one page: a filter that matches little must not take long
REMEMBERED = 256  # actors


class EventInfo(msgspec.Struct):
    """One row of the event log.

    `number` counts from 1. `time_s` are seconds since the store was created, `at` the same as Unix
    seconds. What `ref`, `other`, `value` and `text` mean depends on `event`: see the reference of
    the event log.
    """

    number: int
    time_s: float
    at: float | None
    event: str
    job: str | None
    ref: int
    other: int
    value: float | None
    text: str | None


class EventPage(msgspec.Struct):
    """A piece of the event log. Ask again with `after` = `next`; `end`: there is no more yet."""

    events: list[EventInfo]
    next: int
    end: bool


class _Own:
    """The jobs that one actor may see. Whose a job is never changes, so they are asked for once."""

    def __init__(self, service: Service, actor: Actor) -> None:
        self._service = service
        self._actor = actor
        self._lock = threading.Lock()
        self._numbers: set[int] = set()
        self._until = 0  # up to this number it is known

    def has(self, job: int) -> bool:
        """May the actor see this job, which exists?"""
        with self._lock:
            while job > self._until:
                page = self._service.jobs(
                    self._actor, after=str(self._until), limit=READ_AT_ONCE, active=False
                )
                numbers = [int(info.id) for info in page]
                self._numbers.update(numbers)
                whole = len(page) < READ_AT_ONCE
                self._until = max(numbers[-1] if numbers else 0, job if whole else 0)
            return job in self._numbers


class Sight:
    """Reads the log as somebody may see it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._epoch: float | None = None
        self._own = lru_cache(maxsize=REMEMBERED)(lambda actor: _Own(service, actor))

    def page(self, actor: Actor, after: int, limit: int, job: str = "") -> EventPage:
        """Rows after this number, of one job or of all that the actor may see."""
        if job:
            self._service.job(job, actor)  # says so if it is not for them
        wanted = int(job) if job else None
        found: list[EventInfo] = []
        scanned = 0
        while scanned < SCANNED_AT_MOST:
            rows = self._service.events(after, READ_AT_ONCE)
            if not rows:
                return EventPage(found, after, end=True)
            for row in rows:
                after = row.number
                if self._fits(row, actor, wanted):
                    found.append(self._info(row))
                if len(found) == limit:
                    return EventPage(found, after, end=False)
            scanned += len(rows)
        return EventPage(found, after, end=False)

    def last(self) -> int:
        """Number of the last row; 0 if the daemon does not tell."""
        return int(self._service.status().get("last_event", 0))

    def _fits(self, row: LogRow, actor: Actor, wanted: int | None) -> bool:
        if wanted is not None:
            return row.job == wanted
        if row.event == NOTE:  # who made tokens, changed the configuration, removed nodes
            return actor.role in SEES_ALL
        return row.job < 0 or actor.role in SEES_ALL or self._own(actor).has(row.job)

    def _info(self, row: LogRow) -> EventInfo:
        if self._epoch is None:
            self._epoch = self._service.status().get("epoch_unix")
        return EventInfo(
            number=row.number,
            time_s=row.time_s,
            at=None if self._epoch is None else self._epoch + row.time_s,
            event=row.event,
            job=str(row.job) if row.job >= 0 else None,
            ref=row.ref,
            other=row.other,
            value=row.value,
            text=row.text,
        )
