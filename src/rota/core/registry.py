"""Named parts found through entry points: listing imports none of them, a wheel can add its own."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from math import isnan
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from rota.core.errors import OptionError

POLICIES = "rota.policies"
PLACEMENTS = "rota.placements"
ADMISSIONS = "rota.admissions"
COSTS = "rota.costs"
RATES = "rota.rates"
DIALECTS = "rota.dialects"
FORMATS = "rota.formats"
RECIPES = "rota.recipes"
SINGULAR = {
    POLICIES: "policy",
    PLACEMENTS: "placement",
    ADMISSIONS: "admission",
    COSTS: "cost model",
    RATES: "rate model",
    DIALECTS: "dialect",
    FORMATS: "format",
    RECIPES: "recipe",
}


_LONG = 200  # values that are longer are cut in messages


@cache
def _entries(group: str) -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}


def names(group: str) -> list[str]:
    """All registered names, sorted; imports nothing."""
    return list(_entries(group))


def load(group: str, name: str) -> Any:
    """The registered object."""
    entries = _entries(group)
    if name not in entries:
        raise OptionError(unknown(SINGULAR.get(group, group), name, list(entries)))
    return entries[name].load()


def unknown(what: str, name: str, known: list[str]) -> str:
    """A message that names the value and the remedy."""
    close = nearest(name, known)
    hint = f"did you mean {close!r}? " if close else ""
    return f"unknown {what} {name!r}: {hint}known: {', '.join(known)}"


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known name that is most like this one, or nothing; case, `-` and `_` do not count."""
    plain = {_plain(each): each for each in known}
    close = get_close_matches(_plain(name), list(plain), n=1, cutoff=cutoff)
    return plain[close[0]] if close else ""


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-")


def split(text: str) -> tuple[str, dict[str, str]]:
    """`name:key=value,key=value` as (name, options)."""
    name, _, rest = text.partition(":")
    options: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{text!r}: {part!r} is not key=value: write {name}:key=value")
        key = key.strip().replace("-", "_")
        if key in options:
            raise OptionError(f"{text!r}: {key!r} is given twice: write it once")
        options[key] = value.strip()
    return name.strip(), options


def parse_params(owner: str, params_type: type[msgspec.Struct], options: Mapping[str, Any]) -> Any:
    """Typed parameters from texts; a tuple of numbers is written a/b/c."""
    hints = get_type_hints(params_type)
    hints = {name: hints[name] for name in params_type.__struct_fields__}
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in hints:
            known = sorted(hints)
            detail = unknown("parameter", key, known) if known else f"{owner} has no parameters"
            raise OptionError(f"{owner}: {detail}")
        values[key] = _parts(hints[key], value)
    try:
        params = msgspec.convert(values, params_type, strict=False)
    except msgspec.ValidationError as error:
        plain = {key: value for key, value in options.items() if not isinstance(value, list | dict)}
        given = ", ".join(f"{key}={_short(value)}" for key, value in plain.items())
        given = given or "what it says"
        reason = _choice(hints, values) or f"cannot use {given}: {error}"
        raise OptionError(f"{owner}: {reason}") from error
    for key in options:
        value = getattr(params, key)
        if isinstance(value, float) and isnan(value):
            raise OptionError(f"{owner}: {key} is nan: give a number")
    return params


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONG else f"{text[:20]}... ({len(text)} characters)"


def _choice(hints: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """What a value should have been, if there is a list of what it may be."""
    for key, value in values.items():
        choices = get_args(hints[key]) if get_origin(hints[key]) is Literal else ()
        if choices and value not in choices:
            known = ", ".join(str(choice) for choice in choices if choice != "")
            return f"cannot use {key}={value}: give one of {known}"
    return ""


def _parts(hint: Any, value: Any) -> Any:
    if isinstance(value, str) and get_origin(hint) is tuple and get_args(hint):
        return [part for part in value.split("/") if part]
    if isinstance(value, str) and hint in (bool, bool | None):
        return {"yes": "true", "no": "false", "on": "true", "off": "false"}.get(
            value.lower(), value
        )
    return value
