"""People, policies and faults at random on a real daemon that checks every invariant."""

import json
import os
import random
import signal
import time

import pytest

from live_logs import assert_sound, exported
from rota.core.errors import ConflictError
from saving_job import script

POLICIES = ("fifo", "fifo-skip", "srtf", "tiresias:limits=0.4/2", "easy", "las")


class Chaos:
    """Does one random thing after the other."""

    def __init__(self, daemon, config, folder, seed):
        self.daemon, self.config, self.folder = daemon, config, folder
        self.dice = random.Random(seed)  # noqa: S311
        self.jobs = []
        self.things = {
            self.submit: 40, self.wish: 30, self.drain: 5, self.undrain: 10, self.kill_shim: 2,
            self.kill_daemon: 2, self.ask: 4, self.reload: 3,
        }  # fmt: skip

    def go_on(self, number):
        for _ in range(number):
            (thing,) = self.dice.choices(list(self.things), list(self.things.values()))
            try:
                thing()
            except ConflictError:  # it was over already, or is not held on request
                continue
            time.sleep(self.dice.choice([0.0, 0.0, 0.02, 0.1]))

    def submit(self):
        dice = self.dice
        job = {
            "run": script(round(dice.uniform(0.05, 1.2), 2), self.folder),
            "resources": {"gpus": dice.choice([0.5, 1, 1, 2, 2, 4])},
            "retries": dice.choice([0, 1]),
            "estimate": dice.uniform(0.1, 2.0),
        }
        rare = {
            "nodes": {"nodes": 2, "run": "sleep 0.3", "resources": {"gpus": 2}},
            "fails": {"run": "exit 3"},
            "held": {"hold": True},
            "setup": {"setup": "sleep 0.2"},
            "after": {"depends_on": [dice.choice(self.jobs)]} if self.jobs else {},
        }
        for changes in rare.values():
            job |= changes if dice.random() < 0.1 else {}
        self.jobs.append(self.daemon.client.submit(job).id)

    def wish(self):
        if self.jobs:
            client = self.daemon.client
            what = self.dice.choice([client.cancel, client.hold, client.release])
            what(self.dice.choice(self.jobs[-30:]))

    def drain(self):
        self.daemon.client.drain(f"n{self.dice.randrange(4)}", stop=self.dice.random() < 0.5)

    def undrain(self):
        self.daemon.client.undrain(f"n{self.dice.randrange(4)}")

    def kill_shim(self):
        found = sorted((self.daemon.state / "agent" / "runs").glob("*/identity.json"))
        try:
            os.kill(json.loads(self.dice.choice(found).read_text())["pid"], signal.SIGKILL)
        except (IndexError, OSError):  # none is there, or it has just ended
            return

    def kill_daemon(self):
        if self.dice.random() < 0.3:
            self.daemon.restart()
        else:
            self.daemon.kill()
            self.daemon.start()

    def ask(self):
        client = self.daemon.client
        client.nodes()
        client.queues()
        for job in self.dice.sample(self.jobs, min(1, len(self.jobs))):
            client.explain(job)
            client.when(job, runs=2)

    def reload(self):
        self.config.write_text(f"check: true\npolicy: {self.dice.choice(POLICIES)}\n")
        self.daemon.client.reload()

    def calm_down(self):
        """Let everything end."""
        client = self.daemon.client
        for node in client.nodes():
            client.undrain(node.name)
        for job in client.jobs(states=["HELD"]):
            try:
                client.release(job.id)
            except ConflictError:  # it waits for another job
                continue


@pytest.mark.parametrize(
    ("number", "seed"),
    [
        (60, 1),
        pytest.param(3000, 2, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_whatever_happens_every_job_ends_once_and_every_invariant_holds(
    daemons, tmp_path, number, seed
):
    config = tmp_path / "rota.yaml"
    config.write_text("check: true\n")
    daemon = daemons("--nodes", "4x4", "--config", config, "--log-level", "warning")
    chaos = Chaos(daemon, config, tmp_path, seed)
    chaos.go_on(number)
    chaos.calm_down()
    found = daemon.all_over()
    assert [job.id for job in found] == chaos.jobs
    assert {job.state for job in found} <= {"SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"}
    daemon.assert_no_orphans()
    runs = (tmp_path / "runs").read_text().split()
    assert len(set(runs)) == len(runs)
    assert all(len(path.read_text().split()) == 1 for path in tmp_path.glob("*.done"))
    assert_sound(exported(daemon), capacity=4)
