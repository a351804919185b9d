"""The port around a driver: a living cluster whose every step can be repeated from a journal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter, sleep
from typing import Any

from msgspec.structs import replace

from rota.core import events as ev
from rota.core.allocation import Allocation
from rota.core.errors import ClusterError, RotaError
from rota.core.events import INF, Event
from rota.core.jobs import RUNNING, STARTING, Job
from rota.core.launch import Launch
from rota.core.ports import ClusterCapabilities
from rota.core.topology import Topology, Vertex
from rota.live.clock import Clock
from rota.live.inputs import (
    Batch,
    Input,
    JobWish,
    NodeWish,
    Noted,
    Reconfigured,
    Submitted,
)
from rota.live.joining import Joining
from rota.live.journal import Journal
from rota.live.machines import Machines
from rota.live.mailbox import Ask, LaterError, Mailbox
from rota.live.order import PAST, WISHES, about_nodes, rank, root
from rota.live.orders import Driver, Measured, Message, NodeStatus, RunStatus
from rota.live.runs import Run, Runs
from rota.live.source import LiveSource

NAP_S = 3600.0  # the longest single wait: some systems refuse longer ones
RETRY_S = 0.25  # after a failure to write the journal
OF_RUNS = {ev.JOB_RUNNING, ev.JOB_DONE, ev.JOB_FAILED, ev.JOB_STOPPED, ev.JOB_EVICTED}


class LiveCluster:
    """Implements the `Cluster` port for any `Driver`.

    All state changes are made by *inputs* (statuses of the driver, wishes of people), which are
    journaled in batches before the engine sees them, like the instants at which time alone made it
    act. `replay` feeds a journal back: commands then only change the books, until `go_live` tells
    the driver what shall exist.

    *Clock*: it stands still between polls and never passes the `until_s` of a poll: what is found
    late counts as found in time, so that timers and rounds have the same times as in the simulator.
    Only at the first poll of a life it does: nothing was decided while the daemon was away.
    What nobody saw (the daemon or the agent was away) happens when it is heard of, but its event
    has the time at which it really happened: so long the run has lasted.

    *Stop* is always told later (JOB_STOPPED). A job that ended by itself before it was asked to
    stays done or failed; once it was asked, every end counts as a stop.
    """

    capabilities = ClusterCapabilities()

    def __init__(
        self,
        topology: Topology,
        driver: Driver,
        launches: Callable[[Job], Launch],
        clock: Clock,
        *,
        journal: Journal | None = None,
        ends: bool = False,
    ) -> None:
        self.topology = topology
        self.driver = driver
        self.now_s = 0.0
        self.mailbox = Mailbox()
        self.source = LiveSource()
        self.runs = Runs(topology, launches)
        self.machines = Machines(topology)
        self.joining = Joining(self.machines, self.runs)
        self.notes: list[str] = []  # for the log, after this batch
        self.change: Reconfigured | None = None  # to be made before the next batch
        self.interrupted = False
        self.observe: Callable[[float], None] = lambda _: None  # told how long each batch took
        self.version: Callable[[], int] = lambda: 0
        self.jobs: Mapping[int, Job] = {}
        self._clock = clock
        self._journal = journal or Journal()
        self._ends = ends  # a poll for ever returns when nothing runs
        self._script: Iterator[Batch] | None = None
        self._coming: Batch | None = None
        self._live = False
        self._away = True  # nobody has polled in this life
        self.closed = False
        self._unseen: dict[str, float] = {}  # runs that nobody told of since `go_live`: seen until
        self._why: dict[int, str] = {}
        self._measured: dict[int, Mapping[str, float]] = {}
        self._sequence = 0
        self._answers: list[tuple[Ask[Any], Callable[[], Any]]] = []
        self._began = 0.0
        self._waits_since_s = 0.0  # inputs that could not be journaled yet

    # --- life -------------------------------------------------------------------------------------

    def replay(self, batches: Iterator[Batch]) -> None:
        """Take the inputs of coming polls from a journal."""
        self._script = batches
        self._coming = next(batches, None)

    @property
    def replaying(self) -> bool:
        """Is there more in the journal?"""
        return self._coming is not None

    def replayed_change(self) -> Reconfigured | None:
        """What comes next in the journal, if it is a change between two batches."""
        batch = self._coming
        change = batch.inputs[0] if batch is not None and batch.inputs else None
        if not isinstance(change, Reconfigured) or batch is None or self._script is None:
            return None
        if batch.version != self.version() + 1:
            return None
        self.now_s = batch.time_s
        self._coming = next(self._script, None)
        return change

    def go_live(self) -> None:
        """From now on it is for real: tell the driver what shall exist."""
        self._live = True
        self._unseen = dict.fromkeys(self.runs.by_id, self.now_s)
        self.driver.open(self._hear)
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

    def catch_up(self) -> None:
        """Let the time be what it is, without waiting for anything."""
        self.now_s = max(self.now_s, self._clock.now_s())

    def interrupt(self) -> None:
        """Let a poll come back; from any thread."""
        self.interrupted = True
        self.mailbox.rouse()

    def close(self) -> None:
        """Stop listening; what runs goes on."""
        self.closed = True
        self.mailbox.close()
        self._settle_answers()
        if self._live:
            self._live = False
            self.driver.close()

    # --- clock ------------------------------------------------------------------------------------

    def poll(self, until_s: float) -> list[Event]:
        """Wait for inputs until `until_s`; an interrupted poll comes back with nothing."""
        self._settle_answers()
        if until_s <= self.now_s:  # no time passes: so that it need not be journaled
            return []
        if self._coming is not None:
            return self._replayed(until_s)
        back = self._live and self._away and self._clock.now_s() > until_s
        self._away = self._away and not self._live
        until_s = max(until_s, self._clock.now_s()) if back else until_s
        while not self.interrupted:
            self.now_s = max(self.now_s, min(self._clock.now_s(), until_s))
            inputs = self._gather()
            if inputs or self.now_s >= until_s:
                self._began = perf_counter()
                if self._kept(inputs, back=back):
                    return self._events(inputs)
                continue  # nothing happened, so not even this instant may pass
            if self._ends and until_s == INF and not self.runs.by_id:
                return []
            if self.change is None and not self.joining.ready():
                self._journal.idle()
                self.mailbox.wait(min(self._clock.wait_s(until_s), NAP_S))
            else:
                self.interrupted = True
        self.interrupted = False
        return []

    def _kept(self, inputs: list[Input], *, back: bool) -> bool:
        """Journal a batch; False if that is not possible now."""
        try:
            self._journal.write(Batch(self.version() + 1, self.now_s, tuple(inputs), back))
            self._waits_since_s = 0.0
        except RotaError as error:
            self._waits_since_s = self._waits_since_s or perf_counter()
            self.refuse(error)
            sleep(RETRY_S)
            news = (RunStatus, NodeStatus, Measured)
            self.mailbox.put_back([item for item in inputs if isinstance(item, news)])
            return False
        return True

    @property
    def lag_s(self) -> float:
        """For how long inputs have been waiting to be journaled."""
        return perf_counter() - self._waits_since_s if self._waits_since_s else 0.0

    def refuse(self, error: RotaError) -> None:
        """It could not be kept, so it did not happen: whoever asked for it is told."""
        for ask, _ in self._answers:
            ask.future.set_exception(error)
        self._answers, self.change = [], None

    def _replayed(self, until_s: float) -> list[Event]:
        batch = self._coming
        if batch is None or self._script is None:  # pragma: no cover - see poll
            return []
        late = batch.time_s > until_s and not batch.back
        if batch.version != self.version() + 1 or late:
            raise ClusterError(
                f"the journal does not fit the state: batch {batch.version} at {batch.time_s:g} s "
                f"cannot follow {self.version()}, which waits until {until_s:g} s"
            )
        self.now_s = batch.time_s
        self._coming = next(self._script, None)
        return self._events(batch.inputs)

    # --- inputs -----------------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        """A message of the driver, from any thread: what it tells of times is put on our clock."""
        if isinstance(message, RunStatus):
            seen_s = self._unseen.pop(message.run, None)
            began_s, ended_s = (
                None if moment_s is None else self._clock.at_s(moment_s)
                for moment_s in (message.began_s, message.ended_s)
            )
            if message.state == "lost" and ended_s is None:
                ended_s = seen_s
            message = replace(message, began_s=began_s, ended_s=ended_s)
        self.mailbox.post(message)

    def _gather(self) -> list[Input]:
        """What has come in; at most one thing per job, and nodes by themselves."""
        messages, asks = self.mailbox.take()
        inputs: list[Input] = []
        busy: set[int] = set()
        later: list[Input] = []
        for ask in asks:
            self._consider(ask, inputs, busy)
        nodes = any(isinstance(item, NodeWish) for item in inputs)
        messages.sort(key=about_nodes)  # news of runs first, whoever told us first
        for message in messages:
            if isinstance(message, NodeStatus):
                if later or (inputs and not nodes):
                    later.append(message)
                    continue
                self.joining.hear(message)
                same = self.machines.recognised(message)
                if self.machines.knows(message.node) and self.machines.news(same):
                    nodes = True
                    inputs.append(same)
            elif isinstance(message, (RunStatus, Measured)):
                self._run_news(message, inputs, busy, later, held=nodes)
        if later:
            self.mailbox.put_back(later)
        return inputs

    def _run_news(
        self,
        message: RunStatus | Measured,
        inputs: list[Input],
        busy: set[int],
        later: list[Input],
        *,
        held: bool,
    ) -> None:
        """Sort news about a run: for this batch, for the next, or about nothing we know."""
        run = self.runs.by_id.get(message.run)
        if run is None:
            return
        index = root(run.job)
        if held or index in busy:
            later.append(message)
            return
        if isinstance(message, RunStatus):
            if message.state == "running" and (run.over or run.job.phase != STARTING):
                return
            over = message.state != "running" and not message.asked
            ran = message.began_s is not None or (message.state == "ended" and message.code == 0)
            if over and ran and not run.over and run.job.phase == STARTING:
                later.append(message)  # it was quick, or nobody looked: it began before it ended
                message = RunStatus(message.run, "running", began_s=message.began_s)
        elif run.over:
            return
        busy.add(index)
        inputs.append(message)

    def _consider(self, ask: Ask[Any], inputs: list[Input], busy: set[int]) -> None:
        """Do what was asked: at once if it changes nothing, else with this batch."""
        try:
            if any(isinstance(item, NodeWish) for item in inputs):
                raise LaterError  # noqa: TRY301 - before it acts: nodes are by themselves
            wanted, answer = ask.act()
            touched = {root(self.jobs[w.job]) for w in wanted if isinstance(w, JobWish)}
            nodes = any(isinstance(item, NodeWish) for item in wanted)
            changes = any(isinstance(item, Reconfigured) for item in wanted)
            if touched & busy or (nodes and inputs) or (changes and self.change):
                raise LaterError  # noqa: TRY301 - as above
        except LaterError:
            self.mailbox.ask_again(ask)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            ask.future.set_exception(error)
            return
        if not wanted:
            ask.reply(answer)
            return
        self._answers.append((ask, answer))
        if isinstance(wanted[0], Reconfigured):
            self.change = wanted[0]  # between two batches: whoever runs the engine makes it
        else:
            busy |= touched
            inputs += wanted

    def _settle_answers(self) -> None:
        """The batch has happened: tell those who asked for it."""
        if self._began:
            self.observe(perf_counter() - self._began)
            self._began = 0.0
        answers, self._answers = self._answers, []
        for ask, answer in answers:
            ask.reply(answer)

    # --- events -----------------------------------------------------------------------------------

    def _events(self, inputs: Sequence[Input]) -> list[Event]:
        """In an order that does not depend on who told us first."""
        found: list[tuple[int, Any]] = []
        real_s: dict[int, float] = {}  # by job: when it happened, at most one thing for each
        for item in inputs:
            if isinstance(item, RunStatus):
                job = self.runs.by_id[item.run].job
                real_s[job.index] = self._moment(item, job)
                found += self._run_changed(item)
            elif isinstance(item, Measured):
                job = self.runs.by_id[item.run].job
                self._measured[job.index] = item.values
                found.append((ev.REPORT, job))
            elif isinstance(item, JobWish):
                self._why[item.job] = f"{PAST[item.what]} by {item.by}"
                found.append((WISHES[item.what], self.jobs[item.job]))
            elif isinstance(item, Noted):
                self.notes.append(item.text)
            elif isinstance(item, (NodeStatus, NodeWish)):
                heard = isinstance(item, NodeStatus)
                kinds = self.machines.heard(item) if heard else self.machines.wished(item)  # type: ignore[arg-type]
                found += [(kind, self.machines.vertex(item.node)) for kind in kinds]
            elif isinstance(item, Submitted):
                self.source.announce(self._journal.submissions(item.first, item.count))
        found.sort(key=rank)
        events = []
        for kind, subject in found:
            self._sequence += 1
            at_s = real_s.get(subject.index, self.now_s) if kind in OF_RUNS else self.now_s
            events.append((at_s, kind, self._sequence, subject, subject.epoch))
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
        if status.state == "lost":
            kind = ev.JOB_STOPPED if run.halting else ev.JOB_EVICTED
        elif run.halting and status.asked:
            kind = ev.JOB_STOPPED
        elif status.code == 0:
            kind = ev.JOB_DONE
        elif self.runs.may_fail_again(run):
            kind = ev.JOB_STOPPED if run.halting else ev.JOB_EVICTED
        else:
            kind = ev.JOB_FAILED
        if kind != ev.JOB_STOPPED:  # else what counts is who wanted that
            self._why[job.index] = status.why
        return [(kind, job)]

    def _forget(self, run: Run) -> None:
        following = self.runs.remove(run)
        if self._live:
            self.driver.forget(run.order.run)
            if following is not None:
                self.driver.launch(following.order)

    # --- commands ---------------------------------------------------------------------------------

    def start(self, job: Job) -> float:
        """Order a run; JOB_RUNNING tells when it makes progress."""
        run = self.runs.make(job)
        if self._live and not run.waits:
            self.driver.launch(run.order)
        return INF

    def rate(self, job: Job) -> float:  # noqa: ARG002 - part of the port
        """Unknown; by definition 1."""
        return 1.0

    def stop(self, job: Job, *, to: Allocation | None = None) -> tuple[float, bool]:  # noqa: ARG002
        """Ask it to end. What it had not saved is lost, but nobody knows how much that is."""
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
        """The job is over; if it still runs it is asked to end."""
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
        return self.machines.by_name[subject.name].why

    def measured(self, job: Job) -> Mapping[str, float]:
        """What it reported last."""
        return self._measured.get(job.index, {})

    def rerated(self) -> Sequence[tuple[Job, float]]:
        """Never."""
        return ()

    # --- state ------------------------------------------------------------------------------------

    def grown(self) -> None:
        """The topology has more nodes."""
        self.machines.refresh()
        self.joining.joined()

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "now_s": self.now_s,
            "sequence": self._sequence,
            "runs": self.runs.snapshot(),
            "machines": self.machines.snapshot(),
            "why": list(self._why.items()),
            "measured": [(index, dict(values)) for index, values in self._measured.items()],
        }

    def restore(self, state: dict[str, Any], jobs: dict[int, Job]) -> None:
        """Take the state of `snapshot` up again."""
        self.now_s = state["now_s"]
        self._sequence = state["sequence"]
        self.runs.restore(state["runs"], jobs)
        self.machines.restore(state["machines"])
        self._why = dict(state["why"])
        self._measured = dict(state["measured"])
