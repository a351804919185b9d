"""`rota why` and `rota when` beside a real Slurm: its own order, and nothing is changed."""

import json
import os
import subprocess
import sys

import pytest

from agents_net import eventually
from slurm_cluster import SlurmCluster, require_slurm

require_slurm()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), 2, 4) as cluster:
        yield cluster


def submit(slurm, folder, *options):
    done = slurm.call(
        "sbatch", "--parsable", f"--chdir={folder}", "--output=/dev/null", "--time=30", *options,
        "--wrap", f"while [ ! -e {folder}/go ]; do sleep 0.1; done",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def rota(slurm, *args):
    done = subprocess.run(
        [sys.executable, "-m", "rota.cli", *args], env={**os.environ, **slurm.env},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def pending(slurm):
    """Slurm's own order."""
    return slurm.call("squeue", "-h", "-t", "PD", "--sort=-p,i", "-o", "%i").stdout.split()


def test_who_is_ahead_as_slurms_own_order_has_it(slurm, tmp_path):
    tmp_path.chmod(0o777)
    submit(slurm, tmp_path, "--nodes=2", "--gres=gpu:3")
    eventually(lambda: slurm.call("squeue", "-h", "-t", "R").stdout.strip() != "")
    made = [
        submit(slurm, tmp_path, "--gres=gpu:4", *more)
        for more in (["--priority=500"], ["--priority=900"], [], ["--nice=50"])
    ]
    held = submit(slurm, tmp_path, "--gres=gpu:1", "--hold")
    order = [job for job in pending(slurm) if job != held]
    assert sorted(order) == sorted(made)
    assert order != made  # else it would be that of submission
    saved = tmp_path / "saved"
    for at, job in enumerate(order):
        side = ("live", "--save", str(saved)) if not at else (str(saved),)
        found = json.loads(rota(slurm, "when", job, "--slurm", *side, "--runs", "3", "-o", "json"))
        assert found["ahead"] == order[:at]
        verdict = json.loads(rota(slurm, "why", job, "--slurm", str(saved), "-o", "json"))
        assert verdict["ahead"] == order[:at][:5]
        assert verdict["reason"] in ("order", "capacity", "fragmentation")
    assert "scontrol release" in rota(slurm, "why", held, "--slurm", str(saved))
    new = rota(slurm, "why", "--gpus", "1", "--time", "5m", "--slurm", "live")
    assert "job new (not submitted)" in new
    assert pending(slurm) == [*order, held]  # nothing was changed
    (tmp_path / "go").touch()
    eventually(lambda: pending(slurm) == [held])
    lines = slurm.call("squeue", "-h", "-t", "all", "-o", "%i %S").stdout.splitlines()
    begun = dict(line.split() for line in lines)
    assert [begun[job] for job in order] == sorted(begun[job] for job in order)
    slurm.call("scancel", held)
