"""Rolling restarts: one agent after the other, kept step by step."""

import pytest

from rota.core.errors import ConflictError, NotFoundError, UnavailableError
from rota.daemon.restarts import RollingRestart
from rota.live.drivers.local.fleet import AgentPicture
from rota.wire import Actor, NewRestart, NodeInfo

OLGA = Actor("olga", "operator")


class Facts:
    """A store that can be full."""

    def __init__(self):
        self.kept, self.full = {}, False

    def fact(self, name, first):
        return self.kept.setdefault(name, first)

    def change_fact(self, name, value):
        if self.full:
            raise UnavailableError("the disk is full")
        self.kept[name] = value


class Agents:
    """Agents that begin anew when they are let."""

    def __init__(self, *nodes):
        self.known = {
            node: AgentPicture(f"a-{node}", 1, (node,), (), True, False) for node in nodes
        }
        self.orders = {}

    def agents(self):
        return list(self.known.values())

    def restart_agent(self, agent, session):
        self.orders[agent] = session

    def asked(self):
        return [n for n, a in self.known.items() if self.orders.get(a.id) == a.session]

    def back(self, node, **what):
        before = self.known[node]
        self.known[node] = before._replace(session=before.session + 1, **what)

    def change(self, node, **what):
        self.known[node] = self.known[node]._replace(**what)


class Nodes:
    """Nodes with jobs; those in `by` are drained, by whom."""

    def __init__(self, *names):
        self.jobs = {name: [] for name in names}
        self.by, self.deadlines, self.down, self.busy = {}, {}, set(), False

    def nodes(self):
        return [self.picture(name) for name in self.jobs]

    def picture(self, name):
        drained = "draining" if self.jobs[name] else "drained"
        state = drained if name in self.by else "down" if name in self.down else "up"
        return NodeInfo(name=name, state=state, gpus=1, free_gpus=1.0, jobs=list(self.jobs[name]))

    def drain(self, node, actor, *, stop=False, deadline_s=None):
        if self.busy:
            raise UnavailableError("the daemon is busy")
        if node not in self.by or deadline_s is not None:
            self.by[node], self.deadlines[node] = actor.name, deadline_s
        return self.picture(node)

    def undrain(self, node, actor):
        self.by.pop(node, None)
        return self.picture(node)


class Play:
    def __init__(self, *nodes):
        self.agents, self.facts, self.notes, self.now_s = Agents(*nodes), Facts(), [], 0.0
        self.nodes = Nodes(*nodes)
        self.start()

    def start(self):
        self.restart = RollingRestart(
            self.agents, self.nodes, self.facts, self.notes.append, lambda: self.now_s
        )

    def states(self):
        return [each.state for each in self.restart.progress().nodes]


def test_one_after_the_other():
    play = Play("n0", "n1", "n2")
    play.restart.begin(NewRestart(reason="0.4"), OLGA)
    for number, node in enumerate(["n0", "n1", "n2"]):
        play.restart.step()
        play.restart.step()
        assert play.agents.asked() == [node]
        assert play.states().count("done") == number
        play.agents.back(node)
    play.restart.step()
    assert play.restart.progress().state == "done"
    assert play.agents.asked() == []
    assert play.notes == [
        "rolling restart of 3 agents begun by olga (0.4): n0, n1, n2",
        "the agent of node n0 was restarted",
        "the agent of node n1 was restarted",
        "the agent of node n2 was restarted",
        "rolling restart of 3 agents is done",
    ]


def test_as_many_as_may_be_away():
    play = Play("n0", "n1", "n2")
    play.restart.begin(NewRestart(max_unavailable=2), OLGA)
    play.restart.step()
    assert play.agents.asked() == ["n0", "n1"]
    play.agents.back("n1")
    play.restart.step()
    assert play.agents.asked() == ["n0", "n2"]


def test_who_does_not_come_back_stops_it_all():
    play = Play("n0", "n1")
    play.restart.begin(NewRestart(timeout_s=60.0), OLGA)
    play.restart.step()
    play.agents.change("n0", is_up=False)
    play.now_s = 60.0
    play.restart.step()
    assert play.states() == ["restarting", "waiting"]
    play.now_s = 61.0
    play.restart.step()
    told = play.restart.progress()
    assert (told.state, play.states()) == ("failed", ["failed", "skipped"])
    assert "node n0: its agent did not come back within 1m 00s" in told.why
    assert play.agents.asked() == []  # also if it comes back late
    play.restart.step()
    assert play.notes[-1].startswith("rolling restart failed: node n0")


