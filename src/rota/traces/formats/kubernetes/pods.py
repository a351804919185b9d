"""One pod: what it asked for, whose it is, when it ran and how it ended."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.traces.formats.kubernetes.words import (
    MIG,
    SHARED,
    cpus_and_memory,
    gpus_of,
    part,
    parts,
    text,
    time_of,
)
from rota.traces.observed import DONE, FAILED, NODE_FAIL, PREEMPTED, RUNNING, TIMEOUT, UNKNOWN

GROUPS = (
    "jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "volcano.sh/job-name",
    "ray.io/cluster", "leaderworkerset.sigs.k8s.io/name", "scheduling.x-k8s.io/pod-group",
    "pod-group-name", "scheduling.k8s.io/group-name", "batch.kubernetes.io/job-name", "job-name",
)  # fmt: skip
"""Labels (or annotations) that name the job of a pod, the outermost first."""
SLOTS = (
    "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index",
    "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index",
    "volcano.sh/task-spec", "volcano.sh/task-index", "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index", "leaderworkerset.sigs.k8s.io/worker-index",
)  # fmt: skip
"""Labels (or annotations) that together tell which one of its job a pod is."""
INDICES = tuple(key for key in SLOTS if key.endswith(("index", "-index")))
QUEUES = (
    "kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "scheduling.volcano.sh/queue-name",
    "kai.scheduler/queue", "runai/queue", "yunikorn.apache.org/queue", "queue",
)  # fmt: skip
USERS = ("user", "owner", "username", "yunikorn.apache.org/username")
SINGLE = ("ReplicaSet", "StatefulSet", "ReplicationController", "Node", "")
REASONS = {
    "Evicted": PREEMPTED,
    "Preempting": PREEMPTED,
    "Preempted": PREEMPTED,
    "Terminated": PREEMPTED,
    "Shutdown": NODE_FAIL,
    "NodeShutdown": NODE_FAIL,
    "NodeLost": NODE_FAIL,
    "NodeAffinity": NODE_FAIL,
    "DeadlineExceeded": TIMEOUT,
}
_MOST_PRIORITY = 2_000_001_000  # of the system's own pods


class Pod(msgspec.Struct):
    """One pod that ran, or did not (`start_s` is None)."""

    name: str  # namespace/name
    namespace: str
    job: str  # whose it is: namespace/name of the job, or the pod's own
    slot: str  # which one of its job
    kind: str  # of its owner
    daemon: bool
    created_s: float
    start_s: float | None
    end_s: float | None
    state: str
    node: str
    gpus: float
    cpus: float
    mem_gib: float
    priority: int
    queue: str
    user: str
    sliced: bool  # has a slice of MIG
    shared: bool  # has a GPU by time slicing

    @property
    def latest_s(self) -> float:
        """The latest time that it tells of."""
        times = (self.created_s, self.start_s, self.end_s)
        return max(time_s for time_s in times if time_s is not None)


def scheduled_times(items: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """When pods were scheduled, by (namespace, name), as events tell."""
    found: dict[tuple[str, str], float] = {}
    for item in items:
        if text(item, "kind") != "Event" or text(item, "reason") != "Scheduled":
            continue
        subject = part(item, "involvedObject") or part(item, "regarding")
        keys = ("eventTime", "firstTimestamp", "deprecatedFirstTimestamp", "lastTimestamp")
        times = [time_s for key in keys if (time_s := time_of(item.get(key))) is not None]
        if text(subject, "kind") == "Pod" and times:
            found[text(subject, "namespace"), text(subject, "name")] = times[0]
    return found


def read_pod(
    item: Mapping[str, Any], scheduled: Mapping[tuple[str, str], float], mig: str
) -> Pod | None:
    """The pod; None: it has no name or no time of creation."""
    about, spec, status = part(item, "metadata"), part(item, "spec"), part(item, "status")
    name, namespace = text(about, "name"), text(about, "namespace")
    created_s = time_of(about.get("creationTimestamp"))
    if not name or created_s is None:
        return None
    marks = {**part(about, "annotations"), **part(about, "labels")}
    kind, job = _owner(about, marks)
    start_s = _start_s(status, scheduled.get((namespace, name)))
    state, end_s = _ending(about, status)
    if start_s is not None and end_s is not None:
        end_s = max(start_s, end_s)
    cpus, mem_gib, gpus = _amounts(spec, mig)
    names = {name for one in parts(spec, "containers") for name in _resources(one)}
    full = f"{namespace}/{name}"
    indexed = any(marks.get(key) for key in INDICES)
    priority = spec.get("priority")
    return Pod(
        name=full,
        namespace=namespace,
        job=f"{namespace}/{job}" if job else full,
        slot="/".join(str(marks.get(key, "")) for key in SLOTS) if indexed else full,
        kind=kind,
        daemon=kind == "DaemonSet",
        created_s=created_s,
        start_s=start_s,
        end_s=end_s,
        state=state,
        node=text(spec, "nodeName"),
        gpus=gpus,
        cpus=cpus,
        mem_gib=mem_gib,
        priority=_whole(priority),
        queue=_first(marks, QUEUES),
        user=_first(marks, USERS),
        sliced=any(map(MIG.fullmatch, names)),
        shared=SHARED in names,
    )


def _whole(priority: Any) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int):
        return 0
    return max(-_MOST_PRIORITY, min(priority, _MOST_PRIORITY))


def _first(marks: Mapping[str, Any], keys: Iterable[str]) -> str:
    return next((text(marks, key) for key in keys if text(marks, key)), "")


def _owner(about: Mapping[str, Any], marks: Mapping[str, Any]) -> tuple[str, str]:
    """Kind of the owner, and the name of the job that the pod is part of (or nothing)."""
    owners = parts(about, "ownerReferences")
    owner = next((one for one in owners if one.get("controller")), owners[0] if owners else {})
    kind = text(owner, "kind")
    named = _first(marks, GROUPS)
    if kind == "DaemonSet" or (kind in SINGLE and not named):
        return kind, ""
    return kind, named or text(owner, "name")


def _start_s(status: Mapping[str, Any], told_s: float | None) -> float | None:
    """When it got its node."""
    for condition in parts(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            at_s = time_of(condition.get("lastTransitionTime"))
            if at_s is not None:
                return at_s
    return told_s if told_s is not None else time_of(status.get("startTime"))


def _ending(about: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[str, float | None]:
    """How it ended, and when; None: it goes on, or nobody knows."""
    phase, reason = text(status, "phase"), text(status, "reason")
    if phase in ("Pending", "Running"):
        return RUNNING, None
    ends_s = []
    for one in parts(status, "containerStatuses"):
        at_s = time_of(part(one, "state", "terminated").get("finishedAt"))
        ends_s += [at_s] if at_s is not None else []
    if not ends_s:
        keys = [time_of(one.get("lastTransitionTime")) for one in parts(status, "conditions")]
        ends_s = [at_s for at_s in (*keys, time_of(about.get("deletionTimestamp"))) if at_s]
    end_s = max(ends_s, default=None)
    if phase == "Succeeded":
        return DONE, end_s
    if phase == "Failed":
        return _failure(reason, status), end_s
    return UNKNOWN, end_s


def _failure(reason: str, status: Mapping[str, Any]) -> str:
    """Its own fault, or what others did to it."""
    if reason in REASONS:
        return REASONS[reason]
    for condition in parts(status, "conditions"):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return PREEMPTED
    return FAILED


def _amounts(spec: Mapping[str, Any], mig: str) -> tuple[float, float, float]:
    """CPUs, GiB and GPUs: of all containers together, or of the largest that runs before them."""
    sums = [0.0, 0.0, 0.0]
    for container in parts(spec, "containers"):
        sums = [a + b for a, b in zip(sums, _of_container(container, mig), strict=True)]
    for container in parts(spec, "initContainers"):
        sums = [max(a, b) for a, b in zip(sums, _of_container(container, mig), strict=True)]
    return sums[0], sums[1], round(sums[2], 6)


def _of_container(container: Mapping[str, Any], mig: str) -> tuple[float, float, float]:
    amounts = _resources(container)
    return *cpus_and_memory(amounts), gpus_of(amounts, mig)


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    """What is not requested is the limit."""
    return {**part(container, "resources", "limits"), **part(container, "resources", "requests")}
