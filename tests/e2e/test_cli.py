"""The installed command, as users run it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from agents_net import eventually

ROTA = Path(sys.executable).with_name("rota")


def rota(*args, cwd=None, **kwargs):
    return subprocess.run(
        [ROTA, *map(str, args)], capture_output=True, text=True, cwd=cwd, check=False, **kwargs
    )


def test_both_ways_to_call_it():
    module = subprocess.run(
        [sys.executable, "-m", "rota.cli", "--version"], capture_output=True, text=True, check=True
    )

    assert module.stdout == rota("--version").stdout


def test_from_a_generated_workload_to_a_proven_result(tmp_path):
    made = rota(
        "trace", "generate", "philly-like:max_s=86400", "--jobs", 300, "--cluster", "4x8",
        "--load", 1.2, "--seed", 1, "-o", "jobs.csv", cwd=tmp_path,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    report = rota(
        "compare", "jobs.csv", "--cluster", "4x8", "--policy", "fifo", "--policy", "srtf",
        "--jobs", 2, "-o", "report", cwd=tmp_path,
    )  # fmt: skip
    assert report.returncode == 0, report.stderr
    run = rota("simulate", "jobs.csv", "--cluster", "4x8", "--policy", "srtf", "-o", "out",
               cwd=tmp_path)  # fmt: skip
    assert run.returncode == 0, run.stderr

    same = (tmp_path / "out" / "jobs.csv").read_bytes()
    assert (tmp_path / "report" / "srtf" / "jobs.csv").read_bytes() == same
    data = json.loads((tmp_path / "report" / "compare.json").read_text())
    assert data["rows"][1]["ratio"] < 1
    again = rota("rerun", tmp_path / "out", cwd="/")
    assert (again.returncode, again.stdout) == (0, "same: event log and jobs.csv\n")


def test_the_numbers_of_a_real_workload(shared, tmp_path):
    """Strict first-in-first-out on a pool of GPUs, checked by a loop of ten lines."""
    trace = shared("reference/common/philly1000.csv")
    result = rota("simulate", trace, "--cluster", "16x8", "--policy", "fifo",
                  "--placement", "count", "-o", "out", cwd=tmp_path)  # fmt: skip
    assert result.returncode == 0, result.stderr

    running, now_s, free, ends = [], 0.0, 128, {}
    for job in pl.read_csv(trace).sort("submit_s", maintain_order=True).iter_rows(named=True):
        now_s = max(now_s, job["submit_s"])
        running.sort()
        while running and (running[0][0] <= now_s or free < job["num_gpus"]):
            end_s, gpus = running.pop(0)
            now_s = max(now_s, end_s)
            free += gpus
        free -= job["num_gpus"]
        ends[job["job_id"]] = now_s + job["duration_s"]
        running.append((ends[job["job_id"]], job["num_gpus"]))
    jobs = pl.read_csv(tmp_path / "out" / "jobs.csv")
    assert dict(jobs.select("job_id", "end_s").iter_rows()) == ends


@pytest.fixture
def slow(tmp_path):
    """Return a folder with a trace and a policy that takes long to decide."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,num_gpus,duration_s\n" + "".join(f"{i},{i},1,5\n" for i in range(1000))
    )
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "from rota.core.policy import Params, PriorityPolicy\n"
        "class Slow(PriorityPolicy[Params]):\n"
        "    def key(self, job, now_s):\n"
        "        pathlib.Path('decides').touch()\n"
        "        time.sleep(0.5)\n"
        "        return 0\n"
    )
    return tmp_path


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_nothing_behind(slow, how, code):
    before = set(slow.iterdir())
    process = subprocess.Popen(
        [ROTA, "simulate", "jobs.csv", "--cluster", "1x8", "--policy", "slow.py", "-o", "out"],
        cwd=slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    eventually((slow / "decides").exists)
    process.send_signal(how)
    out, err = process.communicate(timeout=300)

    assert process.returncode == code
    assert out == ""
    assert ("interrupted" in err) == (how == signal.SIGINT)
    assert "Traceback" not in err
    left = {path for path in slow.iterdir() if path.name not in ("__pycache__", "decides")}
    assert left == before


def test_a_reader_that_goes_away(tmp_path):
    command = f"{ROTA} policy ls | head -n 1"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip

    assert "Traceback" not in result.stderr
    assert "Exception" not in result.stderr


def test_only_data_on_stdout(tmp_path):
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,num_gpus,duration_s\n0,0,9,1\n1,0,1,1\n")
    result = rota("simulate", "jobs.csv", "--cluster", "1x8", "--policy", "fifo", "--json",
                  "-o", "out", cwd=tmp_path)  # fmt: skip

    assert json.loads(result.stdout)["states"]["rejected"] == 1
    assert "warning: job 0 was rejected" in result.stderr
