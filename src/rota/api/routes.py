"""How an operation is declared: its path, what it takes and what it answers."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from fastapi import Depends, FastAPI, Response

from rota.api.access import AGENT, LEAST, PUBLIC, authorise

PREFIX = "/api/v1"
ROOT_PATHS = ("/healthz", "/readyz", "/metrics")  # where machines that watch expect them
JSON = "application/json"
BEARER = "token"  # the name of the security scheme

_MEANINGS = {
    401: "No valid token.",
    403: "The role does not allow it.",
    404: "There is no such thing, or it is not for this token to see.",
    405: "Not with this method.",
    408: "The request did not arrive in time.",
    409: "Not in its present state.",
    410: "Not kept any more; Rota-First-Offset says where the rest begins.",
    413: "The request is too large.",
    421: "Called by an unknown host name.",
    422: "Something in the request is wrong.",
    429: "Too many requests or streams; Retry-After says when to come again.",
    500: "A bug of the daemon; the id is in its log.",
    503: "The daemon cannot accept it now; nothing was changed.",
}
_ALWAYS = (421, 500)
_WITH_TOKEN = (401, 403, 422, 429, 503)
_WITH_BODY = (408, 413)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. Its id is the name of the function, its docstring the description.

    `answer` and `body` are schemas: a type that msgspec knows, or a JSON schema.
    """

    method: str
    path: str
    call: Callable[..., Any]
    tag: str
    answer: Any = None
    media: str = JSON
    status: int = 200
    body: Any = None
    body_media: str = JSON
    examples: Mapping[str, Any] = {}
    errors: tuple[int, ...] = ()
    about: str = ""  # what the answer is
    also: Mapping[int, Any] = {}  # other answers that are no problems

    @property
    def operation(self) -> str:
        """The id of the operation."""
        return self.call.__name__


def add(app: FastAPI, route: Route, schema: Callable[[Any], Any]) -> frozenset[str]:
    """Put an operation into the app; the query keys that it knows."""
    least = LEAST[route.operation]
    summary, _, rest = (inspect.getdoc(route.call) or "").partition("\n")
    needs = "No token is needed." if least == PUBLIC else f"Least role: {least}."
    app.add_api_route(
        route.path if route.path in ROOT_PATHS else PREFIX + route.path,
        route.call,
        methods=[route.method],
        operation_id=route.operation,
        name=route.operation,
        tags=[route.tag],
        summary=summary.rstrip("."),
        description=f"{rest.strip()}\n\n{needs}".strip(),
        response_class=Response,
        response_model=None,
        status_code=route.status,
        response_description=route.about or "Done.",
        responses=_responses(route, least, schema),
        openapi_extra=_extra(route, least, schema),
        dependencies=[Depends(authorise)],
    )
    made: Any = app.routes[-1]
    return frozenset(parameter.alias for parameter in made.dependant.query_params)


def _responses(
    route: Route, least: str, schema: Callable[[Any], Any]
) -> dict[int | str, dict[str, Any]]:
    errors = {*_ALWAYS, *route.errors}
    if least != PUBLIC:
        errors.update(_WITH_TOKEN)
    if route.body is not None:
        errors.update(_WITH_BODY)
    if "{" in route.path:
        errors.add(404)
    problem = {JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    out: dict[int | str, dict[str, Any]] = {
        code: {"description": _MEANINGS[code], "content": problem} for code in sorted(errors)
    }
    for code, kind in route.also.items():
        content = {JSON: {"schema": schema(kind)}}
        out[code] = {"description": _MEANINGS[code], "content": content}
    if route.answer is not None:
        answer = {"schema": schema(route.answer)}
        out[route.status] = {
            "description": route.about or "Done.",
            "content": {route.media: answer},
        }
    return out


def _extra(route: Route, least: str, schema: Callable[[Any], Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {} if least == PUBLIC else {"security": [{BEARER: []}]}
    if least == AGENT:
        extra["x-internal"] = True
    if route.body is not None:
        content: dict[str, Any] = {"schema": schema(route.body)}
        if route.examples:
            content["examples"] = {
                name: {"summary": name, "value": value} for name, value in route.examples.items()
            }
        extra["requestBody"] = {"required": True, "content": {route.body_media: content}}
    return extra
