"""Who sends a request, and whether they may.

A token says who, on every way in. Without one it is who opened the local socket (the kernel tells
the uid), or whose browser has the cookie of a session.
"""

import re
from typing import Any

from starlette.requests import Request

from rota.api.context import Context
from rota.api.problems import Refusal
from rota.api.web import cookie_name
from rota.core.proof import token_digest
from rota.daemon.access import check_role
from rota.wire import AGENT, GET_METRICS, PUBLIC, Actor, Operation, Problem, SessionBasis

ANONYMOUS = Actor("", PUBLIC)
CERTIFICATE = "certificate"  # in the state of a request: SHA-256 of what the client has shown
HANG_UP = "hang_up"  # in the state of a request: ends its connection at once
PEER_UID = "peer_uid"  # in the state of a request, where the server puts it
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


def sender_of(context: Context, request: Request) -> Actor | None:
    """Who sends a request; None: nobody whom we know.

    Without a thread: a client that holds them all must not keep agents and others out.
    """
    basis = basis_of(request)
    if basis is not None:
        return context.sender(basis)
    session = request.cookies.get(cookie_of(request), "")
    shows_token = "authorization" in request.headers  # one that cannot be one
    return (
        context.web.actor(session)
        if session and not shows_token and _is_own_page(request)
        else None
    )


def basis_of(request: Request) -> SessionBasis | None:
    """What a request shows about its sender; None: nothing, or only the cookie of a session."""
    if "authorization" in request.headers:
        token = bearer(request)
        return SessionBasis("token", token_digest(token)) if token else None
    certificate = request.scope.get("state", {}).get(CERTIFICATE, "")
    if certificate:
        return SessionBasis("certificate", certificate)
    uid = peer_uid(request)
    return None if uid is None else SessionBasis("uid", str(uid))


def cookie_of(request: Request, what: str = "session") -> str:
    """The name of the cookie that a browser keeps for this daemon."""
    port = int((request.scope.get("server") or ("", 0))[1] or 0)
    return cookie_name(port, secure=request.url.scheme == "https", what=what)


def peer_uid(request: Request) -> int | None:
    """The uid of the process that sends it; None: it did not come over the local socket."""
    state: dict[str, Any] = request.scope.get("state", {})
    return state.get(PEER_UID)


def _is_own_page(request: Request) -> bool:
    """A page of another server, on this machine too, must not act in the name of a session."""
    return request.method == "GET" or request.headers.get("sec-fetch-site") == "same-origin"


def _authenticate(context: Context, request: Request) -> Actor:
    actor = sender_of(context, request)
    if actor is None:
        context.strangers.take(request.client.host if request.client else "")
        remedy = "send the header Authorization: Bearer TOKEN, or log in with `rota web`"
        problem = Problem("no valid token", "unauthorised", remedy)
        raise Refusal(401, problem, {"WWW-Authenticate": "Bearer"})
    return actor
