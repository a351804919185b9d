"""Jobs: what is asked (`JobSpec`), how it behaves (`Behaviour`), and its live state (`Job`).

A policy sees `JobSpec` and the public side of `Job`. `Behaviour` is the truth that only a simulated
cluster uses; everything a policy learns of it goes through accessors that check declared knowledge.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from rota.core.allocation import NOTHING, Amount
from rota.core.errors import KnowledgeError
from rota.core.events import INF
from rota.core.hints import NOTHING_TOLD, Hints, Learning, StepTime, TimedShape
from rota.core.knowledge import Knowledge
from rota.core.sharing import GPU_LABELS
from rota.core.spec import BAR, Behaviour, JobSpec, Request, TaskGroup
from rota.core.sums import ordered_sum

__all__ = [
    "CANCELLED", "DONE", "FAILED", "HELD", "LABELLED", "OF_TYPE", "PROGRESS", "RATE", "REJECTED",
    "REMAINING_WORK", "RUNNING", "SCALING", "SPEEDS", "STARTING", "STOPPING", "TIMEOUT", "UNKNOWN",
    "USER_ESTIMATE", "WAITING", "Accepted", "Behaviour", "Group", "Job", "JobSpec", "Phase",
    "Request", "Shape", "SpeedBook", "TaskGroup",
]  # fmt: skip

OF_TYPE = " of type "
LABELLED = ", on nodes labelled "
WEIGHTLESS = -(10**9)  # numbers of shapes that are asked about only are below this


class Phase(IntEnum):
    """Where a job is in its life; `machine` has the allowed changes."""

    HELD = 0  # admission or a dependency keeps it outside the queue
    WAITING = 1
    STARTING = 2  # holds resources, makes no progress yet
    RUNNING = 3
    STOPPING = 4  # still holds resources, makes no progress any more
    DONE = 5
    FAILED = 6
    REJECTED = 7
    CANCELLED = 8
    TIMEOUT = 9  # its time limit ended it


(
    HELD, WAITING, STARTING, RUNNING, STOPPING, DONE, FAILED, REJECTED, CANCELLED, TIMEOUT,
) = map(int, Phase)  # fmt: skip


# Plain ints: these are checked on every call of an accessor.
USER_ESTIMATE = int(Knowledge.USER_ESTIMATE)
PROGRESS = int(Knowledge.PROGRESS)
REMAINING_WORK = int(Knowledge.REMAINING_WORK)
SPEEDS = int(Knowledge.SPEEDS)
RATE = int(Knowledge.RATE)
SCALING = int(Knowledge.SCALING)
DEADLINES = int(Knowledge.DEADLINES)


class Shape:
    """A request as placements see it: totals, and a small number to index tables with."""

    __slots__ = (
        "_weightless", "apart", "cpus", "gang", "gpu_labels", "gpu_mem_gib", "gpu_mem_step_gib",
        "gpus", "labels", "mem_gib", "number", "opened", "plain", "request", "resources",
        "searched", "types",
    )  # fmt: skip

    def __init__(self, number: int, request: Request) -> None:
        self.number = number
        self.request = request
        self.gang = request.gang
        gpus = ordered_sum(group.count * group.gpus for group in request.groups)
        self.gpus: Amount = int(gpus) if gpus == int(gpus) else gpus
        self.cpus = ordered_sum(group.count * group.cpus for group in request.groups)
        self.mem_gib = ordered_sum(group.count * group.mem_gib for group in request.groups)
        self.gpu_mem_gib = max((g.gpu_mem_gib for g in request.groups if g.gpus), default=0.0)
        self.gpu_mem_step_gib = max((g.gpu_mem_step_gib for g in request.groups), default=0.0)
        self.resources = request.resources
        self.types = request.gpu_types
        self.gpu_labels = tuple(label for label in request.labels if label.startswith(GPU_LABELS))
        self.labels = request.labels
        if self.gpu_labels:
            self.labels = tuple(each for each in self.labels if each not in self.gpu_labels)
        self.apart = sum(group.count for group in request.groups) if request.apart else 0
        self.plain = not (
            self.cpus
            or self.mem_gib
            or self.types
            or self.labels
            or self.apart
            or self.gpu_mem_gib
            or self.resources
        )
        self.opened: Shape | None = None  # the same without windows (`core.windows`), if it has any
        self.searched = bool(self.apart) or any(label.startswith(BAR) for label in self.labels)
        self._weightless: Shape | None = None

    @property
    def weightless(self) -> "Shape":
        """The same without memory of GPUs, with a number of its own."""
        if self._weightless is None:
            groups = [
                replace(g, gpu_mem_gib=0.0, gpu_mem_step_gib=0.0) for g in self.request.groups
            ]
            request = replace(self.request, groups=tuple(groups))
            self._weightless = Shape(WEIGHTLESS - self.number, request)
        return self._weightless

    def describe(self) -> str:
        """For messages: `8 GPUs of type v100, 4 CPUs`."""
        text = f"{self.gpus:g} GPU{'' if self.gpus == 1 else 's'}"
        if self.apart:
            text += " on one node" if self.apart == 1 else f" on {self.apart} nodes"
        if self.types:
            text += f"{OF_TYPE}{'|'.join(self.types)}"
        if self.cpus:
            text += f", {self.cpus:g} CPUs"
        if self.mem_gib:
            text += f", {self.mem_gib:g} GiB"
        if self.gpu_mem_gib:
            text += f", {self.gpu_mem_gib:g} GiB of each GPU's memory"
        for kind, amount in self.resources.items():
            text += f", {amount:g} {kind}"
        if self.labels:
            text += f"{LABELLED}{', '.join(self.labels)}"
        return text


class Accepted(NamedTuple):
    """Which nodes a request accepts: of these GPU types (none: of all), with all these labels."""

    types: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()

    @classmethod
    def told(cls, text: str) -> "Accepted":
        """As `Shape.describe` says it; a placement's notes to itself (`#`) exclude no node."""
        asked, _, labels = text.partition(LABELLED)
        types = asked.partition(OF_TYPE)[2].partition(", ")[0]
        return cls(
            frozenset(types.split("|")) if types else frozenset(),
            frozenset(label for label in labels.split(", ") if label and label[0] != "#"),
        )

    def within(self, other: "Accepted") -> bool:
        """Does the other one accept every node that this one accepts?"""
        typed = not other.types or (bool(self.types) and self.types <= other.types)
        return typed and other.labels <= self.labels


