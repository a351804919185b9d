"""Objects that wait suspended: what they ask for, how they are started, how they ended."""

import pytest

from rota.live.drivers.kubernetes.api import KubeError
from rota.live.drivers.kubernetes.preflight import lacks
from rota.live.drivers.kubernetes.queued import (
    KINDS,
    origin_key,
    read_queued,
    released,
    taken,
)

GPU = "nvidia.com/gpu"
MUST = "requiredDuringSchedulingIgnoredDuringExecution"


def template(gpus=1, **spec):
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "2"} if gpus else {"cpu": "1"}
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": amounts}}], **spec}}


def item(kind, spec, *, annotations=None, **status):
    about = {"name": "train", "namespace": "lab", "uid": "u1", "resourceVersion": "7",
             "labels": {"rota.dev/queue": "research"},
             "annotations": annotations or {}}  # fmt: skip
    return {"kind": KINDS[kind].kind, "metadata": about, "spec": spec, "status": status}


def job(**more):
    return item("Job", {"suspend": True, "parallelism": 4, "template": template(2), **more})


WIDE = template(2, schedulerName="rota")
WIDE["metadata"] = {"labels": {"rota.dev/queued-run": "x"}}
MIG = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}]}}
SHAPES = {
    "Job": job(completions=3),
    "Job/parallelism": item(
        "Job/parallelism",
        {"parallelism": 0, "template": WIDE},
        annotations={"rota.dev/parallelism": "3"},
    ),
    "JobSet": item(
        "JobSet",
        {
            "suspend": True,
            "replicatedJobs": [
                {"replicas": 1, "template": {"spec": {"template": template(0)}}},
                {"replicas": 3, "template": {"spec": {"template": WIDE}}},
            ],
        },
    ),
    "PyTorchJob": item(
        "PyTorchJob",
        {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {
                "Master": {"template": template(2)},
                "Worker": {"replicas": 2, "template": template(2)},
            },
        },
    ),
    "RayJob": item(
        "RayJob",
        {
            "suspend": True,
            "rayClusterSpec": {
                "headGroupSpec": {"template": template(0)},
                "workerGroupSpecs": [{"replicas": 3, "template": template(2)}],
            },
        },
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_all_its_pods_with_gpus_are_one_job(name):
    kind, made = KINDS[name], SHAPES[name]
    assert kind.handles(made)
    assert kind.suspended(made)
    work = read_queued(kind, made, "rota", GPU)
    assert (work.parts, work.gpus, work.cpus, work.refused) == (3, 2, 2, "")
    assert (work.queue, work.owner, work.name, work.resumed) == (
        "research", "k8s.lab", "train", True
    )  # fmt: skip
    assert origin_key(work.origin) == (name, ("lab", "train"), "u1")


@pytest.mark.parametrize("name", SHAPES)
def test_one_change_starts_it_for_a_run_and_another_lets_it_go(name):
    kind, before = KINDS[name], SHAPES[name]
    made = taken(kind, before, "s", "17.2", ["n1", "n2"])
    assert kind.suspended(before), "the object of the cache was changed"
    assert not kind.suspended(made)
    assert made["metadata"]["annotations"]["rota.dev/taken-run"] == "17.2"
    assert made["metadata"]["finalizers"] == ["rota.dev/run"]
    assert made["metadata"]["resourceVersion"] == "7"
    pods = [each for each, _ in kind.pod_sets(made) if "metadata" in each]
    assert bool(pods)
    for each in pods:
        affinity = each["spec"].get("affinity", {}).get("nodeAffinity", {}).get(MUST)
        nodes = [term["matchFields"][0]["values"] for term in (affinity or {}).get(
            "nodeSelectorTerms", [])]  # fmt: skip
        assert nodes == ([["n1"], ["n2"]] if kind.aim == "affinity" else [])
        marked = each["metadata"]["labels"].get("rota.dev/queued-by")
        assert marked == (None if kind.aim == "nothing" else "s")
    assert read_queued(kind, made, "rota", GPU).refused == "", "it cannot be started again"
    again = kind.turned(made, off=True)
    assert kind.suspended(again)
    assert released(again)["metadata"]["finalizers"] == []
    assert "rota.dev/taken-run" not in released(again)["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (job(parallelism=0), "are 0"),
        (job(parallelism="many"), "not a number"),
        (job(template=template(0)), "no GPU"),
        (job(template=MIG), "nvidia.com/mig-1g.5gb: this queue hands out nvidia.com/gpu only"),
        (job(template=template(nodeSelector={"disk": "fast"})), "nodeSelector disk"),
        (job(template=template(affinity={"nodeAffinity": {MUST: {"a": 1}}})), "nodeAffinity"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(made, why):
    assert why in read_queued(KINDS["Job"], made, "", GPU).refused


def test_pods_of_different_sizes_and_pods_that_could_not_be_placed_are_refused():
    spec = {"pytorchReplicaSpecs": {"A": {"template": template(1)}, "B": {"template": template(2)}}}
    work = read_queued(KINDS["PyTorchJob"], item("PyTorchJob", spec), "", GPU)
    assert "different numbers" in work.refused
    spec = {"pytorchReplicaSpecs": {"A": {"template": template("two")}}}
    work = read_queued(KINDS["PyTorchJob"], item("PyTorchJob", spec), "", GPU)
    assert work.refused == f"it asks for {GPU}: 'two', which is no amount: correct it"
    assert "schedulerName: rota" in read_queued(KINDS["JobSet"], SHAPES["JobSet"], "", GPU).refused
    spec = {"parallelism": 0, "template": template(2, schedulerName="rota")}
    bare = item("Job/parallelism", spec, annotations={"rota.dev/parallelism": "3"})
    refused = read_queued(KINDS["Job/parallelism"], bare, "rota", GPU).refused
    assert "rota.dev/queued-run" in refused
    assert not KINDS["Job"].handles(bare)


def condition(name, status="True"):
    return {"type": name, "status": status, "reason": "Why", "message": "so"}


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("Job", {"conditions": [condition("Complete")]}, 0),
        ("Job", {"conditions": [condition("Failed")]}, 1),
        ("Job", {"conditions": [condition("Failed", "False"), condition("Suspended")]}, None),
        ("JobSet", {"conditions": [condition("Completed")]}, 0),
        ("PyTorchJob", {"conditions": [condition("Succeeded")]}, 0),
        ("RayJob", {"jobStatus": "SUCCEEDED"}, 0),
        ("RayJob", {"jobStatus": "FAILED", "message": "so"}, 1),
        ("RayJob", {"jobStatus": "", "jobDeploymentStatus": "Suspended"}, None),
    ],
)
def test_how_it_ended_is_in_its_status(name, status, code):
    end = KINDS[name].end(item(name, {}, **status))
    assert (end and end.code) == code
    if code:
        assert "so" in end.why
    if code is None:
        assert KINDS[name].stopped(item(name, {}, **status))


class Server:
    """An API server that serves RayJobs, and whose description of them has these fields."""

    def __init__(self, **fields):
        spec = {"properties": fields} if fields else {}
        about = {"group": "ray.io", "version": "v1", "kind": "RayJob"}
        self.known = {"io.ray.v1.RayJob": {
            "properties": {"spec": {"$ref": "#/definitions/Spec"}},
            "x-kubernetes-group-version-kind": [about],
        }, "Spec": spec}  # fmt: skip

    def get(self, path):
        if path == "/openapi/v2":
            return {"definitions": self.known}
        if path == "/apis/ray.io/v1":
            return {"resources": [{"name": "rayjobs"}]}
        raise KubeError(path, 404)


def test_what_a_server_lacks_is_named():
    assert lacks(Server(suspend={}), KINDS["RayJob"]) == ""
    assert lacks(Server(), KINDS["RayJob"]) == "", "it does not say: it may keep everything"
    assert "drops spec.suspend of RayJob" in lacks(Server(entrypoint={}), KINDS["RayJob"])
    assert lacks(Server(), KINDS["JobSet"]) == "JobSet (jobset.x-k8s.io/v1alpha2) is not installed"
