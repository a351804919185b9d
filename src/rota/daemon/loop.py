"""The daemon's loop: gather inputs, journal them, let them happen, answer.

    API ----- calls --------+                              +--> driver: launch, halt, kill
                            v                              |
    driver -- messages -> mailbox -> batch -> journal -> state (engine) -> event log
    clock --- an instant ---------------^   (committed)    +--> answers

`DaemonLoop.step` is the whole life of an input. What was committed happens, also if the daemon dies
in between: recovery (`rota.daemon.recovery`) applies the same batches to the same state.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from time import perf_counter, sleep
from typing import Any, TypeAlias

from rota.core.errors import RotaError, UnavailableError
from rota.core.topology import Topology
from rota.daemon.journal import RETRY_S, Journal
from rota.daemon.recovery import begin, pack, recover
from rota.daemon.settings import Scheduling
from rota.daemon.state import ClusterState
from rota.daemon.store import Store
from rota.engine.loop import Checker
from rota.live.clock import ClusterClock, WallClock
from rota.live.driver import Driver, NodeStatus, RunMetrics, RunStatus
from rota.live.inputs import (
    Batch,
    BatchDraft,
    Input,
    JobRequest,
    NodeRequest,
    Reconfigured,
    WindowChange,
    root,
)
from rota.live.mailbox import LaterError, Mailbox, PendingCall

SNAPSHOT_EVERY = 2000  # batches
NAP_S = 3600.0  # the longest single wait: some systems refuse longer ones
Answer: TypeAlias = tuple[PendingCall[Any], Callable[[], Any]]
"""A call, and what makes its answer once the batch has happened."""


class DaemonLoop:
    """Drives one engine on one living cluster. Only the engine's thread may touch it.

    *Time* stands still between batches and never passes an instant at which the engine wants to
    act: what is found late counts as found in time, so that timers and rounds have the same times
    as in the simulator. Only the first batch of a life may: nothing was decided while the daemon
    was away.
    """

    def __init__(
        self,
        store: Store,
        driver: Driver,
        scheduling: Scheduling,
        topology: Topology,
        *,
        clock: Callable[[float, float], ClusterClock] = WallClock,
        checker: Callable[[], Checker] | None = None,
        patient: bool = False,
    ) -> None:
        """Recover what the store holds, or begin a new cluster.

        Args:
            store: The memory.
            driver: The outside; it is not called before `go_live`.
            scheduling: What is configured now.
            topology: The nodes that are known now; used at the very first start.
            clock: Makes the clock from the beginning of time and the time reached so far.
            checker: Makes a checker of invariants.
            patient: What does not fit may fit later, when nodes have come.
        """
        self.store = store
        self.driver = driver
        self.wanted = scheduling
        self.journal = Journal(store)
        self.mailbox = Mailbox()
        self._clock = clock(store.epoch_unix, store.reached_s())
        build = partial(
            ClusterState,
            driver=driver, clock=self._clock, mailbox=self.mailbox, files=self.journal.jobs,
            checker=checker, patient=patient,
        )  # fmt: skip
        if store.last_snapshot() is None:
            self.state = begin(self.journal, build, scheduling, topology)
        else:
            self.state = recover(self.journal, build, scheduling)
            self.state.compose(scheduling)  # it holds from `go_live` on: is it possible at all?
        self.observe: Callable[[float], None] = lambda _: None  # given the seconds of each batch
        self.on_log: Callable[[], None] = lambda: None  # called when the stored log has new rows
        self._announced = store.log_number
        self._interrupted = False
        self._away = True  # nothing was gathered in this life
        self._change: tuple[Reconfigured, Answer] | None = None  # to be made before the next batch
        self._answers: list[Answer] = []  # to be given when the batch has happened
        self._blocked_since_s = 0.0  # when the journal began to refuse

    # --- the life of an input ---------------------------------------------------------------------

    def step(self) -> None:
        """One batch, from its inputs to the answers."""
        state, journal = self.state, self.journal
        # while the journal refuses, changes come after what is in the mailbox
        batch = None if self._blocked_since_s else self._next_change()
        if batch is None and state.follows:  # from the batch before, at the same instant
            state.follow()
            journal.log(state.take_rows())
            return
        batch = batch or self._gather()
        if batch is None:
            return
        began = perf_counter()
        try:
            journal.commit(batch)  # after this it has happened, whatever becomes of this process
        except RotaError as error:
            self._refuse(batch, error)
            return
        state.apply(batch)  # events, decisions, commands to the driver
        journal.log(state.take_rows())
        self._answer()
        self.observe(perf_counter() - began)
        self._away, self._blocked_since_s = False, 0.0
        if journal.since_snapshot >= SNAPSHOT_EVERY:
            self._try_snapshot()
        self._announce_log()

    def _next_change(self) -> Batch | None:
        """A change of the configuration, or nodes that join: a batch of its own."""
        change = None
        if self._change is not None:
            (change, answer), self._change = self._change, None
            self._answers.append(answer)
        else:
            nodes = self.state.cluster.joining.ready()
            if nodes:
                change = Reconfigured(nodes=nodes, by="join")
        return None if change is None else self._batch((change,))

    def _gather(self) -> Batch | None:
        """Wait for inputs, at most until the engine acts by itself; None: interrupted."""
        cluster = self.state.cluster
        until_s = min(self.state.engine.horizon_s(), cluster.nodes.next_deadline_s())
        self._away = self._away and self._clock.now_s() > until_s
        if self._away:
            until_s = self._clock.now_s()
        while not self._interrupted:
            cluster.now_s = max(cluster.now_s, min(self._clock.now_s(), until_s))
            draft = BatchDraft()
            messages, calls = self.mailbox.take()
            for call in calls:
                self._consider(call, draft)
            cluster.select(messages, draft)
            overdue = cluster.nodes.overdue(cluster.now_s)
            if overdue and draft.admits(nodes=True):
                draft.add(overdue, nodes=True)
            if draft.inputs or cluster.now_s >= until_s:
                return self._batch(draft.inputs, back=self._away)
            change = self._next_change()
            if change is not None:
                return change
            if not self.journal.flush_in_s():
                self.flush()
                self._announce_log()
            waits_s = min(self._clock.wait_s(until_s), NAP_S)
            self.mailbox.wait(min(waits_s, self.journal.flush_in_s()))
        self._interrupted = False
        return None

    def _batch(self, inputs: Sequence[Input], *, back: bool = False) -> Batch:
        state = self.state
        return Batch(state.engine.view.version + 1, state.cluster.now_s, tuple(inputs), back)

    def _consider(self, call: PendingCall[Any], draft: BatchDraft) -> None:
        """Make a call: at once if it changes nothing, else with this batch or a later one."""
        try:
            if not draft.admits():
                raise LaterError  # noqa: TRY301 - before it acts
            inputs, answer = call.act()
            known = self.state.engine.jobs
            jobs = {root(known[item.job]) for item in inputs if isinstance(item, JobRequest)}
            nodes = any(isinstance(item, NodeRequest | WindowChange) for item in inputs)
            change = next((item for item in inputs if isinstance(item, Reconfigured)), None)
            if not draft.admits(jobs, nodes=nodes) or (change and self._change):
                raise LaterError  # noqa: TRY301 - as above
        except LaterError:
            self.mailbox.call_again(call)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            call.future.set_exception(error)
            return
        if not inputs:
            call.reply(answer)
        elif change is not None:
            self._change = change, (call, answer)
        else:
            self._answers.append((call, answer))
            draft.add(inputs, jobs, nodes=nodes)

    def _refuse(self, batch: Batch, error: RotaError) -> None:
        """It could not be journaled, so it did not happen, and not even its instant may pass."""
        self._blocked_since_s = self._blocked_since_s or perf_counter()
        for call, _ in self._answers:
            call.future.set_exception(error)
        self._answers = []
        self.mailbox.put_back(
            [item for item in batch.inputs if isinstance(item, RunStatus | NodeStatus | RunMetrics)]
        )
        sleep(RETRY_S)

    def _answer(self) -> None:
        """The batch has happened: answer the calls that asked for it."""
        answers, self._answers = self._answers, []
        for call, answer in answers:
            call.reply(answer)

    def _announce_log(self) -> None:
        if self.store.log_number != self._announced:
            self._announced = self.store.log_number
            self.on_log()

    # --- life -------------------------------------------------------------------------------------

    def go_live(self) -> None:
        """Apply what was configured meanwhile; let the driver adopt what runs."""
        self.mailbox.owner = get_ident()
        state = self.state
        if self.wanted != state.scheduling:
            # it changes now, not when the former daemon ended
            state.cluster.now_s = max(state.cluster.now_s, self._clock.now_s())
            self.reconfigure(Reconfigured(self.wanted.as_dict(), by="configuration"))
        state.cluster.go_live()

    def reconfigure(self, change: Reconfigured) -> None:
        """Make a change now, between two steps."""
        batch = self._batch((change,))
        self.journal.commit(batch)
        self.state.apply(batch)
        self.journal.log(self.state.take_rows())

    def interrupt(self) -> None:
        """Let a `step` that waits come back; from any thread."""
        self._interrupted = True
        self.mailbox.rouse()

    def disconnect(self) -> None:
        """Accept no more calls and stop listening to the driver; what runs goes on."""
        self.mailbox.close()
        self._answer()
        self.state.cluster.close()

    def close(self) -> None:
        """Disconnect, and save everything."""
        self.disconnect()
        self.snapshot()

    # --- the store --------------------------------------------------------------------------------

    @property
    def lag_s(self) -> float:
        """For how long inputs have been waiting to be journaled."""
        return perf_counter() - self._blocked_since_s if self._blocked_since_s else 0.0

    def flush(self) -> None:
        """Write the log that is still in memory; if that is impossible it stays there."""
        with suppress(RotaError):
            self.journal.flush()

    def snapshot(self) -> None:
        """Keep the whole state, so that recovery is quick."""
        self.journal.save(pack(self.state))

    def _try_snapshot(self) -> None:
        try:
            self.snapshot()
        except UnavailableError:  # the journal has it all: later
            self.journal.since_snapshot = SNAPSHOT_EVERY * 9 // 10
            sleep(RETRY_S)
