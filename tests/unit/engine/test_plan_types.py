"""`place_on`: jobs on GPUs of one type, and moves between types."""

import pytest

from decisions import Scripted, engine, everybody, job, rows
from rota.core.errors import KnowledgeError, PolicyError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.knowledge import Knowledge
from rota.core.log import Record
from rota.core.policy import DecidePolicy, Params
from rota.core.topology import NodeSpec
from rota.engine.invariants import Invariants

MIXED = [
    NodeSpec("a", 2, "v100"),
    NodeSpec("b", 2, "k80"),
    NodeSpec("c", 2, "k80"),
]
BOTH = pytest.mark.parametrize("placement", ["count", "consolidate"])


def held(made):
    """The GPU types of each running job."""
    vertices = made.cluster.topology.vertices
    return {
        j.id: {vertices[vertex].gpu_type for vertex in j.allocation.vertices}
        for j in everybody(made)
        if j.running
    }


def decide_once(decide, jobs, *, nodes=MIXED, placement="count", before=None):
    """All jobs are there at 0 s; `before` places some of them, `decide` says what is at 5 s."""
    calls = []

    def script(view, plan):
        by_name = {j.id: j for j in view.jobs}
        calls.append(view.now_s)
        (decide if view.now_s >= 5 else before or decide)(plan, by_name)
        if view.now_s < 5:
            plan.wake_at(5)

    made = engine(Scripted(script), jobs, nodes, placement=placement)
    made.checker = Invariants()
    made.run(until_s=5)
    assert calls
    return made


@BOTH
def test_a_waiting_job_starts_on_the_type_that_is_asked_for(placement):
    def decide(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="k80")
        assert plan.place_on(by_name["two"], gpu_type="v100")
        assert plan.place_on(by_name["one"], gpu_type="k80")  # again: it has its place
        assert not plan.place_on(by_name["one"], gpu_type="v100")

    made = decide_once(decide, [job("one", 1, 99), job("two", 2, 99)], placement=placement)
    assert held(made) == {"one": {"k80"}, "two": {"v100"}}


@BOTH
def test_a_running_job_moves_to_the_type_that_is_asked_for(placement):
    def before(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="k80")

    def decide(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="v100")

    made = decide_once(decide, [job("one", 2, 99)], before=before, placement=placement)
    assert held(made) == {"one": {"v100"}}
    assert [time_s for time_s, *_ in rows(made, Record.MOVE)] == [5]
    assert everybody(made)[0].migrations == 1


@BOTH
def test_a_running_job_of_that_type_stays_where_it_is(placement):
    def decide(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="k80")

    made = decide_once(decide, [job("one", 2, 99)], placement=placement)
    assert held(made) == {"one": {"k80"}}
    assert rows(made, Record.MOVE) == []


@BOTH
def test_jobs_exchange_their_types(placement):
    def before(plan, by_name):
        assert plan.place_on(by_name["fast"], gpu_type="v100")
        assert plan.place_on(by_name["slow"], gpu_type="k80")
        assert plan.place_on(by_name["other"], gpu_type="k80")

    def decide(plan, by_name):
        assert plan.place_on(by_name["slow"], gpu_type="v100")
        assert plan.place_on(by_name["fast"], gpu_type="k80")
        assert plan.place_on(by_name["other"], gpu_type="k80")

    jobs = [job("fast", 2, 99), job("slow", 2, 99), job("other", 2, 99)]
    made = decide_once(decide, jobs, before=before, placement=placement)
    assert held(made) == {"fast": {"k80"}, "slow": {"v100"}, "other": {"k80"}}
    assert len(rows(made, Record.STOP)) == 0


@BOTH
def test_a_job_that_finds_no_room_there_goes_on_if_it_is_placed_as_it_is(placement):
    def before(plan, by_name):
        assert plan.place_on(by_name["holds"], gpu_type="v100")
        assert plan.place_on(by_name["wants"], gpu_type="k80")

    def decide(plan, by_name):
        assert plan.place(by_name["holds"])
        assert not plan.place_on(by_name["wants"], gpu_type="v100")
        assert plan.place(by_name["wants"])
        assert not plan.place_on(by_name["late"], gpu_type="v100")
        assert plan.place_on(by_name["late"], gpu_type="k80")

    jobs = [job("holds", 2, 99), job("wants", 2, 99), job("late", 2, 99)]
    made = decide_once(decide, jobs, before=before, placement=placement)
    assert held(made) == {"holds": {"v100"}, "wants": {"k80"}, "late": {"k80"}}
    assert rows(made, Record.MOVE) == []


@BOTH
def test_only_jobs_on_that_type_are_displaced(placement):
    def before(plan, by_name):
        assert plan.place_on(by_name["fast"], gpu_type="v100")
        assert plan.place_on(by_name["slow"], gpu_type="k80")

    def decide(plan, by_name):
        assert plan.place_on(by_name["late"], gpu_type="v100")
        plan.fill([by_name["slow"]])

    jobs = [job("fast", 2, 99), job("slow", 2, 99), job("late", 1, 99)]
    made = decide_once(decide, jobs, before=before, placement=placement)
    assert held(made) == {"late": {"v100"}, "slow": {"k80"}}


