"""Pods and nodes of a Kubernetes for shadow mode: who waits, who runs where. Reads only.

Pods of one Job, JobSet, Kubeflow job, Ray cluster or pod group are one job; it waits until all of
them have a node, and is over when all of them are. Other pods are jobs of their own.
"""

from collections.abc import Mapping, Sequence
from math import inf

from rota.core.errors import ClusterError
from rota.core.kubernetes import GROUPS, part, parts, pod_gpus, text, time_of
from rota.live.drivers.kubernetes.api import KubeApi, KubeObject
from rota.live.drivers.kubernetes.cache import key_of
from rota.live.drivers.kubernetes.guests import GANG, QUEUE, controller, gpu_type, uid_of
from rota.live.drivers.kubernetes.nodes import read_node
from rota.live.drivers.kubernetes.options import KubernetesOptions
from rota.live.drivers.slurm.layout import PENDING, RUNNING, SeenJob, SeenNode

ALONE = ("ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet", "Node")
"""Owners whose pods do not belong together."""
OVER = ("Succeeded", "Failed")


class KubeQueries:
    """Questions that shadow mode asks. `names` tells what the numbers of jobs stand for."""

    def __init__(self, api: KubeApi, options: KubernetesOptions, namespace: str = "") -> None:
        self.names: dict[str, str] = {}
        self._api = api
        self._options = options
        self._pods = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._numbers: dict[str, int] = {}

    def nodes(self) -> Sequence[SeenNode]:
        """Nodes with GPUs."""
        items, _ = self._api.pages("/api/v1/nodes")
        found = []
        for item in items:
            node = read_node(item, self._options)
            if node is not None:
                flags = {"DRAIN"} if node.closed else set()
                flags |= set() if node.ready else {"NOT_RESPONDING"}
                spec = node.spec
                found.append(SeenNode(
                    spec.name, "", "idle", frozenset(flags), node.closed, spec.gpus, spec.gpu_type,
                    spec.cpus, spec.mem_gib, (),
                ))  # fmt: skip
        if not found:
            raise ClusterError(f"no node of this cluster has {self._options.gpu_resource}")
        return found

    def jobs(self) -> Sequence[SeenJob]:
        """Jobs with GPUs, whoever schedules them."""
        groups: dict[str, list[KubeObject]] = {}
        for item in self._api.pages(self._pods)[0]:
            if pod_gpus(part(item, "spec")).get(self._options.gpu_resource):
                groups.setdefault(_group(item), []).append(item)
        return [self._job(name, sorted(pods, key=key_of)) for name, pods in groups.items()]

    def _job(self, name: str, pods: Sequence[KubeObject]) -> SeenJob:
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        self.names[str(number)] = name.partition(" ")[0]
        first, resource = pods[0], self._options.gpu_resource
        left = [item for item in pods if not _is_over(item)]
        placed = all(text(part(item, "spec"), "nodeName") for item in left)
        held: dict[str, int] = {}
        for item in pods:
            node = text(part(item, "spec"), "nodeName")
            if node:
                gpus = int(pod_gpus(part(item, "spec"))[resource])
                held[node] = held.get(node, 0) + gpus
        times = [time_of(part(item, "metadata").get("creationTimestamp")) or 0.0 for item in pods]
        labels = part(first, "metadata", "labels")
        limit = part(first, "spec").get("activeDeadlineSeconds")
        return SeenJob(
            id=number,
            state="COMPLETED" if not left else RUNNING if placed else PENDING,
            held=any(part(item, "spec").get("schedulingGates") for item in left),
            name=name, user=key_of(first)[0], account=text(labels, QUEUE) or key_of(first)[0],
            nodes=tuple(held), node_gpus=tuple(held.values()),
            gpus=sum(int(pod_gpus(part(item, "spec"))[resource]) for item in pods),
            gpu_type=gpu_type(first), submit_s=min(times),
            start_s=max(map(_scheduled_s, pods)), end_s=0.0 if left else max(map(_ended_s, pods)),
            limit_s=float(limit) if isinstance(limit, int) else inf,
        )  # fmt: skip


def _group(item: KubeObject) -> str:
    """Whose pod it is: a name for people, and what makes it the only one."""
    space, name = key_of(item)
    marks: Mapping[str, object] = {
        **part(item, "metadata", "annotations"), **part(item, "metadata", "labels"),
    }  # fmt: skip
    named = next((str(marks[key]) for key in (GANG, *GROUPS) if marks.get(key)), "")
    owner = controller(item)
    if named:
        return f"{space}/{named}"
    if owner is not None and text(owner, "kind") not in ALONE:
        return f"{space}/{text(owner, 'name')} {text(owner, 'uid')}"
    return f"{space}/{name} {uid_of(item)}"


def _is_over(item: KubeObject) -> bool:
    waits = not text(part(item, "spec"), "nodeName")
    deleted = part(item, "metadata").get("deletionTimestamp") is not None
    return text(part(item, "status"), "phase") in OVER or (waits and deleted)


def _scheduled_s(item: KubeObject) -> float:
    for one in parts(part(item, "status"), "conditions"):
        if one.get("type") == "PodScheduled" and one.get("status") == "True":
            return time_of(one.get("lastTransitionTime")) or 0.0
    return time_of(part(item, "status").get("startTime")) or 0.0


def _ended_s(item: KubeObject) -> float:
    ends = (
        time_of(part(one, "state", "terminated").get("finishedAt"))
        for one in parts(part(item, "status"), "containerStatuses")
    )
    return max((at for at in ends if at is not None), default=0.0)
