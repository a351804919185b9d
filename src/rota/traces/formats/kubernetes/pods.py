"""Pods of Kubernetes: `kubectl get pods --all-namespaces -o json`, also with events in the list.

- *Which pods are one job.* Those of one Job, JobSet, Kubeflow job (PyTorchJob, ...), Volcano job,
  Ray cluster or pod group, if they ran together: a gang. If they ran one after the other, each is a
  job of its own, as are pods of other owners. Pods of a DaemonSet are left out.
- *Attempts.* Pods with the same index of a job are attempts. The run time is that of the `last` one
  (default), the `longest`, the `sum` or the `span` of all (`runtime=`); the report says what the
  choice changes.
- *When.* A job comes when its first pod is created, starts when the last of its pods is scheduled,
  and ends with the last of their containers. Running pods are cut at the latest time in the file
  (`unfinished=censor`) or left out (`drop`). Pods that were never scheduled are left out.
- *Who.* The tenant is the queue (labels of Kueue, Volcano, KAI, Run:ai, YuniKorn), else the
  namespace; with `tenant=namespace` always the latter.
- *What.* GPUs: see below; CPUs and memory as requested. An amount that cannot be read (`1Zi`) is an
  error, or leaves the pod out (`bad=drop`); of a node or a queue it is always an error.

Machines: nodes in the same list, or `nodes=FILE` (`kubectl get nodes -o json`). Events
(`events=FILE`, or in the same list) tell when a pod was scheduled if the pod does not. Deleted pods
are not in the list: what is imported is only what was still there. Lists of other things (Jobs,
events) are refused: they do not tell when and where their pods ran. `-o yaml` is read, too.

- *Kueue.* A list with Workloads and without pods: each is a job that runs from its admission to its
  end, all pod sets at once, on the nodes of its topology assignment if these are told. One that was
  evicted tells of its latest admission only; that is said. With ClusterQueues in the list (and
  LocalQueues, Cohorts and ResourceFlavors), the tenant is the ClusterQueue, and quotas, borrowing
  and lending are in force in a replay; a Topology is counted, not read.
- *KAI.* The ZIP of its snapshot plug-in (`/get-snapshot`): its pods, nodes and queues are read. Pod
  groups, claims, and the configuration of the scheduler are counted, not read. It is one moment:
  pods that run are cut there, those that wait are left out.
- *Quotas.* How they become tenants is told in `quotas`; a replay tries the policy that keeps them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rota.core.errors import TraceError
from rota.core.kubernetes import part, parts, text, unreadable_pod
from rota.core.sums import ordered_sum
from rota.core.tenants import Tenant
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.formats.kubernetes.kueue import read_workload, unreadable_workload
from rota.traces.formats.kubernetes.objects import (
    Pod,
    machines_of,
    read_items,
    read_machines,
    read_pod,
    scheduled_times,
)
from rota.traces.formats.kubernetes.quotas import Kai, Kueue
from rota.traces.imported import Imported, SiteQueues
from rota.traces.observed import RUNNING, Seen
from rota.traces.tidy import (
    Common,
    Rest,
    Runtime,
    attempts_frame,
    import_rows,
    run_s,
    told_of_attempts,
)

OTHER = "not a pod"
UNTIMED = "Workload without a name or a time of creation"
UNADMITTED = "Workload that was never admitted"
EVICTED = "Workloads that were evicted: what ran before their latest admission is not told"
BAD = "pod without a name or a time of creation"
DAEMON = "pod of a DaemonSet"
PENDING = "never scheduled"
UNREADABLE = "asks for an amount that cannot be read"
MEMBER = "pod of a gang, counted with the first"
ATTEMPT = "further attempt of a pod (it is in the observed schedule)"
FINISHED = "ended at an unknown time"
SLICED = "pods with slices of MIG: counted as sevenths of a GPU"
WHOLE = "pods with slices of MIG: counted as GPUs (mig=whole)"
SLICES = "pods with GPUs shared by time slicing: counted as whole GPUs"
PODS = "kubectl get pods --all-namespaces -o json"
_FEW = 3
_MOST_LETTERS = 40


class KubernetesParams(Common, frozen=True):
    """Options of the format; the common ones and these."""

    nodes: str = ""
    events: str = ""
    tenant: Literal["queue", "namespace"] = "queue"
    mig: Literal["share", "whole"] = "share"
    runtime: Runtime = "last"


class _PodJob(msgspec.Struct):
    name: str
    attempts: list[list[Pod]]  # the pods of each attempt


class Kubernetes(Reader):
    """Reads lists of pods."""

    name = "kubernetes"
    description = "pods of Kubernetes (kubectl get pods -o json)"
    params = KubernetesParams

    def import_file(self, path: Path, params: KubernetesParams) -> Imported:
        """All jobs that were scheduled."""
        import polars as pl

        items = read_items(path)
        _refuse_others(path, items)
        quality = Quality(rows=len(items))
        sharing = _Sharing(path, items, params)
        others = read_items(Path(params.events)) if params.events else []
        scheduled = scheduled_times([*items, *others])
        if any(text(item, "kind") in ("Pod", "") for item in items):
            pods = _pods(path, items, scheduled, params, quality)
            jobs = _jobs(pods, quality)
        else:
            jobs = _workloads(path, items, params, quality)
            pods = [pod for job in jobs for pod in job.attempts[0]]
        latest_s = max((pod.latest_s for pod in pods), default=0.0)
        cluster = machines_of(items, params.mig, sharing.named)
        if params.nodes:
            cluster = read_machines(Path(params.nodes), params.mig, sharing.named)
        sharing.meet(cluster)
        rows, attempts = [], {}
        for job in jobs:
            seen = [_seen(pods) for pods in job.attempts]
            _clip(seen)
            attempts[job.name] = seen
            rows.append(_row(job, seen, latest_s, params, *sharing.of(job.attempts[0][0])))
        if not rows:
            dropped = ", ".join(f"{many:,} {why}" for why, many in quality.dropped.items())
            raise TraceError(f"{path}: no job is left ({dropped}): ask for all namespaces")
        frame = pl.DataFrame(rows, schema=_schema(), orient="row")
        rest = Rest(dated=True, cluster=cluster)
        seen_at = attempts_frame(attempts)
        imported = import_rows(path, frame, params, quality, rest=rest, attempts=seen_at)
        imported.notes += told_of_attempts(imported, attempts, latest_s, params.runtime)
        imported.notes += sharing.told()
        imported.queues = sharing.queues(imported.jobs["vc"].unique(maintain_order=True).to_list())
        return imported


FORMAT = Kubernetes()


class _Sharing:
    """Whose jobs are, and what the queues of the list are promised."""

    def __init__(
        self, path: Path, items: Sequence[Mapping[str, Any]], params: KubernetesParams
    ) -> None:
        self._params = params
        self._kueue = Kueue(items, params.mig)
        self._kai = Kai(items)
        wrong = [*self._kueue.wrong, *self._kai.wrong]
        if wrong and params.tenant == "queue":
            raise TraceError(
                f"{path}: {wrong[0]}, which is no amount of GPUs: correct it, or leave quotas out "
                "with the option tenant=namespace"
            )
        self._mapped: set[str] = set()  # flavours that nodes have
        self._on: dict[str, tuple[str, ...]] = {}  # flavours by node
        self._lost = 0  # jobs of Kueue whose quota is unknown

    def named(self, labels: Mapping[str, Any]) -> Sequence[str]:
        """The flavours of a node."""
        return self._kueue.flavors_of(labels) if self._params.tenant == "queue" else ()

    def meet(self, cluster: Sequence[NodeSpec]) -> None:
        """The nodes are known."""
        self._on = {node.name: node.labels for node in cluster}
        if self._kueue:
            self._mapped = {label for node in cluster for label in node.labels}

    def of(self, pod: Pod) -> tuple[str, list[str]]:
        """The tenant of a job, by its first pod, and the labels that its nodes must have."""
        if self._params.tenant == "namespace":
            return pod.namespace, []
        usual = pod.queue or pod.namespace
        if not self._kueue or not pod.queue:
            return usual, []
        queue = pod.cluster_queue or self._kueue.queue_of(pod.namespace, pod.queue)
        flavor = pod.flavor
        there = self._on.get(pod.node, ())
        if not flavor and len(there) == 1:
            flavor = there[0]
        tenant = self._kueue.tenant(queue, flavor)
        if not tenant:
            self._lost += 1
            return usual, []
        return tenant, [flavor] if flavor in self._mapped else []

    def told(self) -> list[str]:
        """What is in force, and what is not."""
        if not self._kueue and not self._kai:
            return []
        if self._params.tenant == "namespace":
            return ["quotas of queues are not in force: tenants are namespaces (tenant=namespace)"]
        notes = self._kueue.told(self._mapped) if self._kueue else []
        notes += self._kai.told() if self._kai else []
        if self._lost:
            notes.append(
                f"{self._lost:,} jobs of Kueue have no quota: their LocalQueue or their flavour is "
                "not in the list (kubectl get localqueues,clusterqueues,resourceflavors,nodes -A)"
            )
        return notes

    def queues(self, names: Sequence[str]) -> SiteQueues:
        """The tenants; jobs of others have no quota, and are no typing errors."""
        if self._params.tenant == "namespace" or not (self._kueue or self._kai):
            return SiteQueues()
        kueue = self._kueue.shares() if self._kueue else SiteQueues()
        kai = self._kai.shares() if self._kai else SiteQueues()
        known = {tenant.name: tenant for tenant in (*kai.tenants, *kueue.tenants)}
        for name in names:
            if name:
                known.setdefault(name, Tenant(name))
        return SiteQueues(tuple(known.values()), kueue.policy or kai.policy)


def _refuse_others(path: Path, items: Sequence[Mapping[str, Any]]) -> None:
    """A list without pods is of something else, and says so by its kinds."""
    kinds = Counter(text(item, "kind") for item in items)
    if kinds["Pod"] or kinds[""] or kinds["Workload"]:
        return
    found = " and ".join(f"{many:,} {kind}" for kind, many in kinds.most_common(_FEW))
    remedy = f"`{PODS}` lists them"
    if "Node" in kinds:
        remedy += ", and the nodes belong to the option nodes="
    elif "Event" in kinds:
        remedy += ", and the events belong to the option events="
    elif kinds:
        remedy += "; pods of a Job name it, so that they become one job again"
    raise TraceError(
        f"{path}: holds {found or 'nothing'}, no pods, and only pods tell when and where jobs ran: "
        f"{remedy}"
    )


def _schema() -> dict[str, Any]:
    import polars as pl

    return {
        "job_id": pl.String, "submit_s": pl.Float64, "num_gpus": pl.Float64,
        "duration_s": pl.Float64, "vc": pl.String, "user": pl.String, "name": pl.String,
        "cpus": pl.Float64, "mem_gib": pl.Float64, "priority": pl.Int64, "_status": pl.String,
        "_cut": pl.Boolean, "labels": pl.List(pl.String),
    }  # fmt: skip


def _pods(
    path: Path,
    items: Iterable[Mapping[str, Any]],
    scheduled: Mapping[tuple[str, str], float],
    params: KubernetesParams,
    quality: Quality,
) -> list[Pod]:
    """The pods that ran; all others are counted."""
    found = []
    for number, item in enumerate(items):
        if text(item, "kind") not in ("Pod", ""):
            quality.drop(_other(item))
            continue
        pod = read_pod(item, scheduled, params.mig)
        if pod is None:
            if params.bad == "refuse":
                raise TraceError(
                    f"{path}: items[{number}]: is a {BAD}: leave such out with the option bad=drop"
                )
            quality.drop(BAD)
        elif pod.daemon:
            quality.drop(DAEMON)
        elif wrong := unreadable_pod(part(item, "spec")):
            _refuse_amount(path, f"pod {pod.name}", wrong, params)
            quality.drop(UNREADABLE)
        elif pod.start_s is None:
            quality.drop(PENDING)
        elif pod.end_s is None and pod.state != RUNNING:
            quality.drop(FINISHED)
        else:
            found.append(pod)
    sliced = SLICED if params.mig == "share" else WHOLE
    quality.repair(sliced, sum(pod.sliced for pod in found))
    quality.repair(SLICES, sum(pod.shared for pod in found))
    return found


def _other(item: Mapping[str, Any]) -> str:
    return f"{OTHER}, but a {text(item, 'kind')[:_MOST_LETTERS]}"


def _refuse_amount(path: Path, whose: str, wrong: str, params: KubernetesParams) -> None:
    if params.bad == "refuse":
        raise TraceError(
            f"{path}: {whose} asks for {wrong}, which is no amount: correct it, or leave such out "
            "with the option bad=drop"
        )


def _workloads(
    path: Path, items: Iterable[Mapping[str, Any]], params: KubernetesParams, quality: Quality
) -> list[_PodJob]:
    """Workloads that were admitted; all else is counted."""
    found, evicted = [], 0
    for item in items:
        if text(item, "kind") != "Workload":
            quality.drop(_other(item))
            continue
        pods = read_workload(item, params.mig)
        if pods is None:
            quality.drop(UNTIMED)
        elif not pods or pods[0].start_s is None:
            quality.drop(UNADMITTED)
        elif wrong := unreadable_workload(item):
            _refuse_amount(path, f"Workload {pods[0].name}", wrong, params)
            quality.drop(UNREADABLE)
        else:
            told = (one.get("type") for one in parts(part(item, "status"), "conditions"))
            evicted += "Evicted" in told
            found.append(_PodJob(pods[0].job, [pods]))
    quality.repair(EVICTED, evicted)
    return found


def _jobs(pods: Sequence[Pod], quality: Quality) -> list[_PodJob]:
    by_owner: dict[str, list[Pod]] = {}
    for pod in pods:
        by_owner.setdefault(pod.job, []).append(pod)
    jobs = []
    for name, mine in by_owner.items():
        slots: dict[str, list[Pod]] = {}
        for pod in sorted(mine, key=lambda pod: (pod.start_s or 0.0, pod.name)):
            slots.setdefault(pod.slot, []).append(pod)
        if _together([turns[0] for turns in slots.values()]):
            most = max(map(len, slots.values()))
            attempts = [[t[n] for t in slots.values() if n < len(t)] for n in range(most)]
            jobs.append(_PodJob(name, attempts))
            quality.drop(MEMBER, len(slots) - 1)
            quality.drop(ATTEMPT, len(mine) - len(slots))
        else:
            jobs += [_PodJob(f"{name}/{pod.name.rpartition('/')[2]}", [[pod]]) for pod in mine]
    return jobs


def _together(pods: Sequence[Pod]) -> bool:
    """There was a time at which all of them ran."""
    starts_s = [pod.start_s or 0.0 for pod in pods]
    ends_s = [pod.end_s for pod in pods if pod.end_s is not None]
    return len(pods) == 1 or not ends_s or max(starts_s) < min(ends_s)


def _seen(pods: Sequence[Pod]) -> Seen:
    """One attempt: all are there, until the last has ended."""
    ends_s = [pod.end_s for pod in pods if pod.end_s is not None]
    goes_on = len(ends_s) < len(pods)
    worst = next((pod.state for pod in pods if pod.state not in ("done", RUNNING)), "done")
    by_node: dict[str, float] = {}
    for pod in pods:
        if pod.node:
            by_node[pod.node] = by_node.get(pod.node, 0.0) + pod.gpus
    return Seen(
        job=0,
        start_s=max(pod.start_s or 0.0 for pod in pods),
        end_s=None if goes_on else max(ends_s),
        nodes=tuple(by_node),
        gpus=tuple(by_node.values()),
        state=RUNNING if goes_on else worst,
    )


def _clip(seen: list[Seen]) -> None:
    """No attempt goes on while the next one runs."""
    for number, following in enumerate(seen[1:]):
        one = seen[number]
        if one.end_s is None or one.end_s > following.start_s:
            end_s = max(one.start_s, following.start_s)
            seen[number] = msgspec.structs.replace(one, end_s=end_s)


def _row(
    job: _PodJob,
    seen: Sequence[Seen],
    latest_s: float,
    params: KubernetesParams,
    tenant: str,
    labels: list[str],
) -> tuple[Any, ...]:
    first, last = job.attempts[0], seen[-1]
    pod = first[0]
    return (
        job.name,
        min(member.created_s for member in first),
        ordered_sum(member.gpus for member in first),
        run_s(seen, latest_s, params.runtime),
        tenant,
        pod.user,
        pod.kind,
        ordered_sum(member.cpus for member in first),
        ordered_sum(member.mem_gib for member in first),
        pod.priority,
        last.state,
        last.end_s is None,
        labels,
    )