class SpeedBook(Protocol):
    """What policies believe of the speeds of jobs: the truth, or what was measured or learnt."""

    def speed(self, job: "Job", gpu_type: str) -> float:
        """Relative to 1, on GPUs of this type, alone, with as many GPUs as it asks for."""
        ...

    def speed_beside(self, job: "Job", other: "Job", gpu_type: str) -> float:
        """The same while another job uses the same GPUs; 0 if the two cannot share."""
        ...

    def speed_with(self, job: "Job", gpus: float, nodes: int, gpu_type: str) -> float:
        """Relative to 1 on what it asked for: with so many GPUs on so many nodes (0: few), alone.

        An empty type is the only one that there is.
        """
        ...


UNKNOWN = Behaviour(INF)
"""What is known of a job on a real cluster."""


class Job:
    """Live state of a job. Policies read it; only the engine writes it.

    Nothing is integrated between events: `true_left` is the work that remained at `since_s`, and it
    shrinks by `true_rate` per second from then on. What is called true, and `truth`, is not for
    policies: they read what they have declared (`rate`, `remaining_s`, `progress`, ...).
    """

    __slots__ = (  # noqa: RUF023 - by topic
        # identity and request
        "id", "index", "spec", "submit_s", "gpus", "shape", "tenant", "group", "parent", "family",
        # life
        "phase", "allocation", "epoch", "version", "first_start_s", "start_s", "end_s",
        "preemptions", "migrations", "moving", "reason", "metrics",
        # progress: `true_left` work at `since_s`, shrinking by `true_rate`; `service` GPU-seconds
        "true_work", "true_left", "since_s", "true_rate", "service", "held_gpus", "run_s", "truth",
        "belief", "known", "book", "told",
    )  # fmt: skip

    def __init__(self, spec: JobSpec, behaviour: Behaviour, index: int, shape: Shape) -> None:
        self.id = spec.id
        self.index = index
        self.spec = spec
        self.submit_s = spec.submit_s
        self.gpus = shape.gpus
        self.shape = shape
        self.tenant = spec.tenant
        self.group: Group | None = None
        self.parent: Job | None = None  # of a task: the whole non-gang job
        self.family: Group | None = None  # of a whole or a task: all its tasks
        self.phase = WAITING
        self.allocation = NOTHING  # what it holds, or held last
        self.epoch = 0
        self.version = 0
        self.first_start_s = INF
        self.start_s = INF
        self.end_s = INF
        self.preemptions = 0
        self.migrations = 0
        self.moving = False  # being stopped in order to start elsewhere
        self.reason = 0
        self.metrics: dict[str, float] | None = None
        self.true_work = self.true_left = behaviour.work
        self.since_s = 0.0
        self.true_rate = 0.0
        self.service = 0.0
        self.held_gpus: Amount = 0
        self.run_s = 0.0
        self.truth = behaviour
        self.belief = 1.0
        self.known = 0
        self.book: SpeedBook | None = None  # None: its speeds are what they are
        self.told: Hints | None = None  # what it has reported; see `timings` and `learning`

    @property
    def min_gpus(self) -> float:
        """The fewest GPUs that it takes; those that it asks for unless it is elastic."""
        return self.spec.request.sizes[0]

    @property
    def max_gpus(self) -> float:
        """The most GPUs that it takes; those that it asks for unless it is elastic."""
        return self.spec.request.sizes[1]

    def size_within(self, gpus: float) -> float:
        """The largest size of at most so many GPUs that it takes; 0 if there is none."""
        return self.spec.request.within(gpus)

    # --- what anyone may know -------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """It has a place on the cluster (also while it is being started there or moved to it)."""
        return self.phase in (RUNNING, STARTING) or self.moving

    @property
    def started(self) -> bool:
        """It has been started at least once."""
        return self.first_start_s != INF

    @property
    def terminal(self) -> bool:
        """Nothing can happen to it any more."""
        return self.phase >= DONE

    def executed_s(self, now_s: float) -> float:
        """Seconds of progress so far (time spent running, without overhead)."""
        if self.phase == RUNNING and now_s > self.since_s:
            return self.run_s + (now_s - self.since_s)
        return self.run_s

    def attained_gpu_s(self, now_s: float) -> float:
        """GPU-seconds of progress so far (without overhead)."""
        if self.phase == RUNNING and now_s > self.since_s:
            return self.service + (now_s - self.since_s) * self.held_gpus
        return self.service

    def waiting_s(self, now_s: float) -> float:
        """Seconds since submission in which it made no progress."""
        return now_s - self.submit_s - self.executed_s(now_s)

    # --- what must be declared ------------------------------------------------------------------

    def remaining_s(self, now_s: float) -> float:
        """Oracle: seconds that it still needs at the rate of its request (as is believed)."""
        if not self.known & REMAINING_WORK:
            raise _undeclared(self, "remaining_s", Knowledge.REMAINING_WORK)
        left = self.true_left
        if self.phase == RUNNING and now_s > self.since_s:
            left -= (now_s - self.since_s) * self.true_rate
        if self.belief != 1.0:
            left += (self.belief - 1.0) * self.true_work
        return left

    def duration_s(self) -> float:
        """Oracle: seconds that it needs in all at the rate of its request (as is believed)."""
        if not self.known & REMAINING_WORK:
            raise _undeclared(self, "duration_s", Knowledge.REMAINING_WORK)
        return self.true_work * self.belief

    def estimate_s(self) -> float:
        """What the user said that it would need in all; inf when nothing was said."""
        if not self.known & USER_ESTIMATE:
            raise _undeclared(self, "estimate_s", Knowledge.USER_ESTIMATE)
        return self.spec.estimate_s

    @property
    def deadline_s(self) -> float:
        """When the user wants it to be done; inf when nothing was said."""
        if not self.known & DEADLINES:
            raise _undeclared(self, "deadline_s", Knowledge.DEADLINES)
        return self.spec.deadline_s

    def speed_on(self, gpu_type: str) -> float:
        """Speed on GPUs of this type, relative to 1 (as is believed); 0 where it may not run."""
        if not self.known & SPEEDS:
            raise _undeclared(self, "speed_on", Knowledge.SPEEDS)
        if self.shape.types and gpu_type not in self.shape.types:
            return 0.0
        if self.book is not None:
            return self.book.speed(self, gpu_type)
        speeds = self.truth.speeds
        return 1.0 if speeds is None else speeds.get(gpu_type, 1.0)

    def speed_beside(self, other: "Job", gpu_type: str) -> float:
        """Speed on GPUs of this type that another job uses, too (as is believed).

        0 where one of them may not run, if they ask for different numbers of GPUs or for parts of
        them, and where nobody knows how fast jobs run that share GPUs.
        """
        if not self.known & SPEEDS:
            raise _undeclared(self, "speed_beside", Knowledge.SPEEDS)
        for job in (self, other):
            if job.shape.types and gpu_type not in job.shape.types:
                return 0.0
        if self.book is None or self.gpus != other.gpus or not self.gpus or self.gpus % 1:
            return 0.0
        return self.book.speed_beside(self, other, gpu_type)

    def progress(self, now_s: float) -> float:
        """Share of its work that is done, between 0 and 1."""
        if not self.known & PROGRESS:
            raise _undeclared(self, "progress", Knowledge.PROGRESS)
        if self.true_work == INF:
            return 0.0 if self.metrics is None else self.metrics.get("progress", 0.0)
        return 1.0 - self.left_at(now_s) / self.true_work if self.true_work else 1.0

    @property
    def rate(self) -> float:
        """Its present progress per second; 1 on what it asked for."""
        if not self.known & (RATE | REMAINING_WORK):  # who knows the one can observe the other
            raise _undeclared(self, "rate", Knowledge.RATE)
        return self.true_rate if self.phase == RUNNING else 0.0

    def speed_with(self, gpus: float, *, nodes: int = 0, gpu_type: str = "") -> float:
        """Progress per second with so many GPUs, alone (as is believed); 1 on what it asked for.

        `nodes`: on so many of them; 0: on as few as possible. `gpu_type`: on GPUs of this type;
        empty: of the only one. 0 where it may not run.
        """
        if not self.known & SCALING:
            raise _undeclared(self, "speed_with", Knowledge.SCALING)
        if gpu_type and self.shape.types and gpu_type not in self.shape.types:
            return 0.0
        if self.book is not None:
            return self.book.speed_with(self, gpus, nodes, gpu_type)
        return gpus / self.gpus if self.gpus else 1.0

    @property
    def timings(self) -> Mapping[TimedShape, StepTime]:
        """How long its steps took, for every shape and batch with which it has run."""
        if not self.known & SCALING:
            raise _undeclared(self, "timings", Knowledge.SCALING)
        return self.told.timings if self.told is not None else {}

    @property
    def learning(self) -> Learning:
        """What it has told of its training: batches, noise of its gradients, losses."""
        if not self.known & PROGRESS:
            raise _undeclared(self, "learning", Knowledge.PROGRESS)
        return self.told.learning if self.told is not None else NOTHING_TOLD

    # --- what no policy may know ------------------------------------------------------------------

    @property
    def left(self) -> float:
        """Nothing for a policy: `remaining_s` tells what is believed."""
        raise _secret(self, "left", "remaining_s(now_s)", Knowledge.REMAINING_WORK)

    @property
    def work(self) -> float:
        """Nothing for a policy: `duration_s` tells what is believed."""
        raise _secret(self, "work", "duration_s()", Knowledge.REMAINING_WORK)

    @property
    def behaviour(self) -> Behaviour:
        """Nothing for a policy: `speed_on` and `speed_with` tell what is believed."""
        raise _secret(self, "behaviour", "speed_on(gpu_type)", Knowledge.SPEEDS)

    # --- for the engine and clusters ------------------------------------------------------------

    def left_at(self, now_s: float) -> float:
        """True remaining work. Not for policies: use `remaining_s`."""
        if self.phase == RUNNING and now_s > self.since_s:
            return self.true_left - (now_s - self.since_s) * self.true_rate
        return self.true_left

    def __repr__(self) -> str:
        return f"Job({self.id}, {Phase(self.phase).name.lower()}, gpus={self.gpus:g})"


class Group:
    """Jobs that belong together: the trials of a search, the tasks of a non-gang job."""

    __slots__ = ("members", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: list[Job] = []

    def siblings(self, job: Job) -> list[Job]:
        """The other members that are not finished."""
        return [other for other in self.members if other is not job and not other.terminal]


def _undeclared(job: Job, what: str, needed: Knowledge) -> KnowledgeError:
    return KnowledgeError(
        f"job {job.id}: a policy read {what!r} without declaring Knowledge.{needed.name}: "
        f"add it to the policy's `knowledge`"
    )


def _secret(job: Job, what: str, instead: str, needed: Knowledge) -> KnowledgeError:
    return KnowledgeError(
        f"job {job.id}: a policy read {what!r}, which is the truth of a simulation: declare "
        f"Knowledge.{needed.name} and read `{instead}`"
    )
