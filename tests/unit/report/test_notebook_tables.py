"""Jobs from tables of polars and pandas, `python -m rota`, and what `dir(rota)` lists."""

import os
import subprocess
import sys

import polars as pl
import pytest

import rota
from rota.core.errors import OptionError, TraceError
from rota.study.rerun import rerun

TABLE = pl.DataFrame(
    {"job_id": ["a", "b"], "submit_s": [0, 1], "num_gpus": [1, 2], "duration_s": [10.0, 20.0]}
)


def run(table, **options):
    return rota.simulate(table, cluster="1x4", policy="fifo", **options)


def as_pandas(table):
    """The same for pandas, which only some installations have."""
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    return table.to_pandas()


@pytest.mark.parametrize("make", [pl.DataFrame.clone, pl.DataFrame.lazy, as_pandas])
def test_a_table_is_run_like_the_file_that_holds_it(make, tmp_path):
    path = tmp_path / "jobs.csv"
    TABLE.write_csv(path)
    assert run(make(TABLE)).jobs.equals(run(path).jobs)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.drop("duration_s"), r"no column 'duration_s': add it or rename one \(it has job_id"),
        (TABLE.with_columns(vcc=pl.lit("x")), "unknown column 'vcc': did you mean 'vc'"),
        (TABLE.head(0), "no rows"),
        (TABLE.with_columns(submit_s=pl.Series(["0", "x"])), "the table: row 1, column 'submit_s'"),
        (TABLE.with_columns(user=pl.Series([[1], [2]])), "cannot be written as CSV"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_in_its_own_words(table, message, tmp_path):
    with pytest.raises(TraceError, match=message):
        run(table, output=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_table_is_refused():
    with pytest.raises(OptionError, match="a int is neither a file nor a table"):
        run(7)
    with pytest.raises(OptionError, match="a table is always in the format csv"):
        run(TABLE, format="philly")


def test_a_run_of_a_table_can_be_done_again(tmp_path):
    run(TABLE, output=tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.jobs.csv"]
    assert rerun(tmp_path / "out").same


def test_policies_are_compared_on_a_table(tmp_path):
    found = rota.compare(TABLE, cluster="1x4", policies=["fifo", "sjf"], output=tmp_path / "out")
    assert set(found.to_polars()["policy"]) == {"fifo", "sjf"}


def test_dir_lists_the_interface():
    assert set(dir(rota)) >= {"Experiment", "compare", "load", "simulate"}
    assert "Any" not in dir(rota)
    assert dir(rota.notebook) == sorted(rota.notebook.__all__)


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "rota", "--version"], capture_output=True, text=True, check=True,
        env=os.environ,
    )  # fmt: skip
    assert rota.__version__ in done.stdout
