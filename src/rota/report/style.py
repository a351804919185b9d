"""What all pictures share: colours, dashes, sizes, and axes of time for people."""

import math
from collections.abc import Mapping, Sequence

import polars as pl

from rota.core.words import brief

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
"""Paul Tol's bright scheme: told apart by most colour-blind readers, on white and on black."""
DASHES: tuple[tuple[float, ...], ...] = (
    (), (5, 1.5), (1.5, 1.2), (6, 1.5, 1.5, 1.5), (3, 1), (8, 2, 1.5, 2, 1.5, 2), (1, 2.5),
)  # fmt: skip
"""Lengths drawn and left out, in widths of the line: curves on top of each other stay visible."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
COLOURS_ON_DARK = ("#77aadd", "#ff8899", "#55cc77", "#ddcc66", "#99ddff", "#dd77bb", "#bbbbbb")
"""The same hues for the page on a dark screen."""
REASON_COLOURS = {
    "order": "#4477aa",
    "capacity": "#66ccee",
    "fragmentation": "#ee6677",
    "quota": "#ccbb44",
    "gang": "#aa3377",
    "constraint": "#882255",
    "admission": "#999933",
    "dependency": "#117733",
    "overhead": "#999999",
    "down": "#444444",
    "unknown": "#bbbbbb",
}
REASONS_ON_DARK = {
    "order": "#77aadd",
    "capacity": "#99ddff",
    "fragmentation": "#ff8899",
    "quota": "#ddcc66",
    "gang": "#dd77bb",
    "constraint": "#c0557a",
    "admission": "#bbbb55",
    "dependency": "#55cc77",
    "overhead": "#8f959c",
    "down": "#e4e6e9",
    "unknown": "#6b7178",
}
USEFUL, OVERHEAD, DOWN = "#4477aa", "#ccbb44", "#cc3311"
LEAST_SHARE = 0.1
"""A map of shares that are all small gets brighter colours, but not for less than this."""
SINGLE_IN, DOUBLE_IN = 3.4, 7.0
"""Widths of a figure in one and in two columns of a paper, in inches."""

_LOG_TICKS = (
    1, 10, 60, 600, 3_600, 36_000, 345_600, 3_456_000, 31_536_000,
)  # fmt: skip
_STEPS = (
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200,
    86_400, 172_800, 432_000, 864_000, 1_728_000, 4_320_000, 8_640_000, 31_536_000,
)  # fmt: skip


def colour(number: int) -> str:
    """The colour of a curve."""
    return COLOURS[number % len(COLOURS)]


def dash(number: int) -> tuple[float, ...]:
    """Its dash: a colour that comes again has another one, so that 49 curves differ."""
    return DASHES[(number + number // len(COLOURS)) % len(DASHES)]


def marker(number: int) -> str:
    """Its marker, which is another one when the colours begin again."""
    return MARKERS[number // len(COLOURS) % len(MARKERS)]


def log_ticks(low_s: float, high_s: float) -> list[tuple[float, str]]:
    """(time, label) on a logarithmic axis of time."""
    return [(float(at), brief(at)) for at in _LOG_TICKS if low_s <= at <= high_s]


def time_ticks(until_s: float, count: int = 6) -> tuple[list[float], list[str]]:
    """Round times from 0 on, and their labels."""
    step = next(
        (step for step in _STEPS if until_s / step <= count),
        max(math.ceil(until_s / count / 86_400), 1) * 86_400,
    )
    times = [float(i * step) for i in range(int(until_s // step) + 1)]
    return times, [brief(at) if at else "0" for at in times]


def coinciding(curves: Mapping[str, pl.DataFrame]) -> list[tuple[int, list[str], pl.DataFrame]]:
    """Curves that are not the same: their number, the names of all that are it, the curve."""
    found: list[tuple[int, list[str], pl.DataFrame]] = []
    for number, (name, curve) in enumerate(curves.items()):
        same = next((names for _, names, other in found if other.equals(curve)), None)
        if same is None:
            found.append((number, [name], curve))
        else:
            same.append(name)
    return found


def legend(names: Sequence[str]) -> str:
    """`fifo`, or `fifo = las (coincide)`."""
    text = names[0] if len(names) == 1 else f"{' = '.join(names)} (coincide)"
    return f" {text}" if text.startswith("_") else text  # matplotlib hides what begins with _
