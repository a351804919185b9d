"""The server's side alone: agents are reports written by hand, time is a number."""

import threading

import pytest

from agents_net import Told, order
from rota.core.errors import ClusterError, InputError, OptionError, UnavailableError
from rota.core.topology import NodeSpec
from rota.live.agent.messages import (
    AgentNode,
    AgentReport,
    LogPiece,
    PartKey,
    PartMeasured,
    PartStatus,
)
from rota.live.driver import NodeStatus, RunMetrics, RunPart, RunStatus
from rota.live.drivers.local.driver import AgentDriver


class FakeAgent:
    """Says what the test wants."""

    def __init__(self, world, name, nodes):
        self.world = world
        self.name = name
        self.nodes = tuple(AgentNode(NodeSpec(node, 2), f"10.0.0.{node[1:]}") for node in nodes)
        self.parts = {}
        self.session = 1
        self._number = 0

    def sync(self, **fields):
        self._number += 1
        report = AgentReport(
            agent=self.name,
            name=self.name,
            session=self.session,
            number=fields.pop("number", self._number),
            nodes=fields.pop("nodes", self.nodes),
            parts=tuple(self.parts.values()),
            **fields,
        )
        return self.world.driver.sync(report, fields.get("wait_s", 0.0), "nodes")

    def says(self, run, state, rank=0, **fields):
        key = PartKey(run, rank)
        if state in ("running", "ended"):
            fields.setdefault("ran", True)
        self.parts[key] = PartStatus(key, state, **fields)
        return self.sync()


class World:
    """A driver whose messages are collected at once."""

    def __init__(self):
        self.now_s = 100.0
        self.driver = AgentDriver(silent_s=15.0, lost_s=60.0, clock=lambda: self.now_s)

    def agent(self, name, *nodes):
        made = FakeAgent(self, name, nodes)
        made.sync()
        return made

    def later(self, seconds):
        self.now_s += seconds
        self.driver.check()

    def told(self):
        messages = []
        while not self.driver._outbox.empty():
            messages.append(self.driver._outbox.get())
        return messages


@pytest.fixture
def world():
    made = World()
    made.driver.adopt([], frozenset())
    return made


TWO = (RunPart("n0", ((-1, 1.0),), 0, 0, 1), RunPart("n1", ((-1, 1.0),), 1, 1, 1))


def test_a_node_is_told_once_and_when_it_changes(world):
    agent = world.agent("a", "n0")
    assert world.told() == [NodeStatus("n0", "up", NodeSpec("n0", 2))]
    agent.sync()
    assert world.told() == []
    agent.sync(nodes=(AgentNode(NodeSpec("n0", 3)),))
    assert world.told() == [NodeStatus("n0", "up", NodeSpec("n0", 3))]


def test_a_run_from_launch_to_forget(world):
    agent = world.agent("a", "n0")
    world.told()
    world.driver.launch(order("1.0", "train"))
    (launch,) = agent.sync().launch
    assert (launch.run, launch.launch.run, launch.master_address) == ("1.0", "train", "10.0.0.0")
    assert agent.says("1.0", "starting").launch == ()
    assert world.told() == []
    agent.says("1.0", "running")
    assert world.told() == [RunStatus("1.0", "running")]
    agent.says("1.0", "ended", code=3, why="exit code 3")
    assert world.told() == [RunStatus("1.0", "ended", 3, why="exit code 3")]
    assert not agent.sync().urgent
    world.driver.forget("1.0")
    assert agent.sync().forget == (PartKey("1.0", 0),)
    agent.parts.clear()
    assert not agent.sync().urgent
    assert world.told() == []


