"""Probes: things that the model must be able to say, each with a policy of a few lines."""

import pytest

from rota.core.allocation import Allocation
from rota.core.jobs import CANCELLED, DONE, Behaviour, JobSpec, Request
from rota.core.knowledge import Knowledge
from rota.core.plan import ExplicitPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.placement.count import count
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, Solo, wire


def workload(*jobs):
    """(id, submit_s, request, work[, group])"""
    specs = [
        JobSpec(name, at_s, asked, group=g[0] if g else "") for name, at_s, asked, _, *g in jobs
    ]
    return Workload(specs, [Behaviour(job[3]) for job in jobs])


def finished(engine):
    engine.run()
    return {job.id: job.end_s for job in engine.jobs.values()}


# --- half a GPU -----------------------------------------------------------------------------------


class Halves(DecidePolicy[Params]):
    """Two jobs on each half of the only GPU."""

    name = "halves"
    plan_type = ExplicitPlan

    def decide(self, view):
        plan = view.plan()
        device = view.topology.devices(view.topology.nodes[0].id)[0]
        for job in view.jobs[:2]:
            plan.place_at(job, Allocation([(device, 0.5)]))
        return plan


class Crowded(Solo):
    """Two jobs on a GPU make 60 % of the progress each."""

    unit = False
    neighbours = True

    def rate(self, job, allocation, sharers):
        return 0.6 if sharers else 1.0


def test_two_jobs_share_a_gpu():
    jobs = workload(*((name, 0, Request.of(0.5), 3) for name in "abc"))
    cluster = SimCluster(Topology.uniform(1, 1), Fixed(), Solo())
    engine = wire(Halves(), cluster, jobs)
    assert finished(engine) == {"a": 3, "b": 3, "c": 6}
    assert engine.jobs[0].service == 1.5


def test_sharing_slows_and_speeds_up_again():
    jobs = workload(("a", 0, Request.of(0.5), 6), ("b", 5, Request.of(0.5), 3))
    cluster = SimCluster(Topology.uniform(1, 1), Fixed(), Crowded())
    # a: 5 alone, then 1 at 0.6 until 6.667; b: 1 until then, 2 alone
    assert finished(wire(Halves(), cluster, jobs)) == pytest.approx(
        {"a": 6 + 2 / 3, "b": 8 + 2 / 3}
    )


# --- two kinds of GPUs ----------------------------------------------------------------------------


class Speeds(Solo):
    """Twice as fast on a V100."""

    unit = False

    def __init__(self, topology):
        self.vertices = topology.vertices

    def rate(self, job, allocation, sharers):
        return min(2.0 if self.vertices[v].gpu_type == "v100" else 1.0 for v in allocation.vertices)


class SlowFirst(DecidePolicy[Params]):
    """Takes the nodes in the order of the cluster, and moves to a faster one when it is free."""

    name = "slow-first"
    plan_type = ExplicitPlan

    def decide(self, view):
        plan = view.plan()
        nodes = sorted(view.topology.nodes, key=lambda node: node.gpu_type != "v100")
        for job, node in zip(view.jobs, nodes, strict=False):
            plan.place_at(job, Allocation([(node.id, 1)]))
        return plan


def test_two_gpu_types_with_different_rates():
    topology = Topology([NodeSpec("slow", 1, "k80"), NodeSpec("fast", 1, "v100")])
    jobs = workload(("a", 0, Request.of(1), 8), ("b", 0, Request.of(1), 8))
    engine = wire(SlowFirst(), SimCluster(topology, Fixed(), Speeds(topology)), jobs)
    # a on the V100 until 4; b has 4 left then, moves there and needs 2 more seconds
    assert finished(engine) == {"a": 4, "b": 6}
    assert engine.jobs[1].migrations == 1


