"""Recipes of the Gavel family: their shapes can be missed, and their problems are the same."""

from types import SimpleNamespace

import msgspec
import pytest

from rota.core.errors import InputError
from rota.reproduce.gavel import load as gavel_load
from rota.reproduce.gavel.load import draw_trace
from rota.reproduce.pop import recipe as pop_tradeoff
from rota.reproduce.recipe import CheckVerdict, RecipeSetting, Scale
from rota.reproduce.run import reproduce

HOURS = {"max-min": (15, 19), "max-min-agnostic": (21, 26), "fifo": (14, 35)}


@pytest.fixture
def setting(tmp_path):
    """A data folder with a table of our own."""
    rates = {f"('{model}', 1)": {"null": 2.0} for model in ("x", "A3C", "y", "z")}
    table = tmp_path / "data" / gavel_load.TABLE
    table.parent.mkdir(parents=True)
    table.write_bytes(msgspec.json.encode(dict.fromkeys(("v100", "p100", "k80"), rates)))
    return RecipeSetting(Scale.SMALL, tmp_path, tmp_path / "data")


def outcomes(hours):
    return {
        f"{name}-{rate:g}": SimpleNamespace(summary={"avg_jct_s": mean * 3600})
        for name, means in hours.items()
        for rate, mean in zip(gavel_load.RATES[Scale.SMALL], means, strict=True)
    }


def verdicts(setting, **changed):
    runs = outcomes({**HOURS, **changed})
    return [check.verdict for check in gavel_load.RECIPE.checks(setting, runs)]


def test_the_shape_of_the_figures(setting):
    assert set(verdicts(setting)) == {CheckVerdict.AGREES}
    rows = gavel_load.RECIPE.series(outcomes(HOURS)).rows()
    assert ("max-min-agnostic", 7.0, 26.0) in rows


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("max-min", (19, 15)),  # falls
        ("max-min-agnostic", (21, 22)),  # nearly as good
        ("fifo", (14, 18)),  # better
        ("max-min", (15, 21.5)),  # no higher load
    ],
)
def test_another_shape_fails(setting, name, means):
    assert CheckVerdict.FAILS in verdicts(setting, **{name: means})


def test_published_means_are_compared_where_there_are_some(setting):
    table = {"2.80": {"max_min_fairness_perf": 15.2, "fifo_perf": 20.0}}
    path = setting.data / gavel_load.PUBLISHED
    path.write_bytes(msgspec.json.encode({"continuous_jobs": [{"table": None}, {"table": table}]}))
    hours = {"max-min-2.8": 15.0, "fifo-2.8": 14.0, "allox-2.8": 9.0}
    found = gavel_load._published(setting, hours)
    assert [(check.quantity, check.verdict) for check in found] == [
        ("max-min-2.8: mean JCT (h)", CheckVerdict.AGREES),
        ("fifo-2.8: mean JCT (h)", CheckVerdict.FAILS),
    ]


def test_all_policies_get_the_same_jobs(setting):
    runs = gavel_load.RECIPE.runs(setting)
    assert len(runs) == 6
    assert len({config.trace for config in runs.values()}) == 2
    assert {config.measure for config in runs.values()} == {"ids=900:1200"}


def test_rates_change_only_the_time_between_jobs(setting):
    table = setting.data / gavel_load.TABLE
    slow, fast = (
        [line.split("\t") for line in draw_trace(table, jobs=50, gap_s=gap, seed=3).splitlines()]
        for gap in (100, 50)
    )
    assert len(slow) == 50
    assert [row[:9] for row in slow] == [row[:9] for row in fast]
    assert float(slow[-1][9]) == pytest.approx(2 * float(fast[-1][9]), rel=1e-6)
    assert slow[0] == slow[1]  # the generator's first job comes twice
    assert {row[0] for row in slow} == {"x", "y", "z", "A3C"}


def test_a_table_without_the_reference_is_refused(tmp_path):
    path = tmp_path / "table.json"
    path.write_bytes(msgspec.json.encode({"other": {"('x', 1)": {"null": 1.0}}}))
    with pytest.raises(InputError, match="no jobs of one GPU on v100"):
        draw_trace(path, jobs=2, gap_s=1, seed=0)


@pytest.mark.parametrize("form", [pop_tradeoff.SINGLE, pop_tradeoff.PACKED])
def test_one_part_is_the_whole_and_parts_are_feasible(form):
    points = pop_tradeoff.solve(form, 32, seed=1)
    assert points[0].objective == pytest.approx(1, abs=1e-9)
    assert points[0].mean == pytest.approx(1, abs=1e-6)
    assert all(0 < point.objective <= 1 + 1e-6 for point in points)


def test_the_tradeoff_agrees(monkeypatch):
    """Not the times: the machine may be busy."""
    monkeypatch.setattr(pop_tradeoff, "INSTANCES", {Scale.SMALL: 1})
    report = reproduce(pop_tradeoff.RECIPE)
    quality = [check for check in report.checks if "time" not in check.quantity]
    assert [check.verdict for check in quality] == [CheckVerdict.AGREES] * 4
    assert pop_tradeoff.RECIPE.series({}).height == 4 * len(pop_tradeoff.PARTS)
