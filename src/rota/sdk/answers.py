"""From answers of the daemon to values and exceptions."""

import re
from typing import Any

import msgspec

from rota.core.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    RequestError,
    RotaError,
    UnavailableError,
)
from rota.sdk.place import Place

TRY_AGAIN = (429, 502, 503, 504)
_BY_STATUS: dict[int, type[RotaError]] = {
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

_ROTATED = re.compile(r"before byte ([0-9]{1,15}) was rotated away")


class _Problem(msgspec.Struct):
    error: str
    kind: str = ""
    remedy: str = ""
    id: str = ""


def decoded(content: bytes, kind: Any, place: Place) -> Any:
    """The value in an answer that says yes."""
    try:
        return msgspec.json.decode(content, type=kind, strict=False)
    except msgspec.DecodeError as error:
        raise RequestError(
            f"{place.server}: the answer is not of a Rota daemon ({error}): check the address"
        ) from error


def refused(status: int, content: bytes, place: Place) -> RotaError:
    """The exception for an answer that says no."""
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem(f"{place.server} answers with HTTP status {status}")
    text = problem.error
    if status == 401 and not place.token:  # noqa: PLR2004 - HTTP: unauthorised
        text = f"{place.server} wants a token: set ROTA_TOKEN_FILE or ROTA_TOKEN"
    elif problem.remedy:
        text = f"{text}: {problem.remedy}"
    if problem.id:
        text = f"{text} (see {problem.id} in the daemon's log)"
    return _BY_STATUS.get(status, RequestError)(text)


def first_kept(text: str) -> int | None:
    """Where the output of a job begins, if the daemon says that what was asked for is gone."""
    match = _ROTATED.search(text)
    return int(match[1]) if match else None


def unreachable(error: Exception, place: Place) -> UnavailableError:
    """The exception for no answer at all."""
    why = str(error) or type(error).__name__
    remedy = "start one with `rota serve`, or name it with --server"
    if "CERTIFICATE_VERIFY_FAILED" in why:
        remedy = "name the file with its certificate, or with that of who signed it, in ROTA_CA"
    return UnavailableError(f"no daemon answers at {place.server} ({why}): {remedy}")
