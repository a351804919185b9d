"""Rota's own event log as a history."""

import json

import polars as pl
import pytest

from rota.core.errors import TraceError
from rota.study.config import RunConfig
from rota.study.output import write_run
from rota.study.run import simulate
from rota.traces.formats.rota_log import FORMAT
from rota.traces.sniff import first_look
from trace_readers import counted

JOBS = """\
job_id,submit_s,num_gpus,duration_s,vc
a,0,8,100,x
b,10,4,50,y
c,20,4,30,x
d,30,99,1,x
"""


@pytest.fixture
def run(tmp_path):
    """Return `run(policy)`: a folder with a run of four jobs on 2 nodes of 4 GPUs."""
    trace = tmp_path / "jobs.csv"
    trace.write_text(JOBS)

    def make(policy):
        result = simulate(RunConfig(trace=str(trace), cluster="2x4", policy=policy))
        folder = tmp_path / policy
        folder.mkdir()
        write_run(result, folder)
        return folder

    return make


def test_jobs_attempts_and_nodes(run):
    imported = FORMAT.load(run("fifo"), {})
    assert counted(imported.quality)
    assert imported.jobs.select("job_id", "submit_s", "num_gpus", "duration_s", "vc").rows() == [
        ("a", 0.0, 8.0, 100.0, "x"), ("b", 10.0, 4.0, 50.0, "y"), ("c", 20.0, 4.0, 30.0, "x"),
    ]  # fmt: skip
    assert imported.observed.frame.select("job", "start_s", "end_s", "nodes", "gpus").rows() == [
        (0, 0.0, 100.0, ["n0", "n1"], [4.0, 4.0]),
        (1, 100.0, 150.0, ["n0"], [4.0]),
        (2, 100.0, 130.0, ["n1"], [4.0]),
    ]
    assert [(node.name, node.gpus) for node in imported.cluster] == [("n0", 4), ("n1", 4)]
    assert sum(imported.quality.dropped.values()) == 1


def test_a_preempted_job_has_several_attempts(run):
    imported = FORMAT.load(run("srtf") / "events.parquet", {})
    assert imported.jobs["duration_s"].to_list() == [100.0, 50.0, 30.0]
    first = imported.observed.frame.filter(pl.col("job") == 0)
    assert first["state"].to_list() == ["preempted", "done"]


@pytest.mark.parametrize("end", ["done", "failed", "cancelled", "timeout"])
def test_a_job_that_ends_after_it_was_stopped_is_over(run, tmp_path, end):
    """Its command ended while it was told to stop, or it was cancelled before it went on."""
    log = pl.read_parquet(run("srtf") / "events.parquet")
    stopped_s = log.filter(pl.col("event") == "stop")["time_s"][0]
    is_first = pl.col("job") == 0
    before = log.filter(~is_first | (pl.col("time_s") <= stopped_s) & (pl.col("event") != "queued"))
    last = log.filter(is_first & (pl.col("event") == "done")).with_columns(
        event=pl.lit(end).cast(log.schema["event"])
    )
    pl.concat([before, last]).write_parquet(tmp_path / "over.parquet")
    imported = FORMAT.load(tmp_path / "over.parquet", {})
    assert imported.observed.frame.filter(pl.col("job") == 0)["state"].to_list() == [end]
    assert imported.quality.repaired == {}


def test_a_folder_is_recognised_and_other_files_are_refused(run, tmp_path):
    assert FORMAT.recognises(first_look(run("fifo"))) == 1.0
    assert FORMAT.recognises(first_look(tmp_path / "jobs.csv")) == 0.0
    with pytest.raises(TraceError, match="not an event log"):
        FORMAT.load(tmp_path / "jobs.csv", {})
    with pytest.raises(TraceError, match="there is no such file"):
        FORMAT.load(tmp_path, {})
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(TraceError, match="not an event log"):
        FORMAT.load(tmp_path / "x.parquet", {})


def test_the_log_of_a_daemon_also_tells_users_and_machines(run, tmp_path):
    log = pl.read_parquet(run("fifo") / "events.parquet")
    made = {
        "rota": "1", "jobs": [["b", "bob", {}], ["a", "ann", {}, 90], ["c", "", {}, "x"]],
        "nodes": [{"name": "n0", "gpus": 4, "gpu_type": "a100"}, {"name": "n1", "gpus": 4}],
    }  # fmt: skip
    path = tmp_path / "live.parquet"
    log.write_parquet(path, metadata={"rota_run": json.dumps(made)})
    imported = FORMAT.load(path, {})
    assert imported.jobs["user"].to_list() == ["ann", "bob", ""]
    assert imported.jobs["estimate_s"].to_list() == [90.0, None, None]
    assert [(node.name, node.gpu_type) for node in imported.cluster] == [("n0", "a100"), ("n1", "")]


def test_a_job_that_runs_at_the_end_is_cut_and_tasks_are_taken_together(run, tmp_path):
    log = pl.read_parquet(run("fifo") / "events.parquet")
    whole = log.filter(pl.col("time_s") < 130)
    whole.write_parquet(tmp_path / "cut.parquet")
    imported = FORMAT.load(tmp_path / "cut.parquet", {})
    assert imported.observed.frame["end_s"].to_list() == [100.0, None, None]
    assert imported.quality.kept == 3
    trace = tmp_path / "tasks.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s,gang\na,0,12,10,no\n")
    result = simulate(RunConfig(trace=str(trace), cluster="2x4", policy="fifo"))
    result.log.write_parquet(tmp_path / "tasks.parquet")
    imported = FORMAT.load(tmp_path / "tasks.parquet", {})
    assert imported.observed.frame.select("start_s", "end_s", "nodes").rows() == [(0.0, 20.0, [])]
