"""What shadow mode sees of a Kubernetes."""

import pytest

from rota.core.errors import ClusterError
from rota.live.drivers.kubernetes.options import KubernetesOptions
from rota.live.drivers.kubernetes.shadow import KubeQueries
from rota.live.drivers.slurm.shadow import SlurmShadow, named


def pod(name, gpus=1, node="", phase="Pending", **about):
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    at = "2026-01-01T00:00:10Z"
    told = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}] if node else []
    return {
        "metadata": {"name": name, "namespace": "lab", "uid": f"uid-{name}",
                     "creationTimestamp": "2026-01-01T00:00:00Z", **about},
        "spec": {"containers": [{"resources": {"limits": limits}}], "nodeName": node},
        "status": {"phase": phase, "conditions": told},
    }  # fmt: skip


def node(name, gpus=4, *, ready="True", **spec):
    conditions = [{"type": "Ready", "status": ready}]
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


class Server:
    def __init__(self, pods, nodes):
        self.lists = {"/api/v1/pods": pods, "/api/v1/nodes": nodes}

    def pages(self, path):
        return self.lists[path], "1"


def queries(pods, nodes):
    return KubeQueries(Server(pods, nodes), KubernetesOptions())


def test_pods_of_a_gang_are_one_job_that_waits_until_all_have_a_node():
    gang = {"labels": {"pod-group-name": "g"}}
    found = queries(
        [pod("a", 2, "n1", "Running", **gang), pod("b", 2, **gang), pod("c", 0),
         pod("d", 1, "n2", "Running"), pod("e", 1, "n2", "Succeeded")], [],
    )  # fmt: skip
    jobs = {job.name.partition(" ")[0]: job for job in found.jobs()}
    assert {name: (job.state, job.gpus) for name, job in jobs.items()} == {
        "lab/g": ("PENDING", 4), "lab/d": ("RUNNING", 1), "lab/e": ("COMPLETED", 1),
    }  # fmt: skip
    assert (jobs["lab/d"].nodes, jobs["lab/d"].node_gpus) == (("n2",), (1,))
    assert jobs["lab/d"].start_s - jobs["lab/d"].submit_s == 10
    again = {job.name.partition(" ")[0]: job.id for job in found.jobs()}
    assert again == {name: job.id for name, job in jobs.items()}, "a job has another number"


def test_nodes_that_are_cordoned_or_silent_take_nothing():
    nodes = [node("n1"), node("n2", unschedulable=True), node("n3", ready="False"), node("n4", 0)]
    seen = {each.name: each.health for each in queries([], nodes).nodes()}
    assert seen == {"n1": "up", "n2": "silent", "n3": "silent"}
    with pytest.raises(ClusterError, match=r"no node of this cluster has nvidia\.com/gpu"):
        queries([], []).nodes()


def test_what_kubernetes_starts_is_compared_with_what_rota_would_have_started():
    nodes = [node("n1"), node("n2", unschedulable=True)]
    first, second = pod("first", 4), pod("second", 4)
    second["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    server = Server([first, second], nodes)
    found = KubeQueries(server, KubernetesOptions())
    watcher = SlurmShadow(found, "fifo")
    look = named(watcher.look(), found.names)
    assert look.wish.starts == {"lab/first": {"n1": 4}}
    server.lists["/api/v1/pods"] = [first, pod("second", 4, "n1", "Running")]
    look = named(watcher.look(), found.names)
    assert (look.only_slurm, look.only_rota) == (["lab/second"], ["lab/first"])
    assert watcher.totals.only_slurm == 1
