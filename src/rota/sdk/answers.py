"""From answers of the daemon to values and exceptions."""

from typing import Any

import msgspec

from rota.core.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
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
GONE, FIRST_OFFSET = 410, "Rota-First-Offset"


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


def refused(status: int, content: bytes, place: Place, first: str = "") -> RotaError:
    """The exception for an answer that says no; `first`: where what is kept begins."""
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem(f"{place.server} answers with HTTP status {status}")
    text = problem.error
    if status == GONE and first.isdigit():
        return GoneError(text, int(first))
    if status == 401:  # noqa: PLR2004 - HTTP: unauthorised
        text = _without_token(place)
    elif problem.remedy:
        text = f"{text}: {problem.remedy}"
    if problem.id:
        text = f"{text} (see {problem.id} in the daemon's log)"
    return _BY_STATUS.get(status, RequestError)(text)


def _without_token(place: Place) -> str:
    how = "--token-file F, ROTA_TOKEN_FILE or ROTA_TOKEN"
    if not place.token:
        return f"{place.server} wants a token: give one with {how}"
    return (
        f"{place.server} does not accept the token: it was revoked, or is of another daemon: give "
        f"another with {how} (an administrator makes one with `rota token create NAME`)"
    )


def unreachable(error: Exception, place: Place) -> UnavailableError:
    """The exception for no answer at all."""
    why = str(error) or type(error).__name__
    remedy = "start one with `rota serve`, or name it with --server"
    if "CERTIFICATE_VERIFY_FAILED" in why:
        remedy = "name the file with its certificate, or with that of who signed it, in ROTA_CA"
    return UnavailableError(f"no daemon answers at {place.server} ({why}): {remedy}")
