"""Policies that hear of changes decide what their plain forms decide, which look at everything."""

from importlib import import_module
from random import Random

import pytest

from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.log import WIDTH, Record
from rota.core.tenants import PriorityClass, Tenant, TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.parts import make_admission, make_placement
from rota.engine.replica import rows_from
from rota.engine.source import WorkloadSource
from rota.models.costs import Custom, FixedParams, Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster
from thinning import first

PLACEMENTS = ("count", "consolidate", "first-fit", "best-fit", "topology")
POLICIES = (
    ("easy", "Easy", {}),
    ("easy", "Easy", {"default_estimate_s": 500.0}),
    ("conservative", "Conservative", {}),
    ("conservative", "Conservative", {"default_estimate_s": 500.0}),
    ("drf", "Drf", {}),
    ("drf", "Drf", {"strict": True}),
    ("drf", "Drf", {"preemptive": True}),
    ("tetris", "Tetris", {}),
    ("tetris", "Tetris", {"epsilon": 0.0}),
    ("yarn_cs", "YarnCs", {}),
    ("yarn_cs", "YarnCs", {"skip": True, "relax_s": 100.0}),
    ("yarn_cs", "YarnCs", {"borrow": False, "relax_s": 50.0, "preempt_above": 0.0}),
    ("capacity", "Capacity", {}),
    ("capacity", "Capacity", {"preset": "kueue", "min_runtime_s": 60.0}),
    ("capacity", "Capacity", {"inside": "las", "aging_s": 300.0}),
    ("hierarchical_fair", "HierarchicalFair", {}),
    ("hierarchical_fair", "HierarchicalFair", {"inside": "sjf", "half_life_s": 100.0}),
)
OF_TENANTS = ("capacity", "hierarchical_fair")


