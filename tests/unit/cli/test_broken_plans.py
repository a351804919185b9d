"""Policies of one's own that break a promise of plans: refused by name, without `--check`."""

import pytest

from rota import simulate
from rota.core.errors import InvalidPlanError

JOBS = """\
job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus
rigid,0,4,100,0,0
small,0,1,50,0,0
elastic,10,4,100,2,6
late,40,2,10,0,0
"""
HEAD = """\
import math
from rota.core.allocation import Allocation
from rota.core.plan import *
from rota.core.policy import DecidePolicy, Params, PriorityPolicy
from rota.core.reasons import Reason

class BrokenPlan(DisplacingPlan, SupplyingPlan):
    pass

class Broken(DecidePolicy[Params]):
    plan_type = BrokenPlan
    def __init__(self, params=None):
        super().__init__(params)
        self.kept = {}

    def decide(self, view):
        plan = view.plan()
        jobs = {job.id: job for job in view.jobs}
        self.kept.update(jobs)
        nodes = view.topology.nodes
"""
TAIL = """
        plan.fill(view.running)
        plan.fill(view.waiting)
        return plan
"""
EXPLICIT = HEAD.replace("    def __init__", "    plan_type = ExplicitPlan\n\n    def __init__", 1)
KEEP = """
        for job in view.running:
            plan.place(job)
        return plan
"""

PLACED = {
    "another size than a rigid job asks for": (
        "plan.place(jobs['rigid'], gpus=2) if 'rigid' in jobs else None",
        "at 0 s: job rigid asks for 4 GPUs and is given 2: it is rigid, so give it 4 or none",
    ),
    "more than an elastic job takes": (
        "plan.place(jobs['elastic'], gpus=7) if 'elastic' in jobs else None",
        "at 10 s: job elastic takes 2 to 6 GPUs and is given 7: give it a number",
    ),
    "less than an elastic job takes": (
        "plan.place(jobs['elastic'], gpus=1) if 'elastic' in jobs else None",
        "job elastic takes 2 to 6 GPUs and is given 1",
    ),
    "a part of a task": (
        "plan.place(jobs['elastic'], gpus=2.5) if 'elastic' in jobs else None",
        "job elastic takes 2 to 6 GPUs and is given 2.5",
    ),
    "a negative size": (
        "plan.place(jobs['rigid'], gpus=-4)",
        "job rigid asks for 4 GPUs and is given -4",
    ),
    "a size that is no number": (
        "plan.place(jobs['rigid'], gpus=math.nan)",
        "job rigid asks for 4 GPUs and is given nan",
    ),
    "two sizes at once": (
        "for gpus in (2, 3): 'elastic' in jobs and plan.place(jobs['elastic'], gpus=gpus)",
        "job elastic is placed twice, with 2 GPUs and then with 3: place it once, or `withdraw`",
    ),
    "memory that is no number": (
        "plan.place_with(jobs['rigid'], (4.0, math.nan))",
        "job rigid is given nan of CPUs or memory: give 0 or more",
    ),
    "a wake-up in the past": (
        "view.now_s and plan.wake_at(view.now_s - 5)",
        "at 10 s: it asks to be woken at 5.0 s, which is not after the present (10 s)",
    ),
    "a wake-up that is no time": ("plan.wake_at(math.nan)", "it asks to be woken at nan s"),
    "a level that is no number": (
        "plan.watch(jobs['small'], 'service', math.nan)",
        "job small: service is watched for nan: give a number",
    ),
    "a job that is over": (
        "view.now_s > 50 and plan.place(self.kept['small'])",
        "job small cannot be placed: it is done and not in the view: place jobs of `view.jobs`",
    ),
    "a copy of a job": (
        "import copy; plan.place(copy.copy(jobs['rigid']))",
        "job rigid cannot be placed: it is waiting and not in the view",
    ),
    "a job that takes its own place": (
        "view.now_s and plan.displace(jobs['rigid'], ())",
        "job rigid displaces others, but it has a place already",
    ),
    "a job that is placed and cancelled": (
        "plan.place(jobs['rigid']) and plan.cancel([jobs['rigid']])",
        "the plan places job rigid and cancels it: do one of the two",
    ),
    "a job that is placed and refused": (
        "view.now_s or (plan.place(jobs['rigid']) and plan.refuse(jobs['rigid'], 'no'))",
        "the plan places job rigid and refuses it",
    ),
    "a running job that is refused": (
        "view.now_s and plan.refuse(jobs['rigid'], 'no')",
        "job rigid is refused, but it is running: only who waits can be refused; use `cancel`",
    ),
    "a reason that is none": (
        "plan.explain(jobs['rigid'], 'capacity')",
        "job rigid: 'capacity' is no reason: use a member of rota.core.reasons.Reason",
    ),
}
AT = "plan.place_at(jobs['rigid'], Allocation({}))"
SAID = {
    "another size": (
        AT.format("[(nodes[0].id, 3)]"),
        "job rigid asks for 4 GPUs and is given 3: it is rigid, so give it 4 or none",
    ),
    "amounts that cancel out": (
        AT.format("[(nodes[0].id, 8), (nodes[1].id, -4)]"),
        "job rigid: -4 GPUs at n1: give more than 0",
    ),
    "an amount that is no number": (
        AT.format("[(nodes[0].id, math.nan)]"),
        "job rigid asks for 4 GPUs and is given nan",
    ),
    "more than a node has": (
        AT.format("[(nodes[1].id, 4)]") + "; plan.place_at(jobs['small'], "
        "Allocation([(nodes[1].id, 1)]))",
        "job small: Allocation(((6, 1),)) over-commits a place",
    ),
    "a place that is not there": (AT.format("[(99, 4)]"), "job rigid: there is no place 99: use"),
    "a negative amount of memory": (
        AT.format("[(nodes[0].id, 4)], [(nodes[0].id, 'memory', -1.0)]"),
        "job rigid: -1.0 of memory at n0: give 0 or more",
    ),
    "two places at once": (
        AT.format("[(nodes[0].id, 4)]") + "; " + AT.format("[(nodes[1].id, 4)]"),
        "job rigid is placed twice, at Allocation(((1, 4),)) and then at Allocation(((6, 4),))",
    ),
    "no allocation": (
        "plan.place_at(jobs['rigid'], 4)",
        "job rigid is placed at 4: give an Allocation of slices",
    ),
    "a wake-up that is no time": ("plan.wake_at(math.nan)", "it asks to be woken at nan s"),
}


def check(rota, here, source, message, *options):
    (here / "jobs.csv").write_text(JOBS)
    (here / "broken.py").write_text(source)
    run = ("simulate", "jobs.csv", "--cluster", "2x4", "--policy", "broken.py")
    code, out, err = rota(*run, "-o", "out", *options)
    assert (code, out) == (1, "")
    assert "error: policy 'broken' at " in err
    assert message in err
    assert "Traceback" not in err
    assert not (here / "out").exists()
    with pytest.raises(InvalidPlanError) as caught:
        simulate("jobs.csv", cluster="2x4", policy="broken.py")
    assert str(caught.value).startswith("policy 'broken' at ")
    assert message in str(caught.value)


@pytest.mark.parametrize("what", PLACED)
def test_a_draft(rota, here, what):
    line, message = PLACED[what]
    check(rota, here, f"{HEAD}        {line}\n{TAIL}", message)


@pytest.mark.parametrize("what", SAID)
def test_an_explicit_draft(rota, here, what):
    line, message = SAID[what]
    check(rota, here, f"{EXPLICIT}        {line}\n{KEEP}", message)
