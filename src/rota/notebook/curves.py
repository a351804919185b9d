"""Curves with intervals: how a number changes along an axis of an experiment."""

from collections.abc import Mapping

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes

from rota.metrics.vocabulary import label_of
from rota.report import style
from rota.report.figures import SETTINGS, Picture
from rota.report.style import short_names

_MARKERS = ("o", "s", "^", "D", "v", "x", "+")  # open: a line below another one is seen
_SPREAD = 0.5  # of the places of an axis of names, for the lines side by side


def draw(curves: Mapping[str, pl.DataFrame], x: str, y: str, by: str) -> Picture:
    """A figure of `Results.curves`: lines with bands, or points where x is a name."""
    with mpl.rc_context(SETTINGS):
        figure = Picture(figsize=(style.SINGLE_IN * 1.3, 2.6))
        axes = figure.add_subplot()
        short = short_names(list(curves))
        curves = {short[name]: curve for name, curve in curves.items()}
        if all(curve[x].dtype.is_numeric() for curve in curves.values()):
            for number, (label, curve) in enumerate(curves.items()):
                _band(axes, label, curve.drop_nulls(x).sort(x), number)
        else:
            _points(axes, curves)
        axes.set_ylim(0, _top(curves, y))
        _tell_what_is_cut(axes, curves)
        axes.set_xlabel(x.replace("_", " "))
        axes.set_ylabel(label_of(y))
        if y.endswith("_s"):
            _in_units(axes)
        axes.legend(title=by, handlelength=3.6, fontsize=6.5)
    return figure


def _band(axes: Axes, label: str, curve: pl.DataFrame, number: int) -> None:
    at, mean, low, high, _ = (column.to_list() for column in curve)
    colour, dash = style.colour(number), style.dash(number)
    axes.plot(
        at, mean, color=colour, marker=_MARKERS[number % len(_MARKERS)], markersize=3.4,
        markerfacecolor="none", linestyle=(0, dash) if dash else "solid", label=label,
    )  # fmt: skip
    known = [i for i, value in enumerate(low) if value is not None]
    axes.fill_between(
        [at[i] for i in known],
        [low[i] for i in known],
        [high[i] for i in known],
        color=colour,
        alpha=0.2,
        linewidth=0,
    )


def _points(axes: Axes, curves: Mapping[str, pl.DataFrame]) -> None:
    names = list(
        dict.fromkeys(_text(value) for curve in curves.values() for value in curve.to_series(0))
    )
    for number, (label, curve) in enumerate(curves.items()):
        values, mean, low, high, _ = (column.to_list() for column in curve)
        shift = _SPREAD * ((number + 0.5) / len(curves) - 0.5)
        errors = [
            [
                0.0 if end is None else abs(end - middle)
                for end, middle in zip(ends, mean, strict=True)
            ]
            for ends in (low, high)
        ]
        axes.errorbar(
            [names.index(_text(value)) + shift for value in values],
            mean,
            errors,
            color=style.colour(number),
            fmt=_MARKERS[number % len(_MARKERS)],
            markersize=3,
            capsize=2,
            label=label,
        )
    axes.set_xticks(range(len(names)), names)


def _top(curves: Mapping[str, pl.DataFrame], y: str) -> float:
    """The means fill the picture; an interval may reach out of it."""
    means = [value for curve in curves.values() for value in curve[y]]
    ends = [value for curve in curves.values() for value in curve["high"].drop_nulls()]
    highest = float(max(means, default=0.0))
    reach = float(max([*ends, highest]))
    return max(1.08 * min(reach, 2 * highest), 1e-9)


def _tell_what_is_cut(axes: Axes, curves: Mapping[str, pl.DataFrame]) -> None:
    top = axes.get_ylim()[1]
    if any(value > top for curve in curves.values() for value in curve["high"].drop_nulls()):
        axes.set_title("an interval reaches beyond the picture", loc="right", fontsize=6)


def _in_units(axes: Axes) -> None:
    """Round times as labels."""
    axes.set_yticks(*style.time_ticks(axes.get_ylim()[1]))


def _text(value: object) -> str:
    return "-" if value is None else str(value)
