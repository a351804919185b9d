"""Speeds that nobody measured: exact where observed, sensible where nothing is known."""

import msgspec
import numpy as np
import pytest

from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.knowledge import Knowledge
from rota.models.estimator import Estimator, LearntSpeeds
from rota.models.throughputs import load_throughputs

SIZES = (40, 6)


def observed(matrix, known, **options):
    made = Estimator(range(matrix.shape[1]), **options)
    for row, column in zip(*np.nonzero(known), strict=True):
        made.observe(int(row), int(column), matrix[row, column])
    return made


def some(rng, shape, each):
    """Which entries are known: so many of each row."""
    known = np.zeros(shape, bool)
    for row in known:
        row[rng.choice(shape[1], each, replace=False)] = True
    return known


def worst(made, matrix, known):
    """The largest relative error of what was not observed."""
    hidden = zip(*np.nonzero(~known), strict=True)
    return max(abs(made.estimate(int(i), int(j)) / matrix[i, j] - 1) for i, j in hidden)


@pytest.mark.parametrize("seed", range(3))
def test_a_matrix_of_rank_1_is_recovered_from_half_of_it(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(0.2, 1, (SIZES[0], 1)) @ rng.uniform(0.2, 1, (1, SIZES[1]))
    known = some(rng, SIZES, 3)
    assert worst(observed(matrix, known), matrix, known) < 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_two_traits_of_jobs_are_recovered_from_two_thirds_of_the_matrix(seed):
    rng = np.random.default_rng(seed)
    logs = rng.standard_normal((SIZES[0], 2)) @ rng.standard_normal((2, SIZES[1]))
    matrix = np.exp(logs / 2)
    known = some(rng, SIZES, 4)
    assert worst(observed(matrix, known), matrix, known) < 1e-2
    means = observed(matrix, known, rank=0)
    assert worst(means, matrix, known) > 1


def test_what_was_observed_is_told_exactly():
    made = Estimator(("a", "b"))
    for value in (3.0, 4.0, 8.0):
        made.observe("row", "a", value)
    made.observe("other", "b", 0.0)
    assert made.estimate("row", "a") == 5.0
    assert made.estimate("other", "b") == 0.0
    assert made.knows("row", "a")
    assert not made.knows("row", "b")
    assert not made.knows("nobody", "a")


def test_without_any_observation_everything_is_equally_fast():
    made = Estimator(("a", "b"))
    assert made.estimate("row", "a") == 1.0
    made.observe("cannot", "a", 0.0)
    assert made.estimate("row", "a") == 1.0


def test_a_row_that_was_never_seen_has_the_mean_ratios_of_the_columns():
    made = Estimator(("fast", "slow"))
    for row, slow in enumerate((0.5, 0.25, 0.125)):
        made.observe(row, "fast", 1.0)
        made.observe(row, "slow", slow)
    assert made.estimate("new", "fast") == pytest.approx(1.0, rel=1e-2)
    assert made.estimate("new", "slow") == pytest.approx(0.25, rel=0.05)  # the geometric mean


def test_one_observation_scales_a_row_where_rows_differ_by_scale():
    made = Estimator(("fast", "slow"))
    for row in range(12):
        made.observe(row, "fast", 2.0 ** (row % 4))
        made.observe(row, "slow", 2.0 ** (row % 4) / 4)
    made.observe("new", "fast", 4.0)
    assert made.estimate("new", "slow") == pytest.approx(1.0, rel=0.05)


def test_a_column_without_differences_tells_nothing_of_a_row():
    """Speeds relative to a reference: that of the reference is 1 for everybody."""
    made = Estimator(("reference", "slow"))
    rng = np.random.default_rng(3)
    for row in range(30):
        made.observe(row, "reference", 1.0)
        made.observe(row, "slow", float(rng.uniform(0.1, 0.5)))
    made.observe("new", "slow", 0.1)
    assert made.estimate("new", "reference") == pytest.approx(1.0, abs=0.02)


def test_columns_may_come_later():
    made = Estimator(("a",))
    made.observe("row", "a", 2.0)
    made.observe("row", ("a", "partner"), 1.0)
    assert made.estimate("row", ("a", "partner")) == 1.0
    assert made.estimate("new", ("a", "partner")) == pytest.approx(1.0, rel=0.1)
    assert made.estimate("row", "never seen") > 0


def test_the_order_of_observations_and_snapshots_do_not_matter():
    rng = np.random.default_rng(5)
    matrix = rng.uniform(0.2, 1, (10, 4))
    known = some(rng, (10, 4), 2)
    forward = observed(matrix, known)
    copy = Estimator(range(4))
    copy.restore([[row, column, total, count] for row, column, total, count in forward.snapshot()])
    first = [[forward.estimate(i, j) for j in range(4)] for i in range(10)]
    assert first == [[copy.estimate(i, j) for j in range(4)] for i in range(10)]
    assert copy.snapshot() == forward.snapshot()
    again = observed(matrix, known)
    assert again.estimate(0, 3) == forward.estimate(0, 3)


@pytest.mark.parametrize("speed", [-1.0, float("inf"), float("nan")])
def test_speeds_that_make_no_sense(speed):
    with pytest.raises(ValueError, match="give 0 or more"):
        Estimator(("a",)).observe("row", "a", speed)


@pytest.mark.parametrize(("share", "bound"), [(0.5, 0.85), (0.7, 0.8)])
def test_it_beats_the_means_of_columns_on_a_published_table(shared, share, bound):
    """Gavel's throughputs relative to the v100: mean error of logarithms of hidden entries."""
    path = shared("reference/gavel/simulation_throughputs.json")
    read = load_throughputs(str(path))
    matrix = np.array(
        [[speeds[t] / speeds["v100"] for t in read.gpu_types] for speeds in read.alone.values()]
    )
    ours, means = [], []
    for seed in range(8):
        known = (np.random.default_rng(seed).random(matrix.shape) < share) & (matrix > 0)
        made = observed(matrix, known)
        column = [matrix[known[:, j], j].mean() for j in range(matrix.shape[1])]
        for i, j in zip(*np.nonzero(~known & (matrix > 0)), strict=True):
            ours.append(abs(np.log(made.estimate(int(i), int(j)) / matrix[i, j])))
            means.append(abs(np.log(column[j] / matrix[i, j])))
    assert np.mean(ours) < bound * np.mean(means)
    assert np.mean(ours) < 0.26


# --- what a policy learns -------------------------------------------------------------------------


def job(index, model, gpus=1, types=(), **speeds):
    spec = JobSpec(f"j{index}", 0.0, Request.of(gpus, gpu_types=types), model=model)
    made = Job(spec, Behaviour(100.0, speeds=speeds), index, Shape(0, spec.request))
    made.known = int(Knowledge.SPEEDS)
    return made


def test_a_policy_learns_a_speed_when_a_job_of_that_kind_has_run_there():
    learnt = LearntSpeeds(("fast", "slow"))
    one, twin = job(0, "m", fast=1.0, slow=0.25), job(1, "m", fast=1.0, slow=0.25)
    assert learnt.speed(one, "slow") == 1.0
    learnt.saw(one, "slow")
    assert learnt.speed(twin, "slow") == 0.25
    wide = job(2, "m", gpus=2, slow=0.5)
    assert learnt.speed(wide, "slow") != 0.5
    assert learnt.speed(job(3, "m", types=("fast",)), "slow") == 0.0


def test_jobs_without_a_model_are_like_themselves_only():
    learnt = LearntSpeeds(("fast", "slow"))
    learnt.saw(job(0, "", slow=0.25), "slow")
    assert learnt.speed(job(0, ""), "slow") == 0.25
    other = LearntSpeeds(("fast", "slow"))
    other.restore(learnt.snapshot())
    assert other.speed(job(0, ""), "slow") == 0.25
    assert not other.estimator.knows(("job", "j1", 1), "slow")


def test_a_job_that_differs_from_its_kind_has_speeds_of_its_own():
    learnt = LearntSpeeds(("fast", "slow"))
    one, odd = job(0, "m", fast=1.0, slow=0.25), job(1, "m", fast=1.0, slow=0.0)
    assert learnt.saw(one, "slow")
    assert not learnt.saw(one, "slow")
    assert learnt.speed(odd, "slow") == 0.25
    assert learnt.saw(odd, "slow")
    assert not learnt.saw(odd, "slow")
    again = LearntSpeeds(("fast", "slow"))
    again.restore(msgspec.json.decode(msgspec.json.encode(learnt.snapshot())))
    for book in (learnt, again):
        assert (book.speed(one, "slow"), book.speed(odd, "slow")) == (0.25, 0.0)
