"""Heat maps of nodes over time, as static figures."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl

from rota.core.eventlog import Floats
from rota.report import canvas, style
from rota.report.canvas import Picture

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
