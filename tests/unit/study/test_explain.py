"""Explanations from the folders of runs."""

import polars as pl
import pytest

from rota.core.errors import InputError
from rota.study.explain import explain_all, explain_folder
from rota.study.output import write_run
from rota.study.run import simulate


@pytest.fixture
def folder(config, tmp_path):
    """Return the folder of a small run."""
    made = tmp_path / "out"
    made.mkdir()
    write_run(simulate(config()), made)
    return made


def test_a_job_by_its_id(folder):
    # 0 and 1 run from the start; 2 waits for 1 to end at 30, 3 for 0 to end at 100, 4 is behind 3.
    told = explain_folder(folder, "4")
    assert told.id == "4"
    assert {part.reason for part in told.parts} == {"order", "capacity"}
    assert told.wait_s == pytest.approx(explain_all(folder)[4]["wait_s"])


def test_the_wait_of_every_job_by_reason(folder):
    rows = explain_all(folder)
    table = pl.read_csv(folder / "jobs.csv")
    assert [row["job_id"] for row in rows] == ["0", "1", "2", "3", "4"]
    for row, wait_s in zip(rows, table["wait_s"], strict=True):
        assert sum(list(row.values())[3:]) == pytest.approx(wait_s)
    assert any(row["wait_s"] for row in rows)


@pytest.mark.parametrize(
    ("job", "hint"),
    [("44", "did you mean 4?"), ("resnet", "among its 5: 0, 1, 2, 3, 4")],
)
def test_there_is_no_such_job(folder, job, hint):
    with pytest.raises(InputError, match=f"there is no job '{job}'") as caught:
        explain_folder(folder, job)
    assert hint in str(caught.value)


def test_a_run_without_jobs(folder):
    log = pl.read_parquet(folder / "events.parquet")
    log.filter(pl.col("event").is_in(["vertex", "end"])).write_parquet(folder / "events.parquet")
    with pytest.raises(InputError, match="there are no jobs in this run"):
        explain_folder(folder, "1")
    assert explain_all(folder) == []


def test_a_folder_with_several_runs(folder):
    with pytest.raises(InputError, match=r"holds several runs: name one of them: .*out"):
        explain_folder(folder.parent, "1")


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(InputError, match=r"events\.parquet"):
        explain_folder(tmp_path, "1")
