"""Several jobs on one fake GPU in turns: real processes that are stopped and go on."""

import os
import signal
from pathlib import Path

import pytest

from agents_net import eventually, order, pid_outside
from rota.core.topology import NodeSpec
from rota.live.agent.devices import GpuShares
from rota.live.agent.messages import AgentOrders, PartKey
from rota.live.agent.turns import GpuTurns
from rota.live.driver import RunPart
from rota.live.drivers.agent_run import AgentRun
from rota.live.drivers.local.embedded import nodes_here

SLEEP = "echo $$ > pid; sleep 1000"  # no exec: in the middle of one nobody knows whose it is
NEVER_S = 1e9


def launches(made):
    record = AgentRun(made)
    return AgentOrders(launch=tuple(record.launch_of(key, "127.0.0.1") for key in record.parts))


class Machine:
    """An agent without threads: turns are dealt out by hand."""

    def __init__(self, make_agent, root, *, gpus=1, mode="timeslice"):
        self._make, self.root = make_agent, root
        self.nodes = nodes_here([NodeSpec("n0", gpus, sharing=mode)])
        self.begin()

    def begin(self):
        self.agent = self._make(self.root, self.nodes)
        self.agent.turns = GpuTurns(self.agent.nodes, NEVER_S)

    def launch(self, run, *devices, script=SLEEP):
        """Start a run and wait until its script runs: stopped before, it could not say its pid."""
        parts = [RunPart("n0", tuple((device, 1.0) for device in devices), 0, 0, 1)]
        self.agent.obey(launches(order(run, script, parts=parts)))
        eventually(lambda: self.agent.step() or self.part(run).state == "running")
        self.pid(run)

    def part(self, run):
        return self.agent._parts[PartKey(run, 0)]

    def deal(self):
        self.agent.turns.deal(self.agent._parts.values())

    def pid(self, run):
        """Return what its script wrote."""
        job = run.partition(".")[0]
        path = self.root / "jobs" / job / "work" / "pid"
        inside = eventually(lambda: path.exists() and path.read_text().strip())
        return pid_outside(self.root.parent, job, inside)

    def stopped(self, run):
        """What the kernel says, by now."""
        return Path(f"/proc/{self.pid(run)}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def crash(self):
        """As if it were killed: nobody lets anybody go on."""
        for part in self.agent._parts.values():
            part.go_on = lambda: None
        self.agent.close()


@pytest.fixture
def machine(make_agent, tmp_path):
    return Machine(make_agent, tmp_path / "m0")


def test_three_jobs_have_a_third_of_the_turns_each_within_one(machine):
    runs = ["1.0", "2.0", "3.0"]
    for run in runs:
        machine.launch(run, 0)
    for turn in range(1, 20):
        machine.deal()
        had = [machine.agent.turns.had.get(PartKey(run, 0), 0) for run in runs]
        assert sum(had) == turn
        assert max(had) - min(had) <= 1
        eventually(lambda: sum(machine.stopped(run) for run in runs) == 2)


def test_the_last_one_goes_on(machine):
    for run in ("1.0", "2.0"):
        machine.launch(run, 0)
    machine.deal()
    waits = next(run for run in ("1.0", "2.0") if machine.part(run)._paused)
    other = next(run for run in ("1.0", "2.0") if run != waits)
    machine.agent.obey(AgentOrders(kill=(PartKey(other, 0),)))
    eventually(lambda: machine.agent.step() or machine.part(other).over)
    machine.deal()
    assert not machine.agent.turns.active
    eventually(lambda: not machine.stopped(waits))


def test_who_became_another_program_as_it_was_stopped_goes_on(machine):
    """As one that the signal found in the middle of an exec: its variables are gone by now."""
    machine.launch("1.0", 0)
    machine.launch("2.0", 0, script="env -i sleep 1000 & echo $! > pid; wait")
    pid = machine.pid("2.0")
    eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    machine.deal()
    assert machine.part("2.0")._paused
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: machine.stopped("2.0"))
    machine.deal()
    assert not machine.part("2.0")._paused
    eventually(lambda: not machine.stopped("2.0"))


