"""Training survives what a daemon does to it, and what it reports reaches people and policies."""

import importlib.util
import json
import os
import re
import shlex
import sys
import time
from pathlib import Path

import msgspec
import polars as pl
import pytest
import yaml

from agents_net import eventually
from needs import TORCH, need
from rota.core.jobs import Behaviour
from rota.core.workload import Workload
from rota.live.drivers.local import standin
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster
from rota.testing.rehearsal import MARGIN_S, decisions, five_jobs, rehearse, topology
from shared_data import CHECKOUT
from thinning import first

EXAMPLES = CHECKOUT / "examples" / "training"
PYTHON_FIRST = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
STEPS = 100
SLOWER = 3  # the rehearsal is to come out on a machine that is not quite idle too
LIMIT_S = 400  # only a guard against hanging


@pytest.fixture
def needs_torch():
    """Skip without PyTorch, which is no requirement of Rota; fail in CI."""
    need(importlib.util.find_spec("torch") is not None, "PyTorch", TORCH)


def ddp(daemon, *, gpus, step_s=0.05, **keys):
    """Submit the example with fewer steps; its id."""
    job = yaml.safe_load((EXAMPLES / "ddp.yaml").read_text())
    job |= {"workdir": str(EXAMPLES), **keys}
    job["run"] = re.sub(r"--steps \d+", f"--steps {STEPS}", job["run"])
    job["run"] = re.sub(r"--step-s \S+", f"--step-s {step_s}", job["run"])
    job["resources"] = {"gpus": gpus}
    return daemon.client.submit(job).id


def until_step(daemon, job, least):
    """Wait until it has reported so many steps."""
    eventually(lambda: daemon.client.job(job).metrics.get("step", 0) >= least, LIMIT_S, 0.05)


def begins(daemon, job):
    """(ranks, step, restart) at the begin of each run of a job, as its rank 0 tells."""
    # not by lines: what two ranks print at once may stand on one line
    found = re.findall(r"rank 0 of (\d+) begins at step (\d+), restart (\d+)", daemon.output(job))
    return [tuple(map(int, numbers)) for numbers in found]


def digest(daemon, job):
    """The name of the parameters with which a job ended."""
    (found,) = re.findall(rf"^done at step {STEPS}, parameters (\w{{16}})$", daemon.output(job),
                          re.MULTILINE)  # fmt: skip
    return found


@pytest.mark.soak  # PyTorch is slow to start: in `make test` an elastic job is stopped and goes on
@pytest.mark.parametrize("ranks", [1, 2])
def test_ddp_that_was_preempted_twice_ends_with_the_same_parameters(needs_torch, daemons, ranks):
    daemon = daemons("--nodes", "2x2", "--policy", "srtf", "--check", env=PYTHON_FIRST)
    whole = ddp(daemon, gpus=ranks, name="whole")
    broken = ddp(daemon, gpus=ranks, name="broken", estimate="1h")
    until_step(daemon, broken, 1)
    daemon.client.hold(broken)
    daemon.until(broken, "HELD")
    daemon.until(whole, "SUCCEEDED", within_s=LIMIT_S)
    daemon.client.release(broken)
    eventually(lambda: len(begins(daemon, broken)) == 2, LIMIT_S, 0.1)
    until_step(daemon, broken, begins(daemon, broken)[1][1] + 1)
    short = daemon.submit("sleep 0.2", gpus=4, estimate=1)
    ends = [daemon.until(job, "SUCCEEDED", within_s=LIMIT_S) for job in (whole, short, broken)]
    assert [end.starts for end in ends] == [1, 1, 3]
    assert daemon.client.explain(broken).preempted_by[-1:] == [short]
    runs = begins(daemon, broken)
    assert [(size, restart) for size, _, restart in runs] == [(ranks, 0), (ranks, 1), (ranks, 2)]
    assert 0 == runs[0][1] < runs[1][1] < runs[2][1] < STEPS
    assert digest(daemon, broken) == digest(daemon, whole)


