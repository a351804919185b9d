"""Live jobs, nodes and queues as the API shows them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from rota.core.events import INF
from rota.core.jobs import HELD, WAITING, Job, Phase
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.core.view import View
from rota.core.windows import NodeWindow
from rota.core.words import duration
from rota.daemon.projection import Projection
from rota.engine.executor import on_cluster
from rota.jobfile.model import GpuRange
from rota.live.cluster import LiveCluster
from rota.live.nodes import NodeRecord
from rota.live.runs import LiveRun
from rota.wire import ArrayInfo, JobInfo, NodeInfo, QueueInfo

STATES = {
    Phase.HELD: "HELD",
    Phase.WAITING: "PENDING",
    Phase.STARTING: "STARTING",
    Phase.RUNNING: "RUNNING",
    Phase.STOPPING: "STOPPING",
    Phase.DONE: "SUCCEEDED",
    Phase.FAILED: "FAILED",
    Phase.REJECTED: "REJECTED",
    Phase.CANCELLED: "CANCELLED",
    Phase.TIMEOUT: "TIMEOUT",
}
NAMES = {int(phase): name for phase, name in STATES.items()}


def state_of(job: Job) -> str:
    """What people call its phase."""
    return NAMES[job.phase]


def reason_of(job: Job, projection: Projection, view: View) -> str:
    """Why it waits; empty if it does not."""
    if job.phase == HELD:
        return projection.held_for(job.index).label
    if job.phase != WAITING:
        return ""
    if job.reason:
        return Reason(job.reason).label
    shape = job.shape.number
    shared = view.shared_reasons.get((job.tenant, shape), 0)
    if shared:
        return Reason(shared).label
    if not projection.explains(shape):
        return Reason.ORDER.label
    head = view.head(shape) or view.active.get(projection.head_of(shape))
    if head is None or head.phase != WAITING:
        head = _firsts(projection, view)[shape]
    return projection.waits_for(job.index, shape, head.index).label


def _firsts(projection: Projection, view: View) -> dict[int, Job]:
    """Who is first in the queue, by shape, where the scheduler does not know at once.

    Found once for each batch of events: that takes a look at every job.
    """
    version, firsts = projection.firsts
    if version != view.version:
        firsts = {}
        for job in view.active.values():
            if job.phase == WAITING:
                first = firsts.setdefault(job.shape.number, job)
                if view.rank(job) < view.rank(first):
                    firsts[job.shape.number] = job
        projection.firsts = view.version, firsts
    return firsts


def picture_job(
    job: Job, cluster: LiveCluster, projection: Projection, epoch_unix: float, view: View
) -> JobInfo:
    """Everything about one job; the clock may be later than what the engine has seen."""
    spec = job.spec
    now_s = cluster.now_s
    return JobInfo(
        id=job.id,
        name=spec.name,
        user=spec.user,
        queue=spec.tenant,
        state=state_of(job),
        reason=reason_of(job, projection, view),
        message=projection.messages.get(job.index, ""),
        gpus=job.gpus,
        gpu_type="|".join(spec.request.gpu_types),
        nodes=places(job, cluster.topology) if on_cluster(job) else {},
        priority=spec.priority,
        group=spec.group,
        submitted_at=epoch_unix + job.submit_s,
        started_at=_at(job.first_start_s, epoch_unix),
        ended_at=_at(job.end_s, epoch_unix),
        deadline_at=_at(spec.deadline_s, epoch_unix),
        estimate_s=spec.estimate_s if spec.estimate_s < INF else None,
        run_s=job.executed_s(now_s),
        gpu_s=job.attained_gpu_s(now_s),
        starts=projection.runs.get(job.index, 0),
        preemptions=job.preemptions,
        metrics=dict(job.metrics or {}),
        stopping_s=_longest(run for one in tasks_of(job) for run in cluster.runs.ending(one)),
        time_limit_s=spec.limit_s if spec.limit_s < INF else None,
        retries=spec.retries,
        array=spec.array,
        elastic=elastic_range(job),
    )


class JobCondition(msgspec.Struct, frozen=True):
    """What a job does, why it waits, and what was said of it."""

    state: str
    reason: str
    message: str

    @classmethod
    def of(cls, job: Job, projection: Projection, view: View) -> "JobCondition":
        """As it is now."""
        message = projection.messages.get(job.index, "")
        return cls(state_of(job), reason_of(job, projection, view), message)


def elastic_range(job: Job) -> GpuRange | None:
    """How few and how many GPUs it takes; None: it is not elastic."""
    least, most = job.spec.request.sizes
    return GpuRange(int(least), int(most)) if least < most else None


def picture_array(jobs: Sequence[JobInfo], limit: int) -> ArrayInfo:
    """All jobs of an array as one."""
    first = jobs[0]
    started = [job.started_at for job in jobs if job.started_at is not None]
    ended = [job.ended_at for job in jobs if job.ended_at is not None]
    numbers = [job.task for job in jobs if job.task is not None]
    return ArrayInfo(
        id=first.array,
        name=first.name,
        user=first.user,
        queue=first.queue,
        tasks=len(jobs),
        limit=limit,
        states=dict(Counter(job.state for job in jobs)),
        submitted_at=first.submitted_at,
        started_at=min(started, default=None),
        ended_at=max(ended) if len(ended) == len(jobs) else None,
        run_s=ordered_sum(job.run_s for job in jobs),
        gpu_s=ordered_sum(job.gpu_s for job in jobs),
        first=min(numbers, default=0),
        last=max(numbers, default=0),
    )


def tasks_of(job: Job) -> list[Job]:
    """What is started and stopped by itself: the tasks of a non-gang job, else the job."""
    if job.family is None or job.parent is not None:
        return [job]
    return [task for task in job.family.members if task is not job]


def _longest(runs: Iterable[LiveRun]) -> float | None:
    """Seconds until these must be gone; a run that was not asked to end is killed at once."""
    return max((run.order.launch.grace_s if run.halting else 0.0 for run in runs), default=None)


def _at(time_s: float, epoch_unix: float) -> float | None:
    return epoch_unix + time_s if time_s < INF else None


def places(job: Job, topology: Topology) -> dict[str, float]:
    """GPUs by name of node."""
    held: dict[str, float] = {}
    for vertex, amount in job.allocation.slices:
        node = topology.vertices[vertex].node
        name = topology.vertices[node].name if node >= 0 else "cluster"
        held[name] = held.get(name, 0) + amount
    for vertex, _, _ in job.allocation.extra:
        held.setdefault(topology.vertices[topology.vertices[vertex].node].name, 0)
    return held


def _taken(job: Job, topology: Topology) -> Iterator[tuple[str, float]]:
    """GPUs that nobody else can have, by node: all of one that is for a single job."""
    for vertex, amount in job.allocation.slices:
        place = topology.vertices[vertex]
        if place.node >= 0:
            yield topology.vertices[place.node].name, topology.occupied(vertex, amount)


def picture_nodes(
    view: View, cluster: LiveCluster, windows: Iterable[NodeWindow] = ()
) -> list[NodeInfo]:
    """All nodes that were not removed, with who is on them and what is planned for them."""
    planned: dict[str, list[str]] = {}
    for window in windows:
        text = _planned(window, cluster.now_s)
        for name in window.nodes:
            planned.setdefault(name, []).append(text)
    machines = cluster.nodes.by_name
    used: dict[str, float] = {}
    jobs: dict[str, list[str]] = {}
    for job in view.active.values():
        if on_cluster(job):
            for name in places(job, view.topology):
                jobs.setdefault(name, []).append(job.id)
            for name, gpus in _taken(job, view.topology):
                used[name] = used.get(name, 0.0) + gpus
    ending: dict[str, list[LiveRun]] = {}
    for run in cluster.runs.by_id.values():
        if (run.halting or run.over) and not run.waits:
            for part in run.order.parts:
                ending.setdefault(part.node, []).append(run)
    return [
        NodeInfo(
            name=node.name,
            state=_node_state(
                node, machines[node.name], busy=node.name in jobs or node.name in ending
            ),
            gpus=node.gpus,
            free_gpus=max(0.0, node.gpus - used.get(node.name, 0.0)) if node.up else 0.0,
            gpu_type=node.gpu_type,
            cpus=node.cpus,
            mem_gib=node.mem_gib,
            jobs=jobs.get(node.name, []),
            why="; ".join(filter(None, [machines[node.name].why, *planned.get(node.name, ())])),
            stopping=list(dict.fromkeys(run.job.id for run in ending.get(node.name, ()))),
            stopping_s=_longest(ending.get(node.name, ())),
            clear_in_s=_until(machines[node.name].clear_at_s, cluster.now_s),
            labels=node.labels,
        )
        for node in view.topology.nodes
        if not machines[node.name].removed
    ]


def _planned(window: NodeWindow, now_s: float) -> str:
    """`maintenance in 2h`, `reserved for ann, 30m left`."""
    whom = ", ".join((*window.users, *window.queues))
    what = "maintenance" if window.kind == "maintenance" else f"reserved for {whom}"
    if window.start_s > now_s:
        return f"{what} in {duration(window.start_s - now_s)}"
    return what if window.end_s == INF else f"{what}, {duration(window.end_s - now_s)} left"


def _until(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else max(0.0, at_s - now_s)


def _node_state(node: Vertex, record: NodeRecord, *, busy: bool) -> str:
    if not node.up:
        return "down"
    if record.silent:
        return "silent"
    if record.drained or record.sick:
        return "draining" if busy else "drained"
    return "up"


def picture_queues(view: View) -> list[QueueInfo]:
    """Declared queues, and others that jobs name."""
    queues = {
        tenant.name: QueueInfo(
            name=tenant.name,
            parent=tenant.parent,
            quota=tenant.quota,
            limit=tenant.limit if tenant.limit < INF else None,
            weight=tenant.weight,
            lend=tenant.lend if tenant.lend < INF else None,
            borrow=tenant.borrow if tenant.borrow < INF else None,
        )
        for tenant in view.tenants
    }
    for job in view.active.values():
        queue = queues.get(job.tenant)
        if queue is None:
            queue = queues[job.tenant] = QueueInfo(name=job.tenant)
        if job.phase == HELD:
            queue.held += 1
        elif job.phase == WAITING:
            queue.pending += 1
            queue.asked_gpus += job.gpus
        else:
            queue.running += 1
            queue.gpus += job.held_gpus
    return list(queues.values())
