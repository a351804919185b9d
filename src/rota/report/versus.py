"""Static figures that compare policies: waits by reason, ratios to the baseline."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from rota.core.eventlog import Floats
from rota.metrics.vocabulary import alike
from rota.report import canvas, style
from rota.report.canvas import Picture
from rota.report.names import short_names

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
    told = "one run: no winner is marked" if one else "filled: the interval excludes 1"
    axes.set_xlabel(f"ratio to the baseline ({told})")
    return low, high
