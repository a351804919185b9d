"""`rota sweep` as users run it, and as the kernel ends it."""

import json
import os
import signal
import subprocess
import time
from contextlib import ExitStack, suppress

import psutil
import pytest

from rota.cli.app import run
from sweeping import COMMAND, rota_sweep, tables

SPEC = """\
name: slow
workloads: ['philly-like:max_s=86400,jobs=60']
clusters: [2x4]
policies: [srtf, slow.py]
loads: [0.8, 1.2]
seeds: 5
"""
SLOW = """\
import time
from pathlib import Path
from rota.core.policy import PriorityPolicy

class Slow(PriorityPolicy):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        while Path("pause").exists() and len(list(Path("out/runs").glob("[!.]*"))) >= 6:
            time.sleep(0.02)

    def key(self, job, now_s):
        return (job.submit_s,)
"""
RUNS = 20
PATIENCE_S = 300.0


@pytest.fixture
def place(tmp_path):
    (tmp_path / "slow.yaml").write_text(SPEC)
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def finished(folder):
    """Return the runs that are there, with what would change if they were done again."""
    stats = {path.name: path.stat() for path in folder.glob("runs/[!.]*")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


@pytest.fixture
def start(place):
    """Return `start(*args)`: a sweep in a group of processes of its own."""
    with ExitStack() as stack:

        def begin(*args):
            process = subprocess.Popen(
                [*COMMAND, *args],
                cwd=place,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(kill, process.pid)
            return process

        yield begin


def kill(group):
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def wait_for_runs(process, folder, count):
    end_s = time.monotonic() + PATIENCE_S
    while len(finished(folder)) < count:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_a_killed_sweep_goes_on_where_it_was_and_ends_with_the_same_table(place, start):
    (place / "pause").touch()
    process = start("slow.yaml", "--jobs", "2", "-o", "out")
    wait_for_runs(process, place / "out", 6)
    kill(process.pid)
    process.wait()
    (place / "pause").unlink()
    before = finished(place / "out")
    assert 6 <= len(before) < RUNS
    shown = rota_sweep("out", "--show", cwd=place)
    assert shown.returncode == 1
    assert f"{RUNS - len(before)} runs are not done yet" in shown.stderr

    again = rota_sweep("slow.yaml", "--jobs", 2, "-o", "out", cwd=place)
    whole = rota_sweep("slow.yaml", "--jobs", 1, "-o", "whole", cwd=place)

    assert (again.returncode, whole.returncode) == (0, 0), again.stderr + whole.stderr
    done = RUNS - len(before)
    assert f"{done} runs done, {len(before)} found, 0 failed" in again.stderr
    assert before.items() <= finished(place / "out").items()
    assert tables(place / "out") == tables(place / "whole")
    assert again.stdout == whole.stdout
    assert not list(place.glob("out/runs/.*"))


def test_two_sweeps_do_not_write_to_one_folder(place, start):
    process = start("slow.yaml", "--jobs", "1", "-o", "out")
    wait_for_runs(process, place / "out", 1)
    process.send_signal(signal.SIGSTOP)
    refused = rota_sweep("slow.yaml", "-o", "out", cwd=place)
    assert refused.returncode == 1
    assert f"another sweep writes here (process {process.pid})" in refused.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_sweep_that_is_told_to_stop_ends_its_processes(place, start, number, code):
    (place / "pause").touch()
    process = start("slow.yaml", "--jobs", "2", "-o", "out")
    wait_for_runs(process, place / "out", 2)
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, told
    if number == signal.SIGINT:
        assert "runs are done; the same command goes on with the others" in told
    assert 3 <= (place / "out" / "results.csv").read_text().count("\n") <= RUNS
    end_s = time.monotonic() + PATIENCE_S
    while alive(process.pid):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def alive(group):
    """Tell whether a process of the group is there, other than those nobody has buried."""
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def test_a_dry_run_lists_the_runs_and_does_none(place):
    result = rota_sweep("slow.yaml", "--dry-run", "-o", "out", cwd=place)
    assert result.returncode == 0
    assert result.stderr == f"{RUNS} runs, 0 of them done already\n"
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines.count(["philly-like:max_s=86400,jobs=60", "2x4", "slow.py", "1.2", "4"]) == 1
    assert not (place / "out").exists()


def test_failures_are_told_and_recorded_and_the_table_has_the_others(place):
    (place / "slow.py").write_text(SLOW.replace("return", "raise ValueError(1) #"))
    result = rota_sweep("slow.yaml", "--jobs", 2, "--json", "-o", "out", cwd=place)
    assert result.returncode == 1
    assert result.stderr.count("failed: workload=") == 10
    assert "policy=slow.py, load=1.2, seed=4: ValueError: 1\n" in result.stderr
    assert "10 runs done, 0 found, 10 failed" in result.stderr
    assert len(json.loads(result.stdout)) == 10
    assert len(json.loads((place / "out" / "failures.json").read_text())) == 10


def test_mistakes_are_told_without_a_traceback(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    for args, told in {
        ("no.yaml", "-o", "out"): "no.yaml: there is no such file",
        ("slow.yaml",): "Missing option '-o'",
        (".", "-o", "out"): "is a folder: name a YAML file, or add --show",
        (".", "--show"): "name a folder that `rota sweep` made",
        ("slow.yaml", "-o", "out", "--on", "ray", "--jobs", "2"): "--jobs is for --on local",
    }.items():
        code, err = run(["sweep", *args]), capsys.readouterr().err
        assert code == 2, args
        assert told in err
        assert "Traceback" not in err
