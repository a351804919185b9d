"""Intervals of ratios, on numbers whose answer is known."""

import math

import numpy as np
import pytest

from rota.study.statistics import FEW, Ratio, jobs_interval, ratio_interval, student


def mean(jobs):
    return jobs.mean(axis=1)


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.3027), (5, 2.5706), (14, 2.1448), (30, 2.0423)]
)
def test_quantiles_of_student(freedom, t):
    assert student(0.95, freedom) == pytest.approx(t, abs=1e-4)


def test_many_degrees_of_freedom_are_normal():
    assert student(0.95, 1e9) == pytest.approx(1.96, abs=1e-3)


def test_paired_by_hand():
    """Log ratios 0.1 and 0.3: mean 0.2, standard error 0.1, one degree of freedom."""
    found = ratio_interval([1.0, 10.0], [math.exp(0.1), 10 * math.exp(0.3)])

    assert found.ratio == pytest.approx(math.exp(0.2))
    assert found.low == pytest.approx(math.exp(0.2 - 1.27062), rel=1e-4)
    assert found.high == pytest.approx(math.exp(0.2 + 1.27062), rel=1e-4)


def test_not_paired_by_hand():
    """Logs 0, 0.2 against 1, 1.2: difference 1, standard error sqrt(0.02), Welch: 2 degrees."""
    logs = [[0.0, 0.2], [1.0, 1.2]]
    found = ratio_interval(*(np.exp(values) for values in logs), paired=False)

    assert math.log(found.ratio) == pytest.approx(1.0)
    assert math.log(found.high) == pytest.approx(1.0 + 4.3027 * math.sqrt(0.02), rel=1e-4)


def test_arms_of_different_sizes_are_compared_unpaired():
    found = ratio_interval([1.0, 2.0, 4.0], [2.0, 4.0], paired=False)

    assert found.low < found.ratio < found.high


def test_a_ratio_and_its_inverse_say_the_same():
    rng = np.random.default_rng(1)
    base, values = np.exp(rng.normal(0, 1, (2, 5)))
    there, back = ratio_interval(base, values), ratio_interval(values, base)

    assert back == pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low))


def test_one_replication_has_no_interval():
    assert ratio_interval([4.0], [3.0]) == Ratio(0.75, None, None)


@pytest.mark.parametrize("count", [2, FEW, 40])
def test_nothing_differs(count):
    values = np.arange(1.0, count + 1)

    assert ratio_interval(values, values) == (1, 1, 1)


@pytest.mark.parametrize("base", [[], [0.0, 0.0]])
def test_no_ratio_to_nothing(base):
    assert ratio_interval(base, [1.0] * len(base)) == Ratio()


def test_zeros_are_compared_by_means_and_prove_nothing():
    assert ratio_interval([2.0, 1.0, 3.0], [0.0, 1.0, 2.0]) == Ratio(0.5)
    assert ratio_interval([2.0], [0.0]) == Ratio(0.0)
    assert ratio_interval([0, 0, 0, 1], [0, 0, 0, 3]) == Ratio(3.0)
    assert ratio_interval([1.0, 0.0], [0.0, 0.0]) == Ratio(0.0)
    assert ratio_interval([2.0, 4.0], [0.0, 1.0], paired=False) == Ratio(1 / 6)


def test_many_equal_ratios_and_one_other_prove_nothing():
    values = np.ones(20)
    values[7] = 0.9

    assert ratio_interval(np.ones(20), values).high > 1


def test_the_bootstrap_depends_on_its_seed_only():
    rng = np.random.default_rng(3)
    base, values = rng.lognormal(0, 1, (2, 20))

    assert ratio_interval(base, values, seed=1) == ratio_interval(base, values, seed=1)
    assert ratio_interval(base, values, seed=1) != ratio_interval(base, values, seed=2)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("count", [3, 8, 20])
def test_the_interval_covers_the_truth_as_often_as_it_says(count, paired):
    rng = np.random.default_rng(count)
    trials, truth = 400, 0.8
    covered = 0
    for _ in range(trials):
        common = rng.normal(0, 1, count) if paired else np.zeros((2, count))
        own = rng.normal(0, 0.3, (2, count))
        base, values = np.exp(common + own)
        found = ratio_interval(base, truth * values, paired=paired)
        covered += found.low <= truth <= found.high
    assert 0.925 <= covered / trials <= 0.985


def test_skewed_ratios_are_covered_too():
    """Exponential logarithms: of a plain percentile bootstrap one in ten intervals fails."""
    rng = np.random.default_rng(0)
    trials = 400
    covered = 0
    for _ in range(trials):
        values = np.exp(rng.exponential(0.2, 10) - 0.2)
        found = ratio_interval(np.ones(10), values)
        covered += found.low <= 1 <= found.high
    assert covered / trials >= 0.925


# --- jobs of one run -----------------------------------------------------------------------------


def queue(rng, count, memory=0.9):
    """Waiting times that go on like those of neighbours in a queue."""
    noise = rng.normal(0, 1, count)
    for i in range(1, count):
        noise[i] += memory * noise[i - 1]
    return np.exp(0.3 * noise)


def test_the_ratio_of_jobs_is_that_of_their_means():
    base = np.arange(1.0, 301.0)
    found = jobs_interval(base, 0.5 * base, mean)

    assert found.ratio == pytest.approx(0.5)
    assert found.low == pytest.approx(0.5)
    assert found.high == pytest.approx(0.5)


def test_few_jobs_have_no_interval():
    base = np.arange(1.0, 10.0)

    assert jobs_interval(base, 2 * base, mean) == Ratio(2.0)


def test_no_jobs_have_no_ratio():
    empty = np.zeros(0)

    assert jobs_interval(np.zeros(30), np.ones(30), mean) == Ratio()
    assert jobs_interval(empty, empty, mean) == Ratio()


def test_neighbours_that_wait_together_widen_the_interval():
    rng = np.random.default_rng(4)
    base, values = queue(rng, 900), queue(rng, 900)
    shuffled = rng.permutation(900)
    ordered = jobs_interval(base, values, mean)
    mixed = jobs_interval(base[shuffled], values[shuffled], mean)

    assert ordered.ratio == pytest.approx(mixed.ratio)
    assert ordered.high / ordered.low > 1.05 * mixed.high / mixed.low


def test_dependent_jobs_are_covered():
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(100):
        base, values = queue(rng, 400), queue(rng, 400)
        found = jobs_interval(base, values, mean)
        covered += found.low <= 1 <= found.high
    assert covered >= 86
