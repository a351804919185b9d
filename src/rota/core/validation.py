"""What msgspec refused, in our words: which key, what was given, and what to write instead."""

import re
from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Any

import msgspec

_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false",
    "object": "keys with values", "array": "a list", "null": "nothing",
}  # fmt: skip
_BOUNDS = {
    ">=": "of at least {}", ">": "above {}", "<=": "of at most {}", "<": "below {}",
    "that's a multiple of": "that is a multiple of {}", "matching regex": "that matches {}",
}  # fmt: skip
_AT = re.compile(r"(.*?) - at `\$(.*)`", re.DOTALL)
_EXPECTED = re.compile(r"Expected `([^`]*)`(?:, got `([^`]*)`)?(?: (.*))?", re.DOTALL)
_LENGTH = re.compile(r"of length (>=|<=|==) ([0-9]+)")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([0-9]+)\]")
_PRIVATE = ("value", "secret", "token", "password", "code")
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class Invalid(msgspec.Struct, frozen=True):
    """A value that was refused. `key`: where it is (`jobs[2].run`); empty: it is the whole."""

    key: str
    problem: str
    remedy: str = ""


def refused_value(error: msgspec.ValidationError, content: Any) -> Invalid:
    """What is wrong with `content`, which msgspec refused by this error."""
    text = str(error)
    at = _AT.fullmatch(text)
    key = at[2].removeprefix(".") if at else ""
    expected = _EXPECTED.fullmatch(at[1] if at else text)
    if not expected:
        return Invalid(key, text)
    kinds, _, bound = expected.groups()
    length = _LENGTH.fullmatch(bound or "")
    given = _given(content, key)
    name = key or "what was sent"
    if length:
        unit = "characters" if kinds == "str" else "items"
        return Invalid(
            key,
            f"{name} has {len(given):,} {unit}" if isinstance(given, Sequence) else name,
            f"give {'at least' if length[1] == '>=' else 'at most'} {int(length[2]):,}",
        )
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | "))
    for sign, words in _BOUNDS.items():
        if bound and bound.startswith(f"{sign} "):
            wanted = f"{wanted} {words.format(bound.removeprefix(f'{sign} '))}"
    known = given is not None and not key.endswith(_PRIVATE)
    return Invalid(key, f"{name} is {_SHORT.repr(given)}" if known else name, f"write {wanted}")


def _given(content: Any, key: str) -> Any:
    """What stands there; None if that cannot be told (keys of a mapping have no path)."""
    for name, index in _STEP.findall(key):
        if name and isinstance(content, Mapping):
            content = content.get(name)
        elif index and isinstance(content, Sequence) and int(index) < len(content):
            content = content[int(index)]
        else:
            return None
    return content
