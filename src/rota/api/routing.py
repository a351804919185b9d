"""From an HTTP request to a handler's arguments, and from its result to an answer.

A handler is a function with the decorator `serves(operation)`. It gets an `ApiCall`, the names in
the path, and what the operation declares of `query`, `headers` and `body`. Plain functions are
called in a thread.
"""

import asyncio
import difflib
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from rota.api.auth import authorise
from rota.api.context import Context
from rota.api.limits import in_thread
from rota.api.problems import Refusal, input_problem
from rota.core.errors import NotFoundError
from rota.core.validation import refused_value
from rota.daemon.ports import Service
from rota.wire import JSON, PATH_PARTS, Actor, Operation, Problem

T = TypeVar("T")
UNMATCHED = "unmatched"
_PART = re.compile(r"{(\w+)}")
_UNKNOWN = re.compile(r"unknown field `(.*?)`(?: - at `|$)", re.DOTALL)


class ApiCall(msgspec.Struct, frozen=True):
    """A request of an actor who may send it."""

    context: Context
    request: Request
    actor: Actor

    @property
    def service(self) -> Service:
        """The daemon."""
        return self.context.service


class Handler(Generic[T]):
    """Serves one operation."""

    def __init__(self, operation: Operation[T], handle: Callable[..., Any]) -> None:
        self.operation = operation
        self.about = inspect.getdoc(handle) or ""
        self._handle = handle
        self._blocks = not inspect.iscoroutinefunction(handle)
        self._parts = _PART.findall(operation.path)
        self._query = _Parameters("query", operation.query)
        self._headers = _Parameters("header", operation.headers)
        self._decoder = msgspec.json.Decoder(operation.body)
        self._keys = _keys_in(operation.body)
        self._check_signature()

    def _check_signature(self) -> None:
        """A handler takes what the operation declares, and nothing else."""
        takes: dict[str, Any] = {"call": ApiCall} | dict.fromkeys(self._parts, str)
        for name in ("query", "headers", "body"):
            kind = getattr(self.operation, name)
            if kind is not None:
                takes[name] = kind
        given = get_type_hints(self._handle)
        given.pop("return")
        if given != takes:
            raise TypeError(f"{self.operation.name} takes {given}; it has to take {takes}")

    def route(self, context: Context) -> Route:
        """Where requests for it come in."""
        operation = self.operation
        route = Route(operation.path, partial(self.respond, context), methods=[operation.method])
        route.methods = {operation.method}  # without HEAD
        return route

    async def respond(self, context: Context, request: Request) -> Response:
        """Check a request, call the handler, encode its result."""
        call = ApiCall(context, request, authorise(context, request, self.operation))
        arguments = self._arguments(request)
        if self.operation.body is None:
            body = b""
        else:
            body = await _read(request, context.settings.body_timeout_s)
        if self._blocks:
            return await in_thread(self._respond, call, arguments, body)
        return self._encode(await self._handle(call, **arguments, **self._decode(body)))

    def _respond(self, call: ApiCall, arguments: dict[str, Any], body: bytes) -> Response:
        return self._encode(self._handle(call, **arguments, **self._decode(body)))

    def _arguments(self, request: Request) -> dict[str, Any]:
        query, headers = request.query_params, request.headers
        self._query.refuse_others(query)
        arguments: dict[str, Any] = {}
        for name in self._parts:
            arguments[name] = text = request.path_params[name]
            part = PATH_PARTS[name]
            if not part.pattern.fullmatch(text):
                raise NotFoundError(f"there is no {part.what} {text[:64]!r}")
        if self.operation.query:
            arguments["query"] = self._query.read(
                lambda key, several: query.getlist(key) if several else query[key], query
            )
        if self.operation.headers:
            arguments["headers"] = self._headers.read(lambda key, _: headers[key], headers)
        return arguments

    def _decode(self, body: bytes) -> dict[str, Any]:
        if self.operation.body is None:
            return {}
        if self.operation.body is bytes:
            return {"body": body}
        with reading(body, self._keys):
            decoded = self._decoder.decode(body)
            _refuse_repeated_keys(body)
        return {"body": decoded}

    def _encode(self, result: Any) -> Response:
        if isinstance(result, Response):
            return result
        operation = self.operation
        if operation.answer is type(None):
            return Response(status_code=operation.status)
        content = result if operation.answer is bytes else msgspec.json.encode(result)
        return Response(content, operation.status, media_type=operation.media)


