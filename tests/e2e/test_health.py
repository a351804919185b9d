"""A machine whose GPUs are not well gets nothing more to do, on a real daemon and a real agent."""

import shlex
import sys

from agents_net import eventually
from daemon_process import PATIENCE_S

CHECK = """
import sys
from pathlib import Path

said = Path(sys.argv[1])
if said.exists():
    print(said.read_text())
    sys.exit(1)
"""


def test_a_node_is_drained_while_its_check_fails(daemons, tmp_path, monkeypatch):
    program, trouble = tmp_path / "check.py", tmp_path / "trouble"
    program.write_text(CHECK)
    command = shlex.join([sys.executable, str(program), str(trouble)])
    config = tmp_path / "rota.yaml"
    config.write_text(f"cluster: 1x1\nlocal:\n  health_check: {command}\n")
    trouble.write_text("GPU 0 has 7 uncorrected memory errors")
    daemon = daemons("--config", config)

    def node():
        return daemon.client.nodes()[0]

    eventually(lambda: node().state == "drained", PATIENCE_S)
    assert node().why == "unhealthy: GPU 0 has 7 uncorrected memory errors"
    job = daemon.submit("true")
    daemon.kill()
    daemon.start()
    eventually(lambda: node().state == "drained", PATIENCE_S)
    assert daemon.state_of(job) == "PENDING"
    daemon.rota("undrain", "n0")
    eventually(lambda: daemon.state_of(job) == "SUCCEEDED", PATIENCE_S)
