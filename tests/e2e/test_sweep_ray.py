"""The same sweep, and the same tuning, on a Ray cluster of three nodes in a network of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ray_cluster import ALONE, require_ray
from sweeping import COMMAND, rota_sweep, tables

NODES = 3
PATIENCE_S = 800.0  # a guard against hanging only
SPEC = """\
workloads: [jobs.csv, {name: drawn, generate: gavel-like, jobs: 40}]
clusters: [machines.yaml]
policies: [fifo, mine.py]
parameters: {costs: [zero, pollux30]}
loads: [0.8, 1.1]
seeds: 2
options: {estimate_error: cv=0.5}
"""
MINE = """\
import time
import ray
from rota.core.policy import PriorityPolicy

def nodes():
    with open(WHERE) as file:
        return set(file.read().split())

if ray.is_initialized():  # we are on the cluster
    with open(WHERE, "a") as file:
        file.write(ray.get_runtime_context().get_node_id() + "\\n")
    until = time.monotonic() + 120  # a guard: who has one holds its node until all have one
    while len(nodes()) < MANY and time.monotonic() < until:
        time.sleep(0.05)

class Mine(PriorityPolicy):
    def key(self, job, now_s):
        return (-job.submit_s,)
"""
DEADLY = """\
import os, signal
from rota.core.policy import PriorityPolicy

class Deadly(PriorityPolicy):
    def key(self, job, now_s):
        os.kill(os.getpid(), signal.SIGKILL)
"""
DRIVER = """\
import json, subprocess, sys
from ray.cluster_utils import Cluster

size = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
cluster = Cluster(
    initialize_head=True,
    head_node_args={**size, "include_dashboard": False, "temp_dir": sys.argv[1]},
)
for _ in range(int(sys.argv[2]) - 1):
    cluster.add_node(**size)
cluster.wait_for_nodes()
answers = {}
for name, command in json.loads(sys.argv[3]).items():
    options = ["--on", "ray", "--ray-address", cluster.address, "-o", name]
    done = subprocess.run([*command, f"{name}.yaml", *options], capture_output=True, text=True)
    answers[name] = [done.returncode, done.stderr]
cluster.shutdown()
with open("answers.json", "w") as file:
    json.dump(answers, file)
"""
TUNED = """\
workloads: [jobs.csv, {name: drawn, generate: gavel-like, jobs: 40}]
clusters: [2x4]
policies: [tiresias]
loads: [1.2]
tune:
  space: {limits: [50, 200, 800], promote: [0, 2]}
  min_jobs: 13
  repeats: 2
"""


@pytest.fixture
def inside():
    """Return the beginning of a command that runs the rest in a network with loopback only."""
    require_ray()
    return list(ALONE)


def test_three_nodes_give_the_same_table_as_this_machine(inside, tmp_path):
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,num_gpus,duration_s\n"
        + "".join(f"{i},{i * 37 % 400},{1 + i % 3},{50 + i * 13 % 90}\n" for i in range(40))
    )
    (tmp_path / "machines.yaml").write_text("nodes: 2x4\n")
    (tmp_path / "mine.py").write_text(
        MINE.replace("WHERE", repr(str(tmp_path / "nodes.txt"))).replace("MANY", str(NODES))
    )
    (tmp_path / "deadly.py").write_text(DEADLY)
    (tmp_path / "same.yaml").write_text(SPEC)
    (tmp_path / "deadly.yaml").write_text(
        "workloads: [jobs.csv]\nclusters: [2x4]\npolicies: [fifo, deadly.py]\n"
    )
    here = rota_sweep("same.yaml", "--jobs", 2, "-o", "here", cwd=tmp_path)
    assert here.returncode == 0, here.stderr
    (tmp_path / "tuned.yaml").write_text(TUNED)
    tune = [*COMMAND[:-1], "tune"]
    tuned = subprocess.run(
        [*tune, "tuned.yaml", "--jobs", "2", "-o", "found"], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr

    commands = {"same": COMMAND, "deadly": COMMAND, "tuned": tune}
    scratch = tempfile.mkdtemp(prefix="rota-ray-")  # its sockets need a short path
    session = Path(scratch) / "ray"
    session.mkdir()
    try:
        driven = subprocess.run(
            [*inside, sys.executable, "-c", DRIVER, session, str(NODES), json.dumps(commands)],
            cwd=tmp_path,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": scratch},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    assert driven.returncode == 0, driven.stderr
    answers = json.loads((tmp_path / "answers.json").read_text())

    code, told = answers["same"]
    assert code == 0, told
    assert "32 runs done, 0 found, 0 failed" in told
    assert tables(tmp_path / "same") == tables(tmp_path / "here")
    assert len(set((tmp_path / "nodes.txt").read_text().split())) == NODES
    again = rota_sweep("same.yaml", "-o", "same", cwd=tmp_path)  # here, from what Ray has done
    assert "0 runs done, 32 found, 0 failed" in again.stderr

    code, told = answers["deadly"]
    assert code == 1
    assert "1 run done, 0 found, 1 failed" in told
    (failure,) = json.loads((tmp_path / "deadly" / "failures.json").read_text())
    assert failure["labels"]["policy"] == "deadly.py"
    assert "WorkerCrashedError" in failure["error"]

    code, told = answers["tuned"]
    assert code == 0, told
    here, there = tmp_path / "found", tmp_path / "tuned"
    assert (there / "trials.csv").read_bytes() == (here / "trials.csv").read_bytes()
    ours, theirs = (json.loads((folder / "tune.json").read_text()) for folder in (here, there))
    assert theirs["rungs"] == ours["rungs"]
    assert theirs["judgement"] == ours["judgement"]
    assert len(ours["rungs"]) > 1
