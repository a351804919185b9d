"""Dependencies and tasks: how jobs are made, and what the engine does with them."""

from decisions import engine, everybody, rows, run
from rota.core.jobs import Behaviour, JobSpec, Phase, Request, TaskGroup
from rota.core.knowledge import Knowledge
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.engine.arrivals import Arrivals
from rota.policies.fifo import Fifo


def spec(name, *, at=0.0, after=(), gpus=1, gang=True, group=""):
    return JobSpec(name, at, Request.of(gpus, gang=gang), depends_on=tuple(after), group=group)


def good(name, work=10.0, **options):
    return spec(name, **options), Behaviour(work)


def bad(name, work=10.0, **options):
    return spec(name, **options), Behaviour(2 * work, fails_at=work)


def by_name(made):
    return {job.id: job for job in made.jobs.values()}


def phases(made):
    return {name: Phase(job.phase).name for name, job in by_name(made).items()}


def starts(made):
    return {name: job.first_start_s for name, job in by_name(made).items() if job.started}


# --- making jobs ----------------------------------------------------------------------------------


def test_equal_requests_share_a_shape():
    arrivals = Arrivals(Knowledge.NOTHING, 100)
    one = arrivals.shape(Request((TaskGroup(count=2),)))
    assert arrivals.shape(Request((TaskGroup(count=2),))) is one
    assert arrivals.shape(Request((TaskGroup(count=3),))).number == 1
    assert len(arrivals.shapes) == 2


def test_knowledge_and_belief_reach_every_job():
    arrivals = Arrivals(Knowledge.PROGRESS, 100, lambda index: 1.0 + index, linked=False)
    gang = arrivals.job(2, *good("a"))
    whole = arrivals.job(3, *good("b", gang=False))
    (task,) = arrivals.tasks(whole)
    assert (gang.known, gang.belief) == (4, 3.0)
    assert (whole.known, whole.belief, task.known, task.belief) == (4, 4.0, 4, 4.0)


def test_a_group_knows_its_members():
    arrivals = Arrivals(Knowledge.NOTHING, 100)
    a, b, c = (arrivals.job(i, *good(n, group=n[0])) for i, n in enumerate(("x1", "x2", "y")))
    assert a.group is b.group
    assert (a.group.siblings(a), c.group.members) == ([b], [c])


def test_a_non_gang_job_becomes_its_tasks():
    arrivals = Arrivals(Knowledge.NOTHING, 100)
    request = Request(
        (TaskGroup("ps", 1, 0, cpus=4), TaskGroup("worker", 2, 1)), ("v100",), gang=False
    )
    whole = arrivals.job(7, JobSpec("j", 3.0, request, tenant="t"), Behaviour(5.0))
    tasks = arrivals.tasks(whole)
    assert [(t.id, t.index, t.gpus, t.shape.cpus) for t in tasks] == [
        ("j#0", 100, 0, 4), ("j#1", 101, 1, 0), ("j#2", 102, 1, 0),
    ]  # fmt: skip
    assert (whole.index, whole.gpus, arrivals.next_task) == (7, 2, 103)
    assert all(t.parent is whole and t.group.members == tasks for t in tasks)
    assert {(t.tenant, t.true_work, t.submit_s, t.shape.types) for t in tasks} == {
        ("t", 5.0, 3.0, ("v100",))
    }
    assert tasks[1].shape is tasks[2].shape
    assert tasks[1].spec.request.gang


# --- dependencies ---------------------------------------------------------------------------------


def test_a_job_waits_for_its_dependency_although_there_is_room():
    made = run(Fifo(), [good("a", 10), good("b", 5, after="a"), good("c", 5)], (1, 4))
    assert starts(made) == {"a": 0.0, "b": 10.0, "c": 0.0}
    assert by_name(made)["b"].end_s == 15.0
    assert rows(made, Record.HELD) == [(0.0, 1, -1, -1, Reason.DEPENDENCY)]
    assert rows(made, Record.ADMITTED) == [(10.0, 1, -1, -1, 0.0)]


