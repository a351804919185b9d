"""Helios: the job log of a cluster, and the daily capacity of its virtual clusters."""

import pytest

from rota.core.errors import OptionError, TraceError
from rota.core.jobs import Request
from rota.traces.formats.helios import FORMAT, NOT_SIMULATED
from rota.traces.observed import Seen
from rota.traces.tidy import NO_DURATION, SHORT
from rota.traces.tools.report import report
from trace_readers import counted

HEADER = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
)
ROWS = (
    # unsorted, one that never started, one without GPUs, one without its duration, one of 0 s
    "9,u1,vcA,8,16,1,COMPLETED,2020-04-01 00:01:00,2020-04-01 00:02:00,2020-04-01 00:12:00,600,60\n"
    "3,u2,vcB,1,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:30,2020-04-01 00:00:40,,30\n"
    "4,u2,vcB,1,4,1,CANCELLED,2020-04-01 00:00:10,,,,\n"
    "5,u2,vc7Bz,0,4,1,TIMEOUT,2020-04-01 00:00:20,2020-04-01 00:00:20,2020-04-01 00:00:20,0,0\n"
    "6,u3,vcC,2,4,1,SUSPENDED,2020-04-02 00:00:00,2020-04-02 00:00:00,None,100,0\n"
)
CAPACITY = (
    "date,vcA,vcB,vcC,total\n2020-04-01,8,8,0,16\n2020-04-02,8,16,0,24\n2020-04-03,8,16,0,24\n"
)


@pytest.fixture
def log(tmp_path):
    """Return `log(rows, capacity)`: the path of a job log."""

    def write(rows=ROWS, capacity=CAPACITY):
        (tmp_path / "cluster_log.csv").write_text(HEADER + rows)
        if capacity:
            (tmp_path / "cluster_gpu_number.csv").write_text(capacity)
        return tmp_path / "cluster_log.csv"

    return write


def test_jobs_are_sorted_shifted_and_counted(log):
    imported = FORMAT.load(log(), {})
    specs = imported.workload.specs
    assert [(spec.id, spec.submit_s, spec.tenant, spec.user) for spec in specs] == [
        ("3", 0.0, "vcB", "u2"),
        ("5", 20.0, "vc7Bz", "u2"),
        ("9", 60.0, "vcA", "u1"),
        ("6", 86400.0, "vcC", "u3"),
    ]
    assert specs[1].request == Request.of(0, cpus=4.0)
    assert [behaviour.work for behaviour in imported.workload.behaviours] == [10, 1, 600, 100]
    assert imported.quality.dropped == {NO_DURATION: 1}
    assert imported.quality.repaired == {SHORT: 1}
    assert counted(imported.quality)
    assert imported.origin == "2020-04-01 00:00:00"


def test_what_happened_is_kept_apart(log):
    assert FORMAT.load(log(), {}).observed.rows() == [
        Seen(0, 30.0, 40.0, state="failed"),
        Seen(1, 20.0, 20.0, state="timeout"),
        Seen(2, 120.0, 720.0, state="done"),
        Seen(3, 86400.0, None),
    ]


def test_daily_capacity_becomes_events_when_it_changes(log):
    events = FORMAT.load(log(), {}).events
    assert events.select("time_s", "kind", "subject", "value").rows() == [
        (0.0, "capacity", "vcA", 8.0),
        (0.0, "capacity", "vcB", 8.0),
        (0.0, "capacity", "vcC", 0.0),
        (0.0, "capacity", "", 16.0),
        (86400.0, "capacity", "vcB", 16.0),
        (86400.0, "capacity", "", 24.0),
    ]
    assert FORMAT.load(log(), {"capacity": "no"}).events.height == 0
    with pytest.raises(OptionError, match=r"capacity=nowhere.csv: there is no such file"):
        FORMAT.load(log(), {"capacity": "nowhere.csv"})


def test_the_authors_cleaning_is_an_option(log):
    imported = FORMAT.load(log(), {"repair": "authors"})
    assert [spec.id for spec in imported.workload.specs] == ["3", "9"]
    assert imported.quality.dropped == {
        NO_DURATION: 1,
        "of the test cluster (repair=authors)": 1,
        "of a cluster that never has GPUs (repair=authors)": 1,
    }
    assert counted(imported.quality)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"gpu_only": "yes"}, ["3", "9", "6"]),
        ({"statuses": "COMPLETED/FAILED"}, ["3", "9"]),
        ({"min_duration": "60"}, ["9", "6"]),
        ({"vc": "vcA/vcC"}, ["9", "6"]),
        ({"after": "2020-04-01 00:00:20", "before": "2020-04-02"}, ["5", "9"]),
    ],
)
def test_common_options(log, options, kept):
    imported = FORMAT.load(log(), options)
    assert [spec.id for spec in imported.workload.specs] == kept
    assert imported.workload.specs[0].submit_s == 0.0
    assert counted(imported.quality)


def test_a_sample_is_seeded(log):
    rows = "".join(
        f"{n},u,v,1,1,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:01,,5,1\n"
        for n in range(100)
    )
    some = FORMAT.load(log(rows), {"sample": "0.2", "seed": "3"})
    again = FORMAT.load(log(rows), {"sample": "0.2", "seed": "3"})
    other = FORMAT.load(log(rows), {"sample": "0.2", "seed": "4"})
    assert some.jobs.equals(again.jobs)
    assert not some.jobs.equals(other.jobs)
    assert some.quality.dropped == {"not in the sample": 80}
    with pytest.raises(OptionError, match="sample=2 is no share"):
        FORMAT.load(log(rows), {"sample": "2"})


def test_ids_that_occur_twice_are_dropped(log):
    row = ROWS.splitlines(keepends=True)[0]
    imported = FORMAT.load(log(row + row), {})
    assert imported.quality.dropped == {"job id seen before": 1}


def test_options_that_make_no_sense(log):
    with pytest.raises(OptionError, match="after=soon is not a time"):
        FORMAT.load(log(), {"after": "soon"})
    with pytest.raises(TraceError, match="no job is left"):
        FORMAT.load(log(), {"vc": "nobody"})


def test_an_optional_column_of_names(log, tmp_path):
    path = log()
    path.write_text("jobname," + HEADER + "train," + ROWS.splitlines()[0] + "\n")
    assert FORMAT.load(path, {}).workload.specs[0].name == "train"


def test_the_report_says_that_capacities_are_not_simulated(log):
    told = report(FORMAT.load(log(), {})).notes
    assert [note for note in told if "a simulation does not use them" in note] == [NOT_SIMULATED]
    assert NOT_SIMULATED not in report(FORMAT.load(log(), {"capacity": "no"})).notes
