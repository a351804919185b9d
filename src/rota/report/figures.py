"""Static figures of publication size, drawn with matplotlib (the extra `plot`).

Each function takes the table (or tables by policy) that the function of `data` or `lanes` with the
same subject returns, and returns a figure. `save` writes it; the same data give the same bytes.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rota.core.errors import OptionError
from rota.report import style
from rota.report.arrange import by_tenant, lane_rows, main_tenants
from rota.report.words import duration

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
RATIO_TICKS = [round(step * 10.0**power, 6) for power in range(-4, 5) for step in (1, 2, 5)]
FINE_TICKS = [0.7, 0.8, 0.9, 1.1, 1.2, 1.5]
FINE_RANGE = 6.0
TITLES = {"jct_s": "job completion time", "wait_s": "waiting time"}


class Picture(Figure):
    """A figure that notebooks show without further ado."""

    def _repr_png_(self) -> bytes:
        return as_bytes(self, "png")


def _styled(draw: Callable[P, Picture]) -> Callable[P, Picture]:
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
    content = as_bytes(figure, target.suffix.removeprefix(".").lower())
    part = target.with_name(target.name + ".part")
    part.write_bytes(content)
    part.replace(target)
    return target


# --- distributions -------------------------------------------------------------------------------


@_styled
def cdf_figure(
    curves: Mapping[str, pl.DataFrame], column: str = "jct_s", width_in: float = style.SINGLE_IN
) -> Picture:
    """Distribution functions with a logarithmic axis of time; `curves`: of `cdf` by policy."""
    figure = Picture(figsize=(width_in, 2.4))
    axes = figure.add_subplot()
    longest_s = 10.0
    for number, names, curve in style.coinciding(curves):
        if curve.height:
            times = np.maximum(curve[column].to_numpy(), 1.0)
            longest_s = max(longest_s, float(times[-1]))
            axes.step(
                np.append(1.0, times),
                np.append(0.0, curve["share"].to_numpy()),
                where="post",
                label=style.legend(names),
                **_line(number),
            )
    axes.set_xscale("log")
    axes.set_xlim(1.0, longest_s * 1.2)
    ticks = style.log_ticks(1.0, longest_s * 1.2)
    labels = [label for _, label in ticks]
    if column == "wait_s":
        labels[0] = "\u2264 1 s"
    axes.set_xticks([at for at, _ in ticks], labels)
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.02)
    _percents(axes.yaxis)
    axes.set_xlabel(TITLES[column])
    axes.set_ylabel("completed jobs")
    _legend_above(figure, axes, width_in)
    return figure


# --- over time -----------------------------------------------------------------------------------


@_styled
def utilisation_figure(
    series: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN
) -> Picture:
    """GPUs by use over time, a panel per policy; `series`: of `utilisation`."""
    figure, panels = _panels(list(series), width_in, 0.95)
    _time_axis(panels[-1], series.values())
    for axes, table in zip(panels, series.values(), strict=True):
        time_s = table["time_s"].to_numpy() - _origin(table)
        useful, allocated = table["useful"].to_numpy(), table["allocated"].to_numpy()
        shade: dict[str, Any] = {"step": "post", "linewidth": 0}
        axes.fill_between(time_s, useful, color=style.USEFUL, label="useful", **shade)
        axes.fill_between(
            time_s, useful, allocated, color=style.OVERHEAD, label="overhead", **shade
        )
        axes.step(
            time_s, table["capacity"].to_numpy(), where="post", color="#222222", linewidth=0.8,
            label="up",
        )  # fmt: skip
        axes.set_ylim(0, _top(table["capacity"], 1.0) * 1.05)
        axes.set_ylabel("GPUs")
    _legend_above(figure, panels[0], width_in)
    return figure


@_styled
def queue_figure(series: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN) -> Picture:
    """Waiting and running jobs over time; `series`: of `queue` by policy."""
    figure, panels = _panels(["waiting", "running"], width_in, 1.25)
    _time_axis(panels[-1], series.values())
    for axes, column in zip(panels, ("waiting", "running"), strict=True):
        curves = {
            name: table.select(pl.col("time_s") - _origin(table), column)
            for name, table in series.items()
        }
        for number, names, curve in style.coinciding(curves):
            axes.step(
                curve["time_s"].to_numpy(),
                curve[column].to_numpy(),
                where="post",
                label=style.legend(names),
                **_line(number),
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel("jobs")
    _legend_above(figure, panels[0], width_in)
    return figure


@_styled
def tenants_figure(
    shares: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN
) -> Picture:
    """Shares of tenants over time, a panel per policy; `shares`: of `tenant_shares`."""
    figure, panels = _panels(list(shares), width_in, 0.95)
    kept = main_tenants(shares.values())
    _time_axis(panels[-1], [table.select(time_s="until_s") for table in shares.values()], 0.0)
    for axes, table in zip(panels, shares.values(), strict=True):
        wide = by_tenant(table, kept)
        time_s = wide["from_s"].to_numpy() - _start(table)
        axes.stackplot(
            time_s,
            [wide[name].to_numpy() for name in wide.columns[1:]],
            labels=[style.legend([name]) for name in wide.columns[1:]],
            colors=[*style.COLOURS, "#ddddaa", "#bbbbbb"][: len(wide.columns) - 1],
            linewidth=0,
        )
        axes.set_ylim(0, 1)
        _percents(axes.yaxis)
        axes.set_ylabel("GPUs")
    _legend_above(figure, panels[0], width_in)
    return figure


# --- on GPUs -------------------------------------------------------------------------------------


@_styled
def heat_figure(heat: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN) -> Picture:
    """How full every node was over time, a panel per policy; `heat`: of `node_heat`."""
    figure, panels = _panels(list(heat), width_in, 1.15)
    _time_axis(panels[-1], [table.select(time_s="until_s") for table in heat.values()], 0.0)
    image = None
    colours = mpl.colormaps["cividis"].with_extremes(bad=style.DOWN)
    for axes, table in zip(panels, heat.values(), strict=True):
        nodes = table["node"].unique(maintain_order=True).to_list()
        share = table["share"].to_numpy().reshape(len(nodes), -1)
        down = table["down"].to_numpy().reshape(len(nodes), -1)
        end_s = _top(table["until_s"]) - _start(table)
        image = axes.imshow(
            np.where(down > 0.5, np.nan, share),  # noqa: PLR2004 - most of the bin
            aspect="auto", interpolation="nearest", cmap=colours, vmin=0, vmax=1,
            extent=(0.0, end_s, len(nodes), 0.0),
        )  # fmt: skip
        _node_ticks(axes, nodes, [float(i) for i in range(len(nodes) + 1)], 6)
        axes.grid(visible=False)
    if image is not None:
        bar = figure.colorbar(image, ax=panels, shrink=0.8, pad=0.02, aspect=30)
        bar.set_label("GPUs of the node in use (red: down)")
        _percents(bar.ax.yaxis)
    return figure


@_styled
def gantt_figure(bars: pl.DataFrame, width_in: float = style.DOUBLE_IN) -> Picture:
    """Jobs on GPUs; `bars`: of `gantt`. Bars are an image inside the file, texts are not."""
    from matplotlib.collections import PolyCollection

    rows = lane_rows(bars)
    edges = [*rows["first"].to_list(), _top(rows["first"] + rows["rows"], 1.0)]
    lanes = edges[-1]
    figure = Picture(figsize=(width_in, min(max(1.0 + 0.04 * lanes, 1.8), 4.8)))
    axes = figure.add_subplot()
    origin = -_top(-bars["start_s"])
    placed = bars.join(rows, on="node", how="left")
    left = placed["start_s"].to_numpy() - origin
    right = placed["end_s"].to_numpy() - origin
    top = (placed["first"] + placed["lane"]).to_numpy()
    bottom = top + placed["lanes"].to_numpy()
    corners = np.stack([left, top, left, bottom, right, bottom, right, top], axis=1)
    palette = np.array([*style.COLOURS[:6], "#222222"])
    colour = np.where(placed["kind"] == "overhead", 6, placed["job"].to_numpy() % 6)
    axes.add_collection(
        PolyCollection(
            list(corners.reshape(-1, 4, 2)), facecolors=palette[colour].tolist(), linewidths=0,
            rasterized=True,
        )
    )  # fmt: skip
    end_s = float(right.max()) if len(right) else 1.0
    axes.set_ylim(lanes, 0.0)
    _node_ticks(axes, rows["node"].to_list(), edges)
    axes.hlines(edges[1:-1], 0, end_s, color="#bbbbbb", linewidth=0.3)
    axes.grid(visible=False)
    _time_axis(axes, [pl.DataFrame({"time_s": [0.0, end_s]})], 0.0)
    return figure


# --- comparisons ---------------------------------------------------------------------------------


@_styled
def delay_figure(parts: pl.DataFrame, width_in: float = style.SINGLE_IN) -> Picture:
    """Mean wait by reason, a bar per policy; `parts`: of `delay_parts`."""
    policies = parts["policy"].unique(maintain_order=True).to_list()
    figure = Picture(figsize=(width_in, 0.9 + 0.24 * len(policies)))
    axes = figure.add_subplot()
    sums = parts.group_by("policy").agg(pl.col("wait_s").sum())
    largest_s = _top(sums["wait_s"], 1.0)
    left = np.zeros(len(policies))
    for reason, colour in style.REASON_COLOURS.items():
        waits = parts.filter(pl.col("reason") == reason)["wait_s"].to_numpy()
        if len(waits) == len(policies) and waits.any():
            axes.barh(policies, waits, left=left, color=colour, label=reason, height=0.7)
            left = left + waits
    for y, total in enumerate(left):
        axes.annotate(
            duration(float(total)), (float(total), y), xytext=(3, 0), textcoords="offset points",
            va="center", fontsize=6.5,
        )  # fmt: skip
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    times, labels, unit = style.time_ticks(largest_s * 1.15)
    axes.set_xlim(0, largest_s * 1.18)
    axes.set_xticks(times, labels)
    axes.set_xlabel(f"mean wait of completed jobs ({unit})")
    _legend_above(figure, axes, width_in)
    return figure


@_styled
def ratio_figure(ratios: pl.DataFrame, width_in: float = style.SINGLE_IN) -> Picture:
    """Ratios to the baseline with their intervals around 1.

    `ratios`: a row per measure and policy: `measure`, `policy`, `ratio`, `low`, `high`, `clear`.
    """
    measures = ratios["measure"].unique(maintain_order=True).to_list()
    policies = ratios["policy"].unique(maintain_order=True).to_list()
    figure = Picture(figsize=(width_in, 0.8 + len(measures) * (0.1 + 0.075 * len(policies))))
    axes = figure.add_subplot()
    axes.axvline(1.0, color="#222222", linewidth=0.8)
    for number, policy in enumerate(policies):
        mine = ratios.filter(pl.col("policy") == policy).with_columns(
            low=pl.coalesce("low", "ratio"), high=pl.coalesce("high", "ratio")
        )
        offset = (number + 1) / (len(policies) + 1) - 0.5
        y = np.array([measures.index(name) for name in mine["measure"]]) + offset
        ratio = mine["ratio"].to_numpy()
        colour = style.COLOURS[(number + 1) % len(style.COLOURS)]  # the baseline has the first
        axes.hlines(y, mine["low"].to_numpy(), mine["high"].to_numpy(), color=colour, linewidth=1)
        clear = mine["clear"].to_numpy()
        axes.plot(
            ratio,
            y,
            "o",
            color=colour,
            markersize=2.8,
            markerfacecolor="white",
            label=style.legend([policy]),
        )
        axes.plot(ratio[clear], y[clear], "o", color=colour, markersize=2.8)
    _ratio_axis(axes, ratios)
    axes.set_yticks(range(len(measures)), measures)
    axes.set_ylim(len(measures) - 0.4, -0.6)
    _legend_above(figure, axes, width_in)
    return figure


def _ratio_axis(axes: Axes, ratios: pl.DataFrame) -> None:
    values = pl.concat([ratios["ratio"], ratios["low"], ratios["high"]]).drop_nulls().to_numpy()
    values = values[np.isfinite(values) & (values > 0)]
    low, high = np.min(values, initial=0.95) / 1.1, np.max(values, initial=1.05) * 1.1
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = sorted(RATIO_TICKS + (FINE_TICKS if high / low < FINE_RANGE else []))
    ticks = [at for at in ticks if low <= at <= high]
    every = -(-len(ticks) // 9)  # about nine of them, 1 among them
    shown = [at for i, at in enumerate(ticks) if (i - ticks.index(1.0)) % every == 0]
    axes.set_xticks(shown, [f"{at:g}" for at in shown])
    axes.minorticks_off()
    axes.set_xlabel("ratio to the baseline (filled: the interval excludes 1)")


# --- parts ---------------------------------------------------------------------------------------


def _line(number: int) -> dict[str, Any]:
    dash = style.DASHES[number % len(style.DASHES)]
    return {
        "color": style.COLOURS[number % len(style.COLOURS)],
        "linestyle": (0, dash) if dash else "solid",
    }


def _panels(titles: list[str], width_in: float, height_in: float) -> tuple[Picture, list[Axes]]:
    count = max(len(titles), 1)
    figure = Picture(figsize=(width_in, 0.7 + height_in * count))
    grid = figure.subplots(count, 1, sharex=True, squeeze=False)
    panels: list[Axes] = list(grid[:, 0])
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title(title, loc="left", pad=2, fontsize=7)
    return figure, panels


def _top(values: pl.Series, least: float | None = None) -> float:
    """The largest value, or the least that it shall be."""
    if not len(values):
        return least or 0.0
    largest = float(np.max(values.to_numpy()))
    return largest if least is None else max(largest, least)


def _origin(table: pl.DataFrame) -> float:
    return float(table["time_s"][0]) if table.height else 0.0


def _start(table: pl.DataFrame) -> float:
    return -_top(-table["from_s"])


def _time_axis(axes: Axes, tables: Any, origin_s: float | None = None) -> None:
    ends = [
        _top(table["time_s"]) - (_origin(table) if origin_s is None else origin_s)
        for table in tables
    ]
    end_s = max([*ends, 1.0])
    times, labels, unit = style.time_ticks(end_s)
    axes.set_xlim(0, end_s)
    axes.set_xticks(times, labels)
    axes.set_xlabel(f"time since the first submission ({unit})")


def _node_ticks(axes: Axes, nodes: list[str], edges: list[float], most: int = 12) -> None:
    """Names of some nodes, at the middle of their rows."""
    every = max(1, -(-len(nodes) // most))
    shown = range(0, len(nodes), every)
    axes.set_yticks([(edges[i] + edges[i + 1]) / 2 for i in shown], [nodes[i] for i in shown])
    axes.tick_params(axis="y", length=0)


def _percents(axis: Any) -> None:
    axis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0, symbol=" %"))


def _legend_above(figure: Figure, axes: Axes, width_in: float) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    line = any(hasattr(handle, "get_linestyle") for handle in handles)
    letter_in = 0.058
    longest_in = max(map(len, labels)) * letter_in + (0.5 if line else 0.3)
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=max(1, min(len(labels), int((width_in - 0.2) / longest_in))),
        fontsize=6.5,
        handlelength=2.8 if line else 1.0,
        columnspacing=1.0,
    )
