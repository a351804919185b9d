"""The examples of training, as processes with the environment that Rota gives them."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from typing import ClassVar

import msgspec
import pytest
import yaml

from claims import claimed_ports
from needs import TORCH, need
from rota.jobfile.model import JobFile
from shared_data import CHECKOUT

EXAMPLES = CHECKOUT / "examples" / "training"
PLANTED = CHECKOUT / "examples" / "calibration"
STEPS = 40
BATCH = 48
LIMIT_S = 400  # only a guard against hanging


@pytest.fixture
def needs_torch():
    """Skip without PyTorch, which is no requirement of Rota; fail in CI."""
    need(importlib.util.find_spec("torch") is not None, "PyTorch", TORCH)


@pytest.fixture(autouse=True)
def nothing_left():
    """Kill what a failed test has left behind."""
    yield
    while Run.started:
        process = Run.started.pop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Run:
    """All ranks of one run of a job."""

    started: ClassVar[list[subprocess.Popen]] = []

    def __init__(self, command, folder, *, number, ranks=1):
        self.reports = folder / f"reports-{number}"
        self._outs = [folder / f"out-{number}-{rank}" for rank in range(ranks)]
        (port,) = claimed_ports(1)
        self._ranks = []
        for rank, out in enumerate(self._outs):
            own = {
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(ranks),
                "NODE_RANK": "0",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                "ROTA_JOB_ID": "1",
                "ROTA_RUN_ID": f"1.{number}",
                "ROTA_RESTART_COUNT": str(number),
                "ROTA_CHECKPOINT_DIR": str(folder / "checkpoint"),
                "ROTA_REPORT_FILE": str(self.reports),
                "ROTA_GRACE_S": "30",
                "ROTA_GPUS": str(ranks),
            }
            with out.open("wb") as file:
                self._ranks.append(
                    subprocess.Popen(
                        command,
                        env=os.environ | own,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        Run.started += self._ranks

    @property
    def out(self):
        """What rank 0 printed."""
        return self._outs[0].read_text()

    def everything(self):
        return "\n".join(out.read_text() for out in self._outs)

    def wait_for(self, happened):
        """Wait until it happened while all ranks run."""
        deadline = time.monotonic() + LIMIT_S
        while not happened():
            assert all(rank.poll() is None for rank in self._ranks), self.everything()
            assert time.monotonic() < deadline, self.everything()
            time.sleep(0.02)

    def stop(self):
        """Preempt it, as an agent does."""
        for rank in self._ranks:
            os.killpg(rank.pid, signal.SIGTERM)
        return self.end()

    def end(self):
        """Return the exit codes of the ranks."""
        deadline = time.monotonic() + LIMIT_S
        try:
            return [rank.wait(max(0.1, deadline - time.monotonic())) for rank in self._ranks]
        finally:
            for rank in self._ranks:
                rank.kill()
                rank.wait()


def ddp(folder, *, number=0, ranks=2, step_s=0.0):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(EXAMPLES / "ddp.py"), "--steps", str(STEPS)]
    command += ["--batch", str(BATCH), "--step-s", str(step_s)]
    return Run(command, folder, number=number, ranks=ranks)


def preempted(folder, *, number, ranks=2):
    """Run until the first report, then preempt; the step at which it stopped."""
    run = ddp(folder, number=number, ranks=ranks, step_s=0.5)
    run.wait_for(run.reports.exists)
    assert set(run.stop()) == {75}, run.everything()
    return int(re.search(r"^stopped at step (\d+), ", run.out, re.MULTILINE)[1])


def finished(run):
    """Let it run to its end; its digest."""
    assert set(run.end()) == {0}, run.everything()
    return re.search(rf"^done at step {STEPS}, parameters (\w+)$", run.out, re.MULTILINE)[1]


def parameters(folder):
    import torch

    (path,) = (folder / "checkpoint").glob(f"checkpoint-*{STEPS}")
    model = torch.load(path, weights_only=True)["model"]
    return torch.cat([tensor.flatten() for tensor in model.values()])


@pytest.mark.soak  # PyTorch is slow to start: in `make test` a daemon preempts and resizes it
@pytest.mark.parametrize(("ranks", "times"), [(1, 1), (2, 2)])
def test_a_job_that_was_preempted_ends_with_the_same_parameters(
    needs_torch, tmp_path, ranks, times
):
    digest = finished(ddp(tmp_path / "whole", ranks=ranks))
    broken = tmp_path / "broken"
    stops = [preempted(broken, number=number, ranks=ranks) for number in range(times)]
    assert all(before < after for before, after in pairwise([0, *stops, STEPS]))
    last = ddp(broken, number=times, ranks=ranks)
    assert finished(last) == digest
    begins = f"rank 0 of {ranks} begins at step {stops[-1]}, restart {times}\n"
    assert last.out.startswith(begins)
    reported = [json.loads(line) for line in last.reports.read_text().splitlines()]
    assert reported[0]["step"] == stops[-1] + 1
    assert {"step", "loss", "throughput"} <= set(reported[0])


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")  # of PyTorch, when it is imported
def test_a_job_that_was_resized_ends_with_close_parameters(needs_torch, tmp_path):
    import torch

    one = finished(ddp(tmp_path / "whole", ranks=1))
    resized = tmp_path / "resized"
    stops = [preempted(resized, number=0), preempted(resized, number=1, ranks=1)]
    assert 0 < stops[0] < stops[1] < STEPS
    other = finished(ddp(resized, number=2))
    assert re.fullmatch(r"\w{16}", one)
    assert re.fullmatch(r"\w{16}", other)
    torch.testing.assert_close(
        parameters(resized), parameters(tmp_path / "whole"), rtol=1e-3, atol=1e-5
    )


def test_the_script_with_the_library_ends_with_the_same_number(tmp_path):
    def start(folder, number, step_s):
        folder.mkdir(exist_ok=True)
        options = ["--steps", "50", "--step-s", str(step_s)]
        return Run([sys.executable, str(EXAMPLES / "script.py"), *options], folder, number=number)

    whole = start(tmp_path / "whole", 0, 0)
    assert whole.end() == [0]
    broken = start(tmp_path / "broken", 0, 0.5)
    broken.wait_for(broken.reports.exists)
    assert broken.stop() == [75]
    left_s = float(re.search(r"^stopped at step \d+, (\S+) s left$", broken.out, re.MULTILINE)[1])
    assert 0 <= left_s <= 30
    again = start(tmp_path / "broken", 1, 0)
    assert again.end() == [0]
    assert "begins at step 0\n" not in again.out
    assert again.out.splitlines()[-1] == whole.out.splitlines()[-1]


@pytest.mark.parametrize("how", ["asked", "killed"])
def test_the_plain_script_goes_on_where_it_was(tmp_path, how):
    (tmp_path / "checkpoint").mkdir()
    command = ["sh", str(EXAMPLES / "plain.sh")]
    first = Run([*command, "600"], tmp_path, number=0)
    first.wait_for((tmp_path / "checkpoint" / "count").exists)
    if how == "asked":
        assert first.stop() == [0]
        assert "stopped at" in first.out
    else:
        first._ranks[0].kill()
        assert first.end() == [-signal.SIGKILL]
    count = int((tmp_path / "checkpoint" / "count").read_text())
    again = Run([*command, str(count + 1)], tmp_path, number=1)
    assert again.end() == [0]
    assert count > 0
    assert again.out == f"begins at {count}, restart 1\ndone at {count + 1}\n"


def test_the_job_with_planted_costs_works_as_long_as_it_says(tmp_path):
    command = [sys.executable, str(PLANTED / "work.py"), "--stop-s", "0.4"]
    first = Run([*command, "600"], tmp_path, number=0)
    first.wait_for(first.reports.exists)
    asked_s = time.monotonic()
    assert first.stop() == [75]
    assert time.monotonic() - asked_s >= 0.4
    (saved,) = (tmp_path / "checkpoint").iterdir()
    done_s = float(saved.read_text())
    assert done_s > 0
    again = Run([*command, str(done_s + 0.5)], tmp_path, number=1)
    assert again.end() == [0]
    last = json.loads(again.reports.read_text().splitlines()[0])
    assert last["step"] > done_s


@pytest.mark.parametrize(
    "path", sorted([*EXAMPLES.glob("*.yaml"), *PLANTED.glob("*.yaml")]), ids=lambda path: path.name
)
def test_the_job_files_have_known_keys_and_name_their_script(path):
    job = msgspec.convert(yaml.safe_load(path.read_text()), JobFile)
    script = next(word for word in job.run.split() if word.endswith((".py", ".sh")))
    assert (path.parent / script).exists()
    assert job.workdir == "."
