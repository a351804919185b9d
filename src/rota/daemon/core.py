"""The engine's loop with a memory: build, recover, run, reconfigure.

Recovery: the last snapshot, then the journal. Both are exact, so that the state (and the policy's
own) is what it was when the last batch was committed; then the driver is told what shall exist.
"""

import logging
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from time import sleep
from typing import Any

import msgspec

from rota.core import events as ev
from rota.core.errors import (
    ClusterError,
    InputError,
    OptionError,
    PolicyError,
    RotaError,
    UnavailableError,
)
from rota.core.jobs import Job
from rota.core.launch import Launch
from rota.core.log import Record, Row
from rota.core.policy import PriorityPolicy
from rota.core.ports import Successor
from rota.core.topology import NodeSpec, Topology
from rota.daemon.growth import extended
from rota.daemon.projection import Projection
from rota.daemon.settings import Scheduling, changes
from rota.daemon.store import Store, StoredJob
from rota.engine.checker import Checker
from rota.engine.handover import hand_over
from rota.engine.snapshot import freeze, restore
from rota.engine.wiring import Parts, make_engine
from rota.jobfile.convert import to_behaviour, to_launch, to_spec
from rota.live.clock import Clock, WallClock
from rota.live.cluster import RETRY_S, LiveCluster
from rota.live.inputs import Batch, Reconfigured
from rota.live.journal import Journal
from rota.live.orders import Driver
from rota.live.source import Submission

log = logging.getLogger("rota.daemon")
SNAPSHOT_EVERY = 2000  # batches
SNAPSHOT_VERSION = 1


class Saved(msgspec.Struct):
    """What a snapshot holds. `growth`: the nodes, in the groups in which they came."""

    version: int
    scheduling: Scheduling
    growth: list[list[NodeSpec]]
    levels: list[str]
    engine: dict[str, Any]


