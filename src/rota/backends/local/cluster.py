"""The second cluster: jobs are processes of this machine, time is the wall clock."""

import selectors
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from rota.backends.local.devices import Devices, Share
from rota.backends.local.launcher import Launcher
from rota.backends.local.process import ProcessGroup
from rota.core.allocation import Allocation
from rota.core.errors import ClusterError, OptionError
from rota.core.events import INF, JOB_DONE, JOB_FAILED, JOB_RUNNING, JOB_STOPPED, Event
from rota.core.jobs import Job
from rota.core.topology import Topology

TICK_S = 0.02  # between looks where nothing can wake us
NAP_S = 3600.0  # the longest single wait: some systems refuse longer ones
KILLED_S = 5.0  # how long `close` waits for processes that were killed

Ending = tuple[int, str]
"""(JOB_DONE or JOB_FAILED, why)."""


class _Run:
    """One run of a job. It has a process, or it waits for devices, or it is over already."""

    __slots__ = ("devices", "ending", "group", "job", "stopping")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.devices: list[Share] = []
        self.group: ProcessGroup | None = None
        self.ending: Ending | None = None  # known without, or before, a look at the process
        self.stopping = False


class LocalCluster:
    """Implements the `Cluster` port with processes; `commands` are by job id.

    The nodes of the topology are parts of this machine. A job is one process in a session of its
    own, whatever the number of its GPUs, with these variables added to its environment:
    CUDA_VISIBLE_DEVICES, ROTA_JOB_ID, and ROTA_RESTART_COUNT (0 in its first run). Its output is
    appended to `<job id>.out` and `<job id>.err` in `log_dir`, or thrown away.

    *Stop*: SIGTERM to the whole process group, SIGKILL after `grace_s` seconds; JOB_STOPPED when
    nobody is left in the group.

    *Who ended it?* Exit code 0 is JOB_DONE, everything else JOB_FAILED (`failure` tells why). After
    SIGTERM was sent every end counts as JOB_STOPPED, also with code 0: so a job says that it has
    written its checkpoint. A job that had ended before the signal was sent stays done or failed:
    its slices are free at once, and its next start reports that end instead of running it again.

    *Clock*: seconds since construction, times `speed`. It stands still between polls and never
    passes the `until_s` of a poll: what is found late counts as found in time, so that timers,
    rounds and arrivals have the same times as in the simulator.
    """

    def __init__(
        self,
        topology: Topology,
        commands: Mapping[str, Sequence[str]],
        *,
        grace_s: float = 5.0,
        log_dir: Path | None = None,
        speed: float = 1.0,
        devices: Sequence[str] | None = None,
    ) -> None:
        if grace_s < 0 or not 0 < speed < INF:
            raise OptionError(
                f"grace_s={grace_s:g}, speed={speed:g}: grace_s must not be negative, "
                f"speed must be positive and finite"
            )
        self.topology = topology
        self.grace_s = grace_s
        self.speed = speed
        self.now_s = 0.0
        self.instant_stop = False
        self.frictionless = False
        self._devices = Devices(topology, devices)
        self._selector = selectors.DefaultSelector()
        self._launcher = Launcher(commands, self._selector, log_dir=log_dir, grace_s=grace_s)
        self._runs: dict[int, _Run] = {}  # by job index: what the engine knows
        self._leaving: list[_Run] = []  # given up by the engine, but not gone yet
        self._endings: dict[int, Ending] = {}  # of jobs that ended while they were being stopped
        self._failures: dict[int, str] = {}
        self._sequence = 0
        self._closed = False
        self._origin_s = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- clock ------------------------------------------------------------------------------------

    def poll(self, until_s: float) -> list[Event]:
        """Sleep until a process ends or `until_s` comes; [] at once if neither can ever happen."""
        while True:
            self.now_s = max(self.now_s, min(self._clock_s(), until_s))
            events = self._look()
            if events or self.now_s >= until_s or (until_s == INF and not self._runs):
                return events
            self._sleep((until_s - self._clock_s()) / self.speed)

    def _clock_s(self) -> float:
        return (monotonic() - self._origin_s) * self.speed

    def _sleep(self, longest_s: float) -> None:
        """Until there may be news, at most so many real seconds."""
        now = monotonic()
        for run in (*self._runs.values(), *self._leaving):
            if run.group is not None:
                longest_s = min(longest_s, run.group.kill_s - now)
                if not run.group.quiet:
                    longest_s = min(longest_s, TICK_S)
        self._selector.select(max(0.0, min(longest_s, NAP_S)))

    def _look(self) -> list[Event]:
        """What has happened since the last look, in the order of kinds."""
        for run in [run for run in self._leaving if run.group is None or run.group.over()]:
            self._leaving.remove(run)
            self._devices.give(run.devices)
        events = []
        for run in list(self._runs.values()):
            kind = self._news(run)
            if kind is not None:
                self._sequence += 1
                events.append((self.now_s, kind, self._sequence, run.job, run.job.epoch))
        return sorted(events, key=lambda event: event[1:3])

    def _news(self, run: _Run) -> int | None:
        """What happened to this run, if anything."""
        if run.group is None and run.ending is None:
            return JOB_RUNNING if self._launch(run) else None
        if run.group is not None and not run.group.over():
            return None
        self._remove(run)
        if run.stopping:
            return JOB_STOPPED
        kind, why = run.ending or _ending(run.group)
        if kind == JOB_FAILED:
            self._failures[run.job.index] = why
        return kind

    def _remove(self, run: _Run) -> None:
        del self._runs[run.job.index]
        self._devices.give(run.devices)

    # --- commands ---------------------------------------------------------------------------------

    def start(self, job: Job) -> float:
        """Spawn its process, once those who are leaving have left; what cannot be spawned fails."""
        if self._closed or job.index in self._runs:
            state = "the cluster is closed" if self._closed else "it runs already"
            raise ClusterError(f"job {job.id} cannot be started: {state}")
        run = self._runs[job.index] = _Run(job)
        run.ending = self._endings.pop(job.index, None)
        if run.ending is not None or self._launch(run):
            return self.now_s
        return INF

    def _launch(self, run: _Run) -> bool:
        """False while a process that is leaving still has the devices, or is the job itself."""
        job = run.job
        if any(other.job is job for other in self._leaving):
            return False
        devices = self._devices.take(job.allocation)
        if devices is None:
            if self._leaving:
                return False
            raise ClusterError(
                f"job {job.id}: the devices of {job.allocation} are in use by others"
            )
        run.devices = devices
        try:
            run.group = self._launcher.launch(job, self._devices.visible(devices))
        except ClusterError as error:
            run.ending = JOB_FAILED, str(error)
        return True

    def rate(self, job: Job) -> float:  # noqa: ARG002 - part of the port
        """Unknown; by definition 1."""
        return 1.0

    def rerated(self) -> Sequence[tuple[Job, float]]:
        """Never."""
        return ()

    def stop(self, job: Job, *, to: Allocation | None = None) -> tuple[float, bool]:  # noqa: ARG002
        """Ask it to end. What it had not saved is lost, but nobody knows how much that is."""
        run = self._runs[job.index]
        group = run.group
        if group is None or group.exited():  # it never began, or it was faster
            ending = run.ending if group is None else _ending(group)
            if ending is not None:
                self._endings[job.index] = ending
            if group is None or group.over():
                self._remove(run)
                return 0.0, True
        else:
            group.end()
        run.stopping = True
        return 0.0, False

    def evict(self, job: Job) -> float:
        """Kill it at once. What is lost is not known."""
        group = self._give_up(job)
        if group is not None:
            group.kill()
        return 0.0

    def release(self, job: Job) -> None:
        """Forget the job; if it still runs it is asked to end, and its devices wait for that."""
        group = self._give_up(job)
        if group is not None:
            group.end()
        self._launcher.forget(job)

    def _give_up(self, job: Job) -> ProcessGroup | None:
        self._endings.pop(job.index, None)
        run = self._runs.pop(job.index, None)
        if run is None:
            return None
        if run.group is None:
            self._devices.give(run.devices)
            return None
        self._leaving.append(run)
        return run.group

    def failure(self, job: Job) -> str:
        """Why it failed; empty if it did not."""
        return self._failures.get(job.index, "")

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Ask everything to end, kill what does not, and wait until it is gone."""
        if self._closed:
            return
        self._closed = True
        for run in list(self._runs.values()):
            self.release(run.job)
        last_s = monotonic() + self.grace_s + KILLED_S
        try:
            self._look()
            while self._leaving and monotonic() < last_s:
                self._sleep(last_s - monotonic())
                self._look()
        finally:  # also when an impatient Ctrl-C comes
            for run in self._leaving:
                if run.group is not None:
                    run.group.abandon()
            self._leaving.clear()
            self._selector.close()


def _ending(group: ProcessGroup | None) -> Ending:
    code = None if group is None else group.exit_code
    if code is None:
        return (
            JOB_FAILED,
            "its exit code is lost: something else in this program waits for children",
        )
    if code < 0:
        return JOB_FAILED, f"killed by signal {-code} ({signal.strsignal(-code)})"
    return (JOB_FAILED, f"exit code {code}") if code else (JOB_DONE, "")
