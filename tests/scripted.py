"""A living cluster without processes: a driver and a clock that follow a script."""

from heapq import heappop, heappush

from rota.backends.live.orders import Capabilities, NodeStatus, RunStatus
from rota.core.jobs import INF
from rota.core.topology import Topology
from rota.daemon.core import Core
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store
from rota.jobfile.model import Checkpoint, JobFile, Resources


class ScriptedWorld:
    """What is out there and outlives daemons: a clock, and runs that take a scripted time.

    Every run takes `start_s` to begin, what is left of its job's work, and `stop_s` to stop.
    """

    def __init__(self, work, *, start_s=0.25, stop_s=0.5):
        self.work = work  # by job id: seconds
        self.start_s, self.stop_s = start_s, stop_s
        self.now_s = 0.0
        self.done = {}  # by job id: seconds of progress that were saved
        self.launched = []  # run ids, in order
        self.running = {}  # run -> since
        self.places = {}  # run -> name of its (first) node
        self.ended = {}  # run -> status that nobody forgot yet
        self.due = []
        self.count = 0
        self.listener = None
        self.nodes = {}  # those that joined, and what became of them

    def node(self, status):
        """Something happens to a node."""
        self.nodes[status.node] = status
        self.tell(status)
        if status.state == "lost":
            for run in [r for r in self.running if self.places[r] == status.node]:
                self._end(run, RunStatus(run, "lost", why="its node is gone"))

    def at(self, time_s, what, run):
        self.count += 1
        heappush(self.due, (time_s, self.count, what, run))

    def next_s(self):
        return self.due[0][0] if self.due else INF

    def go(self, time_s):
        """Let the time pass."""
        while self.due and self.due[0][0] <= time_s:
            self.now_s, _, what, run = heappop(self.due)
            getattr(self, f"_{what}")(run)
        if time_s < INF:
            self.now_s = max(self.now_s, time_s)

    def tell(self, message):
        if self.listener is not None:
            self.listener(message)

    def _begin(self, run):
        if run in self.ended:
            return
        self.running[run] = self.now_s
        job = run.split(".")[0]
        self.at(self.now_s + self.work[job] - self.done.get(job, 0.0), "finish", run)
        self.tell(RunStatus(run, "running"))

    def _finish(self, run):
        if run in self.running:
            self._end(run, RunStatus(run, "ended", 0))

    def _stopped(self, run):
        if run not in self.ended:
            self._end(run, RunStatus(run, "ended", 0, asked=True))

    def _end(self, run, status):
        job = run.split(".")[0]
        since = self.running.pop(run, None)
        if since is not None:
            self.done[job] = self.done.get(job, 0.0) + self.now_s - since
        self.ended[run] = status
        self.tell(status)


class ScriptedDriver:
    """Implements `Driver` on a `ScriptedWorld`."""

    name = "scripted"
    capabilities = Capabilities()

    def __init__(self, world):
        self.world = world

    def open(self, listener):
        self.world.listener = listener
        for status in self.world.nodes.values():
            self.world.tell(status)

    def adopt(self, runs, halting):
        world = self.world
        wanted = {order.run for order in runs}
        for run in [run for run in world.running if run not in wanted]:
            self.kill(run)
        for order in runs:
            if order.run in world.ended:
                world.tell(world.ended[order.run])
            elif order.run in world.running:
                world.tell(RunStatus(order.run, "running"))
            elif order.run not in world.launched:
                self.launch(order)
            if order.run in halting and order.run not in world.ended:
                self.halt(order.run)

    def launch(self, order):
        world = self.world
        assert order.run not in world.launched, f"{order.run} is started twice"
        job = order.run.split(".")[0]
        assert not any(r.split(".")[0] == job for r in world.running), f"job {job} runs twice"
        world.launched.append(order.run)
        world.places[order.run] = order.parts[0].node
        world.at(world.now_s + world.start_s, "begin", order.run)

    def halt(self, run):
        self.world.at(self.world.now_s + self.world.stop_s, "stopped", run)

    def kill(self, run):
        self.world.at(self.world.now_s, "stopped", run)

    def forget(self, run):
        self.world.ended.pop(run, None)

    def retire(self, job):
        pass

    def read_log(self, job, stream, node_rank, offset, limit):
        return b""

    def close(self):
        self.world.listener = None


class ScriptedClock:
    """The world's time; waiting means that the world goes on."""

    def __init__(self, world):
        self.world = world

    def now_s(self):
        return self.world.now_s

    def wait_s(self, until_s):
        self.world.go(min(until_s, self.world.next_s()))
        return 0.0


class Power(Exception):  # noqa: N818 - it is what fails
    """The daemon dies here."""


def job_file(gpus=1, *, estimate=None, queue="", name="", **rest):
    return JobFile(
        run="true", name=name, resources=Resources(gpus=gpus), estimate=estimate, queue=queue,
        checkpoint=Checkpoint(grace_s=5.0), **rest,
    )  # fmt: skip


def make_core(store_path, world, *, policy="fifo-skip", nodes=(4, 4), **options):
    store = Store(store_path, durable=False)
    store.epoch_unix = 0.0
    return Core(
        store, ScriptedDriver(world), Scheduling(policy=policy), Topology.uniform(*nodes),
        clock=lambda epoch, reached: ScriptedClock(world), **options,
    )  # fmt: skip


def node_lost(name, why="gone"):
    return NodeStatus(name, "lost", why=why)