def test_a_move_between_gpu_types_costs_its_start():
    topology = Topology([NodeSpec("slow", 1, "k80"), NodeSpec("fast", 1, "v100")])
    jobs = workload(("a", 0, Request.of(1), 8), ("b", 0, Request.of(1), 8))
    engine = wire(SlowFirst(), SimCluster(topology, Fixed(start_s=1), Speeds(topology)), jobs)
    # a runs 1..5; b has done 4 by then, starts again for 1 s and needs 2 more
    assert finished(engine) == {"a": 5, "b": 8}


# --- tasks without a gang -------------------------------------------------------------------------


class InOrder(DecidePolicy[Params]):
    """First come, first served, passing what does not fit."""

    name = "in-order"

    def decide(self, view):
        plan = view.plan()
        plan.fill(view.jobs)
        return plan


def test_four_tasks_on_two_gpus_need_not_run_together():
    jobs = workload(("whole", 1, Request.of(4, gang=False), 5))
    engine = wire(InOrder(), SimCluster(Topology.uniform(1, 2), Fixed(), Solo()), jobs)
    ends = finished(engine)
    assert ends == {"whole": 11, "whole#0": 6, "whole#1": 6, "whole#2": 11, "whole#3": 11}
    assert engine.jobs[0].phase == DONE


def test_a_gang_of_the_same_size_is_refused():
    jobs = workload(("whole", 1, Request.of(4), 5))
    engine = wire(InOrder(), SimCluster(Topology.uniform(1, 2), Fixed(), Solo()), jobs)
    engine.run()
    assert "4 GPUs" in " ".join(engine.log.texts.values())


# --- resizing -------------------------------------------------------------------------------------


class Grow(DecidePolicy[Params]):
    """Gives a job twice its GPUs from the moment at which it is alone."""

    name = "grow"

    def decide(self, view):
        plan = view.plan()
        for job in view.jobs:
            plan.place(job, gpus=job.gpus * (2 if len(view.jobs) == 1 else 1))
        return plan


class Linear(Solo):
    """Progress in proportion to the GPUs."""

    unit = False

    def rate(self, job, allocation, sharers):
        return allocation.gpus / job.gpus


@pytest.mark.parametrize("place", [count, None])
def test_a_job_grows_from_two_to_four_gpus_at_a_cost(place):
    topology = Topology.uniform(1, 4)
    jobs = workload(
        ("a", 0, Request.of(2, min_gpus=2, max_gpus=4), 20),
        ("b", 0, Request.of(2, min_gpus=2, max_gpus=4), 5),
    )
    cluster = SimCluster(topology, Fixed(start_s=3), Linear())
    engine = wire(Grow(), cluster, jobs, placement=place and place(topology))
    # both run from 3; b ends at 8; a has 15 left, starts anew until 11, then at double speed
    assert finished(engine) == {"a": 11 + 7.5, "b": 8}
    assert engine.jobs[0].service == 5 * 2 + 7.5 * 4


# --- groups ---------------------------------------------------------------------------------------


class FirstWins(DecidePolicy[Params]):
    """The first trial that finishes ends its siblings."""

    name = "first-wins"
    knowledge = Knowledge.HISTORY

    def decide(self, view):
        plan = view.plan()
        over = set()
        for job in view.history:
            if job.group is not None:
                siblings = job.group.siblings(job)
                plan.cancel(siblings, because_of=job)
                over.update(sibling.index for sibling in siblings)
        plan.fill(job for job in view.jobs if job.index not in over)
        return plan


def test_a_trial_ends_its_siblings():
    jobs = workload(
        ("slow", 0, Request.of(1), 50, "search"),
        ("quick", 0, Request.of(1), 7, "search"),
        ("queued", 0, Request.of(2), 9, "search"),
        ("other", 1, Request.of(2), 10),
    )
    engine = wire(FirstWins(), SimCluster(Topology.uniform(1, 2), Fixed(), Solo()), jobs)
    ends = finished(engine)
    assert ends == {"slow": 7, "quick": 7, "queued": 7, "other": 17}
    assert [engine.jobs[i].phase for i in range(3)] == [CANCELLED, DONE, CANCELLED]
