"""The Gavel family on mixed clusters with failures, costs, pairs and odd jobs: everyone ends."""

from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gavel_family import FAMILY, made
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.registry import PLACEMENTS, load
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.snapshot import freeze, restore
from rota.engine.source import WorkloadSource
from rota.models.rates import Product, Types
from rota.models.speeds import TrueSpeeds
from rota.models.tables import PairRates, PairsParams
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, to_the_end
from throughput_tables import write_table

UNIT_S = 100.0
VARIANTS = {
    **{name: (name, {}) for name in FAMILY},
    "packed": ("gavel-max-min", {"packed": True}),
    "packed, few partners": ("gavel-max-min", {"packed": True, "partners": 1, "rule": "received"}),
    "learning": ("gavel-water-filling", {"speeds": "learn"}),
    "blind": ("gavel-max-min", {"aware": False}),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    kinds = {("m", gpus): (gpus, gpus / 3) for gpus in (1, 2, 3)}
    shares = {((name, gpus), (name, gpus)): (0.7, 0.6) for name, gpus in kinds}
    return write_table(tmp_path_factory.mktemp("pairs") / "table.json", kinds, shares)


def random_jobs(rng):
    specs, works = [], []
    for number in range(rng.randint(1, 9)):
        request = Request.of(
            rng.choice((1, 1, 1, 2, 3, 4, 0.5, 0)),
            cpus=rng.choice((0, 1)),
            gpu_types=("k80",) if rng.random() < 0.1 else (),
        )
        specs.append(
            JobSpec(
                f"j{number}",
                rng.randint(0, 15) * UNIT_S,
                request,
                model="m" if rng.random() < 0.8 else "",
                priority=rng.choice((0, 0, 5)),
                deadline_s=rng.choice((float("inf"), 4000.0)),
                tenant=rng.choice(("x", "y")),
            )
        )
        # a speed of 0 only where there is another type for all its GPUs: else it could never end
        small = not request.gpu_types and request.groups[0].count <= 2
        slow = rng.choice((0.0, 0.3, 1.0)) if small else 0.5
        speeds = {"v100": 1.0, "k80": slow}
        works.append(Behaviour(rng.randint(1, 25) * UNIT_S, speeds=speeds))
    return Workload(specs, works)


def random_engine(seed, make, table):
    rng = Random(seed)  # noqa: S311 - a test
    placement = rng.choice(("count", "consolidate", "first-fit"))
    topology = Topology(
        [
            NodeSpec("a", 2, "v100", cpus=8),
            NodeSpec("b", rng.choice((2, 4)), "v100", cpus=8),
            NodeSpec("c", 3, "k80", cpus=8),
        ][rng.choice((0, 0, 1)) :]
    )
    outages = []
    for number in range(rng.choice((0, 0, 1, 3))):
        node, at_s = rng.choice(topology.nodes), rng.randint(1, 20) * UNIT_S
        outages += [(at_s, NODE_DOWN, node), (at_s + (3 + number) * UNIT_S, NODE_UP, node)]
    outages += [(9000.0, NODE_UP, node) for node in topology.nodes if outages]
    costs = rng.choice((Fixed(), Fixed(), Fixed(start_s=30.0), Fixed(start_s=500.0, stop_s=50.0)))
    rates = Product([Types(topology), PairRates(topology, PairsParams(table=table))])
    cluster = SimCluster(topology, costs, rates, outages=outages)
    scheduler = compose(
        make(), load(PLACEMENTS, placement)(topology), AcceptAll(), frictionless=False
    )
    running = Engine(cluster, scheduler, WorkloadSource(random_jobs(rng)), checker=Invariants())
    running.arrivals.book = TrueSpeeds(rates)
    return running


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**20))
@example(seed=14697)  # of jobs of one model, one makes no progress on a type where the others do
def test_everyone_ends_and_a_resumed_run_goes_on_alike(table, variant, seed):
    name, params = VARIANTS[variant]

    def make():
        return made(name, **params)

    whole = to_the_end(random_engine(seed, make, table))
    assert not whole.view.active
    first = random_engine(seed, make, table)
    first.run(700.0)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(freeze(first)))
    second = random_engine(seed, make, table)
    restore(second, state)
    assert to_the_end(second).log.frame().equals(whole.log.frame())
