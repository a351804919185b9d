"""Shadow mode: what would Rota do on this Slurm? Reads only, changes nothing.

At every look the scheduler gets the true state: who waits, who runs where and since when, which
nodes are usable. Only what Slurm has started since the last look is still among those that wait.
What Rota would start is compared with what Slurm did start. Rota's wishes never become part of the
state: each answer is about the cluster as Slurm made it.
"""

from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Protocol

import msgspec

from rota.core import events as ev
from rota.core.changes import Changes
from rota.core.errors import OptionError
from rota.core.events import Event
from rota.core.jobs import DONE, WAITING, Job
from rota.core.policy import PriorityPolicy
from rota.core.sums import ordered_sum
from rota.core.tenants import TenantTree
from rota.core.view import View
from rota.engine.arrivals import Arrivals
from rota.engine.general import GeneralScheduler
from rota.engine.parts import make_admission, make_placement, make_policy
from rota.engine.priority import PriorityScheduler
from rota.engine.wiring import DEFAULT_ADMISSION, Parts
from rota.live.drivers.slurm.layout import SeenJob, SeenNode
from rota.live.drivers.slurm.mirror import Mirror, SlurmChanges

FIRST_TASK = 1 << 40  # numbers of tasks of non-gang jobs: Slurm's jobs are all gangs

Places = Mapping[str, float]


class ShadowDecision(msgspec.Struct):
    """What Rota would do at one look."""

    starts: dict[str, Places] = {}  # job -> GPUs by node
    moves: dict[str, Places] = {}
    stops: list[str] = []
    refuses: dict[str, str] = {}  # job -> why it could never run


class Look(msgspec.Struct):
    """One line of the log: the state, Rota's wish for it, and how that compares with Slurm's deeds.

    `same`: Slurm started what Rota would have started too; `elsewhere`: of these, on other nodes;
    `only_rota`: still waits although Rota would have started it; `only_slurm`: was started although
    Rota would not have; `brief`: was started and ended between two looks.
    """

    number: int
    unix_s: float
    gpus: float  # usable
    used_gpus: float
    running: int
    waiting: int
    kept_back: int  # waiting, but not for resources
    wish: ShadowDecision
    slurm_started: dict[str, Places] = {}
    slurm_stopped: list[str] = []
    slurm_ended: list[str] = []
    same: list[str] = []
    elsewhere: list[str] = []
    only_rota: list[str] = []
    only_slurm: list[str] = []
    brief: list[str] = []
    order_differs: bool = False  # in which of `same` were started


class Totals(msgspec.Struct):
    """Over all looks."""

    policy: str
    placement: str
    looks: int = 0
    jobs: int = 0
    slurm_started: int = 0
    same: int = 0
    elsewhere: int = 0
    only_slurm: int = 0
    brief: int = 0
    slurm_stopped: int = 0
    rota_would_stop: int = 0  # counted once per job and start
    rota_waits: int = 0  # looks at which Rota wanted to start something that Slurm did not
    earlier_jobs: int = 0  # jobs that Rota would have started at an earlier look
    earlier_s: float = 0.0  # by how much, in all (of jobs that Slurm has started by now)
    earlier_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0  # GPUs that were free for jobs that Rota would have started on them


class SeenCluster(Protocol):
    """A cluster as others run it, for the eyes of Rota only."""

    def nodes(self) -> Sequence[SeenNode]:
        """Its nodes."""
        ...

    def jobs(self) -> Sequence[SeenJob]:
        """Jobs that wait, run, or have ended lately."""
        ...


