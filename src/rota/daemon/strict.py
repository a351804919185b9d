"""Mistakes in a configuration, told with the full path of the key and the keys of its level."""

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec

from rota.core.errors import InputError

_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false",
    "object": "keys with values", "array": "a list", "null": "nothing",
}  # fmt: skip
_PATH = re.compile(r"(.*?) - at `\$(.*)`", re.DOTALL)
_TYPES = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_INDEX = re.compile(r"\[([0-9]+)\]")


def refuse_unknown(content: Mapping[Any, Any], kind: type[msgspec.Struct], where: str) -> None:
    """Raise at the first key or choice that there is not; `where`: the file, and the keys above."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in content.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InputError(
                f"{where}{key}: there is no such key{hint}: the keys here are {', '.join(known)}"
            )
        choices = get_args(known[key]) if get_origin(known[key]) is Literal else ()
        if choices and value not in choices:
            raise InputError(f"{where}{key} is {value!r}: write one of {', '.join(choices)}")
        if isinstance(value, Mapping) and _is_struct(known[key]):
            refuse_unknown(value, known[key], f"{where}{key}.")


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def told(error: msgspec.ValidationError, content: Mapping[str, Any], where: str) -> str:
    """What msgspec found, in our words: where it is, what was given, what is wanted."""
    match = _PATH.fullmatch(str(error))
    text, path = (match[1], match[2].removeprefix(".")) if match else (str(error), "")
    types = _TYPES.search(text)
    if types:
        wanted = " or ".join(_WORDS.get(word, word) for word in types[1].split(" | "))
        text = f"write {wanted}, not {_WORDS.get(types[2], types[2])}"
    return f"{where}{_by_name(path, content)}: {text.replace('`', '')}" if path else where + text


def _by_name(path: str, content: Mapping[str, Any]) -> str:
    """`queues[1].quota` is better known as `queues.research.quota`."""

    def named(match: re.Match[str]) -> str:
        items = content.get(path[: match.start()])
        item = items[int(match[1])] if isinstance(items, list) else None
        return f".{item['name']}" if isinstance(item, Mapping) and "name" in item else match[0]

    return _INDEX.sub(named, path)
