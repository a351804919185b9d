"""A real daemon in a process of its own: start it, kill it, leave nothing behind."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from agents_net import alive, eventually
from rota.core.errors import RotaError
from rota.sdk import Client
from rota.wire import ENDED

PATIENCE_S = 300.0
ROTA = (sys.executable, "-m", "rota.cli")


def clean_environ(**more):
    """The environment without anything that says where another daemon is."""
    isolation = ("ROTA_ISOLATION", "ROTA_VISIBLE")
    kept = {n: v for n, v in os.environ.items() if not n.startswith("ROTA_") or n in isolation}
    return {**kept, **{name: str(value) for name, value in more.items()}}


def processes_of(*folders):
    """Return {pid: command} of the processes that mention one of these folders.

    Shims have it in their command, everything that a job started in its environment.
    """
    marks = [str(folder).encode() + b"/" for folder in folders]
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                text = command + b"\0" + (entry / "environ").read_bytes()
            except OSError:
                continue
            if any(mark in text for mark in marks) and alive(int(entry.name)):
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


class ServedProcess:
    """A command of Rota in a process: its output goes to a file."""

    def __init__(self, output, *args, env=None):
        self.output = output
        with output.open("ab") as file:
            self.process = subprocess.Popen(
                [*ROTA, *map(str, args)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=clean_environ(**(env or {})),
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.process.pid

    @property
    def runs(self):
        return self.process.poll() is None

    def text(self):
        """Everything that it has written."""
        return self.output.read_text(errors="replace")

    def kill(self):
        """End it without warning."""
        if self.runs:
            self.process.kill()
        self.process.wait()

    def stop(self, within_s=PATIENCE_S):
        """Ask it to end; the exit code."""
        if self.runs:
            self.process.terminate()
        return self.process.wait(within_s)


class DaemonProcess:
    """`rota serve` on a state folder of its own and a free port.

    `args` are those of every start; those of `start` and `restart` are for this and later starts.
    At the end (`close`) all jobs are cancelled, and nothing of them may be left.
    """

    def __init__(self, folder, *args, env=None, log=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_file = log or self.folder / "daemon.log"
        self.state = self.folder / "state"
        self.args = args
        self.env = env or {}
        self.agents = []
        self.roots = [self.state]
        self._served = None
        self._client = None

    # --- life -------------------------------------------------------------------------------------

    def start(self, *args, ready=True):
        """Start it and wait until it accepts work."""
        self.args = args or self.args
        (self.state / "server.json").unlink(missing_ok=True)  # of one that was killed
        self._served = self.launch(*self.args)
        eventually(lambda: (self.state / "server.json").exists() or self._gone(), PATIENCE_S)
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self):
        """Wait until it answers."""
        eventually(lambda: self._ready() or self._gone(), PATIENCE_S)

    def launch(self, *args):
        """Start one without waiting for anything."""
        return ServedProcess(
            self.log_file, "serve", "--state", self.state, "--listen", "127.0.0.1:0",
            *args, env=self.env,
        )  # fmt: skip

    def _gone(self):
        assert self._served.runs, f"the daemon ended:\n{self.log()[-5000:]}"

    def _ready(self):
        try:
            return self.client.status()
        except RotaError:
            return None

    @property
    def pid(self):
        return self._served.pid

    @property
    def runs(self):
        return self._served is not None and self._served.runs

    def kill(self):
        """Kill -9."""
        self._served.kill()
        self._forget_client()

    def stop(self):
        """SIGTERM; it must end well."""
        code = self._served.stop()
        self._forget_client()
        assert code == 0, f"exit code {code}:\n{self.log()[-5000:]}"

    def restart(self, *args):
        """Stop it and start it again."""
        self.stop()
        return self.start(*args)

    def hang_up(self):
        """SIGHUP."""
        os.kill(self.pid, signal.SIGHUP)

    # --- talking to it ----------------------------------------------------------------------------

    def connect(self, *, token=None, patience_s=20.0):
        """A client of one's own."""
        url = json.loads((self.state / "server.json").read_text())["url"]
        token = token or (self.state / "token").read_text().strip()
        return Client(url, token, patience_s=patience_s)

    @property
    def client(self):
        """A client with the administrator's token."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    def _forget_client(self):
        if self._client is not None:
            self._client.close()
            self._client = None

    def rota(self, *args, check=True, text=None):
        """Run a command of the command line against it; the finished process."""
        done = subprocess.run(
            [*ROTA, *map(str, args)], check=False, input=text, capture_output=True, text=True,
            env=clean_environ(ROTA_STATE=self.state), timeout=PATIENCE_S,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done

    def submit(self, run, **keys):
        """Submit a job; its id. Keys are those of a job file, and `gpus`."""
        resources = {"gpus": keys.pop("gpus", 1), **keys.pop("resources", {})}
        return self.client.submit({"run": run, "resources": resources, **keys}).id

    def state_of(self, job):
        """The state of a job."""
        return self.client.job(job).state

    def until(self, job, *states, within_s=PATIENCE_S):
        """Wait until a job is in one of these states; the job."""

        def there():
            info = self.client.job(job)
            assert info.state in states or info.state not in ENDED, f"{info}\n{self.log()[-3000:]}"
            return info if info.state in states else None

        return eventually(there, within_s, 0.05)

    def all_over(self, within_s=PATIENCE_S):
        """Wait until every job is over; all jobs."""
        eventually(lambda: not list(self.client.jobs(active=True)), within_s, 0.1)
        return list(self.client.jobs())

    def output(self, job, **which):
        """What a job has written."""
        return b"".join(self.client.logs(job, **which)).decode()

    def log(self):
        """What the daemons of this folder have written."""
        return self._served.text() if self._served else ""

    # --- agents -----------------------------------------------------------------------------------

    def agent(self, name, *args, gpus=2, jobs=None):
        """Start an agent in a process of its own; again with the same name: on the same folder."""
        token = self.folder / "agent.token"
        if not token.exists():
            token.touch(0o600)
            token.write_text(self.client.create_token("agents", "agent"))
        root = self.folder / f"agent-{name}"
        shared = self.folder / "shared-jobs" if jobs is None else jobs
        started = ServedProcess(
            self.folder / f"{name}.log", "agent", "--server", self.client.place.server,
            "--token-file", token, "--name", name, "--gpus", gpus, "--address", "127.0.0.1",
            "--root", root, "--jobs", shared, *args,
        )  # fmt: skip
        self.agents.append(started)
        self.roots += [root, shared]
        return started

    # --- the end ----------------------------------------------------------------------------------

    def processes(self):
        """{pid: command} of shims and jobs of this daemon and its agents."""
        own = {self._served.pid} if self._served else set()
        own |= {agent.pid for agent in self.agents}
        found = processes_of(*self.roots)
        return {pid: command for pid, command in found.items() if pid not in own}

    def assert_no_orphans(self, within_s=PATIENCE_S):
        """No job is there, so no process may be there."""
        try:
            eventually(lambda: not self.processes(), within_s, 0.1)
        except AssertionError:
            raise AssertionError(f"left behind: {self.processes()}") from None

    def clear(self):
        """End all jobs for the next test; the daemon must still be there."""
        self._gone()
        self._cancel_all()
        self.all_over()
        self.assert_no_orphans()

    def _cancel_all(self):
        for job in self.client.jobs(active=True):
            self.client.cancel(job.id)

    def close(self):
        """End everything; no process may be left."""
        try:
            if self.runs:
                self._cancel_all()
                self.assert_no_orphans()
                self.stop()
        finally:
            self._forget_client()
            for served in [*self.agents, *([self._served] if self._served else [])]:
                served.kill()
            left = processes_of(*self.roots)
            for pid in left:
                end_at_once(pid)
        assert not left, f"left behind: {left}"


def end_at_once(pid):
    """Kill a process that may have gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def serving(folder, *args, **options):
    """A daemon for the length of a block."""
    daemon = DaemonProcess(folder, *args, **options)
    try:
        yield daemon.start()
    finally:
        daemon.close()
