"""Shares of time as rounds: how far behind, who is chosen, and what is remembered."""

import numpy as np
import pytest

from birkhoff import decompose
from rota.core.errors import InfeasibleError
from rota.policies.rounds.dispatch import Dispatcher, DispatchOptions

ROUND = 360.0


def saturated(seed, jobs):
    """A target that uses every GPU of three types."""
    rng = np.random.default_rng(seed)
    capacity = [jobs // 4] * 3 if seed % 2 else [jobs // 6, jobs // 3, jobs // 6]
    shares = rng.random((jobs, 3)) ** 2
    for _ in range(2000):
        shares *= capacity / shares.sum(axis=0)
        shares /= np.maximum(1, shares.sum(axis=1))[:, None]
    return shares / np.maximum(1, shares.sum(axis=0) / capacity), capacity


def dispatcher(shares, capacity, sizes=None, **options):
    made = Dispatcher(capacity, ROUND, DispatchOptions(**options))
    for job in range(len(shares)):
        made.join(job, 1 if sizes is None else sizes[job], [True] * len(capacity))
    made.retarget(0.0, dict(enumerate(shares)))
    return made


def run(made, rounds):
    """The largest shortfall of all rounds."""
    worst = 0.0
    for _ in range(rounds):
        for job, kind in made.choose():
            made.record(job, kind, ROUND)
        made.advance(ROUND)
        worst = max(worst, *made.shortfall().values())
    return worst


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("jobs", [12, 60])
@pytest.mark.parametrize(("rule", "most"), [("deficit", 1.5), ("received", 4.0)])
def test_nobody_falls_far_behind(seed, jobs, rule, most):
    shares, capacity = saturated(seed, jobs)
    assert shares.sum(axis=0) == pytest.approx(capacity)
    assert run(dispatcher(shares, capacity, rule=rule), 200) <= most


@pytest.mark.parametrize("rule", ["deficit", "received"])
def test_no_type_and_no_job_is_used_twice(rule):
    shares, capacity = saturated(1, 12)
    made = dispatcher(shares, capacity, rule=rule)
    for _ in range(20):
        chosen = made.choose()
        jobs = [job for job, _ in chosen]
        assert len(set(jobs)) == len(jobs)
        used = np.bincount([kind for _, kind in chosen], minlength=3)
        assert used.tolist() == capacity  # there is always somebody who can use a GPU
        for job, kind in chosen:
            made.record(job, kind, ROUND)
        made.advance(ROUND)


@pytest.mark.parametrize("rule", ["deficit", "received"])
def test_spare_gpus_stay_idle_if_asked(rule):
    shares = np.array([[1.0, 0.0], [0.0, 0.0]])
    busy = dispatcher(shares, [1, 1], rule=rule).choose()
    assert sorted(busy) == [(0, 0), (1, 1)]
    assert dispatcher(shares, [1, 1], rule=rule, spare=False).choose() == [(0, 0)]


@pytest.mark.parametrize("rule", ["deficit", "received"])
def test_gangs_start_whole_or_not_at_all(rule):
    """Two gangs of two and a single job on three GPUs; the shortfall shows what cannot be had."""
    shares = np.array([[0.75], [0.75], [0.0]])
    made = dispatcher(shares, [3], sizes=[2, 2, 1], rule=rule)
    worst = run(made, 40)
    assert worst > 8  # each can run half of the time only: 30 of 40 rounds are owed, 20 given
    assert made.shortfall()[2] == 0


def test_a_type_on_which_a_job_makes_no_progress_is_not_given():
    made = Dispatcher([1, 1], ROUND)
    made.join(7, 1, [False, True])
    made.retarget(0.0, {7: [0.9, 0.1]})
    assert made.choose() == [(7, 1)]


def test_what_is_owed_is_kept_or_forgotten():
    for carry, first in ((True, 1), (False, 0)):
        made = dispatcher(np.array([[0.5], [0.5]]), [1], carry=carry)
        for _ in range(3):
            made.record(0, 0, ROUND)
            made.advance(ROUND)
        made.retarget(3 * ROUND, {0: [0.5], 1: [0.5]})
        assert made.choose()[0][0] == first


def test_types_choose_in_the_order_given():
    made = dispatcher(np.array([[0.5, 0.5]]), [1, 1], rule="received")
    assert made.choose([0, 1]) == [(0, 0)]
    assert made.choose([1, 0]) == [(0, 1)]


def test_new_jobs_are_unknown_to_the_target():
    made = dispatcher(np.array([[1.0]]), [2])
    made.join(5, 1, [True])
    assert made.known(0)
    assert not made.known(5)
    made.leave(0)
    assert made.choose() == [(5, 0)]


@pytest.mark.parametrize("rule", ["deficit", "received"])
def test_the_books_survive_a_restart(rule):
    shares, capacity = saturated(3, 12)
    made = dispatcher(shares, capacity, rule=rule)
    run(made, 7)
    again = Dispatcher(capacity, ROUND, DispatchOptions(rule=rule))
    again.restore(made.snapshot())
    assert again.choose() == made.choose()
    assert run(again, 5) == run(made, 5)


@pytest.mark.parametrize("seed", range(6))
def test_a_mixture_of_whole_allocations_is_the_target(seed):
    shares, capacity = saturated(seed, 12)
    shares = shares * (1.0 if seed % 2 else 0.8)
    pieces = decompose(shares, np.array(capacity, float))
    mixed = np.zeros_like(shares)
    for piece in pieces:
        used = piece.kinds >= 0
        mixed[np.flatnonzero(used), piece.kinds[used]] += piece.part
        assert (np.bincount(piece.kinds[used], minlength=3) <= capacity).all()
    assert sum(piece.part for piece in pieces) == pytest.approx(1)
    assert mixed == pytest.approx(shares, abs=1e-7)


def test_too_much_is_no_mixture():
    with pytest.raises(InfeasibleError, match="too much"):
        decompose(np.array([[0.8, 0.8]]), np.ones(2))
