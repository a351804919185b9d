"""Simulator = reality: costs that are fitted to one live run predict another."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from daemon_process import ROTA, clean_environ, serving
from rota.core.errors import ForbiddenError
from rota.metrics.jobs import COLUMNS
from rota.sdk import Client
from rota.study.calibration.calibrate import calibrate, check
from rota.traces.read import read_workload
from shared_data import CHECKOUT

EXAMPLE = CHECKOUT / "examples" / "calibration"
START_S, STOP_S = 2.0, 1.0  # planted by `work.yaml`
RECOVERED, PREDICTED = 0.15, 0.05  # how far off we may be
PYTHON_FIRST = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
POLICIES = {"fit": "tiresias:limits=6", "other": "srtf"}


def run_live(folder, name, policy, *, limit):
    """Run the first jobs of a trace of the example on a daemon; the exported run."""
    args = ("--nodes", "2x2", "--policy", policy)
    with serving(folder / f"{name}-daemon", *args, env=PYTHON_FIRST) as daemon:
        done = subprocess.run(
            [sys.executable, EXAMPLE / "submit_trace.py", EXAMPLE / f"{name}.csv", "--limit",
             str(limit)],
            env=clean_environ(ROTA_STATE=daemon.state), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        daemon.rota("export", "-o", folder / name)
    return folder / name


def run_both(folder, *, limit):
    """Run both traces at the same time (the jobs sleep)."""
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(run_live, folder, name, policy, limit=limit)
            for name, policy in POLICIES.items()
        ]
        return [run.result() for run in runs]


def assert_calibrated(fitted, other):
    found = calibrate(fitted)
    stopped = found.fit.stop
    assert stopped.samples >= 3
    assert found.fit.first.value == pytest.approx(START_S, rel=RECOVERED)
    assert found.fit.again.value == pytest.approx(START_S, rel=RECOVERED)
    assert stopped.value == pytest.approx(STOP_S, rel=RECOVERED)
    seen = check(found, other)
    assert seen.policy == POLICIES["other"]
    mean_jct = next(error for error in seen.errors if error.metric == "mean JCT")
    assert abs(mean_jct.error) <= PREDICTED, f"{mean_jct}\n{found.errors}"


@pytest.mark.soak
def test_costs_fitted_to_one_run_predict_another_under_another_policy(tmp_path):
    """Times are tested, so the machine must be idle."""
    assert_calibrated(*run_both(tmp_path / "first", limit=14))


@pytest.mark.soak
def test_the_whole_example_predicts_as_well(tmp_path):
    runs = [run_live(tmp_path, name, policy, limit=40) for name, policy in POLICIES.items()]
    assert_calibrated(*runs)


def test_the_report_of_the_example_follows_from_its_runs(tmp_path):
    for name in ("fit-live", "other-live"):
        shutil.copytree(EXAMPLE / name, tmp_path / name)
    subprocess.run(
        [*ROTA, "calibrate", "fit-live", "--against", "other-live", "-o", "calibrated"],
        cwd=tmp_path, env=clean_environ(), check=True, capture_output=True,
    )  # fmt: skip
    shipped = sorted(path.name for path in (EXAMPLE / "calibrated").iterdir())
    assert "report.md" in shipped
    same, different, missing = filecmp.cmpfiles(
        EXAMPLE / "calibrated", tmp_path / "calibrated", shipped, shallow=False
    )
    assert (different, missing) == ([], [])
    data = json.loads((tmp_path / "calibrated" / "calibration.json").read_text())
    (error,) = (e for e in data["prediction"]["errors"] if e["metric"] == "mean JCT")
    assert abs(error["error"]) <= PREDICTED
    assert len(same) == len(shipped)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a daemon that ran three jobs, and the folder that it was exported to."""
    folder = tmp_path_factory.mktemp("export")
    with serving(folder / "daemon", "--nodes", "2x2", "--policy", "srtf") as daemon:
        jobs = [
            daemon.submit("sleep 0.3", gpus=gpus, queue=queue, estimate=1, envs={"KEY": "secret"})
            for gpus, queue in ((1, "a"), (2, "b"), (4, "a"))
        ]
        jobs.append(daemon.submit("true", hold=True))
        for job in jobs[:3]:
            daemon.until(job, "SUCCEEDED")
        daemon.rota("export", "-o", folder / "run")
        yield daemon, folder / "run"


