"""Pairs of jobs on the same GPUs: found, kept together and accounted for."""

import numpy as np
import pytest

from gavel_family import made
from mixed_runs import PLACEMENTS, nodes
from rota.core.allocation import host_of
from rota.core.jobs import DONE, Behaviour, JobSpec, Request
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.rates import Product, Types
from rota.models.speeds import TrueSpeeds
from rota.models.tables import PairRates, PairsParams
from rota.policies.admission.accept_all import AcceptAll
from rota.policies.rounds.pairs import _best
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed
from throughput_tables import write_table

ROUND = 360.0


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Pairs of `good` jobs lose little, pairs with a `bad` one much."""
    kinds = {(name, gpus): (gpus, gpus / 2) for name in ("good", "bad") for gpus in (1, 2)}
    shares = {}
    for gpus in (1, 2):
        shares[("good", gpus), ("good", gpus)] = (0.9, 0.9)
        shares[("good", gpus), ("bad", gpus)] = (0.3, 0.3)
        shares[("bad", gpus), ("good", gpus)] = (0.3, 0.3)
        shares[("bad", gpus), ("bad", gpus)] = (0.3, 0.3)
    return write_table(tmp_path_factory.mktemp("pairs") / "table.json", kinds, shares)


def engine(policy, jobs, cluster, table, *, costs=None):
    """Jobs are (name, model, GPUs, work)."""
    topology = Topology(nodes(cluster))
    rates = Product([Types(topology), PairRates(topology, PairsParams(table=table))])
    cluster = SimCluster(topology, costs or Fixed(), rates)
    speeds = {"v100": 1.0, "k80": 0.5}
    made_of = Workload(
        [JobSpec(name, 0.0, Request.of(gpus), model=model) for name, model, gpus, _ in jobs],
        [Behaviour(work, speeds=speeds) for *_, work in jobs],
    )
    scheduler = compose(policy, PLACEMENTS["consolidate"](topology), AcceptAll())
    running = Engine(cluster, scheduler, WorkloadSource(made_of), checker=Invariants())
    running.arrivals.book = TrueSpeeds(rates)
    return running


def pairs_of(running):
    """Who shares whose GPUs, by name."""
    return {
        frozenset((one.id, running.jobs[host_of(one.allocation)].id))
        for one in running.view.running
        if host_of(one.allocation) >= 0
    }


def jobs_of(*models, gpus=1, work=5000.0):
    return [(f"{model}{number}", model, gpus, work) for number, model in enumerate(models)]


@pytest.mark.parametrize("name", ["gavel-max-min", "gandiva-random"])
def test_jobs_that_leave_each_other_room_share_a_gpu(table, name):
    policy = made(name, packed=True) if name == "gavel-max-min" else made(name)
    running = engine(policy, jobs_of("good", "good"), "1x1:v100", table)
    running.run(10)
    assert pairs_of(running) == {frozenset(("good0", "good1"))}
    running.run()
    ends_s = [one.end_s for one in running.jobs.values()]
    assert ends_s == pytest.approx([5000 / 0.9] * 2)  # in turns it would be 10,000
    assert running.decisions < 20  # there is nothing to take turns for


def test_nobody_is_packed_unless_asked_or_where_it_hurts(table):
    for policy, models in (
        (made("gavel-max-min"), ("good", "good")),
        (made("gavel-max-min", packed=True), ("bad", "bad")),
        (made("gavel-max-min", packed=True, aware=False), ("good", "good")),
        (made("gavel-max-min", packed=True, speeds="learn"), ("good", "good")),
    ):
        running = engine(policy, jobs_of(*models), "1x1:v100", table)
        running.run(10)
        assert pairs_of(running) == set()


def test_a_bad_pair_is_parted_and_a_good_one_stays(table):
    """Of a good and three bad jobs no pair is worth it; two good ones stay together."""
    policy = made("gandiva-random", seed=1)
    running = engine(policy, jobs_of("good", "good", "bad", "bad"), "1x1:v100", table)
    running.run(10)
    first = policy.state.together
    assert len(first) == 2
    good = [pair for pair in first if sorted(pair) == [0, 1]]
    running.scheduler.policy.state.stale = True  # as if a job had come
    running.run(10 * ROUND)
    again = policy.state.together
    assert all(pair in again for pair in good)


@pytest.mark.parametrize("gpus", [1, 2])
def test_pairs_on_types_and_in_turns(table, gpus):
    """Five jobs on two GPUs of each type: packed they are done sooner, and nobody is forgotten."""
    ends_s = {}
    jobs = jobs_of("good", "good", "good", "bad", "good", gpus=gpus)
    for packed in (True, False):
        policy = made("gavel-max-min", packed=packed)
        running = engine(policy, jobs, "1x2:v100+1x2:k80", table, costs=Fixed(start_s=20))
        running.run()
        assert all(one.phase == DONE for one in running.jobs.values())
        ends_s[packed] = sum(one.end_s for one in running.jobs.values())
    assert ends_s[True] < ends_s[False] or gpus == 1


def test_a_guest_goes_on_alone_when_its_host_is_done(table):
    policy = made("gavel-max-min", packed=True)
    jobs = [("short", "good", 1, 900.0), ("long", "good", 1, 5000.0)]
    running = engine(policy, jobs, "1x1:v100", table)
    running.run()
    short, long = running.jobs.values()
    assert short.end_s == pytest.approx(1000)
    assert long.end_s == pytest.approx(1000 + 4100)


def test_of_many_partners_the_best_are_looked_at():
    pairs = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
    value = np.array([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert _best(pairs, value, 1).tolist() == [0, 1, 2]
    assert _best(pairs, value, 3).tolist() == list(range(6))