@BOTH
def test_a_move_to_another_type_can_be_withdrawn(placement):
    def before(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="k80")

    def decide(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="v100")
        plan.withdraw(by_name["one"])
        assert plan.place_on(by_name["two"], gpu_type="v100")
        assert plan.place(by_name["one"])

    jobs = [job("one", 2, 99), job("two", 2, 99)]
    made = decide_once(decide, jobs, before=before, placement=placement)
    assert held(made) == {"one": {"k80"}, "two": {"v100"}}
    assert rows(made, Record.MOVE) == []


def test_number_of_nodes_and_size_hold_on_the_type():
    def before(plan, by_name):
        assert not plan.place_on(by_name["one"], gpu_type="k80", gpus=4, max_nodes=1)
        assert plan.place_on(by_name["one"], gpu_type="k80", gpus=4, max_nodes=2)

    def decide(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="k80")  # with as many as it has

    one = (JobSpec("one", 0.0, Request.of(2, min_gpus=1, max_gpus=4)), Behaviour(99))
    made = decide_once(decide, [one], before=before, placement="consolidate")
    assert held(made) == {"one": {"k80"}}
    assert everybody(made)[0].held_gpus == 4


@BOTH
def test_a_job_gets_no_type_that_it_does_not_accept(placement):
    def decide(plan, by_name):
        assert not plan.place_on(by_name["one"], gpu_type="v100")
        assert plan.place_on(by_name["one"], gpu_type="k80")

    spec = JobSpec("one", 0.0, Request.of(1, gpu_types=("k80",)))
    made = decide_once(decide, [(spec, Behaviour(99))], placement=placement)
    assert held(made) == {"one": {"k80"}}


def test_an_unknown_type_is_an_error_of_the_policy():
    def decide(plan, by_name):
        plan.place_on(by_name["one"], gpu_type="a100")

    with pytest.raises(PolicyError, match=r"no GPUs of type 'a100', only 'v100', 'k80'"):
        decide_once(decide, [job("one", 1, 99)])


@BOTH
def test_a_cluster_of_one_type_without_a_name(placement):
    def decide(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="")
        assert not plan.place_on(by_name["two"], gpu_type="")

    jobs = [job("one", 3, 99), job("two", 2, 99)]
    made = decide_once(decide, jobs, nodes=(1, 4), placement=placement)
    assert held(made) == {"one": {""}}
    assert rows(made, Record.MOVE) == []


@BOTH
def test_gpus_without_a_name_are_a_type_of_their_own(placement):
    def decide(plan, by_name):
        assert plan.place_on(by_name["one"], gpu_type="")
        assert not plan.place_on(by_name["two"], gpu_type="")

    nodes = [NodeSpec("a", 4, "v100"), NodeSpec("b", 1)]
    jobs = [job("one", 1, 99), job("two", 1, 99)]
    made = decide_once(decide, jobs, nodes=nodes, placement=placement)
    assert held(made) == {"one": {""}}


# --- what a view and a job tell of types ----------------------------------------------------------


def test_the_view_counts_gpus_that_are_up_by_type():
    seen = []

    def script(view, plan):
        seen.append((view.now_s, dict(view.up_by_type)))
        plan.fill(view.jobs)

    made = engine(
        Scripted(script), [job("one", 1, 99)], MIXED,
        outages=[(3, NODE_DOWN, 1), (7, NODE_UP, 1)],
    )  # fmt: skip
    made.run(until_s=10)
    assert seen == [
        (0, {"v100": 2, "k80": 4}),
        (3, {"v100": 2, "k80": 2}),
        (7, {"v100": 2, "k80": 4}),
    ]


class Asks(DecidePolicy[Params]):
    """Remembers the speeds of every job."""

    name = "asks"
    knowledge = Knowledge.SPEEDS

    def __init__(self):
        super().__init__()
        self.seen = {}

    def decide(self, view):
        plan = view.plan()
        for each in view.jobs:
            self.seen[each.id] = [each.speed_on(kind) for kind in view.topology.types]
        plan.fill(view.jobs)
        return plan


def test_speeds_are_those_of_the_job_and_0_where_it_may_not_run():
    asks = Asks()
    jobs = [
        job("plain", 1, 9),
        (JobSpec("own", 0.0, Request.of(1)), Behaviour(9, speeds={"k80": 0.25})),
        (JobSpec("picky", 0.0, Request.of(1, gpu_types=("k80",))), Behaviour(9)),
    ]
    engine(asks, jobs, MIXED).run()
    assert asks.seen == {"plain": [1.0, 1.0], "own": [1.0, 0.25], "picky": [0.0, 1.0]}


def test_speeds_must_be_declared():
    asks = Asks()
    asks.knowledge = Knowledge.REMAINING_WORK
    with pytest.raises(KnowledgeError, match=r"'speed_on' without declaring Knowledge\.SPEEDS"):
        engine(asks, [job("one", 1, 9)], MIXED).run()
    assert Knowledge.SPEEDS.describe() == "speeds"
