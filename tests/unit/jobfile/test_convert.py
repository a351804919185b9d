"""From job files to requests, specs and launches."""

import pytest

from rota.core.errors import InputError
from rota.core.events import INF
from rota.core.jobs import UNKNOWN, Behaviour, Request, Shape, TaskGroup
from rota.core.launch import Launch
from rota.jobfile.check import check
from rota.jobfile.convert import to_behaviour, to_launch, to_request, to_spec
from rota.jobfile.model import Checkpoint, GpuRange, JobFile, Resources


def asked(**keys):
    return to_request(JobFile(run="x", **keys))


def test_whole_gpus_are_tasks_of_one():
    request = asked(resources=Resources(4, "a100|h100", 16, "64GB"))
    assert request == Request.of(4, gpu_types=("a100", "h100"), cpus=16, mem_gib=64)
    assert request is Request.of(4, gpu_types=("a100", "h100"), cpus=16.0, mem_gib=64.0)


@pytest.mark.parametrize("gpus", [0, 0.5, 1, 8, 2.0])
def test_the_total_is_what_was_asked(gpus):
    assert Shape(0, asked(resources=Resources(gpus))).gpus == gpus


def test_on_several_nodes_there_is_a_task_for_each():
    request = asked(nodes=2, resources=Resources(4, "", 8.0, 32.0))

    assert request.groups == (TaskGroup("worker", 2, 4, 8.0, 32.0),)
    assert request is asked(nodes=2, resources=Resources(4.0, "", 8.0, "32GB"))
    shape = Shape(0, request)
    assert (shape.gpus, shape.cpus, shape.mem_gib) == (8, 16, 64)


@pytest.mark.parametrize(
    ("pods", "gpus", "apart"), [(1, 4, 1), (1, 1, 0), (2, 4, 0)], ids=["one", "small", "gang"]
)
def test_a_pod_is_never_on_two_nodes(pods, gpus, apart):
    job = JobFile(run="x", resources=Resources(gpus=gpus), nodes=pods, external="once pod a/b")
    assert Shape(0, to_request(job)).apart == apart


def test_an_elastic_job_asks_for_its_minimum():
    (group,) = asked(resources=Resources(GpuRange(2, 8))).groups
    assert (group.count, group.min_count, group.max_count) == (2, 2, 8)


def test_a_spec():
    job = JobFile(
        run="x", name="n", queue="q", group="g", model="m", priority=3, deadline="1h",
        estimate="90", depends_on=("4", "other"),
    )  # fmt: skip
    spec = to_spec(job, "7", 100.0, "ann")

    assert (spec.id, spec.submit_s, spec.user, spec.tenant) == ("7", 100.0, "ann", "q")
    assert (spec.deadline_s, spec.estimate_s) == (3700.0, 90.0)
    assert (spec.name, spec.group, spec.model, spec.priority) == ("n", "g", "m", 3)
    assert spec.depends_on == ("4", "other")


def test_what_was_not_said_is_infinite():
    spec = to_spec(JobFile(run="x"), "1", 0.0, "")
    assert (spec.deadline_s, spec.estimate_s) == (INF, INF)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, UNKNOWN),
        ({"estimate": 90}, Behaviour(90.0)),
        ({"speeds": {"v100": 1.0, "k80": 0.3}}, Behaviour(INF, {"v100": 1.0, "k80": 0.3})),
        ({"estimate": 90, "speeds": {"k80": 0}}, Behaviour(90.0, {"k80": 0})),
    ],
)
def test_what_the_owner_says_of_the_behaviour(keys, expected):
    job = JobFile(run="x", **keys)
    assert to_behaviour(job, to_spec(job, "1", 0.0, "", checked=True)) == expected


@pytest.mark.parametrize(
    ("speeds", "message"),
    [
        ({"v100": -1.0}, "speeds: 'v100' is -1: give 0 to 1,000"),
        ({"v100": float("nan")}, "speeds: 'v100' is nan"),
        ({"a\nb": 1.0}, "speeds"),
        ({"v100": 0.0, "k80": 0.0}, "speeds are all 0"),
        ({f"t{i}": 1.0 for i in range(101)}, "speeds names 101 GPU types: at most 100"),
    ],
)
def test_speeds_that_make_no_sense(speeds, message):
    with pytest.raises(InputError, match=message):
        check(JobFile(run="x", speeds=speeds))


def test_a_launch():
    job = JobFile(
        run="x", setup="y", workdir="/tmp", envs={"A": "1"}, per="gpu",  # noqa: S108
        checkpoint=Checkpoint(5, "/state", "save", 9, "USR1"),
    )  # fmt: skip
    assert to_launch(job) == Launch(
        run="x", setup="y", workdir="/tmp", envs={"A": "1"}, per="gpu", grace_s=5.0,  # noqa: S108
        checkpoint_dir="/state", pre_stop="save", warn_s=9.0, warn_signal="USR1",
    )  # fmt: skip


@pytest.mark.parametrize(
    "job",
    [
        JobFile(run=""),
        JobFile(run="x", resources=Resources(float("nan"))),
        JobFile(run="x", resources=Resources(float("inf"))),
        JobFile(run="x", resources=Resources(10**30)),
        JobFile(run="x", resources=Resources(1, cpus=float("inf"))),
        JobFile(run="x", resources=Resources(1, mem=float("nan"))),
        JobFile(run="x", nodes=-1),
        JobFile(run="x", nodes=10_000, resources=Resources(100)),
        JobFile(run="x", name="\ud800"),
        JobFile(run="x\ud800"),
        JobFile(run="x" * (1 << 20)),
        JobFile(run="x", envs={"A": "\0"}),
        JobFile(run="x", envs={"A": "v" * 200_000}),
        JobFile(run="x", envs={"A": "\n", "": "x"}),
        JobFile(run="x", envs={f"A{i}": "" for i in range(2000)}),
        JobFile(run="x", envs={f"A{i}": "v" * 90_000 for i in range(20)}),
        JobFile(run="x", workdir="a/../../b"),
        JobFile(run="x", workdir="a\nb"),
        JobFile(run="x", checkpoint=Checkpoint(float("nan"))),
        JobFile(run="x", checkpoint=Checkpoint(dir="..")),
        JobFile(run="x", priority=10**30),
        JobFile(run="x", depends_on=("",)),
        JobFile(run="x", depends_on=("a",) * 2000),
        JobFile(run="x", deadline=float("nan")),
        JobFile(run="x", estimate=-1),
    ],
)  # fmt: skip
def test_hostile_jobs_are_refused_everywhere(job):
    for make in (to_request, to_launch, lambda bad: to_spec(bad, "1", 0.0, "")):
        with pytest.raises(InputError, match=r"^job.*: "):
            make(job)


@pytest.mark.parametrize("name", ["../../etc", "$(reboot)", "a b; c", "`x`", "-rf", "日本", "🙂"])
def test_odd_names_are_only_names(name):
    spec = to_spec(JobFile(run="x", name=name, queue=name), "1", 0.0, name)
    assert (spec.name, spec.tenant, spec.user) == (name, name, name)
