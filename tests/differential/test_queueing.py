"""The engine against queueing theory and closed forms."""

from itertools import accumulate, product
from math import factorial, sqrt
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.registry import POLICIES, load
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.placement.count import count
from rota.sim.cluster import SimCluster
from rota.testing.policy_checks import srpt
from rota.testing.scenario import Fixed, Item, Scenario, Solo, wire


def policy(name):
    return load(POLICIES, name)()


def one_gpu(jobs):
    return Scenario(tuple(Item(*job) for job in jobs), nodes=(1,))


def ends(name, jobs):
    engine = one_gpu(jobs).run(policy(name))
    return [engine.jobs[i].end_s for i in range(len(jobs))]


# --- M/M/c ----------------------------------------------------------------------------------------


def erlang_c(servers, load_):
    """The chance that a customer has to wait."""
    below = sum(load_**k / factorial(k) for k in range(servers))
    full = load_**servers / factorial(servers) * servers / (servers - load_)
    return full / (below + full)


@pytest.mark.parametrize(("servers", "utilisation"), [(1, 0.6), (4, 0.8), (16, 0.9)])
def test_mean_wait_of_fifo_is_that_of_a_poisson_queue(servers, utilisation):
    jobs, batches, mean_work = 20_000, 20, 10.0
    rng = np.random.default_rng(2)
    arrivals = np.cumsum(rng.exponential(mean_work / (servers * utilisation), jobs))
    works = rng.exponential(mean_work, jobs)
    workload = Workload(
        [JobSpec(f"j{i}", at_s, Request.of(1)) for i, at_s in enumerate(arrivals.tolist())],
        [Behaviour(work) for work in works.tolist()],
    )
    topology = Topology.uniform(servers, 1)
    cluster = SimCluster(topology, Fixed(), Solo())
    engine = wire(policy("fifo"), cluster, workload, placement=count(topology), check=False)
    engine.run()
    waits = [engine.jobs[i].first_start_s - engine.jobs[i].submit_s for i in range(jobs)]
    size = jobs // batches
    means = [mean(waits[i : i + size]) for i in range(size, jobs, size)]  # the first warms up
    expected = erlang_c(servers, servers * utilisation) * mean_work / (servers * (1 - utilisation))
    half_width = 2.9 * stdev(means) / sqrt(len(means))  # t quantile: 99 %
    assert abs(mean(means) - expected) <= half_width
    assert half_width < 0.5 * expected  # else the test says nothing


# --- one GPU --------------------------------------------------------------------------------------

jobs_on_one_gpu = st.lists(
    st.tuples(st.integers(0, 6), st.just(1), st.integers(1, 4)), min_size=1, max_size=4
)


@given(jobs_on_one_gpu)
def test_fifo_on_one_gpu_has_a_closed_form(jobs):
    ordered = sorted(range(len(jobs)), key=lambda i: jobs[i][0])
    expected = accumulate(ordered, lambda end, i: max(end, jobs[i][0]) + jobs[i][2], initial=0)
    found = ends("fifo", jobs)
    assert [found[i] for i in ordered] == list(expected)[1:]


def best_possible(jobs):
    """The least sum of ends over all schedules that serve one job in each second."""
    horizon = max(at_s for at_s, _, _ in jobs) + sum(work for _, _, work in jobs)
    states = {tuple(work for _, _, work in jobs): 0}  # work left -> least sum of ends so far
    for now in range(horizon):
        following = {}
        for left, cost in states.items():
            ready = [i for i, (at_s, _, _) in enumerate(jobs) if at_s <= now and left[i]]
            for i in ready or [None]:
                after = list(left)
                more = 0
                if i is not None:
                    after[i] -= 1
                    more = 0 if after[i] else now + 1
                key = tuple(after)
                following[key] = min(following.get(key, float("inf")), cost + more)
        states = following
    return states[(0,) * len(jobs)]


@given(jobs_on_one_gpu)
def test_srtf_on_one_gpu_is_the_best_of_all_schedules(jobs):
    assert sum(ends("srtf", jobs)) == best_possible(jobs)


def test_srtf_on_one_gpu_is_the_best_of_all_schedules_of_small_sets():
    for works in product((1, 2, 3), repeat=3):
        for arrivals in product((0, 1, 3), repeat=2):
            jobs = [(at_s, 1, work) for at_s, work in zip((0, *arrivals), works, strict=True)]
            assert sum(ends("srtf", jobs)) == best_possible(jobs), jobs


@given(jobs_on_one_gpu)
def test_nobody_beats_srtf_on_one_gpu(jobs):
    least = sum(ends("srtf", jobs))
    assert srpt(tuple(Item(*job) for job in jobs)) == least - sum(at_s for at_s, _, _ in jobs)
    for name in ("fifo", "las", "sjf", "tiresias"):
        assert sum(ends(name, jobs)) >= least


@given(jobs_on_one_gpu)
def test_work_conserving_policies_end_at_the_same_time(jobs):
    last = {max(ends(name, jobs)) for name in ("fifo", "srtf", "las", "sjf")}
    assert len(last) == 1
