"""Writing the plain csv."""

import math

import pytest

from rota.core.errors import OutputError
from rota.core.jobs import UNKNOWN, Behaviour, JobSpec, Request, TaskGroup
from rota.core.workload import Workload
from rota.traces.read import read_workload
from rota.traces.write import number, write_workload


def workload(*specs, work=9.0):
    return Workload(list(specs), [Behaviour(work)] * len(specs))


def names_in(folder):
    return [path.name for path in folder.iterdir()]


ONE = workload(JobSpec("1", 0.0, Request.of(1)))


def test_only_columns_with_content_are_written(tmp_path):
    jobs = workload(
        JobSpec("1", 0.0, Request.of(2), "team"),
        JobSpec("2", 1.5, Request.of(0.25, gpu_types=("A", "B"), gang=False), deadline_s=99.0),
    )
    path = write_workload(jobs, tmp_path / "jobs.csv")
    assert path.read_bytes().decode() == (
        "job_id,submit_s,num_gpus,duration_s,vc,gpu_type,deadline_s,gang\n"
        "1,0,2,9,team,,,\n"
        "2,1.5,0.25,9,,A|B,99,false\n"
    )


def test_everything_that_csv_can_hold_comes_back(tmp_path):
    request = Request.of(
        7, gpu_types=("A", "B"), labels=("ssd", "ib"), cpus=3.3, mem_gib=0.7, gang=False,
        min_gpus=2, max_gpus=14,
    )  # fmt: skip
    jobs = workload(
        JobSpec("x", 1e-7, Request.of(0, cpus=1)),
        JobSpec(
            "a,b",
            1e15,
            request,
            "t",
            "u",
            'n"\nn',
            "g",
            "m",
            -4,
            2e15,
            0.1,
            ("x", "y"),
            "acc",
            "part",
            "q",
        ),
        JobSpec("y", 0.1 + 0.2, Request.of(0.123)),
        work=1 / 3,
    )
    again = read_workload(write_workload(jobs, tmp_path / "jobs.csv"))
    assert again.specs == jobs.specs
    assert again.behaviours == jobs.behaviours


@pytest.mark.parametrize("name", ["a\rb", "a\nb", "a\r\nb", 'a"b', '"a"', "a,b", "a b", "#a", "'"])
def test_difficult_texts_come_back(tmp_path, name):
    jobs = workload(JobSpec(name, 0.0, Request.of(1), name, name, name, name, name))
    assert read_workload(write_workload(jobs, tmp_path / "jobs.csv")).specs == jobs.specs


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.0, "3"), (0.5, "0.5"), (1e22, "10000000000000000000000"), (-2, "-2"), (math.inf, "")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_file_is_replaced_only_by_force(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("precious")
    with pytest.raises(OutputError, match="is there already: choose another name or use --force"):
        write_workload(ONE, path)
    assert path.read_text() == "precious"
    write_workload(ONE, path, force=True)
    assert len(read_workload(path)) == 1
    assert names_in(tmp_path) == ["jobs.csv"]


def test_a_job_that_cannot_be_written_leaves_no_file(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("precious")
    with pytest.raises(OutputError):
        write_workload(workload(JobSpec(" 1", 0.0, Request.of(1))), path, force=True)
    assert path.read_text() == "precious"
    assert names_in(tmp_path) == ["jobs.csv"]


def test_a_failed_rename_leaves_nothing_behind(tmp_path):
    (tmp_path / "jobs.csv" / "inner").mkdir(parents=True)
    with pytest.raises(OutputError, match="cannot be written"):
        write_workload(ONE, tmp_path / "jobs.csv", force=True)
    assert names_in(tmp_path) == ["jobs.csv"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(OutputError, match=r"cannot be written \(No such file.*folder must exist"):
        write_workload(ONE, tmp_path / "nowhere" / "jobs.csv")


def test_the_file_has_the_usual_permissions(tmp_path):
    usual = tmp_path / "usual"
    usual.touch()
    path = write_workload(ONE, tmp_path / "jobs.csv")
    assert path.stat().st_mode == usual.stat().st_mode


TWO_ROLES = Request((TaskGroup("ps", 1, 0, 4.0), TaskGroup("worker", 4)))


@pytest.mark.parametrize(
    ("spec", "behaviour", "says"),
    [
        (JobSpec("7", 0.0, TWO_ROLES), Behaviour(9.0), "more than one kind of task"),
        (JobSpec("7", 0.0, Request.of(1, labels=("a;b",))), Behaviour(9.0), "contain ';'"),
        (JobSpec("7", 0.0, Request.of(1)), UNKNOWN, "not just a finite duration"),
        (JobSpec("7", 0.0, Request.of(1)), Behaviour(0.0), "not just a finite duration"),
        (JobSpec("7", 0.0, Request.of(1)), Behaviour(9.0, {"A": 2.0}), "not just a finite"),
        (JobSpec("7", 0.0, Request.of(1)), Behaviour(9.0, speeds={"a": 2.0}), "not just a finite"),
        (JobSpec("7", 0.0, Request.of(1), "t "), Behaviour(9.0), "its tenant 't ' "),
        (JobSpec("7", 0.0, Request.of(1, gpu_types=("A|B",))), Behaviour(9.0), "contain '|'"),
        (JobSpec("7", 0.0, Request.of(1), depends_on=("1;2",)), Behaviour(9.0), "contain ';'"),
    ],
)
def test_what_csv_cannot_hold_is_refused(tmp_path, spec, behaviour, says):
    with pytest.raises(OutputError) as caught:
        write_workload(Workload([spec], [behaviour]), tmp_path / "jobs.csv")
    assert str(caught.value).startswith("job '7' cannot be written as csv: ")
    assert says in str(caught.value)
    assert "or write a folder" in str(caught.value)
    assert names_in(tmp_path) == []
