"""Static figures of publication size, drawn with matplotlib (the extra `plot`).

Each function takes the table (or tables by policy) that the function of `data` or `lanes` with the
same subject returns, and returns a figure. `save` writes it; the same data give the same bytes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from rota.report import canvas, style
from rota.report.arrange import by_tenant, lane_rows, main_tenants
from rota.report.canvas import FORMATS, SETTINGS, Picture, as_bytes, save, settle
from rota.report.heat import heat_map
from rota.report.names import short_names
from rota.report.versus import delay_figure, ratio_figure

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