def path_of(scope: Scope) -> str:
    """The path of a request as it is declared, without what the client put in."""
    endpoint = scope.get("endpoint")
    if not isinstance(endpoint, partial) or not inspect.ismethod(endpoint.func):
        return UNMATCHED
    handler = endpoint.func.__self__  # of the partial that `Handler.route` makes
    return handler.operation.path if isinstance(handler, Handler) else UNMATCHED


def serves(
    operation: Operation[T],
) -> Callable[[Callable[..., T | Awaitable[T | Response] | Response]], Handler[T]]:
    """Make a function the handler of an operation; its docstring becomes the description."""
    return lambda handle: Handler(operation, handle)


class _Parameters:
    """Parameters of the query or the headers, as the fields of a struct."""

    def __init__(self, where: str, kind: type[msgspec.Struct] | None) -> None:
        self._where = where
        self._kind = kind
        fields = msgspec.structs.fields(kind) if kind else ()
        hints = get_type_hints(kind) if kind else {}
        self._several = {
            field.encode_name: get_origin(hints[field.name]) is list for field in fields
        }

    def refuse_others(self, given: Mapping[str, str]) -> None:
        """A misspelt parameter must not be ignored."""
        unknown = sorted(set(given) - set(self._several))
        if unknown:
            known = ", ".join(sorted(self._several)) or "none"
            raise input_problem(
                f"unknown {self._where} parameter {unknown[0]!r}", f"known here: {known}"
            )

    def read(self, get: Callable[[str, bool], Any], given: Mapping[str, str]) -> Any:
        """The struct; `get` finds the value of a key, or the list of its values."""
        found = {key: get(key, several) for key, several in self._several.items() if key in given}
        try:
            return msgspec.convert(found, self._kind, strict=False)
        except msgspec.ValidationError as error:
            wrong = refused_value(error, found)
            raise input_problem(f"{self._where} parameter {wrong.problem}", wrong.remedy) from None


async def _read(request: Request, timeout_s: float) -> bytes:
    """The whole body (the middleware bounds it)."""
    try:
        async with asyncio.timeout(timeout_s):
            return await request.body()
    except TimeoutError:
        problem = Problem("the request did not arrive in time", "input", "send it faster")
        raise Refusal(408, problem, {"Connection": "close"}) from None


def _refuse_repeated_keys(body: bytes) -> None:
    """Which of two values counts would depend on who reads them: neither does."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                problem = Problem(f"the key {key[:100]!r} stands twice in an object", "input")
                raise Refusal(400, problem)
            seen.add(key)

    json.loads(body, object_pairs_hook=check)


@contextmanager
def reading(body: bytes = b"", known: tuple[str, ...] = ()) -> Iterator[None]:
    """Errors of msgspec inside are the client's.

    Args:
        body: The JSON that is read, to name what was refused.
        known: Keys that help where one is unknown.
    """
    try:
        yield
    except msgspec.ValidationError as error:
        wrong = refused_value(error, _plain(body))
        raise input_problem(wrong.problem, wrong.remedy or _remedy(str(error), known)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise input_problem(str(error), _remedy(str(error), known)) from None
    except RecursionError:
        raise input_problem("the JSON is nested too deeply") from None


def _plain(body: bytes) -> Any:
    """JSON without a type; None if it cannot be read whole, since the reader stopped before."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _remedy(error: str, known: tuple[str, ...]) -> str:
    match = _UNKNOWN.search(error)
    if not match or not known:
        return ""
    near = difflib.get_close_matches(match[1], known, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return f"{hint}known keys: {', '.join(known)}"


def _keys_in(kind: Any) -> tuple[str, ...]:
    """All keys of a type and of the types inside, its own first."""
    if kind is None or kind is bytes:
        return ()
    (shown,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    own = [name for name in parts if f"'{name}'" in str(shown)]
    names = dict.fromkeys([*own, *parts])
    return tuple(dict.fromkeys(key for name in names for key in parts[name].get("properties", ())))


def encode(value: Any, status: int) -> Response:
    """An answer in JSON with another status than usual."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)
