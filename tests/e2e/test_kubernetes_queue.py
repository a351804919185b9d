"""Rota as the queue of objects that others make suspended, on a real API server."""

import random
import time
from collections import Counter

import pytest
import yaml

import kube_daemon
from agents_net import eventually
from kube_cluster import require_kubernetes
from kube_controllers import Controllers, define
from kube_daemon import (
    EXAMPLES,
    POLICIES,
    RULES,
    cluster_of_others,
    jobs,
    lose_n2,
    reasons,
    restart_server,
    state_counts,
    wait_for,
)
from rota.core.errors import ClusterError
from rota.live.drivers.kubernetes import KubernetesDriver, KubernetesOptions
from rota.live.drivers.kubernetes.access import find_access
from rota.live.drivers.kubernetes.api import KubeApi
from rota.live.drivers.kubernetes.preflight import QUEUEING, rights
from rota.live.drivers.kubernetes.queued import KINDS

require_kubernetes()

CUSTOM = ("JobSet", "PyTorchJob", "RayJob")
QUEUED = ("Job/parallelism", *CUSTOM)
UNTIL_GO = 'while [ ! -e "$GO" ]; do sleep 0.05; done; exit "${CODE:-0}"'


@pytest.fixture(scope="module")
def kube(tmp_path_factory):
    rules = ("rbac.yaml", "scheduler.yaml", "queue.yaml")
    known = [lambda api: define(api, *CUSTOM)]
    with cluster_of_others(tmp_path_factory.mktemp("kube"), *rules, define=known) as cluster:
        access = find_access(str(cluster.kubeconfig))
        with Controllers(KubeApi(access), *QUEUED) as controllers:
            cluster.controllers = controllers
            yield cluster


@pytest.fixture
def serve(kube, tmp_path):
    """Return `serve(policy)`: a daemon whose queue these objects wait in, as the examples allow."""
    started = []

    def start(policy):
        daemon = kube_daemon.serve(
            kube.granted, tmp_path, policy, {"research": 4, "product": 4},
            scheduler_name="rota", queue_kinds=list(QUEUED), note_after_s=0,
        )  # fmt: skip
        started.append(daemon)
        return daemon

    yield start
    for name in QUEUED:
        kube.api.delete(path(name), {"propagationPolicy": "Background"})
    for daemon in started:
        eventually(lambda: not any(objects(kube).values()))  # it lets go of all of them
        daemon.close()
    eventually(lambda: not kube.pods())


def objects(kube):
    return {name: kube.api.pages(KINDS[name].path)[0] for name in QUEUED}


def make(kube, tmp_path, kind, name, gpus, pods=1, *, queue="research", go="go", code=0, **more):
    """An object of a kind, suspended unless told otherwise."""
    amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    envs = [{"name": "GO", "value": str(tmp_path / go)}, {"name": "CODE", "value": str(code)}]
    container = {"name": "c", "image": "none", "command": ["sh", "-c", UNTIL_GO], "env": envs,
                 "resources": {"limits": amounts, "requests": amounts}}  # fmt: skip
    spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 2,
            **more}  # fmt: skip
    template = {"metadata": {"labels": {"rota.dev/queued-run": "any"}}, "spec": spec}
    head = {"metadata": {}, "spec": {"containers": [{"name": "head", "image": "none"}]}}
    job = {"parallelism": pods, "template": template}
    body = {
        "Job/parallelism": {**job, "parallelism": 0},
        "JobSet": {"suspend": True,
                   "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}]},
        "PyTorchJob": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {
            "Worker": {"replicas": pods, "template": template}}},
        "RayJob": {"suspend": True, "rayClusterSpec": {
            "headGroupSpec": {"template": head},
            "workerGroupSpecs": [{"replicas": pods, "template": template}]}},
    }[kind]  # fmt: skip
    if kind in ("JobSet", "Job/parallelism"):
        spec["schedulerName"] = "rota"
    about = {"name": name, "namespace": "default", "labels": {"rota.dev/queue": queue}}
    if kind == "Job/parallelism":
        about["annotations"] = {"rota.dev/parallelism": str(pods)}
    item = {"apiVersion": KINDS[kind].api_version, "kind": KINDS[kind].kind, "metadata": about,
            "spec": body}  # fmt: skip
    return kube.api.create(path(kind), item)


def path(kind, name=""):
    about = {"name": name, "namespace": "default"}
    return KINDS[kind].path_of({"metadata": about}).rstrip("/")


def found(kube, kind, name):
    return kube.api.get(path(kind, name))


def condition(kube, kind, name):
    told = found(kube, kind, name).get("status", {}).get("conditions", [])
    return next((one for one in told if one["type"] == "rota.dev/Started"), {})