class Core(Journal):
    """One engine on one living cluster. Only the engine's thread may touch it."""

    def __init__(
        self,
        store: Store,
        driver: Driver,
        scheduling: Scheduling,
        topology: Topology,
        *,
        clock: Callable[[float, float], Clock] = WallClock,
        checker: Callable[[], Checker] | None = None,
        patient: bool = False,
    ) -> None:
        """Recover what the store holds, or begin anew.

        Args:
            store: The memory.
            driver: The outside; it is not called before `go_live`.
            scheduling: What the configuration says now.
            topology: The nodes that are known now; used at the very first start.
            clock: Makes the clock from the beginning of time and the time reached so far.
            checker: Makes a checker of invariants.
            patient: What does not fit may fit later, when nodes have come.
        """
        self.store = store
        self.driver = driver
        self.projection = Projection()
        self.patient = patient
        self.wanted = scheduling
        self._make_clock = clock
        self._make_checker = checker
        self._launches: dict[int, Launch] = {}
        self._pending: dict[int, StoredJob] = {}
        self._keys: list[tuple[str, str, int, int]] = []
        self._unsaved: list[Row] = []
        self._since_snapshot = 0
        self._repaired = False
        self.trouble = ""  # why nothing can be accepted at the moment
        found = store.last_snapshot()
        if found is None:
            self._begin(scheduling, topology)
        else:
            self._recover(*found)
        if self.wanted != self.scheduling:  # it holds from `go_live` on: is it possible at all?
            self._compose(self.wanted)

    # --- birth and recovery -----------------------------------------------------------------------

    def _build(
        self, scheduling: Scheduling, growth: list[list[NodeSpec]], levels: list[str]
    ) -> None:
        self.scheduling = scheduling
        self.growth = growth
        self.levels = levels
        topology = Topology(growth[0], levels, growing=True)
        for group in growth[1:]:
            topology.extend(group)
        clock = self._make_clock(self.store.epoch_unix, self._reached_s())
        self.cluster = LiveCluster(topology, self.driver, self._launch_of, clock, journal=self)
        self.engine = make_engine(
            self._compose(scheduling),
            self.cluster,
            self.cluster.source,
            tenants=scheduling.tenants(),
            checker=self._make_checker() if self._make_checker else None,
        )
        self.cluster.version = lambda: self.engine.view.version
        self.cluster.jobs = self.engine.jobs

    def _reached_s(self) -> float:
        rows = self.store.rows(self.store.log_number - 1, 1) if self.store.log_number else []
        return max(self.store.last_time_s(), rows[-1][1] if rows else 0.0)

    def _begin(self, scheduling: Scheduling, topology: Topology) -> None:
        self._build(scheduling, [list(topology.specs)], list(topology.levels))
        self.cluster.runs.ports = zlib.crc32(self.store.id.encode())
        self.snapshot()

    def _recover(self, number: int, packed: bytes) -> None:
        saved = msgspec.msgpack.decode(zlib.decompress(packed), type=Saved)
        if saved.version != SNAPSHOT_VERSION:
            raise InputError(
                f"{self.store.path}: its state is of version {saved.version}, this Rota reads "
                f"{SNAPSHOT_VERSION}: stop it once with the version that wrote it"
            )
        self._build(saved.scheduling, saved.growth, saved.levels)
        taken = int(saved.engine["log"]["taken"])
        self._fold_stored(taken)
        if self.engine.checker is not None:  # it knows the past from the log only
            self.engine.log.kept = array("d", self._flat_log(taken))
        known = max(
            (index for index, *_ in saved.engine["jobs"] if index < self.first_task), default=0
        )
        self.cluster.source.announce(self.submissions(1, known))
        restore(self.engine, saved.engine)
        self._replay(number)
        self._check_log(taken)
        self._since_snapshot = self.store.journal_number - number
        if self._repaired:  # the repair is not in the journal
            self.snapshot()

    @property
    def first_task(self) -> int:
        """Numbers from here on are tasks of jobs."""
        return 1 << 24

    def _fold_stored(self, upto: int) -> None:
        after = 0
        while after < upto:
            rows = self.store.rows(after, min(50_000, upto - after))
            self.projection.fold(Row._make(row[1:]) for row in rows)
            after = rows[-1][0] if rows else upto

    def _flat_log(self, upto: int) -> Iterator[float]:
        for row in self.store.rows(0, upto):
            yield from row[1:7]

    def _replay(self, number: int) -> None:
        self.cluster.replay(self.store.batches(number))
        while self.cluster.replaying:
            change = self.cluster.replayed_change()
            if change is not None:
                self._change(change)
                self._collect()
                continue
            try:
                self.engine.advance()
            except Exception as error:
                ours = isinstance(error, RotaError) and not isinstance(error, PolicyError)
                if ours or self.wanted == self.scheduling:
                    raise
                self._repaired = True
                # it failed then and would fail again: the one that is configured now goes on
                self._change(Reconfigured(self.wanted.as_dict(), by="recovery"))
            self._write_notes()
            self._collect()
        self.cluster.interrupted = True  # only what follows at the same instant
        while self.engine.advance():
            self._collect()
        self._collect()

    def _check_log(self, taken: int) -> None:
        """What was replayed must be what was logged."""
        stored = [row[1:] for row in self.store.rows(taken, len(self._unsaved) + 1)]
        for number, row in enumerate(stored):
            if number >= len(self._unsaved) or tuple(self._unsaved[number]) != tuple(row):
                ours = self._unsaved[number] if number < len(self._unsaved) else "nothing"
                raise ClusterError(
                    f"{self.store.path}: row {taken + number + 1} of the log is {row}, but "
                    f"repeating the journal gives {ours}: the store was written by another version "
                    f"of Rota or of a policy; start that one and stop it once, then change"
                )
        del self._unsaved[: len(stored)]

    # --- running ----------------------------------------------------------------------------------

    def go_live(self) -> None:
        """Open the driver; apply what was configured meanwhile."""
        self.cluster.mailbox.owner = get_ident()
        if self.wanted != self.scheduling:
            self.cluster.catch_up()  # it changes now, not when the former daemon ended
            self.reconfigure(Reconfigured(self.wanted.as_dict(), by="configuration"))
        self.cluster.go_live()

    def step(self) -> None:
        """One batch, and what follows from it."""
        self.engine.advance()
        self._collect()
        self._write_notes()
        try:
            self._make_change()
            nodes = self.cluster.joining.ready()
            if nodes:
                self.reconfigure(Reconfigured(nodes=nodes, by="join"))
            if self._since_snapshot >= SNAPSHOT_EVERY:
                self.snapshot()
        except UnavailableError:  # the store is in trouble: these can wait
            self._since_snapshot = min(self._since_snapshot, SNAPSHOT_EVERY * 9 // 10)
            sleep(RETRY_S)

    def close(self) -> None:
        """Save everything and let the driver go; what runs goes on."""
        self.cluster.close()
        self.snapshot()

    def snapshot(self) -> None:
        """Keep the whole state, so that recovery is quick."""
        self._collect()
        self._flush()
        saved = Saved(
            SNAPSHOT_VERSION, self.scheduling, self.growth, self.levels, freeze(self.engine)
        )
        self.store.save_snapshot(zlib.compress(msgspec.msgpack.encode(saved), 1))
        self._since_snapshot = 0

    # --- journal ----------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        """Commit what is about to happen, and the log of what happened before."""
        self._collect()
        jobs = sorted(self._pending.values(), key=lambda job: job.number)
        try:
            self.store.append(batch, self._unsaved, jobs, self._keys)
        except RotaError as error:
            self._pending.clear()
            self._keys.clear()
            if not self.trouble:
                log.warning("nothing can be accepted: %s", error)
            self.trouble = str(error)
            raise
        if self.trouble:
            log.warning("the store can be used again")
        self.trouble = ""
        self._unsaved = []
        self._keys = []
        self._since_snapshot += 1

    def probe(self) -> None:
        """Is the trouble over? To write is the only way to know."""
        if self.trouble:
            try:
                self.store.append(None, self._unsaved)
                self._unsaved = []
                self.store.probe()
            except RotaError as error:
                self.trouble = str(error)
            else:
                self.trouble = ""

    def idle(self) -> None:
        """Nothing to do: write what was logged."""
        self._collect()
        if self._unsaved:
            try:
                self._flush()
            except RotaError:
                return  # it is kept in memory, and can be made again from the journal

    def _flush(self) -> None:
        if self._unsaved:
            self.store.append(None, self._unsaved)
            self._unsaved = []

    def _collect(self) -> None:
        rows = self.engine.log.take()
        if rows:
            self.projection.fold(rows)
            self._unsaved += rows

    # --- jobs -------------------------------------------------------------------------------------

    def is_pending(self, actor: str, key: str) -> bool:
        """Is a submission under this key in the batch that is being made?"""
        return any(known[:2] == (actor, key) for known in self._keys)

    def next_number(self) -> int:
        """The number of the next job."""
        return max((self.store.job_number, *self._pending)) + 1

    def accept(self, jobs: Sequence[StoredJob], key: tuple[str, str] | None) -> None:
        """Take these into the batch that is being made."""
        self._pending.update((job.number, job) for job in jobs)
        if key is not None:
            self._keys.append((*key, jobs[0].number, len(jobs)))

    def submissions(self, first: int, count: int) -> list[Submission]:
        """The jobs of a `Submitted`, for the engine."""
        numbers = range(first, first + count)
        if all(number in self._pending for number in numbers):
            stored = [self._pending.pop(number) for number in numbers]
        else:
            stored = self.store.jobs(first, count)
        out: list[Submission] = []
        for job in stored:
            spec = to_spec(job.file, str(job.number), job.submit_s, job.user, checked=True)
            # nobody knows how long it will run: whoever wants to know gets the owner's estimate
            out.append((job.number, spec, to_behaviour(job.file, spec)))
            self._launches[job.number] = to_launch(job.file, checked=True)
            if job.file.hold:
                self.engine.detained.add(job.number)
        return out

    def _launch_of(self, job: Job) -> Launch:
        number = job.index if job.parent is None else job.parent.index
        launch = self._launches.get(number)
        if launch is None:
            launch = self._launches[number] = to_launch(
                self.store.jobs(number, 1)[0].file, checked=True
            )
        return launch

    # --- configuration ----------------------------------------------------------------------------

    def reconfigure(self, change: Reconfigured) -> None:
        """Journal a change and make it, between two batches."""
        self.compose_for(change)  # what cannot be built is refused before it is written
        self.write(Batch(self.engine.view.version + 1, self.cluster.now_s, (change,)))
        self._change(change)

    def compose_for(self, change: Reconfigured) -> None:
        """Raise if this cannot be built."""
        if change.config is not None:
            self._compose(msgspec.convert(change.config, Scheduling))

    def _make_change(self) -> None:
        change, self.cluster.change = self.cluster.change, None
        if change is not None:
            try:
                self.reconfigure(change)
            except RotaError as error:
                self.cluster.refuse(error)
                raise

    def _write_notes(self) -> None:
        for text in self.cluster.notes:
            self._note(text)
        self.cluster.notes.clear()

    def _change(self, change: Reconfigured) -> None:
        engine = self.engine
        engine.view.now_s = max(engine.view.now_s, self.cluster.now_s)
        scheduling = self.scheduling
        if change.config is not None:
            scheduling = msgspec.convert(change.config, Scheduling)
        if change.nodes:
            self._grow(change.nodes)
        same = (scheduling.policy, scheduling.admission) == (
            self.scheduling.policy, self.scheduling.admission,
        )  # fmt: skip
        engine.view.tenants = scheduling.tenants()
        state = engine.scheduler.snapshot() if same else None
        for line in changes(self.scheduling, scheduling):
            self._note(f"{line} ({change.by})")
        hand_over(engine, self._compose(scheduling), state)
        for spec in change.nodes:  # whoever waits may fit there
            node = self.cluster.machines.vertex(spec.name)
            engine.backlog.append(engine.event(ev.NODE_UP, node))
        self.scheduling = scheduling

    def _grow(self, nodes: Sequence[NodeSpec]) -> None:
        self.growth, renamed = extended(self.growth, nodes)
        for old, new in renamed.items():
            self._note(f"node {old} joins with other GPUs; what it was before is {new}")
            self.cluster.topology.rename(old, new)
            self.cluster.machines.retired(old, new)
        self.cluster.topology.extend(nodes)
        self.cluster.grown()
        self.engine.view.up_gpus += sum(spec.gpus for spec in nodes)

    def _note(self, text: str) -> None:
        self.engine.log.row(self.engine.view.now_s, Record.NOTE)
        self.engine.log.text(text)

    def _compose(self, scheduling: Scheduling, topology: Topology | None = None) -> Successor:
        parts = Parts.named(
            scheduling.policy,
            topology or self.cluster.topology,
            placement=scheduling.placement,
            admission=scheduling.admission,
            seed=scheduling.seed,
        )
        self._refuse_impossible(scheduling, parts.policy)
        return parts.scheduler(patient=self.patient)

    def compose_on(self, topology: Topology) -> Successor:
        """The same scheduler on other (simulated) nodes."""
        return self._compose(self.scheduling, topology)

    def _refuse_impossible(self, scheduling: Scheduling, policy: Any) -> None:
        """What the backend cannot do is refused now, not when it is needed."""
        name = self.driver.name
        if scheduling.placement.partition(":")[0] == "count":
            raise OptionError(
                "placement 'count' names no nodes, so nothing could be started: "
                "use consolidate, spread, best-fit, ..."
            )
        preempts = isinstance(policy, PriorityPolicy) and policy.preemptive
        if preempts and not self.driver.capabilities.preempt:
            raise OptionError(
                f"policy {policy.name!r} preempts, the backend {name!r} cannot: use e.g. fifo-skip"
            )
