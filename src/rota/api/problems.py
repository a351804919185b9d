"""Errors as answers: each of them is a `rota.wire.Problem`."""

from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

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
from rota.wire import FIRST_OFFSET, GET_SCHEMA, JSON, Problem


class Refusal(HTTPException):
    """The API itself refuses a request, before the daemon is asked."""

    def __init__(
        self, status: int, problem: Problem, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail=problem.error, headers=headers)
        self.problem = problem


# The first that fits; everything else is a bug and becomes a 500.
_OF_SERVICE: tuple[tuple[type[RotaError], int, str], ...] = (
    (NotFoundError, 404, "not_found"),
    (ForbiddenError, 403, "forbidden"),
    (ConflictError, 409, "conflict"),
    (UnavailableError, 503, "unavailable"),
    (ClusterError, 503, "unavailable"),
    (InputError, 422, "input"),
    (RequestError, 422, "input"),
)
_OF_ROUTER = {404: "not_found"}


def answer(status: int, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The response that shows a problem."""
    return Response(msgspec.json.encode(problem), status, dict(headers or {}), media_type=JSON)


def input_problem(error: str, remedy: str = "") -> Refusal:
    """What was sent is wrong."""
    return Refusal(422, Problem(error, "input", remedy))


async def from_refusal(_: Request, error: Exception) -> Response:
    """An answer for what the API or the router (404, 405) refuses."""
    if isinstance(error, Refusal):
        return answer(error.status_code, error.problem, error.headers)
    if not isinstance(error, HTTPException):
        raise error
    kind = _OF_ROUTER.get(error.status_code, "input")
    problem = Problem(error.detail, kind, f"see {GET_SCHEMA.path} for all operations")
    return answer(error.status_code, problem, error.headers)


async def from_service(_: Request, error: Exception) -> Response:
    """An answer for an error of the daemon."""
    if isinstance(error, GoneError):
        return answer(410, Problem(str(error), "gone"), {FIRST_OFFSET: str(error.first)})
    for family, status, kind in _OF_SERVICE:
        if isinstance(error, family):
            headers = {"Retry-After": "1"} if kind == "unavailable" else None
            return answer(status, Problem(str(error), kind), headers)
    raise error
