"""Whole GPUs: queues, matchings, pairs and parts of a problem."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from allocation_cases import random_case
from rota.core.errors import OptionError
from rota.policies.allox import allox, queues
from rota.policies.gandiva_random import random_packing
from rota.policies.gavel.basics import isolated, throughputs
from rota.policies.gavel.fairness import max_min
from rota.policies.gavel.packed import packed_max_min, packed_throughputs
from rota.policies.gavel.partition import parts, pop
from rota.policies.gavel_fifo import fifo
from rota.policies.rounds.problem import JobPairs, problem, worth


def test_fifo_takes_the_fastest_that_is_free_and_waits_for_the_first():
    speed = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 5.0], [1.0, 1.0]])
    of = problem(speed, np.array([2.0, 1.0]), size=np.array([1.0, 1.0, 2.0, 1.0]))
    assert fifo(of).tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_fifo_that_knows_no_speeds_uses_every_type(seed):
    """The type is the one drawn, not the last one that was looked at."""
    of = problem(np.ones((60, 3)), np.full(3, 12.0))
    shares = fifo(of, draw=np.random.default_rng(seed))
    assert shares.sum(axis=0).tolist() == [12, 12, 12]
    assert shares[:36].sum() == 36
    assert len({tuple(row) for row in shares[:6].tolist()}) > 1


def test_fifo_passes_by_a_type_on_which_a_job_makes_no_progress():
    of = problem(np.array([[0.0, 1.0]] * 4), np.array([4.0, 4.0]))
    assert fifo(of, draw=np.random.default_rng(0))[:, 1].tolist() == [1] * 4


def best_total(lasts, gpus):
    """The least sum of completion times, by trying all assignments; queues run shortest first."""
    jobs = len(lasts)
    best = np.inf
    for where in itertools.product(range(len(gpus)), repeat=jobs):
        total = 0.0
        for number, kind in enumerate(gpus):
            here = sorted(lasts[job][kind] for job in range(jobs) if where[job] == number)
            total += sum(itertools.accumulate(here))
        best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_the_matching_has_the_least_total_completion_time(seed):
    rng = np.random.default_rng(seed)
    jobs = int(rng.integers(1, 7))
    speed, capacity = rng.uniform(0.2, 2.0, (jobs, 2)), rng.integers(1, 3, 2).astype(float)
    of = problem(speed, capacity, steps=rng.uniform(1, 50, jobs))
    places = queues(of, capacity)
    lasts = of.steps[:, None] / speed
    ours = (lasts[np.arange(jobs), places.kind] * places.turn).sum()
    gpus = [kind for kind in range(2) for _ in range(int(capacity[kind]))]
    assert ours == pytest.approx(best_total(lasts, gpus))


def test_running_jobs_keep_their_gpu():
    of = problem(np.array([[1.0], [1.0]]), np.ones(1), steps=np.array([100.0, 1.0]))
    assert allox(of)[:, 0].tolist() == [0, 1]
    assert allox(of, kept=np.array([0, -1]))[:, 0].tolist() == [1, 0]


def test_only_the_oldest_part_is_matched():
    of = problem(
        np.ones((4, 1)), np.ones(1), steps=np.array([9.0, 8.0, 2.0, 1.0]), age=np.arange(4.0)[::-1]
    )
    assert allox(of)[:, 0].tolist() == [0, 0, 0, 1]
    assert allox(of, alpha=0.5)[:, 0].tolist() == [0, 1, 0, 0]


def test_a_gang_is_matched_as_one_long_job_and_nobody_passes_it():
    """Two GPUs, one of them held: the gang of two is the shortest, and waits for the other."""
    of = problem(
        np.ones((3, 1)),
        np.array([2.0]),
        size=np.array([1.0, 2.0, 1.0]),
        steps=np.array([100.0, 1.0, 10.0]),
    )
    assert allox(of)[:, 0].tolist() == [0, 1, 0]
    assert allox(of, kept=np.array([0, -1, -1]))[:, 0].tolist() == [1, 0, 0]


def test_gangs_and_parts_of_gpus_are_not_dropped():
    sizes = np.array([4.0, 2.0, 0.5, 0.5])
    of = problem(np.ones((4, 2)), np.array([4.0, 3.0]), size=sizes).fitting()
    shares = allox(of)
    assert shares.sum() >= 3
    assert (sizes @ shares <= of.capacity).all()


@pytest.mark.parametrize("seed", range(8))
def test_with_one_type_the_shortest_go_first(seed):
    """The matching of a single type needs no search: it is the same as with another, idle one."""
    rng = np.random.default_rng(seed)
    steps = rng.uniform(1, 50, 7)
    one = problem(np.ones((7, 1)), np.array([2.0]), steps=steps)
    two = problem(np.array([[1.0, 1e-9]] * 7), np.array([2.0, 1.0]), steps=steps)
    assert allox(one)[:, 0].tolist() == allox(two)[:, 0].tolist()
    assert sorted(np.flatnonzero(allox(one)[:, 0])) == sorted(np.argsort(steps)[:2])


def all_pairs(of, factor=0.8):
    jobs = np.array(list(itertools.combinations(range(of.jobs), 2)))
    rates = np.stack([of.throughput[jobs[:, 0]], of.throughput[jobs[:, 1]]], axis=2) * factor
    return JobPairs(jobs, rates)


def test_pairs_of_unequal_gangs_never_give_a_job_more_than_all_the_time():
    """Two single jobs and a gang of two: each job has its own rows, however many pairs it is in."""
    of = problem(np.ones((3, 2)), np.array([1.0, 1.0]), size=np.array([1.0, 1.0, 2.0]))
    pairs = all_pairs(of)
    shares = packed_max_min(of, pairs)
    time = shares.alone.sum(axis=1)
    for pair, share in zip(pairs.jobs, shares.pairs.sum(axis=1), strict=True):
        time[pair] += share
    assert (time <= 1 + 1e-9).all()
    assert shares.pairs[1:].sum() == 0  # (0, 2) and (1, 2) are no pairs
    assert (packed_throughputs(of, pairs, shares) > 0).all()


def test_pairs_help_where_jobs_leave_each_other_room():
    of = problem(np.ones((2, 1)), np.ones(1))
    pairs = all_pairs(of)
    shares = packed_max_min(of, pairs)
    assert packed_throughputs(of, pairs, shares) == pytest.approx([0.8, 0.8])
    assert throughputs(of, max_min(of)) == pytest.approx([0.5, 0.5])


def test_nobody_is_packed_while_there_is_room():
    of = problem(np.ones((2, 1)), np.array([2.0]))
    packing = random_packing(of, all_pairs(of), np.random.default_rng(0))
    assert packing.shares.pairs.sum() == 0
    assert packing.shares.alone == pytest.approx(isolated(of))


def test_random_pairs_share_evenly_and_stay_while_they_are_worth_it():
    of = problem(np.ones((4, 1)), np.ones(1))
    pairs, draw = all_pairs(of), np.random.default_rng(1)
    packing = random_packing(of, pairs, draw)
    assert len(packing.together) == 2
    assert packing.shares.pairs.sum(axis=1)[packing.together] == pytest.approx([0.5, 0.5])
    again = random_packing(of, pairs, draw, together=packing.together)
    assert again.together.tolist() == packing.together.tolist()
    bad = all_pairs(of, factor=0.3)
    assert worth(of, bad) == pytest.approx([0.6] * 6)
    seen = {
        tuple(random_packing(of, bad, draw, together=packing.together).together.tolist())
        for _ in range(20)
    }
    assert len(seen) > 1  # those that are not worth it are drawn anew


def test_a_pair_that_stops_a_job_is_worth_nothing():
    of = problem(np.ones((2, 2)), np.ones(2))
    rates = np.array([[[1.0, 1.0], [1.0, 0.0]]])
    assert worth(of, JobPairs(np.array([[0, 1]]), rates)).tolist() == [0.0]


def test_one_part_is_the_whole_problem():
    speed, size, capacity = random_case(5, jobs=8)
    of = problem(speed, capacity, size=size)
    draw = np.random.default_rng(0)
    assert pop(of, max_min, k=1, draw=draw) == pytest.approx(max_min(of), abs=0)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_parts_lose_no_job_and_no_gpu(k):
    of = problem(np.ones((11, 3)), np.array([4.0, 7.0, 5.0]))
    divided = parts(of, k, np.random.default_rng(0))
    assert sorted(np.concatenate([rows for rows, _ in divided]).tolist()) == list(range(11))
    assert sum(part.capacity for _, part in divided).tolist() == [4, 7, 5]
    totals = [part.capacity.sum() for _, part in divided]
    assert max(totals) - min(totals) <= 1


def test_parts_may_be_solved_side_by_side():
    speed, _, _ = random_case(7, jobs=40)
    of = problem(speed, np.array([8.0, 8.0, 8.0]))
    with ThreadPoolExecutor(2) as pool:
        shares = pop(of, max_min, k=2, draw=np.random.default_rng(0), spread=pool.map)
    again = pop(of, max_min, k=2, draw=np.random.default_rng(0))
    assert shares == pytest.approx(again)
    assert (of.size @ shares <= of.capacity + 1e-9).all()


def test_no_part_at_all_is_refused():
    with pytest.raises(OptionError, match="k=0"):
        parts(problem(np.ones((1, 1)), np.ones(1)), 0, np.random.default_rng(0))
