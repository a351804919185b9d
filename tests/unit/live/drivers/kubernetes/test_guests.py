"""What a pod that somebody else made asks of Rota."""

import pytest

from rota.live.drivers.kubernetes.guests import read_work, waits

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"


def pod(name="p", gpus=1, *, resource=GPU, owner="", labels=None, annotations=None, **spec):
    about = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "labels": labels or {},
             "annotations": annotations or {}}  # fmt: skip
    if owner:
        about["ownerReferences"] = [{"kind": owner, "uid": "u", "controller": True}]
    limits = {resource: str(gpus), "cpu": "500m", "memory": "2Gi"}
    container = {"name": "c", "resources": {"limits": limits}}
    return {"metadata": about, "spec": {"containers": [container], **spec}, "status": {}}


def test_a_pod_alone_is_work_of_its_own():
    asked = {"rota.dev/queue": "research", "rota.dev/priority-class": "urgent"}
    chosen = {"nvidia.com/gpu.product": "a100"}
    made = pod(gpus=2, labels=asked, nodeSelector=chosen, terminationGracePeriodSeconds=7)
    work = read_work([made], GPU)
    assert (work.key, work.origin, work.owner) == ("uid-p", "pod lab/uid-p", "k8s.lab")
    assert (work.queue, work.priority_class, work.gpu_type) == ("research", "urgent", "a100")
    assert (work.parts, work.gpus, work.cpus, work.mem_gib) == (1, 2, 0.5, 2)
    assert (work.grace_s, work.repeated, work.refused) == (7, False, "")


@pytest.mark.parametrize(
    ("owner", "said", "repeated"),
    [("Job", "", True), ("StatefulSet", "", True), ("Workflow", "", False), ("", "", False),
     ("Workflow", "true", True), ("Job", "false", False)],
)  # fmt: skip
def test_who_is_made_again_can_be_preempted(owner, said, repeated):
    work = read_work([pod(owner=owner, annotations={"rota.dev/preemptible": said})], GPU)
    assert work.repeated is repeated


def gang(*pods, size="2"):
    about = {"labels": {"rota.dev/gang": "g"}, "annotations": {"rota.dev/gang-size": size}}
    return [pod(name, gpus, **about) for name, gpus in pods]


def test_a_gang_is_one_thing():
    work = read_work(gang(("b", 2), ("a", 2)), GPU)
    assert (work.key, work.origin, work.name, work.parts) == ("uid-a", "gang lab/g", "g", 2)
    assert (work.gpus, work.refused) == (2, "")


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([pod(gpus=0)], "no GPU"),
        ([pod(resource=MIG)], "it asks for nvidia.com/mig-1g.5gb"),
        ([pod("a"), pod("b", resource=MIG)], "different things"),
        ([pod(nodeSelector={"disk": "fast"})], "nodeSelector disk"),
        (gang(("a", 1), ("b", 2)), "different things"),
        (gang(("a", 1), size="many"), "rota.dev/gang-size"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(pods, why):
    assert why in read_work(pods, GPU).refused


def test_required_affinities_are_refused_and_preferred_ones_are_not():
    must, may = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnored"
    assert (
        "nodeAffinity" in read_work([pod(affinity={"nodeAffinity": {must: {"a": 1}}})], GPU).refused
    )
    assert read_work([pod(affinity={"nodeAffinity": {may: [{"a": 1}]}})], GPU).refused == ""


def test_a_pod_waits_until_it_has_a_node_or_is_deleted():
    assert waits(pod())
    assert not waits(pod(nodeName="n1"))
    deleted = pod()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not waits(deleted)


def test_instances_of_mig_are_gpus_where_they_are_handed_out():
    work = read_work([pod(gpus=2, resource=MIG)], MIG)
    assert (work.gpus, work.refused) == (2, "")
    shared = "nvidia.com/gpu.shared"
    assert read_work([pod(resource=shared)], shared).gpus == 1
    assert "it asks for nvidia.com/gpu:" in read_work([pod()], MIG).refused
