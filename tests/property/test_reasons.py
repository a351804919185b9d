"""Reasons are true at every instant: a refold of the log knows what was free all the time."""

from random import Random

import msgspec
import pytest

import decisions
import mixed_runs
from refold import CAPACITY, CONSTRAINT, FRAGMENTATION, GANG, Refold
from rota.core.allocation import Allocation
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape, TaskGroup
from rota.core.plan import ExplicitPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.reasons import Reason
from rota.core.registry import POLICIES, load, names
from rota.core.topology import NodeSpec, Topology
from rota.engine.blame import Blamed, why_not
from rota.engine.compose import compose
from rota.engine.snapshot import freeze, restore
from rota.placement.consolidate import consolidate
from rota.policies.admission.accept_all import AcceptAll
from rota.policies.fifo_skip import FifoSkip
from rota.testing.scenario import random_scenario, to_the_end
from rota.traces.formats import plain
from shared_data import shared


def refolded(made, **options):
    found = Refold(made.log.frame(), **options)
    assert not found.wrong, found.wrong[:5]
    return found


@pytest.mark.parametrize("policy", names(POLICIES))
def test_every_policy(policy):
    kind = load(POLICIES, policy)
    told = set()
    for seed in range(12):
        scenario = random_scenario(seed, placement="consolidate", lossy=False)
        made = to_the_end(scenario.engine(kind(), check=False))
        told |= set(refolded(made, instant_stops=scenario.costs.instant_stop).true_s)
    assert told & {CAPACITY, FRAGMENTATION}


@pytest.mark.parametrize("policy", names(POLICIES))
def test_between_rounds(policy):
    # Nobody decides between rounds, but what is free changes, and so do the reasons.
    kind = load(POLICIES, policy)
    for seed in range(12):
        scenario = random_scenario(seed, placement="consolidate", lossy=False)
        scenario = msgspec.structs.replace(scenario, round_s=7.0)
        made = to_the_end(scenario.engine(kind()))
        refolded(made, instant_stops=scenario.costs.instant_stop)


class InOrder(DecidePolicy[Params]):
    """First come, first served, on the first nodes with room; says nothing about reasons."""

    name = "in-order"
    plan_type = ExplicitPlan

    def decide(self, view):
        plan = view.plan()
        free = {node.id: node.gpus for node in view.topology.nodes if node.open}
        for job in view.running:
            plan.place(job)
            for node, gpus in job.allocation.slices:
                free[node] -= gpus
        for job in view.waiting:
            room = [node for node, gpus in free.items() if gpus >= job.gpus]
            if room:
                free[room[0]] -= job.gpus
                plan.place_at(job, Allocation([(room[0], job.gpus)]))
        return plan


@pytest.mark.parametrize("round_s", [0.0, 7.0])
def test_a_policy_without_a_placement(round_s):
    told = set()
    for seed in range(12):
        scenario = random_scenario(seed, placement="consolidate", lossy=False)
        scenario = msgspec.structs.replace(
            scenario,
            jobs=tuple(job for job in scenario.jobs if job.gpus <= 4),
            nodes=(4, 4),
            outages=tuple(outage for outage in scenario.outages if outage.node < 2),
            round_s=round_s,
        )
        made = to_the_end(scenario.engine(InOrder(), check=False))
        told |= set(refolded(made, instant_stops=scenario.costs.instant_stop).true_s)
    assert CAPACITY in told


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "srtf", "easy"])
def test_a_real_workload(policy):
    # Reasons that did not follow what is free: 18.6 % of the seconds of fragmentation are false.
    workload = plain.PlainCsv().read(shared("reference/common/philly1000.csv"), {})
    jobs = list(zip(workload.specs, workload.behaviours, strict=True))
    made = decisions.run(load(POLICIES, policy)(), jobs, (36, 8), placement="consolidate")
    found = refolded(made)
    assert found.true_s[FRAGMENTATION] > 50_000
    assert found.true_s[CAPACITY] > 5_000


def mixed_jobs(rng, count):
    """Some want a GPU type, some nodes of their own."""
    made = []
    for i in range(count):
        types = rng.choice([(), (), ("fast",), ("slow",), ("fast", "slow")])
        gpus = rng.choice([1, 1, 2, 3, 4])
        request = Request.of(gpus, gpu_types=types)
        if rng.random() < 0.3:
            group = TaskGroup("worker", rng.choice([2, 3]), rng.choice([1, 2]))
            request = Request((group,), types, apart=True)
        spec = JobSpec(f"j{i}", float(rng.randint(0, 40)), request, estimate_s=50.0)
        made.append((spec, Behaviour(float(rng.randint(1, 30)))))
    return sorted(made, key=lambda pair: pair[0].submit_s)


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "srtf", "las", "easy", "tiresias"])
def test_gpu_types_gangs_and_outages(policy):
    nodes = [NodeSpec(f"fast-{i}", 4, "fast") for i in range(2)]
    nodes += [NodeSpec(f"slow-{i}", 4, "slow") for i in range(2)]
    outages = [(9.0, NODE_DOWN, 0), (21.0, NODE_UP, 0), (25.0, NODE_DOWN, 3), (31.0, NODE_UP, 3)]
    told = set()
    for seed in range(15):
        jobs = mixed_jobs(Random(seed), 20)  # noqa: S311 - a workload, not a secret
        made = mixed_runs.run(load(POLICIES, policy)(), jobs, nodes, outages=outages)
        told |= set(refolded(made).true_s)
    assert told == {CAPACITY, FRAGMENTATION, GANG, CONSTRAINT}


