"""Answers that go on: live events and the output of jobs."""

import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Any, Literal

import anyio
import msgspec
import structlog
from fastapi import Header, Query, Response
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rota.api.access import Asker, bearer
from rota.api.bodies import encode
from rota.api.context import Context, Here
from rota.api.jobs import ENDED, MAX_PAGE, JobId, known_id
from rota.api.lanes import in_thread
from rota.api.routes import Route
from rota.api.sight import EventInfo, EventPage
from rota.core.errors import InputError, RotaError
from rota.daemon.info import Actor

NUMBER = 2**53 - 1
PIECE = 64 * 2**10
MAX_PIECE = 2**20
STREAM_PAGE = 500
NEXT_OFFSET = "Rota-Next-Offset"

log = structlog.get_logger("rota.api")

OneJob = Annotated[
    str | None, Query(pattern=r"^[0-9]{1,15}$", description="Only of this job (its id).")
]


class _Stream(StreamingResponse):
    """A response that holds a slot until it is over, however it ends."""

    def __init__(self, here: Context, asker: Actor, content: Any, media_type: str) -> None:
        super().__init__(content, media_type=media_type)
        self._here = here
        self._slot = ExitStack()
        self._slot.enter_context(here.slots.one(asker))
        here.metrics.count_streams(here.slots.taken)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slot.close()
            self._here.metrics.count_streams(self._here.slots.taken)


class _Watch:
    """Tells when a stream has to end: the server stops, it is old, or its token was revoked."""

    def __init__(self, here: Context, request: Request) -> None:
        self._here = here
        self._token = bearer(request)
        self._until_s = time.monotonic() + here.settings.stream_s
        self._check_s = time.monotonic() + here.settings.heartbeat_s

    async def is_over(self) -> bool:
        now = time.monotonic()
        if self._here.closing.is_set() or now >= self._until_s:
            return True
        if now < self._check_s:
            return False
        self._check_s = now + self._here.settings.heartbeat_s
        return await in_thread(self._here.service.authenticate, self._token) is None

    def patience_s(self) -> float:
        """How long to wait before looking again."""
        return max(0.01, min(self._here.settings.heartbeat_s, self._until_s - time.monotonic()))


# --- events --------------------------------------------------------------------------------------


