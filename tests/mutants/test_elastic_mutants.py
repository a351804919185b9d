"""Planted bugs in phases, sizes and costs: each must be caught by checks or the naive engine."""

import pytest

from mutants.planting import plant
from rota.core.changes import Wake
from rota.core.errors import RotaError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.policy import DecidePolicy
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.models.rates import Scaling
from rota.policies.fifo_skip import FifoSkip
from rota.policies.srtf import Srtf
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, random_scenario, to_the_end, wire

SIM = "rota.sim.cluster:SimCluster"

MUTANTS = {
    "phases never end": (f"{SIM}._or_phase", "(until_s, JOB_PHASE)", "(at_s, kind)"),
    "a phase begins without counting the last": (
        "rota.core.machine:change_phase",
        "settle(job, now_s)",
        "job.since_s = now_s",
    ),
    "phases are not in the log": (
        "rota.engine.executor:Executor.phase_changed",
        "self.log.row(now_s, Record.RATE, job.index, -1, -1, rate)",
        "pass",
    ),
    "keys that follow progress do not hear of phases": (
        "rota.engine.priority:PriorityScheduler._other",
        "if kind in (ev.JOB_RUNNING, ev.JOB_PHASE):",
        "if kind == ev.JOB_RUNNING:",
    ),
    "any size will do": ("rota.core.plan:Plan.place", "check_size(job, gpus)", "pass"),
    "a job is resized for nothing": (
        f"{SIM}.stop",
        "self._moved_with[job.index] = (to, cost)",
        "self._moved_with[job.index] = (to, type(cost)())",
    ),
}


class Breathes(DecidePolicy):
    """One GPU and two by turns; at last one that nobody takes."""

    name = "breathes"
    wake = Wake(every_s=10.0)

    def decide(self, view):
        plan = view.plan()
        for job in view.jobs:
            plan.place(job, gpus=1 + int(view.now_s // 10) % 2 if view.now_s < 60 else 3)
        return plan


def resized():
    """The time at which a job ends that is resized each 10 s at 2 s each; "" if as by hand."""
    topology = Topology.uniform(1, 4)
    request = Request(Request.of(1).groups, only=(1, 2, 4))
    workload = Workload([JobSpec("j", 0.0, request)], [Behaviour(55.0)])
    cluster = SimCluster(topology, Fixed(start_s=2), Scaling(topology))
    engine = wire(Breathes(), cluster, workload)
    # 8 s at 1, then 8 s at 2 and so on: 24 in 20 s, 48 in 40 s, and 7 more from 42 s on
    end_s = to_the_end(engine).jobs[0].end_s
    return "" if end_s == 49.0 else f"ends at {end_s:g} s"


def refused():
    """A size that a job does not take is refused."""
    topology = Topology.uniform(1, 4)
    request = Request(Request.of(1).groups, only=(1, 2, 4))
    workload = Workload([JobSpec("j", 0.0, request)], [Behaviour(900.0)])
    engine = wire(Breathes(), SimCluster(topology, Fixed(), Scaling(topology)), workload)
    try:
        engine.run(until_s=80.0)
    except RotaError as error:
        return "" if "takes 1, 2, 4 GPUs and is given 3" in str(error) else str(error)
    return "it was given 3 GPUs"


def caught():
    """What is found in the first run in which anything is found."""
    for make in (FifoSkip, Srtf):
        for seed in range(40):
            try:
                found = random_scenario(seed, courses=True).mismatch(make)
            except (AssertionError, LookupError, RotaError, RuntimeError, TypeError) as error:
                found = f"{type(error).__name__}: {error}"
            if found:
                return found
    try:
        return resized() or refused()
    except (AssertionError, RotaError) as error:
        return f"{type(error).__name__}: {error}"


def test_the_engine_itself_passes():
    assert caught() == ""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name, monkeypatch):
    plant(monkeypatch, *MUTANTS[name])
    assert caught()