@pytest.mark.filterwarnings("ignore")  # of PyTorch, when it is imported
@pytest.mark.parametrize(
    ("half", "policy"), first(1, [(1, EXAMPLES / "grow.py"), (2, EXAMPLES / "grow.py"), (1, "afs")])
)
def test_elastic_ddp_is_resized_and_ends_with_close_parameters(
    needs_torch, daemons, tmp_path, half, policy
):
    import torch

    daemon = daemons("--nodes", f"2x{half}", "--policy", policy, "--check", env=PYTHON_FIRST)
    elastic = ddp(daemon, gpus={"min": 1, "max": 2 * half}, name="elastic")
    until_step(daemon, elastic, 1)
    whole = ddp(daemon, gpus=half, name="whole", step_s=0.15)  # the other need not grow again
    for job in (elastic, whole):
        daemon.until(job, "SUCCEEDED", within_s=LIMIT_S)
    runs = begins(daemon, elastic)
    assert [ranks for ranks, _, _ in runs][:2] == [2 * half, half]
    assert 0 == runs[0][1] < runs[1][1] < STEPS
    assert begins(daemon, whole) == [(half, 0, 0)]
    daemon.rota("export", "-o", tmp_path / "run")
    jobs = pl.read_csv(tmp_path / "run" / "jobs.csv")
    assert jobs["migrations"].to_list() == [len(runs) - 1, 0]
    assert jobs["preemptions"].to_list() == [0, 0]
    finals = []
    for job in (elastic, whole):
        (path,) = (daemon.state / "jobs" / job).glob(f"**/checkpoint-*{STEPS}")
        model = torch.load(path, weights_only=True)["model"]
        finals.append(torch.cat([tensor.flatten() for tensor in model.values()]))
    torch.testing.assert_close(*finals, rtol=1e-3, atol=1e-5)


def test_a_live_job_shrinks_and_grows_under_afs(daemons, tmp_path):
    daemon = daemons("--nodes", "1x2", "--policy", "afs", "--check")
    end, leave = tmp_path / "end", tmp_path / "leave"

    def until(file):
        return f'echo "on $ROTA_GPUS"; while [ ! -e {shlex.quote(str(file))} ]; do sleep 0.1; done'

    def sizes():
        return re.findall(r"on (\d)", daemon.output(elastic))

    elastic = daemon.submit(until(end), gpus={"min": 1, "max": 2})
    eventually(lambda: sizes() == ["2"], LIMIT_S, 0.1)
    other = daemon.submit(until(leave), gpus=1)
    eventually(lambda: sizes() == ["2", "1"], LIMIT_S, 0.1)
    daemon.until(other, "RUNNING")
    leave.touch()
    daemon.until(other, "SUCCEEDED")
    eventually(lambda: sizes() == ["2", "1", "2"], LIMIT_S, 0.1)
    end.touch()
    daemon.until(elastic, "SUCCEEDED")


TRIAL = """
import sys, time
from pathlib import Path
from rota import job

loss, throughput = map(float, sys.argv[1:3])
until = Path(sys.argv[3])
job.install()
done = float(job.load() or 0)
while not until.exists() and not job.should_stop():
    done += 1
    job.report(step=done, loss=loss, throughput=throughput, force=True)
    time.sleep(0.1)
job.save(str(done).encode(), step=int(done))
"""


@pytest.fixture
def trial(tmp_path):
    """Return a function that submits a job which reports these numbers until a file is there."""
    script = tmp_path / "trial.py"
    script.write_text(TRIAL)

    def submit(daemon, until, *, loss=1.0, throughput=1.0, **keys):
        command = [sys.executable, str(script), str(loss), str(throughput), str(until)]
        return daemon.submit(shlex.join(command), **keys)

    return submit


def test_what_a_job_reports_is_shown(daemons, trial, tmp_path):
    daemon = daemons("--nodes", "1x1")
    end = tmp_path / "end"
    job = trial(daemon, end, loss=0.25, throughput=12.5)
    until_step(daemon, job, 1)
    end.touch()
    daemon.until(job, "SUCCEEDED")
    shown = json.loads(daemon.rota("show", job, "-o", "json").stdout)
    assert shown["metrics"].pop("step") >= 1
    assert shown["metrics"] == {"loss": 0.25, "throughput": 12.5}


