"""Durations and amounts of memory as people write them."""

import re
from math import isfinite
from reprlib import Repr

from rota.core.errors import InputError
from rota.core.sums import ordered_sum

LONGEST_S = 10 * 366 * 86400.0
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NUMBER = r"\d{1,12}(?:\.\d{0,9})?"
_PLAIN = re.compile(_NUMBER, re.ASCII)
_PIECE = re.compile(rf"({_NUMBER})\s*([smhdw])[a-z]*\s*", re.ASCII | re.IGNORECASE)
_WORDS = re.compile(
    rf"(?:{_NUMBER}\s*"
    r"(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)(?![a-z])\s*)+",
    re.ASCII | re.IGNORECASE,
)
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,6}))?(?::(\d{1,6}))?", re.ASCII)
_MEMORY = re.compile(rf"({_NUMBER})\s*(?:([kmgtp])i?b?|b)?", re.ASCII | re.IGNORECASE)
_GIB = {"k": 2.0**-20, "m": 2.0**-10, "g": 1.0, "t": 2.0**10, "p": 2.0**20}

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = 3
_SHORT.maxlevel = 2


def shown(value: object) -> str:
    """A value for a message: never long, whatever a file holds."""
    return _SHORT.repr(value)


def duration_s(value: str | float, where: str) -> float:
    """Seconds: a number, `90m`, `2h30m`, `1d 12h`, `12:30:00`, `30:00` or `1-12:00:00`."""
    seconds = value if isinstance(value, int | float) else _seconds(value.strip())
    if seconds is None or not 0 <= seconds <= LONGEST_S:  # nan is not between either
        raise InputError(
            f"{where} is {shown(value)}: give seconds or a time such as 90m, 2h30m or "
            f"1-12:00:00, at most 10 years"
        )
    return float(seconds)


def _seconds(text: str) -> float | None:
    if _PLAIN.fullmatch(text):
        return float(text)
    if _WORDS.fullmatch(text):
        return ordered_sum(float(n) * _UNITS_S[unit.lower()] for n, unit in _PIECE.findall(text))
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:  # D-HH, D-HH:MM, D-HH:MM:SS
        numbers += [0] * (3 - len(numbers))
        return int(days) * 86400.0 + _sexagesimal(numbers)
    return float(_sexagesimal(numbers))


def _sexagesimal(numbers: list[int]) -> int:
    total = 0
    for number in numbers:
        total = total * 60 + number
    return total


def slurm_time_s(text: str, where: str) -> float | None:
    """Slurm's forms: a plain number is minutes; None for no limit."""
    text = text.strip()
    if text.upper() in ("UNLIMITED", "INFINITE", "0", "-1"):
        return None
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        return duration_s(int(text) * 60, where)
    return duration_s(text, where)


def memory_gib(value: str | float, where: str, *, unit: str = "g") -> float:
    """GiB: a number of them (or of the `unit`), or with a unit of its own: `64GB`, `512M`, `1T`.

    All units are powers of 1024, with or without an i: clusters count memory this way.
    """
    if isinstance(value, int | float):
        amount = float(value) * _GIB[unit]
    else:
        match = _MEMORY.fullmatch(value.strip())
        if match is None:
            raise _memory_error(value, where)
        named = match[2]
        if named is None and value.strip().lower().endswith("b"):
            amount = float(match[1]) / 2**30
        else:
            amount = float(match[1]) * _GIB[(named or unit).lower()]
    if not isfinite(amount) or amount < 0:
        raise _memory_error(value, where)
    return amount


def _memory_error(value: object, where: str) -> InputError:
    return InputError(f"{where} is {shown(value)}: give GiB or an amount such as 64GB or 512M")
