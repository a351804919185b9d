"""What happens to every request before and after its route: limits, headers, log, counts."""

import time
import uuid
from collections.abc import MutableMapping
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.api.context import Context
from rota.api.problems import Refusal, answer
from rota.api.routing import UNMATCHED, path_of
from rota.api.standby import elsewhere
from rota.wire import CALL_AGENT, PREFIX, SYNC_AGENT, WRITE_CHANNEL, Problem

METHODS = ("GET", "POST", "DELETE")  # clients may invent others: labels must stay few
CLIENT_GONE = 499
REFUSED = 400
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_OFTEN = (SYNC_AGENT.path, CALL_AGENT.path, WRITE_CHANNEL.path)
log = structlog.get_logger("rota.api")


class Edge:
    """The outermost layer of the app. No exception passes it."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, self._context.settings.max_body_bytes)
        try:
            refusal = self._refuse(scope)
            if refusal is None:
                await self._app(scope, exchange.receive, exchange.send)
            else:
                await refusal(scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = exchange.status or CLIENT_GONE
        except Exception:
            name = uuid.uuid4().hex[:12]
            log.exception("api.broken", id=name, method=scope["method"], route=path_of(scope))
            await self._broken(name, scope, exchange)
        finally:
            self._note(scope, exchange)

    def _refuse(self, scope: Scope) -> Response | None:
        settings = self._context.settings
        if not self._context.leads():
            return elsewhere("")
        headers = Headers(scope=scope)
        host = _without_port(headers.get("host", ""))
        if "*" not in settings.hosts and host not in settings.hosts:
            remedy = f"call it by one of: {', '.join(settings.hosts)}; or add to `hosts`"
            return answer(421, Problem("unknown host name", "forbidden", remedy))
        if "content-length" in headers and "transfer-encoding" in headers:
            remedy = "send one of them: what the body is must not depend on who reads it"
            problem = Problem(
                "Content-Length and Transfer-Encoding in one request", "input", remedy
            )
            return answer(400, problem, {"Connection": "close"})
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > settings.max_body_bytes:
            return answer(413, too_large(settings.max_body_bytes), {"Connection": "close"})
        return None

    async def _broken(self, name: str, scope: Scope, exchange: "_Exchange") -> None:
        if exchange.status:
            raise ConnectionAbortedError  # half an answer is out: cut it off, so that it shows
        problem = Problem("internal error", "internal", "look for the id in the daemon's log", name)
        await answer(500, problem)(scope, exchange.receive, exchange.send)

    def _note(self, scope: Scope, exchange: "_Exchange") -> None:
        route = path_of(scope)
        status = exchange.status or CLIENT_GONE
        actor = scope.get("actor")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._context.metrics.count_request(route, method, status, exchange.until_answer_s())
        write = log.info if _is_worth_telling(scope["method"], route, status) else log.debug
        write(
            "api.request",
            method=scope["method"],
            route=route,
            status=status,
            ms=round(1e3 * exchange.total_s(), 3),
            actor=actor.name if actor else None,
        )


def too_large(limit: int) -> Problem:
    """The body is too long."""
    return Problem(
        f"the request is larger than {limit} bytes", "too_large", "send it in several requests"
    )


def _is_worth_telling(method: str, route: str, status: int) -> bool:
    """Changes and refusals are; questions that are asked every few seconds are not."""
    changes = method != "GET" and route not in _OFTEN
    watched = not route.startswith(PREFIX) and route != UNMATCHED  # /metrics and the like
    return not watched and (changes or status >= REFUSED)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


class _Exchange:
    """Counts what comes in and looks at what goes out."""

    def __init__(self, receive: Receive, send: Send, limit: int) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._received = 0
        self._began_s = time.perf_counter()
        self._answered_s: float | None = None
        self.status = 0

    def total_s(self) -> float:
        return time.perf_counter() - self._began_s

    def until_answer_s(self) -> float:
        return self._answered_s if self._answered_s is not None else self.total_s()

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._limit:
            raise Refusal(413, too_large(self._limit), {"Connection": "close"})
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._answered_s = self.total_s()
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
