"""The verbs of every plan, what must be declared, and what is checked for all of them."""

import pytest

from decisions import Scripted, engine, everybody, job, rows
from rota.core.allocation import Allocation
from rota.core.errors import InvalidPlanError, PolicyError
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.log import Record
from rota.core.plan import (
    CAPABILITIES,
    DisplacingPlan,
    EligibilityPlan,
    ExplicitPlan,
    Plan,
    ReservingPlan,
)
from rota.core.policy import DecidePolicy, IncrementalPolicy, Params
from rota.engine.invariants import Invariants
from rota.policies.hived.policy import HivedPolicy

BOTH = pytest.mark.parametrize("placement", ["count", "consolidate"])


def elastic(name, *, at=0.0, least=1, most=4, asks=2):
    return JobSpec(name, at, Request.of(asks, min_gpus=least, max_gpus=most)), Behaviour(99)


def played(decide, jobs, nodes=(1, 4), **options):
    """In order until 5 s; then `decide` says what happens."""
    asked = []

    def script(view, plan):
        if view.now_s < 5:
            plan.fill(view.jobs)
            plan.wake_at(5)
        elif not asked:
            asked.append(True)
            decide(plan, {j.id: j for j in view.jobs})

    made = engine(Scripted(script), jobs, nodes, **options)
    made.checker = Invariants()
    made.run(until_s=5)
    assert asked
    return made


def held(made):
    return {j.id: j.held_gpus for j in everybody(made) if j.running}


# --- verbs ----------------------------------------------------------------------------------------


@BOTH
def test_a_stopped_job_makes_room_at_once_and_the_log_says_why(placement):
    def decide(plan, jobs):
        assert plan.keep(jobs["other"])
        plan.stop(jobs["old"], why="it had its turn", because_of=jobs["new"])
        assert plan.place(jobs["new"])
        assert not plan.keep(jobs["old"])

    jobs = [job("old", 2, 99), job("other", 2, 99), job("new", 2, 9, at=1)]
    made = played(decide, jobs, placement=placement)
    assert held(made) == {"other": 2, "new": 2}
    assert [(who, by) for _, who, _, by, _ in rows(made, Record.STOP)] == [(0, 2)]
    assert list(made.log.texts.values())[-1] == "it had its turn"


def test_a_job_that_is_stopped_without_a_word_leaves_none_in_the_log():
    made = played(lambda plan, jobs: plan.stop(jobs["old"]), [job("old", 2, 99)])
    assert [(who, by) for _, who, _, by, _ in rows(made, Record.STOP)] == [(0, -1)]
    assert len(made.log.texts) == 4  # cluster, node, shape, submission


@BOTH
def test_a_job_that_cannot_grow_keeps_what_it_has(placement):
    def decide(plan, jobs):
        assert plan.keep(jobs["other"])
        assert not plan.resize(jobs["grows"], 4)
        assert plan.resize(jobs["shrinks"], 1)

    jobs = [elastic("grows", most=4, asks=1), elastic("shrinks"), job("other", 1, 99)]
    made = played(decide, jobs, placement=placement)
    assert held(made) == {"grows": 1, "shrinks": 1, "other": 1}


