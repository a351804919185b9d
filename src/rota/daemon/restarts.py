"""Rolling restarts: agents begin anew one after the other, and no job notices.

    waiting --> restarting (kept: which session shall end) --> done, or failed: nothing more begins

An agent replaces its own program (the version that is installed by then) and takes over what runs
on its machine. Each step is kept before the agent hears of it, so that a daemon that is killed goes
on where it was: an agent that has a later session than the one that should end has been restarted.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

import msgspec

from rota.core.errors import ConflictError, NotFoundError
from rota.core.words import counted, duration
from rota.daemon.periodic import PeriodicThread
from rota.live.drivers.local.fleet import AgentPicture
from rota.wire import Actor, NewRestart, RestartedNode, RestartInfo

FACT = "restart"
NONE = "null"
LOOK_S = 0.25
NAMED = 5  # nodes in a line of the log


class RestartStep(msgspec.Struct):
    """One agent, by one of its nodes; `session`: the one that shall end."""

    node: str
    state: Literal["waiting", "restarting", "done", "failed"] = "waiting"
    agent: str = ""
    session: int = 0
    why: str = ""


class RestartRecord(msgspec.Struct):
    """What is kept."""

    by: str
    asked: NewRestart
    began: float
    steps: list[RestartStep]
    state: Literal["going", "done", "failed", "stopped"] = "going"
    ended: float | None = None
    why: str = ""


class RestartableAgents(Protocol):
    """The agents, as their driver knows them."""

    def agents(self) -> list[AgentPicture]:
        """Those that were heard of."""
        ...

    def restart_agent(self, agent: str, session: int) -> None:
        """Let this session of an agent end and another one begin; 0: not any more."""
        ...


class RestartFacts(Protocol):
    """Where the record is kept."""

    def fact(self, name: str, first: str) -> str:
        """What is kept under a name, or what is kept from now on."""
        ...

    def change_fact(self, name: str, value: str) -> None:
        """Replace it."""
        ...


class RollingRestart:
    """Restarts agents; safe from any thread. One at a time, and the last one is remembered.

    Args:
        agents: Those who can be restarted.
        facts: Where it is kept how far we are.
        note: Writes a line into the event log.
        clock: Seconds, to see who is away for too long.
    """

    def __init__(
        self,
        agents: RestartableAgents,
        facts: RestartFacts,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents = agents
        self._facts = facts
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        self._since_s: dict[str, float] = {}  # by node: when its turn came, in this life
        self.thread = PeriodicThread("restart", self.step, LOOK_S)
        kept = msgspec.json.decode(facts.fact(FACT, NONE), type=RestartRecord | None)
        self._record = kept
        for step in kept.steps if kept is not None and kept.state == "going" else ():
            if step.state == "restarting":
                agents.restart_agent(step.agent, step.session)

    # --- what people ask for ----------------------------------------------------------------------

    def begin(self, asked: NewRestart, actor: Actor) -> RestartInfo:
        """Restart the agents of these nodes, or all that are in contact."""
        with self._lock:
            if self._record is not None and self._record.state == "going":
                raise ConflictError(
                    f"a rolling restart by {self._record.by} is going on: see `rota nodes restart "
                    f"--status`, or end it with `rota nodes restart --stop`"
                )
            nodes = self._wanted(asked.nodes)
            steps = [RestartStep(node) for node in nodes]
            self._since_s = {}
            self._keep(RestartRecord(actor.name, asked, time.time(), steps))
            made = self._picture()
        shown = ", ".join(nodes[:NAMED]) + (", ..." if len(nodes) > NAMED else "")
        why = f" ({asked.reason})" if asked.reason else ""
        what = counted(len(nodes), "agent")
        self._note(f"rolling restart of {what} begun by {actor.name}{why}: {shown}")
        return made

    def progress(self) -> RestartInfo:
        """How far it is, or how the last one ended."""
        with self._lock:
            return self._picture()

    def give_up(self, actor: Actor) -> RestartInfo:
        """Restart no more; whoever was asked may still do it."""
        with self._lock:
            told = self._picture()
            if self._record is None or told.state != "going":
                return told
            record = _copied(self._record)
            _end(record, "stopped", f"stopped by {actor.name}")
            self._keep(record)
            told = self._picture()
        self._note(f"rolling restart stopped by {actor.name}")
        return told

    def _wanted(self, named: Iterable[str]) -> list[str]:
        """One node of each agent, in the order of the names; what cannot be restarted is said."""
        owners = {node: agent for agent in self._agents.agents() for node in agent.nodes}
        for name in named:
            agent = owners.get(name)
            if agent is not None and agent.embedded:
                raise ConflictError(
                    f"node {name} is a part of the daemon, which has no agent for it: restart the "
                    f"daemon (its jobs run on)"
                )
            if agent is None or not agent.is_up:
                raise ConflictError(
                    f"node {name}: its agent is not in contact, so it cannot be told: start it on "
                    f"its machine"
                )
        found: dict[str, str] = {}  # by agent
        for name in named or sorted(owners):
            agent = owners[name]
            if agent.is_up and not agent.embedded:
                found.setdefault(agent.id, name)
        if not found:
            raise ConflictError(
                "there is no agent in contact: nodes that are parts of the daemon are restarted "
                "with it"
            )
        return list(found.values())

    # --- one after the other ----------------------------------------------------------------------

    def step(self) -> None:
        """See who is back, and ask the next."""
        with self._lock:
            if self._record is None or self._record.state != "going":
                return
            record = _copied(self._record)  # what cannot be kept has not happened
            agents = self._agents.agents()
            told = self._look(record, {agent.id: agent for agent in agents})
            asked: list[RestartStep] = []
            if all(each.state != "failed" for each in record.steps):
                owners = {node: agent for agent in agents for node in agent.nodes}
                asked = self._next(record, owners)
            failed = next((each for each in record.steps if each.state == "failed"), None)
            if failed is not None:
                _end(record, "failed", f"node {failed.node}: {failed.why}")
                told.append(f"rolling restart failed: {record.why}")
            elif all(each.state == "done" for each in record.steps):
                _end(record, "done")
                told.append(f"rolling restart of {counted(len(record.steps), 'agent')} is done")
            if record != self._record:
                self._keep(record)
            for step in asked:
                self._agents.restart_agent(step.agent, step.session)
        for line in told:
            self._note(line)

    def _look(self, record: RestartRecord, agents: dict[str, AgentPicture]) -> list[str]:
        """Who is back, and who is away for too long; what to tell."""
        told = []
        for step in record.steps:
            if step.state == "restarting":
                agent = agents.get(step.agent)
                if agent is not None and agent.session > step.session and agent.is_up:
                    if agent.without:
                        step.state = "failed"
                        step.why = f"its agent came back without run {agent.without[0]}"
                    else:
                        step.state = "done"
                        told.append(f"the agent of node {step.node} was restarted")
                else:
                    self._check_patience(record, step, "its agent did not come back")
        return told

    def _check_patience(self, record: RestartRecord, step: RestartStep, what: str) -> None:
        since_s = self._since_s.setdefault(step.node, self._clock())
        limit_s = record.asked.timeout_s
        if self._clock() - since_s > limit_s:
            step.state = "failed"
            step.why = (
                f"{what} within {duration(limit_s)}: see its log on that machine (an agent of a "
                f"version before this one does not restart by itself)"
            )

    def _next(self, record: RestartRecord, owners: dict[str, AgentPicture]) -> list[RestartStep]:
        """Whose turn it is: as many as may be away."""
        away = sum(step.state == "restarting" for step in record.steps)
        waiting = [step for step in record.steps if step.state == "waiting"]
        asked = []
        for step in waiting[: max(0, record.asked.max_unavailable - away)]:
            agent = owners.get(step.node)
            if agent is None or not agent.is_up:  # a daemon that has just begun has not heard all
                self._check_patience(record, step, "its agent was not in contact")
                continue
            step.state, step.agent, step.session = "restarting", agent.id, agent.session
            self._since_s[step.node] = self._clock()
            asked.append(step)
        return asked

    def _keep(self, record: RestartRecord) -> None:
        self._facts.change_fact(FACT, msgspec.json.encode(record).decode())
        self._record = record
        if record.state != "going":  # an agent that comes back late is left alone
            for step in record.steps:
                if step.agent:
                    self._agents.restart_agent(step.agent, 0)

    def _picture(self) -> RestartInfo:
        record = self._record
        if record is None:
            raise NotFoundError(
                "no rolling restart was begun here: `rota nodes restart --all` begins one"
            )
        return RestartInfo(
            state=record.state,
            nodes=[
                RestartedNode(node=step.node, state=step.state, why=step.why)
                for step in record.steps
            ],
            began=record.began,
            ended=record.ended,
            why=record.why,
            max_unavailable=record.asked.max_unavailable,
            timeout_s=record.asked.timeout_s,
            reason=record.asked.reason,
            by=record.by,
        )


def _end(record: RestartRecord, state: Literal["done", "failed", "stopped"], why: str = "") -> None:
    record.state, record.ended, record.why = state, time.time(), why


def _copied(record: RestartRecord) -> RestartRecord:
    return msgspec.json.decode(msgspec.json.encode(record), type=RestartRecord)
