"""What a daemon answers that stands by: where the one is that leads."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import ApiSettings
from rota.api.problems import answer
from rota.core.turns import LEADER, MISDIRECTED
from rota.wire import (
    CHECK_HEALTH,
    CHECK_READY,
    JSON,
    Health,
    Problem,
    Readiness,
)

METHODS = ["GET", "POST", "DELETE", "PUT", "PATCH"]


@dataclass
class StandbyContext:
    """What a server needs of an app."""

    settings: ApiSettings
    closing: threading.Event = field(default_factory=threading.Event)


def elsewhere(leader: str) -> Response:
    """Ask another daemon; `leader`: its URL, empty if none is known."""
    remedy = f"ask {leader}" if leader else "try again in a moment"
    problem = Problem("this daemon does not lead", "unavailable", remedy)
    headers = {LEADER: leader} if leader else {"Retry-After": "1"}
    return answer(MISDIRECTED, problem, headers)


def create_standby(settings: ApiSettings, leader: Callable[[], str]) -> Starlette:
    """The API of a daemon that stands by, as an ASGI app.

    Args:
        settings: As for the daemon that it may become.
        leader: Where the daemon is that leads; empty: none does.
    """

    async def healthy(_: Request) -> Response:
        return Response(msgspec.json.encode(Health(ok=True)), media_type=JSON)

    async def ready(_: Request) -> Response:
        state = Readiness(ready=False, why=f"stands by; {leader() or 'nobody'} leads")
        return Response(msgspec.json.encode(state), 503, media_type=JSON)

    async def other(_: Request) -> Response:
        return elsewhere(leader())

    app = Starlette(
        routes=[
            Route(CHECK_HEALTH.path, healthy),
            Route(CHECK_READY.path, ready),
            Route("/{path:path}", other, methods=METHODS),
        ]
    )
    app.state.context = StandbyContext(settings)
    return app
