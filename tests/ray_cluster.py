"""A real Ray on this machine: several nodes in a network of their own, which dies with the test."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from needs import ROOT, SYSTEM, need

ALONE = (
    "unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child",
    "bash", "-c", 'ip link set lo up; exec "$@"', "bash",
)  # fmt: skip
"""Runs the rest of a command in a network with loopback only; when it ends, all of it is gone."""

# Says {"address": ...} when all nodes are there, then obeys: `kill NAME`, `add NAME`, each with an
# answer. The head has no GPUs.
DRIVER = """
import json, sys
from ray.cluster_utils import Cluster

folder, count, gpus = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
size = {"num_cpus": 0, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
lean = {"prestart_worker_first_driver": False, "health_check_initial_delay_ms": 1000,
        "health_check_period_ms": 500, "health_check_timeout_ms": 5000}
head = {**size, "include_dashboard": False, "temp_dir": folder, "_system_config": lean}
cluster = Cluster(initialize_head=True, head_node_args={**head, "node_name": "head"})
nodes = {}

def add(name):
    nodes[name] = cluster.add_node(**size, num_gpus=gpus, node_name=name)

def kill(name):
    cluster.remove_node(nodes.pop(name), allow_graceful=False)

for number in range(count):
    add(f"n{number + 1}")
cluster.wait_for_nodes()
print(json.dumps({"address": cluster.address}), flush=True)
for line in sys.stdin:
    what, name = line.split()
    {"add": add, "kill": kill}[what](name)
    print(json.dumps({"did": what}), flush=True)
"""


def require_ray() -> None:
    """Skip the test where there can be no Ray cluster; fail it in CI."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    need(not missing, f"{', '.join(missing)}, for a Ray cluster in a network of its own", SYSTEM)
    need(find_spec("ray") is not None, "the Python package ray", "make test")
    need(os.geteuid() == 0, "root, for a Ray cluster in a network of its own", ROOT)


class RayCluster:
    """Nodes n1, n2, ... with as many GPUs each; `python` is an interpreter in their network."""

    def __init__(self, *, nodes: int = 4, gpus: int = 4) -> None:
        self._nodes, self._gpus = nodes, gpus

    def __enter__(self) -> Self:
        self.base = Path(tempfile.mkdtemp(prefix="rota-ray-"))  # its sockets need a short path
        (self.base / "ray").mkdir()
        self.folder = self.base / "jobs"
        self._log = (self.base / "log").open("wb")
        words = [sys.executable, "-c", DRIVER, self.base / "ray", self._nodes, self._gpus]
        self._process = subprocess.Popen(
            [*ALONE, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True, start_new_session=True,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": str(self.base)},
        )  # fmt: skip
        try:
            self.address = self._hear()["address"]
            self._make_python()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _hear(self) -> dict:
        line = self._process.stdout.readline()
        assert line, (self.base / "log").read_text()[-3000:]
        return json.loads(line)

    def _make_python(self) -> None:
        pid = self._process.pid
        (inside,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.python = self.base / "python"
        enter = f"nsenter --target {inside} --net --pid --mount"
        self.python.write_text(
            f'#!/bin/sh\nTMPDIR={self.base} exec {enter} {sys.executable} "$@"\n'
        )
        self.python.chmod(0o755)

    def _tell(self, what: str, name: str) -> None:
        self._process.stdin.write(f"{what} {name}\n")
        self._process.stdin.flush()
        assert self._hear() == {"did": what}

    def kill(self, name: str) -> None:
        """Kill all processes of Ray on a node."""
        self._tell("kill", name)

    def add(self, name: str) -> None:
        """A node joins."""
        self._tell("add", name)

    @property
    def settings(self) -> dict:
        """How a daemon finds it."""
        return {
            "address": self.address, "python": str(self.python), "folder": str(self.folder),
            "poll_s": 0.2,
        }  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # and with it, by --kill-child, everybody in there
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()
        shutil.rmtree(self.base, ignore_errors=True)