def test_a_size_that_failed_says_nothing_about_a_smaller_one_that_it_had_before():
    """It waits and last held 2 GPUs: that 4 did not fit is no reason not to give it 2."""

    def decide(plan, jobs):
        assert plan.keep(jobs["other"])
        plan.stop(jobs["old"])
        assert not plan.place(jobs["old"], gpus=4)
        assert plan.place(jobs["old"], gpus=2)

    def again(plan, jobs):
        assert plan.keep(jobs["other"])
        assert not plan.place(jobs["old"])
        assert plan.place(jobs["old"], gpus=2)

    times = []

    def script(view, plan):
        jobs = {j.id: j for j in view.jobs}
        times.append(view.now_s)
        if view.now_s == 0:
            assert plan.place(jobs["old"], gpus=2)
            assert plan.place(jobs["other"])
            plan.wake_at(1)
        elif view.now_s == 1:
            plan.keep(jobs["other"])
            plan.wake_at(2)
        else:
            again(plan, jobs)

    made = engine(Scripted(script), [elastic("old", asks=4), job("other", 2, 99)], (1, 4))
    made.run(until_s=2)
    assert held(made) == {"old": 2, "other": 2}
    assert held(
        played(decide, [elastic("old", asks=2), job("other", 2, 99)], placement="consolidate")
    ) == {"old": 2, "other": 2}


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda plan, jobs: plan.keep(jobs["late"]), "job late is kept, but it does not run"),
        (lambda plan, jobs: plan.stop(jobs["late"]), "job late is stopped, but it does not run"),
        (lambda plan, jobs: plan.resize(jobs["late"], 1), "job late is resized, but it does not"),
        (lambda plan, jobs: plan.resize(jobs["old"], 3), "job old asks for 4 GPUs and is given 3"),
        (
            lambda plan, jobs: plan.place(jobs["old"]) and plan.stop(jobs["old"]),
            "the plan places job old and stops it",
        ),
    ],
)
def test_broken_promises_name_policy_and_job(do, message):
    with pytest.raises(InvalidPlanError, match=f"policy 'scripted' at 5 s: {message}"):
        played(do, [job("old", 4, 99), job("late", 1, 9, at=1)])


class Fickle(DecidePolicy[Params]):
    """First come first served; once, at 5 s, it does what it is asked to do."""

    name = "fickle"
    plan_type = ReservingPlan

    def __init__(self, then):
        super().__init__()
        self._then = [then]

    def decide(self, view):
        plan = view.plan()
        if view.now_s == 5 and self._then:
            self._then.pop()(plan, *view.running, *view.waiting)
        else:
            self.go_on(plan, view)
            if view.now_s < 5:
                plan.wake_at(5)
        return plan

    def go_on(self, plan, view):
        plan.fill(view.jobs)


class FickleInSteps(Fickle, IncrementalPolicy[Params]):
    name = "fickle-in-steps"


class FickleAndExplicit(Fickle):
    name = "fickle-and-explicit"
    plan_type = ExplicitPlan

    def go_on(self, plan, view):
        for one in view.running or view.jobs[:1]:
            plan.place_at(one, Allocation([(view.topology.nodes[0].id, 4)]))


class FickleTenant(HivedPolicy):
    """It decides for the jobs of a virtual cluster of HiveD."""

    def __init__(self, then):
        super().__init__()
        self._make = lambda: Fickle(then)


KINDS = {
    "a tenant's": FickleTenant,
    "all that shall run": Fickle,
    "changes": FickleInSteps,
    "explicit": FickleAndExplicit,
}


def asked_at_5(kind, then):
    jobs = [job("runs", 4, 99), job("waits", 4, 9, at=1)]
    made = engine(KINDS[kind](then), jobs, (1, 4))
    made.checker = Invariants()
    made.run(until_s=5)
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["place", "keep"])
def test_no_plan_stops_a_job_that_it_has_given_a_place(kind, verb):
    def then(plan, runs, _):
        assert getattr(plan, verb)(runs)
        plan.stop(runs)

    with pytest.raises(InvalidPlanError, match="the plan places job runs and stops it"):
        asked_at_5(kind, then)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_can_be_stopped_twice(kind):
    def then(plan, runs, _):
        plan.stop(runs)
        plan.stop(runs)

    assert held(asked_at_5(kind, then)) == {}


@pytest.mark.parametrize("kind", ["all that shall run", "changes", "a tenant's"])
def test_a_stopped_job_can_be_placed_again_and_then_not_be_stopped(kind):
    def then(plan, runs, _):
        plan.stop(runs)
        assert plan.place(runs)
        with pytest.raises(InvalidPlanError, match="the plan places job runs and stops it"):
            plan.stop(runs)

    assert held(asked_at_5(kind, then)) == {"runs": 4}


@pytest.mark.parametrize("kind", ["all that shall run", "changes", "a tenant's"])
def test_only_the_latest_start_can_be_withdrawn_and_no_job_that_goes_on(kind):
    def then(plan, runs, waits):
        assert plan.keep(runs)
        with pytest.raises(PolicyError, match="job runs was not placed last"):
            plan.withdraw(runs)
        assert not plan.place(waits)
        with pytest.raises(PolicyError, match="job waits was not placed last"):
            plan.withdraw(waits)

    assert held(asked_at_5(kind, then)) == {"runs": 4}


