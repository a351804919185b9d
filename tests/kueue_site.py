"""A small site of Kueue, made up: queues with quotas, and workloads that they made wait."""


def at(seconds):
    return f"2026-03-02T08:{seconds // 60:02d}:{seconds % 60:02d}Z"


def node(name, gpus=8, **labels):
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def quota(nominal, borrow=None, lend=None, resource="nvidia.com/gpu"):
    given = {"nominalQuota": nominal, "borrowingLimit": borrow, "lendingLimit": lend}
    return {"name": resource} | {key: value for key, value in given.items() if value is not None}


def groups(**flavors):
    return [{"flavors": [{"name": name, "resources": [one]} for name, one in flavors.items()]}]


def cluster_queue(name, cohort="", preemption=None, **flavors):
    spec = {"cohortName": cohort, "resourceGroups": groups(**flavors)}
    if preemption:
        spec["preemption"] = preemption
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def cohort(name, parent="", **flavors):
    spec = {"parentName": parent, "resourceGroups": groups(**flavors)}
    return {"kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def local_queue(name, queue, namespace="lab"):
    about = {"name": name, "namespace": namespace}
    return {"kind": "LocalQueue", "metadata": about, "spec": {"clusterQueue": queue}}


def flavor(name, **labels):
    about = {"name": name}
    return {"kind": "ResourceFlavor", "metadata": about, "spec": {"nodeLabels": labels}}


def workload(name, queue, gpus, *, created=0, start, end, given="default", **more):
    """Return one that was admitted at `start` and over at `end`."""
    told = {"Admitted": start, "Finished": end}
    container = {"resources": {"requests": {"nvidia.com/gpu": str(gpus)} | more.get("asks", {})}}
    sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"nvidia.com/gpu": given}}],
    }
    return {
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "lab", "creationTimestamp": at(created)},
        "spec": {"queueName": f"of-{queue}", "priority": 0, "podSets": sets},
        "status": {
            "admission": admission,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": at(time_s)}
                for kind, time_s in told.items()
            ],
        },
    }
