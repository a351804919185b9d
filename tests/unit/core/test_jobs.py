"""Requests, shapes and what a job tells of itself."""

import pytest

from live_jobs import HERE, in_phase, interrupt, launch, live
from rota.core import machine
from rota.core.errors import KnowledgeError
from rota.core.events import INF
from rota.core.jobs import (
    UNKNOWN,
    Group,
    Job,
    JobSpec,
    Phase,
    Request,
    Shape,
    TaskGroup,
)
from rota.core.knowledge import Knowledge


@pytest.mark.parametrize(
    ("gpus", "count", "each"), [(1, 1, 1), (4, 4, 1), (4.0, 4, 1), (0.5, 1, 0.5), (1.5, 1, 1.5),
                                (0, 1, 0)],
)  # fmt: skip
def test_a_request_is_made_of_one_gpu_tasks(gpus, count, each):
    (group,) = Request.of(gpus).groups
    assert (group.role, group.count, group.gpus) == ("worker", count, each)
    assert Shape(0, Request.of(gpus)).gpus == gpus


def test_cpus_and_memory_are_for_the_whole_job():
    request = Request.of(4, cpus=8, mem_gib=2, gpu_types=("a",), labels=("x",), gang=False)
    assert request == Request((TaskGroup("worker", 4, 1, 2.0, 0.5),), ("a",), ("x",), gang=False)
    elastic = Request.of(2, min_gpus=1, max_gpus=4).groups[0]
    assert (elastic.min_count, elastic.max_count) == (1, 4)
    assert Request.of(4, cpus=8) is Request.of(4, cpus=8)


def test_a_shape_adds_up_all_groups():
    shape = Shape(3, Request((TaskGroup("ps", 2, 0, 4, 1.5), TaskGroup("worker", 3, 2, 1, 1))))
    assert (shape.number, shape.gpus, shape.cpus, shape.mem_gib) == (3, 6, 11, 6)
    assert isinstance(shape.gpus, int)


@pytest.mark.parametrize(
    ("options", "plain", "text"),
    [
        ({"gpus": 1}, True, "1 GPU"),
        ({"gpus": 8}, True, "8 GPUs"),
        ({"gpus": 0.5}, True, "0.5 GPUs"),
        ({"gpus": 8, "gpu_types": ("v100",)}, False, "8 GPUs of type v100"),
        ({"gpus": 2, "gpu_types": ("a", "b"), "cpus": 4}, False, "2 GPUs of type a|b, 4 CPUs"),
        ({"gpus": 0, "mem_gib": 1.5}, False, "0 GPUs, 1.5 GiB"),
        ({"gpus": 1, "labels": ("x", "y")}, False, "1 GPU, on nodes labelled x, y"),
    ],
)
def test_a_shape_describes_itself(options, plain, text):
    shape = Shape(0, Request.of(**options))
    assert shape.describe() == text
    assert shape.plain is plain


@pytest.mark.parametrize(
    ("accessor", "arguments", "flag"),
    [
        ("remaining_s", (0.0,), "REMAINING_WORK"),
        ("duration_s", (), "REMAINING_WORK"),
        ("estimate_s", (), "USER_ESTIMATE"),
        ("progress", (0.0,), "PROGRESS"),
    ],
)
def test_what_is_not_declared_is_refused(accessor, arguments, flag):
    everything = Knowledge((1 << 7) - 1)
    job = live(known=everything & ~Knowledge[flag])
    message = f"^job a: a policy read '{accessor}' without declaring Knowledge.{flag}: add it"
    with pytest.raises(KnowledgeError, match=message):
        getattr(job, accessor)(*arguments)
    job.known = int(Knowledge[flag])
    getattr(job, accessor)(*arguments)


def test_declared_facts_of_a_running_job():
    job = live(work=100.0, known=1 | 4 | 32, estimate_s=150.0)
    assert (job.estimate_s(), job.duration_s(), job.remaining_s(7.0)) == (150.0, 100.0, 100.0)
    machine.start(job, HERE, 10.0)
    machine.run(job, 10.0, 0.5)
    assert (job.remaining_s(60.0), job.progress(60.0), job.duration_s()) == (75.0, 0.25, 100.0)
    assert live(known=1).estimate_s() == INF


def test_a_wrong_belief_shifts_what_remains():
    job = live(work=100.0, known=4 | 32)
    job.belief = 1.5
    launch(job, HERE, 0.0)
    assert (job.duration_s(), job.remaining_s(25.0)) == (150.0, 125.0)
    assert (job.progress(25.0), job.left_at(25.0)) == (0.25, 75.0)  # measured, not believed
    job.belief = 0.5
    assert job.remaining_s(60.0) == -10.0  # overdue


def test_progress_of_unknown_work_is_what_was_reported():
    job = Job(JobSpec("a", 0.0, Request.of(1)), UNKNOWN, 0, Shape(0, Request.of(1)))
    job.known = int(Knowledge.PROGRESS)
    assert job.progress(5.0) == 0.0
    job.metrics = {"progress": 0.75}
    assert job.progress(5.0) == 0.75


def test_no_work_is_done_at_once():
    assert live(work=0.0, known=Knowledge.PROGRESS).progress(0.0) == 1.0


def test_time_is_either_executed_or_waited():
    job = live(at=5.0)
    assert (job.waiting_s(15.0), job.executed_s(15.0), job.started) == (10.0, 0.0, False)
    launch(job, HERE, 15.0)
    assert (job.waiting_s(35.0), job.executed_s(35.0), job.attained_gpu_s(35.0)) == (10, 20, 40)
    interrupt(job, 35.0)
    assert (job.waiting_s(40.0), job.executed_s(40.0), job.attained_gpu_s(40.0)) == (15, 20, 40)
    assert job.started


@pytest.mark.parametrize("phase", list(Phase))
def test_what_a_phase_means(phase):
    job = in_phase(phase)
    assert job.running is (phase in (Phase.STARTING, Phase.RUNNING))
    assert job.terminal is (phase >= Phase.DONE)
    assert repr(job) == f"Job(a, {phase.name.lower()}, gpus=2)"


def test_siblings_are_the_others_that_go_on():
    group = Group("search")
    jobs = [live("a"), live("b"), in_phase(Phase.DONE, "c"), in_phase(Phase.RUNNING, "d")]
    group.members.extend(jobs)
    assert [job.id for job in group.siblings(jobs[0])] == ["b", "d"]
    assert [job.id for job in group.siblings(jobs[2])] == ["a", "b", "d"]


@pytest.mark.parametrize(
    "group",
    [
        TaskGroup(count=4, gpus=2, min_count=1),
        TaskGroup(count=1, gpus=2, max_count=4),
        TaskGroup(count=2, gpus=1, min_count=1, max_count=8),
        TaskGroup(count=3, gpus=2),
    ],
)
def test_the_size_within_a_number_of_gpus_is_one_that_the_job_takes(group):
    request = Request((group,))
    least, most = request.sizes
    for gpus in range(12):
        size = request.within(gpus)
        assert (size == 0) == (gpus < least)
        assert size == 0 or (size <= min(gpus, most) and request.takes(size))
        assert not any(request.takes(other) for other in range(int(size) + 1, gpus + 1))
