"""What has to be settled before jobs are accepted."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from rota.core.errors import ClusterSpecError, ForbiddenError, InputError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.launch import SIF, image_labels
from rota.core.registry import nearest, unknown
from rota.core.resources import CPU, GPU, GPU_MEMORY, MEMORY, STEP_MEMORY
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.words import brief
from rota.daemon.access import owns_job, submitted_job
from rota.daemon.settings import Permissions, Queue
from rota.jobfile.arrays import array_of
from rota.jobfile.model import GpuRange, JobFile
from rota.jobfile.plain import DEPENDENCIES
from rota.jobfile.quantities import duration_s
from rota.live.driver import Driver
from rota.wire import USER, Actor, Person

OWN_KEYS = frozenset(kind.name for kind in (GPU, CPU, MEMORY, GPU_MEMORY, STEP_MEMORY))
"""Kinds that a job asks for by keys of their own."""
MOST_PAIRS = 1_000_000
"""Of jobs of one submission with jobs that they wait for: the loop settles each, and keeps it."""
BACKOFF_S = 10.0  # before the first retry of a job that does not say


class Allowance(msgspec.Struct, frozen=True):
    """What one user may submit: as the configuration says, and as it was said of that person."""

    permissions: Permissions
    max_jobs: int
    max_priority: int | None
    undeclared_queues: bool | None
    queues: tuple[str, ...] | None = None  # none: all that the configuration allows
    priority_classes: tuple[str, ...] | None = None

    @classmethod
    def of(cls, permissions: Permissions, person: Person | None) -> "Allowance":
        """`person`: None if it is a token that belongs to nobody."""
        told = person or Person(name="", role=USER)
        jobs, priority, own = told.max_jobs, told.max_priority, told.own_queues
        return cls(
            permissions,
            permissions.max_jobs if jobs is None else jobs,
            permissions.max_priority if priority is None else priority,
            permissions.undeclared_queues if own is None else own,
            told.queues,
            told.priority_classes,
        )

    def refuse_unknown_queue(self, queue: str, tenants: TenantTree) -> None:
        """Raise if the queue is not declared, and jobs may not name others."""
        allowed = self.undeclared_queues
        if allowed is None:
            allowed = not len(tenants)
        if queue and queue not in tenants.names and not allowed:
            near = nearest(queue, tenants.names)
            hint = f"did you mean {near!r}? " if near else ""
            raise ForbiddenError(
                f"queue {queue!r} is not declared: {hint}there are {', '.join(tenants.names)} "
                "(permissions.undeclared_queues lets jobs name others)"
            )

    def refuse_queue(self, name: str, queue: str, tenants: TenantTree) -> None:
        """Raise if the user of this name may not submit there."""
        self.refuse_unknown_queue(queue, tenants)
        path = [each.name for each in tenants.path(queue)]
        for each in path:
            if name not in self.permissions.queues.get(each, (name,)):
                raise ForbiddenError(f"queue {queue!r}: {name} may not submit there")
        own = queue and queue not in tenants.names
        if self.queues is not None and not own and not set(path).intersection(self.queues):
            known = ", ".join(self.queues) or "none"
            raise ForbiddenError(f"queue {queue!r}: {name} may submit to these only: {known}")

    def refuse_priority(self, name: str, priority: int, tenants: TenantTree) -> None:
        """Raise if the user of this name may not use it."""
        if self.max_priority is not None and priority > self.max_priority:
            raise ForbiddenError(
                f"priority {priority}: {self.max_priority} is the highest that {name} may "
                "give (permissions.max_priority)"
            )
        found = tenants.class_of(priority).name
        allowed = self.permissions.priority_classes.get(found, (name,))
        own = self.priority_classes
        if name not in allowed or (own is not None and found and found not in own):
            raise ForbiddenError(f"priority class {found!r}: {name} may not use it")


def refuse_forbidden(
    jobs: Sequence[JobFile], actor: Actor, allowed: Allowance, tenants: TenantTree, active: int
) -> None:
    """What the actor may not submit; `active`: their jobs that are held, wait or run."""
    if actor.role != USER:
        for job in jobs:  # a slip of the pen, also of those who may do anything
            allowed.refuse_unknown_queue(job.queue, tenants)
        return
    if active + len(jobs) > allowed.max_jobs:
        raise ForbiddenError(
            f"{actor.name} has {active:,} jobs that are not finished and submits {len(jobs):,}: "
            f"{allowed.max_jobs:,} are allowed (permissions.max_jobs): cancel some, or wait"
        )
    for job in jobs:
        allowed.refuse_queue(actor.name, job.queue, tenants)
        priority = _value(job, tenants) if job.priority_class else job.priority
        allowed.refuse_priority(actor.name, priority, tenants)


def refuse_impossible(jobs: Sequence[JobFile], driver: Driver) -> None:
    """What the backend cannot do is refused when a job comes, not when it is to start."""
    able = driver.capabilities
    for job in jobs:
        _refuse_parts(job.resources.gpus, driver)
        if job.secrets and not able.secrets:
            raise InputError(
                f"secrets: the backend {driver.name!r} cannot hand them over safely: let the job "
                "read them from a file of its owner"
            )
        if job.upload and not able.files:
            raise InputError(
                f"upload: the backend {driver.name!r} sends no files: put them where its nodes can "
                "read them, and name that as workdir"
            )
        if job.interactive and not able.channels:
            raise InputError(
                f"interactive: the backend {driver.name!r} gives jobs no terminal: leave it out"
            )
        if job.image and not able.images:
            raise InputError(
                f"image: the backend {driver.name!r} makes no containers: leave it out, and let "
                "`run` call the engine that is there (srun --container, apptainer exec)"
            )
        for key in ("pre_stop", "warn_signal"):
            if not able.hooks and getattr(job.checkpoint, key):
                raise InputError(
                    f"checkpoint: {key}: the backend {driver.name!r} cannot do that: let the job "
                    "trap SIGTERM instead"
                )
        if not able.several_nodes and job.nodes > 1:
            raise InputError(f"nodes {job.nodes}: the backend {driver.name!r} runs jobs on one")


def _refuse_parts(gpus: float | GpuRange, driver: Driver) -> None:
    able = driver.capabilities
    if isinstance(gpus, GpuRange) or gpus == int(gpus):
        return
    if not able.fractions:
        raise InputError(
            f"resources: gpus {gpus:g}: the backend {driver.name!r} gives whole GPUs only"
        )
    if able.parts and round(gpus * able.parts, 6) % 1:
        raise InputError(
            f"resources: gpus {gpus:g}: the backend {driver.name!r} divides a GPU into "
            f"{able.parts} parts: give a multiple of {1 / able.parts:g}"
        )


def refuse_undeclared(jobs: Sequence[JobFile], topology: Topology) -> None:
    """A kind of resource that nobody has declared, or more than there is of it."""
    known = [name for name in topology.kinds if name not in OWN_KEYS]
    for job in jobs:
        for kind, amount in job.resources.kinds.items():
            if kind not in known:
                raise InputError(
                    f"resources: kinds: {unknown('resource', kind, known)}: ask for one that the "
                    "cluster declares (`resources` or `licences` of its configuration)"
                )
            total = topology.supply.get(kind, INF)
            if amount * job.nodes > total:
                raise InputError(
                    f"resources: kinds: {kind} {amount * job.nodes:g}: the cluster has {total:g} "
                    "in all: ask for less"
                )


def refuse_unlabelled(jobs: Sequence[JobFile], topology: Topology) -> None:
    """An image that no node of the cluster can run; without any node one may still come."""
    nodes = topology.specs
    for job in jobs:
        needs = set(image_labels(job.image))
        if needs and nodes and not any(needs <= set(node.labels) for node in nodes):
            engine = "apptainer" if SIF in needs else "podman or apptainer"
            raise InputError(
                f"image {job.image}: no node of this cluster runs it: install {engine} on one and "
                "start its agent again (`rota doctor` there says what is missing), or leave image "
                "out to use the files of the node"
            )


def with_ids(
    jobs: Sequence[JobFile],
    first: int,
    actor: Actor,
    others: Mapping[int, Job],
    task_of: Callable[[Job], int | None],
) -> list[JobFile]:
    """Dependencies by number: a name means the newest job or array of that name of the same owner.

    Users may only wait for jobs of their own: others would tell them what becomes of theirs.
    """
    if not any(job.depends_on or job.after_any or job.after_fail for job in jobs):
        return list(jobs)
    known = _KnownJobs(jobs, first, actor, others, task_of)
    made, pairs = [], 0
    for i, job in enumerate(jobs):
        found = {
            key: tuple(
                dict.fromkeys(
                    other
                    for name in dict.fromkeys(getattr(job, key))
                    for other in known.resolve(name, first + i, key)
                )
            )
            for key in DEPENDENCIES
        }
        pairs += sum(map(len, found.values()))
        if pairs > MOST_PAIRS:
            raise InputError(
                f"the {len(jobs):,} jobs wait for more than {MOST_PAIRS:,} others, counted for "
                "each of them: let one small job wait for the others, and these only for it"
            )
        made.append(msgspec.structs.replace(job, **found))
    return made


class _KnownJobs:
    """Jobs that others may depend on: by number, by name, as task (`17_3`) or array (`@17`)."""

    def __init__(
        self,
        jobs: Sequence[JobFile],
        first: int,
        actor: Actor,
        others: Mapping[int, Job],
        task_of: Callable[[Job], int | None],
    ) -> None:
        self._others, self._task_of = others, task_of
        self._jobs = jobs
        self._numbers: dict[int, str] = {}  # the array of each; empty: none
        self._names: dict[str, int] = {}
        for number, job in others.items():
            if owns_job(actor, job.spec.user, number):
                self._numbers[number] = job.spec.array
                if job.spec.name and submitted_job(actor, job.spec.user, number):
                    self._names[job.spec.name] = number
        self._tasks: dict[str, dict[int, int]] = {}  # of an array: its jobs by their numbers in it
        self._present = first
        self._new: dict[int, str] = {}
        for i, new in enumerate(jobs):
            found = array_of(new, str(first + i))
            self._new[first + i] = found[0] if found else ""
            if new.name:
                self._names[new.name] = first + i

    def resolve(self, name: str, number: int, key: str) -> list[str]:
        """Ids of the jobs that a name of a dependency of job `number` means."""
        found: list[int] = []
        if name.startswith("@"):
            found = self._array(name[1:], number)
        elif name in self._names:
            newest = self._names[name]
            array = self._array_of(newest)
            found = self._array(array, number) if array else [newest]
        elif name.isascii() and name.isdigit():
            found = [int(name)]
        elif name.isascii() and name.replace("_", "", 1).isdigit():
            array, _, task = name.partition("_")
            found = self._task(array, task)
        usable = [each for each in found if each in self._numbers or self._present <= each < number]
        if not usable or len(usable) < len(found) or number in usable:
            raise InputError(
                f"{key} {name!r}: you have no such job: give the id or the name of an earlier one, "
                "or @ID for a whole array"
            )
        return [str(each) for each in usable]

    def _array_of(self, number: int) -> str:
        return self._new.get(number) or self._numbers.get(number, "")

    def _array(self, array: str, number: int = -1) -> list[int]:
        if not (array.isascii() and array.isdigit()):
            return []
        found = []
        member = int(array)
        while self._array_of(member) == array and member != number:
            found.append(member)
            member += 1
        return found

    def _task(self, array: str, task: str) -> list[int]:
        """The job with this number in an array."""
        if array not in self._tasks:
            self._tasks[array] = {self._index(each): each for each in self._array(array)}
        found = self._tasks[array].get(int(task)) if task else None
        return [] if found is None else [found]

    def _index(self, number: int) -> int:
        """The number of a job in its array."""
        if number in self._new:
            index = self._jobs[number - self._present].task
        else:
            index = self._task_of(self._others[number])
        return -1 if index is None else index


def with_times(jobs: Sequence[JobFile], queues: Sequence[Queue]) -> list[JobFile]:
    """Time limits as their queues have them, and the pause before a retry.

    Raises:
        InputError: A job asks for more time than its queue gives.
    """
    by_name = {queue.name: queue for queue in queues}
    return [_with_times(job, by_name) for job in jobs]


def _with_times(job: JobFile, queues: Mapping[str, Queue]) -> JobFile:
    most, usual = queue_times(job.queue, queues)
    limit = job.time_limit
    if limit is None:
        limit = usual if usual is not None else most
    elif most is not None and duration_s(limit, "time_limit") > most:
        raise InputError(
            f"time_limit {limit}: queue {job.queue!r} gives at most {brief(most)} (max_time): ask "
            "for less, or for another queue"
        )
    backoff = job.backoff
    if backoff is None and job.retries:
        backoff = BACKOFF_S
    if limit == job.time_limit and backoff == job.backoff:
        return job
    return msgspec.structs.replace(job, time_limit=limit, backoff=backoff)


def queue_times(name: str, queues: Mapping[str, Queue]) -> tuple[float | None, float | None]:
    """The longest time limit in a queue, with those it is a part of, and the usual one."""
    most: float | None = None
    usual: float | None = None
    queue = queues.get(name)
    while queue is not None:
        if queue.max_time is not None:
            here = duration_s(queue.max_time, f"queues.{queue.name}.max_time")
            most = here if most is None else min(most, here)
        if usual is None and queue.default_time is not None:
            usual = duration_s(queue.default_time, f"queues.{queue.name}.default_time")
        queue = queues.get(queue.parent)
    if most is not None and usual is not None:
        usual = min(most, usual)
    return most, usual


def with_priorities(jobs: Sequence[JobFile], tenants: TenantTree) -> list[JobFile]:
    """`priority` of jobs that name a priority class."""
    if not any(job.priority_class for job in jobs):
        return list(jobs)
    return [
        msgspec.structs.replace(job, priority=_value(job, tenants)) if job.priority_class else job
        for job in jobs
    ]


def _value(job: JobFile, tenants: TenantTree) -> int:
    if job.priority:
        raise InputError(
            f"priority {job.priority} and priority_class {job.priority_class!r}: give one of them"
        )
    try:
        return tenants.class_named(job.priority_class).value
    except ClusterSpecError as error:
        raise InputError(f"priority_class: {error}") from error
