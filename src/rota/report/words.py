"""Numbers for people: times, shares, counts."""

from collections.abc import Iterable
from statistics import median

NOTHING = "-"
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_THOUSAND, _HUNDRED, _TEN, _LEAST = 1_000.0, 100.0, 10.0, 0.001


def duration(seconds: float | None) -> str:
    """`1.25 h`: three digits in the largest unit of which there is at least one."""
    return NOTHING if seconds is None else in_unit(seconds, *_unit_of(seconds))


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
    size, name = common_unit(values)
    return [NOTHING if value is None else in_unit(value, size, name) for value in values]


def common_unit(seconds: Iterable[float | None]) -> tuple[float, str]:
    """The unit (its seconds, its name) in which times are written side by side."""
    known = [value for value in seconds if value]
    return _unit_of(median(known) if known else 0.0)


def ratio(value: float) -> str:
    """`0.630`, `12.3`, `0.00021`: of ratios side by side all have the same digits."""
    size = abs(value)
    if 0 < size < _LEAST:
        return f"{value:.2g}"
    return f"{value:,.{3 if size < _TEN else 1 if size < _HUNDRED else 0}f}"


def _unit_of(seconds: float) -> tuple[float, str]:
    return next((unit for unit in _UNITS if abs(seconds) >= unit[0]), _UNITS[-1])


def in_unit(seconds: float, size: float, name: str) -> str:
    """`81.2 h`: three digits, or two of what is very little."""
    if not seconds:
        return f"0 {name}"
    value = seconds / size
    if abs(value) < 0.01:  # noqa: PLR2004 - would be written as 0.00
        return f"{value:.2g} {name}"
    digits = 0 if abs(value) >= _HUNDRED else 1 if abs(value) >= _TEN else 2
    return f"{value:,.{digits}f} {name}"