def test_an_agent_that_lost_a_run_stops_it_all():
    play = Play("n0", "n1")
    play.restart.begin(NewRestart(), OLGA)
    play.restart.step()
    play.agents.back("n0", without=("7.0",))
    play.restart.step()
    assert play.restart.progress().why == "node n0: its agent came back without run 7.0"


@pytest.mark.parametrize("came", ["before", "after"])
def test_the_next_daemon_goes_on(came):
    """The agent began anew while there was no daemon, or is told again."""
    play = Play("n0", "n1")
    play.restart.begin(NewRestart(nodes=["n1", "n0"]), OLGA)
    play.restart.step()
    assert play.agents.asked() == ["n1"]
    known = play.agents
    play.agents = Agents()  # nobody was heard of yet
    play.now_s = 1e6
    play.start()
    play.restart.step()
    assert play.states() == ["restarting", "waiting"]
    assert play.agents.orders == {"a-n1": 1}
    play.agents.known = known.known
    if came == "after":
        play.restart.step()
        assert play.agents.asked() == ["n1"]
    play.agents.back("n1")
    play.restart.step()
    assert play.agents.asked() == ["n0"]
    play.agents.back("n0")
    play.restart.step()
    assert play.restart.progress().state == "done"


def test_nobody_is_asked_before_it_is_kept():
    play = Play("n0")
    play.restart.begin(NewRestart(), OLGA)
    play.facts.full = True
    with pytest.raises(UnavailableError):
        play.restart.step()
    assert play.agents.asked() == []
    play.facts.full = False
    play.restart.step()
    assert play.agents.asked() == ["n0"]


def test_an_agent_that_is_away_when_its_turn_comes():
    play = Play("n0", "n1")
    play.restart.begin(NewRestart(timeout_s=60.0), OLGA)
    play.agents.change("n0", is_up=False)
    play.restart.step()
    assert play.states() == ["waiting", "waiting"]
    play.now_s = 61.0
    play.restart.step()
    assert "its agent was not in contact within" in play.restart.progress().why


def test_it_can_be_given_up():
    play = Play("n0", "n1")
    with pytest.raises(NotFoundError, match="rota nodes restart --all"):
        play.restart.progress()
    play.restart.begin(NewRestart(), OLGA)
    with pytest.raises(ConflictError, match="a rolling restart by olga is going on"):
        play.restart.begin(NewRestart(), OLGA)
    assert play.restart.give_up(OLGA).state == "stopped"
    assert play.restart.give_up(OLGA).why == "stopped by olga"
    play.restart.step()
    assert play.agents.asked() == []
    assert play.restart.begin(NewRestart(), OLGA).state == "going"


def test_what_cannot_be_restarted_is_said():
    play = Play("n0", "n1", "n2")
    play.agents.change("n0", embedded=True)
    play.agents.change("n1", is_up=False)
    with pytest.raises(ConflictError, match="node n0 is a part of the daemon"):
        play.restart.begin(NewRestart(nodes=["n0"]), OLGA)
    with pytest.raises(ConflictError, match="node n1: its agent is not in contact"):
        play.restart.begin(NewRestart(nodes=["n2", "n1"]), OLGA)
    assert [n.node for n in play.restart.begin(NewRestart(), OLGA).nodes] == ["n2"]
    play.agents.known.pop("n2")
    play.restart.give_up(OLGA)
    with pytest.raises(ConflictError, match="no agent in contact"):
        play.restart.begin(NewRestart(), OLGA)


def test_who_was_asked_before_it_was_given_up_may_still_come_back():
    play = Play("n0", "n1", "n2")
    play.restart.begin(NewRestart(max_unavailable=2, timeout_s=60.0), OLGA)
    play.restart.step()
    told = play.restart.give_up(OLGA)
    assert [each.state for each in told.nodes] == ["stopped", "stopped", "skipped"]
    assert told.nodes[0].why == "it was asked before, and may still restart"
    play.start()  # in the next daemon, too
    play.agents.back("n0")
    play.restart.step()
    assert play.states() == ["done", "stopped", "skipped"]
    play.now_s = 61.0
    play.agents.back("n1")  # for another reason: nobody waits for it any more
    play.restart.step()
    assert play.states() == ["done", "stopped", "skipped"]
    assert play.restart.progress().state == "stopped"


