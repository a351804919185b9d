"""Manifests of Kubernetes become jobs, and what is lost is named."""

import subprocess

import pytest
import yaml

from rota.core.errors import InputError
from rota.jobfile.read import read_translated

CONTAINER = {
    "name": "pytorch",
    "image": "example/train:1",
    "command": ["python", "train.py", "--name", "two words"],
    "env": [{"name": "LR", "value": "0.1"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {}}}],
    "resources": {
        "requests": {"cpu": "4", "memory": "16Gi"},
        "limits": {"nvidia.com/gpu": 2, "cpu": "8", "memory": "32Gi"},
    },
}


def template(**changes):
    return {"spec": {"containers": [{**CONTAINER, **changes}]}}


def manifest(kind, spec, **metadata):
    api = {"Pod": "v1", "Job": "batch/v1", "RayJob": "ray.io/v1"}.get(kind, "kubeflow.org/v1")
    about = {"name": "train", "labels": {"rota.dev/queue": "research"}, **metadata}
    return yaml.safe_dump({"apiVersion": api, "kind": kind, "metadata": about, "spec": spec})


def one(text):
    (found,) = read_translated(text)
    return found.job, "\n".join(found.warnings)


def test_a_pytorch_job_is_a_gang_of_nodes():
    spec = {
        "runPolicy": {"backoffLimit": 3, "activeDeadlineSeconds": 7200, "suspend": True},
        "pytorchReplicaSpecs": {
            "Worker": {"replicas": 3, "template": template()},
            "Master": {"replicas": 1, "template": template()},
        },
    }
    job, lost = one(manifest("PyTorchJob", spec))
    assert (job.name, job.queue, job.nodes, job.per) == ("train", "research", 4, "node")
    assert (job.resources.gpus, job.resources.cpus, job.resources.mem) == (2, 4, 16)
    assert job.run == "python train.py --name 'two words'\n"
    assert (job.retries, job.time_limit, job.hold) == (3, 7200, True)
    assert job.envs == {"LR": "0.1"}
    assert "variable KEY left out" in lost
    assert job.image == "example/train:1"


def test_roles_with_commands_of_their_own_go_by_rank():
    spec = {
        "pytorchReplicaSpecs": {
            "Worker": {"replicas": 2, "template": template(command=["echo", "worker"], image="w")},
            "Master": {"replicas": 1, "template": template(command=["echo", "master"], image="m")},
        }
    }
    job, lost = one(manifest("PyTorchJob", spec))
    assert job.image == "m"
    assert "images w left out: all processes use m" in lost
    told = [
        subprocess.run(["sh", "-c", job.run], env={"RANK": str(rank)}, capture_output=True,
                       text=True, check=True).stdout
        for rank in range(3)
    ]  # fmt: skip
    assert told == ["master\n", "worker\n", "worker\n"]


def test_pods_of_one_gpu_are_processes():
    small = template(resources={"limits": {"nvidia.com/gpu": "1", "cpu": "500m"}})
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": small}}}
    job, _ = one(manifest("PyTorchJob", spec))
    assert (job.nodes, job.per, job.resources.gpus, job.resources.cpus) == (1, "gpu", 4, 2)


def test_a_batch_job_with_completions_is_an_array():
    spec = {"completions": 8, "parallelism": 2, "backoffLimit": 1, "template": template()}
    job, _ = one(manifest("Job", spec))
    assert (job.array, job.retries, job.nodes) == ("0-7%2", 1, 1)
    assert job.run.startswith('export JOB_COMPLETION_INDEX="$ROTA_ARRAY_INDEX"\n')
    assert one(manifest("Job", {"template": template()}))[0].array == ""


def test_a_pod_has_a_type_of_gpu_and_a_shell_is_its_text():
    spec = template(command=["/bin/bash", "-c", "cd /data && python x.py\n"])["spec"]
    spec["nodeSelector"] = {"nvidia.com/gpu.product": "A100", "zone": "b"}
    job, lost = one(manifest("Pod", spec))
    assert job.run == "cd /data && python x.py\n"
    assert job.resources.gpu_type == "A100"
    assert "nodeSelector zone left out" in lost


