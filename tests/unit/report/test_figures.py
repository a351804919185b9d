"""Static figures: there is something on them, and it is the same every time."""

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rota.core.errors import OptionError
from rota.report import data, figures, lanes, style
from rota.report.source import read_source
from rota.report.write import count, pictures

WHITE = 255


def ink(figure):
    """Return the share of pixels that are not white, and how many colours there are."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3].reshape(-1, 3)
    return (pixels != WHITE).any(axis=1).mean(), len(np.unique(pixels, axis=0))


def test_no_figure_is_empty(folder):
    source = read_source(folder)
    found = dict(pictures(source))

    assert set(found) == {
        "cdf-jct", "cdf-wait", "utilisation", "queue", "tenants", "heat", "fragments", "gantt-run0",
        "gantt-run1", "delay", "ratios",
    }  # fmt: skip
    assert len(found) == count(source)
    for name, figure in found.items():
        share, colours = ink(figure)
        assert share > 0.02, name
        assert colours > 5, name
        assert figure.get_figwidth() in (style.SINGLE_IN, style.DOUBLE_IN), name


def test_a_curve_per_policy_and_coinciding_ones_are_said_to_coincide(run_of):
    same, other = data.cdf(run_of("fifo").jobs), data.cdf(run_of().jobs)
    figure = figures.cdf_figure({"fifo": same, "las": other, "fifo again": same})
    lines = figure.axes[0].get_lines()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]

    assert len(lines) == 2
    assert labels == ["fifo = fifo again (coincide)", "las"]
    assert len({line.get_color() for line in lines}) == 2
    assert len({line.get_linestyle() for line in lines}) == 2


def test_waits_of_nothing_are_on_the_logarithmic_axis():
    waits = pl.DataFrame({"wait_s": [0.0, 5_000.0], "share": [0.5, 1.0]})
    axes = figures.cdf_figure({"fifo": waits}, "wait_s").axes[0]

    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()][:2] == ["\u2264 1 s", "10 s"]
    assert axes.get_lines()[0].get_ydata().tolist() == [0.0, 0.5, 1.0]


def test_a_bar_per_policy_with_its_parts(run_of):
    parts = data.delay_parts({"fifo": run_of("fifo").summary, "las": run_of().summary})
    axes = figures.delay_figure(parts).axes[0]
    width = sum(patch.get_width() for patch in axes.patches)

    assert width == pytest.approx(parts["wait_s"].sum())


def test_many_curves_differ():
    waits = {f"p{i}": pl.DataFrame({"jct_s": [10.0 + i], "share": [1.0]}) for i in range(24)}
    figure = figures.cdf_figure(waits)
    looks = {(line.get_color(), str(line._dash_pattern)) for line in figure.axes[0].get_lines()}

    assert len(looks) == 24
    assert figure.get_figheight() > 2.6
    assert len({(style.colour(i), style.marker(i)) for i in range(24)}) == 24


def test_where_nobody_waits_it_is_said():
    parts = pl.DataFrame(
        {"policy": ["fifo", "las"], "reason": ["order", "order"], "wait_s": [0.0, 0.0]}
    )
    bars = figures.delay_figure(parts).axes[0]
    nothing = pl.DataFrame({"wait_s": [0.0], "share": [1.0]})
    curve = figures.cdf_figure({"fifo": nothing}, "wait_s").axes[0]

    assert [label.get_text() for label in bars.get_yticklabels()] == ["fifo", "las"]
    assert "nobody waited" in [text.get_text() for text in bars.texts]
    assert [text.get_text() for text in curve.texts] == ["nobody waited"]


def test_what_reaches_out_of_the_picture_of_ratios_has_an_arrow():
    table = pl.DataFrame({
        "measure": ["a", "b"], "policy": ["las", "las"], "ratio": [0.5, 0.0], "low": [0.0, None],
        "high": [0.9, None], "clear": [False, False], "verdict": [None, None],
    }, schema_overrides={"low": pl.Float64, "verdict": pl.String})  # fmt: skip
    axes = figures.ratio_figure(table).axes[0]
    arrows = [line for line in axes.get_lines() if line.get_marker() == "<"]

    assert [len(line.get_xdata()) for line in arrows] == [2]
    assert axes.get_xlabel() == "ratio to the baseline (one run: no winner is marked)"


def table_of(shares, down):
    """Return a table of `node_heat`, from shares by node and bin."""
    nodes, bins = np.shape(shares)
    return pl.DataFrame({
        "node": [f"n{i}" for i in range(nodes) for _ in range(bins)],
        "from_s": np.tile(np.arange(bins, dtype=float), nodes),
        "until_s": np.tile(np.arange(bins, dtype=float) + 1, nodes),
        "share": np.ravel(shares), "down": np.ravel(down),
    })  # fmt: skip


def test_small_shares_of_fragments_are_bright():
    quiet = table_of([[0.0, 0.05], [0.02, 0.03]], np.zeros((2, 2)))
    loud = table_of([[0.0, 0.3], [0.0, 0.0]], [[0, 0], [0, 1]])
    tops = [
        figures.fragments_figure({"x": table}).axes[0].get_images()[0].get_clim()[1]
        for table in (quiet, loud)
    ]
    both = figures.fragments_figure({"x": quiet, "y": loud})
    images = [axes.get_images()[0] for axes in both.axes[:2]]

    assert tops == [style.LEAST_SHARE, 0.3]
    assert [image.get_clim() for image in images] == [(0, 0.3), (0, 0.3)]  # to be compared
    assert images[1].get_array().mask.tolist() == [[False, False], [False, True]]
    assert figures.heat_figure({"x": quiet}).axes[0].get_images()[0].get_clim() == (0, 1)


def test_more_nodes_than_can_be_seen_are_drawn_together():
    shares = np.repeat(np.arange(480) % 2, 3).reshape(480, 3).astype(float)
    down = np.zeros((480, 3))
    down[0] = down[2] = down[3] = 1.0
    axes = figures.heat_figure({"x": table_of(shares, down)}).axes[0]
    drawn = axes.get_images()[0].get_array()

    assert drawn.shape == (240, 3)
    assert drawn[0].tolist() == [1.0] * 3  # of the one that is up
    assert drawn.mask[:3, 0].tolist() == [False, True, False]
    assert drawn[2:].min() == drawn[2:].max() == 0.5
    assert axes.get_ylim() == (480, 0)


def test_a_gantt_chart_has_all_bars(run_of):
    bars = lanes.gantt(run_of().log)
    axes = figures.gantt_figure(bars).axes[0]

    assert len(axes.collections[0].get_paths()) == bars.height


def test_outages_are_hatched_below_the_jobs(run_of):
    log = run_of().log
    down = lanes.node_outages(log)
    axes = figures.gantt_figure(lanes.gantt(log), down=down).axes[0]
    bars, hatched = axes.collections[:2]

    assert len(hatched.get_paths()) == down.height > 0
    assert hatched.get_hatch()
    assert hatched.get_zorder() < bars.get_zorder()


@pytest.mark.parametrize("kind", figures.FORMATS)
def test_the_same_data_give_the_same_bytes(run_of, kind, tmp_path):
    curves = {"las": data.cdf(run_of().jobs)}
    first = figures.save(figures.cdf_figure(curves), tmp_path / f"a.{kind}").read_bytes()
    again = figures.as_bytes(figures.cdf_figure(curves), kind)

    assert first == again
    assert len(first) > 5_000
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{kind}"]


def test_fonts_are_embedded_and_no_date_is_inside(run_of):
    figure = figures.cdf_figure({"las": data.cdf(run_of().jobs)})
    content = figures.as_bytes(figure, "pdf")

    assert b"/FontFile2" in content  # TrueType
    assert b"CreationDate" not in content
    assert b"date" not in figures.as_bytes(figure, "svg").lower()


@pytest.mark.parametrize("name", ["$\\frac{", "<script>alert(1)</script>", "_hidden", "a\nb"])
def test_names_are_only_names(run_of, name):
    figure = figures.cdf_figure(
        {name: data.cdf(run_of().jobs), "las": data.cdf(run_of("fifo").jobs)}
    )
    content = figures.as_bytes(figure, "svg")

    assert b"<script" not in content
    assert len(figure.legends[0].get_texts()) == 2


def test_settings_of_others_stay_as_they_are(run_of):
    before = dict(mpl.rcParams)
    figures.as_bytes(figures.queue_figure({"las": data.queue(run_of().log)}), "png")

    assert dict(mpl.rcParams) == before


def test_an_unknown_kind_of_file_is_refused(run_of, tmp_path):
    figure = figures.cdf_figure({"las": data.cdf(run_of().jobs)})

    with pytest.raises(OptionError, match="kind 'gif': use svg, png, pdf"):
        figures.save(figure, tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_a_run_without_jobs_can_be_drawn(script):
    log = script.end()
    drawn = [
        figures.cdf_figure({"x": data.cdf(pl.DataFrame(schema=EMPTY))}),
        figures.utilisation_figure({"x": data.utilisation(log)}),
        figures.queue_figure({"x": data.queue(log)}),
        figures.tenants_figure({"x": data.tenant_shares(log)}),
        figures.heat_figure({"x": lanes.node_heat(log)}),
        figures.gantt_figure(lanes.gantt(log)),
    ]

    assert all(len(figures.as_bytes(figure, "png")) > 1_000 for figure in drawn)


EMPTY = {
    "job_id": pl.String, "submit_s": pl.Float64, "jct_s": pl.Float64, "wait_s": pl.Float64,
    "state": pl.String,
}  # fmt: skip


@pytest.mark.parametrize(
    ("until_s", "labels"),
    [
        (5, ["0", "1 s", "2 s", "3 s", "4 s", "5 s"]),
        (3_600, ["0", "10m", "20m", "30m", "40m", "50m", "1h"]),
        (30 * 86_400, ["0", "5d", "10d", "15d", "20d", "25d", "30d"]),
        (4e9, ["0", "7,717d", "15,434d", "23,151d", "30,868d", "38,585d"]),
    ],
)
def test_ticks_are_round_times(until_s, labels):
    assert style.time_ticks(until_s)[1] == labels
