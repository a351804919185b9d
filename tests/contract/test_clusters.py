"""The simulator and the local processes behind the same port."""

import pytest

from rota.core.launch import Launch
from rota.live.cluster import LiveCluster
from rota.live.drivers.local import LocalCluster, standin
from rota.live.mailbox import Mailbox
from rota.sim.cluster import SimCluster
from rota.testing import CheckFailed, check_cluster
from rota.testing.cluster_checks import CHECKS
from rota.testing.scenario import Fixed, Solo
from scripted import ScriptedClock, ScriptedDriver, ScriptedWorld

NAMES = [check.__name__ for check in CHECKS]
TIMED = {  # with processes of this machine their verdict depends on how busy it is
    "a_job_ends_when_its_work_is_done",
    "a_restarted_job_ends_once",
    "it_decides_as_the_simulator_does",
}
COSTS = {
    "free": Fixed(),
    "start": Fixed(start_s=0.1),
    "stop": Fixed(stop_s=0.05),
    "both": Fixed(start_s=0.1, stop_s=0.05),
}


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize("costs", COSTS)
def test_simulated(costs, check):
    def make(topology, workload):
        return SimCluster(topology, COSTS[costs], Solo())

    check_cluster(make, only=check)


class ScriptedCluster(LocalCluster):
    """A living cluster whose time and processes follow a script."""

    def __init__(self, topology, workload):
        work = {spec.id: how.work for spec, how in workload}
        world = ScriptedWorld(work, start_s=0.0, stop_s=0.05)
        launch = Launch(run="true")
        LiveCluster.__init__(
            self, topology, ScriptedDriver(world), lambda _: launch, ScriptedClock(world), Mailbox()
        )
        self.go_live()

    def close(self):
        LiveCluster.close(self)


@pytest.mark.parametrize("check", NAMES)
def test_living(check):
    check_cluster(ScriptedCluster, only=check)


@pytest.mark.parametrize(
    "check",
    [pytest.param(name, marks=[pytest.mark.soak] if name in TIMED else []) for name in NAMES],
)
def test_local(check, tmp_path):
    def make(topology, workload):
        commands = {
            spec.id: standin.command(how.work, tmp_path / f"{spec.id}.checkpoint")
            for spec, how in workload
        }
        return LocalCluster(topology, commands, tmp_path / "agent")

    check_cluster(make, unit_s=0.5, margin_s=0.45, only=check)


# --- clusters that break the rules ----------------------------------------------------------------


class Early(SimCluster):
    """Hands out events before their time."""

    def poll(self, until_s):
        events = super().poll(until_s)
        self.now_s -= 0.25 if events else 0.0
        return events


class Stale(SimCluster):
    """Does not care about epochs."""

    def poll(self, until_s):
        events = sorted(e for e in self.heap if e[0] <= until_s)[:1]
        if not events:
            return super().poll(until_s)
        self.heap.remove(events[0])
        self.now_s = events[0][0]
        return events


class Hasty(SimCluster):
    """Jobs end when half of their work is done."""

    def _ending(self, job):
        kind, left = super()._ending(job)
        return kind, left / 2


class Beyond(SimCluster):
    """Does not stop at the time that it was given."""

    def poll(self, until_s):
        return super().poll(until_s + 5)


@pytest.mark.parametrize("kind", [Early, Stale, Hasty, Beyond])
def test_a_broken_cluster_is_caught(kind):
    with pytest.raises(CheckFailed):
        check_cluster(lambda topology, workload: kind(topology, Fixed(start_s=0.1), Solo()))
