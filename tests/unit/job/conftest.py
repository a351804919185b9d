"""A job's process: its environment, and scripts that are run like jobs."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from rota.job import reports, stops

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
)


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    """Begin outside Rota, in an empty folder, with nothing installed; put SIGTERM back."""
    for name in [name for name in os.environ if name.startswith("ROTA_") or name in NAMES]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stops, "_state", stops._StopState())
    stops._state.watches_forks = True  # the test's process shall not be changed for good
    monkeypatch.setattr(reports, "_reporter", reports._Reporter())
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    folder = tmp_path / "kept"
    monkeypatch.setenv("ROTA_CHECKPOINT_DIR", str(folder))
    return folder


@pytest.fixture
def reported(tmp_path, monkeypatch):
    path = tmp_path / "reports"
    monkeypatch.setenv("ROTA_REPORT_FILE", str(path))
    return path


@pytest.fixture
def spawn():
    """Return `spawn(script)`: a Python process that prints `ready` when it may be signalled."""
    running = []

    def start(script, **env):
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(script)],
            env=os.environ | env,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()
