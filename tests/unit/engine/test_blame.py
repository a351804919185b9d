"""Which of the reasons it is that a request finds no place: exact splits, and what would help."""

import pytest

import decisions
from rota.core.jobs import Behaviour, JobSpec, Request, Shape, TaskGroup
from rota.core.policy import DecidePolicy, Params
from rota.core.reasons import Reason
from rota.core.topology import NodeSpec, Topology
from rota.engine.blame import why_not
from rota.engine.invariants import Invariants
from rota.metrics.story import Stories
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.policies.conservative import Conservative
from rota.policies.fifo import Fifo
from rota.policies.fifo_skip import FifoSkip
from rota.policies.srtf import Srtf


class InOrder(DecidePolicy[Params]):
    """First come, first served, through the general door."""

    name = "in-order"

    def decide(self, view):
        plan = view.plan()
        for job in [*view.running, *view.waiting]:
            plan.place(job)
        return plan


DOORS = [Fifo, FifoSkip, Srtf, Conservative, InOrder]


def asks(name, work, at=0.0, gpus=1, **request):
    return JobSpec(name, at, Request.of(gpus, **request), estimate_s=work), Behaviour(work)


def on_nodes(name, work, nodes, each, at=0.0, **request):
    """Ask for a gang with one task on each of some nodes."""
    wanted = Request((TaskGroup("worker", nodes, each),), apart=True, **request)
    return JobSpec(name, at, wanted, estimate_s=work), Behaviour(work)


def parts(policy, jobs, nodes, name="b", placement="consolidate"):
    made = decisions.run(policy(), jobs, nodes, placement=placement)
    stories = Stories(made.log.frame())
    told = stories.tell(stories.ids.index(name))
    assert sum(part.seconds for part in told.parts) == told.wait_s
    return {part.reason: part.seconds for part in told.parts}


V100S, K80S = NodeSpec("v", 2, "v100"), NodeSpec("k", 4, "k80")


@pytest.mark.parametrize("policy", DOORS)
def test_constraint(policy):
    # v100s are all in use until 100; 4 k80s are free all the time.
    jobs = [asks("a", 100.0, gpus=2, gpu_types=("v100",)),
            asks("b", 500.0, 10.0, gpus=2, gpu_types=("v100",))]  # fmt: skip
    assert parts(policy, jobs, [K80S, V100S]) == {"constraint": 90}
    assert parts(policy, jobs, [K80S, V100S], placement="count") == {"constraint": 90}

    anything = [jobs[0], asks("b", 500.0, 10.0, gpus=2)]
    assert parts(policy, anything, [K80S, V100S]) == {}
    assert parts(policy, jobs, [K80S, V100S, NodeSpec("w", 2, "v100")]) == {}


@pytest.mark.parametrize("policy", DOORS)
def test_constraint_of_labels(policy):
    nodes = [NodeSpec("n0", 4, labels=("ib",)), NodeSpec("n1", 4)]
    jobs = [asks("a", 50.0, gpus=4, labels=("ib",)), asks("b", 500.0, 10.0, gpus=4, labels=("ib",))]
    assert parts(policy, jobs, nodes) == {"constraint": 40}
    assert parts(policy, [jobs[0], asks("b", 500.0, 10.0, gpus=4)], nodes) == {}


@pytest.mark.parametrize("policy", DOORS)
def test_capacity_comes_before_constraint(policy):
    # The k80s are in use too: there is not enough of anything.
    jobs = [asks("a", 100.0, gpus=2, gpu_types=("v100",)),
            asks("b", 500.0, 10.0, gpus=2, gpu_types=("v100",)),
            asks("c", 200.0, 5.0, gpus=4, gpu_types=("k80",))]  # fmt: skip
    assert parts(policy, jobs, [K80S, V100S]) == {"capacity": 90}


@pytest.mark.parametrize("policy", DOORS)
def test_gang(policy):
    # b wants 2 nodes with 4 GPUs each. 4 are free on one, and 2 on each of two others.
    sizes = [NodeSpec(f"n{i}", 4) for i in range(3)]
    holds = on_nodes("a", 100.0, 2, 2)
    wants = on_nodes("b", 500.0, 2, 4, at=10.0)
    assert parts(policy, [holds, wants], sizes) == {"gang": 90}

    one_by_one = on_nodes("b", 500.0, 2, 4, at=10.0, gang=False)
    made = decisions.run(policy(), [holds, one_by_one], sizes, placement="consolidate")
    assert made.view.everyone[1].family.members[0].first_start_s == 10
    assert parts(policy, [holds, wants], [*sizes, NodeSpec("n3", 4)]) == {}


