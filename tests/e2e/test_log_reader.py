"""Whoever reads the daemon's log may go: the daemon goes on, and ends when it is told to."""

import os
import subprocess
import sys

from agents_net import eventually
from daemon_process import PATIENCE_S
from rota.sdk import Client


def test_a_daemon_outlives_the_reader_of_its_log(tmp_path, monkeypatch):
    state = tmp_path / "state"
    command = [
        sys.executable, "-m", "rota.cli", "serve", "--nodes", "1x1", "--backend", "pretend",
        "--listen", "127.0.0.1:0", "--state", str(state),
    ]  # fmt: skip
    reader, writer = os.pipe()
    daemon = subprocess.Popen(command, stdout=writer, stderr=writer)
    os.close(writer)
    try:
        eventually((state / "server.json").exists, PATIENCE_S, 0.05)
        os.close(reader)
        monkeypatch.setenv("ROTA_STATE", str(state))
        with Client(patience_s=PATIENCE_S) as client:
            job = client.submit({"run": "true", "envs": {"PRETEND_S": "0"}})
            assert client.wait(job.id).state == "SUCCEEDED"
        daemon.terminate()
        daemon.wait(PATIENCE_S)
    finally:
        daemon.kill()
        daemon.wait()
