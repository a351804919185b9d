"""The cluster port around a driver: inputs become events, commands become orders of runs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from rota.core import events as ev
from rota.core.allocation import Allocation
from rota.core.events import INF, Event
from rota.core.jobs import RUNNING, STARTING, Job
from rota.core.launch import Launch
from rota.core.ports import ClusterCapabilities
from rota.core.sharing import LIMIT, TIMESLICE, WEIGHT
from rota.core.topology import Topology, Vertex
from rota.core.words import brief
from rota.live.clock import ClusterClock
from rota.live.driver import Driver, Message, NodeStatus, RunMetrics, RunStatus
from rota.live.inputs import BatchDraft, Input, JobRequest, NodeRequest, root
from rota.live.mailbox import Mailbox
from rota.live.nodes import JoinQueue, NodeRegistry
from rota.live.runs import LiveRun, RunTable

OF_RUNS = {
    ev.JOB_RUNNING, ev.JOB_DONE, ev.JOB_FAILED, ev.JOB_STOPPED, ev.JOB_EVICTED, ev.JOB_TIMEOUT,
}  # fmt: skip
REQUESTS = {
    "cancel": (ev.JOB_CANCELLED, "cancelled"),
    "hold": (ev.JOB_HELD, "held"),
    "release": (ev.JOB_RELEASED, "released"),
}


class LiveCluster:
    """Implements the `Cluster` port for any `Driver`. It never waits: the owner of the engine does.

    The owner puts what came in together (`select`), journals it, says what time it is (`now_s`) and
    hands it over (`deliver`); the engine's next `poll` takes the events. Until `go_live` commands
    change only the records, so that a journal can be replayed; then the driver is given the runs
    that shall exist.

    What was not seen when it happened (the daemon or the agent was away) happens when it is heard
    of, but its event has the time at which it really happened: so long the run has lasted.

    *Stop* is always reported later (JOB_STOPPED). A job that ended by itself before it was asked to
    stays done or failed; once it was asked, every end counts as a stop.
    """

    def __init__(
        self,
        topology: Topology,
        driver: Driver,
        launches: Callable[[Job], Launch],
        clock: ClusterClock,
        mailbox: Mailbox,
    ) -> None:
        self.topology = topology
        self.driver = driver
        self.capabilities = ClusterCapabilities(new_terms=driver.capabilities.terms)
        self.clock = clock
        self.mailbox = mailbox
        self.now_s = 0.0
        self.runs = RunTable(topology, launches)
        self.nodes = NodeRegistry(topology)
        self.joining = JoinQueue(self.nodes, self.runs)
        self.closed = False
        self._live = False
        self._unseen: dict[str, float] = {}  # runs without news since `go_live`: last seen when
        self._why: dict[int, str] = {}
        self._measured: dict[int, Mapping[str, float]] = {}
        self._sequence = 0
        self._delivered: list[Event] = []

    # --- life -------------------------------------------------------------------------------------

    def go_live(self) -> None:
        """From now on it is for real: give the driver the runs that shall exist."""
        self._live = True
        self._unseen = dict.fromkeys(self.runs.by_id, self.now_s)
        self.driver.open(self._receive)
        runs = [run for run in self.runs.by_id.values() if not run.waits]
        self.driver.adopt(
            [run.order for run in runs], frozenset(run.order.run for run in runs if run.halting)
        )
        for run in runs:
            if run.over and not run.halting:  # it was evicted: nothing of it shall be left
                self.driver.kill(run.order.run)
        for run in self.runs.by_id.values():
            if run.waits and run.halting:
                self.mailbox.post(RunStatus(run.order.run, "ended", asked=True))

    def close(self) -> None:
        """Stop listening; what runs goes on."""
        self.closed = True
        if self._live:
            self._live = False
            self.driver.close()

    # --- from messages to inputs ------------------------------------------------------------------

    def _receive(self, message: Message) -> None:
        """A message of the driver, from any thread: its moments are put on our clock."""
        if isinstance(message, RunStatus):
            seen_s = self._unseen.pop(message.run, None)
            began_s, ended_s = (
                None if moment_s is None else self.clock.at_s(moment_s)
                for moment_s in (message.began_s, message.ended_s)
            )
            if message.state == "lost" and ended_s is None:
                ended_s = seen_s
            message = replace(message, began_s=began_s, ended_s=ended_s)
        self.mailbox.post(message)

    def select(self, messages: list[Message], batch: BatchDraft) -> None:
        """Put into a batch what may happen together; the rest goes back to the mailbox."""
        later: list[Message] = []
        messages.sort(key=_is_about_node)  # of runs first, whatever came first
        for message in messages:
            if isinstance(message, NodeStatus):
                if later or not batch.admits(nodes=True):
                    later.append(message)
                    continue
                self.joining.consider(message)
                same = self.nodes.recognised(message)
                if self.nodes.knows(message.node) and self.nodes.is_news(same):
                    batch.add([same], nodes=True)
            else:
                self._select_run(message, batch, later)
        if later:
            self.mailbox.put_back(later)

    def _select_run(
        self, message: RunStatus | RunMetrics, batch: BatchDraft, later: list[Message]
    ) -> None:
        """News of a run: for this batch, for the next, or of nothing we know."""
        run = self.runs.by_id.get(message.run)
        if run is None:
            return
        job = {root(run.job)}
        if not batch.admits(job):
            later.append(message)
            return
        if isinstance(message, RunStatus):
            if message.state == "running" and (run.over or run.job.phase != STARTING):
                return
            over = message.state != "running" and not message.asked
            done = message.state == "ended" and message.code == 0 and not message.timed_out
            ran = message.began_s is not None or done
            if over and ran and not run.over and run.job.phase == STARTING:
                later.append(message)  # it was quick, or seen late: it began before it ended
                message = RunStatus(message.run, "running", began_s=message.began_s)
        elif run.over:
            return
        batch.add([message], job)

    # --- from inputs to events --------------------------------------------------------------------

    def deliver(self, inputs: Sequence[Input], jobs: Mapping[int, Job]) -> None:
        """Turn inputs into events of now, for the next poll; in an order of their own."""
        found: list[tuple[int, Any]] = []
        real_s: dict[int, float] = {}  # by job: when it happened, at most one thing for each
        for item in inputs:
            if isinstance(item, RunStatus):
                job = self.runs.by_id[item.run].job
                real_s[job.index] = self._moment(item, job)
                found += self._run_changed(item)
            elif isinstance(item, RunMetrics):
                job = self.runs.by_id[item.run].job
                self._measured[job.index] = item.values
                found.append((ev.REPORT, job))
            elif isinstance(item, JobRequest):
                kind, past = REQUESTS[item.what]
                self._why[item.job] = f"{past} by {item.by}"
                found.append((kind, jobs[item.job]))
            elif isinstance(item, NodeStatus):
                node = self.nodes.vertex(item.node)
                found += [(kind, node) for kind in self.nodes.reported(item)]
            elif isinstance(item, NodeRequest):
                node = self.nodes.vertex(item.node)
                found += [(kind, node) for kind in self.nodes.requested(item)]
        found.sort(key=_rank)  # not by who was heard first
        for kind, subject in found:
            self._sequence += 1
            at_s = real_s.get(subject.index, self.now_s) if kind in OF_RUNS else self.now_s
            self._delivered.append((at_s, kind, self._sequence, subject, subject.epoch))

    def poll(self, until_s: float) -> list[Event]:  # noqa: ARG002 - the owner has waited
        """The events of what was delivered."""
        events, self._delivered = self._delivered, []
        return events

    def _moment(self, status: RunStatus, job: Job) -> float:
        """When it happened: not before the run was ordered or began, and not in the future.

        A run that is known to have begun lasted as long as was measured, also if our clock was set
        in between.
        """
        began_s, ended_s = status.began_s, status.ended_s
        if status.state == "running":
            return self.now_s if began_s is None else min(max(began_s, job.start_s), self.now_s)
        if ended_s is None:
            return self.now_s
        if job.phase == RUNNING and began_s is not None:
            ended_s = job.since_s + ended_s - began_s
        earliest_s = job.since_s if job.phase == RUNNING else max(began_s or 0.0, job.start_s)
        return min(max(ended_s, earliest_s), self.now_s)

    def _run_changed(self, status: RunStatus) -> list[tuple[int, Job]]:
        run = self.runs.by_id[status.run]
        job = run.job
        if status.state == "running":
            return [(ev.JOB_RUNNING, job)]
        self._forget(run)
        if run.over:
            return []
        if status.timed_out:
            kind = ev.JOB_TIMEOUT
        elif status.state == "lost":
            kind = ev.JOB_STOPPED if run.halting else ev.JOB_EVICTED
        elif run.halting and status.asked:
            kind = ev.JOB_STOPPED
        else:
            kind = ev.JOB_FAILED if status.code else ev.JOB_DONE
        if kind == ev.JOB_TIMEOUT and job.spec.limit_s < INF:
            self._why[job.index] = f"its time limit of {brief(job.spec.limit_s)} is reached"
        elif kind != ev.JOB_STOPPED:  # else what counts is who wanted that
            self._why[job.index] = status.why
        return [(kind, job)]

    def _forget(self, run: LiveRun) -> None:
        following = self.runs.remove(run)
        if self._live:
            self.driver.forget(run.order.run)
            if following is not None:
                self.driver.launch(following.order)

    # --- commands ---------------------------------------------------------------------------------

    def start(self, job: Job) -> float:
        """Order a run; JOB_RUNNING follows when it makes progress."""
        run = self.runs.make(job)
        if self._live and not run.waits:
            self.driver.launch(run.order)
        return INF

    def rate(self, job: Job) -> float:  # noqa: ARG002 - part of the port
        """Unknown; by definition 1."""
        return 1.0

    def stop(self, job: Job, *, to: Allocation | None = None) -> tuple[float, bool]:  # noqa: ARG002
        """Ask it to end. What it had not saved is lost, but how much that is is unknown."""
        run = self.runs.current[job.index]
        run.halting = True
        if self._live and run.waits:  # it never began
            self.mailbox.post(RunStatus(run.order.run, "ended", asked=True))
        elif self._live:
            self.driver.halt(run.order.run)
        return 0.0, False

    def evict(self, job: Job) -> float:
        """Kill whatever is left of its run."""
        run = self.runs.give_up(job)
        if run is not None and self._live:
            self.driver.kill(run.order.run)
        return 0.0

    def release(self, job: Job) -> None:
        """The job is finished; if it still runs it is asked to end."""
        run = self.runs.give_up(job)
        if run is not None:
            run.halting = True
            if self._live:
                self.driver.halt(run.order.run)
        if self._live:
            self.driver.retire(job.id)
        self._measured.pop(job.index, None)

    def failure(self, subject: Job | Vertex) -> str:
        """Why it failed or was lost, or who wanted what happens to it."""
        if isinstance(subject, Job):
            return self._why.get(subject.index, "")
        return self.nodes.by_name[subject.name].why

    def measured(self, job: Job) -> Mapping[str, float]:
        """What it reported last."""
        return self._measured.get(job.index, {})

    def accepts(self, job: Job, allocation: Allocation) -> bool:
        """Only turns can change while it runs: memory and limits of MPS are said when it starts."""
        return _at_start(self.topology, job.allocation) == _at_start(self.topology, allocation)

    def new_terms(self, job: Job) -> None:
        """It goes on, with more or fewer turns, or none."""
        run = self.runs.renew(job)
        if self._live and not run.waits:
            self.driver.new_terms(run.order)

    def rerated(self) -> Sequence[tuple[Job, float]]:
        """Never."""
        return ()

    def discard(self, jobs: Collection[int]) -> None:
        """These jobs, which are over and gone, are forgotten."""
        self.runs.discard(jobs)
        for index in jobs:
            self._why.pop(index, None)
            self._measured.pop(index, None)

    # --- state ------------------------------------------------------------------------------------

    def grown(self) -> None:
        """The topology has more nodes."""
        self.nodes.refresh()
        self.joining.refresh()

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "now_s": self.now_s,
            "sequence": self._sequence,
            "runs": self.runs.snapshot(),
            "machines": self.nodes.snapshot(),
            "why": list(self._why.items()),
            "measured": [(index, dict(values)) for index, values in self._measured.items()],
        }

    def restore(self, state: dict[str, Any], jobs: dict[int, Job]) -> None:
        """Take the state of `snapshot` up again."""
        self.now_s = state["now_s"]
        self._sequence = state["sequence"]
        self.runs.restore(state["runs"], jobs)
        self.nodes.restore(state["machines"])
        self._why = dict(state["why"])
        self._measured = dict(state["measured"])


def _at_start(topology: Topology, allocation: Allocation) -> list[tuple[int, str, float]]:
    """What of an allocation a run is told when it starts, and cannot be told later."""
    return [
        (vertex, kind, amount)
        for vertex, kind, amount in allocation.extra
        if kind != WEIGHT
        and not (kind == LIMIT and (not amount or topology.vertices[vertex].sharing == TIMESLICE))
    ]


def _is_about_node(message: Message) -> bool:
    return isinstance(message, NodeStatus)


def _rank(found: tuple[int, Any]) -> tuple[int, int]:
    kind, subject = found
    return kind, subject.index if isinstance(subject, Job) else subject.id
