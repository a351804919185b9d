"""A real cluster whose every part may be killed at any time, and what must hold afterwards.

One daemon on a file, or two that take turns on a database; agents in processes of their own; jobs
(in sandboxes, where the machine can make them) that notice if another process of the same job is
there. `kill -9` of a daemon, an agent, a shim or a job must lose no job, double none, and leave no
process behind.
"""

import json
import os
import random
import shutil
import signal
import socket
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from agents_net import alive, eventually
from daemon_process import PATIENCE_S, ServedProcess, end_at_once, processes_of
from rota.cli.tls import tls
from rota.core.errors import RotaError
from rota.sdk import Client

LEASE_S = 1.5
SHORTEST_S = 0.01  # of jobs
QUEUED = 40  # jobs that wait or run at the same time
LOOK_S = 0.02
TAKEN = 75  # what `flock` returns if somebody else holds the lock


def held_port():
    """A socket at a free port: only who asks for this very port can listen there, again and again.

    It does not listen itself, so it is in nobody's way; and the system gives its port to nobody.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


class KilledCluster:
    """Daemons, agents and jobs in one folder."""

    def __init__(self, folder, *, database="", gpus=4, secure=False):
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.mkdir(parents=True)
        self.marks.chmod(0o777)  # jobs may run as other users
        self.database = database
        self.holders = [held_port() for _ in range(2 if database else 1)]
        self.ports = [holder.getsockname()[1] for holder in self.holders]
        scheme = "https" if secure else "http"
        self.servers = [f"{scheme}://127.0.0.1:{port}" for port in self.ports]
        self.ca = self._certify() if secure else None
        config = folder / "rota.yaml"
        store = f"store: {database}\nlease_s: {LEASE_S}\n" if database else ""
        config.write_text(f"{store}durable: false\nlog_level: warning\nbackend: local\n")
        self.config = config
        self.daemons = [None] * len(self.ports)
        self.agents = {}
        self.gpus = gpus
        self.kills = Counter()
        self.submitted = {}  # name -> id
        self.client = None

    def _certify(self):
        """Make certificates for all daemons, of one authority; its file."""
        runner = CliRunner()
        first = self.state(0) / "tls"
        made = runner.invoke(tls, ["init", "--state", str(self.state(0))])
        assert made.exit_code == 0, made.output
        for number in range(1, len(self.ports)):
            folder = self.state(number) / "tls"
            folder.mkdir(0o700, parents=True)
            for name in ("ca.pem", "ca.key"):
                shutil.copy(first / name, folder)
            made = runner.invoke(tls, ["renew", "--state", str(self.state(number))])
            assert made.exit_code == 0, made.output
        return first / "ca.pem"

    def start(self, agents=2):
        """Start everything; returns when all nodes are there."""
        for number in range(len(self.ports)):
            self.start_daemon(number)
            eventually(self.leader)  # the first one leads, the second one stands by
        token = (self.state(self.leader() - 1) / "token").read_text().strip()
        self.client = Client(",".join(self.servers), token, ca=self.ca, patience_s=PATIENCE_S)
        eventually(self.answers)
        token = self.folder / "agent.token"
        token.touch(0o600)
        token.write_text(self.client.create_token("agents", "agent"))
        for number in range(agents):
            self.start_agent(f"n{number}")
        eventually(lambda: len([n for n in self.client.nodes() if n.state == "up"]) == agents)

    # --- parts ------------------------------------------------------------------------------------

    def state(self, number):
        """The state folder of a daemon."""
        return self.folder / f"state{number}"

    def start_daemon(self, number, *options):
        """Start it, on its own folder and port."""
        self.daemons[number] = ServedProcess(
            self.folder / f"daemon{number}.log", "serve", "--state", self.state(number),
            "--config", self.config, "--listen", f"127.0.0.1:{self.ports[number]}", *options,
        )  # fmt: skip

    def start_agent(self, name):
        """Start it, on its own folder; it joins where daemons have certificates."""
        who = ["--token-file", self.folder / "agent.token"]
        if self.ca is not None:
            who = [] if name in self.agents else ["--join", self.client.invite(name)]
        self.agents[name] = ServedProcess(
            self.folder / f"{name}.log", "agent", "--server", ",".join(reversed(self.servers)),
            *who, "--name", name, "--gpus", self.gpus,
            "--address", "127.0.0.1", "--root", self.root(name), "--jobs", self.folder / "jobs",
            "--isolation", "auto", "--visible", self.marks,
        )  # fmt: skip

    def root(self, name):
        """The folder of an agent."""
        return self.folder / f"agent-{name}"

    def leader(self):
        """The number of the daemon that leads, plus one; None: none does yet."""
        for number, served in enumerate(self.daemons):
            if served is None:
                continue
            assert served.runs, served.text()[-3000:]
            token = self.state(number) / "token"
            if token.exists():
                secret = token.read_text().strip()
                with Client(self.servers[number], secret, ca=self.ca, patience_s=0) as asked:
                    try:
                        asked.status()
                    except RotaError:
                        continue
                return number + 1
        return None

    def answers(self):
        """Does anybody?"""
        try:
            return self.client.status()
        except RotaError:
            return None

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, name, seconds):
        """Submit a job that writes down its runs, and any process of it that is there already."""
        marks = self.marks
        run = (
            f'exec 9>>"{marks}/$ROTA_JOB_ID.lock"\n'
            f"flock -n -E {TAKEN} 9\n"  # it may be killed, too: only this code says that it is held
            f'test $? -ne {TAKEN} || echo "$ROTA_RUN_ID" >>{marks}/overlaps\n'
            f'echo "$ROTA_RUN_ID" >>{marks}/runs\n'
            f"sleep {seconds}\n"
        )
        job = {"run": run, "name": name, "resources": {"gpus": 1}, "retries": 100, "backoff": 0}
        self.submitted[name] = self.client.submit(job, key=name).id

    # --- kills ------------------------------------------------------------------------------------

    def kill_daemon(self, dice):
        """The one that leads, or the other one; it is started again."""
        number = dice.randrange(len(self.daemons))
        self.daemons[number].kill()
        self.start_daemon(number)
        eventually(self.answers)
        return True

    def fail_over(self, how):
        """End the leader by a signal, wait until the other one leads, and bring the first back."""
        old = eventually(self.leader) - 1
        served = self.daemons[old]
        os.kill(served.pid, how)
        self.daemons[old] = None
        eventually(self.leader)
        if how == signal.SIGSTOP:
            os.kill(served.pid, signal.SIGCONT)  # it must not believe that it leads
            self.daemons[old] = served
        else:
            served.process.wait(PATIENCE_S)
            self.start_daemon(old)
        self.kills["failover"] += 1

    def kill_agent(self, dice):
        """Any; it is started again on the same folder."""
        name = dice.choice(sorted(self.agents))
        self.agents[name].kill()
        self.start_agent(name)
        return True

    def kill_shim(self, dice):
        """The process that watches a job."""
        found = sorted(self.folder.glob("agent-*/runs/*/identity.json"))
        return bool(found) and self._kill_one(dice.choice(found))

    @staticmethod
    def _kill_one(path):
        try:
            pid = json.loads(path.read_text())["pid"]
            os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError, KeyError):  # it has just ended
            return False
        return True

    def kill_job(self, dice):
        """A process that a job started."""
        key = b"ROTA_JOB_ID="
        own = {served.pid for served in [*self.daemons, *self.agents.values()] if served}
        found = [
            pid
            for pid, command in processes_of(self.folder / "jobs").items()
            if pid not in own and "shim" not in command and key in _environ(pid)
        ]
        if not found:
            return False
        end_at_once(dice.choice(sorted(found)))
        return True

    def suffer(self, jobs, kills, *, seed, daemons=0.1, agents=0.2, longest_s=1.5):
        """Submit jobs and kill parts, as the seed says, until both numbers are reached.

        The kills keep pace with the jobs, so that they come while all of these wait and run, not
        only the first ones; and the kind that the dice chose is killed, as soon as there is one.
        """
        dice = random.Random(seed)  # noqa: S311 - not a secret
        kinds = [
            (self.kill_daemon, daemons), (self.kill_agent, agents),
            (self.kill_shim, (1 - daemons - agents) / 2),
            (self.kill_job, (1 - daemons - agents) / 2),
        ]  # fmt: skip
        kill = None
        while (done := sum(self.kills.values())) < kills or len(self.submitted) < jobs:
            begun = self.begun()
            while len(self.submitted) < min(jobs, begun + QUEUED):
                name = f"j{len(self.submitted)}"
                self.submit(name, round(dice.uniform(SHORTEST_S, longest_s), 2))
            if done >= kills or done * jobs > begun * kills:
                time.sleep(LOOK_S)
                continue
            if kill is None:
                (kill,) = dice.choices([kind for kind, _ in kinds], [share for _, share in kinds])
            if kill(dice):
                self.kills[kill.__name__] += 1
                kill = None
            elif begun >= jobs and not list(self.client.jobs(active=True)):
                self.submit(f"more{len(self.submitted)}", longest_s)  # something to kill
            else:
                time.sleep(LOOK_S)

    def begun(self):
        """How many jobs have run, or do."""
        return sum(entry.name.endswith(".lock") for entry in os.scandir(self.marks))

    # --- what must hold ---------------------------------------------------------------------------

    def check(self):
        """Nothing is lost, doubled, left behind, and no two runs of a job overlapped."""
        eventually(lambda: not list(self.client.jobs(active=True)), 10 * PATIENCE_S, 0.2)
        found = {job.name: job for job in self.client.jobs()}
        assert {name: job.id for name, job in found.items()} == self.submitted
        assert len(list(self.client.jobs())) == len(self.submitted)
        states = Counter(job.state for job in found.values())
        assert states == {"SUCCEEDED": len(self.submitted)}, [
            job for job in found.values() if job.state != "SUCCEEDED"
        ][:3]
        runs = self.lines("runs")
        assert len(set(runs)) == len(runs), Counter(runs).most_common(3)
        assert {run.rpartition(".")[0] for run in runs} == set(self.submitted.values())
        assert self.lines("overlaps") == []
        eventually(lambda: not self.orphans(), PATIENCE_S, 0.2)
        print(self.tally(found))  # noqa: T201 - `pytest -rP` shows it

    def tally(self, found):
        """What happened and what it cost, in numbers; `found`: jobs that the daemon knows."""
        runs = self.lines("runs")
        ran = {run.rpartition(".")[0] for run in runs}
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills ({kinds}), {len(self.submitted)} jobs, "
            f"{len(runs)} runs, {len(set(self.submitted) - set(found))} lost, "
            f"{len(set(self.submitted.values()) - ran)} never run, "
            f"{len(runs) - len(set(runs))} doubled, {len(self.lines('overlaps'))} overlaps, "
            f"{len(self.orphans())} orphans"
        )

    def lines(self, name):
        """What jobs wrote down."""
        path = self.marks / name
        return path.read_text().split() if path.exists() else []

    def orphans(self):
        """{pid: command} of shims and jobs."""
        own = {served.pid for served in [*self.daemons, *self.agents.values()] if served}
        folders = [self.folder / "jobs", *(self.root(name) for name in self.agents)]
        return {pid: cmd for pid, cmd in processes_of(*folders).items() if pid not in own}

    def close(self):
        """End everything, whatever state it is in."""
        if self.client is not None:
            self.client.close()
        for served in [*self.agents.values(), *self.daemons]:
            if served is not None:
                served.kill()
        for holder in self.holders:
            holder.close()
        for pid in self.orphans():
            end_at_once(pid)
            eventually(lambda pid=pid: not alive(pid))


@contextmanager
def killed_cluster(folder, **options):
    """A cluster for the length of a block; nothing of it is left."""
    cluster = KilledCluster(folder, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def _environ(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
