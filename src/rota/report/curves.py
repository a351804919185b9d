"""How a measure changes with the level of one thing, a line per policy."""

from itertools import pairwise

import matplotlib as mpl
import polars as pl

from rota.report import style
from rota.report.figures import SETTINGS, Picture

HOUR_S = 3600.0


def curve_figure(
    table: pl.DataFrame, *, measure: str, unit: str, axis: str, width_in: float = style.SINGLE_IN
) -> Picture:
    """Means as lines, ranges over the seeds as bands.

    Args:
        table: A row per policy and level: `policy`, `level`, `place`, `mean`, `least`, `most`.
        measure: What is shown, in words.
        unit: `s` (shown in hours), or another.
        axis: What is varied, in words.
        width_in: Inches.
    """
    scale = 1 / HOUR_S if unit == "s" else 1.0
    with mpl.rc_context(SETTINGS):
        figure = Picture(figsize=(width_in, 0.72 * width_in))
        axes = figure.add_subplot()
        for number, (name, mine) in enumerate(table.group_by("policy", maintain_order=True)):
            place = mine["place"].to_numpy()
            colour = style.COLOURS[number % len(style.COLOURS)]
            dash = style.DASHES[number % len(style.DASHES)]
            low, mean, high = (
                mine[key].cast(pl.Float64).to_numpy() * scale for key in ("least", "mean", "most")
            )
            axes.fill_between(place, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(
                place, mean, "o", color=colour, markersize=2.8, label=str(name[0]),
                linestyle=(0, dash) if dash else "solid",
            )  # fmt: skip
        places, labels = _ticks(table)
        axes.set_xticks(places, labels)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(axis)
        axes.set_ylabel(f"{measure} (h)" if unit == "s" else measure)
        figure.legend(
            loc="outside upper center", ncols=min(table["policy"].n_unique(), int(width_in))
        )
    return figure


def _ticks(table: pl.DataFrame) -> tuple[list[float], list[str]]:
    """The levels; where they are too close together every label keeps its room."""
    levels = table.unique("place", maintain_order=True).sort("place")
    places = levels["place"].to_list()
    labels = [str(level).rpartition("=")[2] or str(level) for level in levels["level"]]
    span = (places[-1] - places[0]) or 1.0
    close = [False, *((b - a) / span < 0.05 for a, b in pairwise(places))]  # noqa: PLR2004 - a label
    return places, ["" if near else label for label, near in zip(labels, close, strict=True)]
