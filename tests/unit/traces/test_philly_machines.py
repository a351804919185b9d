"""Philly beside its jobs: attempts as they happened, machines, and their use by the minute."""

import json

import pytest

from rota.core.errors import OptionError, TraceError
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.formats.philly_machines import read_machines, read_utilisation
from rota.traces.observed import Seen
from rota.traces.read import read_trace
from rota.traces.tools.report import report

LOG = [
    {
        "status": "Pass", "vc": "v", "jobid": "b", "user": "u",
        "submitted_time": "2017-10-09 07:00:30",
        "attempts": [
            {"start_time": "2017-10-09 07:01:00", "end_time": "2017-10-09 07:02:00",
             "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1", "gpu2"]}]},
            {"start_time": "2017-10-09 07:05:00", "end_time": "2017-10-09 07:06:00",
             "detail": [{"ip": "m1", "gpus": ["gpu0"]}, {"ip": "m9", "gpus": ["gpu3", "gpu4"]}]},
        ],
    },
    {
        "status": "Killed", "vc": "v", "jobid": "a", "user": "u",
        "submitted_time": "2017-10-09 07:00:00",
        "attempts": [{"start_time": "2017-10-09 07:00:10", "end_time": "None",
                      "detail": [{"ip": "m2", "gpus": ["gpu0"]}]}],
    },
]  # fmt: skip
MACHINES = "machineId,number of GPUs,single GPU mem\nm1,2, 12GB\nm2,8, 24GB\n"


@pytest.fixture
def log(tmp_path):
    (tmp_path / "cluster_job_log").write_text(json.dumps(LOG))
    (tmp_path / "cluster_machine_list").write_text(MACHINES)
    return tmp_path / "cluster_job_log"


def test_attempts_go_to_the_observed_schedule(log):
    imported = read_trace(log, "philly")
    assert [spec.id for spec in imported.workload.specs] == ["a", "b"]
    assert imported.observed.rows() == [
        Seen(0, 10.0, None, ("m2",), (1.0,), "running"),
        Seen(1, 60.0, 120.0, ("m1",), (3.0,), "failed", 0),
        Seen(1, 300.0, 360.0, ("m1", "m9"), (1.0, 2.0), "done", 1),
    ]
    assert imported.origin == "2017-10-09 07:00:00"
    assert read_trace(log, "philly", limit=1).observed.rows()[0].nodes == ("m2",)


def test_machines_are_as_large_as_was_seen(log):
    imported = read_trace(log, "philly")
    assert imported.cluster == (NodeSpec("m1", 3, "12GB"), NodeSpec("m2", 8, "24GB"))
    high = json.dumps(LOG).replace('["gpu0"]}, {"ip": "m9"', '["gpu6"]}, {"ip": "m9"')
    log.write_text(high)
    assert read_trace(log, "philly").cluster[0] == NodeSpec("m1", 7, "12GB")
    assert [note.split(":")[0] for note in imported.notes] == ["contradiction", "contradiction"]
    assert "1 machines of the log are not in cluster_machine_list" in imported.notes[1]
    found = report(imported)
    assert found.contradictions == {"a job on a node that is not listed": 1}
    assert found.observed["censored"] == 1


def test_a_machine_list_without_its_header(tmp_path):
    path = tmp_path / "list"
    path.write_text(MACHINES.split("\n", 1)[1])
    assert [node.gpus for node in read_machines(path)] == [2, 8]


UTILISATION = (
    "time,machineId,gpu0_util,gpu1_util,gpu2_util,gpu3_util,gpu4_util,gpu5_util,gpu6_util,gpu7_util,\n"
    "2017-11-05 01:59:00 PDT,m1,99.5,0.0,NA,NA,NA,NA,NA,NA,\n"
    "2017-11-05 01:00:00 PST,m1,1.0,0.0,NA,NA,NA,NA,NA,NA,\n"
)


def test_the_hour_that_came_twice_is_told_apart(tmp_path):
    path = tmp_path / "cluster_gpu_util"
    path.write_text(UTILISATION)
    quality = Quality()
    (frame,) = read_utilisation(path, quality=quality)
    first, second = frame.iter_rows(named=True)
    assert second["time_s"] - first["time_s"] == 60.0
    assert (first["machine"], first["gpu0"], first["gpu2"]) == ("m1", 99.5, None)
    assert quality.rows == 2


def test_the_use_by_the_minute_shows_machines_and_how_busy_they_were(log):
    path = log.with_name("cluster_gpu_util")
    path.write_text(UTILISATION.replace("99.5,0.0,NA,NA", "99.5,0.0,NA,39.5"))
    imported = read_trace(log, f"philly:utilisation={path}")
    assert imported.cluster[0] == NodeSpec("m1", 4, "12GB")
    told = "GPUs that were on were used 28 % on average (5 minutes of GPUs on 1 machines)"
    assert imported.notes[0] == told
    with pytest.raises(TraceError, match="there is no such file"):
        read_trace(log, "philly:utilisation=nowhere")
    plain = log.with_name("philly.csv")
    plain.write_text("timestamp,duration,num_gpus\n2017-10-09 07:00:00,1,1\n")
    with pytest.raises(OptionError, match="utilisation=x is for the job log"):
        read_trace(plain, "philly:utilisation=x")


def test_a_time_of_another_zone_is_refused(tmp_path):
    path = tmp_path / "cluster_gpu_util"
    path.write_text(UTILISATION.replace("PST", "CET"))
    with pytest.raises(TraceError, match="'2017-11-05 01:00:00 CET' is not a time with a zone"):
        list(read_utilisation(path))
