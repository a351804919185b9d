"""Agents for tests: a driver with agents in this process, and what it told."""

import json
import os
import threading
import time
from pathlib import Path

import msgspec

from rota.core.launch import Launch
from rota.core.topology import NodeSpec
from rota.live.agent import shim
from rota.live.agent.agent import Agent
from rota.live.agent.link import AgentLink
from rota.live.agent.sandbox import Sandbox
from rota.live.calls import LaneOrders
from rota.live.driver import NodeStatus, RunOrder, RunPart, RunStatus
from rota.live.drivers.local.driver import AgentDriver
from rota.live.drivers.local.embedded import nodes_here

FIRST_PID = 200  # smaller ones are in a sandbox, or the system's
PATIENCE_S = 300.0


def eventually(check, within_s=PATIENCE_S, every_s=0.01):
    """Return the first true value of `check()`."""
    end_s = time.monotonic() + within_s
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(every_s)


def alive(pid):
    """Is this process there, and more than a zombie?"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def marked(key):
    """Return the processes whose environment has this ROTA_RUN_KEY."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"ROTA_RUN_KEY={key}".encode() in environ.split(b"\0"):
                found.append(int(entry.name))
    return found


def stands_still(pid):
    """Is a process stopped by a signal, or frozen with its cgroup?"""
    here = Path("/proc", str(pid))
    if (here / "stat").read_text().rpartition(")")[2].split()[0] == "T":
        return True
    group = next(x[3:] for x in (here / "cgroup").read_text().splitlines() if x[:3] == "0::")
    mounts = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
    states = [mount / group.lstrip("/") / "cgroup.events" for mount in mounts]
    return any("frozen 1" in state.read_text() for state in states if state.exists())


def pid_outside(root, job, pid):
    """Return the pid that we see of a process of a job, which may know another one in a sandbox."""
    for path in root.glob(f"*/runs/{job}.*/identity.json"):
        for below in shim.descendants(json.loads(path.read_text())["pid"]):
            status = shim.read(f"/proc/{below}/status").splitlines()
            own = next((line for line in status if line.startswith("NSpid:")), "")
            if own.split()[-1:] == [str(pid)]:
                return below
    assert int(pid) > FIRST_PID, f"{pid} is gone, or somebody else"
    return int(pid)


def order(run="1.0", script="true", *, parts=None, gpus=1.0, node="n0", **options):
    """Return an order for a run; by default on one node."""
    job = run.rpartition(".")[0]
    if parts is None:
        slices = ((-1, float(gpus)),) if gpus else ()
        parts = (RunPart(node, slices, 0, 0, options.pop("processes", 1)),)
    fields = {
        name: options.pop(name)
        for name in ("restart", "name", "master_port", "user")
        if name in options
    }
    world = sum(part.processes for part in parts)
    launch = Launch(run=script, **{"grace_s": 5.0, **options})
    return RunOrder(
        run, job, launch, tuple(parts), world, fields.pop("master_port", 29500), **fields
    )


class Told:
    """What a driver told its listener, in order."""

    def __init__(self):
        self.messages = []
        self._news = threading.Condition()

    def __call__(self, message):
        with self._news:
            self.messages.append(message)
            self._news.notify_all()

    def wait(self, check, within_s=PATIENCE_S):
        """Return the first message that satisfies `check`."""

        def found():
            return next((m for m in self.messages if check(m)), None)

        with self._news:
            assert self._news.wait_for(found, within_s), f"not told; only {self.messages}"
            return found()

    def run(self, run, *states, within_s=PATIENCE_S):
        """Return the first status of a run with one of these states."""
        return self.wait(
            lambda m: isinstance(m, RunStatus) and m.run == run and m.state in states, within_s
        )

    def end(self, run, within_s=PATIENCE_S):
        """Return how a run ended."""
        return self.run(run, "ended", "lost", within_s=within_s)

    def node(self, node, state, within_s=PATIENCE_S):
        """Return the first status of a node with this state."""
        return self.wait(
            lambda m: isinstance(m, NodeStatus) and (m.node, m.state) == (node, state), within_s
        )

    def runs(self, run):
        """Return the states that were told of a run."""
        return [m.state for m in self.messages if isinstance(m, RunStatus) and m.run == run]


class Machine:
    """An agent with its threads, in this process; `crash` forgets it without a word."""

    def __init__(self, driver, root, specs, **options):
        self.driver = driver
        self.cut = self.closed = False
        if os.environ.get("ROTA_ISOLATION") == "required":
            visible = [os.environ.get("ROTA_VISIBLE", "")]
            options.setdefault("sandbox", Sandbox([root], visible=visible, embedded=True))
        self.agent = Agent(root, nodes_here(specs), **options)
        self.link = AgentLink(self.agent, self._carry, self._call)
        self.link.start()

    def _carry(self, report):
        if self.cut:
            raise ConnectionError("cut off")
        return self.driver.sync(report, 1.0)

    def _call(self, report):
        if self.cut:
            raise ConnectionError("cut off")
        answer = self.driver.lane_bytes(msgspec.msgpack.encode(report), "")
        return msgspec.msgpack.decode(answer, type=LaneOrders)

    def crash(self):
        """End the agent as if it had been killed; its jobs go on."""
        self.cut = self.closed = True
        self.link.stop()
        self.agent.close()


class Bench:
    """A driver and its agents in this process."""

    def __init__(self, root, **options):
        self.root = root
        self.told = Told()
        self.driver = AgentDriver(**options)
        self.driver.open(self.told)
        self.driver.adopt([], frozenset())
        self.machines = []
        self._runs = []

    def add(self, name="m0", nodes=("n0",), gpus=2, **options):
        """Start an agent with these nodes."""
        specs = [NodeSpec(node, gpus) for node in nodes]
        machine = Machine(self.driver, self.root / name, specs, name=name, **options)
        self.machines.append(machine)
        return machine

    def launch(self, *args, **options):
        """Launch an order."""
        made = order(*args, **options)
        self._runs.append(made)
        self.driver.launch(made)
        return made.run

    def folder(self, run, rank=0):
        """Return the folder of a part."""
        found = [p for m in self.root.iterdir() for p in (m / "runs").glob(f"{run}-{rank}")]
        return found[0]

    def key(self, run, rank=0):
        """Return the mark of a part."""
        return json.loads((self.folder(run, rank) / "part.json").read_text())["key"]

    def shim(self, run, rank=0):
        """Return the process id of a shim."""
        path = self.folder(run, rank) / "identity.json"
        eventually(path.exists)
        return json.loads(path.read_text())["pid"]

    def output(self, job, stream="out", rank=0):
        """Return the whole output of a job."""
        return self.driver.read_log(job, stream, rank, 0, 1 << 20).decode()

    def close(self):
        """Kill what runs and stop."""
        for made in self._runs:
            self.driver.kill(made.run)
        for machine in self.machines:
            if not machine.cut:
                eventually(lambda machine=machine: machine.agent.idle)
        for machine in self.machines:
            machine.link.end()
        self.driver.close()
        for machine in self.machines:
            if not machine.closed:
                machine.crash()
        for path in self.root.glob("*/runs/*/part.json"):
            for pid in marked(json.loads(path.read_text()).get("key", "?")):
                os.kill(pid, 9)
