"""The Tiresias job file."""

import pytest

from rota.core.errors import TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.traces.formats.tiresias import FORMAT
from rota.traces.read import read_workload
from trace_readers import quoted

HEADER = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"


@pytest.fixture
def trace(tmp_path):
    """Return `trace(*rows)`: the path of a job file."""

    def write(*rows, header=HEADER):
        path = tmp_path / "60_job.csv"
        path.write_text("\r\n".join([header, *rows, ""]), newline="")
        return path

    return write


def test_rows_become_jobs(trace):
    workload = read_workload(trace("0,1,0,606,vgg19,164,30", "1,8,30,133,vgg11,147,23"))
    assert workload.specs == [
        JobSpec("0", 0.0, Request.of(1), model="vgg19"),
        JobSpec("1", 30.0, Request.of(8), model="vgg11"),
    ]
    assert workload.behaviours == [Behaviour(164.0), Behaviour(147.0)]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("1,0,30,1,a,147,2", "column 'num_gpu': '0' is less than 1: give 1 or more"),
        ("1,1.5,30,1,a,147,2", "column 'num_gpu': '1.5' is not a whole number"),
        ("1,1,-3,1,a,147,2", "column 'submit_time': '-3' is less than 0"),
        ("1,1,30,1,a,0,2", "column 'duration': '0' is not more than 0"),
        ("0,1,30,1,a,9,2", "column 'job_id': '0' occurs twice (first on line 2)"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(trace, row, says):
    with pytest.raises(TraceError) as caught:
        read_workload(trace("0,1,0,606,vgg19,164,30", row))
    assert f"60_job.csv: line 3, {says}" in str(caught.value)


def test_unknown_columns_are_refused_or_ignored(trace):
    path = trace("0,1,0,9,a,164,30,x", header=HEADER + ",user")
    with pytest.raises(TraceError, match=r"unknown column 'user'.*--format tiresias:ignore=yes"):
        read_workload(path)
    assert len(read_workload(path, "tiresias:ignore=yes")) == 1


def test_both_parsers_of_tables_read_the_same(trace):
    path = trace("0,1,0,606,vgg19,164,30", "x,8,30.5,133,,147,23")
    quick, careful = FORMAT.load(path, {}), FORMAT.load(quoted(path), {})
    assert quick.jobs.equals(careful.jobs)
    assert quick.quality == careful.quality
    assert FORMAT.read(path, {}).specs == list(quick.workload.specs)


def test_the_published_file(shared):
    workload = read_workload(shared("reference/tiresias/60_job.csv"))
    assert len(workload) == 60
    assert workload.specs[1] == JobSpec("1", 30.0, Request.of(8), model="vgg11")
    assert workload.behaviours[1] == Behaviour(147.0)
    assert workload.specs[-1].submit_s == 1_779.0
    assert workload.behaviours[-1] == Behaviour(122.0)
