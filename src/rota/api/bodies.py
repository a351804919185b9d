"""What comes in and goes out, as msgspec reads and writes it."""

import asyncio
import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Response
from starlette.requests import Request

from rota.api.context import of_request
from rota.api.problems import Problem, Refusal, input_problem

T = TypeVar("T")
_UNKNOWN = re.compile(r"unknown field `(.*?)`(?: - at `|$)", re.DOTALL)


async def read_body(request: Request) -> bytes:
    """The whole body (the gate bounds it)."""
    context = await of_request(request)
    try:
        async with asyncio.timeout(context.settings.body_timeout_s):
            return await request.body()
    except TimeoutError:
        problem = Problem("the request did not arrive in time", "input", "send it faster")
        raise Refusal(408, problem, {"Connection": "close"}) from None


RawBody = Annotated[bytes, Depends(read_body)]


@contextmanager
def reading(known: tuple[str, ...] = ()) -> Iterator[None]:
    """Whatever msgspec raises inside is the client's fault."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise input_problem(str(error), _remedy(str(error), known)) from None
    except RecursionError:
        raise input_problem("the JSON is nested too deeply") from None


def decode(body: bytes, decoder: msgspec.json.Decoder[T], known: tuple[str, ...] = ()) -> T:
    """Read a body strictly; `known` are the keys to remind of when one is unknown."""
    with reading(known):
        return decoder.decode(body)


def _remedy(error: str, known: tuple[str, ...]) -> str:
    match = _UNKNOWN.search(error)
    if not match or not known:
        return ""
    near = difflib.get_close_matches(match[1], known, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return f"{hint}known keys: {', '.join(known)}"


def keys_of(*kinds: type[msgspec.Struct]) -> tuple[str, ...]:
    """All keys that structures have."""
    fields = [field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)]
    return tuple(dict.fromkeys(fields))


def encode(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    body = msgspec.json.encode(value)
    return Response(body, status, dict(headers or {}), media_type="application/json")
