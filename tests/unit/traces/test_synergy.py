"""The replay trace of Synergy."""

import json

import pytest

from rota.core.errors import TraceError
from rota.core.jobs import JobSpec, Request
from rota.traces.formats.plain import FORMAT as PLAIN
from rota.traces.formats.synergy import FORMAT
from rota.traces.sniff import first_look

PROFILES = {
    "net_1": {"cpus": 6, "mem": 40, "iter_time": 0.5, "cpu_points": [3, 6], "mem_points": [40],
              "tput": [[1.0], [2.0]]},
    "untimed_1": {"cpus": 6, "mem": 40, "cpu_points": [3, 6], "mem_points": [40],
                  "tput": [[1.0], [2.0]]},
}  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    """Return `trace(*rows)`: the path of a trace with profiles beside it."""

    def write(*rows):
        (tmp_path / "synergy_profiles.json").write_text(json.dumps(PROFILES))
        path = tmp_path / "trace.csv"
        path.write_text("\n".join([*rows, ""]))
        return path

    return write


def test_a_job_asks_for_what_its_model_wants_and_its_work_counts_with_that(trace):
    workload = FORMAT.read(trace("0,net,160,1000,4", "7,net,170.5,10,1"), {})
    assert workload.specs == [
        JobSpec("0", 160.0, Request.of(4, cpus=24.0, mem_gib=160.0), model="net"),
        JobSpec("7", 170.5, Request.of(1, cpus=6.0, mem_gib=40.0), model="net"),
    ]
    assert [truth.work for truth in workload.behaviours] == [250.0, 2.5]  # twice as fast
    assert workload.behaviours[0].sensitivity.at(3, 40) == 1.0


def test_profiles_can_be_elsewhere(trace, tmp_path):
    path = trace("0,net,160,1000,4")
    moved = (tmp_path / "synergy_profiles.json").rename(tmp_path / "mine.json")
    with pytest.raises(TraceError, match=r"--format synergy:profiles=FILE"):
        FORMAT.read(path, {})
    assert len(FORMAT.read(path, {"profiles": str(moved)})) == 1


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("1,net,5,10", "line 2: has 4 cells: give job number, model"),
        ("1,net,x,10,1", "line 2: submission: 'x' is not a number"),
        ("1,net,inf,10,1", "line 2: submission: 'inf' is not a number"),
        ("1,net,-5,10,1", "give a submission of 0 or more"),
        ("1,net,5,0,1", "whole GPUs and work"),
        ("1,net,5,10,1.5", "whole GPUs and work"),
        ("1,bert,5,10,1", "model 'bert' has no profile: known are net, untimed"),
        ("1,untimed,5,10,1", "'untimed' has no iter_time: add it"),
    ],
)
def test_a_bad_row_is_named_with_its_line(trace, row, says):
    with pytest.raises(TraceError, match=says):
        FORMAT.read(trace("0,net,160,1000,4", row), {})


@pytest.mark.parametrize(
    ("line", "sure"),
    [
        ("0,lstm,160,498636,4", 1.0),
        ("job_id,submit_s,gpus,duration_s,model", 0.0),
        ("1,2,3,4,5", 0.0),
        ("0,lstm,160,4", 0.0),
        ('{"a": 1}', 0.0),
    ],
)
def test_it_is_recognised_by_a_first_row_without_header(tmp_path, line, sure):
    path = tmp_path / "some.csv"
    path.write_text(line + "\n")
    head = first_look(path)
    assert FORMAT.recognises(head) == sure
    if sure:
        assert PLAIN.recognises(head) < sure