def test_blamed_follows_every_change():
    # Its reasons after random changes are what the definition says, for requests of all kinds.
    kinds = [
        {}, {"cpus": 6.0}, {"mem_gib": 30.0}, {"gpu_types": ("a",)}, {"gpu_types": ("a", "b")},
        {"labels": ("ib",), "cpus": 3.0}, {"labels": ("ib",), "gpu_types": ("b",)},
    ]  # fmt: skip
    flips = 0
    for seed in range(15):
        rng = Random(seed)  # noqa: S311 - changes, not a secret
        topology = Topology([
            NodeSpec(f"n{i}", 4, "ab"[i % 2], 8, 32, labels=("ib",) if i < 3 else ())
            for i in range(6)
        ])  # fmt: skip
        placement = consolidate(topology)
        requests = [Request.of(gpus, **kind) for kind in kinds for gpus in (1, 2, 4, 8)]
        requests += [Request((TaskGroup("w", 3, 2, 1.0),), apart=True)]
        shapes = [Shape(number, request) for number, request in enumerate(requests)]
        blamed = Blamed(placement)
        running = []
        for step in range(150):
            shape = rng.choice(shapes)
            if running and rng.random() < 0.45:
                placement.give(*running.pop(rng.randrange(len(running))))
            elif rng.random() < 0.1:
                node = rng.choice(topology.nodes)
                placement.set_node(node, up=rng.random() < 0.7)
            elif placement.fits(shape):
                job = Job(JobSpec(f"{step}", 0.0, shape.request), Behaviour(1.0), step, shape)
                running.append((job, placement.take(job)))
            if blamed.stale():
                flips += len(blamed.changed())
            for other in shapes:
                if not placement.fits(other) and other.number not in blamed.reasons:
                    blamed.add(other)
                elif placement.fits(other) and other.number in blamed.reasons:
                    blamed.remove(other.number)
            assert blamed.reasons == {n: why_not(placement, shapes[n]) for n in blamed.reasons}
    assert flips > 400


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "srtf", "las", "easy", "yarn-cs"])
def test_a_resumed_run_tells_the_same_reasons(policy):
    kind = load(POLICIES, policy)
    for seed in range(12):
        scenario = random_scenario(seed, placement="consolidate", lossy=False)
        scenario = msgspec.structs.replace(scenario, round_s=7.0 * (seed % 2))
        whole = to_the_end(scenario.engine(kind(), check=False)).log.frame()
        for at_s in (5.0, 11.0, 19.0):
            first = scenario.engine(kind(), check=False)
            first.run(at_s)
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(freeze(first)))
            second = scenario.engine(kind(), check=False)
            restore(second, state)
            assert to_the_end(second).log.frame().equals(whole)


@pytest.mark.parametrize("later", ["fifo", "srtf", "easy"])
@pytest.mark.parametrize("first", ["fifo-skip", "las", "yarn-cs", "conservative"])
def test_another_policy_takes_over(first, later):
    # What the former scheduler told is taken back: the new one may have nothing to say about it.
    for seed in range(12):
        scenario = random_scenario(seed, placement="consolidate", lossy=False)
        made = scenario.engine(load(POLICIES, first)())
        made.run(9.0)
        placement = consolidate(made.cluster.topology)
        made.hand_over(compose(load(POLICIES, later)(), placement, AcceptAll()))
        refolded(to_the_end(made), instant_stops=scenario.costs.instant_stop)


def test_a_reason_of_ones_own_ends_with_the_policy_that_gave_it():
    def decide(view, plan):
        plan.fill(view.running)
        for job in view.waiting:
            plan.explain(job, Reason.QUOTA)

    made = decisions.engine(decisions.Scripted(decide), [decisions.job("a", 2, 10)], (1, 3))
    made.run(5.0)
    made.hand_over(compose(FifoSkip(), consolidate(made.cluster.topology), AcceptAll()))
    made.run()
    assert decisions.told(made, "a") == [(0, Reason.QUOTA), (0, Reason.NONE)]
