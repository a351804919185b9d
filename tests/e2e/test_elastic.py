"""Elastic policies on a living cluster: jobs tell how fast they are, grow and shrink, and go on."""

import importlib.util
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from agents_net import eventually
from needs import TORCH, need
from shared_data import CHECKOUT

EXAMPLES = CHECKOUT / "examples" / "training"
PYTHON_FIRST = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
POLLUX = "pollux:interval_s=0.5,restart_s=0"
UNDER = pytest.mark.parametrize("policy", [POLLUX, "afs"], ids=["pollux", "afs"])
LIMIT_S = 400  # only a guard against hanging

COUNTS = """
import sys, time
from pathlib import Path
from rota import job

until = Path(sys.argv[1])
job.install()
done = int((job.load() or b"0").decode())
gpus = int(job.info().gpus)
print(f"begins with {gpus} GPUs at {done}", flush=True)
while not until.exists() and not job.should_stop():
    done += gpus
    job.report(step=done, throughput=10.0 * gpus, force=True)
    time.sleep(0.05)
job.save(str(done).encode(), step=done)
print(f"leaves at {done}", flush=True)
"""


@UNDER
def test_a_job_grows_and_shrinks_and_loses_nothing(daemons, tmp_path, policy):
    script, end = tmp_path / "counts.py", tmp_path / "end"
    script.write_text(COUNTS)
    daemon = daemons("--nodes", "1x2", "--policy", policy, "--check")
    command = shlex.join([sys.executable, str(script), str(end)])
    elastic = daemon.client.submit(
        {"name": "elastic", "run": command, "resources": {"gpus": {"min": 1, "max": 2}}}
    ).id

    def sizes():
        return [int(size) for size in re.findall(r"begins with (\d)", daemon.output(elastic))]

    # Pollux gives at most twice what it has tried, perhaps before its first run can say anything
    eventually(lambda: sizes()[-1:] == [2], LIMIT_S, 0.05)
    until = tmp_path / "other"
    other = daemon.submit(f"while [ ! -e {until} ]; do sleep 0.05; done")
    daemon.until(other, "RUNNING")
    eventually(lambda: sizes()[-1:] == [1], LIMIT_S, 0.05)
    told = [one for one in daemon.client.explain(elastic).sizes if one.what == "shrunk"]
    assert told[0].by == [other]
    until.touch()
    daemon.until(other, "SUCCEEDED")
    eventually(lambda: sizes()[-1:] == [2], LIMIT_S, 0.05)
    end.touch()
    daemon.until(elastic, "SUCCEEDED")
    output = daemon.output(elastic)
    begun = [int(at) for at in re.findall(r"GPUs at (\d+)", output)]
    left = [int(at) for at in re.findall(r"leaves at (\d+)", output)]
    assert begun == [0, *left[:-1]]  # each run goes on where the last one was


@pytest.mark.soak  # PyTorch is slow to start
@pytest.mark.filterwarnings("ignore")  # of PyTorch, when it is imported
@UNDER
def test_ddp_is_resized_and_ends_with_close_parameters(daemons, policy):
    need(importlib.util.find_spec("torch") is not None, "PyTorch", TORCH)
    import torch

    steps = 150
    daemon = daemons("--nodes", "2x1", "--policy", policy, "--check", env=PYTHON_FIRST)

    def ddp(gpus, step_s):
        job = yaml.safe_load((EXAMPLES / "ddp.yaml").read_text())
        job |= {"workdir": str(EXAMPLES), "resources": {"gpus": gpus}}
        job["run"] = f"python ddp.py --steps {steps} --batch 48 --step-s {step_s}"
        return daemon.client.submit(job).id

    def sizes(job):
        found = re.findall(r"rank 0 of (\d+) begins at step", daemon.output(job))
        return [int(ranks) for ranks in found]

    elastic = ddp({"min": 1, "max": 2}, 0.2)
    eventually(lambda: sizes(elastic)[-1:] == [2], LIMIT_S, 0.05)
    whole = ddp(1, 0.05)
    for job in (elastic, whole):
        daemon.until(job, "SUCCEEDED", within_s=LIMIT_S)
    found = sizes(elastic)
    assert found[found.index(2) :][:2] == [2, 1]
    finals = []
    for job in (elastic, whole):
        (path,) = (daemon.state / "jobs" / job).glob(f"**/checkpoint-*{steps}")
        model = torch.load(path, weights_only=True)["model"]
        finals.append(torch.cat([tensor.flatten() for tensor in model.values()]))
    torch.testing.assert_close(*finals, rtol=1e-3, atol=1e-5)