def test_each_is_drained_before():
    play = Play("n0", "n1")
    play.nodes.jobs.update(n0=["1", "2"], n1=["3"])
    play.restart.begin(NewRestart(drain=True), OLGA)
    assert play.notes == ["rolling restart of 2 agents begun by olga, each drained before: n0, n1"]
    play.restart.step()
    play.restart.step()
    assert play.nodes.by == {"n0": "olga (rolling restart)"}
    assert play.nodes.deadlines == {"n0": None}
    first = play.restart.progress().nodes[0]
    assert (first.state, first.why) == ("draining", "2 jobs there: 1, 2")
    play.now_s = 1e6  # however long it takes
    play.restart.step()
    assert play.agents.asked() == []
    play.nodes.jobs["n0"] = []
    play.restart.step()
    assert play.agents.asked() == ["n0"]
    assert set(play.nodes.by) == {"n0"}  # nothing is started there meanwhile
    play.agents.back("n0")
    play.restart.step()
    assert play.states() == ["done", "draining"]
    assert set(play.nodes.by) == {"n1"}


def test_a_node_that_was_drained_by_somebody_else_stays_so():
    play = Play("n0", "n1")
    play.nodes.by["n0"] = "ann"
    play.nodes.down.add("n1")  # the agent is there, its node has not come
    play.restart.begin(NewRestart(drain=True), OLGA)
    for node in ("n0", "n1"):
        play.restart.step()
        play.agents.back(node)
    play.restart.step()
    assert play.restart.progress().state == "done"
    assert play.nodes.by == {"n0": "ann"}


def test_a_node_that_is_opened_meanwhile_is_drained_again():
    play = Play("n0")
    play.nodes.jobs["n0"] = ["1"]
    play.restart.begin(NewRestart(drain=True), OLGA)
    play.restart.step()
    play.nodes.by.clear()
    play.nodes.jobs["n0"] = []
    play.restart.step()
    assert play.agents.asked() == []  # a job may have been started since we looked
    assert "n0" in play.nodes.by
    play.restart.step()
    assert play.agents.asked() == ["n0"]


@pytest.mark.parametrize("killed", ["before the drain", "draining", "restarting", "back"])
def test_a_drain_outlives_the_daemon(killed):
    """It is drained until its agent is back, and used again then, whoever was away."""
    play = Play("n0", "n1")
    play.nodes.jobs["n0"] = ["1"]
    play.restart.begin(NewRestart(drain=True, deadline_s=3600.0), OLGA)
    if killed == "before the drain":
        play.nodes.busy = True
        with pytest.raises(UnavailableError):
            play.restart.step()
        play.nodes.busy = False
    else:
        play.restart.step()
        assert 0 < play.nodes.deadlines["n0"] <= 3600.0
    if killed in ("restarting", "back"):
        play.nodes.jobs["n0"] = []
        play.restart.step()
    if killed == "back":
        play.agents.back("n0")
    play.start()
    if killed in ("before the drain", "draining"):
        play.restart.step()
        assert play.states() == ["draining", "waiting"]
        assert 0 < play.nodes.deadlines["n0"] <= 3600.0
        play.nodes.jobs["n0"] = []
        play.restart.step()
    if killed != "back":
        assert set(play.nodes.by) == {"n0"}
        assert play.agents.asked() == ["n0"]
        play.agents.back("n0")
    play.restart.step()
    assert play.states() == ["done", "draining"]
    assert set(play.nodes.by) == {"n1"}


def test_what_was_drained_is_used_again_when_it_is_given_up():
    play = Play("n0", "n1", "n2")
    play.nodes.jobs["n1"] = ["1"]
    play.restart.begin(NewRestart(drain=True, max_unavailable=2), OLGA)
    play.restart.step()
    play.restart.step()
    assert play.states() == ["restarting", "draining", "waiting"]
    assert set(play.nodes.by) == {"n0", "n1"}
    told = play.restart.give_up(OLGA)
    assert [each.state for each in told.nodes] == ["stopped", "skipped", "skipped"]
    assert play.nodes.by == {}


def test_a_node_whose_agent_failed_stays_drained():
    play = Play("n0", "n1")
    play.restart.begin(NewRestart(drain=True, timeout_s=60.0), OLGA)
    play.restart.step()
    play.restart.step()
    play.agents.change("n0", is_up=False)
    play.now_s = 61.0
    play.restart.step()
    told = play.restart.progress()
    assert told.state == "failed"
    assert told.why.endswith("; n0 stays drained until `rota undrain n0`")
    assert set(play.nodes.by) == {"n0"}
