"""The present state of a living cluster, as an audit of its queues looks at it."""

from collections import Counter
from collections.abc import Callable, Mapping

from rota.core.events import INF
from rota.core.findings import AuditFacts, QueueFacts
from rota.core.jobs import HELD, WAITING, Job, Shape
from rota.core.reasons import Reason
from rota.daemon.pictures import reason_of
from rota.daemon.state import ClusterState
from rota.engine.parts import make_placement
from rota.engine.wiring import DEFAULT_PLACEMENT

QUOTA = Reason.QUOTA.label


def audit_facts(state: ClusterState, allowed: Mapping[str, int]) -> AuditFacts:
    """Of now; `allowed`: unfinished jobs that each user may have."""
    view = state.engine.view
    queues = {
        tenant.name: QueueFacts(
            name=tenant.name, quota=tenant.quota, limit=tenant.limit, lend=tenant.lend
        )
        for tenant in view.tenants
    }
    scheduling = state.scheduling
    fits = make_placement(
        scheduling.placement or DEFAULT_PLACEMENT, state.cluster.topology, scheduling.seed
    )
    users: Counter[str] = Counter()
    never: dict[str, str] = {}
    for job in view.active.values():
        queue = queues.setdefault(job.tenant, QueueFacts(name=job.tenant))
        if job.parent is None:
            users[job.spec.user] += 1
        if job.phase not in (WAITING, HELD):
            queue.used += job.held_gpus
            continue
        reason = reason_of(job, state.projection, view)
        if reason in (Reason.DEPENDENCY.label, Reason.ADMISSION.label):
            continue
        why = _never(state, job, fits.never)
        if why:
            never[job.id] = why
            continue
        queue.asked += job.gpus
        queue.waiting += 1
        queue.limited += reason == QUOTA
        queue.longest_wait_s = max(queue.longest_wait_s, state.cluster.now_s - job.submit_s)
    for queue in queues.values():
        queue.unmet = max(0.0, min(queue.quota - queue.used, queue.asked))
    return AuditFacts(
        queues=list(queues.values()),
        never=never,
        preemptions=_preemptions(state),
        budgets=list(state.engine.scheduler.budgets(view, state.cluster.now_s)),
        users={user: (many, allowed[user]) for user, many in users.items() if user in allowed},
    )


def _never(state: ClusterState, job: Job, never: Callable[[Shape], str | None]) -> str:
    """Why it could not even start on an empty cluster; empty: it could."""
    limits = [tenant.limit for tenant in state.engine.view.tenants.path(job.tenant)]
    if job.gpus > min(limits, default=INF):
        return f"it asks for {job.gpus:g} GPUs, the limit of its queue is {min(limits):g}"
    return never(job.shape.opened or job.shape) or ""  # windows end


def _preemptions(state: ClusterState) -> dict[str, int]:
    """By user of the job that displaced the other."""
    jobs = state.engine.jobs
    found: Counter[str] = Counter()
    for causes in state.projection.preempted_by.values():
        for index in causes:
            if index in jobs:
                found[jobs[index].spec.user or "(none)"] += 1
    return dict(found)
