"""The examples of Ray Train and Tune: their own code with a stand-in for Ray, and on a real one."""

import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from needs import TORCH, need
from ray_cluster import ALONE, require_ray
from shared_data import CHECKOUT

EXAMPLES = CHECKOUT / "examples/ray"
PARTS = Path(sys.prefix) / "ray-train"  # of `make ray-train`


def stand_in(monkeypatch, name, **content):
    """Return a module of that name which has nothing but this."""
    made = ModuleType(name)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def test_a_trial_of_tune_goes_down_and_the_best_rate_is_the_largest(monkeypatch, tmp_path):
    tune = stand_in(monkeypatch, "ray.tune")
    stand_in(monkeypatch, "ray", tune=tune)
    monkeypatch.setenv("ROTA_CHECKPOINT_DIR", str(tmp_path))
    trial = runpy.run_path(str(EXAMPLES / "tune.py"))["trial"]
    found = {rate: trial({"lr": rate})["distance"] for rate in (0.01, 0.1, 0.3, 0.45)}
    assert min(found, key=found.get) == 0.45
    assert sorted(found.values(), reverse=True) == [*found.values()]


class SavedState:
    """A checkpoint as Ray Train has it: a folder that may be gone when it is asked for."""

    def __init__(self, folder):
        self.files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    @classmethod
    def from_directory(cls, folder):
        return cls(folder)

    @contextmanager
    def as_directory(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files.items():
                (Path(folder) / name).write_bytes(content)
            yield folder


def test_training_goes_on_after_its_last_checkpoint(monkeypatch):
    need(find_spec("torch") is not None, "PyTorch", TORCH)
    told, start = [], [None]

    def report(metrics, checkpoint):
        told.append((metrics, checkpoint))

    names = dict.fromkeys(("RunConfig", "ScalingConfig"))
    train = stand_in(
        monkeypatch, "ray.train", Checkpoint=SavedState, report=report, **names,
        get_checkpoint=lambda: start[0],
        get_context=lambda: SimpleNamespace(get_world_rank=lambda: 0),
    )  # fmt: skip
    stand_in(monkeypatch, "ray", train=train)
    own = {"TorchTrainer": None, "prepare_model": lambda model: model}
    stand_in(monkeypatch, "ray.train.torch", **own)
    learn = runpy.run_path(str(EXAMPLES / "train.py"))["learn"]
    learn({"lr": 0.1})
    whole = list(told)
    assert [metrics["epoch"] for metrics, _ in whole] == [0, 1, 2, 3, 4]
    assert whole[-1][0]["loss"] < whole[0][0]["loss"]
    told.clear()
    start[0] = whole[2][1]  # it was preempted after the third
    learn({"lr": 0.1})
    assert [metrics for metrics, _ in told] == [metrics for metrics, _ in whole[3:]]


def real(name, folder):
    """Run an example in a network of its own, as a job with one GPU would; return what it says."""
    saved = folder / "saved"
    saved.mkdir(exist_ok=True)
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder),
        "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(PARTS),
        "CUDA_VISIBLE_DEVICES": "0", "ROTA_CHECKPOINT_DIR": str(saved),
    }  # fmt: skip
    words = [*ALONE, sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def short_folder():
    """Return a folder with a name that is short enough for sockets."""
    require_ray()
    need(find_spec("torch") is not None, "PyTorch", TORCH)
    if not (PARTS / "pydantic").exists() and find_spec("pydantic") is None:
        pytest.skip("needs what Ray Train and Tune need beside Ray | make ray-train")
    with tempfile.TemporaryDirectory(prefix="rt", ignore_cleanup_errors=True) as name:
        yield Path(name)


def checkpoints(folder):
    found = (folder / "saved/train").glob("checkpoint_*")
    return sorted(path.name for path in found if path.is_dir())


@pytest.mark.soak
def test_ray_train_trains_and_a_second_run_finds_what_the_first_saved(short_folder):
    (said,) = re.findall(r"^done: (.*)$", real("train.py", short_folder), re.MULTILINE)
    assert json.loads(said.replace("'", '"'))["epoch"] == 4
    kept = checkpoints(short_folder)
    assert len(kept) == 5
    (again,) = re.findall(r"^done: (.*)$", real("train.py", short_folder), re.MULTILINE)
    assert again == said
    assert checkpoints(short_folder) == kept


@pytest.mark.soak
def test_ray_tune_tries_all_rates_and_a_second_run_repeats_none(short_folder):
    assert "best rate: 0.45" in real("tune.py", short_folder)
    results = sorted((short_folder / "saved/tune").glob("*/result.json"))
    assert len(results) == 4
    before = [path.stat().st_mtime_ns for path in results]
    assert "best rate: 0.45" in real("tune.py", short_folder)
    assert [path.stat().st_mtime_ns for path in results] == before
