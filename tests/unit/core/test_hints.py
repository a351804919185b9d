"""What jobs tell of themselves, and who may read it."""

import pytest

from rota.core.errors import KnowledgeError
from rota.core.hints import Hints, StepTime, TimedShape
from rota.core.jobs import RUNNING, Behaviour, Job, JobSpec, Request, Shape
from rota.core.knowledge import Knowledge


def job_of(known=Knowledge.NOTHING):
    request = Request.of(2)
    job = Job(JobSpec("a", 0.0, request), Behaviour(100.0), 0, Shape(0, request))
    job.known = int(known)
    return job


def test_steps_are_kept_by_shape_and_batch_and_averaged():
    hints = Hints()
    hints.take({"batch": 8, "step_s": 0.5, "sync_s": 0.1}, 1, 2, "t4")
    hints.take({"batch": 8, "step_s": 0.7, "sync_s": 0.3}, 1, 2, "t4")
    hints.take({"batch": 8, "throughput": 16.0}, 2, 4, "t4")  # 32 samples take 2 s
    same = TimedShape(1, 2, 8, "t4")
    assert hints.timings[same] == StepTime(pytest.approx(0.6), pytest.approx(0.2), 2)
    assert hints.timings[TimedShape(2, 4, 8, "t4")] == StepTime(2.0)
    hints.take({"loss": 3.0, "step": 10}, 1, 2, "t4")
    assert len(hints.timings) == 2  # nothing about shapes
    assert hints.learning.losses == [(10, 3.0)]
    assert (hints.learning.get("batch"), hints.learning.get("grad_var", -1)) == (8, -1)


def test_the_state_comes_back_and_loss_curves_are_thinned():
    hints = Hints()
    for step in range(2000):
        hints.take({"loss": 1 / (step + 1), "step": step, "step_s": 1 + step % 2}, 1, 1, "")
    assert len(hints.learning.losses) <= 512
    assert hints.learning.losses[0] == (0, 1.0)
    again = Hints.restored(hints.snapshot())
    assert again.timings == hints.timings
    assert again.learning.losses == hints.learning.losses
    assert again.learning.numbers == hints.learning.numbers


@pytest.mark.parametrize(
    ("read", "needed"),
    [
        (lambda job: job.timings, Knowledge.SCALING),
        (lambda job: job.speed_with(4), Knowledge.SCALING),
        (lambda job: job.learning, Knowledge.PROGRESS),
        (lambda job: job.rate, Knowledge.RATE),
    ],
)
def test_nothing_is_read_that_was_not_declared(read, needed):
    with pytest.raises(KnowledgeError, match=f"add it to the policy's `knowledge`.*|{needed.name}"):
        read(job_of())
    read(job_of(needed))


@pytest.mark.parametrize("name", ["left", "work", "behaviour"])
def test_the_truth_is_for_nobody(name):
    with pytest.raises(KnowledgeError, match="is the truth of a simulation"):
        getattr(job_of(Knowledge(511)), name)


def test_the_present_rate_and_what_is_believed_of_others():
    job = job_of(Knowledge.RATE | Knowledge.SCALING)
    assert job.rate == 0.0
    job.phase, job.true_rate = RUNNING, 1.5
    assert job.rate == 1.5
    assert (job.speed_with(4), job.speed_with(1)) == (2.0, 0.5)  # nobody knows better
