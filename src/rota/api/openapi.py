"""The OpenAPI document: schemas come from the structures that msgspec reads and writes."""

from collections.abc import Iterable
from typing import Any, get_origin

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from rota.api.problems import Problem
from rota.api.routes import BEARER, Route

REF = "#/components/schemas/{name}"
ABOUT = """Submit jobs, watch them and run the cluster.

Every request needs a token (`Authorization: Bearer TOKEN`) except where it says otherwise. What a
token may do depends on its role: viewer < user < operator < admin. Errors always look like
`Problem`. Unknown keys and parameters are errors.
"""
TAGS = {
    "jobs": "Submit, watch and end jobs.",
    "events": "The event log: everything that happened, in order.",
    "cluster": "Nodes, queues and the daemon in numbers.",
    "admin": "Tokens and configuration.",
    "agents": "For the agents on the machines.",
    "health": "For machines that watch the daemon.",
}


class Schemas:
    """Collects the types that operations name."""

    def __init__(self, routes: Iterable[Route]) -> None:
        kinds: dict[Any, None] = {Problem: None}
        for route in routes:
            for given in (route.answer, route.body, *route.also.values()):
                kinds |= dict.fromkeys(_types_in(given))
        shown, self.components = msgspec.json.schema_components(list(kinds), ref_template=REF)
        self._shown = dict(zip(kinds, shown, strict=True))

    def __call__(self, given: Any) -> Any:
        """The schema of a type, also inside of a JSON schema."""
        if isinstance(given, dict):
            return {key: self(value) for key, value in given.items()}
        if isinstance(given, list):
            return [self(item) for item in given]
        return self._shown[given] if _is_type(given) else given


def _is_type(given: Any) -> bool:
    return isinstance(given, type) or get_origin(given) is not None


def _types_in(given: Any) -> list[Any]:
    if isinstance(given, dict):
        return [kind for value in given.values() for kind in _types_in(value)]
    if isinstance(given, list):
        return [kind for item in given for kind in _types_in(item)]
    return [given] if _is_type(given) else []


def document(app: FastAPI, components: dict[str, Any]) -> dict[str, Any]:
    """The whole document."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        description=ABOUT,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    parts = made.setdefault("components", {})
    parts["schemas"] = {name: _tidy(schema) for name, schema in components.items()}
    parts["securitySchemes"] = {BEARER: {"type": "http", "scheme": "bearer"}}
    return made


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Docstrings are indented for the source, not for readers."""
    text = schema.get("description", "")
    return schema | {"description": "\n".join(line.strip() for line in text.splitlines())}
