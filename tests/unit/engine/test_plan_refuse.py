"""What a policy may say of jobs: that they can never run, and for whom others have to leave."""

import pytest

from decisions import Scripted, ends, engine, job, rows
from rota.core.allocation import Allocation
from rota.core.jobs import REJECTED, Behaviour, JobSpec, Request
from rota.core.log import Record
from rota.core.plan import ExplicitPlan
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.placement.count import count
from rota.policies.admission.load import Load, LoadParams
from rota.sim.cluster import SimCluster


def texts(made, kind):
    """Return what the log says at rows of a kind."""
    flat = [*made.log._packed, *made.log.rows]
    return [text for n, text in made.log.texts.items() if flat[6 * n + 1] == kind]


def refuse_large(view, plan):
    for each in view.waiting:
        if each.gpus > 2:
            plan.refuse(each, f"{each.gpus} GPUs are too many")
    plan.fill([each for each in view.jobs if each.gpus <= 2])


def test_a_policy_can_turn_jobs_away():
    jobs = [job("large", 4, 5), job("small", 1, 5), job("late", 4, 5, at=2)]
    made = engine(Scripted(refuse_large), jobs, (1, 4))
    made.run()
    assert [made.jobs[n].phase == REJECTED for n in range(3)] == [True, False, True]
    assert texts(made, Record.REJECTED) == ["4 GPUs are too many"] * 2
    assert ends(made) == {"small": 5.0}
    assert made.scheduler.snapshot()["queued"] == []


def test_the_tasks_of_a_job_can_be_turned_away():
    def refuse_all(view, plan):
        for each in view.waiting:
            plan.refuse(each, "no")

    spec = JobSpec("tasks", 0.0, Request.of(3, gang=False))
    made = engine(Scripted(refuse_all), [(spec, Behaviour(5.0))], (1, 4))
    made.run()
    assert not made.view.active
    assert made.jobs[0].phase == REJECTED


@pytest.mark.parametrize("later_s", [0.0, 1.0])
def test_those_outside_come_in_when_others_are_turned_away(later_s):
    """Nothing else happens that would let them in."""
    topology = Topology.uniform(1, 4)
    jobs = [job("one", 4, 5), job("two", 4, 5), job("small", 1, 5, at=later_s)]
    made = Engine(
        SimCluster(topology, Zero(), Uniform(topology)),
        compose(Scripted(refuse_large), count(topology), Load(LoadParams(threshold=1.0))),
        WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs])),
    )
    made.run()
    assert not made.view.active
    assert ends(made) == {"small": 5.0 + later_s}


class Rude(Scripted):
    """Names every slice; the last one to come has the only GPU."""

    plan_type = ExplicitPlan


def the_last_wins(view, plan):
    last = max(view.jobs, key=lambda each: each.index)
    for each in view.running:
        if each is not last:
            plan.stop(each, why="somebody else came", because_of=last)
    plan.place_at(last, Allocation([(view.topology.devices(view.topology.nodes[0].id)[0], 1)]))


def test_an_explicit_policy_can_name_who_displaced_whom_and_why():
    made = engine(Rude(the_last_wins), [job("first", 1, 50), job("second", 1, 5, at=10)], (1, 1))
    made.run(12.0)
    assert [(time_s, index, by) for time_s, index, _, by, _ in rows(made, Record.STOP)] == [
        (10.0, 0, 1)
    ]
    assert texts(made, Record.STOP) == ["somebody else came"]
