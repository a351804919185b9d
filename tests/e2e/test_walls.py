"""Attacks on a real daemon with real agents: a node hangs, one is forged, a user is greedy."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agents_net import eventually
from daemon_process import ServedProcess, serving
from rota.core.errors import ForbiddenError, RotaError

READERS = 80
CALLS = 50
CONFIG = """\
check: true
local: {lost_s: 3600}  # however slow this machine is
queues: {vision: {}, nlp: {}}
permissions:
  queues: {vision: [ann]}
  max_priority: 5
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Return a daemon with two agents, `well` and `ill`."""
    folder = tmp_path_factory.mktemp("walls")
    config = folder / "rota.yaml"
    config.write_text(CONFIG)
    with serving(folder / "daemon", "--config", config) as daemon:
        daemon.processes_by_name = {name: daemon.agent(name) for name in ("well", "ill")}
        eventually(
            lambda: {n.name for n in daemon.client.nodes() if n.state == "up"} == {"well", "ill"}
        )
        yield daemon


def on_both(lab, folder):
    """A job on each node, which ends when the file `go` is there; {node: job}."""
    command = f"echo begun; while [ ! -e {folder}/go ]; do sleep 0.05; done; echo done"
    jobs = [lab.submit(command, gpus=2, workdir=str(folder)) for _ in range(2)]
    found = {}
    for job in jobs:
        (node,) = lab.until(job, "RUNNING").nodes
        eventually(lambda job=job: "begun" in lab.output(job))
        found[node] = job
    return found


def test_eighty_readers_of_a_hung_node_disturb_nobody(lab, tmp_path):
    tmp_path.chmod(0o777)
    jobs = on_both(lab, tmp_path)
    begun = threading.Semaphore(0)

    def read():
        with lab.connect(patience_s=0) as own:
            begun.release()
            try:
                return b"".join(own.logs(jobs["ill"], follow=True)).decode()
            except RotaError as error:
                return str(error)

    hung = lab.processes_by_name["ill"].pid
    os.kill(hung, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(READERS) as readers:
            reading = [readers.submit(read) for _ in range(READERS)]
            for _ in range(READERS):
                assert begun.acquire(timeout=300)
            for _ in range(CALLS):
                assert lab.client.job(jobs["well"]).state == "RUNNING"
            (tmp_path / "go").touch()
            healthy = lab.until(jobs["well"], "SUCCEEDED")
            assert (healthy.starts, healthy.preemptions) == (1, 0)
            assert lab.output(jobs["well"]) == "begun\ndone\n"
            os.kill(hung, signal.SIGCONT)
            told = [reader.result() for reader in reading]
    finally:
        os.kill(hung, signal.SIGCONT)
    assert lab.until(jobs["ill"], "SUCCEEDED").starts == 1
    assert len(told) == READERS


def test_who_has_the_token_of_another_node_gets_neither_its_name_nor_its_job(lab, tmp_path):
    tmp_path.chmod(0o777)
    jobs = on_both(lab, tmp_path)
    victim = lab.processes_by_name["ill"]
    victim.kill()  # its name is free, one might think
    token = tmp_path / "forged.token"
    token.touch(0o600)
    token.write_text(lab.client.create_token("stranger", "agent"))
    forged = ServedProcess(
        tmp_path / "forged.log", "agent", "--server", lab.client.place.server,
        "--token-file", token, "--name", "ill", "--gpus", 2, "--address", "127.0.0.1",
        "--root", tmp_path / "forged", "--jobs", tmp_path / "jobs",
    )  # fmt: skip
    try:
        eventually(lambda: "node 'ill' belongs to the " in forged.text())  # agent, or token
        assert not list((tmp_path / "forged").glob("runs/*"))  # it was told of no run
        assert lab.client.job(jobs["ill"]).starts == 1
    finally:
        forged.kill()
    lab.processes_by_name["ill"] = lab.agent("ill")
    (tmp_path / "go").touch()
    for job in jobs.values():
        assert lab.until(job, "SUCCEEDED").starts == 1  # it ran on all the time


def test_priorities_and_queues_are_refused_by_role(lab):
    roles = {"ann": "user", "bob": "user", "olga": "operator", "vic": "viewer"}
    secrets = {name: lab.client.create_token(name, role) for name, role in roles.items()}
    held = {"run": "true", "hold": True}

    def tries(name, **keys):
        with lab.connect(token=secrets[name]) as own:
            return own.submit({**held, **keys}).id

    before = len(list(lab.client.jobs()))
    tries("ann", queue="vision", priority=5)
    tries("bob", queue="nlp")
    tries("olga", queue="vision", priority=99)
    refused = [
        ("bob", {"queue": "vision"}, "queue 'vision': bob may not submit there"),
        ("bob", {"queue": "nlp", "priority": 6}, "priority 6"),
        ("ann", {"queue": "vision", "priority": 100}, "priority 100"),
        ("ann", {"queue": "mine"}, "queue 'mine' is not declared"),
        ("vic", {"queue": "nlp"}, "viewer"),
    ]
    for name, keys, why in refused:
        with pytest.raises(ForbiddenError, match=why):
            tries(name, **keys)
    assert len(list(lab.client.jobs())) == before + 3
    lab.clear()
