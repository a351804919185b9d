"""From a job file to what the engine schedules (`JobSpec`) and what a cluster runs (`Launch`)."""

from functools import lru_cache

import msgspec

from rota.core.events import INF
from rota.core.jobs import UNKNOWN, Behaviour, JobSpec, Request, TaskGroup
from rota.core.launch import ArrayTask, Launch, image_labels
from rota.jobfile.arrays import array_of
from rota.jobfile.check import check, gpu_types
from rota.jobfile.model import GpuRange, JobFile, Resources
from rota.jobfile.quantities import duration_s, memory_gib


def to_request(job: JobFile, where: str = "job", *, checked: bool = False) -> Request:
    """What the job asks for; raises an `InputError` for what cannot be asked.

    An elastic job asks for its smallest number of GPUs: it is refused only if even that can never
    fit, and a policy that resizes jobs may give it more. On several nodes it is one task per node
    with all GPUs of that node.
    """
    if not checked:
        check(job, where)
    asked = job.resources
    mem_gib = memory_gib(asked.mem, f"{where}: resources: mem")
    types, labels = _types(asked.gpu_type), image_labels(job.image)
    if job.nodes > 1 or job.external:
        assert not isinstance(asked.gpus, GpuRange)  # noqa: S101 - `check` refused it
        amounts = TaskGroup(
            "worker", job.nodes, int(asked.gpus), asked.cpus, mem_gib,
            gpu_mem_gib=asked.gpu_mem_gib, resources=_amounts(asked),
        )  # fmt: skip
        whole = job.nodes == 1 and asked.gpus > 1  # a single pod: never on two nodes
        return _in_parts(amounts, types, labels, apart=whole or not job.external)
    more = {"gpu_mem_gib": asked.gpu_mem_gib} if asked.gpu_mem_gib else {}  # equal ones are one
    if isinstance(asked.gpus, GpuRange):
        low, high = asked.gpus.min, asked.gpus.max
        more |= {"min_gpus": low, "max_gpus": high}
        found = Request.of(low, gpu_types=types, cpus=asked.cpus, mem_gib=mem_gib, **more)
    else:
        gpus = int(asked.gpus) if asked.gpus == int(asked.gpus) else asked.gpus
        found = Request.of(gpus, gpu_types=types, cpus=asked.cpus, mem_gib=mem_gib, **more)
    if asked.kinds:
        found = _with_kinds(found, _amounts(asked))
    return _labelled(found, labels) if labels else found


def _amounts(asked: Resources) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((kind, amount) for kind, amount in asked.kinds.items() if amount))


@lru_cache(maxsize=4096)
def _with_kinds(request: Request, amounts: tuple[tuple[str, float], ...]) -> Request:
    """The whole job asks for these: each of its tasks for its part."""
    (group,) = request.groups
    each = tuple((kind, amount / group.count) for kind, amount in amounts)
    return msgspec.structs.replace(
        request, groups=(msgspec.structs.replace(group, resources=each),)
    )


_types = lru_cache(maxsize=4096)(gpu_types)  # every job has one, and they are few


@lru_cache(maxsize=4096)
def _labelled(request: Request, labels: tuple[str, ...]) -> Request:
    return msgspec.structs.replace(request, labels=labels)


@lru_cache(maxsize=4096)
def _in_parts(
    amounts: TaskGroup, types: tuple[str, ...], labels: tuple[str, ...], *, apart: bool
) -> Request:
    """Parts that cannot be divided; `apart`: each on a node of its own."""
    return Request((amounts,), types, labels, apart=apart)


def to_spec(
    job: JobFile,
    id: str,  # noqa: A002 - the field
    submit_s: float,
    user: str,
    *,
    checked: bool = False,
) -> JobSpec:
    """The submission as the engine knows it; `depends_on` is taken over as it was written."""
    where = f"job {id}"
    request = to_request(job, where, checked=checked)
    deadline, limit_s = job.deadline, _limit_s(job)
    array, plan = array_of(job, id) or ("", None)
    return JobSpec(
        id,
        submit_s,
        request,
        tenant=job.queue,
        user=user,
        name=job.name,
        group=job.group,
        model=job.model,
        priority=job.priority,
        deadline_s=INF if deadline is None else submit_s + duration_s(deadline, "deadline"),
        estimate_s=estimate_s(job),
        depends_on=job.depends_on,
        limit_s=limit_s,
        retries=job.retries,
        backoff_s=0.0 if job.backoff is None else duration_s(job.backoff, "backoff"),
        after_any=job.after_any,
        after_fail=job.after_fail,
        array=array,
        array_limit=0 if plan is None else plan.limit,
    )


def estimate_s(job: JobFile) -> float:
    """What its owner says that it needs: the estimate, at most the time limit; inf: nothing."""
    limit_s = _limit_s(job)
    return limit_s if job.estimate is None else min(duration_s(job.estimate, "estimate"), limit_s)


def _limit_s(job: JobFile) -> float:
    return INF if job.time_limit is None else duration_s(job.time_limit, "time_limit")


def to_behaviour(job: JobFile, spec: JobSpec) -> Behaviour:
    """What its owner says of how it will behave; nothing more is known before it runs."""
    if spec.estimate_s == INF and not job.speeds:
        return UNKNOWN
    return Behaviour(spec.estimate_s, dict(job.speeds) or None)


def to_launch(job: JobFile, id: str = "", *, checked: bool = False) -> Launch:  # noqa: A002
    """What a cluster is told to run for the job with this id."""
    if not checked:
        check(job)
    return Launch(
        run=job.run,
        setup=job.setup,
        workdir=job.workdir,
        envs=dict(job.envs),
        per=job.per,
        grace_s=float(job.checkpoint.grace_s),
        checkpoint_dir=job.checkpoint.dir,
        upload=job.upload,
        secrets=job.secrets,
        terminal=job.interactive,
        pre_stop=job.checkpoint.pre_stop,
        warn_s=float(job.checkpoint.warn_s),
        warn_signal=job.checkpoint.warn_signal,
        task=_task(job, id),
        image=job.image,
        external=job.external,
    )


def _task(job: JobFile, id: str) -> ArrayTask | None:  # noqa: A002 - as above
    found = array_of(job, id)
    if found is None or job.task is None:
        return None
    array, plan = found
    return ArrayTask(array, job.task, len(plan.indices), min(plan.indices), max(plan.indices))