def test_orders_are_repeated_until_they_are_seen_to_be_done(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    assert agent.sync().launch == agent.sync().launch != ()
    agent.says("1.0", "running")
    world.driver.halt("1.0")
    assert agent.sync().halt == agent.sync().halt == (PartKey("1.0", 0),)
    assert not agent.says("1.0", "running", told="halt").urgent
    world.driver.kill("1.0")
    assert agent.sync().kill == (PartKey("1.0", 0),)
    assert not agent.says("1.0", "running", told="kill").urgent
    world.told()
    agent.says("1.0", "ended", told="kill", code=-9, asked=True, why="killed")
    assert world.told() == [RunStatus("1.0", "ended", -9, asked=True, why="killed")]


def test_what_ended_before_it_was_seen_running_ran(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    world.told()
    agent.says("1.0", "ended", ran=True)
    assert world.told() == [RunStatus("1.0", "running"), RunStatus("1.0", "ended")]


def test_a_halt_before_the_launch_was_heard(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    world.driver.halt("1.0")
    orders = agent.sync()
    assert (orders.launch, orders.halt) == ((), (PartKey("1.0", 0),))


def test_several_parts_are_one_run(world):
    first, second = world.agent("a", "n0"), world.agent("b", "n1")
    world.driver.launch(order("1.0", parts=TWO))
    assert [launch.master_address for launch in second.sync().launch] == ["10.0.0.0"]
    world.told()
    first.says("1.0", "running")
    assert world.told() == []
    second.says("1.0", "running", rank=1)
    assert world.told() == [RunStatus("1.0", "running")]
    first.says("1.0", "ended")
    assert world.told() == []
    second.says("1.0", "ended", rank=1)
    assert world.told() == [RunStatus("1.0", "ended")]


@pytest.mark.parametrize("state", ["ended", "lost"])
def test_a_part_that_fails_takes_the_others_with_it(world, state):
    first, second = world.agent("a", "n0"), world.agent("b", "n1")
    world.driver.launch(order("1.0", parts=TWO))
    first.says("1.0", "running")
    second.says("1.0", "running", rank=1)
    second.says("1.0", state, rank=1, code=5 if state == "ended" else 0, why="why")
    assert first.sync().halt == (PartKey("1.0", 0),)
    world.told()
    first.says("1.0", "ended", told="halt", asked=True, code=-15)
    code = 5 if state == "ended" else 0
    assert world.told() == [RunStatus("1.0", state, code, why="node n1: why")]


def test_a_node_falls_silent_is_lost_and_returns(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "running")
    world.told()
    world.later(14.9)
    assert world.told() == []
    world.later(0.2)
    assert [(m.node, m.state) for m in world.told()] == [("n0", "silent")]
    agent.sync()
    assert world.told() == [NodeStatus("n0", "up", NodeSpec("n0", 2))]
    world.later(61.0)
    run, node = world.told()
    assert (run.run, run.state) == ("1.0", "lost")
    assert run.why == "node n0 is lost: not heard of for 61 s"
    assert (node.node, node.state) == ("n0", "lost")
    world.driver.forget("1.0")
    orders = agent.sync()  # it returns, and what nobody wants still runs
    assert orders.kill == (PartKey("1.0", 0),)
    assert world.told() == [NodeStatus("n0", "up", NodeSpec("n0", 2))]
    assert agent.says("1.0", "lost", why="cut off").forget == (PartKey("1.0", 0),)
    assert world.told() == []


def test_what_was_given_up_is_not_taken_back(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "running")
    world.later(61.0)
    world.told()
    assert agent.says("1.0", "running").kill == (PartKey("1.0", 0),)
    agent.says("1.0", "ended", code=0)
    assert [m for m in world.told() if isinstance(m, RunStatus)] == []


def test_agents_hear_how_long_they_may_be_away(world):
    assert world.agent("a", "n0").sync().lost_s == 60.0
    world.driver.embed("b", None)
    here = world.agent("b", "n1")
    assert here.sync().lost_s == 0.0
    world.told()
    world.later(1000.0)
    assert [m.node for m in world.told()] == ["n0"]


def test_what_nobody_wants_is_killed_and_forgotten(world):
    agent = world.agent("a", "n0")
    assert agent.says("7.0", "running").kill == (PartKey("7.0", 0),)
    assert not agent.says("7.0", "running", told="kill").urgent
    assert agent.says("7.0", "ended", told="kill").forget == (PartKey("7.0", 0),)


def test_a_restart_of_the_daemon_loses_nothing_and_gives_time():
    world = World()
    agent = FakeAgent(world, "a", ["n0"])
    agent.says("1.0", "running")
    agent.says("2.0", "ended", code=4, why="exit code 4")
    assert not agent.sync().urgent  # nobody is killed before it is known who is wanted
    world.told()
    world.driver.adopt(
        [order("1.0"), order("2.0"), order("3.0"), order("4.0", node="n9")], frozenset({"1.0"})
    )
    orders = agent.sync()
    assert orders.halt == (PartKey("1.0", 0),)
    assert [launch.run for launch in orders.launch] == ["3.0"]
    assert {m.run: m.state for m in world.told()} == {"1.0": "running", "2.0": "ended"}
    world.later(59.0)
    assert [(m.node, m.state) for m in world.told()] == [("n0", "silent"), ("n9", "silent")]
    world.later(2.0)
    assert [(m.run, m.state) for m in world.told() if isinstance(m, RunStatus)] == [
        ("1.0", "lost"), ("3.0", "lost"), ("4.0", "lost"),
    ]  # fmt: skip


def test_nodes_that_do_not_come_back_are_lost(world):
    world.driver.expect(["n0", "n1"])
    world.agent("a", "n0")
    world.told()
    world.later(59.0)
    world.told()
    world.later(2.0)
    assert ("n1", "lost") in [(m.node, m.state) for m in world.told()]


def test_a_part_of_which_its_agent_has_no_trace_is_not_started_again(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "running")
    world.told()
    agent.parts.clear()
    assert not agent.sync().urgent
    assert world.told() == [RunStatus("1.0", "lost", why="its agent has no trace of it any more")]


def test_a_part_that_only_waited_is_told_again_to_the_next_agent(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "waiting")
    agent.parts.clear()
    agent.session += 1
    assert [launch.run for launch in agent.sync().launch] == ["1.0"]


def test_late_reports_are_not_believed(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "ended")
    world.told()
    agent.parts.clear()
    agent.sync(number=1)
    assert world.told() == []


def test_a_node_has_one_agent(world):
    first = world.agent("a", "n0")
    second = FakeAgent(world, "b", ["n0"])
    assert "belongs to the agent 'a'" in second.sync().error
    world.later(61.0)
    assert second.sync().error == ""
    assert "belongs to the agent 'b'" in first.sync().error


@pytest.mark.parametrize("spec", [NodeSpec("", 2), NodeSpec("n0", -1)])
def test_a_node_that_makes_no_sense(world, spec):
    agent = world.agent("a", "n1")
    assert "makes no sense" in agent.sync(nodes=(AgentNode(spec),)).error


def test_leaving_is_told_at_once(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "running")
    world.told()
    agent.sync(leaving=True)
    assert world.told() == [NodeStatus("n0", "silent", why="it leaves")]
    agent.says("1.0", "lost", why="its node left")
    world.told()
    agent.sync(leaving=True, left=True)
    assert world.told() == [NodeStatus("n0", "lost", why="left")]
    agent.sync(leaving=True)  # sent before, heard after
    assert world.told() == []
    agent.session += 1
    agent.sync()
    assert world.told() == [NodeStatus("n0", "up", NodeSpec("n0", 2))]


def test_measured_values_are_passed_on(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "running")
    world.told()
    values = PartMeasured("1.0", {"loss": 0.5}), PartMeasured("9.9", {"loss": 0.1})
    agent.sync(measured=values)
    assert world.told() == [RunMetrics("1.0", {"loss": 0.5})]


def test_a_long_poll_ends_when_there_is_something(world):
    agent = world.agent("a", "n0")
    world.driver._fleet.silent_s = 3000.0
    got = []
    thread = threading.Thread(target=lambda: got.append(agent.sync(wait_s=900.0)))
    thread.start()
    world.driver.launch(order("1.0"))
    thread.join(300.0)
    assert not thread.is_alive()
    assert [launch.run for launch in got[0].launch] == ["1.0"]


def test_output_comes_through_the_agents_report(world, monkeypatch):
    agent = world.agent("a", "n0")
    text = b"0123456789"

    def answer(stop):
        pieces = ()
        while not stop.is_set():
            orders = agent.sync(logs=pieces, wait_s=0.05)
            pieces = tuple(
                LogPiece(r.id, text[r.offset : r.offset + r.limit], 0, len(text))
                for r in orders.logs
            )

    stop = threading.Event()
    thread = threading.Thread(target=answer, args=(stop,))
    thread.start()
    try:
        assert world.driver.read_log("1", "out", 0, 2, 3) == b"234"
        assert world.driver.read_log("1", "out", 0, 10, 3) == b""
        assert world.driver.log_range("1", "out", 0) == (0, 10)
    finally:
        stop.set()
        thread.join()
    monkeypatch.setattr("rota.live.drivers.local.driver.LOG_TIMEOUT_S", 0.05)
    with pytest.raises(ClusterError, match="does not answer"):
        world.driver.read_log("1", "out", 0, 0, 3)


def test_the_listener_hears_everything_in_order(world):
    told = Told()
    world.driver.open(told)
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "ended", ran=True)
    assert told.end("1.0").code == 0
    assert [m.state for m in told.messages] == ["up", "running", "ended"]
    world.driver.close()
    with pytest.raises(UnavailableError, match="stopping"):
        agent.sync()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"agent": 1}', b"\xff"])
def test_what_is_no_report_is_refused(world, body):
    with pytest.raises(InputError, match="not the report of an agent"):
        world.driver.sync_json(body, "nodes")
    assert world.told() == []


def test_times_must_make_sense():
    with pytest.raises(OptionError, match="silent_s"):
        AgentDriver(silent_s=10.0, lost_s=10.0)


# --- whose clock measures a run -------------------------------------------------------------------


def clock_of(world, monkeypatch):
    """Let the server's clock be scripted, too: 1,000 s ahead of the world's."""
    monkeypatch.setattr("rota.live.drivers.local.driver.boot_time_s", lambda: world.now_s + 1000.0)


def test_the_times_of_a_run_are_the_agents_on_the_clock_of_the_server(world, monkeypatch):
    clock_of(world, monkeypatch)
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    world.told()
    key = PartKey("1.0", 0)
    world.now_s = 130.0  # the agent was out of reach: its clock shows 7.5 now, and it began at 5
    agent.parts[key] = PartStatus(key, "running", ran=True, began_s=5.0)
    agent.sync(clock_s=7.5)
    assert world.told() == [RunStatus("1.0", "running", began_s=1130.0 - 2.5)]
    world.now_s = 175.0  # this report was under way for two seconds: the run is no longer for that
    agent.parts[key] = PartStatus(key, "ended", ran=True, began_s=5.0, ended_s=15.0)
    agent.sync(clock_s=50.5)
    assert world.told() == [RunStatus("1.0", "ended", began_s=1127.5, ended_s=1137.5)]


def test_a_run_begins_and_ends_with_the_last_of_its_parts(world, monkeypatch):
    clock_of(world, monkeypatch)
    first, second = world.agent("a", "n0"), world.agent("b", "n1")
    world.driver.launch(order("1.0", parts=TWO))
    world.told()
    for agent, rank, began_s, ended_s in ((first, 0, 10.0, 20.0), (second, 1, 12.0, 15.0)):
        key = PartKey("1.0", rank)
        times = {"began_s": began_s, "ended_s": ended_s}
        agent.parts[key] = PartStatus(key, "ended", ran=True, **times)
        agent.sync(clock_s=100.0)
    began, ended = world.told()
    assert (began.began_s, ended.began_s, ended.ended_s) == (1012.0, 1012.0, 1020.0)


def test_a_lost_node_was_at_work_until_it_was_heard_last(world, monkeypatch):
    clock_of(world, monkeypatch)
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "running")
    world.told()
    world.later(61.0)
    lost, node = world.told()
    assert (lost.state, lost.ended_s, node.state) == ("lost", 1100.0, "lost")


