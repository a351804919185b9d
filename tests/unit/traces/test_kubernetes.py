"""Lists of pods: a test per quirk, on pods that we made up."""

import json
import zipfile

import pytest
import yaml

from rota.core.errors import ClusterSpecError, TraceError
from rota.core.events import INF
from rota.core.kubernetes import quantity
from rota.traces.formats.kubernetes.pods import FORMAT
from rota.traces.sniff import first_look
from trace_readers import counted


def at(seconds):
    return f"2026-03-02T08:{seconds // 60:02d}:{seconds % 60:02d}Z"


def pod(name, *, gpus="1", start=10, end=100, phase="Succeeded", owner=None, labels=None, **more):
    """Return a pod that was created at 0, scheduled at `start` and over at `end`."""
    ended = {"terminated": {"startedAt": at(start + 5), "finishedAt": at(end), "exitCode": 0}}
    kind, _, job = (owner or "").partition("/")
    state = ended if phase in ("Succeeded", "Failed") else {"running": {"startedAt": at(start + 5)}}
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": more.get("namespace", "lab"),
            "creationTimestamp": at(more.get("created", 0)), "labels": labels or {},
            "annotations": more.get("annotations", {}),
            "ownerReferences": [
                {"kind": kind, "name": job, "controller": True}
            ] if owner else [],
        },
        "spec": {
            "nodeName": more.get("node", "n1"), "priority": more.get("priority", 0),
            "containers": more.get("containers", [
                {"resources": {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": limits}}
            ]),
        },
        "status": {
            "phase": phase, "reason": more.get("reason", ""),
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(start)}
            ],
            "containerStatuses": [{"state": state}],
        },
    }  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Return `read(*items, **options)`: what is imported."""

    def run(*items, **options):
        path = tmp_path / "pods.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        imported = FORMAT.load(path, options)
        assert counted(imported.quality)
        return imported

    return run


def jobs(imported, *columns):
    return imported.jobs.select("job_id", *columns).rows()


def test_a_pod_is_a_job(read):
    imported = read(pod("a", gpus="2", priority=7))
    assert jobs(
        imported, "submit_s", "num_gpus", "duration_s", "vc", "cpus", "mem_gib", "priority"
    ) == [("lab/a", 0.0, 2.0, 90.0, "lab", 0.5, 2.0, 7)]
    assert imported.observed.frame.select("start_s", "end_s", "nodes", "gpus", "state").rows() == [
        (10.0, 100.0, ["n1"], [2.0], "done")
    ]


JOBSET = {"jobset.sigs.k8s.io/jobset-name": "big", "batch.kubernetes.io/job-name": "big-w-0"}


@pytest.mark.parametrize(
    ("owner", "labels"),
    [
        ("Job/big", {"job-name": "big"}),
        ("Job/big", {}),
        ("PyTorchJob/big", {"training.kubeflow.org/job-name": "big"}),
        ("Job/big-w-0", JOBSET),
        ("Job/x", {"volcano.sh/job-name": "big"}),
        (None, {"scheduling.x-k8s.io/pod-group": "big"}),
    ],
)
def test_pods_of_one_owner_that_ran_together_are_a_gang(read, owner, labels):
    imported = read(
        pod("w0", owner=owner, labels=labels, gpus="4", start=10),
        pod("w1", owner=owner, labels=labels, gpus="4", start=20, node="n2", end=90),
    )
    assert jobs(imported, "num_gpus", "duration_s") == [("lab/big", 8.0, 80.0)]
    assert imported.observed.frame.select("start_s", "nodes", "gpus").rows() == [
        (20.0, ["n1", "n2"], [4.0, 4.0])
    ]
    assert imported.quality.dropped == {"pod of a gang, counted with the first": 1}


def test_pods_of_one_job_that_ran_one_after_the_other_are_jobs(read):
    imported = read(
        pod("w0", owner="Job/many", start=10, end=20), pod("w1", owner="Job/many", start=30, end=40)
    )
    assert jobs(imported) == [("lab/many/w0",), ("lab/many/w1",)]


def test_pods_of_a_replica_set_are_jobs_and_daemons_are_left_out(read):
    imported = read(
        pod("a", owner="ReplicaSet/r"),
        pod("b", owner="ReplicaSet/r"),
        pod("d", owner="DaemonSet/d"),
    )
    assert jobs(imported) == [("lab/a",), ("lab/b",)]
    assert imported.quality.dropped == {"pod of a DaemonSet": 1}


def test_a_pod_with_the_index_of_another_is_its_next_attempt(read):
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    imported = read(
        pod("w-a", owner="Job/j", labels=index, phase="Failed", start=10, end=30),
        pod("w-b", owner="Job/j", labels=index, created=31, start=40, end=100),
    )
    assert jobs(imported, "submit_s", "num_gpus", "duration_s") == [("lab/j", 0.0, 1.0, 60.0)]
    assert imported.observed.frame.select("attempt", "start_s", "state").rows() == [
        (0, 10.0, "failed"),
        (1, 40.0, "done"),
    ]


@pytest.mark.parametrize(
    ("mark", "where"),
    [
        ("kueue.x-k8s.io/queue-name", "labels"),
        ("volcano.sh/queue-name", "labels"),
        ("scheduling.volcano.sh/queue-name", "annotations"),
        ("kai.scheduler/queue", "labels"),
    ],
)
def test_the_queue_is_the_tenant(read, mark, where):
    item = pod("a", **{where: {mark: "team-a"}})
    assert jobs(read(item), "vc") == [("lab/a", "team-a")]
    assert jobs(read(item, tenant="namespace"), "vc") == [("lab/a", "lab")]


def test_gpus_of_other_makers_and_slices_of_gpus(read):
    slices = {"nvidia.com/mig-3g.20gb": "1", "cpu": "1"}
    items = [
        pod("amd", containers=[{"resources": {"limits": {"amd.com/gpu": "2"}}}]),
        pod("mig", containers=[{"resources": {"limits": slices}}]),
        pod("two", containers=[{"resources": {"limits": {"nvidia.com/gpu": n}}} for n in "12"]),
        pod("none", gpus=None),
    ]
    assert jobs(read(*items), "num_gpus") == [
        ("lab/amd", 2.0), ("lab/mig", pytest.approx(3 / 7, abs=1e-5)), ("lab/two", 3.0),
        ("lab/none", 0.0),
    ]  # fmt: skip
    assert dict(jobs(read(*items, mig="whole"), "num_gpus"))["lab/mig"] == 1.0


def test_parts_of_gpus_are_counted_in_the_report(read):
    def asks(**limits):
        return [{"resources": {"limits": limits}}]

    items = (
        pod("a", containers=asks(**{"nvidia.com/mig-1g.5gb": "1"})),
        pod("b", containers=asks(**{"nvidia.com/gpu.shared": "1"})),
        pod("c"),
    )
    assert read(*items).quality.repaired == {
        "pods with slices of MIG: counted as sevenths of a GPU": 1,
        "pods with GPUs shared by time slicing: counted as whole GPUs": 1,
    }
    whole = read(*items, mig="whole").quality.repaired
    assert whole["pods with slices of MIG: counted as GPUs (mig=whole)"] == 1
    assert len(read(*items, gpu_only="yes")) == 3


def test_pods_that_were_never_scheduled_are_left_out(read):
    waits = pod("p", phase="Pending")
    waits["status"] = {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    ]}  # fmt: skip
    imported = read(pod("a"), waits)
    assert imported.quality.dropped == {"never scheduled": 1}


def test_running_pods_are_cut_at_the_latest_time(read):
    items = [pod("a", end=300), pod("r", phase="Running", start=50)]
    imported = read(*items)
    assert dict(jobs(imported, "duration_s"))["lab/r"] == 250.0
    assert imported.observed.frame["end_s"].to_list() == [300.0, None]
    assert len(read(*items, unfinished="drop")) == 1


@pytest.mark.parametrize(
    ("reason", "state"),
    [("Evicted", "preempted"), ("NodeLost", "node-fail"), ("DeadlineExceeded", "timeout"),
     ("", "failed")],
)  # fmt: skip
def test_how_pods_end(read, reason, state):
    imported = read(pod("a", phase="Failed", reason=reason))
    assert imported.observed.frame["state"].to_list() == [state]


def test_an_evicted_pod_ends_with_its_last_condition(read):
    gone = pod("a", phase="Failed", reason="Evicted")
    del gone["status"]["containerStatuses"]
    gone["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at(70)}
    )
    assert read(gone).observed.frame.select("end_s", "state").rows() == [(70.0, "preempted")]


def test_events_tell_when_a_pod_was_scheduled(read, tmp_path):
    silent = pod("a")
    silent["status"]["conditions"] = []
    event = {
        "kind": "Event", "reason": "Scheduled", "firstTimestamp": at(25),
        "involvedObject": {"kind": "Pod", "namespace": "lab", "name": "a"},
    }  # fmt: skip
    imported = read(silent, event)
    assert imported.observed.frame["start_s"].to_list() == [25.0]
    assert imported.quality.dropped == {"not a pod, but a Event": 1}
    file = tmp_path / "events.json"
    file.write_text(json.dumps({"items": [event]}))
    assert read(silent, events=str(file)).observed.frame["start_s"].to_list() == [25.0]


def test_nodes_make_a_cluster(read, tmp_path):
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"items": [{
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "A100"}},
        "status": {"capacity": {"nvidia.com/gpu": "9"}, "allocatable": {
            "nvidia.com/gpu": "8", "cpu": "63500m", "memory": "262144Mi"}},
    }]}))  # fmt: skip
    (node,) = read(pod("a"), nodes=str(file)).cluster
    assert (node.name, node.gpus, node.gpu_type, node.cpus, node.mem_gib) == (
        "n1", 8, "A100", 63.5, 256.0,
    )  # fmt: skip
    listed = {"apiVersion": "v1", **json.loads(file.read_text())}
    as_yaml = file.with_suffix(".yaml")
    as_yaml.write_text(yaml.safe_dump(listed))
    assert read(pod("a"), nodes=str(as_yaml)).cluster == (node,)
    as_yaml.write_text("nodes: [{name: n1, gpus: 8}]")  # a cluster file is one still
    assert [one.gpus for one in read(pod("a"), nodes=str(as_yaml)).cluster] == [8]
    file.write_text('{"items": []}')
    with pytest.raises(ClusterSpecError, match="lists no nodes"):
        read(pod("a"), nodes=str(file))


def test_what_is_no_pod_is_refused_or_dropped(read):
    with pytest.raises(TraceError, match=r"items\[1\]: .*bad=drop"):
        read(pod("a"), {"kind": "Pod", "metadata": {"name": "x"}})
    imported = read(pod("a"), {"kind": "Pod"}, bad="drop")
    assert imported.quality.dropped == {"pod without a name or a time of creation": 1}


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("2", 2.0), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000.0), ("1k", 1000.0), (4, 4.0),
     (".5", 0.5), ("1mi", 0.0), ("1Zi", 0.0),
     ("-1", 0.0), ("x", 0.0), (None, 0.0), (True, 0.0), ("9" * 40, 0.0), ("1e99", 0.0)],
)  # fmt: skip
def test_quantities(text, number):
    assert quantity(text) == number


def test_the_format_is_recognised(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod("a")]}))
    assert FORMAT.recognises(first_look(path)) == 1.0
    path.write_text('{"jobs": []}')
    assert FORMAT.recognises(first_look(path)) < 0.5


@pytest.mark.parametrize(
    ("kinds", "list_kind", "says"),
    [
        (["Job", "Deployment", "Job"], "List", "holds 2 Job and 1 Deployment, no pods"),
        ([None, None], "JobList", "holds 2 Job, no pods"),
        (["Node"], "List", "the nodes belong to the option nodes="),
        (["Event"], "List", "the events belong to the option events="),
        ([], "List", "holds nothing, no pods"),
    ],
)
def test_lists_of_other_things_are_refused_with_the_command_for_pods(
    tmp_path, kinds, list_kind, says
):
    about = {"name": "a", "namespace": "n", "creationTimestamp": "2026-03-02T08:00:00Z"}
    items = [{"metadata": about} | ({"kind": kind} if kind else {}) for kind in kinds]
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": list_kind, "items": items}))
    with pytest.raises(TraceError, match=r"kubectl get pods --all-namespaces -o json") as told:
        FORMAT.load(path, {})
    assert says in str(told.value)


# --- Kueue and KAI --------------------------------------------------------------------------------


def workload(name, count=2, gpus=4, *, start=None, end=None, evicted=False, nodes=None, **ended):
    told = {"Admitted": start, "Finished": end, "Evicted": 5 if evicted else None}
    given = {"name": "main", "count": count}
    if nodes:
        given["topologyAssignment"] = {
            "levels": ["rack", "kubernetes.io/hostname"],
            "domains": [{"values": ["r1", node], "count": many} for node, many in nodes.items()],
        }
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": at(time_s), "reason": "x"} | (
            ended if kind == "Finished" else {})
        for kind, time_s in told.items() if time_s is not None
    ]  # fmt: skip
    container = {"resources": {"requests": {"nvidia.com/gpu": str(gpus), "cpu": "1"}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
        "metadata": {"name": name, "namespace": "lab", "creationTimestamp": at(0),
                     "ownerReferences": [{"kind": "Job", "name": name}]},
        "spec": {"queueName": "team", "priority": 7, "podSets": [
            {"name": "main", "count": count, "template": {"spec": {"containers": [container]}}}]},
        "status": {"conditions": conditions, "admission": {"podSetAssignments": [given]}},
    }  # fmt: skip


def test_workloads_of_kueue_run_from_admission_to_end(read):
    quota = {"name": "nvidia.com/gpu", "nominalQuota": "8"}
    queue = {"kind": "ClusterQueue", "metadata": {"name": "big"}, "spec": {
        "resourceGroups": [{"flavors": [{"name": "a100", "resources": [quota]}]}]}}  # fmt: skip
    imported = read(
        workload("a", start=10, end=70, nodes={"n1": 1, "n2": 1}),
        workload("b", 1, start=20, end=30, reason="Failed"),
        workload("c", 1, start=40, evicted=True),
        workload("never"),
        queue, {"kind": "Cohort"}, {"kind": "Topology"},
    )  # fmt: skip
    assert sorted(jobs(imported, "num_gpus", "duration_s", "vc")) == [
        ("lab/a", 8.0, 60.0, "team"), ("lab/b", 4.0, 10.0, "team"), ("lab/c", 4.0, 30.0, "team"),
    ]  # fmt: skip
    seen = imported.observed.frame.sort("start_s")
    assert seen["start_s"].to_list() == [10.0, 20.0, 40.0]
    assert seen["state"].to_list() == ["done", "failed", "running"]
    assert seen["nodes"].to_list()[0] == ["n1", "n2"]
    assert imported.quality.dropped == {
        "Workload that was never admitted": 1, "not a pod, but a ClusterQueue": 1,
        "not a pod, but a Cohort": 1, "not a pod, but a Topology": 1,
    }  # fmt: skip
    assert next(iter(imported.quality.repaired.items()))[1] == 1
    notes = " ".join(imported.notes)
    assert "1 ClusterQueue: their quotas of GPUs, as they are now (big=8), are in force" in notes
    assert "3 jobs of Kueue have no quota: their LocalQueue or their flavour is not in" in notes
    assert "1 Topology: its levels are not read" in notes
    assert [(one.name, one.quota, one.limit) for one in imported.queues.tenants] == [
        ("big", 8.0, 8.0), ("team", 0.0, INF),
    ]  # fmt: skip


def test_pods_of_workloads_win(read):
    imported = read(pod("a"), workload("w", start=1, end=2))
    assert [job.id for job in imported.workload.specs] == ["lab/a"]
    assert imported.quality.dropped == {"not a pod, but a Workload": 1}


NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}


def test_the_snapshot_of_kai_is_a_zip_with_pods_and_nodes(tmp_path):
    bare = {key: value for key, value in pod("a").items() if key not in ("kind", "apiVersion")}
    raw = {
        "pods": [bare],
        "nodes": [NODE],
        "queues": [{}, {}],
        "configMaps": [{}],
        "csiDrivers": None,
    }
    path = tmp_path / "snapshot.zip"
    with zipfile.ZipFile(path, "w") as packed:
        content = {"config": {}, "schedulerParams": {}, "rawObjects": raw}
        packed.writestr("snapshot.json", json.dumps(content))
    assert FORMAT.recognises(first_look(path)) == 1.0
    imported = FORMAT.load(path, {})
    assert [job.id for job in imported.workload.specs] == ["lab/a"]
    assert [(node.name, node.gpus) for node in imported.cluster] == [("n1", 8)]
    assert imported.quality.dropped == {
        "not a pod, but a Node": 1, "not a pod, but a Queue": 2, "not a pod, but a configMaps": 1,
    }  # fmt: skip


def test_yaml_of_kubectl_is_read_as_json_is(tmp_path):
    path = tmp_path / "pods.yaml"
    listed = {"apiVersion": "v1", "kind": "List", "items": [pod("a"), {**NODE, "kind": "Node"}]}
    path.write_text(yaml.safe_dump(listed) + "---\n" + yaml.safe_dump(pod("b")))
    assert FORMAT.recognises(first_look(path)) == 1.0
    imported = FORMAT.load(path, {})
    assert [job.id for job in imported.workload.specs] == ["lab/a", "lab/b"]
    assert [node.name for node in imported.cluster] == ["n1"]
    path.write_text("apiVersion: [v1\n")
    with pytest.raises(TraceError, match="kubectl get"):
        FORMAT.load(path, {})


def test_yaml_without_content_is_passed_over_and_aliases_are_refused(tmp_path):
    path = tmp_path / "pods.yaml"
    path.write_text(f"---\n{yaml.safe_dump(pod('a'))}---\n---\n{yaml.safe_dump(pod('b'))}---\n")
    assert [job.id for job in FORMAT.load(path, {}).workload.specs] == ["lab/a", "lab/b"]
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 30)]
    path.write_text("\n".join(["kind: List", "l0: &l0 {kind: Pod}", *levels, "items: *l29"]))
    with pytest.raises(TraceError, match=r"\*l0 is an alias, .* line 3, column 10"):
        FORMAT.load(path, {})