def list_events(
    asker: Asker,
    here: Here,
    *,
    after: Annotated[int, Query(ge=0, le=NUMBER, description="Rows after this number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="At most so many.")] = 1_000,
    job: OneJob = None,
) -> Response:
    """Read the event log in pages.

    A page may hold fewer rows than `limit`, even none, before the end: go on until `end`.
    """
    return encode(here.sight.page(asker, after, limit, job or ""))


async def stream_events(
    asker: Asker,
    here: Here,
    request: Request,
    *,
    after: Annotated[
        int | None, Query(ge=0, le=NUMBER, description="Rows after this number; else new ones.")
    ] = None,
    job: OneJob = None,
    last: Annotated[
        int | None, Header(alias="Last-Event-ID", ge=0, le=NUMBER, description="Resume after it.")
    ] = None,
) -> Response:
    """Follow the event log as server-sent events.

    Each message is an EventInfo in JSON with the row's number as its id. Comments come as a
    heartbeat. A client that was cut off resumes with `Last-Event-ID` and misses nothing.
    """
    start = last if last is not None else after
    if start is None:
        start = await in_thread(here.sight.last)
    if job:
        await in_thread(here.service.job, job, asker)
    content = _events(here, asker, _Watch(here, request), start, job or "")
    return _Stream(here, asker, content, "text/event-stream")


async def _events(
    here: Context, asker: Actor, watch: _Watch, after: int, job: str
) -> AsyncIterator[bytes]:
    yield b"retry: 2000\nid: %d\n\n" % after
    try:
        while not await watch.is_over():
            page = await in_thread(here.sight.page, asker, after, STREAM_PAGE, job)
            after = page.next
            if page.events:
                yield b"".join(map(_message, page.events))
            if page.end and not await here.hub.wait(after, watch.patience_s()):
                yield b": still here\n\n"
    except RotaError as error:
        log.warning("api.stream.ended", why=str(error))


def _message(event: EventInfo) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (event.number, msgspec.json.encode(event))


# --- output of jobs ------------------------------------------------------------------------------


async def read_job_log(  # noqa: PLR0913 - the query parameters
    asker: Asker,
    here: Here,
    request: Request,
    job: JobId,
    *,
    stream: Annotated[
        Literal["out", "err", "all"], Query(description="Which output; `all`: both, in order.")
    ] = "out",
    node_rank: Annotated[int, Query(ge=0, le=100_000, description="Of which of its nodes.")] = 0,
    offset: Annotated[
        int, Query(ge=-MAX_PIECE, le=NUMBER, description="Bytes to skip; negative: from the end.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PIECE, description="At most so many bytes.")] = PIECE,
    follow: Annotated[bool, Query(description="Go on until the job has ended.")] = False,
) -> Response:
    """Read what a job writes.

    Without `follow`: a piece from `offset` on; the header `Rota-Next-Offset` says where the next
    one begins, and an empty piece is the end so far. With `follow` the answer goes on until the job
    has ended (or the stream has been open too long: count the bytes and resume from there). Where
    the beginning is not kept any more the answer is 410; the header `Rota-First-Offset` says where
    the rest begins.
    """
    read = _Reader(here, asker, known_id(job), stream, node_rank)
    if follow and offset < 0:
        raise InputError(f"offset={offset}: to follow an output, count from its beginning")
    if not follow:
        data = await in_thread(read.piece, offset, limit)
        headers = {NEXT_OFFSET: str(offset + len(data))} if offset >= 0 else {}
        return Response(data, 200, headers, media_type="text/plain")
    await in_thread(here.service.job, read.job, asker)
    content = _follow(here, read, _Watch(here, request), offset, limit)
    return _Stream(here, asker, content, "text/plain")


class _Reader:
    """One output of one job."""

    def __init__(self, here: Context, asker: Actor, job: str, stream: str, node_rank: int) -> None:
        self.job = job
        self._service = here.service
        self._asker = asker
        self._stream = stream
        self._node_rank = node_rank

    def piece(self, offset: int, limit: int) -> bytes:
        return self._service.logs(
            self.job,
            self._asker,
            stream=self._stream,
            node_rank=self._node_rank,
            offset=offset,
            limit=limit,
        )

    def has_ended(self) -> bool:
        return self._service.job(self.job, self._asker).state in ENDED


async def _follow(
    here: Context, read: _Reader, watch: _Watch, offset: int, limit: int
) -> AsyncIterator[bytes]:
    ended = False  # known before the last look, so that nothing written before the end is missed
    try:
        while not await watch.is_over():
            data = await in_thread(read.piece, offset, limit)
            offset += len(data)
            if data:
                yield data
            elif ended:
                return
            else:
                ended = await in_thread(read.has_ended)
                await anyio.sleep(0 if ended else here.settings.poll_s)
    except RotaError as error:
        log.warning("api.stream.ended", why=str(error))


def export_events(asker: Asker, here: Here) -> Response:
    """Download the whole event log as a Parquet file."""
    if here.export_log is None:  # the route is only there if it is set
        raise NotImplementedError
    return StreamingResponse(here.export_log(asker), media_type=PARQUET)


PARQUET = "application/vnd.apache.parquet"
_MESSAGE = {
    "type": "object",
    "description": "One message of the stream.",
    "properties": {
        "id": {"type": "string", "description": "Number of the row."},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": EventInfo,
        },
    },
}
ROUTES = (
    Route(
        method="GET", path="/jobs/{job}/logs", call=read_job_log, tag="jobs",
        answer={"type": "string"}, media="text/plain", about="The output, as it was written.",
        errors=(410,),
    ),
    Route(
        method="GET", path="/events", call=list_events, tag="events", answer=EventPage,
        about="A page of the event log.", errors=(404,),
    ),
    Route(
        method="GET", path="/events/stream", call=stream_events, tag="events",
        answer=_MESSAGE, media="text/event-stream", about="Messages, as they come.",
        errors=(404,),
    ),
)  # fmt: skip
EXPORT_ROUTE = Route(
    method="GET", path="/events.parquet", call=export_events, tag="events",
    answer={"type": "string", "format": "binary"}, media=PARQUET, about="The file.",
)  # fmt: skip
