"""Plans that break a promise about places: refused with policy, job and remedy, unchecked runs too.

Broken policy files through the command line are in `tests/unit/cli/test_broken_plans.py`.
"""

import re

import pytest

from decisions import Scripted, engine, job
from rota.core.allocation import Allocation
from rota.core.changes import Changes
from rota.core.errors import InvalidPlanError, PolicyError
from rota.core.events import NODE_DOWN
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.plan import ExplicitPlan
from rota.core.policy import Params, PriorityPolicy
from rota.core.topology import NodeSpec

ALIKE = [NodeSpec("n0", 4), NodeSpec("n1", 4)]
NODES = [NodeSpec("n0", 4, "v100", labels=("ib",)), NodeSpec("n1", 4, "k80")]


class Explicit(Scripted):
    """Says where."""

    name = "explicit"
    plan_type = ExplicitPlan


def asks(**request):
    groups = request.pop("groups", (TaskGroup("worker", 4, 1),))
    return JobSpec("a", 5.0, Request(groups, **request)), Behaviour(10.0)


def refused(where, jobs, message, nodes=NODES, **options):
    """Place the only job at these (node, GPUs)."""

    def decide(view, plan):
        nodes = view.topology.nodes
        for each in view.waiting:
            plan.place_at(each, Allocation([(nodes[node].id, gpus) for node, gpus in where]))
        for each in view.running:
            plan.place(each)

    made = engine(Explicit(decide), jobs, nodes, placement="consolidate", **options)
    with pytest.raises(InvalidPlanError, match=re.escape(f"policy 'explicit' at 5 s: {message}")):
        made.run()


def test_a_node_that_is_down():
    message = "job a: placed on n0, which is down: use nodes that are `open`"
    refused([(0, 4)], [asks()], message, outages=[(1.0, NODE_DOWN, 0)])


def test_a_node_that_is_drained():
    def decide(view, plan):
        view.topology.nodes[0].closed = True
        plan.place_at(view.jobs[0], Allocation([(view.topology.nodes[0].id, 4)]))

    with pytest.raises(InvalidPlanError, match="job a: placed on n0, which is drained"):
        engine(Explicit(decide), [asks()], NODES).run()


def test_gpus_of_a_type_that_the_job_does_not_accept():
    message = "job a asks for 4 GPUs of type v100: n1 is not of that kind"
    refused([(1, 4)], [asks(gpu_types=("v100",))], message)


def test_a_node_without_its_labels():
    message = "job a asks for 4 GPUs, on nodes labelled ib: n1 is not of that kind"
    refused([(1, 4)], [asks(labels=("ib",))], message)


def test_tasks_that_share_a_node_although_they_want_one_each():
    message = "job a asks for 4 GPUs on 2 nodes (2 on each) and is given 4 on 1: give every task"
    pair = [asks(groups=(TaskGroup("worker", 2, 2),), apart=True)]
    refused([(0, 4)], pair, message, ALIKE)
    message = "job a asks for 4 GPUs on 2 nodes (2 on each) and is given 3, 1 on 2: give every"
    refused([(0, 3), (1, 1)], pair, message, ALIKE)


def test_a_gang_in_part():
    refused([(0, 2)], [asks()], "job a asks for 4 GPUs and is given 2: it is rigid")


def test_more_than_a_node_has():
    # not even if the total is right: 5 GPUs of a node with 4
    groups = (TaskGroup("worker", 6, 1),)
    message = "job a: Allocation(((1, 5), (6, 1))) over-commits a place"
    refused([(0, 5), (1, 1)], [asks(groups=groups)], message, ALIKE)


def test_what_is_placed_nowhere_cannot_be_withdrawn():
    def decide(view, plan):
        plan.withdraw(view.jobs[0])

    with pytest.raises(PolicyError, match="job a was not placed"):
        engine(Explicit(decide), [asks()], NODES).run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda changes, waits: changes.stop(waits),
            "the plan wants to stop job a, which is waiting",
        ),
        (
            lambda changes, waits: changes.starts.extend(2 * [(waits, Allocation([(1, 4)]))]),
            "the plan starts a job twice: a",
        ),
    ],
)
def test_a_plan_of_changes(change, message):
    made = engine(Scripted(lambda _view, _plan: None), [asks()], NODES)

    def step(view, _events):
        changes = Changes(view.version)
        change(changes, view.jobs[0])
        return changes

    made.scheduler.step = step
    with pytest.raises(InvalidPlanError, match=f"^policy 'scripted' at 5 s: {message}"):
        made.run()


class Jumps(PriorityPolicy[Params]):
    """Says when keys jump."""

    name = "jumps"
    preemptive = True
    when_s = 0.0

    def key(self, job, now_s):
        return job.submit_s

    def next_change(self, job, now_s):
        return self.when_s


@pytest.mark.parametrize("when_s", [2.0, float("nan"), -float("inf")])
def test_a_key_that_jumps_in_the_past(when_s):
    policy = Jumps()
    policy.when_s = when_s
    message = f"policy 'jumps': `next_change` of job a at 5 s is {when_s} s: it must be a later"
    with pytest.raises(PolicyError, match=re.escape(message)):
        engine(policy, [job("a", 1, 10, at=5.0)], (1, 1)).run()