def test_a_policy_sees_the_measured_throughput(daemons, trial, tmp_path):
    daemon = daemons("--nodes", "1x2", "--policy", EXAMPLES / "fastest_first.py", "--check")
    end, soon = tmp_path / "end", tmp_path / "soon"
    slow = trial(daemon, end, throughput=10.0)
    fast = trial(daemon, end, throughput=100.0)
    for job in (slow, fast):
        eventually(lambda job=job: daemon.client.job(job).metrics, every_s=0.05)
    late = trial(daemon, soon, throughput=50.0)
    until_step(daemon, late, 1)
    soon.touch()
    daemon.until(late, "SUCCEEDED")
    end.touch()
    ends = {name: daemon.until(job, "SUCCEEDED") for name, job in
            (("slow", slow), ("fast", fast), ("late", late))}  # fmt: skip
    starts = {name: (end.starts, end.preemptions) for name, end in ends.items()}
    assert starts == {"slow": (2, 1), "fast": (1, 0), "late": (1, 0)}
    assert ends["late"].ended_at < ends["slow"].ended_at


def test_a_policy_gives_up_bad_trials_of_a_group(daemons, trial, tmp_path):
    policy = f"{EXAMPLES / 'early_stop.py'}:from_step=5,factor=3"
    daemon = daemons("--nodes", "1x4", "--policy", policy, "--check")
    end = tmp_path / "end"
    good, fair, bad, other = (
        trial(daemon, end, loss=loss, group=group)
        for loss, group in ((1.0, "search"), (2.0, "search"), (9.0, "search"), (9.0, "else"))
    )
    daemon.until(bad, "CANCELLED")
    assert daemon.client.job(bad).metrics["step"] >= 5
    end.touch()
    states = [daemon.until(job, "SUCCEEDED").state for job in (good, fair, other)]
    assert states == ["SUCCEEDED"] * 3


def slowly(workload):
    """The same jobs with more time between any two things that happen."""
    return Workload(
        [msgspec.structs.replace(spec, submit_s=SLOWER * spec.submit_s) for spec in workload.specs],
        [Behaviour(SLOWER * behaviour.work) for behaviour in workload.behaviours],
    )


@pytest.mark.soak  # in real time: the machine must be idle
def test_the_daemon_takes_the_decisions_of_the_simulator(daemons, tmp_path):
    workload = slowly(five_jobs())
    limit_gpu_s = 2 * SLOWER
    places = topology()
    simulated = decisions(
        rehearse(SimCluster(places, Zero(), Uniform(places)), workload, limit_gpu_s=limit_gpu_s).log
    )
    daemon = daemons("--nodes", "2x2", "--policy", f"tiresias:limits={limit_gpu_s}", "--check")
    files = [
        (
            spec.submit_s,
            {
                "name": spec.id,
                "run": shlex.join(standin.command(behaviour.work, tmp_path / spec.id)),
                "resources": {"gpus": spec.request.groups[0].count},
            },
        )
        for spec, behaviour in workload
    ]
    began_s = time.monotonic()
    for submit_s in sorted({submit_s for submit_s, _ in files}):
        time.sleep(max(0.0, began_s + submit_s - time.monotonic()))
        daemon.client.submit_many([job for at_s, job in files if at_s == submit_s])
    names = {job.id: job.name for job in daemon.all_over()}
    assert list(names.values()) == [spec.id for spec in workload.specs]
    daemon.rota("export", "-o", tmp_path / "run")
    log = pl.read_parquet(tmp_path / "run" / "events.parquet")
    live = [decision._replace(job=names[decision.job]) for decision in decisions(log)]
    assert [d.without_time() for d in live] == [d.without_time() for d in simulated]
    first_s = live[0].time_s
    assert [d.time_s - first_s for d in live] == pytest.approx(
        [d.time_s for d in simulated],
        abs=2 * SLOWER * MARGIN_S,  # every start and stop is a little late, and it adds up
    )
