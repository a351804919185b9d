"""Several jobs on one fake GPU in turns: real processes that are stopped and go on."""

import pytest

from agents_net import eventually, order, pid_outside, stands_still
from rota.core.topology import NodeSpec
from rota.live.agent import processes, shim
from rota.live.agent.devices import GpuShares
from rota.live.agent.messages import AgentOrders, PartKey, PartTerms
from rota.live.agent.turns import GpuTurns
from rota.live.driver import RunPart
from rota.live.drivers.agent_run import AgentRun
from rota.live.drivers.local.embedded import nodes_here
from rota.models.slicing import GpuClaim, divide

SLEEP = "echo $$ > pid; sleep 1000"
AWAY = "env -i setsid bash -c 'echo $$ > pid; exec sleep 1000' & echo; wait"
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

    def launch(self, run, *devices, script=SLEEP, weight=0.0, **options):
        """Start a run and wait until its script runs: stopped before, it could not say its pid."""
        slices = tuple((device, 1.0) for device in devices)
        parts = [RunPart("n0", slices, 0, 0, 1, gpu_weight=weight)]
        self.agent.obey(launches(order(run, script, parts=parts, **options)))
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
        return stands_still(self.pid(run))

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


@pytest.mark.parametrize("how", ["frozen", "stopped"])
def test_who_sheds_its_variables_and_its_session_takes_turns_too(machine, monkeypatch, how):
    """What belongs to a run is what is below its shim, whatever it says of itself."""
    if how == "stopped":
        monkeypatch.setattr(processes.shim, "freeze", lambda *_: False)
    machine.launch("1.0", 0)
    machine.launch("2.0", 0, script=AWAY, terminal=True)
    pid = machine.pid("2.0")
    shim_pid = machine.part("2.0").shim_pid
    own = machine.part("2.0")._own()
    assert own < set(shim.descendants(shim_pid))  # who keeps its terminal, at least
    machine.deal()
    eventually(lambda: machine.stopped("2.0"))
    assert not any(stands_still(each) for each in (shim_pid, *own))
    job = set(shim.descendants(shim_pid)) - own
    assert pid in job
    eventually(lambda: all(stands_still(each) for each in job))
    machine.deal()
    eventually(lambda: not any(stands_still(each) for each in job))


def test_who_has_used_up_its_time_can_react_in_the_turn_of_another(machine):
    script = "trap 'touch asked; exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done"
    machine.launch("1.0", 0)
    machine.launch("2.0", 0, script=script, grace_s=NEVER_S)
    machine.deal()
    eventually(lambda: machine.stopped("2.0"))
    folder = machine.root / "runs" / "2.0-0"
    shim.write_whole(str(folder / "excess"), "stop too much")
    processes.nudge(machine.part("2.0").pidfd)
    eventually(lambda: machine.part("2.0").leaves)
    machine.deal()
    eventually(lambda: machine.agent.step() or machine.part("2.0").over)
    assert (machine.root / "jobs" / "2" / "work" / "asked").exists()
    assert (folder / shim.ENDS).exists()  # it does not begin anything else


def test_weights_outlive_an_agent_and_change_while_jobs_run(machine):
    weights = {"1.0": 1.0, "2.0": 2.0, "3.0": 1.0}
    for run, weight in weights.items():
        machine.launch(run, 0, weight=weight)

    def dealt(turns):
        for _ in range(turns):
            machine.deal()
        return [machine.agent.turns.had.get(PartKey(run, 0), 0) for run in weights]

    assert dealt(8) == [2, 4, 2]
    machine.crash()
    machine.begin()
    assert dealt(8) == [2, 4, 2]
    terms = [PartTerms(PartKey("1.0", 0), 2.0), PartTerms(PartKey("2.0", 0), paused=True)]
    machine.agent.obey(AgentOrders(terms=tuple(terms)))
    assert [status.terms for status in machine.agent.report().parts][:2] == terms
    assert dealt(6) == [6, 4, 4]
    eventually(lambda: machine.stopped("2.0"))
    machine.crash()
    machine.begin()
    assert dealt(6) == [4, 0, 2]


class Pretended:
    """A part that is no process."""

    state, leaves, node = "running", False, "n0"

    def __init__(self, name, *devices, held=1.0, **terms):
        self.key = PartKey(name, 0)
        self.shares = [(device, held) for device in devices]
        self.terms = PartTerms(self.key, **terms)
        self.waits = False

    def pause(self):
        self.waits = True

    def go_on(self):
        self.waits = False


def turns_of(parts, turns, modes=("timeslice",)):
    """Return how many each had after each turn."""
    nodes = nodes_here([NodeSpec("n0", len(modes), sharing=modes[0])])
    dealer = GpuTurns({node.spec.name: node for node in nodes}, NEVER_S)
    found = [0] * len(parts)
    for _ in range(turns):
        dealer.deal(parts)
        found = [had + (not part.waits) for had, part in zip(found, parts, strict=True)]
        yield list(found)


@pytest.mark.parametrize(
    "terms",
    [
        [{"weight": 1.0}, {"weight": 2.0}, {"weight": 1.0}],
        [{"weight": 3.0}, {"weight": 1.0}],
        [{"weight": 5.0}, {"weight": 4.0}, {"weight": 3.0}, {"weight": 2.0}, {"weight": 1.0}],
        [{"held": 0.5}, {"held": 0.25}, {"held": 0.25}],
        [{"limit": 0.2}, {"held": 0.5}],
        [{"limit": 0.2}, {"limit": 0.3}],
        [{"limit": 0.25}],
    ],
    ids=str,
)
def test_nobody_is_a_turn_ahead_of_or_behind_the_share_of_the_model(terms):
    parts = [Pretended(f"{number}.0", 0, **each) for number, each in enumerate(terms)]
    claims = [
        GpuClaim(1.0, each.get("limit", 1.0), each.get("weight", each.get("held", 1.0)))
        for each in terms
    ]
    for turn, had in enumerate(turns_of(parts, 200), 1):
        for share, turns in zip(divide(claims), had, strict=True):
            assert abs(turns - turn * share) <= 1 + 1e-6


def test_on_several_gpus_the_scarcest_share_counts_and_nobody_starves():
    """A has 1/3 of the turns of GPU 1; B has what A leaves on GPU 0, and no GPU is ever idle."""
    parts = [Pretended("a", 0, 1), Pretended("b", 0), Pretended("c", 1), Pretended("d", 1)]
    for turn, (a, b, c, d) in enumerate(turns_of(parts, 300, ("timeslice",) * 2), 1):
        assert a + b == a + c + d == turn
        assert abs(a - turn / 3) <= 2
        assert abs(c - d) <= 1


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
