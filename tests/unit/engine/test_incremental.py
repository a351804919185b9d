"""The third door: what a policy hears, when, and what its plans of changes do."""

import msgspec
import pytest

from decisions import WholePlan, engine, everybody, job, rows, run
from rota.core.errors import InvalidPlanError, OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.log import Record
from rota.core.plan import ExplicitPlan
from rota.core.policy import IncrementalPolicy, Params
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.snapshot import freeze, restore
from rota.engine.source import WorkloadSource
from rota.models.costs import Custom, FixedParams
from rota.models.rates import Uniform
from rota.placement.count import count
from rota.policies.admission.accept_all import AcceptAll
from rota.policies.admission.quota import Quota, QuotaParams
from rota.policies.fifo import Fifo
from rota.sim.cluster import SimCluster


class Recorder(IncrementalPolicy[Params]):
    """Writes down what it hears; starts what fits in order unless it is told otherwise."""

    name = "recorder"
    plan_type = WholePlan

    def __init__(self, decide=None):
        super().__init__()
        self.heard = []
        self.queue = {}
        self._decide = decide

    def hear(self, what, job, now_s):
        self.heard.append((now_s, what, job.id))

    def submitted(self, job, now_s):
        self.hear("submitted", job, now_s)
        self.queue[job.index] = job

    def started(self, job, now_s):
        self.hear("started", job, now_s)
        del self.queue[job.index]

    def changed(self, job, now_s):
        self.hear("changed", job, now_s)

    def ended(self, job, now_s):
        self.hear("ended", job, now_s)
        self.queue.pop(job.index, None)

    def decide(self, view):
        plan = view.plan(WholePlan)
        if self._decide is not None:
            self._decide(view, plan, {job.id: job for job in view.jobs})
        else:
            plan.fill(sorted(self.queue.values(), key=lambda job: job.index))
        return plan


def by_name(policy, name):
    return [(time_s, what) for time_s, what, who in policy.heard if who == name]


def test_a_life():
    policy = Recorder()
    made = run(policy, [job("a", 1, 5), job("b", 1, 5, at=1)], (1, 1))
    assert by_name(policy, "a") == [(0, "submitted"), (0, "started"), (5, "ended")]
    assert by_name(policy, "b") == [(1, "submitted"), (5, "started"), (10, "ended")]
    assert made.jobs[1].end_s == 10


def test_a_job_that_leaves_the_queue_has_ended():
    policy = Recorder()
    made = engine(policy, [job("a", 1, 9), job("b", 1, 9, at=1)], (1, 1))
    made.run(until_s=2)
    made.cancel(made.jobs[1], None, 2.0)
    made.run()
    assert by_name(policy, "b") == [(1, "submitted"), (2, "ended")]


def test_who_is_not_named_goes_on_and_nobody_is_displaced():
    def decide(view, plan, jobs):
        if view.now_s == 3:
            assert not plan.place(jobs["new"])
            assert plan.keep(jobs["old"])  # it does so anyway
        elif view.now_s < 3 and "old" in jobs and not jobs["old"].running:
            plan.place(jobs["old"])

    policy = Recorder(decide)
    made = engine(policy, [job("old", 1, 9), job("new", 1, 1, at=3)], (1, 1))
    made.checker = Invariants()
    made.run(until_s=4)
    assert [j.id for j in everybody(made) if j.running] == ["old"]
    assert not rows(made, Record.STOP)


def swapped(view, plan, jobs):
    """At 3 s the running job makes room for the other one."""
    if view.now_s == 3 and jobs["old"].running:
        plan.stop(jobs["old"], why="enough", because_of=jobs["new"])
        assert plan.place(jobs["new"])
    elif not any(j.running for j in view.jobs) and view.waiting:
        plan.place(view.waiting[0])


def test_a_stopped_job_returns_to_the_queue():
    policy = Recorder(swapped)
    made = engine(policy, [job("old", 1, 9), job("new", 1, 2, at=3)], (1, 1))
    made.checker = Invariants()
    made.run()
    assert by_name(policy, "old") == [
        (0, "submitted"), (0, "started"), (3, "ended"), (3, "submitted"), (5, "started"),
        (11, "ended"),
    ]  # fmt: skip


def costly(policy, jobs, *, start_s=0.0, stop_s=0.0, admission=None, nodes=(1, 1)):
    topology = Topology.uniform(*nodes)
    return Engine(
        SimCluster(
            topology, Custom(FixedParams(start_s=start_s, stop_s=stop_s)), Uniform(topology)
        ),
        compose(policy, count(topology), admission or AcceptAll()),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
        checker=Invariants(),
    )


def test_a_stop_that_takes_time_hides_the_job_until_then():
    policy = Recorder(swapped)
    costly(policy, [job("old", 1, 9), job("new", 1, 2, at=3)], stop_s=4.0).run()
    assert by_name(policy, "old")[2:4] == [(3, "ended"), (7, "submitted")]


