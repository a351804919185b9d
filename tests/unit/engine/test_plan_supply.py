"""Other CPUs and memory than a job asks for: `place_with` and `supply`."""

import pytest

from decisions import Scripted, WholePlan, engine, everybody, job
from rota.core.allocation import Allocation
from rota.core.errors import PolicyError
from rota.core.jobs import Phase
from rota.core.plan import ExplicitPlan, SupplyingPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.topology import NodeSpec, Topology
from rota.engine.plans import Shapes
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.placement.first_fit import FirstFit

NODES = [NodeSpec("n0", 4, cpus=8, mem_gib=40), NodeSpec("n1", 4, cpus=8, mem_gib=40)]
PLACEMENTS = [count, consolidate, FirstFit]


class SuppliedPlan(SupplyingPlan, WholePlan):
    """CPUs and memory, too."""


class Supplying(Scripted):
    """Decides by a function of (view, plan)."""

    plan_type = SuppliedPlan


def played(decide, jobs, nodes=NODES, **options):
    """Let `decide(plan, jobs by name)` say what happens at each event."""

    def script(view, plan):
        decide(plan, {j.id: j for j in view.jobs})

    made = engine(Supplying(script), jobs, nodes, **options)
    made.run(until_s=max(spec.submit_s for spec, _ in jobs))
    return {j.id: j for j in everybody(made)}


def held(of):
    """Return GPUs, CPUs and memory."""
    amounts = {"cpu": 0.0, "memory": 0.0}
    for _, kind, amount in of.allocation.extra:
        amounts[kind] += amount
    return (of.allocation.gpus, *amounts.values())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_job_starts_with_what_it_is_given(placement):
    def decide(plan, jobs):
        assert plan.place_with(jobs["a"], (2.0, 10.0))
        assert plan.place(jobs["b"])
        assert not plan.supply(jobs["b"], (99.0, 8.0))
        assert plan.supply(jobs["a"], (3.0, 12.0))

    jobs = [job("a", 2, 9, cpus=16, mem_gib=80), job("b", 2, 9, cpus=4, mem_gib=8)]
    found = played(decide, jobs, placement=placement)
    assert held(found["a"]) == (2, 3, 12)
    assert held(found["b"]) == (2, 4, 8)


def test_a_running_job_keeps_its_gpus_and_gets_what_there_is():
    def decide(plan, jobs):
        if "new" not in jobs:
            assert plan.place(jobs["old"])
            return
        assert plan.place_with(jobs["old"], (2.0, 0.0))
        assert plan.place(jobs["new"])
        assert not plan.supply(jobs["old"], (3.0, 0.0))
        assert plan.place(jobs["old"])  # it has its place: nothing changes

    jobs = [job("old", 2, 99, cpus=8), job("new", 2, 99, at=1, cpus=6)]
    found = played(decide, jobs, NODES[:1], placement="consolidate")
    assert held(found["old"]) == (2, 2, 0)
    assert (found["old"].start_s, found["old"].preemptions) == (1, 0)
    assert held(found["new"]) == (2, 6, 0)


def test_without_room_a_running_job_goes_on_as_it_is():
    def decide(plan, jobs):
        for each in jobs.values():
            assert plan.place_with(each, (5.0, 0.0) if "late" in jobs else (4.0, 0.0))

    jobs = [job("a", 1, 99, cpus=4), job("b", 1, 99, cpus=4), job("late", 4, 99, at=1, cpus=4)]
    found = played(decide, jobs, placement="consolidate")
    assert [held(found[name]) for name in "ab"] == [(1, 4, 0), (1, 4, 0)]
    assert [found[name].start_s for name in "ab"] == [0, 0]
    assert held(found["late"]) == (4, 5, 0)


def test_a_withdrawn_change_is_none():
    def decide(plan, jobs):
        if "new" not in jobs:
            assert plan.place(jobs["old"])
            return
        assert plan.place_with(jobs["old"], (1.0, 0.0))
        plan.withdraw(jobs["old"])
        assert plan.place(jobs["old"])
        assert not plan.place(jobs["new"])

    jobs = [job("old", 2, 99, cpus=8), job("new", 2, 99, at=1, cpus=6)]
    found = played(decide, jobs, NODES[:1], placement="consolidate")
    assert held(found["old"]) == (2, 8, 0)
    assert found["new"].phase == Phase.WAITING