def test_a_job_waits_for_the_last_of_its_dependencies():
    made = run(Fifo(), [good("a", 10), good("b", 30), good("c", 5, after="ab")], (1, 4))
    assert starts(made)["c"] == 30.0


def test_a_dependency_may_be_submitted_later():
    made = run(Fifo(), [good("b", 5, after="a"), good("a", 10, at=20.0)], (1, 4))
    assert starts(made) == {"a": 20.0, "b": 30.0}


def test_a_dependency_that_is_done_holds_nobody():
    made = run(Fifo(), [good("a", 10), good("b", 5, at=50.0, after="a")], (1, 4))
    assert starts(made)["b"] == 50.0
    assert rows(made, Record.HELD) == []


def test_when_a_dependency_fails_the_whole_chain_is_rejected():
    jobs = [bad("a", 10), good("b", after="a"), good("c", after="b"), good("d")]
    made = run(Fifo(), jobs, (1, 4))
    assert phases(made) == {"a": "FAILED", "b": "REJECTED", "c": "REJECTED", "d": "DONE"}
    assert by_name(made)["c"].end_s == 10.0
    told = [text for text in made.log.texts.values() if "depends" in text]
    assert told == [f"depends on job {name}, which did not succeed" for name in "ab"]
    assert made.view.active == {}


def test_a_job_that_comes_after_its_dependency_failed_is_rejected():
    made = run(Fifo(), [bad("a", 10), good("b", at=50.0, after="a")], (1, 4))
    assert phases(made) == {"a": "FAILED", "b": "REJECTED"}


def test_the_same_dependency_twice_counts_once():
    made = run(Fifo(), [good("a", 10), good("b", 5, after="aa")], (1, 4))
    assert starts(made) == {"a": 0.0, "b": 10.0}


# --- tasks ----------------------------------------------------------------------------------------


def test_tasks_start_as_room_allows_and_the_whole_ends_with_the_last():
    made = run(Fifo(), [good("j", 10, gpus=3, gang=False)], (1, 2))
    assert starts(made) == {"j#0": 0.0, "j#1": 0.0, "j#2": 10.0}
    assert phases(made) == dict.fromkeys(("j", "j#0", "j#1", "j#2"), "DONE")
    assert by_name(made)["j"].end_s == 20.0
    assert [row[0] for row in rows(made, Record.DONE)] == [10.0, 10.0, 20.0, 20.0]
    assert [row[3] for row in rows(made, Record.TASK)] == [0, 0, 0]
    assert [job.id for job in everybody(made)] == ["j#0", "j#1", "j#2"]


def test_a_job_waits_for_all_tasks_of_a_non_gang_job():
    jobs = [good("j", 10, gpus=3, gang=False), good("b", 5, after=["j"])]
    made = run(Fifo(), jobs, (1, 2))
    assert starts(made)["b"] == 20.0


def test_the_tasks_of_a_non_gang_job_wait_for_its_dependency():
    made = run(Fifo(), [good("a", 10), good("j", 5, gpus=2, gang=False, after="a")], (1, 4))
    assert starts(made) == {"a": 0.0, "j#0": 10.0, "j#1": 10.0}


def test_failing_tasks_fail_the_whole_and_reject_who_depends_on_it():
    jobs = [bad("j", 10, gpus=3, gang=False), good("b", after=["j"])]
    made = run(Fifo(), jobs, (1, 2))
    assert (phases(made)["j"], phases(made)["b"]) == ("FAILED", "REJECTED")
    assert (by_name(made)["j"].end_s, by_name(made)["b"].end_s) == (20.0, 20.0)


def test_a_non_gang_job_whose_dependency_fails_is_rejected_as_a_whole():
    made = run(Fifo(), [bad("a", 10), good("j", gpus=2, gang=False, after="a")], (1, 4))
    assert phases(made) == {"a": "FAILED", "j": "REJECTED", "j#0": "REJECTED", "j#1": "REJECTED"}
    assert made.view.active == {}


def test_until_then_the_whole_is_not_over():
    made = engine(Fifo(), [good("j", 10, gpus=3, gang=False)], (1, 2))
    made.run(until_s=15.0)
    assert not by_name(made)["j"].terminal
    assert phases(made)["j#0"] == "DONE"
