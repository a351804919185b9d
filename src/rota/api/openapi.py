"""The OpenAPI document, from the operations of `rota.wire` and the docstrings of their handlers."""

from collections.abc import Iterable, Mapping
from typing import Any, get_origin

import msgspec

from rota.core.version import VERSION
from rota.wire import (
    AGENT,
    JSON,
    OPERATIONS,
    PATH_PARTS,
    PUBLIC,
    Operation,
    Problem,
)

REF = "#/components/schemas/{name}"
BEARER = "token"  # the name of the security scheme
ABOUT = """Submit jobs, watch them and run the cluster.

Every request needs a token (`Authorization: Bearer TOKEN`) except where it says otherwise. What a
token may do depends on its role: viewer < user < operator < admin. Errors always look like
`Problem`. Unknown keys and parameters are errors.
"""
TAGS = {
    "jobs": "Submit, watch and end jobs.",
    "files": "Files that travel with jobs, and their results.",
    "channels": "Into jobs that run: commands, terminals, connections.",
    "events": "The event log: everything that happened, in order.",
    "cluster": "Nodes, queues and the daemon in numbers.",
    "admin": "Tokens and configuration.",
    "people": "People, their sessions, and how they log in.",
    "agents": "For the agents on the machines.",
    "health": "For monitoring.",
}
_MEANINGS = {
    400: "The request can be read in two ways: a key stands twice, or it has two lengths.",
    401: "No valid token.",
    403: "The role does not allow it.",
    404: "There is no such thing, or it is not for this token to see.",
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
_ALWAYS = (400, 421, 500)
_WITH_TOKEN = (401, 403, 422, 429, 503)
_WITH_BODY = (408, 413)


def document(about: Mapping[str, str]) -> dict[str, Any]:
    """The whole document; `about`: what each operation does, by name."""
    operations = [OPERATIONS[name] for name in about]
    schemas = _Schemas(operations)
    paths: dict[str, Any] = {}
    for operation in operations:
        shown = _operation(operation, about[operation.name], schemas)
        paths.setdefault(operation.path, {})[operation.method.lower()] = shown
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rota", "description": ABOUT, "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": {name: _tidy(schema) for name, schema in schemas.components.items()},
            "securitySchemes": {BEARER: {"type": "http", "scheme": "bearer"}},
        },
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
    }


class _Schemas:
    """Schemas of the types that operations name."""

    def __init__(self, operations: Iterable[Operation[Any]]) -> None:
        kinds: dict[Any, None] = {Problem: None}
        for operation in operations:
            for given in (_answer(operation), _body(operation), *(operation.also or {}).values()):
                kinds |= dict.fromkeys(_types_in(given))
        shown, self.components = msgspec.json.schema_components(list(kinds), ref_template=REF)
        self._shown = dict(zip(kinds, shown, strict=True))

    def of(self, given: Any) -> Any:
        """The schema of a type, also inside of a JSON schema."""
        if isinstance(given, dict):
            return {key: self.of(value) for key, value in given.items()}
        if isinstance(given, list):
            return [self.of(item) for item in given]
        return self._shown[given] if _is_type(given) else given


def _is_type(given: Any) -> bool:
    return isinstance(given, type) or get_origin(given) is not None


def _types_in(given: Any) -> list[Any]:
    if isinstance(given, dict):
        return [kind for value in given.values() for kind in _types_in(value)]
    if isinstance(given, list):
        return [kind for item in given for kind in _types_in(item)]
    return [given] if _is_type(given) else []


def _answer(operation: Operation[Any]) -> Any:
    return operation.answer if operation.shape is None else operation.shape


def _body(operation: Operation[Any]) -> Any:
    return operation.body if operation.body_shape is None else operation.body_shape


def _operation(operation: Operation[Any], about: str, schemas: _Schemas) -> dict[str, Any]:
    summary, _, rest = about.partition("\n")
    public = operation.role == PUBLIC
    needs = "No token is needed." if public else f"Least role: {operation.role}."
    shown: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": summary.rstrip("."),
        "description": f"{rest.strip()}\n\n{needs}".strip(),
        "operationId": operation.name,
        "parameters": [
            *(_path_part(name) for name in PATH_PARTS if f"{{{name}}}" in operation.path),
            *_parameters("query", operation.query),
            *_parameters("header", operation.headers),
        ],
        "responses": _responses(operation, schemas),
    }
    if operation.body is not None:
        content: dict[str, Any] = {"schema": schemas.of(_body(operation))}
        if operation.examples:
            content["examples"] = {
                name: {"summary": name, "value": value}
                for name, value in operation.examples.items()
            }
        # bytes may be none at all, which nobody can tell from no body
        required = operation.body is not bytes
        shown["requestBody"] = {"required": required, "content": {operation.body_media: content}}
    if not public:
        shown["security"] = [{BEARER: []}]
    if operation.role == AGENT:
        shown["x-internal"] = True
    return shown


def _path_part(name: str) -> dict[str, Any]:
    part = PATH_PARTS[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": part.about,
        "schema": {"type": "string", "examples": [part.example]},
    }


def _parameters(where: str, kind: type[msgspec.Struct] | None) -> list[dict[str, Any]]:
    if kind is None:
        return []
    _, parts = msgspec.json.schema_components([kind])
    return [
        {
            "name": name,
            "in": where,
            "required": False,
            "description": schema.pop("description"),
            "schema": schema,
        }
        for name, schema in parts[kind.__name__]["properties"].items()
    ]


def _responses(operation: Operation[Any], schemas: _Schemas) -> dict[str, Any]:
    errors = {*_ALWAYS, *operation.errors}
    if operation.role != PUBLIC:
        errors.update(_WITH_TOKEN)
    if operation.body is not None:
        errors.update(_WITH_BODY)
    if "{" in operation.path:
        errors.add(404)
    shown: dict[str, Any] = {str(operation.status): {"description": operation.about}}
    if operation.answer is not type(None):
        content = {operation.media: {"schema": schemas.of(_answer(operation))}}
        shown[str(operation.status)]["content"] = content
    kinds = dict.fromkeys(sorted(errors), Problem) | dict(operation.also or {})
    for code, kind in kinds.items():
        content = {JSON: {"schema": schemas.of(kind)}}
        shown[str(code)] = {"description": _MEANINGS[code], "content": content}
    return shown


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Docstrings are indented for the source, not for readers."""
    text = schema.get("description", "")
    return schema | {"description": "\n".join(line.strip() for line in text.splitlines())}
