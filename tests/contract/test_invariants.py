"""Every invariant, broken on purpose in the middle of a run."""

import pytest

import decisions
from rota.core.allocation import Allocation
from rota.core.errors import InvariantError, PolicyError
from rota.core.jobs import DONE, WAITING, Behaviour, JobSpec, Request
from rota.core.knowledge import Knowledge
from rota.core.log import Record
from rota.core.policy import Params, PriorityPolicy
from rota.core.reasons import Reason
from rota.core.registry import POLICIES, load
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine import invariants
from rota.engine.blame import Blamed
from rota.engine.general import GeneralScheduler
from rota.placement.count import count
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, Item, Outage, Scenario, Solo, wire

TWO_RUN_TWO_WAIT = (Item(0, 2, 10), Item(0, 2, 10), Item(1, 1, 5), Item(1, 1, 5), Item(3, 1, 1))


def engine_at(until_s, *, placement="consolidate", costs=None, policy="tiresias", outages=()):
    scenario = Scenario(TWO_RUN_TWO_WAIT, (2, 2), placement, costs or Fixed(), outages)
    engine = scenario.engine(load(POLICIES, policy)())
    engine.run(until_s)
    return engine


def broken(engine, match, error=InvariantError):
    with pytest.raises(error, match=match):
        engine.run()


def test_an_honest_run_passes():
    engine = engine_at(2)
    engine.run()
    assert engine.checker.batches > 4


def test_a_job_that_vanishes():
    engine = engine_at(2)
    del engine.view.active[2]
    broken(engine, r"at 3 s jobs \[2\] are neither over nor present")


def test_a_job_that_changes_phase_without_a_row():
    engine = engine_at(2)
    engine.jobs[0].phase = WAITING
    broken(engine, "job j0 at 3 s is waiting, but the log says running")


def test_progress_that_falls():
    engine = engine_at(2)
    engine.jobs[0].true_left += 4
    broken(engine, "job j0 at 3 s: -1 of its work .* from the log it is 3")


def test_service_that_falls():
    engine = engine_at(2)
    engine.jobs[0].service -= 1
    broken(engine, "job j0 at 3 s: 5 GPU-s of service, but the log says 6")


def test_a_rate_that_changes_without_a_row():
    engine = engine_at(2)
    engine.jobs[0].true_rate = 0.5
    broken(engine, "job j0 at 3 s")


def test_time_that_goes_back():
    engine = engine_at(2)
    engine.checker._now_s = 5.0
    broken(engine, "time went back from 5 s to 3 s")


def test_an_event_before_its_time():
    engine = engine_at(2)
    with pytest.raises(InvariantError, match="too early"):
        engine.checker.after(engine, [(99.0, 0, 1, engine.jobs[0], 0)], None)


def test_a_device_given_away_twice():
    engine = engine_at(2)
    one, other = engine.jobs[0], engine.jobs[1]
    other.allocation = one.allocation
    broken(engine, "node n0 at 3 s: 4 gpu are given away, and 2 are there; jobs j0, j1")


def test_part_of_a_gang():
    engine = engine_at(2)
    job = engine.jobs[0]
    job.allocation = Allocation([(job.allocation.vertices[0], 1)])
    job.held_gpus = 1
    broken(engine, "job j0 at 3 s")


def test_a_job_on_a_dead_node():
    engine = engine_at(2)
    engine.cluster.topology.nodes[0].up = False
    broken(engine, "job j0 at 3 s is on n0, which is down")


def test_a_start_onto_slices_that_are_not_left():
    engine = engine_at(2, costs=Fixed(stop_s=4), policy="srtf")
    engine.executor.physical = None
    engine.cluster.heap = [
        (2.5, *event[1:]) if event[1] == 2 else event for event in engine.cluster.heap
    ]
    broken(
        engine, "job j4 was launched at 3 s on node n[01]: 3 gpu are occupied then, and 2 are there"
    )


def test_a_placement_with_wrong_books():
    engine = engine_at(2)
    engine.scheduler.placement.free += 1
    broken(engine, "at 3 s the placement believes that 1 GPUs are free: 4 may be used, 4 are given")


def test_a_view_that_is_wrong_about_what_is_up():
    engine = engine_at(2)
    engine.view.up_gpus = 3
    broken(engine, "4 GPUs are up, and the view says 3")


