"""What the cluster has as a whole (licences): counted over all nodes, whichever policy decides."""

import msgspec
import pytest

import gpu_sharing
from rota.core.allocation import Allocation
from rota.core.errors import ClusterSpecError, InvalidPlanError, InvariantError
from rota.core.jobs import DONE, WAITING, Shape
from rota.core.plan import ExplicitPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.registry import POLICIES, load, names
from rota.core.resources import ResourceKind, licence
from rota.core.topology import NodeSpec, Topology
from rota.engine.invariants import CapacityCheck
from rota.engine.parts import make_policy
from rota.engine.snapshot import freeze, restore
from rota.metrics.story import Stories
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.placement.room import Room
from rota.testing.scenario import Item, Scenario, random_scenario, to_the_end


def licensed(seed, seats=2):
    """A small run in which every other job wants licences."""
    scenario = random_scenario(seed, placement="consolidate", lossy=False, outages=False)
    jobs = [
        msgspec.structs.replace(job, seats=i % (seats + 1)) for i, job in enumerate(scenario.jobs)
    ]
    return msgspec.structs.replace(scenario, jobs=tuple(jobs), seats=seats)


def held(engine):
    """Licences in use, by what jobs hold."""
    return sum(
        amount
        for job in engine.view.active.values()
        if job.running
        for _, kind, amount in job.allocation.extra
        if kind == "seat"
    )


@pytest.mark.parametrize("policy", names(POLICIES))
def test_every_policy_counts_licences(policy):
    most = 0.0
    for seed in (3, 5, 11):
        engine = licensed(seed).engine(load(POLICIES, policy)())
        while engine.advance():
            most = max(most, held(engine))
            assert held(engine) <= 2 + 1e-6
        could = [job for job in engine.jobs.values() if job.parent is None and job.shape.resources]
        assert could
        assert all(job.terminal for job in could)
    assert most > 0


TWO = (2, 2)
SHORT_AND_LONG = (Item(0, 1, 20, on=(0,), seats=1), Item(5, 1, 2, on=(1,), seats=1))


def runs(scenario, policy):
    engine = to_the_end(scenario.engine(make_policy(policy)))
    return [(job.first_start_s, job.end_s) for job in engine.jobs.values()]


def test_jobs_on_different_nodes_wait_for_the_same_licence():
    assert runs(Scenario(SHORT_AND_LONG, TWO, "consolidate", seats=1), "fifo-skip") == [
        (0, 20), (20, 22),
    ]  # fmt: skip
    assert runs(Scenario(SHORT_AND_LONG, TWO, "consolidate", seats=2), "fifo-skip") == [
        (0, 20), (5, 7),
    ]  # fmt: skip


def test_a_shorter_job_takes_the_licence_of_one_elsewhere():
    assert runs(Scenario(SHORT_AND_LONG, TWO, "consolidate", seats=1), "srtf") == [(0, 22), (5, 7)]


def test_nobody_passes_a_strict_head_that_waits_for_a_licence():
    jobs = (*SHORT_AND_LONG, Item(6, 1, 3, on=(0,), seats=1), Item(6, 1, 3, on=(0,)))
    found = runs(Scenario(jobs, TWO, "consolidate", seats=1), "fifo")
    assert found == [(0, 20), (20, 22), (22, 25), (22, 25)]


def test_the_log_says_that_the_cluster_lacks_it():
    scenario = Scenario(SHORT_AND_LONG, TWO, "consolidate", seats=1)
    stories = Stories(to_the_end(scenario.engine(make_policy("fifo-skip"))).log.frame())
    told = stories.tell(stories.ids.index("j1"))
    assert {part.reason: part.seconds for part in told.parts} == {"capacity": 15.0}
    assert "1 seat" in told.parts[0].text


SHARING = [
    "antman", "gandiva-random", "hived", "kubeshare", "lucid", "mig-pack", "olympian", "salus",
]  # fmt: skip


@pytest.mark.parametrize("policy", SHARING)
def test_also_under_policies_that_name_gpus(policy):
    """For as long as the licence is lacking, and not a moment longer."""
    scenario = Scenario(SHORT_AND_LONG, TWO, "consolidate", seats=1)
    stories = Stories(to_the_end(scenario.engine(make_policy(policy))).log.frame())
    told = stories.tell(stories.ids.index("j1"))
    assert {part.reason: part.seconds for part in told.parts} == {"capacity": 15.0}


def asking(name, gpus, work, **kinds):
    return gpu_sharing.job(name, gpus, work, kinds=kinds)


def test_what_is_used_up_does_not_come_back():
    kinds = [ResourceKind("tokens", renewable=False, total=2.0)]
    jobs = [asking(name, 1, 10, tokens=1) for name in "abc"]
    made = gpu_sharing.engine("fifo-skip", jobs, [NodeSpec("n", 2), NodeSpec("m", 2)], kinds=kinds)
    made.run(until_s=100.0)
    assert [job.phase for job in made.jobs.values()] == [DONE, DONE, WAITING]
    again = gpu_sharing.engine("fifo-skip", jobs, [NodeSpec("n", 2), NodeSpec("m", 2)], kinds=kinds)
    restore(again, freeze(made))
    again.run(until_s=200.0)
    assert [job.phase for job in again.jobs.values()] == [DONE, DONE, WAITING]


