"""What every static figure is made of: sizes, settings, files, axes and legends."""

from collections.abc import Callable
from functools import wraps
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rota.core.errors import OptionError
from rota.core.unfinished import write_whole
from rota.report import style
from rota.report.style import short_names

FORMATS = ("svg", "png", "pdf")
PNG_DPI = 200
SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.3,
    "pdf.fonttype": 42,  # TrueType, embedded
    "svg.hashsalt": "rota",
    "text.parse_math": False,  # a name with $ in it is a name
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
P = ParamSpec("P")


class Picture(Figure):
    """A figure that notebooks show without further ado."""

    def _repr_png_(self) -> bytes:
        return as_bytes(self, "png")


def styled(draw: Callable[P, Picture]) -> Callable[P, Picture]:
    """A function that draws with our settings and leaves those of others as they are."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Picture:
        with mpl.rc_context(SETTINGS):
            return draw(*args, **kwargs)

    return inside


def as_bytes(figure: Figure, kind: str) -> bytes:
    """The content of a file of a kind: svg, png or pdf."""
    if kind not in FORMATS:
        raise OptionError(f"figures of kind {kind!r}: use {', '.join(FORMATS)}")
    content = BytesIO()
    with mpl.rc_context(SETTINGS):
        figure.savefig(content, format=kind, dpi=PNG_DPI, metadata=_METADATA[kind])
    return content.getvalue()


def settle(figure: Figure) -> None:
    """Fix the layout, which is worked out anew for every file otherwise."""
    with mpl.rc_context(SETTINGS):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the ending of the name (.svg, .png, .pdf) says how."""
    target = Path(path)
    return write_whole(target, as_bytes(figure, target.suffix.removeprefix(".").lower()))


# --- parts ---------------------------------------------------------------------------------------


def line(number: int) -> dict[str, Any]:
    """How the curve of a policy looks."""
    dash = style.dash(number)
    return {"color": style.colour(number), "linestyle": (0, dash) if dash else "solid"}


def panels(titles: list[str], width_in: float, height_in: float) -> tuple[Picture, list[Axes]]:
    """Pictures above each other with one axis of time."""
    count = max(len(titles), 1)
    figure = Picture(figsize=(width_in, 0.7 + height_in * count))
    names = short_names(titles, int(width_in * 16))
    grid = figure.subplots(count, 1, sharex=True, squeeze=False)
    panels: list[Axes] = list(grid[:, 0])
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title(names[title], loc="left", pad=2, fontsize=7)
    return figure, panels


def top(values: pl.Series, least: float | None = None) -> float:
    """The largest value, or the least that it shall be."""
    if not len(values):
        return least or 0.0
    largest = float(np.max(values.to_numpy()))
    return largest if least is None else max(largest, least)


def origin(table: pl.DataFrame) -> float:
    """The first time of a series."""
    return float(table["time_s"][0]) if table.height else 0.0


def start(table: pl.DataFrame) -> float:
    """The first time of bins."""
    return -top(-table["from_s"])


def time_axis(axes: Axes, tables: Any, origin_s: float | None = None) -> None:
    """Times since the first submission, up to the end of the longest table."""
    ends = [
        top(table["time_s"]) - (origin(table) if origin_s is None else origin_s) for table in tables
    ]
    end_s = max([*ends, 1.0])
    times, labels = style.time_ticks(end_s)
    axes.set_xlim(0, end_s)
    axes.set_xticks(times, labels)
    axes.set_xlabel("time since the first submission")


def node_ticks(axes: Axes, nodes: list[str], edges: list[float], most: int = 12) -> None:
    """Names of some nodes, at the middle of their rows."""
    every = max(1, -(-len(nodes) // most))
    shown = range(0, len(nodes), every)
    axes.set_yticks([(edges[i] + edges[i + 1]) / 2 for i in shown], [nodes[i] for i in shown])
    axes.tick_params(axis="y", length=0)


def percents(axis: Any) -> None:
    """Shares as per cents."""
    axis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0, symbol=" %"))


def legend_below(figure: Figure, axes: Axes, width_in: float) -> None:
    """Names below the picture in as many columns as fit; the figure grows by what they need."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    lines = any(hasattr(handle, "get_linestyle") for handle in handles)
    letter_in, mark_in = 0.048, 0.5 if lines else 0.28
    texts = [fill(label, int((width_in - mark_in - 0.1) / letter_in)) for label in labels]
    longest = max(len(part) for text in texts for part in text.split("\n"))
    room_in = longest * letter_in + mark_in
    columns = max(1, min(len(texts), int((width_in - 0.1) / room_in)))
    rows = -(-sum(text.count("\n") + 1 for text in texts) // columns)
    figure.set_figheight(figure.get_figheight() + 0.13 * max(rows - 1, 0))
    figure.legend(
        handles,
        texts,
        loc="outside lower center",
        ncols=columns,
        fontsize=6.5,
        handlelength=2.8 if lines else 1.0,
        columnspacing=1.0,
    )


def say(axes: Axes, text: str) -> None:
    """Words in the middle of a picture that would be empty otherwise."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=8,
        color="#444444", bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )  # fmt: skip
