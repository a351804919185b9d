"""Folders that appear whole or not at all, and proofs that they can be made again."""

import json
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

import rota
from rota.core.errors import InputError, OutputError
from rota.core.unfinished import clear_abandoned
from rota.study.folder import OutputFolder
from rota.study.inputs import find_inputs, located
from rota.study.output import hash_log, read_manifest, write_run
from rota.study.rerun import rerun
from rota.study.run import simulate
from rota.traces.sources import replacing

FILES = {"jobs.csv", "summary.json", "events.parquet", "manifest.json"}


def names(folder):
    return {path.name for path in folder.iterdir()}


def write_and_fail(folder, error):
    with folder as output:
        (output.path / "jobs.csv").write_text("new")
        raise error


# --- the folder ----------------------------------------------------------------------------------


def test_a_new_folder_appears_when_everything_is_written(tmp_path):
    target = tmp_path / "a" / "b"
    with OutputFolder(target) as output:
        (output.path / "jobs.csv").write_text("x")
        assert not target.exists()

    assert names(target) == {"jobs.csv"}
    assert names(tmp_path / "a") == {"b"}


def test_an_error_leaves_no_trace(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_and_fail(OutputFolder(tmp_path / "a" / "b"), ZeroDivisionError)

    assert names(tmp_path) == set()


def test_an_interruption_leaves_no_trace(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(OutputFolder(tmp_path / "out"), KeyboardInterrupt)

    assert names(tmp_path) == set()


def test_an_empty_folder_is_filled(tmp_path):
    with OutputFolder(tmp_path) as output:
        (output.path / "jobs.csv").write_text("x")

    assert names(tmp_path) == {"jobs.csv"}


def test_a_folder_with_files_needs_force(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(OutputError, match=r"is not empty: .*--force"):
        OutputFolder(tmp_path)


def test_force_replaces_only_files_of_rota(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "jobs.csv").write_text("old")
    (tmp_path / "allocation.csv").write_text("old, and not made this time")
    with OutputFolder(tmp_path, force=True) as output:
        (output.path / "jobs.csv").write_text("new")

    assert names(tmp_path) == {"notes.txt", "jobs.csv"}
    assert (tmp_path / "jobs.csv").read_text() == "new"


def test_an_error_with_force_keeps_what_was_there(tmp_path):
    (tmp_path / "jobs.csv").write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_and_fail(OutputFolder(tmp_path, force=True), ZeroDivisionError)

    assert names(tmp_path) == {"jobs.csv"}
    assert (tmp_path / "jobs.csv").read_text() == "old"


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").write_text("x")

    with pytest.raises(OutputError, match="is a file"):
        OutputFolder(tmp_path / "out", force=True)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")

    with (
        pytest.raises(OutputError, match=r"cannot be written \(Not a directory\)"),
        OutputFolder(tmp_path / "file" / "out"),
    ):
        pytest.fail("must not get here")


def test_a_disk_error_while_writing_is_told_plainly(tmp_path):
    with (
        pytest.raises(OutputError, match="No space left"),
        OutputFolder(tmp_path / "out") as output,
    ):
        raise OSError(28, "No space left on device", str(output.path / "jobs.csv"))

    assert names(tmp_path) == set()


# --- the files -----------------------------------------------------------------------------------


@pytest.fixture
def folder(config, tmp_path):
    """Return a folder that a run has written."""
    made = tmp_path / "out"
    with OutputFolder(made) as output:
        write_run(simulate(config(policy="srtf")), output.path, ["rota", "simulate"])
    return made


def test_the_files_of_a_run(folder):
    assert names(folder) == FILES
    summary = json.loads((folder / "summary.json").read_text())
    jobs = pl.read_csv(folder / "jobs.csv")
    log = pl.read_parquet(folder / "events.parquet")

    assert summary["jobs"] == jobs.height == 5
    assert summary["avg_jct_s"] == jobs["jct_s"].mean()
    assert summary["cpu_s"] >= summary["engine_cpu_s"] > 0
    assert sum(summary["delay"].values()) == pytest.approx(jobs["wait_s"].sum())
    assert log["event"][-1] == "end"
    assert pl.read_parquet_metadata(folder / "events.parquet")["rota_schema"] == "1"


def test_the_summary_has_the_public_keys(folder):
    summary = json.loads((folder / "summary.json").read_text())

    assert set(summary) >= {
        "jobs", "completed", "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s",
        "makespan_s", "avg_bounded_slowdown", "gpu_utilisation", "preemptions", "migrations",
        "events", "decisions", "engine_cpu_s", "cpu_s", "jobs_per_cpu_s", "delay", "assumptions",
    }  # fmt: skip


def test_the_manifest_tells_where_it_came_from(folder, trace):
    manifest = read_manifest(folder)

    assert manifest.rota == rota.__version__
    assert manifest.command == ["rota", "simulate"]
    assert [(file.option, file.path) for file in manifest.inputs] == [("trace", str(trace))]
    assert manifest.log["sha256"] == hash_log(pl.read_parquet(folder / "events.parquet"))
    assert set(manifest.outputs) == {"jobs.csv", "events.parquet"}


def test_files_named_by_parameters_are_inputs(config, tmp_path):
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("duration\n5\n")
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("nodes: []\n")
    run = config(policy=f"gittins:distribution={sizes},levels=3", cluster=str(nodes))

    assert [(file.option, Path(file.path).name) for file in find_inputs(run)] == [
        ("trace", "jobs.csv"), ("cluster", "nodes.yaml"), ("policy", "sizes.csv"),
    ]  # fmt: skip


def test_relative_files_are_found_from_anywhere(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.csv").write_text("duration\n5\n")
    run = config(trace="jobs.csv", policy="gittins:distribution=sizes.csv")
    found = located(run, find_inputs(run))

    assert found.trace == str(tmp_path / "jobs.csv")
    assert found.policy == f"gittins:distribution={tmp_path / 'sizes.csv'}"


# --- again ---------------------------------------------------------------------------------------


def test_a_rerun_is_the_same(folder):
    verdict = rerun(folder)

    assert verdict.same
    assert verdict.problems == verdict.notes == []


def test_a_rerun_works_from_another_folder(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with OutputFolder(Path("out")) as output:
        write_run(simulate(config(trace="jobs.csv")), output.path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert rerun(tmp_path / "out").same


def test_a_changed_trace_is_named(folder, trace):
    trace.write_text(trace.read_text() + "9,99,1,1,a\n")

    assert rerun(folder).problems == [f"trace {trace}: has changed since"]


def test_a_missing_trace_is_named(folder, trace):
    trace.unlink()

    assert rerun(folder).problems == [f"trace {trace}: is not there any more"]


def test_a_changed_table_is_found_and_the_line_is_named(folder):
    text = (folder / "jobs.csv").read_text()
    (folder / "jobs.csv").write_text(text.replace("1,b,4,10,10,30,", "1,b,4,10,10,31,"))
    (problem,) = rerun(folder).problems

    assert problem.startswith("jobs.csv: line 3 was '1,b,4,10,10,31,")


def test_a_changed_log_is_found(folder):
    log = pl.read_parquet(folder / "events.parquet")
    log.with_columns(time_s=pl.col("time_s") + 1).write_parquet(folder / "events.parquet")

    assert rerun(folder).problems == ["events.parquet: holds another log"]


def test_another_engine_would_be_found(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config"]["policy"] = "fifo"
    manifest["rota"] = "0.0.1"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    verdict = rerun(folder)

    assert {problem.split(":")[0] for problem in verdict.problems} == {
        "event log", "events.parquet", "jobs.csv",
    }  # fmt: skip
    assert verdict.notes == [f"made by Rota 0.0.1, this is {rota.__version__}"]


def test_what_is_no_folder_of_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"manifest\.json: cannot be read"):
        rerun(tmp_path)
    (tmp_path / "manifest.json").write_text('{"manifest": 1')
    with pytest.raises(InputError, match="is not a manifest"):
        rerun(tmp_path)


def test_the_hash_of_a_log_does_not_depend_on_how_many_texts_are_hashed_at_a_time(monkeypatch):
    names = ("time_s", "event", "job", "ref", "other", "value")
    numbers = {name: [1.0, 2.0, 3.0] for name in names}
    log = pl.DataFrame({**numbers, "text": ["a", None, "b\x1e"]})
    digest = sha256(b"".join(log[name].to_numpy().tobytes() for name in numbers))
    digest.update(b"a\x1e\x00\x1eb\x1e")
    for some in (1, 2, 3, 65_536):
        monkeypatch.setattr("rota.study.output.TEXTS", some)
        assert hash_log(log) == digest.hexdigest()


@pytest.mark.parametrize("there", [False, True])
def test_what_a_killed_process_left_goes_with_the_next(tmp_path, there):
    target = tmp_path / "out"
    if there:
        target.mkdir()
    place = target if there else tmp_path
    with OutputFolder(target) as working:  # somebody is at it
        left = place / ".out.4711.part"
        left.mkdir()
        (left / "jobs.csv").write_text("half")
        other = place / ".others.4711.part"
        other.mkdir()
        (tmp_path / "out[1]").mkdir()  # names are no patterns
        OutputFolder(target, force=True)
        assert not left.exists()
        assert working.path.is_dir()
        assert other.is_dir()
        (working.path / "jobs.csv").write_text("whole")
    assert (target / "jobs.csv").read_text() == "whole"
    assert {path.name for path in place.iterdir()} >= {other.name}


def test_a_file_that_a_killed_process_left_goes_with_the_next(tmp_path):
    (tmp_path / ".jobs.csv.4711.part").write_text("half")
    with replacing(tmp_path / "jobs.csv") as part:
        part.write_text("whole")
        clear_abandoned(tmp_path / "jobs.csv")  # does not take it for one that was left
    assert names(tmp_path) == {"jobs.csv"}
