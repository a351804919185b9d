"""Objects as `kubectl get ... -o json` (or yaml) prints them, and as KAI's snapshot has them.

The report counts shares of GPUs.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import ClusterSpecError, InputError, TraceError
from rota.core.kubernetes import (
    GROUPS,
    MIG,
    SHARED,
    container_resources,
    machine,
    part,
    parts,
    pod_amounts,
    text,
    time_of,
    unreadable_text,
)
from rota.core.topology import NodeSpec
from rota.traces.cluster import parse_cluster
from rota.traces.observed import DONE, FAILED, NODE_FAIL, PREEMPTED, RUNNING, TIMEOUT, UNKNOWN
from rota.traces.sources import decode, read_bytes

_KNOWN = (".yaml", ".yml", ".csv")
_OBJECT = re.compile(rb"^(- )?apiVersion:", re.MULTILINE)  # a cluster file has no such key


def read_items(path: Path, error: type[InputError] = TraceError) -> list[Mapping[str, Any]]:
    """The objects of a list, or the one object; a list within a list is unfolded."""
    data = read_bytes(path, error)
    decode(data, path, error)
    try:
        if data.lstrip()[:1] in (b"[", b"{"):
            return list(_unfolded(msgspec.json.decode(data)))
        return list(_unfolded(_yaml(data)))
    except (msgspec.DecodeError, RecursionError, ValueError) as problem:
        raise error(
            f"{path}: is not what `kubectl get ... -o json` prints ({problem}): print it again"
        ) from problem


def _yaml(data: bytes) -> list[Any]:
    """All documents that say anything; times stay texts."""
    import yaml

    class Loader(yaml.SafeLoader):
        """As JSON would be: there are no times."""

        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def compose_node(self, parent: Any, index: Any) -> Any:
            # a few lines of aliases of aliases may stand for more than any memory holds
            if self.check_event(yaml.AliasEvent):
                event = self.get_event()  # type: ignore[no-untyped-call]  # the stubs
                raise yaml.MarkedYAMLError(
                    problem=f"*{event.anchor} is an alias, and kubectl writes none",
                    problem_mark=event.start_mark,
                )
            return super().compose_node(parent, index)

    try:
        return [found for found in yaml.load_all(data, Loader) if found is not None]
    except yaml.YAMLError as problem:
        raise ValueError(" ".join(str(problem).split())[:200]) from problem


KAI = {
    "pods": "Pod", "nodes": "Node", "queues": "Queue", "podGroups": "PodGroup",
    "bindRequests": "BindRequest", "priorityClasses": "PriorityClass", "topologies": "Topology",
}  # fmt: skip
"""What the lists of `snapshot.json` hold; others are counted by the name of their list."""


def _unfolded(content: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, list):
        for item in content:
            yield from _unfolded(item)
    elif isinstance(content, Mapping) and isinstance(content.get("rawObjects"), Mapping):
        for name, items in content["rawObjects"].items():
            for item in items if isinstance(items, list) else ():
                yield {"kind": KAI.get(name, name), **(item if isinstance(item, Mapping) else {})}
    elif isinstance(content, Mapping) and isinstance(content.get("items"), list):
        kind = text(content, "kind").removesuffix("List")
        for item in content["items"]:
            for one in _unfolded(item):
                yield {"kind": kind, **one} if kind else one  # the API names it once for all
    elif isinstance(content, Mapping):
        yield content
    else:
        yield {}


Labels = Callable[[Mapping[str, Any]], Sequence[str]]
"""What nodes are called by jobs, from their labels in Kubernetes."""


def read_machines(path: Path, mig: str, named: Labels) -> tuple[NodeSpec, ...]:
    """Nodes as `kubectl get nodes -o json` (or yaml) prints them, or any cluster file."""
    if path.suffix.lower() in _KNOWN and not _OBJECT.search(read_bytes(path, ClusterSpecError)):
        return tuple(parse_cluster(str(path))[0].specs)
    items = [{"kind": "Node", **item} for item in read_items(path, ClusterSpecError)]
    nodes = machines_of(items, mig, named, f"{path}: ")
    if not nodes:
        raise ClusterSpecError(
            f"{path}: lists no nodes: give what `kubectl get nodes -o json` prints"
        )
    return nodes


def machines_of(
    items: Iterable[Mapping[str, Any]], mig: str, named: Labels, where: str = ""
) -> tuple[NodeSpec, ...]:
    """The nodes in a list of objects."""
    nodes: dict[str, NodeSpec] = {}
    for item in items:
        name = text(part(item, "metadata"), "name")
        if item.get("kind") == "Node" and name:
            status = part(item, "status")
            wrong = unreadable_text(part(status, "allocatable") or part(status, "capacity"))
            if wrong:
                raise ClusterSpecError(
                    f"{where}node {name}: {wrong} is no amount: write it as Kubernetes does (16, "
                    "500m, 64Gi)"
                )
            labels = tuple(named(part(item, "metadata", "labels")))
            nodes[name] = msgspec.structs.replace(machine(name, item, mig), labels=labels)
    return tuple(nodes.values())


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


# --- pods ----------------------------------------------------------------------------------------


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
    cluster_queue: str = ""  # of Kueue
    flavor: str = ""  # what Kueue gave it

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
    cpus, mem_gib, gpus = pod_amounts(spec, mig)
    names = {name for one in parts(spec, "containers") for name in container_resources(one)}
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
        priority=whole(priority),
        queue=_first(marks, QUEUES),
        user=_first(marks, USERS),
        sliced=any(map(MIG.fullmatch, names)),
        shared=SHARED in names,
    )


def whole(priority: Any) -> int:
    """A priority as a number."""
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
    """How it ended, and when; None: it goes on, or that is unknown."""
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
