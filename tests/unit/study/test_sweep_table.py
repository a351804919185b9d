"""The table of a sweep: columns, and means over the seeds."""

import polars as pl
import pytest

from rota.study.sweep.table import make_means, make_row, make_table

AXES = ["policy", "load", "seed"]


def row(policy, load, seed, jct_s):
    summary = {"avg_jct_s": jct_s, "jobs": 5, "states": {"done": 4}, "cpu_s": 1.5, "note": "text"}
    return make_row({"policy": policy, "load": load, "seed": seed}, summary, f"{policy}{seed}")


def test_columns_are_labels_then_numbers_then_the_key():
    table = make_table(AXES, [row("fifo", 1, 0, 10.0), row("srtf", None, 1, None)])
    assert table.columns == [*AXES, "avg_jct_s", "jobs", "states_done", "run"]
    assert table.dtypes == [
        pl.String, pl.Int64, pl.Int64, pl.Float64, pl.Int64, pl.Int64, pl.String
    ]  # fmt: skip
    assert table["avg_jct_s"].to_list() == [10.0, None]


def test_labels_of_several_kinds_become_texts():
    rows = [row(0.5, 1, 0, 1.0), row("cv=1", 2.5, 0, 1.0)]
    table = make_table(AXES, rows)
    assert table["policy"].to_list() == ["0.5", "cv=1"]
    assert table["load"].to_list() == [1.0, 2.5]


def test_an_empty_table_has_its_columns():
    assert make_table(AXES, []).columns == [*AXES, "run"]


def test_means_are_over_the_seeds_and_ratios_seed_by_seed():
    rows = [
        row("fifo", 1, 0, 10.0), row("fifo", 1, 1, 30.0),
        row("srtf", 1, 1, 15.0), row("srtf", 1, 0, 5.0), row("srtf", 2, 0, 5.0),
    ]  # fmt: skip
    means = make_means(AXES, rows, "fifo")
    assert [mean.labels for mean in means] == [
        {"policy": "fifo", "load": 1}, {"policy": "srtf", "load": 1}, {"policy": "srtf", "load": 2}
    ]  # fmt: skip
    assert [mean.values["avg_jct_s"] for mean in means] == [20.0, 10.0, 5.0]
    assert [mean.runs for mean in means] == [2, 2, 1]
    assert means[1].ratio.ratio == pytest.approx(0.5)
    assert means[0].ratio == (1.0, None, None)
    assert means[2].ratio.ratio is None  # the baseline has no such runs


def test_seeds_that_change_nothing_give_no_interval():
    rows = [row(policy, 1, seed, 10.0) for policy in ("fifo", "srtf") for seed in range(5)]
    assert make_means(AXES, rows, "fifo")[1].ratio == (1.0, None, None)


def test_seeds_that_differ_give_one():
    rows = [
        row(policy, 1, seed, jct_s * (1 + seed) + (policy == "srtf") * seed / 10)
        for policy, jct_s in (("fifo", 10.0), ("srtf", 5.0))
        for seed in range(5)
    ]
    ratio = make_means(AXES, rows, "fifo")[1].ratio
    assert ratio.low < ratio.ratio < ratio.high < 1
