"""Jobs that share GPUs under arbitrary decisions, costs and failures: the invariants hold."""

from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rota.core.changes import Wake
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.plan import LocalityPlan, PairingPlan, ReservingPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.registry import PLACEMENTS, load
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.metrics.jobs import fold_jobs
from rota.models.costs import Custom, FixedParams
from rota.models.rates import Product, Types
from rota.models.tables import PairRates, PairsParams
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster
from throughput_tables import write_table

COSTS = (
    FixedParams(),
    FixedParams(start_s=1.0),
    FixedParams(start_s=0.5, stop_s=2.0, abort_s=0.0),
    FixedParams(stop_s=1.5, lost_work_s=1.0, move_s=3.0),
)


class WhimsicalPlan(ReservingPlan, LocalityPlan, PairingPlan):
    """All that it may want."""


class Whimsical(DecidePolicy[Params]):
    """Names jobs in any order, alone, on a type, or beside another; cancels now and then."""

    name = "whimsical"
    plan_type = WhimsicalPlan
    wake = Wake(None, every_s=7.0)

    def __init__(self, seed):
        super().__init__()
        self.rng = Random(seed)  # noqa: S311 - a test
        self.decisions = 0
        self.pairs = 0

    def decide(self, view):
        plan = view.plan()
        rng = self.rng
        self.decisions += 1
        jobs = view.jobs
        rng.shuffle(jobs)
        if self.decisions > 150:  # come to an end
            plan.fill(sorted(jobs, key=lambda job: job.index))
            return plan
        if jobs and rng.random() < 0.03:
            plan.cancel([jobs.pop()])
        hosts = []
        for job in jobs:
            choice = rng.random()
            if choice < 0.45:
                self._pair(plan, job, hosts)
            elif choice < 0.65:
                if plan.place_on(job, gpu_type=rng.choice(view.topology.types)):
                    hosts.append(job)
            elif choice < 0.9:
                if plan.place(job):
                    hosts.append(job)
            elif choice < 0.95:
                plan.fill([job])
        return plan

    def _pair(self, plan, job, hosts):
        fitting = [host for host in hosts if host.gpus == job.gpus and job.gpus % 1 == 0]
        if fitting and plan.place_beside(job, fitting[0]):
            hosts.remove(fitting[0])
            self.pairs += 1
            if self.rng.random() < 0.2:
                plan.withdraw(job)
                hosts.append(fitting[0])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    kinds = {("m", gpus): (gpus, gpus / 3) for gpus in (1, 2, 3)}
    shares = {((name, gpus), (name, gpus)): (0.7, 0.6) for name, gpus in kinds}
    return write_table(tmp_path_factory.mktemp("pairs") / "table.json", kinds, shares)


@pytest.mark.parametrize("placement", ["count", "consolidate", "first-fit", "fgd"])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**20), typed=st.booleans(), crashes=st.booleans())
@example(seed=155, typed=True, crashes=False)  # sent elsewhere and launched at the same instant
@example(seed=185, typed=False, crashes=False)
@example(seed=943, typed=True, crashes=True)  # a host and its guest leave one idle node, not two
def test_nothing_is_given_away_twice_and_nobody_is_lost(table, placement, seed, typed, crashes):
    rng = Random(seed)  # noqa: S311 - a test
    cpus = rng.choice((0, 16))
    topology = Topology(
        [
            NodeSpec("a", 2, "v100", cpus=cpus),
            NodeSpec("b", 2, "v100", cpus=cpus),
            NodeSpec("c", 3, "k80" if typed else "v100", cpus=cpus),
        ]
    )
    outages = []
    for number in range(rng.randint(1, 4) if crashes else 0):
        node = topology.nodes[rng.randrange(3)]
        outages += [(9.0 * number + 3, NODE_DOWN, node), (9.0 * number + 8, NODE_UP, node)]
    specs = [
        JobSpec(
            f"j{number}", rng.randint(0, 30) / 2, Request.of(rng.choice((1, 1, 2, 3, 0.5)), cpus=2),
            model="m",
        )
        for number in range(12)
    ]  # fmt: skip
    works = [Behaviour(rng.randint(2, 40) / 2) for _ in specs]
    policy = Whimsical(seed)
    made = Engine(
        SimCluster(
            topology,
            Custom(rng.choice(COSTS)),
            Product([Types(topology), PairRates(topology, PairsParams(table=table))]),
            outages=outages,
        ),
        compose(policy, load(PLACEMENTS, placement)(topology), AcceptAll()),
        WorkloadSource(Workload(specs, works)),
        tenants=TenantTree(()),
        checker=Invariants(),
    )
    made.run()
    made.finish()
    assert all(job.terminal for job in made.jobs.values())
    jobs = fold_jobs(made.log.frame())
    held = jobs["service_gpu_s"].sum()
    assert held <= topology.gpus * made.view.now_s + 1e-6
    assert held == pytest.approx(sum(job.service for job in made.jobs.values()))
    assert jobs["migrations"].to_list() == [made.jobs[i].migrations for i in range(len(specs))]
