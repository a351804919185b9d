"""Brings placement groups, step by step, to where their runs want them.

A run is noted on the disk before Ray hears of it, and Ray takes its name once: so it is started at
most once. A run that is noted and that Ray does not know is lost. Its group and its actors stay
until the run is forgotten: they know how it ended.
"""

import contextlib
import logging
import os
from collections import defaultdict
from pathlib import Path
from time import monotonic, time

from rota.core.errors import ClusterError
from rota.live.agent.folders import folder_name
from rota.live.agent.messages import PartKey, PartStatus
from rota.live.clock import boot_time_s
from rota.live.driver import RunMetrics, RunOrder, RunStatus
from rota.live.drivers.agent_run import AgentRun
from rota.live.drivers.orders import HALT, KILL, REFUSED, RUN, OrderedRun, OrderedRuns
from rota.live.drivers.ray.logs import RayLogs
from rota.live.drivers.ray.order import new_part
from rota.live.drivers.ray.port import RayGroup, RayMoment, RayNode, RayPart, RayPort, RayView

log = logging.getLogger("rota.ray")

WAITING_S = 60.0  # then a run that Ray does not start is worth telling
COPY_S = 10.0  # between copies of the output of a part that runs
UNKNOWN = "Ray does not know it any more"
LEAST = 1e-6  # GPUs


class RayRun(OrderedRun):
    """A run and how far it has come; its parts are counted as those of agents are."""

    def __init__(self, order: RunOrder, want: str = RUN) -> None:
        super().__init__(order, want)
        self.parts = AgentRun(order)
        self.keys = [PartKey(order.run, part.node_rank) for part in order.parts]
        self.told: dict[int, str] = {}  # by rank: how it was asked to end
        self.values: dict[int, dict[str, float]] = {}  # by rank: what it reported
        self.copied_s = monotonic()
        self.since_s: float | None = None  # it waits for Ray to start it


