"""Servers that take turns: an agent obeys the newest leader it knows, and asks the next one."""

import httpx2
import pytest

from rota.core.errors import ClusterError
from rota.core.topology import NodeSpec
from rota.core.turns import LEADER, Turns
from rota.live.agent.agent import Agent
from rota.live.agent.messages import AgentOrders, AgentReport, PartKey
from rota.live.agent.transport import PATH, HttpTransport
from rota.live.drivers.local.driver import AgentDriver
from rota.live.drivers.local.embedded import nodes_here

A, B, C = "http://a:1", "http://b:2", "http://c:3"


def report(number, nodes=()):
    """Return the report of an agent."""
    return AgentReport(agent="agent", name="n0", session=1, number=number, nodes=tuple(nodes))


def test_a_former_leader_is_not_obeyed_also_after_a_restart(tmp_path):
    agent = Agent(tmp_path / "agent", nodes_here([NodeSpec("n0", 1)]), fenced=True)
    stale = AgentOrders(kill=(PartKey("1.0", 0),), lost_s=60.0, term=7)
    agent.obey(AgentOrders(term=7))
    agent.obey(AgentOrders(term=8))
    with pytest.raises(ClusterError, match="led in term 7, and term 8 has begun"):
        agent.obey(stale)
    assert agent.report().parts == ()
    agent.close()
    again = Agent(tmp_path / "agent", nodes_here([NodeSpec("n0", 1)]), fenced=True)
    with pytest.raises(ClusterError, match="term 7"):
        again.obey(stale)
    again.obey(AgentOrders())  # of a server that takes no turns
    again.close()


def test_a_driver_whose_lease_is_over_gives_no_orders():
    leads = [True]
    driver = AgentDriver(term=3, leads=lambda: leads[0])
    driver.adopt([], frozenset())
    node = nodes_here([NodeSpec("n0", 1)])
    assert driver.sync(report(1, node)).term == 3
    leads[0] = False
    with pytest.raises(Exception, match="does not lead any more"):
        driver.sync(report(2, node))


def test_the_next_one_is_asked_and_only_addresses_that_were_given():
    turns = Turns([A, B])
    turns.leave(A)
    assert turns.current == B
    turns.leave(A)  # by another thread: it is left already
    assert turns.current == B
    turns.leave(B, leader=C)
    assert turns.current == A
    turns.leave(A, leader=A)
    assert turns.current == A


def test_an_agent_finds_the_leader(tmp_path):
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("rota_x")
    asked = []

    def answer(request):
        asked.append(str(request.url))
        if request.url.host == "a":
            raise httpx2.ConnectError("refused")
        if request.url.host == "b":
            return httpx2.Response(421, json={"error": "x"}, headers={LEADER: C})
        return httpx2.Response(200, json={"term": 5})

    servers = f"{A},{B},http://d:4,{C}"
    transport = HttpTransport(servers, token, {"transport": httpx2.MockTransport(answer)})
    for _ in range(2):
        with pytest.raises(ClusterError) as failed:
            transport(report(1))
        assert failed.value.retryable
    assert transport(report(1)).term == 5
    assert transport(report(1)).term == 5
    assert asked == [A + PATH, B + PATH, C + PATH, C + PATH]
    transport.close()
