"""Rates that change by themselves: in the simulated cluster, the engine, the log and the checks."""

import msgspec
import pytest

from rota.core.changes import Wake
from rota.core.errors import PhaseError
from rota.core.events import JOB_PHASE
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.knowledge import Knowledge
from rota.core.log import WIDTH, Record
from rota.core.policy import DecidePolicy
from rota.core.ports import RatePhase
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine import snapshot
from rota.engine.replica import rows_from
from rota.models.rates import CourseRates, Product, Scaling
from rota.policies.fifo_skip import FifoSkip
from rota.policies.srtf import Srtf
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, Item, Scenario, random_scenario, to_the_end, wire

COURSE = ((10.0, 0.5), (20.0, 2.0))  # 10 s, 20 s, and the rest at twice the rate


class Fills(DecidePolicy):
    """Everybody who fits, and remembers when it was asked."""

    name = "fills"
    knowledge = Knowledge.SCALING | Knowledge.PROGRESS

    def __init__(self):
        super().__init__()
        self.asked = []
        self.watches = None

    def decide(self, view):
        self.asked.append(view.now_s)
        plan = view.plan()
        plan.fill(view.jobs)
        if self.watches is not None and len(self.asked) == 1:
            plan.watch(view.jobs[0], "progress", self.watches)
        return plan


def engine_of(policy, rates=CourseRates, costs=None, course=COURSE, work=40.0):
    topology = Topology.uniform(1, 2)
    cluster = SimCluster(topology, costs or Fixed(), rates(topology))
    specs = [JobSpec("a", 0.0, Request.of(1)), JobSpec("b", 5.0, Request.of(1))]
    truths = [Behaviour(work, course=course), Behaviour(3.0)]
    return wire(policy, cluster, Workload(specs, truths))


def rates_in(log):
    rows = log.rows
    rows = [rows[i : i + WIDTH] for i in range(0, len(rows), WIDTH)]
    return [(row[0], row[5]) for row in rows if row[1] == Record.RATE]


def test_a_job_takes_as_long_as_its_phases():
    engine = to_the_end(engine_of(FifoSkip()))
    assert engine.jobs[0].end_s == 10 + 20 + 10
    assert rates_in(engine.log) == [(10.0, 0.5), (30.0, 2.0)]


def test_phases_wake_nobody_but_those_who_ask():
    policy = Fills()
    to_the_end(engine_of(policy))
    assert policy.asked == [0.0, 5.0, 8.0, 40.0]
    curious = Fills()
    curious.wake = Wake(on=frozenset({JOB_PHASE}), every_s=100.0)
    to_the_end(engine_of(curious))
    assert [at for at in curious.asked if at % 100] == [10.0, 30.0]


def test_levels_of_progress_are_reached_when_the_rate_says():
    policy = Fills()
    policy.watches = 0.375  # 15 of 40: 10 s at 1, 10 s at one half
    to_the_end(engine_of(policy))
    assert 20.0 in policy.asked
    assert 15.0 not in policy.asked  # as it would be without the second phase


def test_what_it_tells_reaches_the_policy():
    class Tells(CourseRates):
        def phase(self, job, allocation, sharers, done, now_s):
            phase = super().phase(job, allocation, sharers, done, now_s)
            return phase._replace(told={"batch": 1 + done, "step_s": 0.25, "grad_var": done})

    engine = to_the_end(engine_of(Fills(), Tells))
    job = engine.jobs[0]
    assert [shape.batch for shape in job.timings] == [1.0, 11.0, 21.0]
    assert job.learning.get("grad_var") == 20.0
    blind = to_the_end(engine_of(FifoSkip(), Tells))
    assert blind.jobs[0].told is None  # nobody may know it


@pytest.mark.parametrize("policy", [FifoSkip, Srtf, Fills])
def test_a_run_is_resumed_within_a_phase(policy):
    whole = to_the_end(engine_of(policy(), costs=Fixed(start_s=3, slow_s=9)))
    part = engine_of(policy(), costs=Fixed(start_s=3, slow_s=9))
    part.run(until_s=17.0)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(part)))
    again = engine_of(policy(), costs=Fixed(start_s=3, slow_s=9))
    snapshot.restore(again, state)
    assert to_the_end(again).jobs[0].end_s == whole.jobs[0].end_s
    assert rows_from(again.log, 0) == rows_from(whole.log, 0)


def test_effects_are_multiplied_and_the_first_that_changes_counts():
    topology = Topology.uniform(1, 2)
    rates = Product([CourseRates(topology), Scaling(topology)])
    engine = engine_of(FifoSkip(), lambda _: rates)
    assert engine.cluster.capabilities.phased
    to_the_end(engine)
    assert engine.jobs[0].end_s == 40.0


def test_a_phase_that_does_not_end_later_than_it_begins_is_refused():
    class Stuck(CourseRates):
        def phase(self, job, allocation, sharers, done, now_s):
            return RatePhase(1.0, until_s=now_s)

    with pytest.raises(PhaseError, match="rates 'course': the phase of job a from 0 s"):
        to_the_end(engine_of(FifoSkip(), Stuck))


def test_an_end_that_meets_the_end_of_its_phase_is_at_that_very_time():
    class Rounds(CourseRates):
        def phase(self, job, allocation, sharers, done, now_s):
            left = job.true_work - done
            return RatePhase(left / (33.0 - now_s), until_s=33.0) if now_s < 33 else RatePhase(1.0)

    engine = to_the_end(engine_of(FifoSkip(), Rounds, work=0.1 * 3))
    assert engine.jobs[0].end_s == 33.0


def test_both_engines_agree_on_jobs_whose_rates_change():
    for seed in range(60):
        for policy in (FifoSkip, Srtf):
            scenario = random_scenario(seed, courses=True)
            assert scenario.mismatch(policy) == "", f"seed {seed}: {scenario}"


def test_a_failure_comes_after_the_work_that_it_takes():
    item = Item(0, 1, 30, fails_at=15.0, course=((10.0, 0.5),))
    engine = Scenario((item,)).run(FifoSkip())
    assert engine.jobs[0].end_s == 20.0