class RayRuns(OrderedRuns[RayRun]):
    """All runs. Everything is called by one thread."""

    def __init__(self, port: RayPort, logs: RayLogs, notes: Path, root: Path) -> None:
        super().__init__()
        self.nodes: dict[str, RayNode] = {}  # those that can be used, by name
        self._port, self._logs, self._root = port, logs, root
        self._notes = notes
        self._held: defaultdict[str, float] = defaultdict(
            float
        )  # GPUs that were taken since the last look, by node

    # --- notes ------------------------------------------------------------------------------------

    def _note(self, run: str) -> Path:
        return self._notes / folder_name(run)

    def _write_note(self, run: str) -> None:
        """From now on it is never created again."""
        try:
            self._notes.mkdir(0o700, parents=True, exist_ok=True)
            with self._note(run).open("x"):
                pass
            fd = os.open(self._notes, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise ClusterError(f"cannot write {self._notes}: {error}", retryable=True) from error

    # --- what to do next --------------------------------------------------------------------------

    def begin(self, view: RayView) -> None:
        """A new look: what is held is in it."""
        self._held.clear()
        for run in self.runs.values():
            if run.over is None:
                self._take(run, view.groups.get(run.order.run))

    def claim(self, view: RayView) -> None:
        """After a start: groups and notes of this daemon that belong to no run are removed."""
        for name in view.groups.keys() - self.runs.keys():
            log.warning("the group of run %s is not wanted any more", name)
            self._port.remove(name)
        wanted = {folder_name(name) for name in self.runs}
        for note in self._notes.glob("*"):
            if note.name not in wanted:
                note.unlink(missing_ok=True)

    def step(self, run: RayRun, view: RayView) -> None:
        """Do the next thing for a run."""
        name, group = run.order.run, view.groups.get(run.order.run)
        if run.over is not None:
            return
        if group is not None:
            self._steer(run, group)
        elif self._note(name).exists():
            for key in run.keys:
                self._tell(run, run.parts.lose(key, UNKNOWN))
        elif run.ending:
            self._over(run, RunStatus(name, "ended", asked=True))
        else:
            self._launch(run)

    def _steer(self, run: RayRun, group: RayGroup) -> None:
        """Bring a run that Ray knows to where it is wanted."""
        name = run.order.run
        if run.ending and not group.placed and not any(part.ran for part in group.parts):
            self._port.remove(name)
            self._over(run, RunStatus(name, "ended", asked=True))
            return
        run.parts.halting, run.parts.killing = run.want == HALT, run.want == KILL
        for rank, (key, part) in enumerate(zip(run.keys, group.parts, strict=True)):
            how = run.parts.wants(key)
            if how and run.told.get(rank) != how and part.state not in ("none", "gone"):
                self._port.stop(name, rank, how)
                run.told[rank] = how
        self._warn(run, group)
        if run.running and monotonic() - run.copied_s > COPY_S:
            self.copy(run)

    def _warn(self, run: RayRun, group: RayGroup) -> None:
        """Say now and then that Ray takes its time."""
        idle = not group.placed or any(part.state == "waiting" for part in group.parts)
        run.since_s = (run.since_s or monotonic()) if idle else None
        if run.since_s is not None and monotonic() - run.since_s > WAITING_S:
            log.warning("Ray has not started run %s yet: see `ray status`", run.order.run)
            run.since_s = monotonic()

    def _take(self, run: RayRun, group: RayGroup | None) -> None:
        """Take over what Ray says about the parts of a run."""
        if group is None:
            return
        for rank, (key, part) in enumerate(zip(run.keys, group.parts, strict=True)):
            values = dict(part.values)
            if values and values != run.values.get(rank):
                run.values[rank] = values
                self.tell(RunMetrics(run.order.run, values))
            if part.state == "waiting" or run.parts.over(key):
                continue
            if part.state in ("none", "gone"):
                why = part.why if part.state == "gone" else UNKNOWN
                self._tell(run, run.parts.lose(key, why))
            else:
                self._tell(run, run.parts.note(status_of(key, part), 0.0))

    def _tell(self, run: RayRun, news: list[RunStatus]) -> None:
        for status in news:
            if status.state == "running":
                run.running = True
                self.tell(status)
            else:
                self.copy(run, ended=True)
                self._over(run, status)

    def _over(self, run: RayRun, status: RunStatus) -> None:
        run.over = status
        self.tell(status)

    def _launch(self, run: RayRun) -> None:
        """Make its group, if all its parts have room."""
        order = run.order
        wanted: defaultdict[str, float] = defaultdict(float)
        for part in order.parts:
            wanted[part.node] += part.gpus
        gone = [part.node for part in order.parts if part.node not in self.nodes]
        if gone:
            for key in run.keys:
                self._tell(run, run.parts.lose(key, f"node {gone[0]} is gone"))
            return
        if any(
            gpus > self.nodes[node].free - self._held[node] + LEAST for node, gpus in wanted.items()
        ):
            return  # somebody is leaving; the next look tells
        master = self.nodes[order.parts[0].node].address
        parts = [
            new_part(run.parts.launch_of(key, master), self.nodes[part.node].id, self._root)
            for key, part in zip(run.keys, order.parts, strict=True)
        ]
        self._write_note(order.run)
        for node, gpus in wanted.items():
            self._held[node] += gpus
        try:
            self._port.create(order.run, parts)
        except ClusterError as error:
            if error.retryable:
                raise
            self._over(run, RunStatus(order.run, "ended", REFUSED, why=f"refused: {error}"))

    def copy(self, run: RayRun, *, ended: bool = False) -> None:
        """Copy the output of a run; that it fails costs no more than lines."""
        run.copied_s = monotonic()
        for rank in range(len(run.keys)):
            try:
                self._logs.fetch(run.order.job, run.order.run, rank, ended=ended)
            except (ClusterError, OSError) as error:
                log.info("output of run %s, rank %d: %s", run.order.run, rank, error)

    def forget(self, name: str) -> None:
        """Its end was understood: its group may go."""
        if self._note(name).exists():
            self._port.remove(name)
            with contextlib.suppress(FileNotFoundError):
                self._note(name).unlink()
        self.runs.pop(name, None)


def status_of(key: PartKey, part: RayPart) -> PartStatus:
    """What an actor says about its part, on our clock; a run is as long as its node measured."""
    began_s = _moment(part.began)
    ended_s = _moment(part.ended)
    if began_s is not None and ended_s is not None:
        ended_s = began_s + max(0.0, part.ended.clock - part.began.clock)
    return PartStatus(
        key, part.state, "", part.ran, part.code, part.asked, part.why, began_s, ended_s,  # type: ignore[arg-type]
        part.timed_out,
    )  # fmt: skip


def _moment(at: RayMoment) -> float | None:
    """A time of day as a moment of `boot_time_s`: the clocks of a cluster's machines agree."""
    return boot_time_s() - (time() - at.time) if at.time else None