def nodes_of(kube, name):
    return sorted(
        p["spec"].get("nodeName", "") for p in kube.pods()
        if p["metadata"]["name"].startswith(f"{name}-")
    )  # fmt: skip


def test_objects_of_all_kinds_wait_start_are_suspended_and_end_once(kube, serve, tmp_path):
    daemon = serve("capacity")
    make(kube, tmp_path, "PyTorchJob", "torch", 2, 2)
    make(kube, tmp_path, "RayJob", "ray", 4, go="go-ray")  # what product lends
    wait_for(daemon, torch="RUNNING", ray="RUNNING")
    assert len(set(nodes_of(kube, "torch") + nodes_of(kube, "ray"))) == 2
    make(kube, tmp_path, "JobSet", "refused", 1, nodeSelector={"disk": "fast"})
    eventually(lambda: "nodeSelector disk" in reasons(kube, "refused").get("RotaRefuses", ""))
    eventually(lambda: condition(kube, "JobSet", "refused").get("status") == "False")
    make(kube, tmp_path, "JobSet", "none", 0, queue="product")
    eventually(lambda: "no GPU" in reasons(kube, "none").get("RotaRefuses", ""))
    make(kube, tmp_path, "JobSet", "set", 2, 2, queue="product", go="go-set")
    wait_for(daemon, set="RUNNING")  # its share: one of the others waits again
    (gone,) = (name for name in ("torch", "ray") if jobs(daemon)[name].state == "PENDING")
    kind = {"torch": "PyTorchJob", "ray": "RayJob"}[gone]
    assert KINDS[kind].suspended(found(kube, kind, gone))
    assert nodes_of(kube, gone) == []
    assert len(set(nodes_of(kube, "set"))) == 1
    eventually(lambda: condition(kube, "JobSet", "set").get("status") == "True")
    make(kube, tmp_path, "Job/parallelism", "wide", 1, 3, queue="product", code=3)
    wait_for(daemon, wide="PENDING")
    eventually(lambda: any("of Rota waits" in text for text in reasons(kube, "wide").values()))
    assert found(kube, "Job/parallelism", "wide")["spec"]["parallelism"] == 0
    daemon.kill()
    (tmp_path / "go-set").touch()  # it ends while nobody looks
    daemon.start()
    (tmp_path / "go").touch()
    (tmp_path / "go-ray").touch()
    wait_for(daemon, set="SUCCEEDED", torch="SUCCEEDED", ray="SUCCEEDED", wide="FAILED")
    assert sorted(jobs(daemon)) == ["ray", "set", "torch", "wide"]
    assert jobs(daemon)[gone].preemptions == 1
    assert kube.controllers.made["set"] == 2
    once = dict.fromkeys(jobs(daemon), 1)
    eventually(lambda: {name: kube.controllers.ended[name] for name in once} == once)
    eventually(lambda: not found(kube, "JobSet", "set")["metadata"].get("finalizers"))


def test_what_others_do_to_an_object_is_understood(kube, serve, tmp_path):
    eager = make(kube, tmp_path, "PyTorchJob", "eager", 4, go="never")
    eager["spec"]["runPolicy"]["suspend"] = False  # nobody asked Rota
    kube.api.replace(path("PyTorchJob", "eager"), eager)
    daemon = serve("fifo")
    eventually(lambda: "RotaSuspended" in reasons(kube, "eager"))
    wait_for(daemon, eager="RUNNING")
    make(kube, tmp_path, "PyTorchJob", "second", 4, 2)
    wait_for(daemon, second="PENDING")
    make(kube, tmp_path, "PyTorchJob", "withdrawn", 1)
    wait_for(daemon, withdrawn="PENDING")
    kube.api.delete(path("PyTorchJob", "withdrawn"))
    wait_for(daemon, withdrawn="CANCELLED")
    kube.api.delete(path("PyTorchJob", "eager"))  # it runs
    wait_for(daemon, eager="FAILED", second="RUNNING")
    assert "was deleted" in jobs(daemon)["eager"].message
    (tmp_path / "go").touch()
    wait_for(daemon, second="SUCCEEDED")


