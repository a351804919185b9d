"""Runs and comparisons in a notebook."""

import pytest

from rota import notebook
from rota.core.errors import InputError, OptionError, RotaError
from rota.notebook import plots
from rota.study.output import write_run

PLOTS = ("cdf", "utilisation", "queue", "gantt", "heat", "fragments", "tenants", "delay")


@pytest.fixture
def result(run_of):
    return notebook.Result.of(run_of())


def test_a_result_shows_itself(result):
    assert repr(result).startswith("<Result las: jobs 120 of 120 completed, mean JCT ")
    assert "<caption>las</caption>" in result._repr_html_()
    assert "mean wait" in result._repr_html_()


@pytest.mark.parametrize("name", PLOTS)
def test_a_result_has_every_figure(result, name):
    figure = getattr(result, f"plot_{name}")(width_in=5.0)

    assert figure.get_figwidth() == 5.0
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_fragments_of_a_pool_cannot_be_drawn(run_of):
    with pytest.raises(InputError, match="no run tells its fragments"):
        notebook.Result.of(run_of(placement="count")).plot_fragments()


def test_a_folder_gives_the_same_as_the_run(result, run_of, tmp_path):
    write_run(run_of(), tmp_path)
    loaded = notebook.load(tmp_path)

    assert isinstance(loaded, notebook.Result)
    assert loaded.jobs.equals(result.jobs)
    assert loaded.log.equals(result.log)
    assert loaded.assumptions == result.assumptions
    assert loaded.to_polars() is loaded.jobs


def test_simulate_takes_the_options_of_the_command(trace, tmp_path):
    result = notebook.simulate(
        trace, cluster="4x4", policy="srtf", limit=20, output=tmp_path / "out"
    )

    assert result.summary["jobs"] == 20
    assert (tmp_path / "out" / "manifest.json").exists()
    assert notebook.load(tmp_path / "out").summary["avg_jct_s"] == result.summary["avg_jct_s"]


def test_an_unknown_option_is_named(trace):
    with pytest.raises(OptionError, match="option 'polisy' is unknown: use admission, "):
        notebook.simulate(trace, cluster="4x4", policy="srtf", polisy="las")


def test_a_comparison_shows_itself(folder):
    found = notebook.load(folder)

    assert isinstance(found, notebook.Comparison)
    lines = repr(found).splitlines()
    assert lines[0] == "<Comparison on jobs.csv, cluster 4x4>"
    assert lines[1].split()[:3] == ["policy", "mean", "JCT"]
    assert [line.split()[0] for line in lines[2:]] == ["fifo", "las"]
    assert "<td>las</td>" in found._repr_html_()


def test_names_are_texts_in_a_notebook(compare_as):
    assert "<script>" not in notebook.load(compare_as("<script>", "las"))._repr_html_()


def test_a_comparison_has_a_table_and_its_runs(folder):
    found = notebook.Comparison.load(folder)
    table = found.to_polars()

    assert table.filter(policy="las", key="avg_jct_s")["ratio"].to_list() == [0.5]
    assert table.filter(policy="las", key="avg_jct_s")["verdict"].to_list() == ["better"]
    assert found["las"].summary["jobs"] == 120
    with pytest.raises(OptionError, match="policy 'srtf' was not compared: fifo, las"):
        found["srtf"]


@pytest.mark.parametrize("name", [*PLOTS, "ratios"])
def test_a_comparison_has_every_figure(folder, name):
    figure = getattr(notebook.Comparison.load(folder), f"plot_{name}")()

    assert figure._repr_png_().startswith(b"\x89PNG")
    assert len(figure.axes) >= 1


def test_compare_runs_all_policies(trace, tmp_path):
    found = notebook.compare(
        trace, cluster="4x4", policies=["fifo", "srtf"], limit=30, output=tmp_path / "out"
    )

    assert found.policies == ["fifo", "srtf"]
    assert found["srtf"].summary["jobs"] == 30
    with pytest.raises(OptionError, match="no policy to compare"):
        notebook.compare(trace, cluster="4x4", policies=[])


def test_without_matplotlib_a_figure_says_what_to_install(result, monkeypatch):
    monkeypatch.setattr(plots, "has_matplotlib", lambda: False)

    with pytest.raises(RotaError, match=r"pip install -e '\.\[plot\]'"):
        result.plot_cdf()


def test_without_pandas_the_message_says_what_to_install(result, monkeypatch):
    def missing(self):
        raise ModuleNotFoundError("pa.Table requires 'pyarrow' module to be installed")

    monkeypatch.setattr("polars.DataFrame.to_pandas", missing)

    with pytest.raises(RotaError, match="`pip install pandas pyarrow`, or use to_polars"):
        result.to_pandas()


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has neither compare\.json nor summary\.json"):
        notebook.load(tmp_path)
    with pytest.raises(InputError, match="name a folder that `rota simulate` made"):
        notebook.Result.load(tmp_path)


def test_a_log_that_is_gone_is_missed_when_it_is_used(run_of, tmp_path):
    write_run(run_of(), tmp_path)
    (tmp_path / "events.parquet").unlink()
    loaded = notebook.Result.load(tmp_path)

    assert loaded.summary["jobs"] == 120
    with pytest.raises(InputError, match=r"events\.parquet: cannot be read"):
        _ = loaded.log


def test_names_that_are_not_there_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = notebook.nothing
