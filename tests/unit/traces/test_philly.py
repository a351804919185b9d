"""Philly: the derived csv and the original log."""

import json

import pytest

from rota.core.errors import OptionError, TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.traces.formats.philly import FORMAT
from rota.traces.read import read_workload
from trace_readers import quoted

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
ROWS = (
    "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
    "2017-10-09 07:01:45,0.9,2,1.8,6214e9\n"
    "2017-10-09 07:01:55,5.7,8,45.6,6c71a0\n"
)


@pytest.fixture
def derived(tmp_path):
    """Return `derived(rows)`: the path of a derived csv."""

    def write(rows):
        path = tmp_path / "philly.csv"
        path.write_text(HEADER + rows)
        return path

    return write


# --- the derived csv -------------------------------------------------------------------------


def test_rows_are_sorted_and_numbered_by_submission(derived):
    workload = read_workload(derived(ROWS))
    assert workload.specs == [
        JobSpec("0", 0.0, Request.of(2), "6214e9"),
        JobSpec("1", 10.0, Request.of(1), "11cb48"),
        JobSpec("2", 10.0, Request.of(8), "6c71a0"),
    ]
    assert workload.behaviours == [Behaviour(1.0), Behaviour(66.0), Behaviour(5.0)]
    assert workload.quality.repaired == {"duration below 1 s raised to 1 s": 1}


def test_a_window_moves_the_origin_and_is_counted(derived):
    workload = read_workload(derived(ROWS), "philly:after=2017-10-09 07:01:50")
    assert [(spec.id, spec.submit_s) for spec in workload.specs] == [("0", 0.0), ("1", 0.0)]
    assert workload.quality.dropped == {"before 2017-10-09 07:01:50": 1}
    assert (workload.quality.rows, workload.quality.kept) == (3, 2)
    before = read_workload(derived(ROWS), "philly:before=2017-10-09 07:01:55")
    assert [spec.tenant for spec in before.specs] == ["6214e9"]


def test_filters_by_tenant_and_duration(derived):
    workload = read_workload(derived(ROWS), "philly:vc=11cb48/6214e9,min_duration=60")
    assert [spec.tenant for spec in workload.specs] == ["11cb48"]
    assert workload.quality.dropped == {
        "of other virtual clusters": 1,
        "shorter than 60 s": 1,
    }


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("soon,5,1,5,a", "column 'timestamp': 'soon' is not a time YYYY-MM-DD HH:MM:SS: write"),
        ("2017-10-09 07:01:55+01:00,5,1,5,a", "column 'timestamp': '2017-10-09 07:01:55+01:00' is"),
        (",5,1,5,a", "column 'timestamp': '' is missing: give one"),
        ("2017-10-09 07:01:55,-5,1,5,a", "column 'duration': '-5' is less than 0"),
        ("2017-10-09 07:01:55,5,0,5,a", "column 'num_gpus': '0' is less than 1"),
        ("2017-10-09 07:01:55,5,2.5,5,a", "column 'num_gpus': '2.5' is not a whole number"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(derived, row, says):
    with pytest.raises(TraceError) as caught:
        read_workload(derived(ROWS + row + "\n"))
    assert f"philly.csv: line 5, {says}" in str(caught.value)


@pytest.mark.parametrize("option", ["after=tomorrow", "min_duration=long", "runtime=sum"])
def test_bad_options_are_refused(derived, option):
    with pytest.raises(OptionError, match=f"format philly: .*{option}"):
        read_workload(derived(ROWS), f"philly:{option}")


def test_unknown_columns_are_refused_or_ignored(tmp_path):
    path = tmp_path / "philly.csv"
    path.write_text("user,timestamp,duration,num_gpus\nann,2017-10-09 07:01:55,66.0,1\n")
    with pytest.raises(TraceError, match=r"unknown column 'user'.*--format philly:ignore=yes"):
        read_workload(path)
    (job,) = read_workload(path, "philly:ignore=yes").specs
    assert job == JobSpec("0", 0.0, Request.of(1))


def test_filters_that_leave_nothing_say_what_they_dropped(derived):
    with pytest.raises(TraceError, match=r"no job is left \(3 before 2018-01-01\): relax"):
        read_workload(derived(ROWS), "philly:after=2018-01-01")


def test_the_whole_file(shared):
    workload = read_workload(shared("data/philly/philly.csv"))
    assert len(workload) == 82_247
    assert len({spec.tenant for spec in workload.specs}) == 15
    submits_s = [spec.submit_s for spec in workload.specs]
    assert submits_s[0] == 0.0
    assert submits_s == sorted(submits_s)
    assert [spec.id for spec in workload.specs] == [str(i) for i in range(82_247)]
    assert sorted(behaviour.work for behaviour in workload.behaviours)[41_123] == 1_144.0
    assert workload.quality.dropped == workload.quality.repaired == {}


@pytest.mark.parametrize(
    ("name", "jobs"), [("philly300", 300), ("philly1000", 1_000), ("philly5k", 5_000)]
)
def test_the_common_window_comes_out_exactly(shared, name, jobs):
    window = f"philly:after=2017-11-20,limit={jobs}"
    ours = read_workload(shared("data/philly/philly.csv"), window)
    common = read_workload(shared(f"reference/common/{name}.csv"))
    assert ours.specs == common.specs
    assert ours.behaviours == common.behaviours


# --- the log ---------------------------------------------------------------------------------


def attempt(start, end, *gpus):
    """Return an attempt between two times of one day, on nodes with so many GPUs."""
    day = "2017-10-09 "
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(n)]} for i, n in enumerate(gpus)]
    return {
        "start_time": day + start if start and start != "None" else start,
        "end_time": day + end if end and end != "None" else end,
        "detail": detail,
    }


