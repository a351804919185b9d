"""The questions that a plan answers: `earliest`, `withdraw`, `place_on(max_nodes=)`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions import Scripted, engine, everybody, job
from rota.core.errors import PolicyError
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.plan import ExplicitPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.topology import NodeSpec
from rota.placement.best_fit import BestFit


def at_the_end(decide, jobs, nodes, **options):
    """Serve in order; when the last job has arrived, let `decide` say what happens."""
    asked = []

    def script(view, plan):
        plan.fill(view.running if asked or len(view.jobs) < len(jobs) else ())
        if len(view.jobs) < len(jobs):
            plan.fill(view.waiting)
        elif not asked:
            asked.append(True)
            decide(view, plan, {j.id: j for j in view.jobs})

    made = engine(Scripted(script), jobs, nodes, **options)
    made.run(until_s=max(spec.submit_s for spec, _ in jobs))
    assert asked
    return {j.id for j in everybody(made) if j.running}


@pytest.mark.parametrize(
    ("placement", "expected"), [("count", [1, 6, 6, 8, INF]), ("consolidate", [1, 6, 8, 8, INF])]
)
def test_earliest_lets_jobs_go_in_the_order_of_their_times(placement, expected):
    jobs = [job("left", 3, 99), job("right", 3, 99), job("small", 1, 99), *(
        job(f"w{gpus}", gpus, 99, at=1) for gpus in (1, 2, 4, 7, 8)
    )]  # fmt: skip
    answers = []

    def decide(view, plan, by_name):
        plan.fill(view.running)
        releases = [(8, by_name["right"]), (6, by_name["left"])]
        answers.extend(plan.earliest(by_name[f"w{gpus}"], releases) for gpus in (1, 2, 4, 7, 8))
        assert plan.earliest(by_name["w8"], [*releases, (9, by_name["small"])]) == 9

    running = at_the_end(decide, jobs, (2, 4), placement=placement)
    assert running == {"left", "right", "small"}
    assert answers == expected


def test_jobs_that_the_draft_has_placed_may_leave_too():
    jobs = [job("old", 2, 99), job("new", 2, 99, at=1), job("head", 4, 99, at=1)]

    def decide(view, plan, by_name):
        plan.fill(view.running)
        assert plan.place(by_name["new"])
        releases = [(7, by_name["old"]), (5, by_name["new"])]
        assert plan.earliest(by_name["head"], releases) == 7
        assert plan.earliest(by_name["head"], releases[:1]) == INF
        assert not plan.place(by_name["head"])

    for placement in ("count", "consolidate"):
        assert at_the_end(decide, jobs, (1, 4), placement=placement) == {"old", "new"}


def test_a_displaced_job_leaves_nothing_behind():
    jobs = [job("old", 4, 99), job("new", 3, 99, at=1), job("head", 2, 99, at=1)]

    def decide(view, plan, by_name):
        assert plan.place(by_name["new"])
        assert plan.earliest(by_name["head"], [(5, by_name["old"])]) == INF

    assert at_the_end(decide, jobs, (1, 4)) == {"new"}


def test_a_withdrawn_job_leaves_everything_as_it_was():
    jobs = [job("low", 3, 99), job("high", 4, 99, at=1), job("small", 2, 99, at=1)]

    def decide(view, plan, by_name):
        low, high, small = by_name["low"], by_name["high"], by_name["small"]
        assert plan.place(high)  # displaces
        assert not plan.place(small)
        plan.withdraw(high)
        assert plan.place(small)  # failed only beside the other; displaces too
        plan.withdraw(small)
        assert plan.place(low)
        assert not plan.place(small)
        with pytest.raises(PolicyError, match="not placed last"):
            plan.withdraw(small)

    for placement in ("count", "consolidate"):
        assert at_the_end(decide, jobs, (1, 4), placement=placement) == {"low"}


def test_a_start_can_be_given_up_after_others_were_placed():
    jobs = [job("low", 3, 99), job("high", 2, 99, at=1), job("small", 1, 99, at=1)]

    def decide(view, plan, by_name):
        low, high, small = by_name["low"], by_name["high"], by_name["small"]
        assert plan.displace(high, [low]) == [low]
        assert plan.displace(small, ()) == []  # beside it
        assert plan.displace(low, ()) is None
        plan.give_up(high)
        assert plan.displace(low, ()) == []  # it did not come back by itself
        plan.give_up(low)  # displaced, placed again, and given up
        assert plan.displace(low, ()) == []
        with pytest.raises(PolicyError, match="high cannot be given up"):
            plan.give_up(high)

    for placement in ("count", "consolidate"):
        assert at_the_end(decide, jobs, (1, 4), placement=placement) == {"low", "small"}


def test_a_running_job_that_keeps_its_place_cannot_be_given_up():
    jobs = [job("old", 2, 99), job("new", 1, 99, at=1)]

    def decide(view, plan, by_name):
        assert plan.place(by_name["old"])
        with pytest.raises(PolicyError, match="old cannot be given up"):
            plan.give_up(by_name["old"])

    assert at_the_end(decide, jobs, (1, 4)) == {"old"}


def test_a_resize_can_be_withdrawn():
    elastic = JobSpec("grows", 0.0, Request.of(1, min_gpus=1, max_gpus=2)), Behaviour(99)
    jobs = [elastic, job("stays", 1, 99), job("waits", 3, 99, at=1)]

    def decide(view, plan, by_name):
        grows, stays, waits = by_name["grows"], by_name["stays"], by_name["waits"]
        assert plan.place(grows, gpus=2)
        plan.withdraw(grows)
        assert plan.place(waits)  # displaces `stays`, which started last
        assert plan.place(grows)
        assert not plan.place(stays)

    assert at_the_end(decide, jobs, (1, 4)) == {"grows", "waits"}


def test_a_move_can_be_withdrawn():
    jobs = [job("right", 2, 99), job("left", 1, 99), job("waits", 3, 99, at=1)]

    def decide(view, plan, by_name):
        right, left, waits = by_name["right"], by_name["left"], by_name["waits"]
        assert plan.place(waits)  # on the first node, from which it displaces `left`
        assert plan.place(left)  # moves to the second one, from which it displaces `right`
        plan.withdraw(left)
        assert plan.place(right)
        assert not plan.place(left)

    nodes = [NodeSpec("n0", 3), NodeSpec("n1", 2)]
    assert at_the_end(decide, jobs, nodes, placement="consolidate") == {"right", "waits"}


def test_a_choice_of_too_many_nodes_is_refused_and_its_victims_stay():
    jobs = [
        job("left", 3, 99),
        job("right", 3, 99),
        job("two", 2, 99, at=1),
        job("six", 6, 9, at=1),
    ]

    def decide(view, plan, by_name):
        assert not plan.place_on(by_name["six"], max_nodes=1)  # would displace both
        assert plan.place(by_name["left"])
        assert plan.place(by_name["right"])
        assert not plan.place_on(by_name["two"], max_nodes=1)
        assert plan.place_on(by_name["two"], max_nodes=2)

    assert at_the_end(decide, jobs, (2, 4), placement=BestFit) == {"left", "right", "two"}


def test_a_pool_has_no_nodes():
    jobs = [job("four", 4, 99), job("eight", 8, 9, at=1)]

    def decide(view, plan, by_name):
        assert plan.place_on(by_name["eight"], max_nodes=1)

    assert at_the_end(decide, jobs, (4, 2), placement="count") == {"eight"}


class Explicit(DecidePolicy[Params]):
    name = "explicit"
    plan_type = ExplicitPlan

    def decide(self, view):
        plan = view.plan()
        for one in view.jobs:
            with pytest.raises(PolicyError, match="part of ReservingPlan"):
                plan.earliest(one, ())
            if one.running:
                plan.place(one)
                plan.withdraw(one)
        return plan


def test_an_explicit_policy_keeps_its_own_books():
    made = engine(Explicit(), [job("one", 1, 1)], (1, 1))
    made.run()
    assert made.decisions == 1


@pytest.mark.parametrize("placement", ["count", "consolidate", BestFit])
@given(random=st.randoms(), sizes=st.lists(st.integers(1, 8), min_size=1, max_size=12))
def test_what_was_tried_and_withdrawn_leaves_no_trace(placement, random, sizes):
    """A policy that asks and tries at random gets the log of one that does not."""
    jobs = [job(f"j{i}", gpus, 3 + i % 4, at=i) for i, gpus in enumerate(sizes)]

    def plainly(view, plan):
        plan.fill(view.jobs[::-1])

    def hesitantly(view, plan):
        for one in view.jobs[::-1]:
            for other in random.sample(view.waiting, len(view.waiting)):
                placed = plan._placed.copy()
                if (
                    plan.place_on(other, max_nodes=random.choice([None, 1]))
                    and plan._placed != placed
                ):
                    plan.withdraw(other)
                plan.earliest(other, [(random.random(), running) for running in view.running])
            plan.place(one)

    options = {"placement": placement}
    logs = []
    for script in (plainly, hesitantly):
        made = engine(Scripted(script), jobs, (2, 4), **options)
        made.run()
        logs.append(made.log.rows)
    assert logs[0] == logs[1]