def mpi(command, **changes):
    spec = {
        "slotsPerWorker": 2,
        "mpiReplicaSpecs": {
            "Launcher": {"template": template(command=command, resources={})},
            "Worker": {"replicas": 2, "template": template(command=["sleep", "infinity"])},
        },
        **changes,
    }
    return manifest("MPIJob", spec)


def test_an_mpi_job_is_started_by_rota():
    job, lost = one(mpi(["mpirun", "--allow-run-as-root", "-np", "4", "-x", "PATH", "-mca", "btl",
                         "self", "python", "hvd.py"]))  # fmt: skip
    assert (job.run, job.nodes, job.per, job.resources.gpus) == ("python hvd.py\n", 2, "gpu", 2)
    assert "sees one process" in lost


@pytest.mark.parametrize("command", [["./start.sh"], ["mpirun", "--strange", "4", "x"]])
def test_an_mpi_job_that_cannot_be_understood_is_refused(command):
    with pytest.raises(InputError, match="what its processes execute is not known"):
        one(mpi(command))


def test_a_ray_job_brings_its_cluster():
    spec = {
        "entrypoint": "python tune.py --trials 20",
        "runtimeEnvYAML": "pip: [x]",
        "rayClusterSpec": {
            "headGroupSpec": {"template": template()},
            "workerGroupSpecs": [
                {"groupName": "gpus", "replicas": 3, "maxReplicas": 9, "template": template()}
            ],
        },
    }
    job, lost = one(manifest("RayJob", spec))
    assert job.nodes == 4
    assert "( python tune.py --trials 20 )" in job.run
    subprocess.run(["bash", "-n", "-c", job.run], check=True)
    assert "runtimeEnvYAML left out" in lost
    assert "gpus: maxReplicas left out" in lost


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (manifest("Deployment", {}), "kind is 'Deployment'"),
        (manifest("Pod", {"containers": []}), "has no containers"),
        (manifest("Pod", {"containers": "x"}), "containers is 'x'"),
        (manifest("Pod", template(command=[])["spec"]), "has no command"),
        (manifest("Pod", template(env=["A=1"])["spec"]), "env has 'A=1': give a name and a value"),
        (manifest("Pod", template(image=["a"])["spec"]), r"image is \['a'\]"),
        (manifest("PyTorchJob", {}), "spec has no pytorchReplicaSpecs"),
        (manifest("RayJob", {"entrypoint": "x"}), "no headGroupSpec"),
        (manifest("Job", {"completions": "many", "template": template()}), "completions is 'many'"),
        (
            manifest("PyTorchJob", {"pytorchReplicaSpecs": {
                "Master": {"template": template(resources={})},
                "Worker": {"template": template()},
            }}),
            "ask for different resources",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job_is_refused_with_the_reason(text, told):
    with pytest.raises(InputError, match=told):
        one(text)


@pytest.mark.parametrize("amount", ["two", "-1", "1e30", True, [1]])
def test_an_amount_that_cannot_be_read_is_not_none(amount):
    """A job must not run without the GPUs that it wanted because of a slip of the pen."""
    for key in ("requests", "limits"):
        pod = template(resources={key: {"nvidia.com/gpu": amount}})["spec"]
        with pytest.raises(InputError, match=f"{key}: nvidia.com/gpu is .*: give an amount"):
            one(manifest("Pod", pod))


@pytest.mark.parametrize("amount", ["0", 0, "0Gi", None])
def test_an_amount_of_zero_is_one(amount):
    limits = {"nvidia.com/gpu": 2, "memory": amount}
    job, _ = one(manifest("Pod", template(resources={"limits": limits})["spec"]))
    assert (job.resources.gpus, job.resources.mem) == (2, 0)


@pytest.mark.parametrize("label", ["kueue.x-k8s.io/queue-name", "kai.scheduler/queue"])
def test_the_queues_of_others_are_known(label):
    job, _ = one(manifest("Job", {"template": template()}, labels={label: "team-a"}))
    assert job.queue == "team-a"


def test_the_queue_of_volcano_is_an_annotation():
    noted = {"scheduling.volcano.sh/queue-name": "v"}
    job, _ = one(manifest("Job", {"template": template()}, labels={}, annotations=noted))
    assert job.queue == "v"
