"""Pollux: the exact search is exhaustive's equal, the genetic one stays within the rules."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.hints import Hints
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.knowledge import Knowledge
from rota.policies.pollux import (
    EPSILON,
    GeneticSearch,
    SizedJob,
    best_sizes,
    restart_factor,
    speedups,
)


def sized(speeds, most, held, keeps):
    near = np.array([0.0, *speeds])
    return SizedJob(near, near * 0.9, most, held, keeps)


JOBS = st.lists(
    st.builds(
        sized,
        st.lists(st.floats(0.1, 8), min_size=8, max_size=8),
        st.integers(1, 8),
        st.integers(0, 4),
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=3,
)


def cost(job, size):
    speed = (job.far if size > 4 else job.near)[size] / 4
    return 1 / (speed * (1 if size == job.held else job.keeps) + EPSILON)


@given(jobs=JOBS)
def test_no_division_is_better_than_the_exact_one(jobs):
    given_ = best_sizes(jobs, 8, 4)
    assert sum(given_) <= 8
    assert all(size <= max(job.most, 1) for size, job in zip(given_, jobs, strict=True))
    sizes = (0, 1, 2, 3, 4, 8)
    best = min(
        sum(cost(job, size) for job, size in zip(jobs, chosen, strict=True))
        for chosen in product(sizes, repeat=len(jobs))
        if sum(chosen) <= 8
        and all(size <= max(job.most, 1) for size, job in zip(chosen, jobs, strict=True))
    )
    found = sum(cost(job, size) for job, size in zip(jobs, given_, strict=True))
    assert found == pytest.approx(best)


@given(jobs=JOBS, seed=st.integers(0, 99))
def test_the_genetic_search_keeps_to_nodes_and_limits_and_repeats_itself(jobs, seed):
    nodes, base = np.array([4, 4]), np.zeros((len(jobs), 2), np.int64)
    search = GeneticSearch(population=10, generations=5)
    before = np.zeros((0, *base.shape), np.int64)
    found, again = (
        search.search(jobs, nodes, base, before, np.random.default_rng(seed)) for _ in range(2)
    )
    assert (found == again).all()
    assert (found >= 0).all()
    assert (found.sum(axis=1) <= nodes).all()
    assert (found.sum(axis=2) <= [job.most for job in jobs]).all()
    spans = (found > 0) & ((found > 0).sum(axis=2) > 1)[:, :, None]
    assert (spans.sum(axis=1) <= 1).all()  # at most one such job on a node


def job_with(reports, **numbers):
    request = Request.of(1, min_gpus=1, max_gpus=8)
    job = Job(JobSpec("j", 0.0, request), Behaviour(100.0), 0, Shape(0, request))
    job.known = int(Knowledge.SCALING | Knowledge.PROGRESS)
    job.told = Hints()
    for gpus, values in reports:
        job.told.take({**values, **numbers}, 1, gpus, "")
    return job


def test_speedups_are_relative_to_a_fair_share():
    near, _ = speedups(job_with([]), 8, 2, most_gpus=8)
    assert near.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]  # nothing is known yet
    measured = [(1, {"step_s": 1.0, "batch": 8}), (2, {"step_s": 1.6, "sync_s": 0.6, "batch": 8})]
    near, _ = speedups(job_with(measured), 8, 2, most_gpus=8)
    assert near[2] == pytest.approx(1.0)
    assert near[1] == pytest.approx(0.8, rel=0.05)  # 8 samples a second of 10
    limits = {"init_batch": 8, "max_batch": 64, "min_local_batch": 1, "max_local_batch": 8}
    calm = job_with(measured, grad_sqr=1.0, grad_var=0.0, **limits)
    noisy = job_with(measured, grad_sqr=1.0, grad_var=50.0, **limits)
    assert speedups(noisy, 8, 1, most_gpus=8)[0][8] > speedups(calm, 8, 1, most_gpus=8)[0][8]


def test_restarts_count_for_less_the_older_the_job():
    assert restart_factor(0, 0, 30) == 0
    assert restart_factor(30, 0, 30) == 0.5
    assert restart_factor(3600, 10, 30) < restart_factor(3600, 1, 30) < 1
    assert restart_factor(0, 5, 0) == 1
