"""How the API says no: one shape for every error."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from fastapi import Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from rota.core.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InputError,
    NotFoundError,
    RequestError,
    RotaError,
    UnavailableError,
)

Kind = Literal[
    "not_found",
    "forbidden",
    "gone",
    "conflict",
    "input",
    "unavailable",
    "unauthorised",
    "too_large",
    "too_many",
    "internal",
]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What every error looks like.

    `error` is a sentence for people, `kind` is for programs. `id`: look for it in the daemon's log.
    """

    error: str
    kind: Kind
    remedy: str = ""
    id: str = ""


class Refusal(HTTPException):
    """The API itself says no, before the daemon is asked."""

    def __init__(
        self, status: int, problem: Problem, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail=problem.error, headers=headers)
        self.problem = problem


# The first that fits; everything else is a bug and becomes a 500.
_OF_SERVICE: tuple[tuple[type[RotaError], int, Kind], ...] = (
    (NotFoundError, 404, "not_found"),
    (ForbiddenError, 403, "forbidden"),
    (ConflictError, 409, "conflict"),
    (UnavailableError, 503, "unavailable"),
    (ClusterError, 503, "unavailable"),
    (InputError, 422, "input"),
    (RequestError, 422, "input"),
)
_OF_STATUS: dict[int, Kind] = {
    401: "unauthorised",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    410: "gone",
    413: "too_large",
    429: "too_many",
    503: "unavailable",
}
_RETRY = {"Retry-After": "1"}
FIRST_OFFSET = "Rota-First-Offset"


def answer(status: int, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The response that tells a problem."""
    body = msgspec.json.encode(problem)
    return Response(body, status, dict(headers or {}), media_type="application/json")


def input_problem(error: str, remedy: str = "") -> Refusal:
    """What was sent is wrong."""
    return Refusal(422, Problem(error, "input", remedy))


async def from_refusal(_: Request, error: Exception) -> Response:
    """An answer for what the API or the router refuses."""
    if isinstance(error, Refusal):
        return answer(error.status_code, error.problem, error.headers)
    if not isinstance(error, HTTPException):
        raise error
    kind = _OF_STATUS.get(error.status_code, "input")
    remedy = "see /api/v1/openapi.json for what there is" if error.status_code in (404, 405) else ""
    return answer(error.status_code, Problem(error.detail, kind, remedy), error.headers)


async def from_service(_: Request, error: Exception) -> Response:
    """An answer for an error of the daemon."""
    if isinstance(error, GoneError):
        return answer(410, Problem(str(error), "gone"), {FIRST_OFFSET: str(error.first)})
    for family, status, kind in _OF_SERVICE:
        if isinstance(error, family):
            headers = _RETRY if kind == "unavailable" else None
            return answer(status, Problem(str(error), kind), headers)
    raise error


async def from_parameters(_: Request, error: Exception) -> Response:
    """An answer for parameters of the path, the query or the headers that are wrong."""
    if not isinstance(error, RequestValidationError):
        raise error
    texts = []
    for item in error.errors():
        where, *name = item["loc"]
        texts.append(f"{where} parameter {'.'.join(map(str, name))}: {item['msg']}")
    return answer(422, Problem("; ".join(texts), "input"))