def job(name, submitted, *attempts, **changes):
    """Return an entry of the log."""
    entry = {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": name,
        "user": "ann",
        "submitted_time": f"2017-10-09 {submitted}" if submitted else submitted,
        "attempts": list(attempts),
    }
    return {**entry, **changes}


@pytest.fixture
def log(tmp_path):
    """Return `log(*jobs)`: the path of a job log."""

    def write(*jobs):
        path = tmp_path / "cluster_job_log"
        path.write_text(json.dumps(list(jobs), indent=1))
        return path

    return write


def test_the_log_gives_sizes_and_run_times(log):
    path = log(
        job("b", "10:00:30", attempt("10:01:00", "10:02:00", 8, 8)),
        job("a", "10:00:00", attempt("10:00:00", "10:00:10", 1), user="bob", vc="x"),
    )
    workload = read_workload(path)
    assert workload.specs == [
        JobSpec("a", 0.0, Request.of(1), "x", "bob"),
        JobSpec("b", 30.0, Request.of(16), "ee9e8c", "ann"),
    ]
    assert workload.behaviours == [Behaviour(10.0), Behaviour(60.0)]
    assert workload.quality.dropped == workload.quality.repaired == {}


@pytest.mark.parametrize(
    ("option", "work"),
    [("", 70.0), (":runtime=sum", 70.0), (":runtime=span", 120.0), (":runtime=last", 60.0)],
)
def test_run_time_of_several_attempts(log, option, work):
    first = attempt("10:00:00", "10:00:10")  # without detail: the second tells the size
    path = log(job("a", "10:00:00", first, attempt("10:01:00", "10:02:00", 4)))
    workload = read_workload(path, f"philly{option}")
    assert workload.specs[0].request == Request.of(4)
    assert workload.behaviours == [Behaviour(work)]


def test_what_is_dropped_is_counted(log):
    run = attempt("10:00:00", "10:00:10", 1)
    path = log(
        job("a", "10:00:00", run),
        job("b", "10:00:00"),
        job("c", "10:00:00"),
        job("d", "10:00:00", attempt("10:00:00", "10:00:10", 0)),
        job("e", None, run),
        job("f", "", run),
        job("a", "10:00:00", run),
        job("g", "10:00:00", attempt("None", "None", 1)),
    )
    workload = read_workload(path)
    assert [spec.id for spec in workload.specs] == ["a"]
    assert workload.quality.rows == 8
    assert workload.quality.kept == 1
    assert workload.quality.dropped == {
        "no attempts, so the size is unknown": 2,
        "no GPUs recorded": 1,
        "no submission time": 2,
        "job id seen before": 1,
        "no attempt with a start time": 1,
    }


@pytest.mark.parametrize("missing", [None, "None", ""])
def test_a_running_job_is_cut_at_the_latest_time_of_the_log(log, missing):
    path = log(
        job("a", "10:00:00", attempt("10:00:00", missing, 1)),
        job("b", "10:00:00", attempt("10:00:20", "10:05:00", 1)),
    )
    workload = read_workload(path)
    assert workload.behaviours == [Behaviour(300.0), Behaviour(280.0)]
    assert workload.quality.repaired == {"still running at the end of the log: cut there": 1}
    dropped = read_workload(path, "philly:unfinished=drop")
    assert [spec.id for spec in dropped.specs] == ["b"]
    assert dropped.quality.dropped == {"still running at the end of the log": 1}