def test_an_agent_of_an_older_version_says_no_times(world):
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    world.told()
    agent.says("1.0", "ended", began_s=1.0, ended_s=2.0)
    assert [status.ended_s for status in world.told()] == [None, None]


def test_output_on_a_silent_machine_is_an_error_at_once(world, monkeypatch):
    """Readers that wait for a machine that hangs would hold up all others."""
    monkeypatch.setattr("rota.live.drivers.local.driver.LOG_TIMEOUT_S", 3600.0)
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "running")
    world.later(16.0)
    with pytest.raises(ClusterError, match="agent a is silent: try again later"):
        world.driver.read_log("1", "out", 0, 0, 10)


def test_one_bad_machine_does_not_make_the_daemon_unusable(world, caplog):
    agent = world.agent("a", "n0")
    agent.sync(trouble="its watch fails: OSError()")
    assert world.driver.trouble() == ""
    assert [record.why for record in caplog.records if record.message == "agent.trouble"] == [
        "its watch fails: OSError()"
    ]


def test_the_agent_of_this_machine_does(world, tmp_path):
    why = ""
    world.driver.embed("here", tmp_path, lambda: why)
    assert world.driver.trouble() == ""
    why = "it has been stuck for 31 s"
    assert world.driver.trouble() == "the agent here: it has been stuck for 31 s"


