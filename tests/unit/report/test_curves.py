"""Curves over levels and loads."""

import polars as pl

from rota.notebook import curves as lab_curves
from rota.notebook.experiment import _interval
from rota.report.figures import curve_figure
from rota.report.verdict import ratio_text

LEVELS = ["zero", "pollux30", "custom:start_s=300"]


def test_costs_are_named_in_full_and_the_last_point_is_inside():
    mean = [3_600.0, 7_200.0, 90_000.0]
    table = pl.DataFrame(
        {"policy": ["las"] * 3, "level": LEVELS, "place": [0.0, 1.0, 2.0], "mean": mean,
         "least": mean, "most": mean}
    )  # fmt: skip
    (axes,) = curve_figure(table, measure="mean JCT", unit="s", axis="costs").axes

    assert [label.get_text() for label in axes.get_xticklabels()] == LEVELS
    assert axes.get_ylim()[1] > 25.0


def test_keys_that_the_axis_names_are_left_out():
    table = pl.DataFrame(
        {"policy": ["las"] * 2, "level": ["cv=0", "cv=1"], "place": [0.0, 1.0],
         "mean": [1.0, 2.0], "least": [1.0, 2.0], "most": [1.0, 2.0]}
    )  # fmt: skip
    (axes,) = curve_figure(table, measure="JCT", unit="s", axis="error (cv)").axes

    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1"]


def test_lines_of_a_plot_differ_in_colour_dash_and_marker():
    curve = pl.DataFrame(
        {"load": [1.0, 2.0], "avg_jct_s": [60.0, 90.0], "low": [50.0, 10.0],
         "high": [70.0, 900.0], "runs": [3, 3]}
    )  # fmt: skip
    figure = lab_curves.draw({"a": curve, "b": curve}, "load", "avg_jct_s", "policy")
    first, second = figure.axes[0].get_lines()

    assert first.get_marker() != second.get_marker()
    assert first.get_linestyle() != second.get_linestyle()
    assert figure.axes[0].get_title(loc="right") == "an interval reaches beyond the picture"


def test_intervals_of_positive_numbers_stay_positive():
    low, high = _interval([1.0, 10.0, 100.0], 37.0)

    assert 0 < low < 37.0 < high
    assert _interval([-1.0, 1.0], 0.0)[0] < 0
    assert _interval([5.0], 5.0) == (None, None)


def test_ratios_side_by_side_keep_their_zeros():
    assert [ratio_text(value) for value in (0.63, 1, 12.34, 0.0, 0.00021)] == [
        "0.630", "1.000", "12.3", "0.000", "0.00021",
    ]  # fmt: skip
