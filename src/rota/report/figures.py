"""Static figures of publication size, drawn with matplotlib (the extra `plot`).

Each function takes the table (or tables by policy) that the function of `data` or `lanes` with the
same subject returns, and returns a figure. `save` writes it; the same data give the same bytes.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from rota.core.eventlog import Floats
from rota.metrics.vocabulary import alike
from rota.report import canvas, style
from rota.report.canvas import FORMATS, SETTINGS, Picture, as_bytes, save, settle
from rota.report.style import by_tenant, lane_rows, main_tenants, short_names

__all__ = [
    "FORMATS",
    "SETTINGS",
    "Picture",
    "as_bytes",
    "cdf_figure",
    "delay_figure",
    "fragments_figure",
    "gantt_figure",
    "heat_figure",
    "queue_figure",
    "ratio_figure",
    "save",
    "settle",
    "tenants_figure",
    "utilisation_figure",
]
TITLES = {"jct_s": "job completion time", "wait_s": "waiting time"}


# --- distributions -------------------------------------------------------------------------------


@canvas.styled
def cdf_figure(
    curves: Mapping[str, pl.DataFrame], column: str = "jct_s", width_in: float = style.SINGLE_IN
) -> Picture:
    """Distribution functions with a logarithmic axis of time; `curves`: of `cdf` by policy."""
    figure = Picture(figsize=(width_in, 2.4))
    axes = figure.add_subplot()
    longest_s = 10.0
    short = short_names(list(curves))
    for number, names, curve in style.coinciding(curves):
        if curve.height:
            times = np.maximum(curve[column].to_numpy(), 1.0)
            longest_s = max(longest_s, float(times[-1]))
            axes.step(
                np.append(1.0, times),
                np.append(0.0, curve["share"].to_numpy()),
                where="post",
                label=style.legend([short[name] for name in names]),
                **canvas.line(number),
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
    canvas.percents(axes.yaxis)
    axes.set_xlabel(TITLES[column])
    axes.set_ylabel("completed jobs")
    if column == "wait_s" and not any(canvas.top(curve[column], 0.0) for curve in curves.values()):
        canvas.say(axes, "nobody waited")
    canvas.legend_below(figure, axes, width_in)
    return figure


# --- over time -----------------------------------------------------------------------------------


@canvas.styled
def utilisation_figure(
    series: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN
) -> Picture:
    """GPUs by use over time, a panel per policy; `series`: of `utilisation`."""
    figure, panels = canvas.panels(list(series), width_in, 0.95)
    canvas.time_axis(panels[-1], series.values())
    for axes, table in zip(panels, series.values(), strict=True):
        time_s = table["time_s"].to_numpy() - canvas.origin(table)
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
        axes.set_ylim(0, canvas.top(table["capacity"], 1.0) * 1.05)
        axes.set_ylabel("GPUs")
    canvas.legend_below(figure, panels[0], width_in)
    return figure


@canvas.styled
def queue_figure(series: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN) -> Picture:
    """Waiting and running jobs over time; `series`: of `queue` by policy."""
    figure, panels = canvas.panels(["waiting", "running"], width_in, 1.25)
    short = short_names(list(series))
    canvas.time_axis(panels[-1], series.values())
    for axes, column in zip(panels, ("waiting", "running"), strict=True):
        curves = {
            name: table.select(pl.col("time_s") - canvas.origin(table), column)
            for name, table in series.items()
        }
        for number, names, curve in style.coinciding(curves):
            axes.step(
                curve["time_s"].to_numpy(),
                curve[column].to_numpy(),
                where="post",
                label=style.legend([short[name] for name in names]),
                **canvas.line(number),
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel("jobs")
    canvas.legend_below(figure, panels[0], width_in)
    return figure


@canvas.styled
def tenants_figure(
    shares: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN
) -> Picture:
    """Shares of tenants over time, a panel per policy; `shares`: of `tenant_shares`."""
    figure, panels = canvas.panels(list(shares), width_in, 0.95)
    kept = main_tenants(shares.values())
    canvas.time_axis(panels[-1], [table.select(time_s="until_s") for table in shares.values()], 0.0)
    for axes, table in zip(panels, shares.values(), strict=True):
        wide = by_tenant(table, kept)
        time_s = wide["from_s"].to_numpy() - canvas.start(table)
        axes.stackplot(
            time_s,
            [wide[name].to_numpy() for name in wide.columns[1:]],
            labels=[style.legend([name]) for name in wide.columns[1:]],
            colors=[*style.COLOURS, "#ddddaa", "#bbbbbb"][: len(wide.columns) - 1],
            linewidth=0,
        )
        axes.set_ylim(0, 1)
        canvas.percents(axes.yaxis)
        axes.set_ylabel("GPUs")
    canvas.legend_below(figure, panels[0], width_in)
    return figure


# --- on GPUs -------------------------------------------------------------------------------------


@canvas.styled
def heat_figure(heat: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN) -> Picture:
    """How full every node was over time, a panel per policy; `heat`: of `node_heat`."""
    return heat_map(heat, width_in, "GPUs of the node in use (red: down)")


@canvas.styled
def fragments_figure(
    heat: Mapping[str, pl.DataFrame], width_in: float = style.SINGLE_IN
) -> Picture:
    """How much of every node was a fragment, a panel per policy; `heat`: of `fragment_heat`."""
    label = "fragments, share of\nthe node (red: down)"
    return heat_map(heat, width_in, label, style.LEAST_SHARE)


@canvas.styled
def gantt_figure(
    bars: pl.DataFrame, width_in: float = style.DOUBLE_IN, down: pl.DataFrame | None = None
) -> Picture:
    """Jobs on GPUs; `bars`: of `gantt`, `down`: of `node_outages`.

    Bars are an image inside the file, texts are not.
    """
    rows = lane_rows(bars)
    edges = [*rows["first"].to_list(), canvas.top(rows["first"] + rows["rows"], 1.0)]
    lanes = edges[-1]
    figure = Picture(figsize=(width_in, min(max(1.0 + 0.04 * lanes, 1.8), 4.8)))
    axes = figure.add_subplot()
    origin = -canvas.top(-bars["start_s"])
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
    if down is not None:
        _hatch(axes, down.join(rows, on="node"), origin)
    axes.set_ylim(lanes, 0.0)
    canvas.node_ticks(axes, rows["node"].to_list(), edges)
    axes.hlines(edges[1:-1], 0, end_s, color="#bbbbbb", linewidth=0.3)
    axes.grid(visible=False)
    canvas.time_axis(axes, [pl.DataFrame({"time_s": [0.0, end_s]})], 0.0)
    return figure


def _hatch(axes: Axes, down: pl.DataFrame, origin_s: float) -> None:
    """The outages of nodes, with `first` and `rows` where they are drawn."""
    left, right = (down[end].to_numpy() - origin_s for end in ("from_s", "until_s"))
    top, bottom = down["first"].to_numpy(), (down["first"] + down["rows"]).to_numpy()
    corners = np.stack([left, top, left, bottom, right, bottom, right, top], axis=1)
    axes.add_collection(
        PolyCollection(
            list(corners.reshape(-1, 4, 2)), facecolors="#e2e2e2", edgecolors="#888888",
            hatch="//////", linewidths=0, zorder=0.5, rasterized=True,
        )
    )  # fmt: skip


# --- Heat maps of nodes over time -----------------------------------------------------------------

MOST_ROWS = 240  # more cannot be seen: they are drawn as means over neighbours
_MOST_OF_THE_BIN = 0.5


def heat_map(
    heat: Mapping[str, pl.DataFrame], width_in: float, label: str, least: float = 1.0
) -> Picture:
    """A panel per policy; the brightest colour is the largest share, or `least` if that is more."""
    nodes = {
        name: table["node"].unique(maintain_order=True).to_list() for name, table in heat.items()
    }
    rows = {name: _rows(table, len(nodes[name])) for name, table in heat.items()}
    most = max(map(len, nodes.values()), default=0)
    top = max([least, *(float(each.max()) for each in rows.values() if each.count())])
    figure, panels = canvas.panels(list(heat), width_in, min(1.15 + most / 1_000, 2.2))
    canvas.time_axis(panels[-1], [table.select(time_s="until_s") for table in heat.values()], 0.0)
    image = None
    colours = mpl.colormaps["cividis"].with_extremes(bad=style.DOWN)
    for axes, (name, table) in zip(panels, heat.items(), strict=True):
        names = nodes[name]
        end_s = canvas.top(table["until_s"]) - canvas.start(table)
        image = axes.imshow(
            rows[name], aspect="auto", interpolation="nearest", cmap=colours,
            vmin=0, vmax=top, extent=(0.0, end_s, len(names), 0.0),
        )  # fmt: skip
        canvas.node_ticks(axes, names, [float(i) for i in range(len(names) + 1)], 6)
        axes.grid(visible=False)
    if image is not None:
        bar = figure.colorbar(image, ax=panels, shrink=0.8, pad=0.02, aspect=30)
        bar.set_label(label)
        canvas.percents(bar.ax.yaxis)
    return figure


def _rows(table: pl.DataFrame, nodes: int) -> Any:
    """Shares by row and bin, masked where nodes were down; neighbours together if there are many.

    All rows stand for about as many nodes.
    """
    share = table["share"].to_numpy().reshape(nodes, -1)
    down = table["down"].to_numpy().reshape(nodes, -1)
    if nodes > MOST_ROWS:
        first = np.unique(np.linspace(0, nodes, MOST_ROWS, endpoint=False).astype(np.int64))
        count = np.diff(first, append=nodes)[:, None]
        up: Floats = np.maximum(np.add.reduceat(1.0 - down, first), 1e-9)
        share = np.add.reduceat(share * (1.0 - down), first) / up
        down = np.add.reduceat(down, first) / count
    return np.ma.masked_where(down > _MOST_OF_THE_BIN, share)


# --- Comparisons of policies ----------------------------------------------------------------------

RATIO_TICKS = [round(step * 10.0**power, 6) for power in range(-4, 5) for step in (1, 2, 5)]
FINE_TICKS = [0.7, 0.8, 0.9, 1.1, 1.2, 1.5]
FINE_RANGE = 6.0


@canvas.styled
def delay_figure(parts: pl.DataFrame, width_in: float = style.SINGLE_IN) -> Picture:
    """Mean wait by reason, a bar per policy; `parts`: of `delay_parts`."""
    policies = parts["policy"].unique(maintain_order=True).to_list()
    short = short_names(policies)
    figure = Picture(figsize=(width_in, 0.9 + 0.24 * len(policies)))
    axes = figure.add_subplot()
    places = np.arange(len(policies))
    left = np.zeros(len(policies))
    for reason, colour in style.REASON_COLOURS.items():
        waits = parts.filter(pl.col("reason") == reason)["wait_s"].to_numpy()
        if len(waits) == len(policies) and waits.any():
            axes.barh(places, waits, left=left, color=colour, label=reason, height=0.7)
            left = left + waits
    for y, (total, text) in enumerate(zip(left, alike(left.tolist(), "s"), strict=True)):
        axes.annotate(
            text, (float(total), y), xytext=(3, 0), textcoords="offset points", va="center",
            fontsize=6.5,
        )  # fmt: skip
    axes.set_yticks(places, [short[policy] for policy in policies])
    axes.set_ylim(len(policies) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    largest_s = float(np.max(left, initial=0.0)) or 1.0
    times, labels = style.time_ticks(largest_s * 1.15)
    axes.set_xlim(0, largest_s * 1.18)
    axes.set_xticks(times, labels)
    axes.set_xlabel("mean wait of completed jobs")
    if not left.any():
        canvas.say(axes, "nobody waited")
    canvas.legend_below(figure, axes, width_in)
    return figure


@canvas.styled
def ratio_figure(ratios: pl.DataFrame, width_in: float = style.SINGLE_IN) -> Picture:
    """Ratios to the baseline with their intervals around 1.

    What reaches out of the picture (an interval from 0 on, a ratio of 0) ends in an arrow.

    `ratios`: a row per measure and policy: `measure`, `policy`, `ratio`, `low`, `high`, `clear`.
    """
    measures = ratios["measure"].unique(maintain_order=True).to_list()
    policies = ratios["policy"].unique(maintain_order=True).to_list()
    short = short_names(policies)
    figure = Picture(figsize=(width_in, 0.8 + len(measures) * (0.1 + 0.075 * len(policies))))
    axes = figure.add_subplot()
    axes.axvline(1.0, color="#222222", linewidth=0.8)
    limits = _ratio_axis(axes, ratios)
    for number, policy in enumerate(policies):
        mine = ratios.filter(pl.col("policy") == policy)
        offset = (number + 1) / (len(policies) + 1) - 0.5
        y = np.array([measures.index(name) for name in mine["measure"]]) + offset
        _ratios_of(axes, mine, y, number + 1, limits)  # the baseline has the first colour
        axes.plot(
            [], [], style.marker(number + 1), color=style.colour(number + 1), markersize=3,
            markerfacecolor="white", label=style.legend([short[policy]]),
        )  # fmt: skip
    axes.set_yticks(range(len(measures)), measures)
    axes.set_ylim(len(measures) - 0.4, -0.6)
    canvas.legend_below(figure, axes, width_in)
    return figure


def _ratios_of(
    axes: Axes, mine: pl.DataFrame, y: Floats, number: int, limits: tuple[float, float]
) -> None:
    """The points and intervals of a policy."""
    colour, marker = style.colour(number), style.marker(number)
    ratio, clear = mine["ratio"].to_numpy(), mine["clear"].to_numpy()
    low, high = (
        mine.select(pl.coalesce(end, "ratio")).to_series().to_numpy() for end in ("low", "high")
    )
    axes.hlines(y, np.maximum(low, limits[0]), np.minimum(high, limits[1]), color=colour, lw=1)
    for out, edge, arrow in ((low < limits[0], limits[0], "<"), (high > limits[1], limits[1], ">")):
        if out.any():  # a line without points that is not clipped would upset the layout
            axes.plot(
                np.full(int(out.sum()), edge), y[out], arrow, color=colour, markersize=3.4,
                clip_on=False,
            )  # fmt: skip
    inside = (ratio >= limits[0]) & (ratio <= limits[1])
    for chosen, fill in ((inside & ~clear, "white"), (inside & clear, colour)):
        axes.plot(
            ratio[chosen], y[chosen], marker, color=colour, markersize=2.8, markerfacecolor=fill
        )


def _ratio_axis(axes: Axes, ratios: pl.DataFrame) -> tuple[float, float]:
    values = pl.concat([ratios["ratio"], ratios["low"], ratios["high"]]).drop_nulls().to_numpy()
    values = values[np.isfinite(values) & (values > 0)]
    low = float(np.min(values, initial=0.95)) / 1.1
    high = float(np.max(values, initial=1.05)) * 1.1
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = sorted(RATIO_TICKS + (FINE_TICKS if high / low < FINE_RANGE else []))
    ticks = [at for at in ticks if low <= at <= high]
    every = -(-len(ticks) // 9)  # about nine of them, 1 among them
    shown = [at for i, at in enumerate(ticks) if (i - ticks.index(1.0)) % every == 0]
    axes.set_xticks(shown, [f"{at:g}" for at in shown])
    axes.minorticks_off()
    one = "verdict" in ratios.columns and ratios["verdict"].null_count() == ratios.height
    meaning = "one run: no winner is marked" if one else "filled: the interval excludes 1"
    axes.set_xlabel(f"ratio to the baseline ({meaning})")
    return low, high


# --- A measure by level, a line per policy --------------------------------------------------------

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
