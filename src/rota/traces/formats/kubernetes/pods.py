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
- *What.* GPUs: see below; CPUs and memory as requested.

Machines: nodes in the same list, or `nodes=FILE` (`kubectl get nodes -o json`). Events
(`events=FILE`, or in the same list) tell when a pod was scheduled if the pod does not. Deleted pods
are not in the list: what is imported is only what was still there. Lists of other things (Jobs,
events) are refused: they do not tell when and where their pods ran. `-o yaml` is read, too.

- *Kueue.* A list with Workloads and without pods: each is a job that runs from its admission to its
  end, all pod sets at once, on the nodes of its topology assignment if these are told. One that was
  evicted tells of its latest admission only; that is said. Quotas, cohorts and topologies
  (ClusterQueue, Cohort, Topology) are counted and named, not followed.
- *KAI.* The ZIP of its snapshot plug-in (`/get-snapshot`): its pods and nodes are read. Queues, pod
  groups, claims, and the configuration of the scheduler are counted, not read. It is one moment:
  pods that run are cut there, those that wait are left out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rota.core.errors import TraceError
from rota.core.kubernetes import part, parts, text
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.formats.kubernetes.kueue import read_workload, told_of_queues
from rota.traces.formats.kubernetes.objects import (
    Pod,
    machines_of,
    read_items,
    read_machines,
    read_pod,
    scheduled_times,
)
from rota.traces.imported import Imported
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
        others = read_items(Path(params.events)) if params.events else []
        scheduled = scheduled_times([*items, *others])
        if any(text(item, "kind") in ("Pod", "") for item in items):
            pods = _pods(path, items, scheduled, params, quality)
            jobs = _jobs(pods, quality)
        else:
            jobs = _workloads(items, params, quality)
            pods = [pod for job in jobs for pod in job.attempts[0]]
        latest_s = max((pod.latest_s for pod in pods), default=0.0)
        rows, attempts = [], {}
        for job in jobs:
            seen = [_seen(pods) for pods in job.attempts]
            _clip(seen)
            attempts[job.name] = seen
            rows.append(_row(job, seen, latest_s, params))
        if not rows:
            dropped = ", ".join(f"{many:,} {why}" for why, many in quality.dropped.items())
            raise TraceError(f"{path}: no job is left ({dropped}): ask for all namespaces")
        frame = pl.DataFrame(rows, schema=_schema(), orient="row")
        cluster = machines_of(items, params.mig)
        if params.nodes:
            cluster = read_machines(Path(params.nodes), params.mig)
        rest = Rest(dated=True, cluster=cluster)
        seen_at = attempts_frame(attempts)
        imported = import_rows(path, frame, params, quality, rest=rest, attempts=seen_at)
        imported.notes += told_of_attempts(imported, attempts, latest_s, params.runtime)
        imported.notes += told_of_queues(items, params.mig)
        return imported


FORMAT = Kubernetes()


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
        "_cut": pl.Boolean,
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


def _workloads(
    items: Iterable[Mapping[str, Any]], params: KubernetesParams, quality: Quality
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
    job: _PodJob, seen: Sequence[Seen], latest_s: float, params: KubernetesParams
) -> tuple[Any, ...]:
    first, last = job.attempts[0], seen[-1]
    pod = first[0]
    return (
        job.name,
        min(member.created_s for member in first),
        sum(member.gpus for member in first),
        run_s(seen, latest_s, params.runtime),
        (pod.queue if params.tenant == "queue" else "") or pod.namespace,
        pod.user,
        pod.kind,
        sum(member.cpus for member in first),
        sum(member.mem_gib for member in first),
        pod.priority,
        last.state,
        last.end_s is None,
    )