def test_who_got_less_leaves_room_for_those_that_failed_before():
    def decide(plan, jobs):
        assert plan.place(jobs["a"])
        assert not plan.place(jobs["b"])
        assert plan.supply(jobs["a"], (1.0, 0.0))
        assert plan.place(jobs["b"])

    jobs = [job("a", 1, 99, cpus=8), job("b", 1, 99, cpus=6)]
    found = played(decide, jobs, NODES[:1], placement="consolidate")
    assert held(found["b"]) == (1, 6, 0)


def test_spread_jobs_get_their_part_on_every_node():
    def decide(plan, jobs):
        assert plan.place_with(jobs["a"], (3.0, 0.0))
        assert plan.supply(jobs["a"], (6.0, 12.0))

    found = played(decide, [job("a", 6, 9, cpus=12)], placement="consolidate")
    by_node = {
        place: amount for place, kind, amount in found["a"].allocation.extra if kind == "cpu"
    }
    assert by_node == {place: float(gpus) for place, gpus in found["a"].allocation.slices}
    assert held(found["a"]) == (6, 6, 12)


def test_a_cluster_that_declares_nothing_gives_nothing():
    def decide(plan, jobs):
        assert plan.place_with(jobs["a"], (3.0, 5.0))
        assert plan.supply(jobs["a"], (99.0, 99.0))

    found = played(decide, [job("a", 2, 9, cpus=4)], (1, 4))
    assert held(found["a"]) == (2, 0, 0)


def test_only_placed_jobs_can_be_supplied():
    def decide(plan, jobs):
        with pytest.raises(PolicyError, match="call `place` first"):
            plan.supply(jobs["a"], (1.0, 1.0))
        plan.place(jobs["a"])

    assert played(decide, [job("a", 1, 9)])["a"].running


class Explicit(DecidePolicy[Params]):
    """Names every slice."""

    name = "explicit"
    plan_type = ExplicitPlan

    def decide(self, view):
        plan = view.plan()
        for each in view.jobs:
            with pytest.raises(PolicyError, match="declare `plan_type = SupplyingPlan`"):
                plan.supply(each, (1.0, 1.0))
            with pytest.raises(PolicyError, match=r"`plan\.place_with` is part of"):
                plan.place_with(each, (1.0, 1.0))
            plan.place_at(each, Allocation([(view.topology.nodes[0].id, 1)]))
        return plan


def test_an_explicit_policy_says_how_much_itself():
    made = engine(Explicit(), [job("a", 1, 9)], NODES)
    made.run()
    assert made.jobs[0].end_s == 9


class Flexible(DecidePolicy[Params]):
    """Gives everybody one CPU."""

    name = "flexible"
    plan_type = SupplyingPlan

    def decide(self, view):
        plan = view.plan()
        for each in view.jobs:
            plan.place_with(each, (1.0, 0.0))
        return plan


def test_only_gpus_must_fit_where_the_rest_is_compressible():
    jobs = [job("cpus", 1, 9, cpus=999), job("gpus", 9, 9), job("host", 0, 9, cpus=999)]
    made = engine(Flexible(), jobs, NODES)
    made.run()
    phases = {j.id: Phase(j.phase) for j in made.jobs.values()}
    assert phases == {"cpus": Phase.DONE, "gpus": Phase.REJECTED, "host": Phase.REJECTED}


def test_other_shapes_keep_all_but_the_amounts():
    made = engine(Flexible(), [job("a", 4, 1, cpus=8, mem_gib=4)], NODES)
    made.run()
    shapes, shape = Shapes(), made.jobs[0].shape
    other = shapes.supplied(shape, (2.0, 6.0))
    assert (other.gpus, other.cpus, other.mem_gib) == (4, 2, 6)
    assert other is shapes.supplied(shape, (2.0, 6.0))
    numbers = {shapes.supplied(shape, (float(n), 0.0)).number for n in range(5)}
    numbers |= {shapes.sized(shape, n).number for n in range(1, 6)}
    assert len(numbers) == 10
    assert shapes.without_supply(shape).plain


def test_the_same_amounts_are_the_same_allocation():
    placement = FirstFit(Topology(NODES))
    node = placement.topology.nodes[0].id
    old = Allocation([(node, 3)], [(node, "cpu", 0.1 + 0.2)])
    assert placement.supplied(old, 0.3, 0.0) is old
    assert placement.supplied(old, 0.4, 0.0) == Allocation([(node, 3)], [(node, "cpu", 0.4)])
    assert placement.supplied(old, 9.0, 0.0) is None
