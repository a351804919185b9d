"""Sends operations to a daemon: connections, repetition, and errors as exceptions.

Everything above the two kinds of I/O is written once, as coroutines. With `AsyncIO` they suspend;
with `BlockingIO` they block instead and never suspend, so that `rota.sdk.client.finish` can run
them without an event loop.
"""

import asyncio
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from rota.core.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InputError,
    NotFoundError,
    RequestError,
    RotaError,
    UnavailableError,
)
from rota.core.proof import ProofTalk, async_check, blocking_check
from rota.core.turns import LEADER, MISDIRECTED, Turns
from rota.sdk.place import (
    USUAL,
    Place,
    announced,
    connection,
    find_place,
    is_starting,
    state_folder,
)
from rota.wire import FIRST_OFFSET, JSON, NEXT_OFFSET, PATH_PARTS, Event, Operation, Problem

T = TypeVar("T")
Trace: TypeAlias = Callable[[str, dict[str, Any]], Any]
"""Is told by the HTTP client what happens to its connections."""
STREAM_S = 60.0  # without a byte; the daemon sends a heartbeat every 15 s
READY_S, READY_PAUSE_S = 60.0, 0.1  # a daemon that is starting: at most so long, between looks
TURN_S = 30.0  # by then another daemon leads, where several take turns
TRY_AGAIN = (MISDIRECTED, 429, 502, 503, 504)
NOTHING_CHANGED = (MISDIRECTED, 429, 503)  # the daemon promises so
_ERRORS: dict[int, type[RotaError]] = {
    400: InputError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: InputError,
    422: InputError,
    429: UnavailableError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


# --- two kinds of I/O ----------------------------------------------------------------------------


class IO(Protocol):
    """What sending takes."""

    @property
    def http(self) -> httpx2.Client | httpx2.AsyncClient:
        """The client that has the connections."""
        ...

    def trace(self, talk: Callable[[], ProofTalk] | None) -> Trace | None:
        """Looks at new connections; with `talk` they have to prove whose they are."""
        ...

    async def request(self, request: Mapping[str, Any]) -> httpx2.Response:
        """Send a request and read the whole answer."""
        ...

    def stream(self, request: Mapping[str, Any]) -> AbstractAsyncContextManager[httpx2.Response]:
        """Send a request whose answer is read while it comes."""
        ...

    async def read(self, response: httpx2.Response) -> None:
        """Read the whole answer after all."""
        ...

    def lines(self, response: httpx2.Response) -> AsyncIterator[str]:
        """The answer, line by line."""
        ...

    def pieces(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The answer, as it comes."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class _SocketPath:
    """The address of a unix socket, which must be short: a longer one goes by way of its folder."""

    LONGEST = 107  # bytes

    def __init__(self, path: str) -> None:
        self._folder = -1
        self.address = path
        if len(os.fsencode(path)) > self.LONGEST:
            folder, name = os.path.split(path)
            try:
                self._folder = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            except OSError as error:
                raise UnavailableError(
                    f"no daemon answers at {path} ({error.strerror}): start one with `rota serve`"
                ) from error
            self.address = f"/proc/self/fd/{self._folder}/{name}"

    def close(self) -> None:
        """Let the folder go."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


class AsyncIO:
    """In an event loop. `path`: of the daemon's socket, if it is reached there."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        path: str = "",
        *,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self._path = _SocketPath("" if transport else path)
        if self._path.address:
            transport = httpx2.AsyncHTTPTransport(uds=self._path.address)
        self.http = httpx2.AsyncClient(**settings, transport=transport)

    def trace(self, talk: Callable[[], ProofTalk] | None) -> Trace | None:
        """Looks at new connections; with `talk` they have to prove whose they are."""
        return async_check(talk, httpx2.ConnectError) if talk else None

    async def request(self, request: Mapping[str, Any]) -> httpx2.Response:
        """Send a request and read the whole answer."""
        return await self.http.request(**request)

    def stream(self, request: Mapping[str, Any]) -> AbstractAsyncContextManager[httpx2.Response]:
        """Send a request whose answer is read while it comes."""
        return self.http.stream(**request)

    async def read(self, response: httpx2.Response) -> None:
        """Read the whole answer after all."""
        await response.aread()

    def lines(self, response: httpx2.Response) -> AsyncIterator[str]:
        """The answer, line by line."""
        return response.aiter_lines()

    def pieces(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The answer, as it comes."""
        return response.aiter_bytes()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()
        self._path.close()


class BlockingIO:
    """In the thread that asks. None of the coroutines suspends."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        path: str = "",
        *,
        transport: httpx2.BaseTransport | None,
    ) -> None:
        self._path = _SocketPath("" if transport else path)
        if self._path.address:
            transport = httpx2.HTTPTransport(uds=self._path.address)
        self.http = httpx2.Client(**settings, transport=transport)

    def trace(self, talk: Callable[[], ProofTalk] | None) -> Trace | None:
        """Looks at new connections; with `talk` they have to prove whose they are."""
        if talk:
            return blocking_check(talk, httpx2.ConnectError)
        return self._knock if self._path.address else None

    def _knock(self, event: str, _: dict[str, Any]) -> None:
        """Is anybody there? The library forgets to close a unix socket that it cannot connect."""
        if event == "connection.connect_unix_socket.started":
            with socket.socket(socket.AF_UNIX) as line:
                try:
                    line.connect(self._path.address)
                except OSError as error:
                    raise httpx2.ConnectError(str(error)) from error

    async def request(self, request: Mapping[str, Any]) -> httpx2.Response:
        """Send a request and read the whole answer."""
        return self.http.request(**request)

    @asynccontextmanager
    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[httpx2.Response]:
        """Send a request whose answer is read while it comes."""
        with self.http.stream(**request) as response:
            yield response

    async def read(self, response: httpx2.Response) -> None:
        """Read the whole answer after all."""
        response.read()

    async def lines(self, response: httpx2.Response) -> AsyncIterator[str]:
        """The answer, line by line."""
        for line in response.iter_lines():
            yield line

    async def pieces(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The answer, as it comes."""
        for piece in response.iter_bytes():
            yield piece

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: ASYNC251 - it is meant to block

    async def close(self) -> None:
        """Close the connections."""
        self.http.close()
        self._path.close()


# --- when to try again ---------------------------------------------------------------------------


class Backoff:
    """Waits that grow, up to a total time.

    They are random within bounds, which keeps many clients from coming back in step.
    """

    LONGEST_S = 2.0
    MOST_ASKED_S = 5.0  # of what a server may ask for with Retry-After

    def __init__(self, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_s = total_s
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Start again: something worked."""
        self._until_s = self._clock() + self._total_s
        self._next_s = 0.05

    def wait_s(self, asked_s: float = 0.0) -> float | None:
        """Seconds to wait before trying again; None: give up."""
        wait = self._next_s * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
        wait = max(wait, min(asked_s, self.MOST_ASKED_S))
        self._next_s = min(self._next_s * 2, self.LONGEST_S)
        return wait if self._clock() + wait <= self._until_s else None


def retry_after_s(header: str | None) -> float:
    """Seconds of a Retry-After header."""
    return float(header) if header and header.isascii() and header.isdecimal() else 0.0


def _wait_after_error(
    operation: Operation[Any], error: httpx2.TransportError, backoff: Backoff
) -> float | None:
    """Seconds until a request that got no answer is sent again; None: it is not."""
    never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    fixed = isinstance(error, httpx2.UnsupportedProtocol)
    if fixed or not (operation.again or never_sent):
        return None
    return backoff.wait_s()


def _wait_after_answer(
    operation: Operation[Any], response: httpx2.Response, backoff: Backoff
) -> float | None:
    """Seconds until a request that was turned away is sent again; None: it is not."""
    status = response.status_code
    if status not in TRY_AGAIN or not (operation.again or status in NOTHING_CHANGED):
        return None
    if status == MISDIRECTED and not any(
        name in response.headers for name in (LEADER, "Retry-After")
    ):
        return None  # it is not meant at all: it is known by another name
    return backoff.wait_s(retry_after_s(response.headers.get("Retry-After")))


# --- sending -------------------------------------------------------------------------------------


class DaemonSession:
    """A daemon to talk to, and how patient to be.

    Args:
        server: Its URL; found as `find_place` says if it is not given.
        token: A token for it.
        token_file: Or a file that holds one.
        ca: A file with the certificates to trust (PEM); else ROTA_CA, else what is usual here.
        patience_s: How long to try again while the daemon cannot be reached or is not ready.
        connect: Makes the I/O from the settings of the HTTP client.
    """

    def __init__(
        self,
        server: str | None,
        token: str | None,
        *,
        token_file: str | Path | None,
        ca: str | Path | None,
        patience_s: float,
        connect: Callable[[dict[str, Any], str], IO],
    ) -> None:
        self._find = partial(find_place, server, token, token_file=token_file, ca=ca)
        self.place: Place = self._find()
        self._turns = Turns(self.place.servers or [self.place.server])
        several = len(self._turns.urls) > 1
        self.patience_s = max(patience_s, TURN_S) if several and patience_s else patience_s
        self.on_start: Callable[[str], None] = lambda _: None  # called before a daemon is awaited
        self._ready_by_s = 0.0
        self._connect = connect
        self.io = connect(self._settings(), self.place.socket)

    def _settings(self) -> dict[str, Any]:
        headers = {"Accept": JSON, "User-Agent": "rota-sdk"}
        if self.place.token:
            headers["Authorization"] = f"Bearer {self.place.token}"
        server = "http://localhost" if self.place.socket else self.place.server
        own = {"base_url": server, "headers": headers, "timeout": 30.0}
        return own | connection(server, self.place.ca)

    def _extensions(self) -> dict[str, Any]:
        """Of a request: what happens to a connection that is made for it."""
        place = self.place

        def talk() -> ProofTalk:
            return ProofTalk(place.server, place.token, relayed=place.relayed)

        trace = self.io.trace(talk if place.needs_proof else None)
        return {"trace": trace} if trace else {}

    async def ask(
        self,
        operation: Operation[T],
        *,
        query: msgspec.Struct | None = None,
        headers: msgspec.Struct | None = None,
        body: bytes | None = None,
        **parts: str,
    ) -> T:
        """Send an operation, again where that is right, and return its answer."""
        request = _request(operation, query, headers, body, parts)
        return self._answer(operation, await self._send(operation, request))

    async def ask_piece(
        self, operation: Operation[bytes], query: msgspec.Struct, **parts: str
    ) -> tuple[int, bytes]:
        """A piece of something long, and where the next one begins."""
        response = await self._send(operation, _request(operation, query, None, None, parts))
        data = self._answer(operation, response)
        return int(response.headers.get(NEXT_OFFSET, "0")), data

    async def _send(self, operation: Operation[Any], request: Mapping[str, Any]) -> httpx2.Response:
        """Send a request, again where that is right; the last response."""
        backoff = Backoff(self.patience_s)
        while True:
            try:
                response = await self.io.request({**request, "extensions": self._extensions()})
            except httpx2.TransportError as error:
                pause_s = await self._pause_s(operation, backoff, error)
                if pause_s is None:
                    raise unreachable(error, self.place) from error
            else:
                pause_s = await self._pause_s(operation, backoff, response)
                if pause_s is None:
                    return response
            await self.io.sleep(pause_s)

    @asynccontextmanager
    async def open(
        self, operation: Operation[Any], query: msgspec.Struct, **parts: str
    ) -> AsyncIterator[httpx2.Response]:
        """An answer that is read while it comes."""
        backoff = Backoff(self.patience_s)
        request = _request(operation, query, None, None, parts) | {"timeout": STREAM_S}
        while True:
            request["extensions"] = self._extensions()
            async with self.io.stream(request) as response:
                if response.status_code == httpx2.codes.OK:
                    yield response
                    return
                await self.io.read(response)
                pause_s = _wait_after_answer(operation, response, backoff)
                if pause_s is None:
                    raise refused(response, self.place)
                self.take_turns(response)
            await self.io.sleep(pause_s)

    async def _pause_s(
        self,
        operation: Operation[Any],
        backoff: Backoff,
        outcome: httpx2.Response | httpx2.TransportError,
    ) -> float | None:
        """Seconds until a request is sent again; None: it is not, this is how it ends.

        A daemon of this machine that is just starting says later where it is and with which token
        to speak to it; one that was killed still says where it was.
        """
        if isinstance(outcome, httpx2.Response):
            early = outcome.status_code == httpx2.codes.UNAUTHORIZED
            pause_s = _wait_after_answer(operation, outcome, backoff)
        else:
            early = isinstance(outcome, httpx2.ConnectError)
            pause_s = _wait_after_error(operation, outcome, backoff)
        if early and self._of_folder():
            place = self._find()
            if place != self.place:
                await self._move(place)
                return 0.0
            if is_starting(state_folder()) and self._still_waits():
                return READY_PAUSE_S
        if pause_s is not None:
            self.take_turns(outcome)
        return pause_s

    def take_turns(self, outcome: httpx2.Response | httpx2.TransportError) -> None:
        """Ask the next daemon, where several take turns and this one does not lead."""
        if len(self._turns.urls) == 1:
            return
        leader = ""
        if isinstance(outcome, httpx2.Response):
            if outcome.status_code == httpx2.codes.TOO_MANY_REQUESTS:
                return
            leader = outcome.headers.get(LEADER, "")
        self._turns.leave(self.place.server, leader)
        if self._turns.current != self.place.server:
            self.place = msgspec.structs.replace(self.place, server=self._turns.current)
            self.io.http.base_url = self._settings()["base_url"]

    async def _move(self, place: Place) -> None:
        """The daemon is somewhere else than it was looked for."""
        self.place, self._turns = place, Turns(place.servers or [place.server])
        await self.io.close()
        self.io = self._connect(self._settings(), place.socket)

    def _of_folder(self) -> bool:
        """Nobody said where the daemon is: it is the one of the state folder, if there is one."""
        found = self.place.found
        return found == announced(state_folder()) or (found == USUAL and not self.place.token)

    def _still_waits(self) -> bool:
        if not self._ready_by_s:
            self._ready_by_s = time.monotonic() + READY_S
            self.on_start(f"waiting until the daemon of {state_folder()} is ready")
        return time.monotonic() < self._ready_by_s

    def _answer(self, operation: Operation[T], response: httpx2.Response) -> T:
        if response.status_code >= httpx2.codes.BAD_REQUEST or response.is_redirect:
            raise refused(response, self.place)
        content: Any = response.content
        if operation.answer is bytes:
            return content  # type: ignore[no-any-return]  # bytes are T here
        if operation.answer is type(None):
            content = b"null"
        try:
            return msgspec.json.decode(content, type=operation.answer, strict=False)
        except msgspec.DecodeError as error:
            raise RequestError(
                f"{self.place.server}: the answer is not of a Rota daemon ({error}): "
                "check the address"
            ) from error


def _request(
    operation: Operation[Any],
    query: msgspec.Struct | None,
    headers: msgspec.Struct | None,
    body: bytes | None,
    parts: Mapping[str, str],
) -> dict[str, Any]:
    sent = {} if headers is None else msgspec.to_builtins(headers)
    if body is not None:
        sent["Content-Type"] = operation.body_media
    return {
        "method": operation.method,
        "url": operation.path.format_map({key: _part(key, text) for key, text in parts.items()}),
        "params": {} if query is None else msgspec.to_builtins(query),
        "content": body,
        "headers": sent,
        "timeout": operation.timeout_s,
    }


def _part(key: str, text: str) -> str:
    """Part of a path; what would lead elsewhere cannot be the name of anything."""
    if not text.strip(".") or "/" in text:
        part = PATH_PARTS[key]
        raise NotFoundError(f"there is no {part.what} {text[:200]!r}: see `rota {part.listing}`")
    return quote(text, safe="", errors="replace")


# --- errors --------------------------------------------------------------------------------------


def refused(response: httpx2.Response, place: Place) -> RotaError:
    """The exception for an answer that says no."""
    status = response.status_code
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except msgspec.DecodeError:
        problem = Problem(f"{place.server} answers with HTTP status {status}", "")
    text = problem.error
    first = response.headers.get(FIRST_OFFSET, "")
    if status == httpx2.codes.GONE and first.isdigit():
        return GoneError(text, int(first))
    if status == httpx2.codes.UNAUTHORIZED:
        text = _without_token(place)
    elif problem.remedy:
        text = f"{text}: {problem.remedy}"
    if problem.id:
        text = f"{text} (see {problem.id} in the daemon's log)"
    if status == MISDIRECTED and problem.kind == "unavailable":
        return UnavailableError(text)
    return _ERRORS.get(status, RequestError)(text)


def _without_token(place: Place) -> str:
    how = "--token-file F, ROTA_TOKEN_FILE or ROTA_TOKEN"
    if not place.token:
        return f"{place.server} wants a token: give one with {how}"
    return (
        f"{place.server} does not accept the token: it was revoked, or is of another daemon: give "
        f"another with {how} (an administrator makes one with `rota token create NAME`)"
    )


def unreachable(error: Exception, place: Place) -> UnavailableError:
    """The exception for no answer at all."""
    why = str(error) or type(error).__name__
    remedy = "start one with `rota serve`, or name it with --server"
    if "CERTIFICATE_VERIFY_FAILED" in why:
        remedy = "name the file with its certificate, or with that of who signed it, in ROTA_CA"
    return UnavailableError(f"no daemon answers at {place.address} ({why}): {remedy}")


# --- server-sent events --------------------------------------------------------------------------


class EventParser:
    """Server-sent events, line by line. `last` is where to continue after a break."""

    def __init__(self, last: int | None) -> None:
        self.last = last
        self._id: int | None = None
        self._data: list[str] = []

    def take(self, line: str) -> Event | None:
        """The event that this line completes, if it does."""
        if not line:
            data, self._data = "\n".join(self._data), []
            if not data:
                self.last = self.last if self._id is None else self._id
                return None
            try:
                event = msgspec.json.decode(data, type=Event)
            except msgspec.DecodeError as error:
                raise RequestError(f"an event cannot be read ({error}): update rota") from error
            self.last = event.number
            return event
        key, _, value = line.partition(":")
        if key == "data":
            self._data.append(value.removeprefix(" "))
        elif key == "id" and value.strip().isdecimal():
            self._id = int(value)
        return None

    def restart(self) -> None:
        """The connection broke: drop the event that is incomplete, it comes again."""
        self._data = []
