"""How a measure changes with the level of one thing, a line per policy."""

from itertools import pairwise

import matplotlib as mpl
import polars as pl

from rota.report import canvas, style
from rota.report.canvas import SETTINGS, Picture
from rota.report.names import short_names

LETTERS_PER_IN = 13


def curve_figure(
    table: pl.DataFrame, *, measure: str, unit: str, axis: str, width_in: float = style.SINGLE_IN
) -> Picture:
    """Means as lines, ranges over the seeds as bands.

    Args:
        table: A row per policy and level: `policy`, `level`, `place`, `mean`, `least`, `most`.
        measure: What is shown, in words.
        unit: `s`, or another.
        axis: What is varied, in words.
        width_in: Inches.
    """
    with mpl.rc_context(SETTINGS):
        figure = Picture(figsize=(width_in, 0.72 * width_in))
        axes = figure.add_subplot()
        short = short_names(table["policy"].unique(maintain_order=True).to_list())
        for number, (name, mine) in enumerate(table.group_by("policy", maintain_order=True)):
            place = mine["place"].to_numpy()
            colour, dash = style.colour(number), style.dash(number)
            low, mean, high = (
                mine[key].cast(pl.Float64).to_numpy() for key in ("least", "mean", "most")
            )
            axes.fill_between(place, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(
                place, mean, style.marker(number), color=colour, markersize=2.8,
                markerfacecolor="none", label=style.legend([short[str(name[0])]]), clip_on=False,
                linestyle=(0, dash) if dash else "solid",
            )  # fmt: skip
        places, labels = _ticks(table)
        axes.set_xticks(places, labels)
        if sum(map(len, labels)) > LETTERS_PER_IN * width_in:
            axes.tick_params(axis="x", labelrotation=20)
            for label in axes.get_xticklabels():
                label.set_horizontalalignment("right")
        most = max(canvas.top(table["most"].drop_nulls()), canvas.top(table["mean"].drop_nulls()))
        axes.set_ylim(0, most * 1.05 or 1.0)
        if unit == "s":
            axes.set_yticks(*style.time_ticks(axes.get_ylim()[1]))
        axes.set_xlabel(axis)
        axes.set_ylabel(measure)
        canvas.legend_below(figure, axes, width_in)
    return figure


def _ticks(table: pl.DataFrame) -> tuple[list[float], list[str]]:
    """The levels; where they are too close together every label keeps its room."""
    levels = table.unique("place", maintain_order=True).sort("place")
    places = levels["place"].to_list()
    labels = [_label(str(level)) for level in levels["level"]]
    span = (places[-1] - places[0]) or 1.0
    close = [False, *((b - a) / span < 0.05 for a, b in pairwise(places))]  # noqa: PLR2004 - a label
    return places, ["" if near else label for label, near in zip(labels, close, strict=True)]


def _label(level: str) -> str:
    """`0.5` of `cv=0.5`, whose key is that of the axis; costs are named in full."""
    return level if ":" in level else level.rpartition("=")[2] or level
