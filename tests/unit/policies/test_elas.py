"""E-LAS: equal to 2D-LAS at equal progress rates, faster progress first otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_runs import bare, engine, finish, job, resumes_alike, runs
from rota.core.errors import KnowledgeError, OptionError
from rota.core.jobs import RUNNING
from rota.core.knowledge import Knowledge
from rota.core.registry import parse_params
from rota.policies.elas import Elas, ElasParams
from rota.policies.tiresias import Tiresias, TiresiasParams


def elas(*limits, **params):
    return Elas(ElasParams(limits=limits, **params))


# Limit 10. b runs 0-10 and drops: it has done half of its 20 s, 1/20 per second. a takes over,
# drops at 20 with a tenth of its 100 s, 1/100 per second.
JOBS = [job("b", 0, 1, 20), job("a", 1, 1, 100)]


def test_in_a_queue_the_job_that_progresses_faster_displaces_the_slower():
    assert runs(elas(10), JOBS) == {"b": [(0, 10), (20, 30)], "a": [(10, 20), (30, 120)]}


def test_without_progress_rates_the_slower_would_keep_its_place():
    two_d_las = Tiresias(TiresiasParams(limits=(10,)))
    assert runs(two_d_las, JOBS) == {"b": [(0, 10), (110, 120)], "a": [(10, 110)]}


def test_rates_within_the_factor_are_equal():
    # 1/20 and 1/100 differ by 5: with steps of 100 that is nothing.
    assert runs(elas(10, factor=100), JOBS) == {"b": [(0, 10), (110, 120)], "a": [(10, 110)]}


def test_in_the_first_queue_nothing_has_been_measured():
    jobs = [job("slow", 0, 1, 100), job("fast", 1, 1, 2)]
    assert runs(elas(1000), jobs) == {"slow": [(0, 100)], "fast": [(100, 102)]}


def test_the_rate_is_measured_again_when_the_service_has_doubled():
    policy = elas(10)
    moving = bare(work=1000.0)
    moving.phase, moving.since_s, moving.true_rate, moving.start_s = RUNNING, 0.0, 1.0, 0.0
    assert policy.next_change(moving, 0.0) == 10
    assert policy.rank(moving, 10.0) == (1, 10)  # 1/1000 per second is about 2 ** -10
    assert policy.next_change(moving, 10.0) == 20
    moving.true_left = (
        990.0  # progress stood still: 20/1000 in 20 s would be as before, 10/1000 is half
    )
    moving.phase, moving.run_s, moving.service = 1, 19.0, 19.0
    assert policy.rank(moving, 19.0) == (1, 10)
    moving.run_s = moving.service = 20.0
    assert policy.rank(moving, 20.0) == (1, 11)


def test_a_job_that_tells_no_progress_is_behind_all_others():
    silent = bare(work=float("inf"))
    silent.run_s = silent.service = 10.0
    told = bare(1, work=1e9)
    told.run_s = told.service = 10.0
    told.true_left = 1e9 - 10.0
    policy = elas(10)
    assert policy.key(told, 10.0) < policy.key(silent, 10.0)


def test_progress_is_declared():
    assert Elas.knowledge == Knowledge.PROGRESS
    hidden = bare(known=Knowledge.NOTHING)
    hidden.run_s = hidden.service = 10.0
    with pytest.raises(KnowledgeError, match="PROGRESS"):
        elas(10).key(hidden, 10.0)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4)), min_size=1, max_size=12),
    st.integers(1, 60),
    st.sampled_from([(5,), (4, 20), (3, 9, 27), ()]),
)
def test_equal_progress_rates_give_exactly_two_dimensional_las(arrivals, duration, limits):
    # All jobs need the same time, so all progress by the same share per second.
    jobs = [job(str(i), at_s, gpus, duration) for i, (at_s, gpus) in enumerate(arrivals)]
    plain = Tiresias(TiresiasParams(limits=limits))
    assert runs(elas(*limits), jobs, gpus=4) == runs(plain, jobs, gpus=4)


def test_measurements_of_finished_jobs_are_forgotten():
    policy = elas(10)
    runs(policy, JOBS)
    assert policy.state.measured == {}


@pytest.mark.parametrize("at_s", [5, 10, 15, 20, 25, 60])
def test_a_frozen_run_goes_on_alike(at_s):
    assert resumes_alike(lambda: elas(10, 30), [*JOBS, job("c", 22, 1, 40)], at_s)


def test_the_state_of_a_restored_policy_is_the_same():
    policy = elas(10)
    made = engine(policy, JOBS)
    made.run(25.0)
    other = elas(10)
    other.restore(policy.snapshot())
    assert other.snapshot() == policy.snapshot()
    assert other.state.measured == {0: (1, 4), 1: (1, 7)}
    finish(made)


def test_the_factor_must_be_above_one():
    with pytest.raises(OptionError, match="factor"):
        parse_params("elas", ElasParams, {"factor": "1"})
