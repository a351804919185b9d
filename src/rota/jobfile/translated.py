"""What every reader of job descriptions returns, and how it looks up keys."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.core.registry import unknown
from rota.jobfile.model import JobFile
from rota.jobfile.quantities import shown


class Translated(msgspec.Struct, frozen=True):
    """A job, and what of its description cannot be honoured."""

    job: JobFile
    warnings: tuple[str, ...] = ()


def convert(value: Any, to: Any, where: str) -> Any:
    """A value as the wanted type; texts are read as numbers or truth values where those belong."""
    if to is bool and isinstance(value, str):
        value = {"yes": True, "on": True, "no": False, "off": False}.get(value.lower(), value)
    try:
        return msgspec.convert(value, to, strict=False)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        problem = str(error).replace("`", "").lower() or "too large"
        raise InputError(f"{where} is {shown(value)}: {problem}: correct it") from error


def check_keys(where: str, entry: Any, known: Sequence[str]) -> None:
    """Refuse what nobody would read."""
    if not isinstance(entry, dict):
        raise InputError(f"{where}: is {shown(entry)}: give keys, of {', '.join(known)}")
    for key in entry:
        if key not in known:
            raise InputError(f"{where}: {unknown('key', str(key)[:60], list(known))}")


def entry_of(where: str, content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A mapping under a key; an absent or empty one is empty."""
    found = content.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputError(f"{where}: {key} is {shown(found)}: give keys and values under it")
    return found


def list_of(where: str, content: Mapping[str, Any], key: str) -> list[Any]:
    """A list under a key; an absent one is empty."""
    found = content.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InputError(f"{where}: {key} is {shown(found)}: give a list, one entry per line")
    return found


def text_of(where: str, value: Any) -> str:
    """A single text (or number)."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{where} is {shown(value)}: give a text")
