"""The event log as an actor may see it, and news of it for all who stream it."""

import asyncio
import threading
from functools import lru_cache

from rota.api.limits import in_thread
from rota.daemon.access import sees_all_jobs, sees_notes
from rota.daemon.ports import Service
from rota.wire import PAGE, Actor, Event, EventPage

NOTE = "note"
SCANNED_AT_MOST = 50_000  # rows for one page: a filter that matches little must not take long
REMEMBERED = 256  # actors
TURN_S = 0.5  # the longest that a stop of the server waits for the thread
PAUSE_S = 0.02  # many rows in a short time become one piece of news


class _OwnJobs:
    """The jobs of one user. The owner of a job never changes, so they are asked for once."""

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
                    self._actor, after=str(self._until), limit=PAGE, active=False
                )
                numbers = [int(info.id) for info in page]
                self._numbers.update(numbers)
                whole = len(page) < PAGE
                self._until = max(numbers[-1] if numbers else 0, job if whole else 0)
            return job in self._numbers


class VisibleLog:
    """Reads the rows that an actor may see."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._own = lru_cache(maxsize=REMEMBERED)(lambda actor: _OwnJobs(service, actor))

    def page(
        self, actor: Actor, after: int, limit: int, job: str = "", *, whole: bool = False
    ) -> EventPage:
        """Rows after this number, of one job or of all that the actor may see.

        `whole`: look at the rows of other jobs, too, so that `next` is the end of the whole log.
        """
        if job:
            self._service.job(job, actor)  # refuses jobs that the actor does not see
            job = str(int(job))  # without leading zeros
        found: list[Event] = []
        scanned = 0
        while scanned < SCANNED_AT_MOST:
            rows = self._service.events(after, PAGE, "" if whole else job)
            if not rows:
                return EventPage(found, after, end=True)
            for row in rows:
                after = row.number
                if row.job == job if job else self._shows(row, actor):
                    found.append(row)
                if len(found) == limit:
                    return EventPage(found, after, end=False)
            scanned += len(rows)
        return EventPage(found, after, end=False)

    def last(self) -> int:
        """Number of the last row; 0 if it is not known."""
        return int(self._service.status().get("last_event", 0))

    def _shows(self, row: Event, actor: Actor) -> bool:
        if row.event == NOTE:
            return sees_notes(actor)
        return row.job is None or sees_all_jobs(actor) or self._own(actor).has(int(row.job))


class LogWatcher:
    """Wakes streams when there are new rows: one thread waits on behalf of all of them."""

    def __init__(self, service: Service, closing: threading.Event) -> None:
        self._service = service
        self._closing = closing
        self._waiting: dict[asyncio.Future[bool], int] = {}
        self._pump: asyncio.Task[None] | None = None

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until there may be rows after this number; False after the timeout."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = after
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        try:
            return await asyncio.wait_for(woken, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(woken, None)

    async def _run(self) -> None:
        while self._waiting:
            # Each stream has read everything up to its number: the lowest is the first to know.
            after = min(self._waiting.values())
            try:
                news = await in_thread(self._service.wait_events, after, TURN_S)
            except Exception:  # noqa: BLE001 - the streams read next, and meet the error there
                news = True
            if news or self._closing.is_set():
                for woken in self._waiting:
                    if not woken.done():
                        woken.set_result(news)
                self._waiting.clear()
                await asyncio.sleep(PAUSE_S)
