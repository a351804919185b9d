"""The state that the journal determines: the engine, its cluster, and the configuration."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeAlias

import msgspec

from rota.core.errors import ClusterError, OptionError
from rota.core.events import INF
from rota.core.jobs import Behaviour, Job, JobSpec
from rota.core.launch import Launch
from rota.core.log import Row
from rota.core.ports import Successor
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec, Topology
from rota.core.windows import NodeWindow
from rota.daemon.forgotten import Forgotten, still_needed
from rota.daemon.projection import Projection
from rota.daemon.settings import Scheduling, changes
from rota.daemon.store import StoredJob
from rota.engine.lifecycle import with_tasks
from rota.engine.loop import Checker
from rota.engine.wiring import FIRST_TASK, Parts, make_engine
from rota.jobfile.convert import to_behaviour, to_launch, to_spec
from rota.live.clock import ClusterClock
from rota.live.cluster import LiveCluster
from rota.live.driver import Driver
from rota.live.inputs import Batch, Noted, Reconfigured, Submitted, WindowChange
from rota.live.mailbox import Mailbox
from rota.live.nodes import extended
from rota.models.speeds import MeasuredSpeeds

Submission: TypeAlias = tuple[int, JobSpec, Behaviour]


class SubmissionQueue:
    """The engine's source of jobs: those that were submitted with the present batch."""

    linked = True  # job files have `depends_on`

    def __init__(self) -> None:
        self.next_s = INF
        self._pending: list[Submission] = []

    def announce(self, jobs: Sequence[Submission]) -> None:
        """They arrive with the present batch."""
        self._pending += jobs
        if jobs:
            self.next_s = min(self.next_s, jobs[0][1].submit_s)

    def take(self, now_s: float) -> list[Submission]:  # noqa: ARG002 - part of the port
        """Everything that was announced."""
        taken, self._pending = self._pending, []
        self.next_s = INF
        return taken


