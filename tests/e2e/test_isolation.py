"""A daemon that several people share: no job finds what is not its own."""

import os
import re
import subprocess
import sysconfig

import pytest

from agents_net import eventually
from daemon_process import ServedProcess
from needs import TORCH, need
from rota.core.errors import RotaError
from rota.sdk import Client
from sandboxes import PYTHON, need_sandboxes
from shared_data import CHECKOUT

ATTACK = """
ls -R {state} 2>/dev/null | grep -v -e '^$' -e :
cat {state}/token {state}/rota.db {state}/jobs/*/logs/* {state}/jobs/*/*/file 2>/dev/null
{python} - <<'END'
import socket
try:
    line = socket.socket(socket.AF_UNIX)
    line.connect("{state}/rota.sock")
    line.sendall(b"GET /api/v1/tokens HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    print("ANSWER", line.recv(9999))
except OSError as error:
    print("no socket")
END
for pid in /proc/[0-9]*; do cat $pid/environ 2>/dev/null | tr '\\0' '\\n' | grep SECRET; done
echo over
"""


@pytest.fixture
def shared(daemons):
    need_sandboxes()
    return daemons("--nodes", "1x4", "--isolation", "required")


def submit_as(daemon, name, run, **keys):
    """Submit a job as somebody; wait for its end; its output."""
    with daemon.connect(token=daemon.client.create_token(name, "user")) as client:
        job = client.submit({"run": run, "resources": {"gpus": 1}, **keys}).id
        daemon.until(job, "SUCCEEDED", "FAILED")
        return daemon.rota("logs", job).stdout


def test_a_job_of_a_user_finds_neither_token_nor_socket_nor_the_jobs_of_others(shared):
    secret = shared.submit("echo SECRET | tee file; exec sleep 1000", envs={"KEY": "SECRET"})
    shared.until(secret, "RUNNING")
    found = submit_as(shared, "bob", ATTACK.format(state=shared.state, python=PYTHON))
    assert set(found.split("\n")) - {"agent", "jobs", "runs", "work", "checkpoint", "job", ""} <= {
        "2", "2.0-0", "report", "run.sh", "setup.sh", "pre_stop.sh", "no socket", "over",
    }  # fmt: skip
    assert "no socket" in found


def test_the_same_user_has_the_same_number_after_a_restart_and_others_another(shared):
    ann, bob = (submit_as(shared, name, "id -u").strip() for name in ("ann", "bob"))
    assert ann != bob
    assert min(int(ann), int(bob)) >= 1_900_000_000
    shared.client.revoke_token("ann")
    shared.client.revoke_token("bob")
    shared.restart()
    again = submit_as(shared, "ann", "id -u").strip()  # somebody else by now
    assert again not in (ann, bob)
    owner = shared.submit("id -u")
    shared.until(owner, "SUCCEEDED")
    assert int(shared.rota("logs", owner).stdout) == os.geteuid()


def test_without_bubblewrap_it_is_said_once_or_refused(daemons, tmp_path):
    env = {"PATH": str(tmp_path)}
    served = ServedProcess(
        tmp_path / "log", "serve", "--state", tmp_path / "s", "--nodes", "1x1", "--isolation",
        "required", "--listen", "127.0.0.1:0", env=env,
    )  # fmt: skip
    assert served.process.wait(300) == 2
    assert "isolation required: bubblewrap is not installed: install it" in served.text()
    daemon = daemons("--nodes", "1x1", "--isolation", "auto", env=env)
    told = daemon.log()
    assert told.count("jobs are not kept apart") == 1
    assert "bubblewrap is not installed" in told


def test_an_agent_with_a_stolen_token_learns_no_account_and_no_job(shared):
    """A token of a user cannot speak for nodes, and one of an agent cannot submit or look."""
    token = shared.client.create_token("machine", "agent")
    with Client(shared.client.place.server, token, patience_s=0) as stolen:
        for ask in (stolen.jobs, stolen.nodes, lambda: stolen.submit({"run": "id"})):
            with pytest.raises(RotaError):
                list(ask())


# --- training -------------------------------------------------------------------------------------

STEPS = 12
PACKAGES = {"PYTHONPATH": os.pathsep.join([sysconfig.get_path("purelib"), str(CHECKOUT / "src")])}


def training(**keys):
    """The example, by the Python of the system, which other accounts may execute."""
    tried = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON, "-c",
         "import rota.job, importlib.util as i; raise SystemExit(not i.find_spec('torch'))"],
        env={"PATH": os.environ["PATH"], **PACKAGES}, capture_output=True, check=False, cwd="/",
    )  # fmt: skip
    need(tried.returncode == 0, "PyTorch that every account of the machine can import", TORCH)
    script = CHECKOUT / "examples" / "training" / "ddp.py"
    return {
        "run": f"{PYTHON} {script} --steps {STEPS} --batch 48 --step-s 0.2", "per": "gpu",
        "envs": {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **PACKAGES},
        "checkpoint": {"grace_s": 60}, **keys,
    }  # fmt: skip


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_training_in_a_sandbox_is_stopped_and_goes_on(daemons, ranks):
    need_sandboxes()
    # sandboxes have a /tmp and homes of their own: wherever this checkout is, they see it
    shared = daemons("--nodes", "1x4", "--isolation", "required", "--visible", CHECKOUT)
    with shared.connect(token=shared.client.create_token("bob", "user")) as bob:
        job = bob.submit(training(resources={"gpus": ranks})).id
        eventually(
            lambda: bob.job(job).metrics.get("step", 0) >= 1 or bob.job(job).state == "FAILED", 400
        )
        assert bob.job(job).state == "RUNNING", shared.rota("logs", job).stdout
        bob.hold(job)
        shared.until(job, "HELD", within_s=400)
        bob.release(job)
        end = shared.until(job, "SUCCEEDED", "FAILED", within_s=400)
        assert (end.state, end.starts) == ("SUCCEEDED", 2), shared.rota("logs", job).stdout
    told = shared.rota("logs", job).stdout
    begins = re.findall(r"rank 0 of (\d) begins at step (\d+), restart (\d)", told)
    assert [(int(size), int(restart)) for size, _, restart in begins] == [(ranks, 0), (ranks, 1)]
    assert 0 == int(begins[0][1]) < int(begins[1][1]) < STEPS
    assert re.search(rf"^done at step {STEPS}, parameters \w{{16}}$", told, re.MULTILINE)