def test_an_exported_run_looks_like_a_simulated_one(exported):
    _, run = exported
    table = pl.read_csv(run / "jobs.csv")
    assert tuple(table.columns) == COLUMNS
    assert table["state"].to_list() == ["done", "done", "done", "unfinished"]
    assert json.loads((run / "summary.json").read_text())["completed"] == 3
    assert pl.read_parquet_metadata(run / "events.parquet")["rota_schema"] == "1"
    config = json.loads((run / "manifest.json").read_text())["config"]
    assert config == {
        "trace": "workload.csv", "cluster": "2x2", "policy": "srtf", "placement": "consolidate",
        "admission": "accept-all", "seed": 0,
    }  # fmt: skip


def test_the_workload_of_a_run_has_what_was_observed(exported):
    _, run = exported
    jobs = list(read_workload(str(run / "workload.csv")))
    assert [spec.id for spec, _ in jobs] == ["1", "2", "3"]
    assert [spec.tenant for spec, _ in jobs] == ["a", "b", "a"]
    assert {spec.estimate_s for spec, _ in jobs} == {1.0}
    for _, behaviour in jobs:
        assert behaviour.work == pytest.approx(0.3, abs=0.1) or behaviour.work > 0.3


def test_what_jobs_execute_and_their_secrets_are_not_exported(exported):
    _, run = exported
    everything = b"".join(path.read_bytes() for path in run.iterdir())
    assert b"srtf" in everything
    assert b"secret" not in everything
    assert b"sleep" not in everything


def test_an_exported_run_can_be_simulated(exported, tmp_path):
    daemon, run = exported
    daemon.rota("simulate", run / "workload.csv", "--cluster", "2x2", "--policy", "fifo", "-o",
                tmp_path / "out")  # fmt: skip
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["completed"] == 3


def test_a_live_run_cannot_be_made_again(exported):
    daemon, run = exported
    refused = daemon.rota("rerun", run, check=False)
    assert refused.returncode == 2
    assert "is a live run, which cannot be made again" in refused.stderr


def test_a_daemon_can_be_calibrated_by_its_url_and_by_its_state_folder(exported):
    daemon, run = exported
    results = [
        json.loads(daemon.rota("calibrate", place, "--runs", "2", "--json").stdout)["fit"]
        for place in (run, daemon.client.place.server, daemon.state)
    ]
    assert results[0]["first start"]["samples"] == 3
    assert results[1] == results[0]
    assert results[2] == results[0]


def test_the_jobs_of_a_daemon_are_predicted_under_its_own_name(exported):
    daemon, _ = exported
    url = daemon.client.place.server
    found = json.loads(daemon.rota("predict", url, "--json").stdout)
    assert (found["log"], found["jobs"]) == (url, 3)


def test_only_operators_may_export(exported):
    daemon, _ = exported
    token = daemon.client.create_token("somebody", "user")
    with (
        Client(daemon.client.place.server, token) as rota,
        pytest.raises(ForbiddenError, match="role operator"),
    ):
        rota.export()


def test_a_folder_that_is_nothing_of_rotas_is_refused(exported, tmp_path):
    daemon, _ = exported
    refused = daemon.rota("calibrate", tmp_path, check=False)
    assert refused.returncode == 2
    assert "name a folder with an event log" in refused.stderr
    refused = daemon.rota("export", "--state", tmp_path, "-o", tmp_path / "out", check=False)
    assert refused.returncode == 2
    assert "is not the state folder of a daemon" in refused.stderr
    assert not (tmp_path / "out").exists()
