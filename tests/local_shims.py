"""A folder with an order, and the shim that carries it out."""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

from agents_net import alive, eventually, marked
from rota.live.agent import shim


class ShimFolder:
    """The folder of one run."""

    def __init__(self, path, script, *, setup="", processes=1, **order):
        self.path = path
        path.mkdir(0o700)
        self.key = secrets.token_hex(8)
        (path / "run.sh").write_text(script)
        (path / "setup.sh").write_text(setup)
        (path / "exit.reserved").write_text(" " * 4096)
        self.order = {
            "key": self.key,
            "setup": "setup.sh" if setup else "",
            "run": "run.sh",
            "workdir": str(path),
            "env": {"ROTA_RUN_KEY": self.key},
            "unset": [],
            "processes": [{"RANK": str(rank)} for rank in range(processes)],
            "grace_s": 5.0,
            "out": str(path / "0.out"),
            "err": str(path / "0.err"),
            "order": str(path / "0.order"),
            "log_limit": 1 << 20,
            "log_keep": 3,
            "wake": str(path / "nobody"),
            "lease": "",
        } | order
        (path / "order.json").write_text(json.dumps(self.order))
        self.process = None

    def start(self, *wrapper):
        """Start the shim, perhaps by another command."""
        command = [*wrapper, sys.executable, "-I", "-S", shim.__file__, str(self.path)]
        self.process = subprocess.Popen(command, start_new_session=True)
        return self

    def running(self):
        """Wait until the job runs."""
        eventually((self.path / "running").exists)
        return self

    def ask(self, how="halt"):
        """Ask the shim to stop."""
        shim.write_whole(str(self.path / "stop"), how)
        os.kill(self.process.pid, shim.NEWS)

    def end(self):
        """Wait for the shim; the record of the end."""
        assert self.process.wait(300) == 0
        return json.loads((self.path / "exit.json").read_text())

    def out(self, name="0.out"):
        """Return the output."""
        return (self.path / name).read_text()

    def pid(self, name):
        """Return a process id that the job has written to a file."""
        path = self.path / name
        eventually(lambda: path.exists() and path.read_text().strip())
        return int(path.read_text())

    def close(self):
        """Leave nothing behind."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in marked(self.key):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        cgroup = self._cgroup()
        if cgroup and Path(cgroup).is_dir():
            eventually(lambda: not shim.read(f"{cgroup}/cgroup.procs").strip())
            Path(cgroup).rmdir()

    def _cgroup(self):
        path = self.path / "identity.json"
        return json.loads(path.read_text())["cgroup"] if path.exists() else ""


def fill(disk):
    """Leave no space on a disk."""
    size = 1 << 16
    with (disk / "filler").open("wb", buffering=0) as file:
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
