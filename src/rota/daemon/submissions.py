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
from rota.wire import USER, Actor


def refuse_forbidden(
    jobs: Sequence[JobFile], actor: Actor, allowed: Permissions, tenants: TenantTree, active: int
) -> None:
    """What the actor may not submit; `active`: their jobs that are held, wait or run."""
    if actor.role != USER:
        return
    if active + len(jobs) > allowed.max_jobs:
        raise ForbiddenError(
            f"{actor.name} has {active:,} jobs that are not finished and submits {len(jobs):,}: "
            f"{allowed.max_jobs:,} are allowed (permissions.max_jobs): cancel some, or wait"
        )
    undeclared = allowed.undeclared_queues
    if undeclared is None:
        undeclared = not len(tenants)
    for job in jobs:
        if job.queue and job.queue not in tenants.names and not undeclared:
            raise ForbiddenError(
                f"queue {job.queue!r} is not declared: there are {', '.join(tenants.names)}"
            )
        for queue in tenants.path(job.queue):
            if actor.name not in allowed.queues.get(queue.name, (actor.name,)):
                raise ForbiddenError(f"queue {job.queue!r}: {actor.name} may not submit there")
        priority = _value(job, tenants) if job.priority_class else job.priority
        if allowed.max_priority is not None and priority > allowed.max_priority:
            raise ForbiddenError(
                f"priority {priority}: {allowed.max_priority} is the highest that users may "
                "give (permissions.max_priority)"
            )
        name = tenants.class_of(priority).name
        if actor.name not in allowed.priority_classes.get(name, (actor.name,)):
            raise ForbiddenError(f"priority class {name!r}: {actor.name} may not use it")


def refuse_impossible(jobs: Sequence[JobFile], driver: Driver) -> None:
    """What the backend cannot do is refused when a job comes, not when it is to start."""
    able = driver.capabilities
    for job in jobs:
        gpus = job.resources.gpus
        if not able.fractions and isinstance(gpus, float) and gpus != int(gpus):
            raise InputError(
                f"resources: gpus {gpus:g}: the backend {driver.name!r} gives whole GPUs only"
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