def test_a_job_in_two_places():
    engine = engine_at(2)
    index = engine.scheduler.packer.index
    index.push_running(index.entries[2], 2.0)
    broken(engine, "j2 at 3 s is (in two places: queue and cluster|not in its place)")


def test_a_job_in_no_place():
    engine = engine_at(2)
    index = engine.scheduler.packer.index
    index.drop_waiting(index.entries[3])
    broken(engine, r"Job\(j3, .*\) at 3 s is not in its place: queue")


def test_a_job_that_the_scheduler_remembers_for_ever():
    engine = engine_at(2)
    ghost = engine.jobs[3]
    engine.view.active.pop(3)
    engine.checker._replica.present.pop(3)
    ghost.phase = DONE
    broken(engine, r"the scheduler knows jobs that are gone: \{3\}")


def test_a_scheduler_that_is_wrong_about_who_runs():
    engine = engine_at(2, policy="easy")
    del engine.scheduler.running[0]
    broken(engine, r"wrong about who runs: \[0\]")


def test_a_row_that_cannot_follow():
    engine = engine_at(2)
    engine.log.row(2.0, Record.START, 0, 0, 0, 2.0)
    broken(engine, "log: START of job 0 at 2 s, but it was running")


def test_a_row_about_nobody():
    engine = engine_at(2)
    engine.log.row(2.0, Record.DONE, 77)
    broken(engine, "log: DONE of job 77 at 2 s, which was never submitted")


def test_a_job_that_is_submitted_twice():
    engine = engine_at(2)
    engine.log.row(2.0, Record.SUBMIT, 0)
    broken(engine, "log: job 0 is submitted twice")


def test_rows_out_of_order():
    engine = engine_at(2)
    engine.log.row(0.5, Record.RATE, 0, -1, -1, 1.0)
    broken(engine, "rows must be in order of time")


def test_progress_before_the_start():
    engine = engine_at(2)
    engine.log.row(2.0, Record.STOP, 0)
    engine.log.row(2.0, Record.START, 0, 0, 1, 1.0)
    broken(engine, "a start at 2 s makes progress from 1 s on")


def test_gpu_seconds_that_do_not_add_up():
    engine = engine_at(2)
    engine.checker._held_gpu_s += 1
    broken(engine, "at 3 s jobs have held 13 GPU-s, but useful and overhead are 12 GPU-s")


def test_an_engine_that_stands_still(monkeypatch):
    monkeypatch.setattr(invariants, "STILL", 10)
    engine = engine_at(2)
    for _ in range(10):
        engine.checker.after(engine, [], None)
    with pytest.raises(InvariantError, match="10 batches at 1 s, and nothing happens"):
        engine.checker.after(engine, [], None)


def test_a_repair_in_a_pool_is_no_over_commitment():
    outages = (Outage(2, 0, up=False), Outage(4, 0, up=True))
    engine = engine_at(0, placement="count", costs=Fixed(stop_s=3), policy="srtf", outages=outages)
    engine.run()
    assert not engine.view.active


# --- constraints ----------------------------------------------------------------------------------


def mixed(request, *, pooled=False):
    topology = Topology(
        [
            NodeSpec("a", 2, "v100", cpus=8, mem_gib=64, labels=("fast",)),
            NodeSpec("b", 2, "k80", cpus=8, mem_gib=64),
        ]
    )
    specs = [JobSpec("j0", 0.0, request), JobSpec("j1", 1.0, Request.of(1))]
    workload = Workload(specs, [Behaviour(5), Behaviour(5)])
    place = count(topology) if pooled else None
    cluster = SimCluster(topology, Fixed(), Solo())
    engine = wire(load(POLICIES, "fifo")(), cluster, workload, placement=place)
    engine.run(0)
    return engine, topology


def move(engine, allocation):
    job = engine.jobs[0]
    engine.scheduler.placement.give(job, job.allocation)
    engine.scheduler.placement.hold(job, allocation)
    job.allocation = allocation


def test_the_wrong_type_of_gpu():
    engine, topology = mixed(Request.of(1, gpu_types=("v100",)))
    move(engine, Allocation([(topology.nodes[1].id, 1)]))
    broken(engine, r"job j0 at 1 s is on b: it wants \('v100',\)")


