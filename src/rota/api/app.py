"""Puts the app together."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from rota.api import browser, channels, cluster, events, files, jobs, people, problems, secrets
from rota.api.context import AgentSync, ApiSettings, Context, LogExport
from rota.api.middleware import Edge
from rota.api.openapi import document
from rota.api.routing import ApiCall, Handler, serves
from rota.core.errors import RotaError
from rota.daemon.ports import Service
from rota.wire import EXPORT_EVENTS, GET_SCHEMA, OPERATIONS, Actor


@serves(GET_SCHEMA)
async def get_schema(call: ApiCall) -> dict[str, Any]:
    """Describe this API (OpenAPI 3.1)."""
    return openapi_document(with_export=call.context.export_log is not None)


def _handlers() -> dict[str, Handler[Any]]:
    """The handler of every operation, in the order of the operations."""
    found = {
        handler.operation.name: handler
        for module in (jobs, channels, files, events, cluster, browser, people, secrets)
        for handler in vars(module).values()
        if isinstance(handler, Handler)
    }
    found[GET_SCHEMA.name] = get_schema
    return {name: found[name] for name in OPERATIONS}


HANDLERS = _handlers()


@cache
def openapi_document(*, with_export: bool = False) -> dict[str, Any]:
    """The OpenAPI document; `with_export`: of a daemon that exports its event log."""
    return document({name: handler.about for name, handler in _served(with_export=with_export)})


def _served(*, with_export: bool) -> list[tuple[str, Handler[Any]]]:
    return [
        (name, handler)
        for name, handler in HANDLERS.items()
        if with_export or handler.operation is not EXPORT_EVENTS
    ]


def create_app(
    service: Service,
    *,
    settings: ApiSettings | None = None,
    agent_sync: AgentSync | None = None,
    agent_calls: AgentSync | None = None,
    agent_pieces: AgentSync | None = None,
    export_log: LogExport | None = None,
    leads: Callable[[], bool] = lambda: True,
    peers: Mapping[int, Actor] | None = None,
) -> Starlette:
    """The API of a daemon, as an ASGI app.

    Args:
        service: The daemon.
        settings: Limits and switches.
        agent_sync: Takes the messages of agents; without it there are no agents.
        agent_calls: Takes their answers to calls, and gives them calls.
        agent_pieces: Gives them pieces of the files of jobs that they start.
        export_log: Writes the event log as Parquet; without it that route is missing.
        leads: Does this daemon lead, where several take turns? If not, it answers nothing.
        peers: Who the users of this machine are that call over the local socket, by uid.
    """
    context = Context(
        service,
        settings or ApiSettings(),
        agent_sync,
        agent_calls,
        agent_pieces,
        export_log,
        leads,
        peers or {},
    )
    routes: list[Route] = [
        handler.route(context) for _, handler in _served(with_export=export_log is not None)
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Edge, context=context)],
        exception_handlers={
            HTTPException: problems.from_refusal,
            RotaError: problems.from_service,
        },
    )
    app.router.redirect_slashes = False
    app.state.context = context
    return app
