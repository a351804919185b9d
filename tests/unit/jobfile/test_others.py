"""Jobs of OpenPAI and Blox."""

import json
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import InputError
from rota.jobfile.model import Resources
from rota.jobfile.read import read_jobs, read_translated


def pai(**changes):
    content = {
        "protocolVersion": 2,
        "name": "cifar",
        "type": "job",
        "taskRoles": {"worker": role()},
    }
    return yaml.safe_dump(content | changes)


def role(instances=1, gpu=1, commands=("python train.py",), **more):
    asked = {"cpu": 4, "memoryMB": 8192, "gpu": gpu}
    return {
        "instances": instances,
        "resourcePerInstance": asked,
        "commands": list(commands),
        **more,
    }


def run_by(job, **env):
    """Return what the script of a job prints in a shell."""
    result = subprocess.run(
        ["bash", "-c", job.run], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "MASTER_ADDR": "10.0.0.1", **env},
    )  # fmt: skip
    return result.stdout.splitlines()


def test_one_instance():
    (found,) = read_translated(pai(taskRoles={"worker": role(gpu=4)}))

    assert found.warnings == ()
    assert found.job.resources == Resources(4, "", 4.0, 8.0)
    assert (found.job.nodes, found.job.per, found.job.name) == (1, "node", "cifar")


def test_instances_with_one_gpu_are_processes():
    (job,) = read_jobs(pai(taskRoles={"worker": role(instances=4)}))
    assert (job.nodes, job.per) == (1, "gpu")
    assert job.resources == Resources(4, "", 16.0, 32.0)


def test_larger_instances_get_a_node_each():
    (job,) = read_jobs(pai(taskRoles={"worker": role(instances=2, gpu=8)}))
    assert (job.nodes, job.per) == (2, "node")
    assert job.resources == Resources(8, "", 4.0, 8.0)


def test_roles_share_the_ranks():
    tell = 'echo "$PAI_JOB_NAME $PAI_CURRENT_TASK_ROLE_NAME"'
    index = 'echo "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX $PAI_HOST_IP_ps_server_0"'
    roles = {
        "ps-server": role(1, commands=[tell, index]),
        "worker": role(2, commands=[tell, index]),
    }
    (job,) = read_jobs(pai(taskRoles=roles, name="it's"))

    assert job.resources.gpus == 3
    assert run_by(job, RANK="0") == ["it's ps-server", "0 10.0.0.1"]
    assert run_by(job, RANK="2") == ["it's worker", "1 10.0.0.1"]


def test_parameters_deployments_and_defaults():
    (job,) = read_jobs(
        pai(
            parameters={"lr": 0.1, "data": "/d"},
            taskRoles={"worker": role(commands=["echo <% $parameters.lr %> <%$parameters.data%>"])},
            deployments=[
                {
                    "name": "prod",
                    "taskRoles": {
                        "worker": {"preCommands": ["echo before"], "postCommands": ["echo after"]}
                    },
                }
            ],
            defaults={"deployment": "prod", "virtualCluster": "vision"},
            jobRetryCount=3,
        )
    )
    assert run_by(job, RANK="0") == ["before", "0.1 /d", "after"]
    assert (job.queue, job.retries) == ("vision", 3)


def test_what_has_no_counterpart_is_told():
    (found,) = read_translated(
        pai(
            prerequisites=[{"type": "dockerimage", "uri": "ubuntu", "name": "u"}],
            taskRoles={
                "worker": role(
                    dockerImage="u", taskRetryCount=2, completion={"minFailedInstances": 1},
                    commands=["echo $PAI_PORT_LIST_worker_0_http"],
                )
            },
            extras={
                "gangAllocation": False, "tensorBoard": {"a": 1},
                "hivedScheduler": {"jobPriorityClass": "oppo", "lazyPreemptionEnable": True},
            },
        )
    )  # fmt: skip
    told = "\n".join(found.warnings)

    assert (found.job.priority, found.job.retries) == (-1, 2)
    for word in (
        "dockerImage", "taskRetryCount", "completion", "PAI_PORT_LIST_worker_0_http",
        "prerequisites", "gangAllocation", "tensorBoard", "lazyPreemptionEnable", "priority -1",
    ):  # fmt: skip
        assert word in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocolVersion": 1}, "only version 2 can be read"),
        ({"taskRoles": {}}, "describe at least one role"),
        ({"secrets": {"a": "b"}}, "keep them in a file of your own"),
        ({"taskRoles": {"w": role(commands=[])}}, "commands is empty"),
        ({"taskRoles": {"w": role(instances=0)}}, "instances is 0"),
        ({"taskRoles": {"w": role(gpu="x")}}, "gpu is 'x'"),
        ({"taskRoles": {"w": role(instances=2, gpu=0)}}, "have no places of their own"),
        ({"taskRoles": {"a": role(), "b": role(gpu=2)}}, "ask for different resources"),
        ({"taskRoles": {"a b": role()}}, "give a name of letters"),
        ({"taskRoles": {"a": role() | {"comands": []}}}, "did you mean 'commands'?"),
        ({"taskRoles": {"a": role(commands=["<% $secrets.x %>"])}}, "cannot be filled"),
        ({"taskRoles": {"a": role(commands=["<% $parameters.x %>"])}}, "they are: none"),
        ({"defaults": {"deployment": "x"}}, "there is none of this name"),
        ({"extras": {"hivedScheduler": {"jobPriorityClass": "x"}}}, "known: crit, prod"),
        ({"nme": "x"}, "did you mean 'name'?"),
    ],
)
def test_mistakes_in_openpai_jobs(changes, message):
    with pytest.raises(InputError) as caught:
        read_jobs(pai(**changes))
    assert message in str(caught.value)


