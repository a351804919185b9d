"""Every change of phase: allowed or refused, and what it does to the job."""

import pytest

from live_jobs import ARGUMENTS, HERE, drive, in_phase, interrupt, launch, live
from rota.core import machine
from rota.core.errors import TransitionError
from rota.core.events import INF
from rota.core.jobs import Phase

P = Phase
ALLOWED = {  # verb -> from -> to
    "hold": {P.WAITING: P.HELD},
    "admit": {P.HELD: P.WAITING},
    "start": {P.WAITING: P.STARTING},
    "run": {P.STARTING: P.RUNNING},
    "change_rate": {P.RUNNING: P.RUNNING},
    "begin_stop": {P.RUNNING: P.STOPPING, P.STARTING: P.STOPPING},
    "stopped": {P.STOPPING: P.WAITING},
    "finish": {P.RUNNING: P.DONE, P.STOPPING: P.DONE},
    "fail": {P.RUNNING: P.FAILED, P.STARTING: P.FAILED, P.STOPPING: P.FAILED},
    "time_out": {P.RUNNING: P.TIMEOUT, P.STARTING: P.TIMEOUT, P.STOPPING: P.TIMEOUT},
    "reject": {P.HELD: P.REJECTED, P.WAITING: P.REJECTED},
    "cancel": dict.fromkeys((P.HELD, P.WAITING, P.STARTING, P.RUNNING, P.STOPPING), P.CANCELLED),
}
WORDS = {
    "hold": "be held", "admit": "be admitted", "start": "start",
    "run": "begin to make progress", "change_rate": "change its rate",
    "begin_stop": "stop", "stopped": "have stopped", "finish": "finish", "fail": "fail",
    "time_out": "time out",
    "reject": "be rejected", "cancel": "be cancelled",
}  # fmt: skip
CASES = [(verb, phase, ALLOWED[verb].get(phase)) for verb in ARGUMENTS for phase in Phase]


@pytest.mark.parametrize(("verb", "before", "after"), CASES)
def test_every_transition_is_allowed_or_refused(verb, before, after):
    job = in_phase(before)
    if after is None:
        epoch = job.epoch
        message = f"^job a is {before.name.lower()}: it cannot {WORDS[verb]}$"
        with pytest.raises(TransitionError, match=message):
            drive(job, verb)
        assert (job.phase, job.epoch) == (before, epoch)
    else:
        drive(job, verb)
        assert job.phase == after


def test_a_job_that_has_run_is_not_rejected_any_more():
    job = live()
    launch(job, HERE, 0.0)
    interrupt(job, 1.0)
    with pytest.raises(TransitionError, match="it cannot be rejected"):
        machine.reject(job, 2.0)


def test_starting_holds_resources_without_progress():
    job = live()
    machine.start(job, HERE, 5.0)
    assert (job.held_gpus, job.start_s, job.first_start_s) == (2, 5.0, 5.0)
    assert (job.left_at(50.0), job.executed_s(50.0)) == (100.0, 0.0)
    machine.run(job, 8.0, 0.5)
    assert (job.left_at(18.0), job.executed_s(18.0), job.attained_gpu_s(18.0)) == (95.0, 10.0, 20.0)


def test_the_first_start_stays_when_a_job_is_started_again():
    job = live()
    launch(job, HERE, 5.0)
    interrupt(job, 6.0)
    launch(job, HERE, 9.0)
    assert (job.first_start_s, job.start_s) == (5.0, 9.0)


def test_interrupting_integrates_work_service_and_time():
    job = live(work=100.0)
    launch(job, HERE, 10.0)
    interrupt(job, 40.0)
    assert (job.true_left, job.service, job.run_s, job.held_gpus) == (70.0, 60.0, 30.0, 0)
    assert job.since_s == INF
    assert job.allocation is HERE  # what it held last


def test_interrupting_after_its_work_is_done_leaves_no_negative_work():
    job = live(work=100.0)
    launch(job, HERE, 0.0)
    interrupt(job, 130.0)
    assert job.true_left == 0.0


def test_settling_moves_the_clock_of_a_running_job_only():
    job = live(work=100.0)
    machine.settle(job, 50.0)
    assert (job.true_left, job.run_s) == (100.0, 0.0)
    launch(job, HERE, 50.0)
    machine.settle(job, 60.0)
    machine.settle(job, 60.0)
    assert (job.true_left, job.run_s, job.service, job.since_s) == (90.0, 10.0, 20.0, 60.0)


def test_a_new_rate_counts_from_now_and_makes_old_events_stale():
    job = live(work=100.0)
    launch(job, HERE, 0.0)
    epoch = job.epoch
    machine.change_rate(job, 10.0, 0.25)
    assert (job.true_left, job.left_at(30.0), job.epoch) == (90.0, 85.0, epoch + 1)


@pytest.mark.parametrize(("asked", "lost", "left"), [(0.0, 0.0, 70.0), (10, 10, 80), (99, 30, 100)])
def test_no_more_work_is_lost_than_was_done(asked, lost, left):
    job = live(work=100.0)
    launch(job, HERE, 0.0)
    assert machine.begin_stop(job, 30.0, asked) == lost
    assert (job.true_left, job.held_gpus) == (left, 2)
    machine.stopped(job)
    assert job.held_gpus == 0


@pytest.mark.parametrize("verb", ["finish", "fail", "cancel"])
def test_an_end_counts_the_last_stretch_and_frees(verb):
    job = live(work=100.0)
    launch(job, HERE, 10.0)
    epoch = job.epoch
    getattr(machine, verb)(job, 60.0)
    assert (job.run_s, job.service, job.held_gpus, job.end_s) == (50.0, 100.0, 0, 60.0)
    assert job.true_left == (0.0 if verb == "finish" else 50.0)
    assert job.epoch > epoch
    assert job.terminal


def test_a_job_may_finish_while_it_is_being_stopped():
    job = live(work=100.0)
    launch(job, HERE, 0.0)
    machine.begin_stop(job, 40.0, 0.0)
    machine.finish(job, 45.0)
    assert (job.run_s, job.true_left, job.end_s) == (40.0, 0.0, 45.0)


def test_what_is_taken_back_of_a_job_that_outlived_its_estimate_is_no_more_than_it_did():
    job = live()  # 100 s of work
    launch(job, HERE, 0.0)
    machine.begin_stop(job, 500.0, 0.0)
    machine.take_back(job, 300.0)  # it had ended before it was asked to
    assert (job.true_left, job.run_s, job.service) == (100.0, 300.0, 600.0)
    job = live()
    launch(job, HERE, 0.0)
    machine.begin_stop(job, 50.0, 0.0)
    machine.take_back(job, 40.0)
    assert (job.true_left, job.run_s) == (60.0, 40.0)
