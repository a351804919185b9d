"""From a run to pods: one for each of its nodes, bound there by name."""

import re
from collections.abc import Mapping
from hashlib import sha256
from math import ceil
from typing import Any

from rota.core.errors import ClusterError
from rota.live.driver import RunOrder, RunPart
from rota.live.drivers.kubernetes.launcher import LAUNCHER
from rota.live.drivers.kubernetes.options import KubernetesOptions

FINALIZER = "rota.dev/run"
STORE, RUN, JOB, RANK, ENDED = (
    "rota.dev/store", "rota.dev/run", "rota.dev/job", "rota.dev/node-rank", "rota.dev/ended",
)  # fmt: skip
CONTAINER = "main"
CHECKPOINTS = "/rota/checkpoints"
_UNUSUAL = re.compile(r"[^a-z0-9]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL = re.compile(r"[^A-Za-z0-9._-]+")


def pod_name(store: str, run: str, rank: int) -> str:
    """The same for the same part of a run, however often it is asked: no part is created twice."""
    return f"rota-{short(store)}-{_UNUSUAL.sub('-', run.lower()).strip('-')}-{rank}"


def short(store: str) -> str:
    """A store in a few letters."""
    return sha256(store.encode()).hexdigest()[:8]


def service_name(store: str) -> str:
    """The headless service by which pods of a store find each other."""
    return f"rota-{short(store)}"


def service(store: str, namespace: str) -> dict[str, Any]:
    """Names for all pods of a store, from the moment they have an address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service_name(store), "namespace": namespace,
                     "labels": {STORE: short(store), "app.kubernetes.io/managed-by": "rota"}},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True,
                 "selector": {STORE: short(store)}, "ports": [{"name": "any", "port": 1}]},
    }  # fmt: skip


def label(value: str) -> str:
    """As a value of a label."""
    return _LABEL.sub("-", value)[:63].strip("-._")


def pod(
    store: str, namespace: str, order: RunOrder, rank: int, options: KubernetesOptions
) -> dict[str, Any]:
    """The pod of one part of a run."""
    share = order.parts[rank]
    if not (order.launch.image or options.image):
        raise ClusterError(
            "the job names no image, and neither does the daemon: set `kubernetes.image`, "
            "or `image` of the job"
        )
    spec: dict[str, Any] = {
        "schedulerName": "rota",
        "nodeName": share.node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": max(1, ceil(order.launch.grace_s)),
        "automountServiceAccountToken": bool(options.service_account),
        "hostname": pod_name(store, order.run, rank),
        "subdomain": service_name(store),
        "containers": [_container(store, namespace, order, share, options)],
        "tolerations": [{"key": key, "operator": "Exists"} for key in options.tolerations],
    }
    if options.service_account:
        spec["serviceAccountName"] = options.service_account
    if options.checkpoint_claim:
        claim = {"claimName": options.checkpoint_claim}
        spec["volumes"] = [{"name": "checkpoints", "persistentVolumeClaim": claim}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(store, order.run, rank),
            "namespace": namespace,
            "finalizers": [FINALIZER],
            "labels": {
                STORE: short(store), RUN: label(order.run), JOB: label(order.job), RANK: str(rank),
                "app.kubernetes.io/managed-by": "rota",
            },
            "annotations": {"rota.dev/user": order.user, "rota.dev/name": order.name},
        },
        "spec": spec,
    }  # fmt: skip


def _container(
    store: str, namespace: str, order: RunOrder, share: RunPart, options: KubernetesOptions
) -> dict[str, Any]:
    launch = order.launch
    amounts = {}
    if share.gpus:
        amounts[options.gpu_resource] = str(ceil(share.gpus))
    if share.cpus:
        amounts["cpu"] = f"{share.cpus:g}"
    if share.mem_gib:
        amounts["memory"] = f"{ceil(share.mem_gib * 1024)}Mi"
    words = ("/bin/sh", "-c", LAUNCHER, "rota", launch.setup, launch.run, str(share.processes))
    variables = environment(store, namespace, order, share, options)
    found: dict[str, Any] = {
        "name": CONTAINER,
        "image": order.launch.image or options.image,
        "command": [_literal(text) for text in words],
        "env": [{"name": name, "value": _literal(value)} for name, value in variables.items()],
        "resources": {"requests": amounts, "limits": amounts},
    }  # fmt: skip
    if options.checkpoint_claim:
        found["volumeMounts"] = [{"name": "checkpoints", "mountPath": CHECKPOINTS}]
    return found


def environment(
    store: str, namespace: str, order: RunOrder, share: RunPart, options: KubernetesOptions
) -> dict[str, str]:
    """Variables of a part; which GPUs it sees is set by the kubelet's device plug-in."""
    for name in order.launch.envs:
        if _VARIABLE.fullmatch(name) is None:
            raise ClusterError(f"{name!r} cannot be the name of a variable: letters, digits and _")
    master = f"{pod_name(store, order.run, 0)}.{service_name(store)}.{namespace}.svc"
    texts: Mapping[str, object] = {
        "LOCAL_WORLD_SIZE": share.processes,
        "MASTER_ADDR": master,
        "MASTER_PORT": order.master_port,
        "NODE_RANK": share.node_rank,
        "WORLD_SIZE": order.world_size,
        "job_id": order.job,
        "master_ip_address": master,
        "world_size": order.world_size,
    }
    kept = order.launch.checkpoint_dir or (
        f"{CHECKPOINTS}/{order.job}" if options.checkpoint_claim else ""
    )
    own: dict[str, object] = {
        "ROTA_CHECKPOINT_DIR": kept,
        "ROTA_FIRST_RANK": share.first_rank,
        "ROTA_GPUS": f"{share.gpus:g}",
        "ROTA_GRACE_S": f"{order.launch.grace_s:g}",
        "ROTA_JOB_ID": order.job,
        "ROTA_JOB_NAME": order.name,
        "ROTA_NODE_NAME": share.node,
        "ROTA_NUM_NODES": len(order.parts),
        "ROTA_RESTART_COUNT": order.restart,
        "ROTA_RUN_ID": order.run,
        "ROTA_WORKDIR": order.launch.workdir,
    }
    return {name: str(value) for name, value in {**texts, **order.launch.envs, **own}.items()}


def _literal(value: str) -> str:
    """Kubernetes replaces `$(NAME)` in values; `$$` is a dollar."""
    return value.replace("$", "$$")
