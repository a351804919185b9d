"""`rota tune` as the kernel ends it: it goes on where it was, and ends with the same bytes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

ROTA = str(Path(sys.executable).with_name("rota"))
SPEC = """\
workloads: ['philly-like:max_s=86400,jobs=90']
clusters: [2x4]
policies: [slow.py]
loads: [1.3]
tune:
  space: {limit: [0, 1, 2, 3, 4, 5, 6, 7, 8]}
  min_jobs: 10
  repeats: 2
"""
SLOW = """\
import time
from pathlib import Path
from rota.core.policy import Params, PriorityPolicy

class SlowParams(Params, frozen=True):
    limit: int = 0

class Slow(PriorityPolicy[SlowParams]):
    Parameters = SlowParams

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        while Path("pause").exists() and len(list(Path("out/runs").glob("[!.]*"))) >= 11:
            time.sleep(0.02)

    def key(self, job, now_s):
        return (job.gpus > self.params.limit, job.submit_s)
"""
STARTED = 11  # runs: two of the second rung
PATIENCE_S = 300.0


def tuned(place):
    return subprocess.Popen(
        [ROTA, "tune", "slow.yaml", "--jobs", "2", "-o", "out"],
        cwd=place,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def places(tmp_path):
    """Return two folders with the same description."""
    made = []
    for name in ("killed", "whole"):
        place = tmp_path / name
        place.mkdir()
        (place / "slow.yaml").write_text(SPEC)
        (place / "slow.py").write_text(SLOW)
        made.append(place)
    return made


def finished(place):
    return {path.name: path.stat().st_ino for path in place.glob("out/runs/[!.]*")}


def test_a_killed_tuning_goes_on_and_ends_with_the_same_bytes(places):
    killed, whole = places
    (killed / "pause").touch()
    with tuned(killed) as process:
        try:
            end_s = time.monotonic() + PATIENCE_S
            while len(finished(killed)) < STARTED:
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < end_s
                time.sleep(0.02)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    (killed / "pause").unlink()
    before = finished(killed)
    shown = subprocess.run(
        [ROTA, "tune", "out", "--show"], cwd=killed, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 1
    assert "Not finished: 1 rungs are done; the same command goes on." in shown.stdout

    told = []
    for place in (killed, whole):
        with tuned(place) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        told.append(out)
    assert told[0] == told[1]
    assert before.items() <= finished(killed).items(), "nothing is done again"
    assert finished(killed).keys() == finished(whole).keys()
    for name in ("tune.json", "trials.csv", "report.html"):
        assert (killed / "out" / name).read_bytes() == (whole / "out" / name).read_bytes(), name
    assert not list(killed.glob("out/runs/.*"))