def test_a_daemon_killed_at_any_moment_neither_loses_nor_doubles_an_object(kube, serve, tmp_path):
    daemon = serve("fifo")
    names = [f"k{number}" for number in range(8)]
    before = kube.controllers.made.total()
    for number, name in enumerate(names):
        make(kube, tmp_path, QUEUED[number % 4], name, 1 + number % 2, 1 + number % 2)
        if number % 4 == 1:  # it may have seen none of them, or be about to start one
            daemon.kill()
            daemon.start()
    daemon.kill()
    (tmp_path / "go").touch()
    daemon.start()
    wait_for(daemon, **dict.fromkeys(names, "SUCCEEDED"))
    assert sorted(info.name for info in daemon.client.jobs()) == names
    eventually(lambda: [kube.controllers.ended[name] for name in names] == [1] * len(names))
    assert kube.controllers.made.total() - before == 12


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
def test_sixty_objects_and_twenty_kills(kube, serve, tmp_path, policy):
    daemon, draw = serve(policy), random.Random(2)  # noqa: S311 - repeatable
    count, kills = 60, 20
    names = [f"s{number:02}" for number in range(count)]
    before = Counter(kube.controllers.ended)  # under another policy they had the same names
    for number, name in enumerate(names):  # three of them may end after each kill
        gpus, pods = draw.choice(((1, 1), (1, 4), (2, 1), (2, 2), (4, 1)))
        make(kube, tmp_path, QUEUED[number % 4], name, gpus, pods, go=f"go-{number // 3}",
             queue=draw.choice(("research", "product")))  # fmt: skip
    eventually(lambda: state_counts(daemon)["RUNNING"] >= 2)
    for number in range(kills):
        if number in (kills // 3, 2 * kills // 3):
            restart_server(kube)
        if number == kills // 2:
            lose_n2(kube, daemon)
        time.sleep(draw.random() * 0.5)  # any instant will do
        daemon.kill()
        (tmp_path / f"go-{number}").touch()
        daemon.start()
    wait_for(daemon, **dict.fromkeys(names, "SUCCEEDED"))
    assert sorted(info.name for info in daemon.client.jobs()) == names
    eventually(lambda: kube.controllers.ended - before == dict.fromkeys(names, 1))
    eventually(lambda: not any(
        item["metadata"].get("finalizers") for found in objects(kube).values() for item in found
    ))  # fmt: skip
    eventually(lambda: kube.kubelets.running() == [])


def test_what_a_queue_may_not_do_or_the_server_lacks_is_named_at_start(kube, tmp_path):
    def refusal(kubeconfig, *kinds):
        options = KubernetesOptions(kubeconfig=str(kubeconfig), image="none", queue_kinds=kinds)
        driver = KubernetesDriver("x", tmp_path, options)
        with pytest.raises(ClusterError) as refused:
            driver.preflight()
        driver.api.close()
        return str(refused.value)

    said = refusal(kube.half, "Job", *CUSTOM)
    needed = [*QUEUEING, *(right for name in ("Job", *CUSTOM) for right in rights(KINDS[name]))]
    assert all(f"{verb} {what}" in said for _, what, verbs in needed for verb in verbs)
    assert "list nodes" not in said
    said = refusal(kube.granted, "Job", "JobSet")  # this server is of version 1.20
    assert "drops spec.suspend of Job (batch/v1)" in said
    assert "JobSet" not in said
    assert "'Cronjob'" in refusal(kube.granted, "Cronjob")


GROUPS = {
    "ServiceAccount": "/api/v1", "ConfigMap": "/api/v1", "Service": "/api/v1", "Pod": "/api/v1",
    "StatefulSet": "/apis/apps/v1", "Job": "/apis/batch/v1", "ClusterRole": RULES, "Role": RULES,
    "ClusterRoleBinding": RULES, "RoleBinding": RULES,
}  # fmt: skip
NEWER = {"suspend", "completionMode"}  # than the server of the tests


def unkept(given, kept, where=""):
    """Fields that the server dropped: it does not know them."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key in kept:
                yield from unkept(value, kept[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}"
    elif isinstance(given, list) and isinstance(kept, list):
        for one, other in zip(given, kept, strict=True):
            yield from unkept(one, other, where)


def test_the_server_knows_every_field_of_the_manifests(kube):
    files = sorted(EXAMPLES.glob("*.yaml"))
    items = [(file.name, item) for file in files for item in yaml.safe_load_all(file.read_text())]
    assert len(items) > len(files)
    for number, (name, item) in enumerate(items):
        if item["kind"] == "PyTorchJob":
            continue  # a custom resource of the tests keeps everything
        item["metadata"]["name"] += f"-{number}-tried"
        space = item["metadata"].get("namespace")
        where = f"/namespaces/{space}" if space else ""
        kept = kube.api.create(
            f"{GROUPS[item['kind']]}{where}/{item['kind'].lower()}s", item, dryRun="All"
        )
        dropped = {field.rpartition(".")[2] for field in unkept(item, kept)}
        assert dropped <= NEWER, f"{name}: {dropped}"