class ClusterState:
    """A deterministic state machine: the same batches give the same decisions and the same log.

    `apply` is the only way to change it, live and in a replay. Only the engine's thread touches it.
    """

    def __init__(  # noqa: PLR0913 - what is outside of it
        self,
        scheduling: Scheduling,
        growth: list[list[NodeSpec]],
        levels: list[str],
        *,
        driver: Driver,
        clock: ClusterClock,
        mailbox: Mailbox,
        files: Callable[[int, int], list[StoredJob]],
        checker: Callable[[], Checker] | None = None,
        patient: bool = False,
    ) -> None:
        """An empty cluster.

        Args:
            scheduling: Policy, placement, admission, queues.
            growth: The nodes, in the groups in which they came.
            levels: Names of the levels of the topology.
            driver: Executes runs, once the cluster is live.
            clock: The time outside.
            mailbox: Where the driver's messages go.
            files: Finds submitted jobs by first number and count.
            checker: Makes a checker of invariants.
            patient: What does not fit may fit later, when nodes have come.
        """
        self.scheduling = scheduling
        self.growth = growth
        self.levels = levels
        self.driver = driver
        self.projection = Projection()
        self.forgotten = Forgotten()
        self.submissions = SubmissionQueue()
        self._files = files
        self._patient = patient
        self._launches: dict[int, Launch] = {}
        self._windowed = False
        topology = Topology(growth[0], levels, growing=True, kinds=scheduling.resources)
        for group in growth[1:]:
            topology.extend(group)
        self.cluster = LiveCluster(topology, driver, self.launch_of, clock, mailbox)
        self.engine = make_engine(
            self.compose(scheduling),
            self.cluster,
            self.submissions,
            tenants=scheduling.tenants(),
            first_task=FIRST_TASK,
            checker=checker() if checker else None,
        )
        self.engine.arrivals.book = MeasuredSpeeds()

    # --- what happens -----------------------------------------------------------------------------

    def apply(self, batch: Batch) -> None:
        """Let a batch of inputs happen: events, decisions, commands to the driver, log."""
        change = batch.change
        if batch.version != self.engine.view.version + 1 or (
            (change is None and self.follows) or self._is_late(batch)
        ):
            raise ClusterError(
                f"the journal does not fit the state: batch {batch.version} at {batch.time_s:g} s "
                f"cannot follow {self.engine.view.version}, which waits until "
                f"{self.engine.horizon_s():g} s"
            )
        self.cluster.now_s = batch.time_s
        if change is not None:
            self.change(change)
            return
        for item in batch.inputs:
            if isinstance(item, Submitted):
                self.submit(item.first, item.count)
            elif isinstance(item, WindowChange):
                self._change_windows(item)
        self.cluster.deliver(batch.inputs, self.engine.jobs)
        self.engine.advance()
        for item in batch.inputs:
            if isinstance(item, Noted):
                self.engine.note(item.text)

    @property
    def follows(self) -> bool:
        """Does the engine act again at the same instant? That is no input: it is not journaled."""
        return self.engine.horizon_s() <= self.engine.view.now_s

    def follow(self) -> None:
        """Let the engine act again at the same instant."""
        self.engine.advance()

    def _is_late(self, batch: Batch) -> bool:
        """Is it after an instant at which the engine wanted to act?"""
        return batch.change is None and not batch.back and batch.time_s > self.engine.horizon_s()

    def take_rows(self) -> list[Row]:
        """New rows of the event log, for the journal."""
        rows = self.engine.log.take()
        if rows:
            self.projection.fold(rows)
        return rows

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, first: int, count: int, known: Container[int] | None = None) -> None:
        """Announce stored jobs to the engine; `known`: only these."""
        out: list[Submission] = []
        for job in self._files(first, count):
            if known is not None and job.number not in known:
                continue
            spec = to_spec(job.file, str(job.number), job.submit_s, job.user, checked=True)
            # how long it will run is unknown: a policy that asks gets the owner's estimate
            out.append((job.number, spec, to_behaviour(job.file, spec)))
            self._launches[job.number] = to_launch(job.file, str(job.number), checked=True)
            if job.file.hold:
                self.engine.lifecycle.detained.add(job.number)
        self.submissions.announce(out)

    def launch_of(self, job: Job) -> Launch:
        """What it executes."""
        number = job.index if job.parent is None else job.parent.index
        launch = self._launches.get(number)
        if launch is None:
            launch = self._launches[number] = to_launch(
                self._files(number, 1)[0].file, str(number), checked=True
            )
        return launch

    # --- configuration ----------------------------------------------------------------------------

    def change(self, change: Reconfigured) -> None:
        """Another configuration holds, or there are more nodes."""
        engine = self.engine
        engine.view.now_s = max(engine.view.now_s, self.cluster.now_s)
        scheduling = self.scheduling
        if change.config is not None:
            scheduling = msgspec.convert(change.config, Scheduling)
        new = self._grow(change.nodes) if change.nodes else []
        if change.forget:
            self._forget(change)
        same = (scheduling.policy, scheduling.admission) == (
            self.scheduling.policy, self.scheduling.admission,
        )  # fmt: skip
        engine.view.tenants = scheduling.tenants()
        declares = scheduling.resources != self.scheduling.resources
        if declares:
            self.cluster.topology.declare(scheduling.resources)
        state = engine.scheduler.snapshot() if same else None
        placed_alike = (scheduling.placement, scheduling.seed) == (
            self.scheduling.placement, self.scheduling.seed,
        )  # fmt: skip
        if state is not None and not placed_alike:
            state = {**state, "placement": None}
        for line in changes(self.scheduling, scheduling):
            self.engine.note(f"{line} ({change.by})")
        joined = [self.cluster.nodes.vertex(spec.name) for spec in new]
        if declares and not joined:  # there may be room where there was none: look again
            joined = [node for node in self.cluster.topology.nodes if node.open][:1]
        engine.hand_over(self.compose(scheduling), state, joined=joined)
        self.scheduling = scheduling

    def _change_windows(self, change: WindowChange) -> None:
        engine = self.engine
        engine.view.now_s = max(engine.view.now_s, self.cluster.now_s)
        if change.add is not None:
            engine.add_window(change.add)
        elif change.remove in engine.schedule().windows:
            engine.remove_window(change.remove, change.by)
        self._windowed = bool(self.windows)

    def _grow(self, nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
        """Take nodes in; those that are new."""
        grown = extended(self.growth, nodes)
        self.growth = grown.growth
        for spec in grown.relabelled:
            self.engine.note(f"node {spec.name} has the labels {', '.join(spec.labels) or 'none'}")
            self.cluster.topology.relabel(spec.name, spec.labels)
        for old, new in grown.renamed.items():
            self.engine.note(f"node {old} joins with other GPUs; what it was before is {new}")
            self.cluster.topology.rename(old, new)
            self.cluster.nodes.retired(old, new)
        self.cluster.topology.extend(grown.new)
        self.cluster.grown()
        if self.engine.calendar is not None:
            self.engine.calendar.cover()
        self.engine.view.up_gpus += ordered_sum(spec.gpus for spec in grown.new)
        return grown.new

    def _forget(self, change: Reconfigured) -> None:
        """Let go of jobs. The scheduler is then made again from its own state, as in a recovery."""
        known = self.engine.jobs
        needed = still_needed(self.engine, self.cluster.runs)  # by who came in the meantime
        jobs = [
            job
            for first, last in change.forget
            for number in range(first, last + 1)
            if (job := known.get(number)) is not None
            and job.terminal
            and needed.isdisjoint(each.index for each in with_tasks(job))
        ]
        gone = self.engine.lifecycle.discard(jobs)
        self.cluster.discard(gone)
        self.projection.discard(gone)
        for job in jobs:
            self._launches.pop(job.index, None)
        self.forgotten.add((job.index for job in jobs), change.since_s)
        self.engine.note(f"{len(jobs)} jobs that are over were forgotten ({change.by})")

    def check_change(self, change: Reconfigured) -> None:
        """Raise if this cannot be built."""
        if change.config is not None:
            self.compose(msgspec.convert(change.config, Scheduling))

    def compose(self, scheduling: Scheduling, topology: Topology | None = None) -> Successor:
        """The scheduler of a configuration, on the nodes of the cluster or on others."""
        parts = self._parts(scheduling, topology or self.cluster.topology)
        self._refuse_impossible(parts)
        made = parts.scheduler(patient=self._patient)
        if self._windowed and not made.trusted:
            raise OptionError(
                f"policy {made.name!r} chooses GPUs itself and keeps to no maintenance or "
                f"reservation: remove those first (`rota maintenance ls`, `rota reserve ls`)"
            )
        return made

    def may_preempt(self) -> bool:
        """Does the policy stop jobs, or not declare that it never does?"""
        return self._parts(self.scheduling, self.cluster.topology).policy.preemptive is not False

    def _parts(self, scheduling: Scheduling, topology: Topology) -> Parts:
        return Parts.named(
            scheduling.policy,
            topology,
            placement=scheduling.placement,
            admission=scheduling.admission,
            seed=scheduling.seed,
        )

    @property
    def windows(self) -> Mapping[str, NodeWindow]:
        """Maintenance and reservations, by name."""
        calendar = self.engine.calendar
        return {} if calendar is None else calendar.windows

    def _refuse_impossible(self, parts: Parts) -> None:
        """What the backend cannot do is refused now, not when it is needed."""
        if not parts.placement.names_nodes:
            raise OptionError(
                f"placement {parts.placement.name!r} names no nodes, so nothing could be started: "
                "use consolidate, spread, best-fit, ..."
            )
        policy = parts.policy
        if policy.preemptive is not False and not self.driver.capabilities.preempt:
            does = "preempts" if policy.preemptive else "does not declare that it never preempts"
            raise OptionError(
                f"policy {policy.name!r} {does}, the backend {self.driver.name!r} cannot: "
                f"use e.g. fifo-skip"
            )
