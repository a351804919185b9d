"""Who sends a request, and whether they may."""

import re
from typing import Any

from starlette.requests import Request

from rota.api.context import Context
from rota.api.problems import Refusal
from rota.daemon.access import check_role
from rota.wire import AGENT, GET_METRICS, PUBLIC, Actor, Operation, Problem

ANONYMOUS = Actor("", PUBLIC)
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/=-]{1,512}) *", re.IGNORECASE)


def bearer(request: Request) -> str:
    """The token that came with a request; empty if there is none that could be one."""
    match = _BEARER.fullmatch(request.headers.get("authorization", ""))
    return match[1] if match else ""


def authorise(context: Context, request: Request, operation: Operation[Any]) -> Actor:
    """The sender of a request, who has the role that the operation takes."""
    if operation.role == PUBLIC or (operation is GET_METRICS and context.settings.open_metrics):
        return ANONYMOUS
    actor = _authenticate(context, request)
    request.scope["actor"] = actor  # for the log
    (context.agents if actor.role == AGENT else context.callers).take(actor)
    check_role(operation, actor)
    return actor


def _authenticate(context: Context, request: Request) -> Actor:
    token = bearer(request)
    # without a thread: a client that holds them all must not keep agents and others out
    actor = context.service.authenticate(token) if token else None
    if actor is None:
        context.strangers.take(request.client.host if request.client else "")
        remedy = "send the header Authorization: Bearer TOKEN with a token of this daemon"
        problem = Problem("no valid token", "unauthorised", remedy)
        raise Refusal(401, problem, {"WWW-Authenticate": "Bearer"})
    return actor
