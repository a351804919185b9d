"""The reference of the HTTP API, from its OpenAPI document."""

from collections.abc import Iterator
from typing import Any

from rota.api import openapi_document

Schema = dict[str, Any]
METHODS = ("get", "post", "delete")
EVERYWHERE = ("401", "403", "408", "413", "421", "422", "429", "500", "503")  # said once, above


def http_api(_: str) -> str:
    """A section for each operation, and a table for each shape."""
    document = openapi_document()
    lines: list[str] = []
    for tag in document["tags"]:
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        for path, method, operation in _operations(document):
            if tag["name"] in operation["tags"]:
                lines += [f"### {method.upper()} {path}", "", *_about(operation), ""]
    lines += ["## Shapes", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}", "", schema.get("description", ""), "", *_fields(schema), ""]
    return "\n".join(lines)


def _operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield path, method, methods[method]


def _about(operation: Schema) -> Iterator[str]:
    yield f"{operation['summary']}. (`{operation['operationId']}`)"
    yield ""
    yield operation["description"]
    yield ""
    rows = [
        [f"`{item['name']}`", item["in"], _type(item["schema"]), item.get("description", "")]
        for item in operation.get("parameters", ())
    ]
    if rows:
        yield _table(["Parameter", "In", "Type", "Meaning"], rows)
        yield ""
    body = operation.get("requestBody")
    rows = [["body", _content(body)]] if body else []
    rows += [
        [f"`{code}`", f"{answer['description']} {_content(answer)}".strip()]
        for code, answer in operation["responses"].items()
        if code not in EVERYWHERE
    ]
    yield _table(["", "What"], rows)


def _content(part: Schema) -> str:
    kinds = [
        f"{_type(inside['schema'])} as `{media}`"
        for media, inside in part.get("content", {}).items()
    ]
    return ", ".join(kinds)


def _fields(schema: Schema) -> Iterator[str]:
    required = schema.get("required", ())
    rows = [
        [
            f"`{name}`",
            _type(field),
            "required"
            if name in required
            else f"`{field['default']!r}`"
            if "default" in field
            else "",
        ]
        for name, field in schema.get("properties", {}).items()
    ]
    yield _table(["Key", "Type", "Default"], rows)


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("prefixItems", [schema.get("items") or {}])
        return f"list of {', '.join(_type(item) for item in items)}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{_type(schema['additionalProperties'])} by name"
    return schema.get("type", "anything") + _bounds(schema)


def _bounds(schema: Schema) -> str:
    words = {"minimum": "at least", "maximum": "at most", "maxLength": "length at most"}
    return "".join(f", {text} {schema[key]}" for key, text in words.items() if key in schema)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
