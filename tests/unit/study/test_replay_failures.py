"""Nodes that failed in a log fail in its replay, whatever the policy."""

import polars as pl
import pytest

from own_formats import DAY, HEADER, NODES, line
from rota.study.explain import explain_folder
from rota.study.replay.replay import Asked, replay
from rota.study.rerun import rerun
from rota.traces.formats.store import save
from rota.traces.read import read_trace


def times(submit, start, end):
    told = {"Submit": submit, "Eligible": submit, "Start": start, "End": end}
    clock = {key: f"{DAY}08:{s // 60:02d}:{s % 60:02d}" for key, s in told.items()}
    tres = "cpu=4,gres/gpu=4,mem=4G,node=1"
    return {**clock, "ElapsedRaw": str(end - start), "ReqTRES": tres, "AllocTRES": tres}


@pytest.fixture
def log(tmp_path):
    """Return a log in which n1 fails after 100 s, and is seen again after 300 s."""
    lines = [
        line("1", State="NODE_FAIL", **times(0, 0, 100)),
        line("1", **times(100, 300, 500)),
        line("2", NodeList="n2", **times(0, 0, 600)),
    ]
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *lines]) + "\n")
    (tmp_path / "nodes.txt").write_text(NODES)
    return tmp_path


def run(log, form=None, stored=None):
    out = log / ("again" if stored else "out")
    out.mkdir()
    nodes = None if stored else str(log / "nodes.txt")
    trace = stored or str(log / "jobs.txt")
    return replay(Asked(log=trace, nodes=nodes, policies=("fifo",), format=form), out, out)


@pytest.mark.parametrize(
    ("form", "end_s", "evictions"),
    [
        (None, 500.0, 1),  # it starts over: 200 s from 300 s on
        ("sacct:runtime=sum", 500.0, 1),  # it goes on: 200 of 300 s are left
        ("sacct:failures=none", 200.0, 0),
    ],
)
def test_nodes_fail_as_in_the_log_and_nothing_is_counted_twice(log, form, end_s, evictions):
    answer = run(log, form)
    observed, fifo = answer.schedules
    assert observed.jobs["job_id"].to_list() == fifo.jobs["job_id"].to_list() == ["1", "2"]
    assert fifo.jobs["end_s"].to_list() == [end_s, 600.0]
    assert fifo.log.filter(pl.col("event") == "node_down").height == evictions
    assert answer.recorded.exact == 2
    assert observed.jobs["end_s"].to_list() == [500.0, 600.0]
    assert rerun(log / "out" / "fifo").same
    stored = save(read_trace(log / "jobs.txt", f"{form or 'sacct'}"), log / "stored")
    again = run(log, "rota", str(stored))
    assert again.schedules[-1].jobs["end_s"].to_list() == [end_s, 600.0]


def test_the_failure_is_why_the_job_waited_and_the_assumption_is_told(log):
    answer = run(log)
    assert any("1 outage of a node from NODE_FAIL" in text for text in answer.warnings)
    assert any("runtime=last" in text for text in answer.warnings)
    story = explain_folder(log / "out" / "observed", "1")
    assert [(part.reason, part.seconds) for part in story.parts] == [("down", 200.0)]
    assert "n1" in story.text


def test_without_a_list_nodes_have_the_gpus_that_jobs_asked_for_by_type(log):
    typed = {"ReqTRES": "cpu=1,gres/gpu:a100=2,node=1", "AllocTRES": "cpu=1,gres/gpu=2,node=1"}
    (log / "jobs.txt").write_text("\n".join([HEADER, line("1", **typed), line("2")]) + "\n")
    out = log / "out"
    out.mkdir()
    answer = replay(Asked(log=str(log / "jobs.txt"), policies=("fifo",)), out, out)
    assert [(node.name, node.gpu_type) for node in answer.nodes] == [("n1", "a100")]
    assert answer.schedules[-1].jobs["state"].to_list() == ["done", "done"]
