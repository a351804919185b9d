"""Objects that wait suspended in Rota's queue: Jobs, JobSets, PyTorchJobs, RayJobs.

Their own controllers make the pods. Rota turns their switch (`suspend`), names the nodes, and
understands from their status how they ended. Kinds differ in where the switch and the templates of
pods are, and in how they tell: that is all there is in a `QueuedKind`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, TypeAlias, cast

import msgspec

from rota.core.kubernetes import part, parts, pod_amounts, pod_gpus, text, unreadable_pod
from rota.live.drivers.kubernetes.api import KubeObject
from rota.live.drivers.kubernetes.cache import key_of
from rota.live.drivers.kubernetes.guests import (
    PRIORITY_CLASS,
    QUEUE,
    QUEUED_BY,
    QUEUED_RUN,
    TAKEN,
    TAKEN_RUN,
    USER,
    annotation,
    gpu_type,
    node_wishes,
    uid_of,
)
from rota.live.drivers.kubernetes.manifest import FINALIZER, label
from rota.live.external import ExternalWork

PARALLELISM = "rota.dev/parallelism"  # of a Job that is not suspended, but has no width yet
MUST = "requiredDuringSchedulingIgnoredDuringExecution"
ORIGIN = "queued "
_MOST_LETTERS = 64

PodSets: TypeAlias = Iterator[tuple[Mapping[str, Any], Any]]
"""Templates of pods, and how many pods are made of each."""


class QueuedEnd(msgspec.Struct, frozen=True):
    """How an object ended, as its status tells."""

    code: int
    why: str = ""


class QueuedKind(msgspec.Struct, frozen=True):
    """A kind of object that can be suspended; `name` is its name in the settings."""

    name: str
    kind: str
    group: str
    version: str
    plural: str
    switch: tuple[str, ...]  # where `suspend` is
    pod_sets: Callable[[KubeObject], PodSets]
    good: tuple[str, ...]  # conditions of one that succeeded
    bad: tuple[str, ...] = ("Failed",)
    halted: str = "Suspended"  # the condition of one that is suspended
    conditions: bool = True  # its status has them, for us to add one
    aim: Literal["affinity", "label", "nothing"] = "affinity"
    """What of its templates may change while it waits. Without an affinity its pods must name Rota
    as their scheduler, which binds them one by one; without a label it must be there before."""

    @property
    def path(self) -> str:
        """Of the collection, in all namespaces."""
        return f"/apis/{self.group}/{self.version}/{self.plural}"

    def path_of(self, item: KubeObject) -> str:
        """Of one object."""
        space, name = key_of(item)
        return f"/apis/{self.group}/{self.version}/namespaces/{space}/{self.plural}/{name}"

    @property
    def api_version(self) -> str:
        """Group and version, as objects carry them."""
        return f"{self.group}/{self.version}"

    def handles(self, item: KubeObject) -> bool:
        """Is it one of those, and for us?"""
        return QUEUE in part(item, "metadata", "labels") and not annotation(item, PARALLELISM)

    def suspended(self, item: KubeObject) -> bool:
        """Is its switch off?"""
        return part(item, *self.switch[:-1]).get(self.switch[-1]) is True

    def stopped(self, item: KubeObject) -> bool:
        """Has its controller seen that it is suspended?"""
        return _holds(item, self.halted) is not None

    def turned(self, item: KubeObject, *, off: bool) -> dict[str, Any]:
        """It with its switch turned; all else, and its version, as it is."""
        made = deepcopy(dict(item))
        inner = made
        for key in self.switch[:-1]:
            inner = inner.setdefault(key, {})
        inner[self.switch[-1]] = off
        return made

    def refusal(self, item: KubeObject, scheduler: str) -> str:
        """How its nodes could not be chosen; empty: they can."""
        for template, _ in with_gpus(self, item):
            named = text(part(template, "spec"), "schedulerName") == scheduler
            if self.aim != "affinity" and not (scheduler and named):
                return (
                    f"the affinity of a {self.name} cannot be changed: its templates need "
                    f"`schedulerName: {scheduler or 'rota'}`, and Rota needs "
                    "`kubernetes.scheduler_name`, to have their pods bound"
                )
            if self.aim == "nothing" and QUEUED_RUN not in part(template, "metadata", "labels"):
                return f"its template needs the label {QUEUED_RUN}, with any value"
        return ""

    def end(self, item: KubeObject) -> QueuedEnd | None:
        """How it ended; None: it has not."""
        for name in (*self.good, *self.bad):
            told = _holds(item, name)
            if told is not None:
                code = 0 if name in self.good else 1
                return QueuedEnd(code, "" if not code else _words(told))
        return None


class _RayKind(QueuedKind, frozen=True):
    """RayJobs tell with single words instead of conditions."""

    def stopped(self, item: KubeObject) -> bool:
        return text(part(item, "status"), "jobDeploymentStatus") == "Suspended"

    def end(self, item: KubeObject) -> QueuedEnd | None:
        status = part(item, "status")
        job, whole = text(status, "jobStatus"), text(status, "jobDeploymentStatus")
        if job == "SUCCEEDED":
            return QueuedEnd(0)
        if job in ("FAILED", "STOPPED") or whole == "Failed":
            return QueuedEnd(1, text(status, "message") or f"jobStatus {job or whole}")
        return None


class _WidthKind(QueuedKind, frozen=True):
    """Jobs of a server without `suspend`: they wait with `parallelism: 0`.

    By a label of their templates their pods are not taken for jobs of their own.
    """

    def handles(self, item: KubeObject) -> bool:
        return QUEUE in part(item, "metadata", "labels") and bool(annotation(item, PARALLELISM))

    def suspended(self, item: KubeObject) -> bool:
        return part(item, "spec").get("parallelism") == 0

    def stopped(self, item: KubeObject) -> bool:
        return not part(item, "status").get("active")

    def turned(self, item: KubeObject, *, off: bool) -> dict[str, Any]:
        made = deepcopy(dict(item))
        made["spec"]["parallelism"] = 0 if off else _width(item)
        return made


def _width(item: KubeObject) -> int | None:
    said = annotation(item, PARALLELISM)
    return int(said) if said.isdecimal() and len(said) < 6 else None  # noqa: PLR2004


def _holds(item: KubeObject, name: str) -> KubeObject | None:
    """A condition that is true."""
    for one in parts(part(item, "status"), "conditions"):
        if one.get("type") == name and one.get("status") == "True":
            return one
    return None


def _words(condition: KubeObject) -> str:
    return ": ".join(filter(None, (text(condition, "reason"), text(condition, "message"))))


def _of_job(item: KubeObject) -> PodSets:
    spec = part(item, "spec")
    width, wanted = spec.get("parallelism", 1), spec.get("completions")
    if isinstance(width, int) and isinstance(wanted, int):
        width = min(width, wanted)
    yield part(spec, "template"), width


def _of_wide_job(item: KubeObject) -> PodSets:
    yield part(item, "spec", "template"), _width(item)


def _of_job_set(item: KubeObject) -> PodSets:
    for one in parts(part(item, "spec"), "replicatedJobs"):
        for template, width in _of_job(part(one, "template")):
            yield template, _times(one.get("replicas", 1), width)


def _of_pytorch_job(item: KubeObject) -> PodSets:
    replicas = part(item, "spec", "pytorchReplicaSpecs")
    for name in replicas:
        one = part(replicas, name)
        yield part(one, "template"), one.get("replicas", 1)


def _of_ray_job(item: KubeObject) -> PodSets:
    cluster = part(item, "spec", "rayClusterSpec")
    yield part(cluster, "headGroupSpec", "template"), 1
    for one in parts(cluster, "workerGroupSpecs"):
        yield part(one, "template"), _times(one.get("replicas", 1), one.get("numOfHosts", 1))


def _times(some: object, each: object) -> int | None:
    return some * each if isinstance(some, int) and isinstance(each, int) else None


SUSPEND = ("spec", "suspend")
KINDS: dict[str, QueuedKind] = {
    each.name: each
    for each in (
        QueuedKind("Job", "Job", "batch", "v1", "jobs", SUSPEND, _of_job, ("Complete",)),
        _WidthKind("Job/parallelism", "Job", "batch", "v1", "jobs", ("spec", "parallelism"),
                   _of_wide_job, ("Complete",), aim="nothing"),
        QueuedKind("JobSet", "JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", SUSPEND,
                   _of_job_set, ("Completed",), aim="label"),
        QueuedKind("PyTorchJob", "PyTorchJob", "kubeflow.org", "v1", "pytorchjobs",
                   ("spec", "runPolicy", "suspend"), _of_pytorch_job, ("Succeeded",)),
        _RayKind("RayJob", "RayJob", "ray.io", "v1", "rayjobs", SUSPEND, _of_ray_job, (), (),
                 conditions=False),
    )
}  # fmt: skip


# --- what an object asks for ----------------------------------------------------------------------


def queued_origin(kind: QueuedKind, item: KubeObject) -> str:
    """Who it is; `origin_key` finds it again."""
    return f"{ORIGIN}{kind.name} {'/'.join(key_of(item))} {uid_of(item)}"


def origin_key(origin: str) -> tuple[str, tuple[str, str], str]:
    """Name of the kind, (namespace, name) and uid of an object."""
    _, kind, name, uid = origin.split(" ")
    space, _, own = name.partition("/")
    return kind, (space, own), uid


def read_queued(kind: QueuedKind, item: KubeObject, scheduler: str, resource: str) -> ExternalWork:
    """An object as work: its pods with GPUs, all of them or none; those without follow.

    GPUs are what they ask of this resource; `scheduler` is the name by which pods are ours to bind.
    """
    (space, name), labels = key_of(item), part(item, "metadata", "labels")
    sets = with_gpus(kind, item)
    amounts = [pod_amounts(part(template, "spec"), "whole") for template, _ in sets]
    graces = [part(each, "spec").get("terminationGracePeriodSeconds") for each, _ in sets]
    return ExternalWork(
        key=uid_of(item), origin=queued_origin(kind, item), owner=f"{USER}{space}"[:_MOST_LETTERS],
        name=name, what=f"{kind.kind} {space}/{name}", queue=text(labels, QUEUE),
        priority_class=text(labels, PRIORITY_CLASS), parts=pods_of(kind, item) or 1,
        cpus=max((each[0] for each in amounts), default=0.0),
        mem_gib=max((each[1] for each in amounts), default=0.0),
        gpus=max((pod_gpus(part(t, "spec")).get(resource, 0.0) for t, _ in sets), default=0.0),
        gpu_type=next((gpu_type(each) for each, _ in sets), ""), resumed=True,
        grace_s=float(max((each for each in graces if isinstance(each, int)), default=30)),
        refused=(
            _unreadable(kind, item)
            or _refusal(kind, item, resource)
            or kind.refusal(item, scheduler)
        ),
    )  # fmt: skip


def _unreadable(kind: QueuedKind, item: KubeObject) -> str:
    """Nobody has checked its templates yet, as the server checks pods."""
    told = (unreadable_pod(part(template, "spec")) for template, _ in kind.pod_sets(item))
    wrong = next(filter(None, told), "")
    return f"it asks for {wrong}, which is no amount: correct it" if wrong else ""


def _refusal(kind: QueuedKind, item: KubeObject, resource: str) -> str:
    sets = with_gpus(kind, item)
    if any(type(count) is not int for _, count in sets):
        return "the number of its pods is not a number"
    if not sets:
        return f"it asks for no GPU: take the label {QUEUE} off, and unsuspend it"
    if not pods_of(kind, item):
        return "it asks for no pod with GPUs: its parallelism or its replicas are 0"
    others = {name for t, _ in sets for name in pod_gpus(part(t, "spec"))} - {resource}
    if others:
        return f"it asks for {', '.join(sorted(others))}: this queue hands out {resource} only"
    if len({(pod_gpus(part(t, "spec"))[resource], gpu_type(t)) for t, _ in sets}) > 1:
        return "its pods ask for different numbers or types of GPUs: make them alike"
    return _placing_refusal(sets)


def _placing_refusal(sets: Sequence[tuple[KubeObject, Any]]) -> str:
    wishes = [
        wish
        for template, _ in sets
        for wish in node_wishes(template)
        if not (wish == "nodeAffinity" and QUEUED_BY in part(template, "metadata", "labels"))
    ]
    if wishes:
        return f"Rota does not place pods by {', '.join(dict.fromkeys(wishes))}: leave it out"
    return ""


def with_gpus(kind: QueuedKind, item: KubeObject) -> list[tuple[Mapping[str, Any], Any]]:
    """Those templates of its pods that ask for GPUs, and how many pods are made of each."""
    return [
        (template, count)
        for template, count in kind.pod_sets(item)
        if pod_amounts(part(template, "spec"), "whole")[2]
    ]


def pods_of(kind: QueuedKind, item: KubeObject) -> int:
    """How many pods with GPUs it has when it runs."""
    return sum(count for _, count in with_gpus(kind, item) if isinstance(count, int))


# --- what Rota makes of it ------------------------------------------------------------------------


def taken(
    kind: QueuedKind, item: KubeObject, store: str, run: str, nodes: Sequence[str]
) -> dict[str, Any]:
    """It as it is to run: for this run, its pods with GPUs on these nodes, its switch on."""
    made = kind.turned(item, off=False)
    about = made["metadata"]
    about["finalizers"] = sorted({*(about.get("finalizers") or ()), FINALIZER})
    about["annotations"] = {**(about.get("annotations") or {}), TAKEN: store, TAKEN_RUN: run}
    for template, _ in with_gpus(kind, made):
        changed = cast("dict[str, Any]", template)
        if kind.aim != "nothing":
            outer = changed["metadata"] = changed.get("metadata") or {}
            own = {QUEUED_BY: store, QUEUED_RUN: label(run)}
            outer["labels"] = {**(outer.get("labels") or {}), **own}
        if kind.aim == "affinity":
            _aim(changed, nodes)
    return made


def _aim(template: dict[str, Any], nodes: Sequence[str]) -> None:
    affinity = template["spec"].get("affinity") or {}
    must = {"nodeSelectorTerms": [_is_node(node) for node in nodes]}
    inner = {**(affinity.get("nodeAffinity") or {}), MUST: must}
    template["spec"]["affinity"] = {**affinity, "nodeAffinity": inner}


def _is_node(name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def released(item: KubeObject) -> dict[str, Any]:
    """It as nobody's."""
    about = deepcopy(dict(part(item, "metadata")))
    notes = about.get("annotations") or {}
    about["finalizers"] = [each for each in about.get("finalizers") or () if each != FINALIZER]
    about["annotations"] = {k: v for k, v in notes.items() if k not in (TAKEN, TAKEN_RUN)}
    return {**item, "metadata": about}
