"""Experiments from Python: the same matrix, results to look at."""

import sys

import pytest

from rota.core.errors import InputError, OptionError, RotaError
from rota.notebook.experiment import Experiment, Results
from rota.study.sweep.on_ray import OnRay
from rota.study.sweep.source import parse_source
from rota.study.sweep.spec import parse_spec


@pytest.fixture
def experiment(trace):
    """Return `experiment(**changes)`: two policies at two loads with two seeds."""

    def make(**changes):
        said = {
            "workloads": trace,
            "clusters": "1x8",
            "policies": ["fifo", "srtf"],
            "loads": [1, 3],
            "seeds": range(2),
            "options": {"estimate_error": 1.5},
        }
        return Experiment(**said | changes)

    return make


def test_it_is_the_matrix_of_the_yaml_file(experiment, trace):
    text = (
        f"workloads: ['{trace}']\nclusters: [1x8]\npolicies: [fifo, srtf]\nloads: [1, 3]\n"
        "seeds: 2\noptions: {estimate_error: 1.5}\n"
    )
    path = trace.parent / "sweep.yaml"
    path.write_text(text)
    mine, theirs = experiment(), Experiment.load(path)
    assert len(mine) == 8
    assert mine.to_polars().equals(theirs.to_polars())
    assert mine.spec.axes == parse_spec(parse_source(text, path)).axes
    assert repr(mine) == (
        "<Experiment experiment: 8 runs over workload, cluster, policy, load, seed>"
    )


def test_results_are_a_table_and_single_runs(experiment, tmp_path):
    results = experiment(name="mine").run(jobs=0, folder=tmp_path / "out")
    table = results.to_polars()
    assert table.height == len(results) == 8
    assert repr(results) == "<Results mine: 8 runs>"
    assert [run.summary["avg_jct_s"] for run in results] == table["avg_jct_s"].to_list()
    assert results[7].jobs.height == 5
    assert results.to_pandas()["avg_jct_s"].tolist() == table["avg_jct_s"].to_list()
    assert Results.load(tmp_path / "out").to_polars().equals(table)
    assert results.failures == results.warnings == []


def test_what_the_folder_has_is_not_done_again(experiment, tmp_path):
    told = []
    for _ in range(2):
        experiment().run(
            jobs=0, folder=tmp_path / "out", told=lambda done, total, failed: told.append(total)
        )
    assert told == [8] * 9 + [0]


def test_a_temporary_folder_lasts_as_long_as_the_results(experiment):
    results = experiment(seeds=1, loads=1).run(jobs=0)
    folder = results.folder
    assert results[1].summary["jobs"] == 5
    del results
    assert not folder.exists()


def test_curves_have_means_and_intervals(experiment):
    results = experiment(seeds=5).run(jobs=0)
    curves = results.curves()
    assert list(curves) == ["fifo", "srtf"]
    table = results.to_polars().filter(policy="srtf", load=3.0)
    row = curves["srtf"].row(1, named=True)
    assert (row["load"], row["runs"]) == (3.0, 5)
    assert row["avg_jct_s"] == pytest.approx(table["avg_jct_s"].mean())
    assert row["low"] < row["avg_jct_s"] < row["high"]
    single = experiment(seeds=1).run(jobs=0).curves(x="policy", y="makespan_s", by="load")
    assert single["1.0"]["high"].to_list() == [None, None]


def test_an_unknown_column_is_refused(experiment):
    results = experiment(seeds=1, loads=1).run(jobs=0)
    with pytest.raises(OptionError, match="unknown column 'avg_jct': did you mean"):
        results.plot(y="avg_jct")


@pytest.mark.parametrize(("x", "by"), [("load", "policy"), ("policy", "load")])
def test_a_figure_is_not_empty(experiment, x, by):
    figure = experiment().run(jobs=0).plot(x=x, by=by)
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == {"policy": ["fifo", "srtf"], "load": ["1.0", "3.0"]}[by]
    assert axes.get_ylabel() == "mean JCT"
    assert axes.get_ylim()[1] > 50
    pixels = figure._repr_png_()
    assert len(pixels) > 5_000


def test_a_table_for_notebooks(experiment, trace):
    broken = trace.parent / "mine<b>.py"
    broken.write_text(
        "from rota.core.policy import PriorityPolicy\n"
        "class Mine(PriorityPolicy):\n"
        "    def key(self, job, now_s):\n"
        "        raise ValueError('<no>')\n"
    )
    results = experiment(policies=["fifo", broken], seeds=1).run(jobs=0)
    page = results._repr_html_()
    assert page.count("<tr>") == 1 + 2
    assert "<td>fifo</td>" in page
    assert "ValueError: &lt;no&gt;" in page
    assert "<no>" not in page
    assert "2 runs, 2 failed" in repr(results)


def test_nothing_but_failures_is_still_a_table(experiment):
    results = experiment(options={"measure": "after=1e9"}).run(jobs=0)
    assert len(results.failures) == 8
    assert results.to_polars().shape == (0, 6)
    assert "no job of the trace is in this window" in results._repr_html_()


def test_mistakes_are_told_as_for_the_yaml_file(experiment):
    with pytest.raises(InputError, match=r"experiment: the sweep: unknown key 'seed'"):
        experiment(seed=3)
    with pytest.raises(OptionError, match="unknown place to run 'moon'"):
        experiment().run(on="moon")


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RotaError, match=r"pip install -e .\.\[ray\]"):
        OnRay()