@pytest.mark.parametrize("policy", ["gandiva", "antman", "olympian", "kubeshare", "hived"])
@pytest.mark.parametrize("whole", [True, False], ids=["cluster", "node"])
def test_policies_that_name_gpus_see_what_is_used_up(policy, whole):
    """Also after a restart, and where only one of the nodes has some."""
    kinds = [ResourceKind("tokens", renewable=False, total=2.0 if whole else None)]
    nodes = [NodeSpec("m", 2), NodeSpec("n", 2, resources=() if whole else (("tokens", 2.0),))]
    jobs = [asking(name, 1, 10, tokens=1) for name in "abc"]
    if policy == "hived" and not whole:  # what nodes have is its cells', as CPUs are
        jobs = jobs[:2]
    made = gpu_sharing.engine(policy, jobs, nodes, kinds=kinds)
    made.run(until_s=100.0)
    phases = [DONE, DONE, WAITING][: len(jobs)]
    assert [job.phase for job in made.jobs.values()] == phases
    if not whole:
        assert {job.allocation.vertices[0] for job in list(made.jobs.values())[:2]} <= set(
            made.cluster.topology.devices(made.cluster.topology.nodes[1].id)
        )
    again = gpu_sharing.engine(policy, jobs, nodes, kinds=kinds)
    restore(again, freeze(made))
    again.run(until_s=200.0)
    assert [job.phase for job in again.jobs.values()] == phases


def test_what_was_used_up_on_a_node_that_is_down_is_not_exceeded():
    kinds = [ResourceKind("tokens", renewable=False)]
    topology = Topology([NodeSpec("n", 1, resources=(("tokens", 1.0),))], kinds=kinds)
    node = topology.nodes[0]
    check = CapacityCheck(topology)
    check.spend(Allocation((), [(node.id, "tokens", 1.0)]))
    check.changed()
    again = Allocation((), [(node.id, "tokens", 0.5)])
    assert next(found[1:] for found in check.exceeded([again])) == ("tokens", 1.5, 1.0)
    node.up = False
    check.changed()
    assert list(check.exceeded([])) == []


def test_a_shortage_of_what_is_compressible_forbids_nothing():
    kinds = [ResourceKind("net", compressible=True, total=1.0)]
    jobs = [asking(name, 1, 10, net=1) for name in "ab"]
    made = gpu_sharing.engine("fifo", jobs, [NodeSpec("n", 4)], kinds=kinds)
    assert gpu_sharing.ends(made) == {"a": 10.0, "b": 10.0}


@pytest.mark.parametrize("placement", [consolidate, count])
def test_more_than_there_is_is_refused_by_name(placement):
    topology = Topology([NodeSpec("n", 4)], kinds=[licence("matlab", 3)])
    found = placement(topology).never(shape(matlab=4))
    assert "4 matlab" in found
    assert "the cluster has 3 matlab in all" in found
    assert placement(topology).never(shape(matlab=3)) is None
    assert "knows no resource 'ansys'" in placement(topology).never(shape(ansys=1))


def shape(**kinds):
    spec, _ = asking("a", 1, 1, **kinds)
    return Shape(0, spec.request)


def test_a_node_has_nothing_of_what_belongs_to_the_cluster():
    with pytest.raises(ClusterSpecError, match="matlab belongs to the cluster as a whole"):
        Topology([NodeSpec("n", 1, resources=(("matlab", 1.0),))], kinds=[licence("matlab", 3)])


class Careless(DecidePolicy[Params]):
    """Everybody runs on a GPU of its own; licences are nobody's business."""

    name = "careless"
    plan_type = ExplicitPlan

    def decide(self, view):
        plan = view.plan(ExplicitPlan)
        gpus = view.topology.devices(view.topology.nodes[0].id)
        for job in [*view.running, *view.waiting]:
            plan.place_at(job, Allocation([(gpus[job.index], 1)]))
        return plan


def test_a_plan_that_names_gpus_cannot_forget_licences():
    made = gpu_sharing.engine(
        Careless(), [asking("a", 1, 10, matlab=2)], [NodeSpec("n", 4)], kinds=[licence("matlab", 2)]
    )
    made.run(until_s=5.0)
    (job,) = made.jobs.values()
    assert ("matlab", 2.0) in [part[1:] for part in job.allocation.extra]
    both = [asking("a", 1, 10, matlab=1), asking("b", 1, 10, matlab=2)]
    made = gpu_sharing.engine(Careless(), both, [NodeSpec("n", 4)], kinds=[licence("matlab", 2)])
    with pytest.raises(InvalidPlanError, match="over-commits"):
        made.run()


def test_a_placement_that_forgets_licences_is_caught(monkeypatch):
    change = Room.change_extra

    def forgetful(room, position, kind, amount, number=-1):
        if kind not in room.supply:
            change(room, position, kind, amount, number)

    monkeypatch.setattr(Room, "change_extra", forgetful)
    with pytest.raises(InvariantError, match="seat"):
        to_the_end(
            Scenario(SHORT_AND_LONG, TWO, "consolidate", seats=1).engine(make_policy("fifo-skip"))
        )


def test_licences_can_be_taken_away_from_nobody_who_has_them():
    topology = Topology([NodeSpec("n", 4)], kinds=[licence("matlab", 3)])
    check = CapacityCheck(topology)
    check.changed()
    n = topology.nodes[0].id
    two = Allocation([(n, 1)], [(n, "matlab", 2.0)])
    assert not list(check.exceeded([two]))
    topology.declare([licence("matlab", 1)])
    assert not list(check.exceeded([two]))
    one = Allocation([(n, 1)], [(n, "matlab", 1.0)])
    ((place, kind, used, there),) = check.exceeded([two, one])
    assert (place.id, kind, used, there) == (0, "matlab", 3.0, 2.0)
    topology.declare([])
    assert topology.supply == {"matlab": 0.0}


def test_without_licences_the_fast_ways_are_taken():
    plain = Topology.uniform(2, 4)
    assert plain.is_uniform
    assert type(count(plain)) is not type(count(Topology(plain.specs, kinds=[licence("m", 1)])))