@pytest.mark.parametrize("values", [{f"v{i}": 1.0 for i in range(500)}, {"v" * 500: 1.0}])
def test_measures_that_cannot_be_are_dropped_and_the_rest_is_heard(world, values):
    """What one job reports must not cost all others of the machine their agent."""
    agent = world.agent("a", "n0")
    world.driver.launch(order("1.0"))
    agent.says("1.0", "running")
    world.told()
    key = PartKey("1.0", 0)
    agent.parts[key] = PartStatus(key, "ended", ran=True, code=3)
    assert not agent.sync(measured=(PartMeasured("1.0", values),)).error
    assert [message.state for message in world.told()] == ["ended"]


def test_a_claim_comes_after_the_conflict(world):
    claimed = []
    world.driver.claim = lambda nodes, token: claimed.append((*nodes, token)) or ""
    world.agent("a", "n0")
    other = FakeAgent(world, "b", ("n0",))
    assert "belongs to the agent 'a'" in other.sync().error
    assert claimed == [("n0", "nodes")]


def test_measures_and_output_come_from_the_machine_that_has_the_run(world, monkeypatch):
    monkeypatch.setattr("rota.live.drivers.local.driver.LOG_TIMEOUT_S", 300.0)
    mine, other = world.agent("a", "n0"), world.agent("b", "n1")
    world.driver.launch(order("1.0"))
    mine.says("1.0", "running")
    world.told()
    other.sync(measured=(PartMeasured("1.0", {"loss": 0.1}),))
    assert world.told() == []
    reader = threading.Thread(
        target=lambda: read.append(world.driver.read_log("1", "out", 0, 0, 9))
    )
    read = []
    reader.start()
    while not (asked := mine.sync().logs):
        pass
    other.sync(logs=(LogPiece(asked[0].id, b"forged", 0, 6),))
    while asked:
        asked = mine.sync(logs=tuple(LogPiece(each.id, b"true", 0, 4) for each in asked)).logs
        while reader.is_alive() and not asked:
            asked = mine.sync().logs
    reader.join(300)
    assert read == [b"true"]


@pytest.mark.parametrize(
    "fields",
    [
        {"nodes": (AgentNode(NodeSpec("n0", -1)),)},
        {"nodes": (AgentNode(NodeSpec("n0", 2, cpus=-1.0)),)},
        {"nodes": (AgentNode(NodeSpec("n0", 2, mem_gib=1e300)),)},
        {"nodes": (AgentNode(NodeSpec("../n0", 2)),)},
        {"nodes": (AgentNode(NodeSpec("n" * 300, 2)),)},
        {"nodes": (AgentNode(NodeSpec("n0", 1), devices=("0", "1")),)},
        {"nodes": (AgentNode(NodeSpec("n0", 1, labels=("x",) * 500)),)},
        {"trouble": "x" * 5000},
    ],
)
def test_values_that_cannot_be_are_refused(world, fields):
    agent = world.agent("a", "n0")
    world.told()
    assert agent.sync(**fields).error
    assert world.told() == []