def test_a_job_that_waits_for_its_turn_can_be_halted(machine):
    for run in ("1.0", "2.0"):
        machine.launch(run, 0)
    machine.deal()
    waits = next(run for run in ("1.0", "2.0") if machine.part(run)._paused)
    machine.agent.obey(AgentOrders(halt=(PartKey(waits, 0),)))
    machine.deal()  # nobody stops it again
    eventually(lambda: machine.agent.step() or machine.part(waits).over)
    assert machine.part(waits).asked


def test_the_next_agent_lets_everybody_go_on(machine):
    runs = ["1.0", "2.0", "3.0"]
    for run in runs:
        machine.launch(run, 0)
    machine.deal()
    eventually(lambda: sum(machine.stopped(run) for run in runs) == 2)
    machine.crash()
    assert sum(machine.stopped(run) for run in runs) == 2
    machine.begin()
    eventually(lambda: not any(machine.stopped(run) for run in runs))
    machine.agent.step()
    machine.deal()
    eventually(lambda: sum(machine.stopped(run) for run in runs) == 2)
    machine.agent.close()
    eventually(lambda: not any(machine.stopped(run) for run in runs))
    machine.begin()  # to be cleaned up


def test_a_job_with_several_gpus_has_its_turn_on_all_of_them(make_agent, tmp_path):
    machine = Machine(make_agent, tmp_path / "m0", gpus=2)
    machine.launch("1.0", 0, 1)
    machine.launch("2.0", 0)
    machine.launch("3.0", 1)
    paused = []
    for _ in range(4):
        machine.deal()
        paused.append([bool(machine.part(run)._paused) for run in ("1.0", "2.0", "3.0")])
    both, one = [False, True, True], [True, False, False]
    assert paused == [both, one, both, one]


@pytest.mark.parametrize("how", ["warn", "stop", "off"])
def test_who_uses_too_much_gpu_memory_is_warned_once_or_stopped(make_agent, tmp_path, how):
    nodes = nodes_here([NodeSpec("n0", 1, sharing="mps", gpu_mem_gib=16)])
    agent = make_agent(tmp_path / "m0", nodes, gpu_mem_excess=how)
    done = tmp_path / "m0" / "jobs" / "1" / "work" / "done"
    script = "trap 'exit 0' TERM; touch ready; while [ ! -e done ]; do sleep 0.05; done"
    part = RunPart("n0", ((0, 0.5),), 0, 0, 1, gpu_mem_gib=4.0)
    agent.obey(launches(order("1.0", script, parts=[part])))
    key = PartKey("1.0", 0)
    eventually(lambda: agent.step() or agent._parts[key].state == "running")
    eventually(done.with_name("ready").exists)
    assert [each.gpu_mem_gib for each in agent.watched()] == [4.0]
    for used_gib in (6.0, 7.0):
        agent.exceeded(key, used_gib)
    errors = tmp_path / "m0" / "jobs" / "1" / "logs" / "0.err"
    if how == "warn":
        eventually(lambda: errors.stat().st_size)
    if how != "stop":
        done.touch()
    eventually(lambda: agent.step() or agent._parts[key].over)
    why = "it uses 6 GiB of GPU memory and may use 4: ask for more (gpu_mem_gib), or use less"
    told = [line for line in errors.read_text().splitlines() if line.startswith("rota")]
    assert told == ([] if how == "off" else [f"rota: {why}"])
    status = agent._parts[key].status()
    assert (status.code, status.why) == ((1, why) if how == "stop" else (0, ""))
    assert not status.asked


@pytest.mark.parametrize("mode", ["mps", ""])
def test_only_gpus_in_turns_have_turns(make_agent, tmp_path, mode):
    machine = Machine(make_agent, tmp_path / "m0", gpus=2, mode=mode)
    machine.launch("1.0", 0)
    machine.launch("2.0", 0 if mode else 1)
    machine.deal()
    assert not machine.agent.turns.active
    assert not any(machine.part(run)._paused for run in ("1.0", "2.0"))


def test_only_gpus_that_may_be_shared_have_several_jobs():
    shares = GpuShares(2, shared={0})
    assert shares.take([(0, 1.0)]) == shares.take([(0, 1.0)]) == [(0, 1.0)]
    assert shares.take([(1, 1.0)]) == [(1, 1.0)]
    assert shares.take([(1, 1.0)]) is None
