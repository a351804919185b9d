"""What has to be settled before jobs are accepted."""

from collections.abc import Iterable, Sequence

import msgspec

from rota.backends.live.orders import Driver
from rota.core.errors import InputError
from rota.core.jobs import Job
from rota.daemon.info import Actor
from rota.jobfile.model import JobFile


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
    jobs: Sequence[JobFile], first: int, actor: Actor, others: Iterable[Job]
) -> list[JobFile]:
    """`depends_on` by number: a name means the newest job of that name of the same owner."""
    if not any(job.depends_on for job in jobs):
        return list(jobs)
    names = {j.spec.name: j.id for j in others if j.spec.name and j.spec.user == actor.name}
    names.update((job.name, str(first + i)) for i, job in enumerate(jobs) if job.name)
    return [
        msgspec.structs.replace(
            job, depends_on=tuple(_resolve(name, names, first + i) for name in job.depends_on)
        )
        for i, job in enumerate(jobs)
    ]


def _resolve(name: str, names: dict[str, str], number: int) -> str:
    found = names.get(name)
    if found is None and name.isascii() and name.isdigit() and 0 < int(name) < number:
        found = str(int(name))
    if found is None or found == str(number):
        raise InputError(
            f"depends_on {name!r}: you have no such job: give the id or the name of an earlier one"
        )
    return found