def test_the_beginning_of_progress_is_a_change():
    policy = Recorder()
    costly(policy, [job("a", 1, 9)], start_s=2.0).run()
    assert by_name(policy, "a") == [
        (0, "submitted"), (0, "started"), (2, "changed"), (11, "ended"),
    ]  # fmt: skip


def test_another_size_is_a_change():
    def decide(view, plan, jobs):
        if view.now_s == 0:
            assert plan.place(jobs["a"], gpus=1)
        elif view.now_s == 1:
            assert plan.resize(jobs["a"], 2)

    policy = Recorder(decide)
    elastic = JobSpec("a", 0.0, Request.of(1, min_gpus=1, max_gpus=2)), Behaviour(9)
    made = engine(policy, [elastic, job("b", 1, 1, at=1)], (1, 2))
    made.checker = Invariants()
    made.run(until_s=1)
    assert by_name(policy, "a")[:3] == [(0, "submitted"), (0, "started"), (1, "changed")]
    assert made.jobs[0].held_gpus == 2


def test_held_jobs_are_heard_of_when_they_enter():
    policy = Recorder()
    jobs = [job(name, 1, 5, at=at, tenant="t") for at, name in enumerate("ab")]
    costly(policy, jobs, admission=Quota(QuotaParams(default=1)), nodes=(1, 4)).run()
    assert by_name(policy, "b")[0] == (5, "submitted")


def test_evicted_jobs_wait_again():
    policy = Recorder()
    run(policy, [job("a", 1, 9)], (1, 1), outages=[(2.0, NODE_DOWN, 0), (4.0, NODE_UP, 0)])
    assert by_name(policy, "a")[:5] == [
        (0, "submitted"), (0, "started"), (2, "ended"), (2, "submitted"), (4, "started"),
    ]  # fmt: skip


def test_after_a_restart_it_hears_of_all_jobs_in_order():
    jobs = [job("a", 1, 9), job("b", 1, 9, at=1), job("c", 2, 9, at=2), job("d", 1, 9, at=2)]
    made = engine(Recorder(), jobs, (1, 2))
    made.run(until_s=3)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(freeze(made)))
    policy = Recorder()
    again = engine(policy, jobs, (1, 2))
    restore(again, state)
    assert [(what, who) for _, what, who in policy.heard] == [
        ("submitted", "a"), ("started", "a"), ("submitted", "b"), ("started", "b"),
        ("submitted", "c"), ("submitted", "d"),
    ]  # fmt: skip
    again.run()
    made.run()
    assert again.log.rows == made.log.rows


def test_a_successor_hears_of_all_jobs():
    jobs = [job("a", 1, 9), job("b", 1, 9, at=1), job("c", 2, 9, at=2)]
    made = engine(Fifo(), jobs, (1, 2))
    made.run(until_s=3)
    policy = Recorder()
    made.hand_over(compose(policy, count(made.cluster.topology), AcceptAll()))
    made.run()
    assert [(what, who) for _, what, who in policy.heard][:5] == [
        ("submitted", "a"), ("started", "a"), ("submitted", "b"), ("started", "b"),
        ("submitted", "c"),
    ]  # fmt: skip
    assert all(j.terminal for j in made.jobs.values())


def test_victims_can_be_chosen():
    def decide(view, plan, jobs):
        if view.now_s == 3:
            assert plan.displace(jobs["new"], [jobs["b"], jobs["a"]]) == [jobs["b"]]
            plan.remark(jobs["b"], "the last one goes")
        else:
            plan.fill(view.waiting)

    policy = Recorder(decide)
    made = engine(policy, [job("a", 1, 9), job("b", 1, 9), job("new", 1, 5, at=3)], (1, 2))
    made.checker = Invariants()
    made.run(until_s=3)
    assert by_name(policy, "b")[-2:] == [(3, "ended"), (3, "submitted")]
    assert [j.id for j in everybody(made) if j.running] == ["a", "new"]


def test_a_start_that_is_withdrawn_was_never_heard_of():
    def decide(view, plan, jobs):
        assert plan.place(jobs["a"])
        plan.withdraw(jobs["a"])

    policy = Recorder(decide)
    made = engine(policy, [job("a", 1, 9)], (1, 1))
    made.run(until_s=1)
    assert policy.heard == [(0, "submitted", "a")]


def test_a_job_that_has_left_cannot_be_placed():
    def decide(view, plan, jobs):
        if view.now_s < 5:
            plan.fill(view.waiting)
        else:
            plan.place(made.jobs[0])

    made = engine(Recorder(decide), [job("a", 1, 5)], (1, 1))
    with pytest.raises(InvalidPlanError, match="policy 'recorder' at 5 s: job a cannot be placed"):
        made.run()


def test_explicit_policies_are_no_incremental_ones():
    class Explicit(Recorder):
        plan_type = ExplicitPlan

    with pytest.raises(OptionError, match="need a placement"):
        engine(Explicit(), [job("a", 1, 5)], (1, 1))
