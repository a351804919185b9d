"""Who may do what: the one place where roles are checked."""

import re
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request

from rota.api.context import Context, of_request
from rota.api.lanes import in_thread
from rota.api.problems import Problem, Refusal, input_problem
from rota.core.errors import ForbiddenError
from rota.daemon.info import Actor

PUBLIC, VIEWER, USER, OPERATOR, ADMIN, AGENT = (
    "public", "viewer", "user", "operator", "admin", "agent",
)  # fmt: skip
ROLES = (VIEWER, USER, OPERATOR, ADMIN, AGENT)
NOBODY = Actor("", PUBLIC)

# The least role for every operation; an app with an operation that is not here does not start.
LEAST = {
    "check_health": PUBLIC,
    "check_ready": PUBLIC,
    "get_schema": PUBLIC,
    "get_metrics": VIEWER,
    "whoami": VIEWER,
    "list_jobs": VIEWER,
    "get_job": VIEWER,
    "explain_job": VIEWER,
    "forecast_job": VIEWER,
    "read_job_log": VIEWER,
    "list_nodes": VIEWER,
    "list_queues": VIEWER,
    "get_status": VIEWER,
    "list_events": VIEWER,
    "stream_events": VIEWER,
    "submit_jobs": USER,
    "cancel_job": USER,
    "hold_job": USER,
    "release_job": USER,
    "drain_node": OPERATOR,
    "undrain_node": OPERATOR,
    "remove_node": OPERATOR,
    "export_events": OPERATOR,
    "list_tokens": ADMIN,
    "create_token": ADMIN,
    "revoke_token": ADMIN,
    "reload_configuration": ADMIN,
    "sync_agent": AGENT,
}

# An agent's token is good for nothing but the agent's own route; an admin may stand in for one.
_MAY = {
    VIEWER: {VIEWER},
    USER: {VIEWER, USER},
    OPERATOR: {VIEWER, USER, OPERATOR},
    ADMIN: {VIEWER, USER, OPERATOR, ADMIN, AGENT},
    AGENT: {AGENT},
}
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/=-]{1,512}) *", re.IGNORECASE)


def may(role: str, least: str) -> bool:
    """Is the role enough?"""
    return least in _MAY.get(role, ())


def bearer(request: Request) -> str:
    """The token that came with a request; empty if there is none that could be one."""
    match = _BEARER.fullmatch(request.headers.get("authorization", ""))
    return match[1] if match else ""


async def authorise(request: Request) -> Actor:
    """Who asks; refuses whoever may not. Every operation depends on it."""
    context = await of_request(request)
    route: Any = request.scope["route"]
    least = LEAST[route.operation_id]
    if context.settings.open_metrics and route.operation_id == "get_metrics":
        least = PUBLIC
    actor = NOBODY if least == PUBLIC else await _known(context, request)
    if least != PUBLIC:
        request.state.actor = actor  # for the log
        (context.agents if actor.role == AGENT else context.callers).take(actor)
        if not may(actor.role, least):
            raise ForbiddenError(f"role {actor.role} may not do this: it takes role {least}")
    _check_query(request, context.queries[route.operation_id])
    return actor


async def _known(context: Context, request: Request) -> Actor:
    token = bearer(request)
    actor = await in_thread(context.service.authenticate, token) if token else None
    if actor is None:
        context.strangers.take(request.client.host if request.client else "")
        raise Refusal(
            401,
            Problem(
                "no valid token",
                "unauthorised",
                "send the header Authorization: Bearer TOKEN with a token of this daemon",
            ),
            {"WWW-Authenticate": "Bearer"},
        )
    return actor


def _check_query(request: Request, known: frozenset[str]) -> None:
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        keys = ", ".join(sorted(known)) or "none"
        raise input_problem(f"unknown query parameter {unknown[0]!r}", f"known here: {keys}")


Asker = Annotated[Actor, Depends(authorise)]
