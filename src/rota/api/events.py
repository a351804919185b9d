"""Operations on the event log."""

from collections.abc import AsyncIterator

import msgspec
import structlog
from msgspec import UNSET
from starlette.responses import Response, StreamingResponse

from rota.api.limits import in_thread
from rota.api.routing import ApiCall, serves
from rota.api.streams import Stream, StreamLife
from rota.core.errors import NotFoundError, RotaError
from rota.wire import (
    EVENT_STREAM,
    EXPORT_EVENTS,
    LIST_AUDIT,
    LIST_EVENTS,
    PARQUET,
    STREAM_EVENTS,
    AuditPage,
    AuditQuery,
    Event,
    EventPage,
    EventsQuery,
    StreamHeaders,
    StreamQuery,
)

STREAM_PAGE = 500

log = structlog.get_logger("rota.api")


@serves(LIST_EVENTS)
def list_events(call: ApiCall, query: EventsQuery) -> EventPage:
    """Read the event log in pages.

    A page may hold fewer rows than `limit`, even none, before the end: go on until `end`.
    """
    return call.context.log.page(call.actor, query.after, query.limit, query.job or "")


@serves(LIST_AUDIT)
def list_audit(call: ApiCall, query: AuditQuery) -> AuditPage:
    """Read the audit log: who did what, each line chained to the one before it.

    The chain is checked for the lines of the page; from `after` = 0 on page by page, for all.
    """
    return call.service.audit_log(None if query.after is UNSET else query.after, query.limit)


@serves(STREAM_EVENTS)
async def stream_events(call: ApiCall, query: StreamQuery, headers: StreamHeaders) -> Response:
    """Follow the event log as server-sent events.

    Each message is an Event in JSON with the row's number as its id. Comments come as a heartbeat.
    A client that was cut off resumes with `Last-Event-ID` and misses nothing.
    """
    start = headers.last if headers.last is not UNSET else query.after
    if start is UNSET:
        start = await in_thread(call.context.log.last)
    job = query.job or ""
    if job:
        await in_thread(call.service.job, job, call.actor)
    return Stream(call.context, call.actor, _messages(call, start, job), EVENT_STREAM)


async def _messages(call: ApiCall, after: int, job: str) -> AsyncIterator[bytes]:
    context = call.context
    life = StreamLife(context, call.request)
    yield b"retry: 2000\nid: %d\n\n" % after
    try:
        while not await life.is_over():
            page = await in_thread(
                context.log.page, call.actor, after, STREAM_PAGE, job, whole=True
            )
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
def export_events(call: ApiCall) -> Response:
    """Download the whole event log as a Parquet file."""
    if call.context.export_log is None:
        raise NotFoundError("this daemon does not export its event log")
    return StreamingResponse(call.context.export_log(), media_type=PARQUET)
