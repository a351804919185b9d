"""Policies that decide by chance, on clusters and jobs with everything: the invariants hold."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.allocation import Allocation
from rota.core.changes import Wake
from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.plan import ExplicitPlan, ReservingPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.registry import ADMISSIONS, POLICIES, load, names
from rota.core.tenants import Tenant, TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, Solo, to_the_end

CALM = 60  # decisions, after which a random policy becomes sensible


class Chaos(DecidePolicy[Params]):
    """Places, resizes, leaves out and cancels by chance."""

    name = "chaos"
    plan_type = ReservingPlan

    def __init__(self, rng):
        super().__init__()
        self.rng = rng
        self.asked = 0

    def decide(self, view):  # noqa: C901 - one branch per whim
        self.asked += 1
        plan = view.plan()
        jobs = sorted(view.jobs, key=lambda job: not job.running)
        if self.asked > CALM:
            plan.fill(jobs)
            return plan
        rng = self.rng
        rng.shuffle(jobs)
        left_out = []
        for job in jobs:
            luck = rng.random()
            placed = False
            if job.running and luck < 0.05:
                plan.stop(job, why="by chance", because_of=rng.choice(jobs))
            elif job.running and luck < 0.1 and job.spec.request.groups[0].max_count:
                plan.resize(job, rng.choice((1, 2, 3, 4)))
                placed = True
            elif job.running and luck < 0.15:
                placed = plan.keep(job)
            elif luck < 0.3 and job.spec.request.groups[0].max_count:
                placed = plan.place(job, gpus=rng.choice((1, 2, 3, 4)))
            elif luck > 0.15:
                placed = plan.place(job)
            if not placed:
                left_out.append(job)
            if luck > 0.9:
                plan.fits(job)
        if jobs:
            plan.wake_at(view.now_s + rng.choice((0.5, 1, 2)))
            plan.watch(rng.choice(jobs), rng.choice(("service", "executed", "waiting")), 3)
            if rng.random() < 0.05:
                plan.cancel(left_out[:1])
        return plan


class Pieces(DecidePolicy[Params]):
    """Names parts of GPUs by chance."""

    name = "pieces"
    plan_type = ExplicitPlan

    def __init__(self, rng):
        super().__init__()
        self.rng = rng
        self.asked = 0

    def decide(self, view):
        self.asked += 1
        plan = view.plan()
        nodes = [node for node in view.topology.nodes if node.up]
        free = {d: (node, 1.0) for node in nodes for d in view.topology.devices(node.id)}
        fresh = []
        for job in view.jobs:
            stays = job.running and (self.rng.random() < 0.6 or self.asked > CALM)
            if stays and all(free[v][1] >= amount for v, amount in job.allocation.slices):
                plan.place(job)
                self.take(free, job.allocation.slices)
            else:
                fresh.append(job)
        for job in fresh:
            parts = [1.0] * int(job.gpus) + ([job.gpus % 1] if job.gpus % 1 else [])
            fitting = [v for v in free if free[v][1] >= parts[0] and acceptable(job, free[v][0])]
            if len(fitting) >= len(parts):
                slices = list(zip(self.rng.sample(fitting, len(parts)), parts, strict=True))
                plan.place_at(job, Allocation(slices))
                self.take(free, slices)
        if fresh:
            plan.wake_at(view.now_s + 1)
        return plan

    def take(self, free, slices):
        for vertex, amount in slices:
            free[vertex] = (free[vertex][0], free[vertex][1] - amount)


def acceptable(job, node):
    types, labels = job.shape.types, job.shape.labels
    return (not types or node.gpu_type in types) and set(labels) <= set(node.labels)


class Crowded(Solo):
    """Neighbours slow each other down; GPUs speed up."""

    unit = False
    neighbours = True

    def rate(self, job, allocation, sharers):
        return (allocation.gpus / job.gpus if job.gpus else 1.0) / (1 + 0.5 * len(sharers))


def random_topology(rng):
    if rng.random() < 0.5:
        return Topology.uniform(rng.randint(1, 3), rng.choice((2, 4)))
    specs = [
        NodeSpec(
            f"n{i}",
            rng.choice((0, 1, 2, 4)) if i else 4,
            rng.choice("ab") if i else "a",
            cpus=rng.choice((8, 16)),
            mem_gib=64,
            labels=("x",) if rng.random() < 0.4 or not i else (),
            path=(f"r{i % 2}",),
        )
        for i in range(rng.randint(1, 4))
    ]
    return Topology(specs, levels=("rack",))


def random_request(rng, *, mixed):
    gpus = rng.choice((1, 1, 2, 2, 3, 4, 0.5))
    more = {}
    if mixed:
        more["cpus"] = rng.choice((0, 0, 0, 1, 4))
        more["mem_gib"] = rng.choice((0, 0, 0, 8))
        if rng.random() < 0.2:
            more["gpu_types"] = ("a",)
        if rng.random() < 0.1:
            more["labels"] = ("x",)
    if gpus >= 1 and rng.random() < 0.5:
        more.update(min_gpus=1, max_gpus=4)
    elif gpus >= 2 and rng.random() < 0.3:
        more["gang"] = False
    return Request.of(gpus, **more)


def random_workload(rng, topology):
    mixed = bool(topology.nodes[0].cpus)
    specs, works = [], []
    for i in range(rng.randint(1, 10)):
        depends = (f"j{rng.randrange(i)}",) if i and rng.random() < 0.15 else ()
        specs.append(
            JobSpec(
                f"j{i}",
                float(rng.randint(0, 15)),
                random_request(rng, mixed=mixed),
                tenant=rng.choice(("x", "y", "")),
                group=rng.choice(("", "", "", "g1")),
                estimate_s=rng.choice((5.0, INF)),
                depends_on=depends,
            )
        )
        fails_at = float(rng.randint(0, 6)) if rng.random() < 0.08 else INF
        works.append(Behaviour(float(rng.randint(1, 12)), fails_at=fails_at))
    return Workload(specs, works)


def random_outages(rng, topology):
    if rng.random() < 0.5:
        return []
    outages = []
    for _ in range(rng.randint(1, 3)):
        node, at_s = rng.choice(topology.nodes), float(rng.randint(0, 30))
        outages += [(at_s, NODE_DOWN, node), (at_s + rng.randint(1, 8), NODE_UP, node)]
    last_s = max(outage[0] for outage in outages) + 1
    return outages + [(last_s, NODE_UP, node) for node in topology.nodes]


def random_costs(rng):
    if rng.random() < 0.4:
        return Fixed()
    return Fixed(rng.choice((0, 1, 2)), rng.choice((0, 0, 1, 3)), slow_s=rng.choice((0, 0, 3)))


def random_engine(rng, make):
    topology = random_topology(rng)
    workload = random_workload(rng, topology)
    rates = rng.choice((Solo(), Solo(), Crowded()))
    outages = random_outages(rng, topology)
    cluster = SimCluster(topology, random_costs(rng), rates, outages=outages)
    admission = load(ADMISSIONS, rng.choice(names(ADMISSIONS)))()
    placement = rng.choice((count, consolidate))(topology)
    free = cluster.capabilities.frictionless
    scheduler = compose(make(rng), placement, admission, frictionless=free)
    return Engine(
        cluster,
        scheduler,
        WorkloadSource(workload),
        tenants=TenantTree([Tenant("x", quota=2), Tenant("y", quota=3)]),
        wake=Wake(on=frozenset(), every_s=rng.choice((2.0, 3.7))) if rng.random() < 0.2 else None,
        checker=Invariants(),
    )


seeds = st.integers(0, 1 << 32)


@pytest.mark.parametrize("make", [Chaos, Pieces])
@given(seed=seeds)
def test_invariants_hold_for_policies_that_decide_by_chance(make, seed):
    to_the_end(random_engine(Random(seed), make))  # noqa: S311 - not a secret


@pytest.mark.parametrize("policy", names(POLICIES))
@given(seed=seeds)
def test_every_job_ends_under_every_policy(policy, seed):
    engine = random_engine(Random(seed), lambda _: load(POLICIES, policy)())  # noqa: S311
    to_the_end(engine)
    assert not engine.view.active
