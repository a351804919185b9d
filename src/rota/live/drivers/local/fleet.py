"""The agents that a server knows, and the nodes that they speak for."""

import logging
from collections import deque
from typing import NamedTuple

from rota.live.agent.messages import (
    AgentNode,
    AgentReport,
    LogRequest,
    PartKey,
    PartStatus,
)
from rota.live.driver import NodeStatus

log = logging.getLogger("rota.driver")


class KnownAgent:
    """What an agent said last."""

    def __init__(self, agent: str) -> None:
        self.id = agent
        self.name = agent
        self.heard_s = 0.0
        self.behind_s: float | None = None  # its `boot_time_s`, against ours
        self.session = self.number = -1
        self.jobs = ""
        self.nodes: dict[str, AgentNode] = {}
        self.parts: dict[PartKey, PartStatus] = {}
        self.requests: deque[LogRequest] = deque()
        self.state = "new"
        self.left = -1  # the session that said goodbye
        self.trouble = ""
        self.unhealthy: str | None = None  # None: no check was made
        self.without: list[str] = []  # runs of which this session found no trace


class AgentPicture(NamedTuple):
    """An agent as whoever restarts it sees it; `without`: runs that this session did not find."""

    id: str
    session: int
    nodes: tuple[str, ...]
    without: tuple[str, ...]
    is_up: bool
    embedded: bool


class AgentFleet:
    """Who is there? Time is given by the caller.

    An agent that was not heard of for `silent_s` seconds makes its nodes silent; after `lost_s`
    they are lost. `embedded` agents live in this process: they are never lost. `reopens`: nodes on
    which a check has nothing to say any more are used again.
    """

    def __init__(self, silent_s: float, lost_s: float) -> None:
        self.silent_s = silent_s
        self.lost_s = lost_s
        self.reopens = True
        self.agents: dict[str, KnownAgent] = {}
        self.embedded: set[str] = set()
        self._owners: dict[str, str] = {}  # node -> agent
        self._expected: dict[str, float] = {}  # node -> since when
        self._missed: set[str] = set()  # of these: reported as silent

    def agent_of(self, node: str) -> KnownAgent | None:
        """The agent that speaks for a node."""
        return self.agents.get(self._owners.get(node, ""))

    def address_of(self, node: str) -> str:
        """Where a node can be reached; empty if that is not known yet."""
        agent = self.agent_of(node)
        return agent.nodes[node].address if agent is not None else ""

    def is_lost(self, node: str) -> bool:
        """Was it given up?"""
        agent = self.agent_of(node)
        return agent is not None and agent.state == "lost"

    def expect(self, node: str, now_s: float) -> None:
        """It should be there: give it the full time to say so."""
        if node not in self._owners:
            self._expected.setdefault(node, now_s)

    def conflict(self, report: AgentReport) -> str:
        """Why this agent cannot have its nodes; empty if it can."""
        for node in report.nodes:
            owner = self.agent_of(node.spec.name)
            if owner is not None and owner.id != report.agent and owner.state != "lost":
                return (
                    f"node {node.spec.name!r} belongs to the agent {owner.name!r}, which is alive: "
                    f"give this one another name"
                )
        return ""

    def hear(
        self, report: AgentReport, now_s: float, clock_s: float = 0.0
    ) -> list[NodeStatus] | None:
        """Take over a report; news of nodes, None if a later report came before.

        `clock_s`: our `boot_time_s`.
        """
        agent = self.agents.setdefault(report.agent, KnownAgent(report.agent))
        late = (report.session, report.number) <= (agent.session, agent.number)
        if late or report.session == agent.left:
            return None
        agent.heard_s = now_s
        if report.session != agent.session:
            agent.without = []
        agent.session, agent.number = report.session, report.number
        agent.name, agent.jobs = report.name, report.jobs
        if report.trouble != agent.trouble:
            agent.trouble = report.trouble
            log.warning("agent.trouble", extra={"agent": agent.name, "why": agent.trouble})
        agent.behind_s = None if report.clock_s is None else clock_s - report.clock_s
        agent.parts = {part.key: part for part in report.parts}
        before = agent.nodes
        agent.nodes = {node.spec.name: node for node in report.nodes}
        gone = [
            NodeStatus(name, "lost", why=f"agent {agent.name} no longer has it")
            for name in before
            if name not in agent.nodes
        ]
        for status in gone:
            self._owners.pop(status.node, None)
        for name in agent.nodes:
            self._owners[name] = agent.id
            self._expected.pop(name, None)
            self._missed.discard(name)
        if report.left:
            agent.left = report.session
            return gone + self._turn(agent, "lost", "left")
        if report.leaving:
            return gone + self._turn(agent, "silent", "it leaves")
        return gone + self._up(agent, before) + self._health(agent, report.unhealthy)

    def _up(self, agent: KnownAgent, before: dict[str, AgentNode]) -> list[NodeStatus]:
        returned = agent.state != "up"
        agent.state = "up"
        return [
            NodeStatus(name, "up", node.spec)
            for name, node in agent.nodes.items()
            if returned or before.get(name) != node
        ]

    def _health(self, agent: KnownAgent, said: str | None) -> list[NodeStatus]:
        """What a check says of its nodes; bad news again and again: a node may just have joined."""
        before, agent.unhealthy = agent.unhealthy, said
        if said:
            return [NodeStatus(name, "sick", why=said) for name in agent.nodes]
        if said is None or said == before:
            return []
        why = "" if self.reopens else "its health check (it is well again)"
        return [NodeStatus(name, "well", why=why) for name in agent.nodes]

    def _turn(self, agent: KnownAgent, state: str, why: str) -> list[NodeStatus]:
        if agent.state == state:
            return []
        agent.state = state
        if state == "lost":
            return [NodeStatus(name, "lost", why=why) for name in agent.nodes]
        return [NodeStatus(name, "silent", why=why) for name in agent.nodes]

    def check(self, now_s: float) -> list[NodeStatus]:
        """Who was not heard of for too long?"""
        news: list[NodeStatus] = []
        for agent in self.agents.values():
            quiet_s = now_s - agent.heard_s
            if agent.id in self.embedded or agent.state == "lost":
                continue
            if quiet_s >= self.lost_s:
                news += self._turn(agent, "lost", f"not heard of for {quiet_s:.0f} s")
            elif quiet_s >= self.silent_s and agent.state == "up":
                news += self._turn(agent, "silent", f"not heard of for {quiet_s:.0f} s")
        for node, since_s in list(self._expected.items()):
            if now_s - since_s >= self.lost_s:
                del self._expected[node]
                self._missed.discard(node)
                news.append(NodeStatus(node, "lost", why="it did not come back"))
            elif now_s - since_s >= self.silent_s and node not in self._missed:
                self._missed.add(node)
                news.append(NodeStatus(node, "silent", why="it has not come back yet"))
        return news
