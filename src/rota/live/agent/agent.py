"""Starts and watches the jobs of one machine: its nodes, their GPUs, one shim for each part."""

import contextlib
import logging
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rota.core.errors import ClusterError, InputError
from rota.live.agent.channels import Channels
from rota.live.agent.containers import MISSING, ContainerEngine
from rota.live.agent.devices import ANY, GpuShares
from rota.live.agent.files import SentFiles, list_files, read_file
from rota.live.agent.folders import AgentFolder
from rota.live.agent.logs import read_piece
from rota.live.agent.messages import (
    HALT,
    KILL,
    LONGEST_TEXT,
    MOST_STALE,
    AgentNode,
    AgentOrders,
    AgentReport,
    LaunchPart,
    LogPiece,
    PartKey,
    PartMeasured,
    PartUsage,
)
from rota.live.agent.parts import VALUES_KEPT, LocalPart, secret_names
from rota.live.agent.processes import boot_id
from rota.live.agent.sandbox import JobAccount, Sandbox
from rota.live.agent.turns import GpuTurns, shared_devices
from rota.live.agent.usage import MeasuredPart
from rota.live.calls import CallAnswer, LaneCall, ListFiles, ReadFile
from rota.live.clock import boot_time_s

log = logging.getLogger("rota.agent")

FENCE = 0.8  # of the time after which the server gives up: then nothing may run any more
SOON_S, REPORTS_S = 0.05, 1.0  # between looks: when a part is restless, while parts run
RETRY_S = 1.0  # after a full disk
STALE_S = 20 * 3600.0  # folders in which nothing was begun for so long may be asked about
SOON_STALE_S, LATER_STALE_S = 30.0, 3600.0  # between such questions: within a round, after it
MOST_USED = 1000  # measurements that wait to be told
WARN, STOP, OFF = "warn", "stop", "off"  # those who use too much GPU memory
STUCK_S = 30.0  # a look that takes longer is stuck


