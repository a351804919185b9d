"""`displace`: a policy says who may have to go, in which order, and why."""

import pytest

from decisions import Scripted, engine, everybody, job, rows
from rota.core.errors import PolicyError
from rota.core.log import Record
from rota.core.plan import ExplicitPlan
from rota.core.policy import DecidePolicy, Params
from rota.engine.invariants import Invariants

BOTH = pytest.mark.parametrize("placement", ["count", "consolidate"])
JOBS = [*(job(f"old{i}", 1, 50) for i in range(4)), job("new", 2, 10, at=5)]


def decided(decide, jobs=JOBS, nodes=(2, 2), placement="count"):
    """All that came at 0 s run; at 5 s `decide(plan, jobs)` is called once and tells something."""
    told = []

    def script(view, plan):
        by_name = {j.id: j for j in view.jobs}
        if view.now_s == 5 and not told:
            told.append(decide(plan, by_name))
            plan.fill([j for j in view.running if j.id not in (told[0] or ())])
        else:
            plan.fill([*view.running, *view.waiting])

    made = engine(Scripted(script), jobs, nodes, placement=placement)
    made.checker = Invariants()
    made.run()
    made.finish()
    return told[0], made


def stops(made):
    names = {j.index: j.id for j in everybody(made)}
    return [(names[number], names.get(other)) for _, number, _, other, _ in rows(made, Record.STOP)]


@BOTH
def test_the_first_ones_go(placement):
    def decide(plan, jobs):
        gone = plan.displace(jobs["new"], [jobs["old1"], jobs["old0"], jobs["old3"]])
        for victim in gone:
            plan.remark(victim, f"{victim.id} had to")
        return [victim.id for victim in gone]

    told, made = decided(decide, placement=placement)
    assert set(told) == {"old0", "old1"}
    assert {(who, by) for who, by in stops(made)} == {("old0", "new"), ("old1", "new")}
    log = made.log.frame()
    assert set(log.filter(log["event"] == "stop")["text"]) == {"old0 had to", "old1 had to"}


def test_nobody_goes_who_is_not_named():
    told, made = decided(lambda plan, jobs: plan.displace(jobs["new"], [jobs["old1"]]))
    assert told is None
    assert not stops(made)


def test_nobody_goes_if_there_is_room():
    told, made = decided(
        lambda plan, jobs: plan.displace(jobs["new"], [jobs["old1"]]), nodes=(3, 2)
    )
    assert told == []
    assert not stops(made)


@BOTH
def test_some_go_in_any_case(placement):
    def decide(plan, jobs):
        gone = plan.displace(jobs["new"], [jobs["old2"], jobs["old1"]], must=1)
        return [victim.id for victim in gone]

    told, made = decided(decide, nodes=(3, 2), placement=placement)
    assert told == ["old2"]
    assert stops(made) == [("old2", "new")]


@BOTH
def test_if_it_does_not_fit_all_stay(placement):
    def decide(plan, jobs):
        assert plan.displace(jobs["new"], [jobs["old2"]], must=1) is None

    _, made = decided(decide, placement=placement)
    assert not stops(made)


@BOTH
def test_it_can_be_withdrawn(placement):
    def decide(plan, jobs):
        gone = plan.displace(jobs["new"], [jobs["old1"], jobs["old0"]])
        plan.remark(gone[0], "for nothing")
        plan.withdraw(jobs["new"])

    _, made = decided(decide, placement=placement)
    assert not stops(made)


def test_those_that_were_named_stay():
    def decide(plan, jobs):
        plan.place(jobs["old0"])
        assert plan.displace(jobs["new"], [jobs["old0"], jobs["old1"]]) is None

    _, made = decided(decide)
    assert not stops(made)


class Explicit(DecidePolicy[Params]):
    """Wants somebody else to find the slices."""

    name = "explicit"
    plan_type = ExplicitPlan

    def decide(self, view):
        plan = view.plan()
        plan.displace(view.waiting[0], ())
        return plan


def test_explicit_policies_say_where():
    made = engine(Explicit(), [job("a", 1, 1)], (1, 1))
    with pytest.raises(PolicyError, match="declare `plan_type = DisplacingPlan`"):
        made.run()
