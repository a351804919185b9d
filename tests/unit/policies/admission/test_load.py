"""Admission by load."""

import pytest

from policy_runs import engine, finish, job, resumes_alike, rows, runs, runs_of
from rota.core.errors import OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.registry import parse_params
from rota.policies.admission.load import Load, LoadParams, LoadState
from rota.policies.fifo_skip import FifoSkip
from rota.policies.srtf import Srtf


def load(threshold):
    return Load(LoadParams(threshold=threshold))


# 2 GPUs, threshold 1.5: 3 GPUs of demand may be inside. a and b are; c would make it 4.
JOBS = [job("a", 0, 2, 10), job("b", 0, 1, 4), job("c", 1, 1, 2)]


def test_a_job_is_held_while_the_demand_inside_is_too_large():
    log = finish(engine(Srtf(), JOBS, gpus=2, admission=load(1.5)))
    # srtf: b displaces a at 0 and ends at 4; then c enters, short as it is, and displaces nobody
    # but a, which starts at 6.
    assert runs_of(log) == {"a": [(6, 16)], "b": [(0, 4)], "c": [(4, 6)]}
    assert rows(log, Record.HELD) == [(1, 2, Reason.ADMISSION)]
    assert rows(log, Record.ADMITTED) == [(4, 2, 0)]


def test_without_it_the_job_would_start_at_once():
    assert runs(Srtf(), JOBS, gpus=2)["c"] == [(1, 3)]


def test_the_threshold_itself_is_allowed():
    log = finish(engine(FifoSkip(), JOBS, gpus=2, admission=load(2.0)))
    assert rows(log, Record.HELD) == []


def test_nobody_passes_a_held_job():
    # 4 GPUs, all may be used once. b (3) does not fit beside a; c (1) would, but b was first.
    jobs = [job("a", 0, 2, 10), job("b", 1, 3, 5), job("c", 2, 1, 5)]
    assert runs(FifoSkip(), jobs, gpus=4, admission=load(1.0)) == {
        "a": [(0, 10)],
        "b": [(10, 15)],
        "c": [(10, 15)],
    }


def test_a_job_above_the_threshold_enters_when_nobody_else_is_inside():
    jobs = [job("a", 0, 1, 10), job("big", 1, 4, 5), job("c", 2, 1, 5)]
    assert runs(FifoSkip(), jobs, gpus=4, admission=load(0.5)) == {
        "a": [(0, 10)],
        "big": [(10, 15)],
        "c": [(15, 20)],
    }


def test_only_gpus_that_are_up_count():
    # one of two nodes is down until 7: demand 2 of b makes 3 against 1.0 * 2.
    jobs = [job("a", 0, 1, 20), job("b", 1, 2, 5)]
    outages = [(0, NODE_DOWN, 1), (7, NODE_UP, 1)]
    got = runs(FifoSkip(), jobs, gpus=2, nodes=2, admission=load(1.0), outages=outages)
    assert got == {"a": [(0, 20)], "b": [(7, 12)]}


def test_a_held_job_that_is_cancelled_holds_nobody_up():
    made = engine(FifoSkip(), [job("a", 0, 2, 10), job("b", 1, 2, 5), job("c", 2, 1, 5)], gpus=2,
                  admission=load(1.0))  # fmt: skip
    made.run(3.0)
    made.cancel(made.view.active[1], None, 3.0)
    assert runs_of(finish(made)) == {"a": [(0, 10)], "b": [], "c": [(10, 15)]}


def test_a_cancelled_job_leaves_room():
    made = engine(FifoSkip(), [job("a", 0, 2, 10), job("b", 1, 2, 5)], gpus=2, admission=load(1.0))
    made.run(3.0)
    made.cancel(made.view.active[0], None, 3.0)
    assert runs_of(finish(made))["b"] == [(3, 8)]


@pytest.mark.parametrize("at_s", [0.5, 1, 3, 4, 5])
def test_a_frozen_run_goes_on_alike(at_s):
    jobs = [*JOBS, job("d", 2, 2, 3)]
    assert resumes_alike(Srtf, jobs, at_s, make_admission=lambda: load(1.5), gpus=2)


def test_the_state_of_a_restored_admission_is_the_same():
    admission = load(1.5)
    engine(Srtf(), JOBS, gpus=2, admission=admission).run(2.0)
    other = load(1.5)
    other.restore(admission.snapshot())
    assert other.snapshot() == admission.snapshot()
    assert other.state == LoadState(inside={0: 2, 1: 1}, demand=3, held={2: None})


def test_the_threshold_is_that_of_the_paper_and_must_be_positive():
    assert LoadParams().threshold == 1.2
    with pytest.raises(OptionError, match="threshold"):
        parse_params("load", LoadParams, {"threshold": "0"})