class World:
    """Nodes, jobs, failures and costs by chance; which kinds of them the number says."""

    def __init__(self, number, count):
        self.rng = Random(number)  # noqa: S311 - a workload
        self.typed, self.labelled = number % 6 in (1, 3, 5), number % 6 in (2, 3)
        self.rich = number % 6 in (4, 5)  # CPUs and memory
        self.parts = number % 4 == 3
        self.topology = Topology(list(self._nodes(4 + 2 * bool(number % 6))))
        self.at_s = 0.0
        jobs = [self._job(i) for i in range(count)]
        self.workload = Workload([spec for spec, _ in jobs], [how for _, how in jobs])
        self.outages = self._outages() if number % 3 == 1 else []
        self.costs = Custom(FixedParams(start_s=3.0, stop_s=5.0)) if number % 2 else Zero()
        quotas = (Tenant("a", quota=8), Tenant("b", quota=8), Tenant("c", quota=4), Tenant("d"))
        self.tenants = quotas if number % 4 < 2 else ()
        if number % 4 == 3:  # queues below another, and bounds
            below = (Tenant("a", "e", quota=8, lend=4), Tenant("b", "e", weight=2, limit=12))
            self.tenants = (Tenant("e", quota=12), *below, Tenant("c", quota=6, borrow=8))
        idle = PriorityClass("idle", guaranteed=False)
        firm = PriorityClass("firm", 1, preemptible=number % 2 == 0, min_runtime_s=40.0)
        self.classes = (idle, firm) if number % 3 == 2 else ()
        self.placement = PLACEMENTS[number % len(PLACEMENTS)]
        self.admission = "quota" if number % 5 == 2 else "accept-all"

    def _nodes(self, count):
        for i in range(count):
            yield NodeSpec(
                f"n{i}",
                self.rng.choice((4, 8)) if count > 4 else 8,
                ("v100", "k80")[i % 2] if self.typed else "",
                cpus=32 if self.rich else 0,
                mem_gib=128 if self.rich else 0,
                labels=(("p0",), ("p1",), ("p0", "p1"))[i % 3] if self.labelled else (),
            )

    def _job(self, i):
        rng = self.rng
        self.at_s += rng.expovariate(1 / 20) if rng.random() < 0.8 else 0.0
        part = self.parts and rng.random() < 0.2
        gpus = 0.5 if part else rng.choice((1, 1, 1, 2, 2, 4, 8))
        work = rng.lognormvariate(5, 1.2)
        estimate_s = INF if rng.random() < 0.2 else work * rng.choice((rng.uniform(1, 3), 0.6))
        spec = JobSpec(
            f"j{i}", self.at_s, self._request(gpus), tenant=rng.choice("abcd"),
            estimate_s=estimate_s, priority=rng.choice((0, 0, 1)),
        )  # fmt: skip
        return spec, Behaviour(work, fails_at=work / 2 if rng.random() < 0.05 else INF)

    def _request(self, gpus):
        rng, more = self.rng, {}
        if self.labelled and rng.random() < 0.7:
            more["labels"] = rng.choice((("p0",), ("p1",)))
        if self.typed and rng.random() < 0.5:
            more["gpu_types"] = rng.choice((("v100",), ("k80",), ("v100", "k80")))
        if self.rich:
            each = max(1, int(gpus))
            more["cpus"] = float(rng.choice((0, 2, 4)) * each)
            more["mem_gib"] = float(rng.choice((0, 8, 16)) * each)
        request = Request.of(gpus, **more)
        if gpus >= 4 and rng.random() < 0.15:
            tasks = TaskGroup("worker", 2, gpus // 2)
            request = Request((tasks,), request.gpu_types, request.labels, apart=True)
        return request

    def _outages(self):
        found = []
        for _ in range(3):
            node, at_s = self.rng.choice(self.topology.nodes), self.rng.uniform(0, self.at_s)
            found += [(at_s, NODE_DOWN, node), (at_s + self.rng.uniform(50, 400), NODE_UP, node)]
        return sorted(found, key=lambda outage: outage[0])


def log(policy, number, count):
    world = World(number, count)  # anew: topologies change
    cluster = SimCluster(
        world.topology, world.costs, Uniform(world.topology), outages=world.outages
    )
    placement = make_placement(world.placement, world.topology, 0)
    made = Engine(
        cluster,
        compose(policy, placement, make_admission(world.admission)),
        WorkloadSource(world.workload),
        tenants=TenantTree(world.tenants, world.classes),
        checker=Invariants() if number < 3 else None,
    )
    made.run()
    made.finish()
    return rows_from(made.log, 0)


def of_each_job(log):  # noqa: C901 - a kind of row each
    """The rows of a log without reasons of jobs; and why each waits, told by itself or with others.

    Of each moment what counts is the last thing that was said.
    """
    rows, whys, known, begun, now_s = [], [], {}, set(), 0.0
    own, shared, came = {}, {}, {}
    slow, stopping = Record.STOPPED in log[1::WIDTH], set()  # who is stopped waits after that

    def look():
        for job, place in came.items():
            why = 0 if job in begun else own.get(job, 0) or shared.get(place, 0)
            if known.get(job, 0) != why:
                known[job] = why
                whys.append((now_s, job, why))

    for i in range(0, len(log), WIDTH):
        row = time_s, kind, job, ref, other, value = tuple(log[i : i + WIDTH])
        if time_s > now_s:
            look()
            now_s = time_s
        if kind != Record.REASON or (ref >= 0 and other < 0):
            rows.append(row)
        elif ref >= 0:
            shared[other, ref] = value
        else:
            own[job] = value
        if kind == Record.SUBMIT:
            came[job] = (other, ref)
        elif kind == Record.START:
            begun.add(job)
            stopping.discard(job)
            own[job] = 0
        elif slow and kind in (Record.STOP, Record.MOVE):
            stopping.add(job)
        elif kind in (Record.STOP, Record.STOPPED) or (
            kind == Record.EVICTED and job not in stopping
        ):
            begun.discard(job)
            stopping.discard(job)
        elif kind in (Record.DONE, Record.FAILED, Record.REJECTED):
            del came[job]
    return rows, whys


def alike(module, name, params, number, count):
    """Compare the plain form in `tests/plain` with that of the product."""
    logs = []
    for package in ("plain", "rota.policies"):
        found = import_module(f"{package}.{module}")
        kind = getattr(found, name)
        logs.append(log(kind(kind.Parameters(**params)), number, count))
    if module in OF_TENANTS:  # the plain form tells jobs one by one
        logs = [of_each_job(each) for each in logs]
    assert logs[0] == logs[1]


# each kind of world that a number stands for; from 3 on, nobody checks the plans
@pytest.mark.parametrize("number", first(4, [0, 1, 3, 4, 2, 5]))
@pytest.mark.parametrize(("module", "name", "params"), POLICIES)
def test_equal_logs(module, name, params, number):
    alike(module, name, params, number, 80)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(60))
@pytest.mark.parametrize(("module", "name", "params"), POLICIES)
def test_equal_logs_of_many(module, name, params, number):
    alike(module, name, params, number, 250)
