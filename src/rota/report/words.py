"""Numbers for people: times, shares, counts."""

from collections.abc import Iterable
from statistics import median

NOTHING = "-"
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_THOUSAND, _TEN = 1_000.0, 10.0


def duration(seconds: float | None) -> str:
    """`1.25 h`: in the largest unit of which there is at least one."""
    return NOTHING if seconds is None else _in_unit(seconds, *_unit_of(seconds))


def percent(share: float | None) -> str:
    """`81.2 %`."""
    return NOTHING if share is None else f"{share * 100:.1f} %"


def count(number: float | None) -> str:
    """`1,234`, or with a digit where it is a mean."""
    if number is None:
        return NOTHING
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def plain(number: float | None) -> str:
    """`1.234`, `12.34`, `1,234`."""
    if number is None:
        return NOTHING
    digits = 0 if abs(number) >= _THOUSAND else 2 if abs(number) >= _TEN else 3
    return f"{number:,.{digits}f}"


def alike(numbers: Iterable[float | None], unit: str) -> list[str]:
    """Numbers of one measure side by side: times all in the same unit.

    Args:
        numbers: None: there is none.
        unit: `s`, `share`, `count`, `ratio` or `index`.
    """
    values = list(numbers)
    if unit != "s":
        write = {"share": percent, "count": count}.get(unit, plain)
        return [write(value) for value in values]
    known = [value for value in values if value]
    size, name = _unit_of(median(known) if known else 0.0)
    return [NOTHING if value is None else _in_unit(value, size, name) for value in values]


def _unit_of(seconds: float) -> tuple[float, str]:
    return next((unit for unit in _UNITS if abs(seconds) >= unit[0]), _UNITS[-1])


def _in_unit(seconds: float, size: float, name: str) -> str:
    if not seconds:
        return f"0 {name}"
    if abs(seconds) < 0.01 * size:  # would be written as 0.00
        return f"{seconds / size:.2g} {name}"
    return f"{seconds / size:,.2f} {name}"