@pytest.mark.parametrize("policy", DOORS)
def test_no_part_of_a_gang_finds_a_place(policy):
    # 2 GPUs are free on each of 4 nodes: 8, as many as b wants, but nowhere 4.
    sizes = [NodeSpec(f"n{i}", 4) for i in range(4)]
    jobs = [on_nodes("a", 100.0, 4, 2), on_nodes("b", 500.0, 2, 4, at=10.0)]
    assert parts(policy, jobs, sizes) == {"fragmentation": 90}
    assert parts(policy, [jobs[0], on_nodes("b", 500.0, 4, 2, at=10.0)], sizes) == {}


@pytest.mark.parametrize("policy", DOORS)
def test_fewer_than_a_gang_asks_for(policy):
    sizes = [NodeSpec(f"n{i}", 4) for i in range(2)]
    jobs = [asks("a", 100.0, gpus=1), on_nodes("b", 500.0, 2, 4, at=10.0)]
    assert parts(policy, jobs, sizes) == {"capacity": 90}  # although a part could start


def test_one_piece_is_not_a_gang():
    # 16 GPUs are free, 2 on each node: one that wants 8 on a node is no gang of tasks.
    topology = Topology.uniform(8, 8)
    placement = consolidate(topology)
    engine = decisions.engine(
        Fifo(), [on_nodes("a", 9.0, 8, 6)], (8, 8), placement=lambda _: placement
    )
    engine.run(1.0)
    assert placement.free == 16
    assert why_not(placement, Shape(1, Request.of(8))) == Reason.FRAGMENTATION
    assert why_not(placement, Shape(2, Request.of(17))) == Reason.CAPACITY


def test_cpus_and_memory_count_too():
    nodes = [NodeSpec("n0", 4, "v100", 4, 16), NodeSpec("n1", 4, "k80", 64, 16)]
    placement = consolidate(Topology(nodes))

    def reason(**request):
        shape = Shape(reason.number, Request.of(1, **request))
        reason.number += 1
        return Reason(why_not(placement, shape)).label

    reason.number = 0
    assert reason(cpus=100) == "capacity"
    assert reason(mem_gib=33) == "capacity"
    assert reason(cpus=8, gpu_types=("v100",)) == "constraint"
    assert reason(mem_gib=20, gpu_types=("v100",)) == "constraint"
    assert reason(mem_gib=20) == "fragmentation"


def test_pools_are_never_fragmented():
    placement = count(Topology.uniform(2, 4))
    assert why_not(placement, Shape(0, Request.of(9, gpu_types=("",)))) == Reason.CAPACITY


SMALL, LARGE = {"gpu_mem_gib": 8}, {"gpu_mem_gib": 80}
ODD_POOLS = {
    # Which h100s a job gets nobody knows: they have as much memory as the smallest.
    "memory": (
        [NodeSpec("l", 2, "h100", **LARGE), NodeSpec("s", 2, "h100", **SMALL),
         NodeSpec("v", 2, "v100", **LARGE)],
        asks("a", 100.0, gpu_types=("v100",)), asks("b", 500.0, 10.0, gpus=2, gpu_mem_gib=10),
    ),
    # CPUs of nodes without GPUs are in the first pool, whatever type the node is said to have.
    "cpus": (
        [NodeSpec("h", 2, "h100", cpus=8), NodeSpec("v", 2, "v100", cpus=8),
         NodeSpec("c", 0, "v100", cpus=8)],
        asks("a", 100.0, cpus=6, gpu_types=("v100",)),
        asks("b", 500.0, 10.0, cpus=6, gpu_types=("v100",)),
    ),
    "untyped": (
        [NodeSpec("u", 2), NodeSpec("v", 2, "v100")],
        asks("a", 100.0, gpu_types=("v100",)), asks("b", 500.0, 10.0, 2, gpu_types=("v100",)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_POOLS)
@pytest.mark.parametrize("policy", [FifoSkip, InOrder])
def test_constraint_of_pools(policy, case):
    nodes, *jobs = ODD_POOLS[case]
    assert parts(policy, jobs, nodes, placement="count") == {"constraint": 90}
    made = decisions.engine(policy(), jobs, nodes)
    made.checker = Invariants()
    made.run()
    assert not made.view.active
