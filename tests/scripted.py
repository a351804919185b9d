"""A living cluster without processes: a driver and a clock that follow a script."""

import random
from heapq import heappop, heappush

from msgspec.structs import replace

from rota.core.jobs import INF
from rota.core.topology import NodeSpec, Topology
from rota.daemon.loop import DaemonLoop
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store, StoredJob
from rota.jobfile.model import Checkpoint, JobFile, Resources
from rota.live.driver import Capabilities, Driver, NodeStatus, RunStatus
from rota.live.inputs import JobRequest, NodeRequest, Reconfigured, Submitted
from rota.live.mailbox import PendingCall


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
        self.began = {}  # run -> since, also when it is over
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
        self.running[run] = self.began[run] = self.now_s
        job = run.split(".")[0]
        self.at(self.now_s + self.work[job] - self.done.get(job, 0.0), "finish", run)
        self.tell(RunStatus(run, "running", began_s=self.now_s))

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
        began_s = self.began.get(run)
        self.ended[run] = replace(status, began_s=began_s, ended_s=self.now_s)
        self.tell(self.ended[run])


class ScriptedDriver(Driver):
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
                world.tell(RunStatus(order.run, "running", began_s=world.began[order.run]))
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

    def at_s(self, moment_s):
        return moment_s


class Power(Exception):  # noqa: N818 - it is what fails
    """The daemon dies here."""


def job_file(gpus=1, *, estimate=None, queue="", name="", **rest):
    return JobFile(
        run="true", name=name, resources=Resources(gpus=gpus), estimate=estimate, queue=queue,
        checkpoint=Checkpoint(grace_s=5.0), **rest,
    )  # fmt: skip


_left_open: list[Store] = []


def close_stores():
    """Close what loops of a test left open: a daemon that dies closes nothing."""
    while _left_open:
        _left_open.pop().close()


def make_loop(
    store_path, world, *, policy="fifo-skip", admission="accept-all", nodes=(4, 4), **options
):
    """`nodes` is (nodes, GPUs each) or a list of `NodeSpec`."""
    store = Store(store_path, durable=False)
    _left_open.append(store)
    store.epoch_unix = 0.0
    return DaemonLoop(
        store, ScriptedDriver(world), Scheduling(policy=policy, admission=admission),
        Topology(nodes) if isinstance(nodes, list) else Topology.uniform(*nodes),
        clock=lambda epoch, reached: ScriptedClock(world), **options,
    )  # fmt: skip


def node_lost(name, why="gone"):
    return NodeStatus(name, "lost", why=why)


class Script:
    """What people want, and when. What was committed is not said again."""

    def __init__(self, entries):
        self.everything = self.entries = sorted(entries, key=lambda entry: entry[0])
        self.said = 0
        self.happened = []  # to nodes: that is not repeated

    def next_s(self):
        return self.entries[self.said][0] if self.said < len(self.entries) else INF

    def speak(self, loop, now_s):
        """Ask for everything that is due."""
        due = []
        while self.next_s() <= now_s:
            due.append(self.entries[self.said][1])
            self.said += 1
        files = [what for what in due if isinstance(what, JobFile)]
        if files:
            self.ask(loop, lambda: self.submit(loop, files))
        for wish in due:
            if isinstance(wish, NodeStatus):
                self.happened.append(wish)
                loop.driver.world.node(wish)
            elif not isinstance(wish, JobFile):
                self.ask(loop, lambda wish=wish: self.wish(loop, wish))

    def ask(self, loop, act):
        with loop.mailbox._changed:
            loop.mailbox._calls.append(PendingCall(act))

    def submit(self, loop, files):
        first = loop.journal.next_number()
        jobs = [
            StoredJob(first + i, "me", loop.state.cluster.now_s, f) for i, f in enumerate(files)
        ]
        loop.journal.accept(jobs)
        return [Submitted(first, len(files))], lambda: None

    def wish(self, loop, wish):
        if isinstance(wish, JobRequest) and loop.state.engine.jobs[wish.job].terminal:
            return [], lambda: None
        return [wish], lambda: None

    def forget_committed(self, jobs, wishes):
        left = []
        for time_s, what in self.everything:
            if isinstance(what, JobFile):
                jobs -= 1
                if jobs < 0:
                    left.append((time_s, what))
            elif what not in wishes and what not in self.happened:
                left.append((time_s, what))
        self.entries, self.said = left, 0


def drive(loop, world, script):
    """Until nothing can happen any more."""

    def wait_s(until_s):
        world.go(min(until_s, world.next_s(), script.next_s()))
        script.speak(loop, world.now_s)
        if until_s == world.next_s() == script.next_s() == INF:
            loop.interrupt()
        return 0.0

    loop._clock.wait_s = wait_s
    loop.go_live()
    script.speak(loop, world.now_s)
    still = 0
    while still < 3:
        before = loop.state.engine.view.version
        loop.step()
        mailbox = loop.mailbox
        quiet = world.next_s() == script.next_s() == INF and not mailbox._messages
        still = still + 1 if quiet and loop.state.engine.view.version == before else 0
    loop.journal.flush()


def a_day(seed, jobs=25):
    """How long jobs take, and what people want."""
    dice = random.Random(seed)  # noqa: S311
    work = {str(n): dice.choice([1.0, 2.5, 4.0, 9.0, 30.0]) for n in range(1, jobs + 1)}
    at_s = 0.0
    entries = []
    for number in range(1, jobs + 1):
        at_s += dice.choice([0.0, 0.5, 1.0, 3.0])
        entries.append((at_s, job_file(dice.choice([1, 1, 2, 4, 8]), estimate=work[str(number)])))
        if dice.random() < 0.3:
            what = dice.choice(["cancel", "hold"])
            entries.append((at_s + 2.0, JobRequest(what, number, "me")))
            if what == "hold":
                entries.append((at_s + 8.0, JobRequest("release", number, "me")))
    for time_s, what, node in [
        (12.0, "drain", "n1"), (15.0, "clear", "n2"), (30.0, "undrain", "n1"),
        (31.0, "undrain", "n2"),
    ]:  # fmt: skip
        entries.append((time_s, NodeRequest(what, node, "me")))
    entries += [
        (9.0, NodeStatus("late", "up", NodeSpec("late", 4))),
        (17.0, NodeStatus("n0", "silent")),
        (18.0, NodeStatus("n0", "lost")),
        (20.0, Reconfigured({"policy": "smallest"}, by="me")),
        (24.0, NodeStatus("n0", "up")),
        (26.0, Reconfigured({"policy": "tiresias:limits=8/40", "placement": "spread"}, by="me")),
        (28.0, NodeStatus("odd", "up", NodeSpec("odd", 2, "k80"))),
    ]
    return work, entries