# --- Blox ----------------------------------------------------------------------------------------


def blox(**changes):
    return json.dumps({"launch_command": "python train.py"} | changes)


@pytest.mark.parametrize(
    ("params", "run"),
    [
        (None, "python train.py"),
        ("--lr 0.1", "python train.py --lr 0.1"),
        (["--lr 0.1", "--x"], "python train.py --lr 0.1 --x"),
        (
            {"lr": 0.1, "--flag": None, "name": "a b"},
            "python train.py --lr 0.1 --flag --name 'a b'",
        ),
    ],
)
def test_the_command_of_blox(params, run):
    (job,) = read_jobs(blox(launch_params=params, num_GPUs=2))
    assert (job.run, job.per, job.resources.gpus) == (run, "gpu", 2)


@pytest.mark.parametrize(
    ("keys", "estimate"),
    [
        ({}, None),
        ({"job_duration": 600}, 600),
        ({"job_iteration_time": 0.5, "num_total_iterations": 100}, 50),
        ({"job_iteration_time": 0.5, "job_total_iteration": 100}, 50),
        ({"job_iteration_time": 0.5}, None),
    ],
)
def test_the_estimate_of_blox(keys, estimate):
    (job,) = read_jobs(blox(num_gpus=1, **keys))
    assert job.estimate == estimate


def test_several_jobs_of_blox_and_what_is_left_out():
    one = {"launch_command": "x", "params_to_track": ["loss"], "simulation": True, "odd": 1}
    found = read_translated(json.dumps([one, {"launch_command": "y", "job_name": "b"}]))

    assert [item.job.name for item in found] == ["", "b"]
    assert found[0].warnings == (
        "job: job 1: params_to_track is left out: report values with rota.job.report()",
        "job: job 1: simulation is left out: the job is run for real; `rota simulate` simulates",
        "job: job 1: odd is left out: Rota has nothing like it",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"launch_command": " "}, "launch_command is empty"),
        ({"launch_command": ["x"]}, "give a text"),
        ({"num_GPUs": 0}, "give 1 or more"),
        ({"num_GPUs": "x"}, "num_GPUs is 'x'"),
        ({"job_duration": "soon"}, "job_duration is 'soon'"),
        ({"launch_params": [{"a": 1}]}, "give a text"),
        ({"job_iteration_time": 1e300, "num_total_iterations": 1e300}, "at most 10 years"),
    ],
)
def test_mistakes_in_jobs_of_blox(changes, message):
    with pytest.raises(InputError) as caught:
        read_jobs(blox(**changes))
    assert message in str(caught.value)


# --- any values ----------------------------------------------------------------------------------

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6))
KEYS = st.sampled_from(
    ["launch_command", "launch_params", "num_GPUs", "job_duration", "job_iteration_time", "name",
     "protocolVersion", "taskRoles", "parameters", "deployments", "defaults", "extras",
     "hivedScheduler", "jobPriorityClass", "worker", "commands", "instances", "gpu", "cpu",
     "resourcePerInstance", "jobRetryCount", "taskRetryCount", "deployment", "virtualCluster"]
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, VALUES, max_size=8), st.sampled_from(["pai", "blox"]))
def test_any_values_are_read_or_refused(content, kind):
    base = {"protocolVersion": 2} if kind == "pai" else {"launch_command": "x"}
    roles = {"taskRoles": {"worker": role() | content}} if kind == "pai" else {}
    for text in (yaml.safe_dump(base | content), yaml.safe_dump(base | roles)):
        try:
            assert read_translated(text)
        except InputError as error:
            assert str(error)  # noqa: PT017 - anything else would escape
