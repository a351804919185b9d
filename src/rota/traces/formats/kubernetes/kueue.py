"""Workloads of Kueue: when each was admitted and finished, by which queue and with what."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.core.kubernetes import is_gpu, part, parts, pod_amounts, text, time_of, unreadable_pod
from rota.traces.formats.kubernetes.objects import Pod, whole
from rota.traces.observed import DONE, FAILED, RUNNING

HOST = "kubernetes.io/hostname"


def read_workload(item: Mapping[str, Any], mig: str) -> list[Pod] | None:
    """Its pods as they were admitted, all of them at once; None: it has no name or no time.

    They are one for each node if Kueue chose nodes by a topology, else one for each pod set; one
    that was never admitted, or is evicted now, has no start.
    """
    about, spec, status = part(item, "metadata"), part(item, "spec"), part(item, "status")
    name, namespace = text(about, "name"), text(about, "namespace")
    created_s = time_of(about.get("creationTimestamp"))
    if not name or created_s is None:
        return None
    admitted, finished = _holds(status, "Admitted"), _holds(status, "Finished")
    start_s = time_of(admitted.get("lastTransitionTime"))
    end_s = time_of(finished.get("lastTransitionTime"))
    if start_s is not None and end_s is not None:
        end_s = max(start_s, end_s)
    state = RUNNING
    if finished:
        state = FAILED if text(finished, "reason") == "Failed" else DONE
    owners = parts(about, "ownerReferences")
    made = Pod(
        name=f"{namespace}/{name}", namespace=namespace, job=f"{namespace}/{name}", slot="",
        kind=text(owners[0], "kind") if owners else "Workload", daemon=False, created_s=created_s,
        start_s=start_s, end_s=end_s, state=state, node="", gpus=0.0, cpus=0.0, mem_gib=0.0,
        priority=whole(spec.get("priority")), queue=text(spec, "queueName"), user="", sliced=False,
        shared=False, cluster_queue=text(part(status, "admission"), "clusterQueue"),
    )  # fmt: skip
    given = {
        text(one, "name"): one for one in parts(part(status, "admission"), "podSetAssignments")
    }
    return [
        msgspec.structs.replace(
            made,
            node=node,
            flavor=flavor,
            slot=f"{number}",
            cpus=many * cpus,
            mem_gib=many * mem,
            gpus=many * gpus,
        )
        for number, (node, flavor, many, (cpus, mem, gpus)) in enumerate(_shares(spec, given, mig))
    ]


def _shares(
    spec: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]], mig: str
) -> Iterable[tuple[str, str, int, tuple[float, float, float]]]:
    """Node (or nothing), flavour of its GPUs, number of pods there, and what each asks for."""
    for pods in parts(spec, "podSets"):
        each = pod_amounts(part(pods, "template", "spec"), mig)
        mine = given.get(text(pods, "name"), {})
        count = mine.get("count", pods.get("count", 1))
        count = count if isinstance(count, int) and 0 <= count < 10**6 else 1
        placed = _placed(part(mine, "topologyAssignment"))
        if sum(many for _, many in placed) != count:
            placed = [("", count)]
        flavors = [
            flavor for name, flavor in part(mine, "flavors").items() if is_gpu(name) and flavor
        ]
        for node, many in placed:
            yield node, str(flavors[0]) if flavors else "", many, each


def unreadable_workload(item: Mapping[str, Any]) -> str:
    """An amount that its pods ask for and that is none."""
    sets = parts(part(item, "spec"), "podSets")
    told = (unreadable_pod(part(pods, "template", "spec")) for pods in sets)
    return next(filter(None, told), "")


def _placed(assignment: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Nodes and pods there, if the lowest level of the topology is a node."""
    levels = assignment.get("levels")
    if not isinstance(levels, list) or not levels or levels[-1] != HOST:
        return []
    found = []
    for domain in parts(assignment, "domains"):
        values, many = domain.get("values"), domain.get("count")
        if isinstance(values, list) and values and isinstance(many, int):
            found.append((str(values[-1]), many))
    return found


def _holds(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for one in parts(status, "conditions"):
        if one.get("type") == name and one.get("status") == "True":
            return one
    return {}
