"""Named parts found through entry points: listing imports none of them, a wheel can add its own.

Entry points are read once per process, from the files of installed packages. `importlib.metadata`
finds the same, but takes much longer to import and scans all packages for every group: it is asked
only if some package is not in a plain folder.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from math import isnan
from pathlib import Path
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


def names(group: str) -> list[str]:
    """All registered names, sorted; imports nothing."""
    return list(_entries(group))


def load(group: str, name: str) -> Any:
    """The registered object."""
    entries = _entries(group)
    if name not in entries:
        raise OptionError(unknown(SINGULAR.get(group, group), name, list(entries)))
    module, _, attributes = entries[name].partition(":")
    found: Any = import_module(module.strip())
    for attribute in filter(None, attributes.partition("[")[0].strip().split(".")):
        found = getattr(found, attribute)
    return found


# --- entry points of installed packages ----------------------------------------------------------

_OURS = "rota."  # groups of other names are not ours


def _entries(group: str) -> Mapping[str, str]:
    """By name, sorted: where it is (`module:attribute`)."""
    return _installed().get(group, {})


@cache
def _installed() -> Mapping[str, Mapping[str, str]]:
    """All entry points of our groups."""
    found: dict[str, dict[str, str]] = {group: {} for group in SINGULAR}
    for group, name, where in _read_folders() if _plain_folders() else _ask_importlib():
        found.setdefault(group, {})[name] = where
    return {group: dict(sorted(entries.items())) for group, entries in found.items()}


def _plain_folders() -> bool:
    """No package is in a zip file, or is found by an import hook of its own."""
    hooks = [hook for hook in sys.meta_path if hasattr(hook, "find_distributions")]
    return hooks == [PathFinder] and not any(map(os.path.isfile, sys.path))


def _ask_importlib() -> Iterator[tuple[str, str, str]]:
    from importlib.metadata import entry_points

    for group in SINGULAR:
        for entry in entry_points(group=group):
            yield group, entry.name, entry.value


def _read_folders() -> Iterator[tuple[str, str, str]]:
    """(group, name, where); of a package that is installed twice, the first on the path counts."""
    seen: set[str] = set()
    for folder in sys.path:
        for item in _infos(folder or "."):
            package = item.name.rpartition(".")[0].partition("-")[0].lower().replace(".", "_")
            if package not in seen:
                seen.add(package)
                yield from _read_entry_points(Path(item, "entry_points.txt"))


def _infos(folder: str) -> "list[os.DirEntry[str]]":
    """What describes an installed package, by name."""
    try:
        with os.scandir(folder) as items:
            found = [item for item in items if item.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return []
    return sorted(found, key=lambda item: item.name)


def _read_entry_points(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        data = path.read_bytes()
    except OSError:  # it has none
        return
    if b"[" + _OURS.encode() not in data:
        return
    group = ""
    for line in map(str.strip, data.decode().splitlines()):
        if line.startswith("["):
            group = line.strip("[]").strip()
        elif group.startswith(_OURS) and "=" in line and not line.startswith(("#", ";")):
            name, _, where = line.partition("=")
            yield group, name.strip(), where.strip()


# --- files that texts may name --------------------------------------------------------------------

_LENDERS: ContextVar[tuple[str, ...] | None] = ContextVar("rota_lenders", default=None)


@contextmanager
def only_files_of(texts: Iterable[str]) -> Iterator[None]:
    """Read only files that these texts name: others come from who may not say what is read."""
    before = _LENDERS.set(tuple(texts))
    try:
        yield
    finally:
        _LENDERS.reset(before)


def check_file(name: str) -> None:
    """Raise unless a file that a text names may be read, or run."""
    lenders = _LENDERS.get()
    whole = rf"(?:^|[:=,+(]){re.escape(name)}(?=$|[:,+)])"
    if lenders is not None and not any(re.search(whole, text) for text in lenders):
        raise OptionError(
            f"{name[:_LONG]!r} names a file, and only the daemon's configuration may: put it there "
            "(policy, placement), or give a registered name and values"
        )


# --- names and parameters ------------------------------------------------------------------------


def unknown(what: str, name: str, known: list[str], *, likely: Iterable[str] = ()) -> str:
    """A message that names the value and the remedy; of similar names `likely` ones come first."""
    close = nearest(name, likely) or nearest(name, known)
    hint = f"did you mean {close!r}? " if close else ""
    return f"unknown {what} {name!r}: {hint}known: {', '.join(known)}"


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known name that is most like this one, or nothing; case, `-` and `_` do not count."""
    from difflib import get_close_matches

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
