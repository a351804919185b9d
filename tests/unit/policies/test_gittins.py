"""The Gittins index: by hand, against its definition, and as a policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_runs import bare, job, resumes_alike, runs
from rota.core.errors import OptionError
from rota.core.knowledge import Knowledge
from rota.core.registry import parse_params
from rota.policies.gittins import Gittins, GittinsParams, gathered, indices


def gittins(*distribution, **params):
    return Gittins(GittinsParams(distribution=distribution, **params))


def test_two_points():
    # S is 10 or 100 GPU-s, each with probability 1/2.
    # At 0:  d = 10:  P(S <= 10) = 1/2, E[min(S, 10)] = 10         -> (1/2) / 10 = 1/20
    #        d = 100: P = 1,            E[S] = (10 + 100) / 2 = 55 -> 1/55
    #        so G(0) = 1/20: better to try for 10 GPU-s.
    # At 10: S is 100 for certain: d = 90: 1 / 90.
    # At 100: nothing is known beyond: 0.
    assert dict(indices([100, 10])) == pytest.approx({0: 1 / 20, 10: 1 / 90, 100: 0})


def test_a_job_that_is_nearly_done_gets_better():
    # S is 50 or 60. At 0: (1/2) / 50 = 0.01 or 1 / 55; at 50: 1 / 10.
    assert dict(indices([50, 60])) == pytest.approx({0: 1 / 55, 50: 1 / 10, 60: 0})


def definition(samples, attained):
    """The largest of P / E over every d that ends at a sample."""
    left = [sample - attained for sample in samples if sample > attained]
    return max(
        (sum(x <= d for x in left) / sum(min(x, d) for x in left) for d in set(left)), default=0.0
    )


@given(st.lists(st.integers(1, 30) | st.integers(1, 10**6), min_size=1, max_size=30))
def test_the_hull_gives_the_index_of_the_definition(samples):
    table = indices(samples)
    assert [attained for attained, _ in table] == [0, *sorted(set(samples))]
    for attained, index in table:
        assert index == pytest.approx(definition(samples, attained))


def test_samples_that_differ_by_rounding_are_one():
    assert gathered([0.1 + 0.2, 0.3, 5.0], 10) == [0.1 + 0.2, 0.1 + 0.2, 5.0]


def test_the_index_decides_and_ties_go_to_the_running_job():
    # With (10, 100): a and b have index 1/20 until a has attained 10; then b is better.
    jobs = [job("a", 0, 1, 100), job("b", 5, 1, 10)]
    assert runs(gittins(10, 100), jobs) == {"a": [(0, 10), (20, 110)], "b": [(10, 20)]}


def test_service_is_gpus_times_seconds():
    jobs = [job("a", 0, 2, 50), job("b", 1, 2, 5)]
    assert runs(gittins(10, 100), jobs, gpus=2) == {"a": [(0, 5), (10, 55)], "b": [(5, 10)]}


def test_a_job_beyond_the_largest_sample_comes_last():
    # a passes 20 at 20, index 0; b has 1/20 until then.
    jobs = [job("a", 0, 1, 50), job("b", 10, 1, 15)]
    assert runs(gittins(20), jobs) == {"a": [(0, 20), (35, 65)], "b": [(20, 35)]}


def test_it_learns_from_finished_jobs():
    # Nothing is known at first: first come, first served. At 10 a ends: one sample, 10 GPU-s.
    # b has attained 10 at 20 and ranks last; c takes over and ends at 25: two samples, a new fit.
    jobs = [job("a", 0, 1, 10), job("b", 1, 1, 50), job("c", 12, 1, 5)]
    policy = gittins(warmup=1)
    assert runs(policy, jobs) == {"a": [(0, 10)], "b": [(10, 20), (25, 65)], "c": [(20, 25)]}
    # 10, then 5, then 50: fitted at 1 and 2 samples, and next at 4.
    assert policy.state.samples == [10, 5, 50]
    assert (policy.state.fitted, policy.revision) == (2, 2)


def test_it_waits_for_the_warmup():
    policy = gittins(warmup=3)
    runs(policy, [job(str(i), i, 1, i + 1) for i in range(2)])
    assert (policy.revision, policy.levels) == (0, ())


def test_jobs_that_finish_together_are_learnt_together():
    policy = gittins(warmup=1)
    runs(policy, [job("a", 0, 1, 10), job("b", 0, 1, 10), job("c", 0, 3, 10)], gpus=5)
    assert policy.state.fitted == 3
    assert policy.levels == [10, 30]


def test_what_it_knows_depends_on_where_the_distribution_comes_from():
    assert gittins(1, 2).knowledge == Knowledge.DISTRIBUTION
    assert gittins().knowledge == Knowledge.HISTORY


def test_few_samples_are_all_levels():
    assert gathered([5, 1, 0, 3, 3], 3) == [1, 3, 3, 5]
    assert gittins(1, 2, 3, levels=3).levels == [1, 2, 3]


def test_many_samples_are_gathered_evenly_on_a_logarithmic_scale():
    # three groups from 1 to 1000: up to 10, up to 100, up to 1000, each as its largest member
    assert gathered([1, 2, 9, 11, 50, 99, 101, 1000], 3) == [9, 9, 9, 99, 99, 99, 1000, 1000]
    assert len(gittins(*range(1, 1025), levels=10).levels) <= 11


def test_between_levels_the_index_does_not_change():
    policy = gittins(*range(1, 1025), levels=10)
    waiting = bare()
    seen = set()
    for service in range(1100):
        waiting.service = float(service)
        seen.add(policy.key(waiting, 0.0)[0])
    assert seen == set(policy.ranks)
    assert min(policy.ranks) < 0 == max(policy.ranks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution": "0/-1"}, "positive"),
        ({"levels": "0"}, "levels"),
        ({"warmup": "x"}, "warmup"),
    ],
)
def test_bad_parameters_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        parse_params("gittins", GittinsParams, options)


@pytest.mark.parametrize("at_s", [5, 11, 20, 22, 30])
def test_a_frozen_run_goes_on_alike(at_s):
    jobs = [job("a", 0, 1, 10), job("b", 1, 1, 50), job("c", 12, 1, 5), job("d", 13, 1, 30)]
    assert resumes_alike(lambda: gittins(warmup=1), jobs, at_s)


def test_the_state_of_a_restored_policy_is_the_same():
    policy = gittins(warmup=2)
    runs(policy, [job(str(i), i, 1, 1 + i * i) for i in range(7)])
    other = gittins(warmup=2)
    other.restore(policy.snapshot())
    assert other.snapshot() == policy.snapshot()
    assert (other.levels, other.ranks) == (policy.levels, policy.ranks)
