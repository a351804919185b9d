"""From a job file to what the engine schedules (`JobSpec`) and what a cluster runs (`Launch`)."""

from functools import lru_cache

from rota.core.events import INF
from rota.core.jobs import UNKNOWN, Behaviour, JobSpec, Request, TaskGroup
from rota.core.launch import Launch
from rota.jobfile.check import check, gpu_types
from rota.jobfile.model import GpuRange, JobFile
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
    types = gpu_types(asked.gpu_type)
    if job.nodes > 1:
        assert not isinstance(asked.gpus, GpuRange)  # noqa: S101 - `check` refused it
        return _on_nodes(job.nodes, asked.gpus, asked.cpus, mem_gib, types)
    if isinstance(asked.gpus, GpuRange):
        low, high = asked.gpus.min, asked.gpus.max
        return Request.of(
            low, gpu_types=types, cpus=asked.cpus, mem_gib=mem_gib, min_gpus=low, max_gpus=high
        )
    gpus = int(asked.gpus) if asked.gpus == int(asked.gpus) else asked.gpus
    return Request.of(gpus, gpu_types=types, cpus=asked.cpus, mem_gib=mem_gib)


@lru_cache(maxsize=4096)
def _on_nodes(
    nodes: int, gpus: float, cpus: float, mem_gib: float, types: tuple[str, ...]
) -> Request:
    whole = int(gpus)  # `check` refused parts
    return Request((TaskGroup("worker", nodes, whole, cpus, mem_gib),), types, apart=True)


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
    deadline = job.deadline
    estimate = job.estimate
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
        estimate_s=INF if estimate is None else duration_s(estimate, "estimate"),
        depends_on=job.depends_on,
    )


def to_behaviour(job: JobFile, spec: JobSpec) -> Behaviour:
    """What its owner says of how it will behave; nothing more is known before it runs."""
    if spec.estimate_s == INF and not job.speeds:
        return UNKNOWN
    return Behaviour(spec.estimate_s, dict(job.speeds) or None)


def to_launch(job: JobFile, *, checked: bool = False) -> Launch:
    """What a cluster is told to run."""
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
        retries=job.retries,
        upload=job.upload,
        terminal=job.interactive,
    )
