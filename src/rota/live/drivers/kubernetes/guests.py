"""Pods of others that name Rota as their scheduler: what they ask for, and who made them."""

from collections.abc import Sequence
from typing import Any

from rota.core.kubernetes import TYPES, part, parts, pod_amounts, pod_gpus, text
from rota.live.drivers.kubernetes.api import KubeObject
from rota.live.drivers.kubernetes.cache import key_of
from rota.live.drivers.kubernetes.launcher import PartEnd, read_end
from rota.live.drivers.kubernetes.manifest import STORE
from rota.live.external import ExternalWork

QUEUE, GANG, GANG_SIZE = "rota.dev/queue", "rota.dev/gang", "rota.dev/gang-size"
PRIORITY_CLASS, PREEMPTIBLE = "rota.dev/priority-class", "rota.dev/preemptible"
TAKEN, TAKEN_RUN, TAKEN_NODE = "rota.dev/taken-by", "rota.dev/taken-run", "rota.dev/taken-node"
"""Annotations that Rota writes before it binds a pod: which store, which run, which node."""
QUEUED_BY, QUEUED_RUN = "rota.dev/queued-by", "rota.dev/queued-run"
"""Labels of pods whose owner waits in the queue: of which store, and for which run."""
REPEATING = ("Job", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Controllers that make another pod in place of one that was deleted."""
ORIGINS = ("gang ", "owner ", "pod ")
MOST_IN_GANG = 1_000
USER = "k8s."
_MOST_LETTERS = 64


def uid_of(item: KubeObject) -> str:
    """What no other object ever has."""
    return text(part(item, "metadata"), "uid")


def annotation(item: KubeObject, key: str) -> str:
    """An annotation; empty: it has none."""
    return text(part(item, "metadata", "annotations"), key)


def is_guest(item: KubeObject, scheduler: str) -> bool:
    """Is it a pod that somebody made for us to schedule?"""
    labels = part(item, "metadata", "labels")
    ours = STORE in labels or QUEUED_RUN in labels
    return text(part(item, "spec"), "schedulerName") == scheduler and not ours


def guest_end(item: KubeObject) -> PartEnd | None:
    """How it ended; None: it has not: its kubelet may start a container again."""
    over = text(part(item, "status"), "phase") in ("Succeeded", "Failed")
    if over or part(item, "metadata").get("deletionTimestamp") is not None:
        return read_end(item)
    return None


def waits(item: KubeObject) -> bool:
    """Has it no node, and does nobody delete it?"""
    deleted = part(item, "metadata").get("deletionTimestamp") is not None
    return not text(part(item, "spec"), "nodeName") and not deleted and guest_end(item) is None


def controller(item: KubeObject) -> KubeObject | None:
    """Its owner that makes pods; None: nobody does."""
    for owner in parts(part(item, "metadata"), "ownerReferences"):
        if owner.get("controller") is True:
            return owner
    return None


def origin(item: KubeObject) -> str:
    """Its gang, else its controller, else itself."""
    space, _ = key_of(item)
    gang = text(part(item, "metadata", "labels"), GANG)
    if gang:
        return f"gang {space}/{gang}"
    owner = controller(item)
    if owner is not None:
        return f"owner {space}/{text(owner, 'uid')}"
    return f"pod {space}/{uid_of(item)}"


def is_repeated(item: KubeObject) -> bool:
    """Does somebody make another one if it is deleted? Its annotation knows best."""
    said = annotation(item, PREEMPTIBLE)
    owner = controller(item)
    return said == "true" if said else owner is not None and text(owner, "kind") in REPEATING


def gang_size(item: KubeObject) -> int:
    """Pods of its gang, as it says; 1: it is in none; 0: it does not say, or nonsense."""
    if not text(part(item, "metadata", "labels"), GANG):
        return 1
    said = annotation(item, GANG_SIZE)
    size = int(said) if said.isdecimal() and len(said) < 5 else 0  # noqa: PLR2004
    return size if size <= MOST_IN_GANG else 0


def node_wishes(item: KubeObject) -> list[str]:
    """What a pod, or a template of pods, wants that Rota does not look at to choose a node."""
    spec = part(item, "spec")
    wanted = [f"nodeSelector {key}" for key in part(spec, "nodeSelector") if key not in TYPES]
    affinity = part(spec, "affinity")
    must = "requiredDuringSchedulingIgnoredDuringExecution"
    wanted += [kind for kind in affinity if part(affinity, kind).get(must)]
    for spread in parts(spec, "topologySpreadConstraints"):
        if spread.get("whenUnsatisfiable") == "DoNotSchedule":
            wanted.append("topologySpreadConstraints")
    return wanted


def refusal(item: KubeObject) -> str:
    """What it wants that Rota cannot give; empty: nothing."""
    wanted = node_wishes(item)
    if wanted:
        return f"Rota does not place pods by {', '.join(wanted)}: leave it out"
    if not gang_size(item):
        said = annotation(item, GANG_SIZE)
        found = f"; it is {said[:_MOST_LETTERS]!r}" if said else ""
        return (
            f"the label {GANG} needs the annotation {GANG_SIZE} with the number of its pods, "
            f"1 to {MOST_IN_GANG:,}{found}"
        )
    said = annotation(item, PREEMPTIBLE)
    if said not in ("", "true", "false"):
        return f'the annotation {PREEMPTIBLE} is {said[:_MOST_LETTERS]!r}: say "true" or "false"'
    return ""


def read_work(pods: Sequence[KubeObject], resource: str) -> ExternalWork:
    """A pod, or all pods of a gang, as work; GPUs are what it asks of this resource."""
    first = min(pods, key=key_of)
    space, name = key_of(first)
    spec, labels = part(first, "spec"), part(first, "metadata", "labels")
    cpus, mem_gib, _ = pod_amounts(spec, "whole")
    kinds = pod_gpus(spec)
    gpus, others = kinds.get(resource, 0.0), sorted(kinds.keys() - {resource})
    gang = text(labels, GANG)
    asked = {_asked(pod) for pod in pods}
    refused = next(filter(None, map(refusal, pods)), "")
    if not refused and len(asked) > 1:
        refused = f"the pods of the gang {gang} ask for different things: make them alike"
    if not refused and others:
        refused = f"it asks for {', '.join(others)}: this scheduler hands out {resource} only"
    if not refused and gpus < 1:
        refused = "it asks for no GPU: leave it to another scheduler"
    grace = spec.get("terminationGracePeriodSeconds")
    return ExternalWork(
        key=uid_of(first), origin=origin(first), owner=f"{USER}{space}"[:_MOST_LETTERS],
        name=gang or name, what=f"gang {space}/{gang}" if gang else f"pod {space}/{name}",
        queue=text(labels, QUEUE), priority_class=text(labels, PRIORITY_CLASS),
        gpus=gpus, parts=len(pods), gpu_type=gpu_type(first), cpus=cpus, mem_gib=mem_gib,
        grace_s=float(grace) if isinstance(grace, int) else 30.0,
        repeated=all(map(is_repeated, pods)), refused=refused,
    )  # fmt: skip


def _asked(item: KubeObject) -> tuple[Any, ...]:
    labels = part(item, "metadata", "labels")
    spec = part(item, "spec")
    return (*pod_amounts(spec, "whole"), *sorted(pod_gpus(spec)), gang_size(item), gpu_type(item),
            text(labels, QUEUE), text(labels, PRIORITY_CLASS))  # fmt: skip


def gpu_type(item: KubeObject) -> str:
    """The GPU type that a pod, or a template of pods, asks for."""
    chosen = part(item, "spec", "nodeSelector")
    return next((text(chosen, key) for key in TYPES if text(chosen, key)), "")
