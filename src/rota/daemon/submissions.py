"""What has to be settled before jobs are accepted."""

from collections.abc import Container, Mapping, Sequence

import msgspec

from rota.core.errors import ClusterSpecError, ForbiddenError, InputError
from rota.core.jobs import Job
from rota.core.tenants import TenantTree
from rota.daemon.access import owns_job, submitted_job
from rota.daemon.settings import Permissions
from rota.jobfile.model import JobFile
from rota.live.driver import Driver
from rota.wire import USER, Actor, Person


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

    def refuse_queue(self, name: str, queue: str, tenants: TenantTree) -> None:
        """Raise if the user of this name may not submit there."""
        undeclared = self.undeclared_queues
        if undeclared is None:
            undeclared = not len(tenants)
        if queue and queue not in tenants.names and not undeclared:
            raise ForbiddenError(
                f"queue {queue!r} is not declared: there are {', '.join(tenants.names)}"
            )
        path = [each.name for each in tenants.path(queue)]
        for each in path:
            if name not in self.permissions.queues.get(each, (name,)):
                raise ForbiddenError(f"queue {queue!r}: {name} may not submit there")
        own = undeclared and queue and queue not in tenants.names
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
        gpus = job.resources.gpus
        if not able.fractions and isinstance(gpus, float) and gpus != int(gpus):
            raise InputError(
                f"resources: gpus {gpus:g}: the backend {driver.name!r} gives whole GPUs only"
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
        if not able.several_nodes and job.nodes > 1:
            raise InputError(f"nodes {job.nodes}: the backend {driver.name!r} runs jobs on one")


def with_ids(
    jobs: Sequence[JobFile], first: int, actor: Actor, others: Mapping[int, Job]
) -> list[JobFile]:
    """`depends_on` by number: a name means the newest job of that name of the same owner.

    Users may only wait for jobs of their own: others would tell them what becomes of theirs.
    """
    if not any(job.depends_on for job in jobs):
        return list(jobs)
    names = {
        j.spec.name: j.id
        for number, j in others.items()
        if j.spec.name and submitted_job(actor, j.spec.user, number)
    }
    known = {number for number, j in others.items() if owns_job(actor, j.spec.user, number)}
    names.update((job.name, str(first + i)) for i, job in enumerate(jobs) if job.name)
    return [
        msgspec.structs.replace(
            job,
            depends_on=tuple(
                _resolve(name, names, known, first, first + i) for name in job.depends_on
            ),
        )
        for i, job in enumerate(jobs)
    ]


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


def _resolve(
    name: str, names: dict[str, str], known: Container[int], first: int, number: int
) -> str:
    found = names.get(name)
    if found is None and name.isascii() and name.isdigit():
        given = int(name)
        if given in known or first <= given < number:
            found = str(given)
    if found is None or found == str(number):
        raise InputError(
            f"depends_on {name!r}: you have no such job: give the id or the name of an earlier one"
        )
    return found