class Agent:
    """Owns a root folder and speaks for one or several nodes.

    `report` and `obey` are for the thread that talks to the server, `run` (or `step`) for the one
    that watches; all are safe from any thread. `fenced`: jobs are killed when the server cannot be
    reached for too long. `sandbox`: how jobs are kept apart, if they are. `containers`: what runs
    images, if anything does: a label of the nodes says so. `hooks`: commands around each job
    (`prolog`, `epilog`). `gpu_mem_excess`: what happens to a job that uses more GPU memory than it
    may (`warn`, `stop`, `off`). `news` is set when there is something to report.

    Everything is on disk before it happens, so an agent may die at any time: the next one with the
    same folder adopts what runs. A part is started at most once: its folder says that it was.
    """

    def __init__(  # noqa: PLR0913 - what a machine has
        self,
        root: Path,
        nodes: Sequence[AgentNode],
        *,
        name: str = "",
        jobs: Path | None = None,
        fenced: bool = False,
        sandbox: Sandbox | None = None,
        containers: ContainerEngine | None = None,
        hooks: Mapping[str, Sequence[str]] | None = None,
        gpu_mem_excess: str = WARN,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        self.root = AgentFolder(root, jobs)
        self.root.hooks = hooks or {}
        self.name = name or self.root.agent
        can = () if containers is None else containers.labels
        self.nodes = {node.spec.name: node.with_labels(can) for node in nodes}
        self.fenced = fenced
        self.sandbox = sandbox
        self.gpu_mem_excess = gpu_mem_excess
        self.containers = containers
        self.news = threading.Event()
        self.leaving = False
        self.restarting = False
        self.on_restart: Callable[[], None] | None = None  # None: it cannot begin anew by itself
        self.unhealthy: str | None = None  # what a check says against this machine
        self._hook_problem = ""  # what its last hook that failed says against it
        self._lock = threading.RLock()
        self._boot = boot()
        self._channels = Channels(self.root, self._boot)
        self.files = SentFiles(self.root, self.wake)
        self._books = {
            node.spec.name: GpuShares(len(node.devices), shared_devices(node)) for node in nodes
        }
        self.turns = GpuTurns(self.nodes)
        self._parts: dict[PartKey, LocalPart] = {}
        self._measured: dict[str, dict[str, float]] = {}
        self._used: list[PartUsage] = []
        self._logs: list[LogPiece] = []
        self._exiting: list[subprocess.Popen[bytes]] = []  # shims of parts that are forgotten
        self._number = 0
        self._lease_s = 0.0
        self._term = self.root.term()
        self._next_reports_s = self._retry_s = 0.0
        self._next_stale_s, self._stale_until = time.monotonic() + SOON_STALE_S, 0
        self._failure = ""  # of the last look as a whole
        self._looking_since_s = 0.0  # monotonic; 0: between two looks
        self._wake = os.open(self.root.wake, os.O_RDWR | os.O_NONBLOCK)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._adopt()

    @property
    def id(self) -> str:
        """Of the root folder."""
        return self.root.agent

    def _adopt(self) -> None:
        for folder in self.root.parts():
            part = LocalPart.found(folder, self.root, self._boot)
            if part is None:
                log.warning("run.unreadable", extra={"folder": folder.name})
                continue
            self._parts[part.key] = part
            part.look()
            part.go_on()  # the agent before us may have died between two turns
            if not part.over and part.node in self._books:
                self._books[part.node].book(part.shares)
            else:
                part.shares = []
            self._watch(part)
            log.info("run.adopted", extra={"run": part.key.run, "state": part.state})

    # --- talking to the server ----------------------------------------------------------------

    def report(self, wait_s: float = 0.0, *, left: bool = False) -> AgentReport:
        """Everything that the server shall know."""
        with self._lock:
            self.news.clear()
            self._number += 1
            logs, self._logs = tuple(self._logs), []
            measured, self._measured = self._measured, {}
            used, self._used = tuple(self._used), []
            return AgentReport(
                agent=self.id,
                name=self.name,
                session=self.root.session,
                number=self._number,
                nodes=tuple(self.nodes.values()),
                parts=tuple(p.status() for p in self._parts.values() if not p.forgotten),
                measured=tuple(PartMeasured(run, values) for run, values in measured.items()),
                logs=logs,
                jobs=self.root.jobs_id,
                clock_s=boot_time_s(),
                wait_s=wait_s,
                leaving=self.leaving,
                left=left,
                trouble=self.trouble,
                separates=self.sandbox.separates if self.sandbox else "",
                unhealthy=self._hook_problem or self.unhealthy,
                stale=self._stale(),
                used=used,
            )

    def _stale(self) -> tuple[str, ...]:
        """Jobs that might be discarded: now and then, a few at a time, all of them in turn."""
        if time.monotonic() < self._next_stale_s:
            return ()
        before_unix = time.time() - STALE_S
        found = self.root.stale_jobs(before_unix, self._stale_until, MOST_STALE)
        self._stale_until = int(found[-1]) if found else 0
        self._next_stale_s = time.monotonic() + (SOON_STALE_S if found else LATER_STALE_S)
        here = {part.launch.job for part in self._parts.values() if part.launch is not None}
        return tuple(job for job in found if job not in here)

    def obey(self, orders: AgentOrders, asked_s: float | None = None) -> None:
        """Do what the server wants; `asked_s`: when it was asked (`boot_time_s`).

        Raises:
            ClusterError: Another server leads by now: nothing was done.
        """
        with self._lock:
            self._check_term(orders.term)
            if self.fenced and orders.lost_s:
                self._renew((boot_time_s() if asked_s is None else asked_s), orders.lost_s)
            self._obey_for_parts(orders)
            for order in orders.launch:
                self._accept(order)
            for job in orders.discard:
                self._discard(job)
            for request in orders.logs:
                self._logs.append(read_piece(self.root.jobs, request))
            if orders.urgent:
                self._hurry(orders.restart)

    def _obey_for_parts(self, orders: AgentOrders) -> None:
        """What shall become of those that are here; to end also those that may come."""
        for key in orders.halt:
            self._part(key).stop(HALT)
        for key in orders.kill:
            self._part(key).stop(KILL)
        for key in orders.forget:
            if key in self._parts:
                self._parts[key].forgotten = True
        for terms in orders.terms:
            if terms.key in self._parts:
                self._parts[terms.key].agree(terms)

    def _hurry(self, restart: int) -> None:
        if restart == self.root.session and self.on_restart is not None:
            self.restarting = True
            self.on_restart()
        self.news.set()
        self.wake()

    def answer(self, call: LaneCall) -> CallAnswer:
        """Answer a call of the server; may block as long as the call says, and others with it."""
        match call.call:
            case ListFiles() as listing:
                return list_files(self.root, call.job, listing)
            case ReadFile() as reading:
                return read_file(self.root, call.job, reading)
            case inside:
                return self._channels.answer(call.run, call.node_rank, inside)

    def _check_term(self, term: int) -> None:
        if term and term < self._term:
            raise ClusterError(
                f"the server led in term {term}, and term {self._term} has begun: it must not "
                f"give orders any more",
                retryable=True,
            )
        if term > self._term:
            self._term = term
            try:
                self.root.note_term(term)
            except OSError as error:
                log.warning("term.delayed", extra={"why": str(error)})

    def _renew(self, asked_s: float, lost_s: float) -> None:
        until_s = asked_s + FENCE * lost_s
        if until_s > self._lease_s:
            self._lease_s = until_s
            try:
                self.root.renew(until_s)
            except OSError as error:
                log.warning("lease.delayed", extra={"why": str(error)})

    def _part(self, key: PartKey) -> LocalPart:
        if key not in self._parts:
            self._parts[key] = LocalPart(key, self.root, self._boot)
        return self._parts[key]

    def _accept(self, order: LaunchPart) -> None:
        if order.key in self._parts:
            return
        part = self._part(order.key)
        part.launch, part.node = order, order.part.node
        books = self._books.get(part.node)
        if self.root.was_forgotten(order.run) or self.root.folder(order.key).exists():
            part.refuse("it was started here before")
        elif self.leaving:
            part.refuse("its node left")
        elif books is None or not books.fits(order.part.slices):
            part.refuse(f"node {part.node!r} of this agent does not have the GPUs asked for")
        elif self.sandbox is not None and (why := self.sandbox.refusal(order)):
            part.refuse(why)
        elif gone := [n for n in secret_names(order.launch) if n not in order.secrets]:
            part.fail(f"secret {gone[0]} is not there any more: `rota secret set {gone[0]}`")
        elif image := order.launch.image:
            self._accept_image(part, image)

    def _accept_image(self, part: LocalPart, image: str) -> None:
        """Never run it without."""
        assert part.launch is not None  # noqa: S101 - it was just accepted
        if self.containers is None:
            part.refuse(f"image {image}: node {part.node!r} runs no containers: {MISSING}")
            return
        own = JobAccount.of_agent() if self.sandbox is None else self.sandbox.account(part.launch)
        why = self.containers.refusal(image, own)
        if why:
            part.fail(why)

    def checked(self, unhealthy: str) -> None:
        """A check was made: why this machine is not well, empty if it is."""
        with self._lock:
            if unhealthy != self.unhealthy:
                self.unhealthy = unhealthy
                log.warning("health", extra={"why": unhealthy or "well"})
                self.news.set()

    def watched(self) -> list[MeasuredPart]:
        """What runs here, for those who measure it."""
        with self._lock:
            return [
                MeasuredPart(part.key, part.shim_pid, self._devices(part), part.gpu_mem_gib)
                for part in self._parts.values()
                if part.state == "running" and part.shim_pid
            ]

    def exceeded(self, key: PartKey, used_gib: float) -> None:
        """A part uses more of a GPU's memory than it may."""
        with self._lock:
            part = self._parts.get(key)
            if part is not None and self.gpu_mem_excess != OFF:
                why = (
                    f"it uses {used_gib:.4g} GiB of GPU memory and may use {part.gpu_mem_gib:g}: "
                    "ask for more (gpu_mem_gib), or use less"
                )
                part.exceeds(self.gpu_mem_excess, why)

    def _devices(self, part: LocalPart) -> list[str]:
        node = self.nodes.get(part.node)
        return [] if node is None else [node.devices[number] for number, _ in part.shares]

    def measured_usage(self, used: list[PartUsage]) -> None:
        """Tell the server what runs use; too much of it is not worth keeping."""
        with self._lock:
            self._used = [*self._used, *used][-MOST_USED:]
            self.news.set()

    def _discard(self, job: str) -> None:
        parts = self._parts.values()
        if not any(part.launch is not None and part.launch.job == job for part in parts):
            self.root.discard(job)
            log.info("job.discarded", extra={"job": job})

    def leave(self) -> None:
        """End all jobs and accept no more; `idle` tells when that is done."""
        with self._lock:
            self.leaving = True
            for part in self._parts.values():
                part.stop(HALT, "its node left")
            self.news.set()
            self.wake()

    @property
    def idle(self) -> bool:
        """Does nothing run here?"""
        with self._lock:
            return all(part.over for part in self._parts.values())

    # --- watching -----------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """What keeps this agent from watching its jobs; empty: nothing."""
        since_s = self._looking_since_s
        if since_s and time.monotonic() - since_s > STUCK_S:
            return f"it has been stuck for {time.monotonic() - since_s:.0f} s"
        return self._failure

    def run(self, stop: threading.Event) -> None:
        """Watch until `stop` is set (and `wake` called)."""
        while not stop.is_set():
            self._looking_since_s = time.monotonic()
            try:
                self.step()
                self._failure = ""
            except Exception as error:  # a job may run for days: nothing here may end the watch
                self._failure = f"its watch fails: {error!r}"[:LONGEST_TEXT]
                log.exception("watch.failed")
                stop.wait(RETRY_S)
            self._looking_since_s = 0.0
            self._epoll.poll(self._patience_s())
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 1 << 16)

    def wake(self) -> None:
        """Let `run` look."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._wake >= 0:
                os.write(self._wake, b"\n")

    def step(self) -> None:
        """Look at everything once."""
        with self._lock:
            changed = False
            for part in list(self._parts.values()):
                try:
                    changed |= self._attend(part)
                except Exception as error:  # one bad run must not cost the others their agent
                    if part.puzzle != repr(error):
                        part.puzzle = repr(error)
                        log.exception("run.puzzling", extra={"run": part.key.run})
            self._exiting = [process for process in self._exiting if process.poll() is None]
            changed |= self._launch_waiting()
            self.turns.step(self._parts.values())
            if self._read_reports() or changed:
                self.news.set()

    def _attend(self, part: LocalPart) -> bool:
        """Look at one part; did anything happen to it?"""
        changed = part.look()
        if part.hook_problem and changed:
            self._hook_problem = part.hook_problem
            log.warning("hook.failed", extra={"run": part.key.run, "why": part.hook_problem})
        if changed:
            self._collect(part)  # before it is over its last values are due
        if part.over and part.shares:
            self._books[part.node].give(part.shares)
            part.shares = []
        if part.forgotten:
            self._remove(part)
        else:
            self._watch(part)
        return changed

    def _patience_s(self) -> float:
        with self._lock:
            looks_s = self._look_again_s()
            return min(looks_s, self.turns.wait_s()) if looks_s >= 0 else looks_s

    def _look_again_s(self) -> float:
        """Below 0: not before something happens."""
        parts = self._parts.values()
        if self._exiting or any(part.restless and not part.puzzle for part in parts):
            return SOON_S
        return REPORTS_S if any(not part.over or part.process for part in parts) else -1

    def _watch(self, part: LocalPart) -> None:
        """Let the end of its shim wake us. A descriptor that is closed leaves by itself."""
        if part.pidfd >= 0:
            with contextlib.suppress(FileExistsError):
                self._epoll.register(part.pidfd, select.EPOLLIN)

    def _remove(self, part: LocalPart) -> None:
        if not part.over:
            part.stop(KILL)
            return
        try:
            self.root.forget(part.key)
        except OSError as error:
            log.warning("forget.delayed", extra={"run": part.key.run, "why": str(error)})
        else:
            if part.process is not None:
                self._exiting.append(part.process)
            del self._parts[part.key]

    def _launch_waiting(self) -> bool:
        waiting = [
            (part, part.launch)
            for part in self._parts.values()
            if part.state == "waiting" and part.launch is not None and not part.restless
        ]
        if not waiting or time.monotonic() < self._retry_s:
            return False
        if self.fenced and boot_time_s() > self._lease_s:
            for part, _ in waiting:  # the server will tell again if it still wants them
                del self._parts[part.key]
            return True
        named = _named(order for _, order in waiting)
        launched = [self._launch(part, order, named[part.node]) for part, order in waiting]
        return any(launched)

    def _launch(self, part: LocalPart, order: LaunchPart, named: set[int]) -> bool:
        """Start it if its devices are free and its files are here."""
        if order.launch.upload:
            try:
                if not self.files.ready(order.job, order.launch.upload):
                    return False
            except InputError as error:
                part.fail(str(error))
                return True
        books = self._books[part.node]
        shares = books.take(order.part.slices, named)
        if shares is None:
            return False
        try:
            part.spawn(
                order, self.nodes[part.node], shares, fenced=self.fenced, sandbox=self.sandbox,
                containers=self.containers,
            )  # fmt: skip
        except FileExistsError:
            books.give(shares)
            part.refuse("it was started here before")
            return True
        except OSError as error:
            books.give(shares)
            self._retry_s = time.monotonic() + RETRY_S
            log.warning("launch.delayed", extra={"run": order.run, "why": str(error)})
            return False
        self._watch(part)
        log.info("run.launched", extra={"run": order.run, "node": part.node})
        return True

    def _read_reports(self) -> bool:
        if time.monotonic() < self._next_reports_s:
            return False
        self._next_reports_s = time.monotonic() + REPORTS_S
        for part in self._parts.values():
            if part.state == "running":
                self._collect(part)
        return bool(self._measured)

    def _collect(self, part: LocalPart) -> None:
        """Take over what a job reported; of too many names the newest stay."""
        values = part.measured()
        if values:
            known = self._measured.setdefault(part.key.run, {})
            for name, value in values.items():
                known.pop(name, None)
                known[name] = value
            for name in list(known)[: max(0, len(known) - VALUES_KEPT)]:
                del known[name]

    def rest(self) -> None:
        """Finish what is being done, and begin nothing any more: this process is being replaced."""
        self._lock.acquire()

    def close(self) -> None:
        """Let go of everything; what runs goes on."""
        with self._lock:
            for part in self._parts.values():
                part.go_on()  # nobody deals out turns any more
                part.abandon()
            for process in self._exiting:
                process.wait()  # it has nothing left to do
            self._epoll.close()
            os.close(self._wake)
            self._wake = -1
            self.root.close()


def _named(orders: Iterable[LaunchPart]) -> dict[str, set[int]]:
    """GPUs of each node that somebody waits for by number."""
    found: dict[str, set[int]] = {}
    for order in orders:
        devices = found.setdefault(order.part.node, set())
        devices.update(device for device, _ in order.part.slices if device != ANY)
    return found
