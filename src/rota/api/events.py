"""Operations on the event log."""

from collections.abc import AsyncIterator

import msgspec
import structlog
from msgspec import UNSET
from starlette.responses import Response, StreamingResponse

from rota.api.limits import in_thread
from rota.api.routing import Ask, serves
from rota.api.streams import Stream, StreamLife
from rota.core.errors import NotFoundError, RotaError
from rota.wire import (
    EVENT_STREAM,
    EXPORT_EVENTS,
    LIST_EVENTS,
    PARQUET,
    STREAM_EVENTS,
    Event,
    EventPage,
    EventsQuery,
    StreamHeaders,
    StreamQuery,
)

STREAM_PAGE = 500

log = structlog.get_logger("rota.api")


@serves(LIST_EVENTS)
def list_events(ask: Ask, query: EventsQuery) -> EventPage:
    """Read the event log in pages.

    A page may hold fewer rows than `limit`, even none, before the end: go on until `end`.
    """
    return ask.context.log.page(ask.actor, query.after, query.limit, query.job or "")


@serves(STREAM_EVENTS)
async def stream_events(ask: Ask, query: StreamQuery, headers: StreamHeaders) -> Response:
    """Follow the event log as server-sent events.

    Each message is an Event in JSON with the row's number as its id. Comments come as a heartbeat.
    A client that was cut off resumes with `Last-Event-ID` and misses nothing.
    """
    start = headers.last if headers.last is not UNSET else query.after
    if start is UNSET:
        start = await in_thread(ask.context.log.last)
    job = query.job or ""
    if job:
        await in_thread(ask.service.job, job, ask.actor)
    return Stream(ask.context, ask.actor, _messages(ask, start, job), EVENT_STREAM)


async def _messages(ask: Ask, after: int, job: str) -> AsyncIterator[bytes]:
    context = ask.context
    life = StreamLife(context, ask.request)
    yield b"retry: 2000\nid: %d\n\n" % after
    try:
        while not await life.is_over():
            page = await in_thread(context.log.page, ask.actor, after, STREAM_PAGE, job)
            after = page.next
            if page.events:
                yield b"".join(map(_message, page.events))
            if page.end and not await context.watcher.wait(after, life.patience_s()):
                yield b": still here\n\n"
    except RotaError as error:
        log.warning("api.stream.ended", why=str(error))


def _message(event: Event) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (event.number, msgspec.json.encode(event))


@serves(EXPORT_EVENTS)
def export_events(ask: Ask) -> Response:
    """Download the whole event log as a Parquet file."""
    if ask.context.export_log is None:
        raise NotFoundError("this daemon does not export its event log")
    return StreamingResponse(ask.context.export_log(), media_type=PARQUET)