class SlurmShadow:
    """Watches one Slurm, or another cluster that is seen in its words, with one policy.

    Args:
        commands: Can only read.
        policy: As for `rota simulate`.
        placement: As for `rota simulate`; it must name nodes.
        partition: Only this partition; empty: all nodes and jobs.
    """

    def __init__(
        self,
        commands: SeenCluster,
        policy: str,
        placement: str = "consolidate",
        *,
        partition: str = "",
    ) -> None:
        self.mirror = Mirror(partition)
        self.totals = Totals(policy, placement)
        self._commands = commands
        self._policy = make_policy(policy)
        self._placement = placement
        self._last: Look | None = None
        self._wanted_since: dict[str, float] = {}  # jobs that Rota would have started already
        self._would_stop: set[tuple[str, int]] = set()

    def look(self) -> Look:
        """Look once; raises `ClusterError` if Slurm does not answer."""
        nodes = self._commands.nodes()
        jobs = self._commands.jobs()
        unix_s = time()
        topology = self.mirror.see_nodes(nodes)
        scheduler = self._scheduler()
        if self.totals.looks == 0:
            self.mirror.use(
                Arrivals(scheduler.knowledge, FIRST_TASK, linked=False, refine=scheduler.refine)
            )
        changes = self.mirror.see_jobs(jobs, unix_s)
        self._learn(changes)
        first = self._last is None
        if first:  # what ran before the first look was not decided by either
            self.mirror.start(changes)
        wish = self._ask(scheduler)
        if not first:
            self.mirror.start(changes)
        running = self.mirror.running
        look = Look(
            number=self.totals.looks,
            unix_s=unix_s,
            gpus=ordered_sum(node.gpus for node in topology.nodes if node.open),
            used_gpus=ordered_sum(job.held_gpus for job in running),
            running=len(running),
            waiting=len(self.mirror.waiting),
            kept_back=self.mirror.kept_back,
            wish=wish,
            slurm_stopped=[job.id for job in changes.stopped],
            slurm_ended=[job.id for job in changes.ended],
            brief=[job.id for job in changes.brief],
        )
        if not first:
            self._compare(look, changes)
        self._count(look, changes)
        self._last = look
        return look

    # --- Rota's answer ---------------------------------------------------------------------------

    def _scheduler(self) -> PriorityScheduler | GeneralScheduler:
        """A fresh one for each look; the policy itself stays, with what it has learnt."""
        if self.mirror.topology is None:  # pragma: no cover - nodes are seen first
            raise RuntimeError("no nodes were seen")
        placement = make_placement(self._placement, self.mirror.topology, seed=0)
        if not placement.names_nodes:
            raise OptionError(
                f"placement {placement.name!r} takes the cluster as one pool, but Slurm's jobs run "
                f"on nodes: use e.g. consolidate"
            )
        scheduler = Parts(self._policy, placement, make_admission(DEFAULT_ADMISSION)).scheduler()
        assert isinstance(scheduler, (PriorityScheduler, GeneralScheduler))  # noqa: S101 - for mypy
        return scheduler

    def _ask(self, scheduler: PriorityScheduler | GeneralScheduler) -> ShadowDecision:
        mirror = self.mirror
        view = View(scheduler.placement.topology, TenantTree())
        view.now_s = mirror.now_s
        view.version = self.totals.looks + 1
        view.knowledge = scheduler.knowledge
        view.finished = mirror.finished
        view.up_gpus = sum(node.gpus for node in view.topology.nodes if node.up)
        present = sorted([*mirror.running, *mirror.waiting], key=lambda job: job.index)
        view.active = {job.index: job for job in present}
        view.everyone = view.active
        scheduler.adopt(view, mirror.running, ())
        events: list[Event] = [
            (view.now_s, ev.JOB_SUBMIT, number, job, job.epoch)
            for number, job in enumerate(mirror.waiting)
        ]
        if not events:
            events = [(view.now_s, ev.TIMER, 0, None, 0)]
        changes = scheduler.step(view, events)
        return self._wish(changes) if changes is not None else ShadowDecision()

    def _wish(self, changes: Changes) -> ShadowDecision:
        nodes_of = self.mirror.nodes_of
        wish = ShadowDecision()
        for job, allocation in changes.starts:
            where = wish.starts if job.phase == WAITING else wish.moves
            where[job.id] = nodes_of(allocation)
        wish.stops = [job.id for job in changes.stops]
        wish.refuses = {job.id: message for job, message in changes.rejects}
        return wish

    def _learn(self, changes: SlurmChanges) -> None:
        """Pass finished jobs on to policies that learn from them."""
        if isinstance(self._policy, PriorityPolicy):
            for job in changes.ended:
                if job.phase == DONE:
                    self._policy.finished(job, self.mirror.now_s)

    # --- comparison ------------------------------------------------------------------------------

    def _compare(self, look: Look, changes: SlurmChanges) -> None:
        mirror, wanted = self.mirror, look.wish.starts
        for job in changes.starting:
            places = look.slurm_started[job.id] = mirror.nodes_of(job.allocation)
            if job.id not in wanted:
                look.only_slurm.append(job.id)
                continue
            look.same.append(job.id)
            if dict(places) != dict(wanted[job.id]):
                look.elsewhere.append(job.id)
        look.only_rota = [name for name in wanted if name not in look.slurm_started]
        look.order_differs = look.same != [name for name in wanted if name in look.slurm_started]

    def _count(self, look: Look, changes: SlurmChanges) -> None:
        totals, last = self.totals, self._last
        totals.looks += 1
        totals.jobs += len(changes.came)
        totals.slurm_started += len(look.slurm_started) + len(look.brief)
        totals.same += len(look.same)
        totals.elsewhere += len(look.elsewhere)
        totals.only_slurm += len(look.only_slurm)
        totals.brief += len(look.brief)
        totals.slurm_stopped += len(look.slurm_stopped)
        totals.rota_waits += bool(look.only_rota)
        if last is not None and last.only_rota:
            asked = ordered_sum(
                ordered_sum(last.wish.starts[name].values()) for name in last.only_rota
            )
            free = max(0.0, last.gpus - last.used_gpus)
            totals.idle_gpu_s += min(asked, free) * (look.unix_s - last.unix_s)
        self._count_waits(look, [*changes.starting, *changes.brief])
        for name in look.wish.stops:
            starts = self.mirror.jobs[int(name)].epoch
            if (name, starts) not in self._would_stop:
                self._would_stop.add((name, starts))
                totals.rota_would_stop += 1

    def _count_waits(self, look: Look, started: Sequence[Job]) -> None:
        """How long has Slurm kept jobs waiting that Rota would have started?"""
        for job in started:
            since_s = self._wanted_since.pop(job.id, None)
            if since_s is not None and job.start_s > since_s:
                self.totals.earlier_jobs += 1
                self.totals.earlier_s += job.start_s - since_s
                self.totals.earlier_gpu_s += (job.start_s - since_s) * job.gpus
        waits = {job.id for job in self.mirror.waiting}
        self._wanted_since = {
            name: self._wanted_since.get(name, self.mirror.now_s)
            for name in {*look.wish.starts, *self._wanted_since}
            if name in waits
        }


def named(look: Look, names: Mapping[str, str]) -> Look:
    """The same with names in place of numbers of jobs."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {names.get(key, key): each for key, each in value.items()}
        if isinstance(value, list):
            return [names.get(each, each) for each in value]
        return value

    fields = {key: renamed(value) for key, value in msgspec.structs.asdict(look).items()}
    wish = msgspec.structs.asdict(look.wish)
    fields["wish"] = ShadowDecision(**{key: renamed(value) for key, value in wish.items()})
    return Look(**fields)


def as_json(value: Any) -> bytes:
    """One line."""
    return msgspec.json.encode(value) + b"\n"