def test_attempts_without_sense_are_ignored_and_counted(log):
    path = log(
        job(
            "a",
            "10:00:00",
            attempt("10:09:00", "10:08:00", 1),
            attempt(None, "10:10:00", 1),
            attempt("10:10:00", "10:10:00", 1),
            attempt("10:00:00", None, 1),
            attempt("10:10:00", "10:10:07", 1),
        )
    )
    workload = read_workload(path)
    assert workload.behaviours == [Behaviour(7.0)]
    assert workload.quality.repaired == {
        "attempt without start ignored": 1,
        "attempt without end ignored, though others follow": 1,
        "attempt that ends before it starts ignored": 1,
    }


def test_statuses_can_be_chosen(log):
    run = attempt("10:00:00", "10:00:10", 1)
    path = log(
        job("a", "10:00:00", run),
        job("b", "10:00:00", run, status="Failed"),
        job("c", "10:00:00", run, status="Killed"),
    )
    workload = read_workload(path, "philly:statuses=Pass/Killed")
    assert [spec.id for spec in workload.specs] == ["a", "c"]
    assert workload.quality.dropped == {"status Failed": 1}


def test_filters_apply_to_the_log_too(log):
    path = log(
        job("a", "10:00:00", attempt("10:00:00", "10:00:10", 1)),
        job("b", "11:00:00", attempt("11:00:00", "11:05:00", 1)),
    )
    assert [spec.id for spec in read_workload(path, "philly:min_duration=60").specs] == ["b"]
    assert [s.id for s in read_workload(path, "philly:before=2017-10-09 11:00:00").specs] == ["a"]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_log_is_refused_with_the_position(log, share):
    path = log(*(job(f"j{i}", "10:00:00", attempt("10:00:00", "10:01:00", 1)) for i in range(9)))
    data = path.read_bytes()
    data = data[: int(len(data) * share)]
    path.write_bytes(data)
    with pytest.raises(TraceError) as caught:
        read_workload(path)
    line = len(data.splitlines()) + data.endswith(b"\n")
    assert str(caught.value) == (
        f"{path}: line {line}, byte {len(data)}: the JSON ends too early: "
        "the file is cut off: fetch it again"
    )


def test_broken_json_is_refused_with_the_position(log):
    path = log(job("a", "10:00:00", attempt("10:00:00", "10:01:00", 1)))
    path.write_text(path.read_text().replace('"vc":', '"vc"'))
    with pytest.raises(TraceError, match=r"line 4, byte \d+: the JSON is wrong \(.*\): correct it"):
        read_workload(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "holds no jobs: the JSON array is empty"),
        ('{"jobid": "a"}', "is not a job log of Philly (Expected `array`, got `object`)"),
        (
            '[{"jobid": 7}]',
            "is not a job log of Philly (Expected `str`, got `int` - at `$[0].jobid",
        ),
    ],
)
def test_other_json_is_refused(tmp_path, content, says):
    path = tmp_path / "log.json"
    path.write_text(content)
    with pytest.raises(TraceError) as caught:
        read_workload(path, "philly")
    assert f"{path}: {says}" in str(caught.value)


def test_a_bad_time_names_the_job_and_the_key(log):
    path = log(job("a", "10:00:00", attempt("25:00:00", "10:00:10", 1)))
    with pytest.raises(TraceError) as caught:
        read_workload(path)
    assert str(caught.value) == (
        f"{path}: job 'a', key 'start_time': '2017-10-09 25:00:00' is not a time: "
        "write YYYY-MM-DD HH:MM:SS, without a zone"
    )


# --- both parsers of tables ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        "",
        "2017-10-09 07:01:45,0.2,16,5,\n2017-10-08 00:00:00,12.9,1.0,5, a\n",
        "2017-10-09T07:01:44,7,2,14,b\n",  # a time as ISO 8601 writes it
        "2017-10-03,7,2,14,b\n",
    ],
)
def test_both_parsers_read_the_same(derived, more):
    path = derived(ROWS + more)
    quick, careful = FORMAT.load(path, {}), FORMAT.load(quoted(path), {})
    assert quick.jobs.equals(careful.jobs)
    assert quick.quality == careful.quality
    assert (quick.origin, quick.notes) == (careful.origin, careful.notes)
    assert read_workload(path).specs == list(quick.workload.specs)


@pytest.mark.parametrize(
    "row", [",5,1,5,a", "2017-10-09 07:01:55,5,0,5,a", "2017-10-09 07:01:55,nan,1,5,a"]
)
def test_both_parsers_refuse_the_same(derived, row):
    path = derived(ROWS + row + "\n")
    for file in (path, quoted(path)):
        with pytest.raises(TraceError, match=r"philly\.csv: line 5, column"):
            FORMAT.load(file, {})