@pytest.mark.parametrize("kind", ["all that shall run", "changes", "a tenant's"])
def test_what_was_withdrawn_can_be_placed_again(kind):
    def then(plan, runs, waits):
        plan.stop(runs)
        assert plan.place(waits)
        plan.withdraw(waits)
        with pytest.raises(PolicyError, match="job waits was not placed last"):
            plan.withdraw(waits)
        assert plan.place(waits)

    assert held(asked_at_5(kind, then)) == {"waits": 4}


# --- declarations ---------------------------------------------------------------------------------


class Curious(DecidePolicy[Params]):
    """Uses what it has not declared."""

    name = "curious"

    def __init__(self, decide):
        super().__init__()
        self._decide = decide

    def decide(self, view):
        return self._decide(view)


def test_what_was_not_declared_is_named_with_its_declaration():
    def decide(view):
        plan = view.plan()
        assert not hasattr(plan, "earliest")
        plan.displace(view.jobs[0], ())

    with pytest.raises(PolicyError, match=r"`plan\.displace` .* `plan_type = DisplacingPlan`"):
        engine(Curious(decide), [job("a", 1, 1)], (1, 1)).run()


def test_a_plan_of_an_undeclared_kind_is_refused():
    with pytest.raises(PolicyError, match="set `plan_type = ReservingPlan`"):
        engine(Curious(lambda view: view.plan(ReservingPlan)), [job("a", 1, 1)], (1, 1)).run()


def test_a_plan_is_what_was_declared_and_no_more():
    seen = []

    class Both(DisplacingPlan, EligibilityPlan):
        def helper(self):
            return self.nodes

    class Declared(Curious):
        plan_type = Both

    def decide(view):
        plan = view.plan(Both)
        seen.append([kind for kind in CAPABILITIES if isinstance(plan, kind)])
        assert isinstance(plan, Both)
        assert plan.helper() == 1
        plan.fill(view.jobs)
        return plan

    engine(Declared(decide), [job("a", 1, 1)], (1, 1)).run()
    assert seen[0] == [EligibilityPlan, DisplacingPlan]


def test_a_plan_has_no_other_attributes():
    plan = Plan(0, 0.0, {})
    with pytest.raises(AttributeError, match="a plan has no 'palce'"):
        plan.palce  # noqa: B018


# --- other sizes ----------------------------------------------------------------------------------


def test_another_size_has_the_tasks_of_the_request():
    """Two GPUs and one CPU each, every task on a node of its own."""
    tasks = TaskGroup("worker", 2, 2, cpus=1.0, min_count=1, max_count=4)
    spec = JobSpec("apart", 0.0, Request((tasks,), apart=True)), Behaviour(99)

    def decide(plan, jobs):
        assert plan.resize(jobs["apart"], 6)

    made = played(decide, [spec], (4, 4), placement="consolidate")
    assert [amount for _, amount in made.jobs[0].allocation.slices] == [2, 2, 2]
    request = spec[0].request.resized(6)
    assert request.apart
    assert request.gang
    assert [(group.count, group.gpus, group.cpus) for group in request.groups] == [(3, 2, 1.0)]


@pytest.mark.parametrize(
    ("gpus", "counts"), [(3, [1, 1]), (5, [2, 1]), (7, [3, 1]), (8, [3, 2]), (10, [3, 4])]
)
def test_the_first_groups_grow_first(gpus, counts):
    groups = (
        TaskGroup("big", 1, 2, min_count=1, max_count=3),
        TaskGroup("small", 1, 1, min_count=1, max_count=4),
        TaskGroup("server", 2, 0, cpus=3.0),
    )
    request = Request(groups).resized(gpus)
    assert [group.count for group in request.groups] == [*counts, 2]


def test_what_tasks_do_not_add_up_to_is_a_rest():
    groups = (TaskGroup("big", 1, 4, min_count=1, max_count=2),)
    assert sum(g.count * g.gpus for g in Request(groups).resized(5.5).groups) == 5.5