def test_a_label_that_is_missing():
    engine, topology = mixed(Request.of(1, labels=("fast",)))
    move(engine, Allocation([(topology.nodes[1].id, 1)]))
    broken(engine, "job j0 at 1 s is on b, which lacks")


def test_too_many_cpus():
    engine, topology = mixed(Request.of(1, cpus=2))
    node = topology.nodes[0].id
    engine.jobs[0].allocation = Allocation([(node, 1)], [(node, "cpu", 9.0)])
    broken(engine, "node a at 1 s: 9 cpu are given away, and 8 are there")


def test_pools_by_type_are_checked_too():
    engine, topology = mixed(Request.of(2), pooled=True)
    pool = topology.pools[0]
    engine.jobs[0].allocation = Allocation([(pool.id, 3)])
    engine.jobs[0].held_gpus = 3
    broken(engine, "j0 at 1 s")


def test_an_elastic_job_may_have_more_than_it_asked_for_but_not_any_number():
    engine, _ = mixed(Request.of(1, min_gpus=1, max_gpus=2))
    for gpus, fine in ((2, True), (1, True), (3, False)):
        assert engine.jobs[0].shape.request.takes(gpus) is fine


class Drifts(PriorityPolicy[Params]):
    """Its key is the work that is left, and it does not say that this changes."""

    name = "drifts"
    knowledge = Knowledge.REMAINING_WORK

    def key(self, job, now_s):
        return job.remaining_s(now_s) * job.gpus


class Slopes(Drifts):
    """Says it."""

    def slope(self, job):
        return -job.gpus


class Bored(Drifts):
    """The keys of its waiting jobs drift."""

    name = "bored"

    def key(self, job, now_s):
        return job.submit_s if job.running else job.submit_s - 2 * now_s


def keyed(policy):
    engine = Scenario(TWO_RUN_TWO_WAIT, (2, 2), "consolidate", Fixed(), ()).engine(policy)
    engine.checker = invariants.Invariants()
    return engine


def test_the_key_of_a_running_job_that_drifts_without_a_slope():
    rule = r"'drifts' breaks .* at 1 s is queued by 20, .* `key` says 18.* `slope`"
    broken(keyed(Drifts()), rule, PolicyError)


def test_the_key_of_a_waiting_job_that_drifts():
    rule = "'bored' breaks the promise of its keys: .*waiting.* `next_change`"
    broken(keyed(Bored()), rule, PolicyError)


def test_a_key_that_drifts_as_its_slope_says():
    engine = keyed(Slopes())
    engine.run()
    assert engine.checker.batches > 4


def test_a_reason_that_does_not_follow_what_is_free(monkeypatch):
    # At 10 one GPU is free on each node, and j4, which wants 2 on one, waits for a place. j5 takes
    # one of them: from then on j4 waits for GPUs.
    jobs = (Item(0, 1, 30), Item(0, 1, 10), Item(0, 1, 30), Item(0, 1, 10), Item(1, 2, 5))
    scenario = Scenario((*jobs, Item(12, 1, 9)), (2, 2), "consolidate")
    engine = scenario.engine(load(POLICIES, "fifo-skip")())
    engine.run(11.0)
    monkeypatch.setattr(Blamed, "changed", lambda _: ())
    broken(engine, "j4 at 12 s .* fragmentation according to the log, .* makes it capacity")


def test_a_reason_of_its_own_that_is_not_true(monkeypatch):
    # What kind of room is lacking is not for the policy to say.
    def decide(view, plan):
        for job in view.running:
            plan.place(job)
        for job in view.waiting:
            if not plan.place(job):
                plan.explain(job, Reason.FRAGMENTATION)

    def engine():
        jobs = [decisions.job("a", 2, 10), decisions.job("b", 2, 10)]
        made = decisions.engine(decisions.Scripted(decide), jobs, (1, 3))
        made.checker = invariants.Invariants()
        return made

    honest = engine()
    honest.run()
    assert decisions.told(honest, "b") == [(0, Reason.CAPACITY)]
    monkeypatch.setattr(GeneralScheduler, "_lacks", lambda _self, _number, reason: reason)
    broken(engine(), "job b at 0 s asks for 2 GPUs and waits by fragmentation .* it capacity")
