"""Rolling restarts: agents begin anew one after the other, and no job notices.

    waiting --> draining (if asked for) --> restarting (kept: which session shall end)
            --> done, or failed: nothing more begins

An agent replaces its own program (the version that is installed by then) and takes over what runs
on its machine. Each step is kept before the agent hears of it, so that a daemon that is killed goes
on where it was: an agent that has a later session than the one that should end has been restarted.
Nodes that are drained for it are used again when their agent is back, or when it all is given up;
those that somebody else had drained stay so.
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
from rota.wire import OPERATOR, Actor, NewRestart, NodeInfo, RestartedNode, RestartInfo

FACT = "restart"
NONE = "null"
LOOK_S = 0.25
NAMED = 5  # nodes in a line of the log

StepState = Literal["waiting", "draining", "restarting", "done", "failed", "skipped", "stopped"]


class RestartStep(msgspec.Struct):
    """One agent, by one of its nodes; `session`: the one that shall end.

    `stopped`: it was asked when all was given up, and may still do it. `skipped`: never asked.
    """

    node: str
    state: StepState = "waiting"
    agent: str = ""
    session: int = 0
    why: str = ""
    drained: list[str] = []  # its nodes that are drained for this, and for nothing else
    clear_at: float | None = None  # Unix seconds: what still runs there then is preempted


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


class DrainableNodes(Protocol):
    """The nodes, as operators see them."""

    def nodes(self) -> list[NodeInfo]:
        """All of them."""
        ...

    def drain(
        self, node: str, actor: Actor, *, stop: bool = False, deadline_s: float | None = None
    ) -> NodeInfo:
        """Start nothing more there; preempt what runs there at the deadline, if there is one."""
        ...

    def undrain(self, node: str, actor: Actor) -> NodeInfo:
        """Use it again."""
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
        nodes: Where nothing shall run meanwhile, if that is asked for.
        facts: Where it is kept how far we are.
        note: Writes a line into the event log.
        clock: Seconds, to see who is away for too long.
    """

    def __init__(
        self,
        agents: RestartableAgents,
        nodes: DrainableNodes,
        facts: RestartFacts,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents = agents
        self._nodes = nodes
        self._facts = facts
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        self._since_s: dict[str, float] = {}  # by node: when its turn came, in this life
        self._told_to_drain: set[str] = set()  # nodes, in this life
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
            self._since_s, self._told_to_drain = {}, set()
            self._keep(RestartRecord(actor.name, asked, time.time(), steps))
            made = self._picture()
        why = f" ({asked.reason})" if asked.reason else ""
        why += ", each drained before" if asked.drain else ""
        what = counted(len(nodes), "agent")
        self._note(f"rolling restart of {what} begun by {actor.name}{why}: {_shown(nodes)}")
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
            self._close(record, "stopped", f"stopped by {actor.name}")
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
        for part in (self._see, self._go_on):
            for line in part():
                self._note(line)

    def _see(self) -> list[str]:
        """Who is back, or away for too long."""
        with self._lock:
            if self._record is None or not any(map(self._is_awaited, self._record.steps)):
                return []
            record = _copied(self._record)  # what cannot be kept has not happened
            told = self._look(record, {agent.id: agent for agent in self._agents.agents()})
            if record != self._record:
                self._keep(record)
            return told

    def _go_on(self) -> list[str]:
        """Ask the next, or end it all."""
        told = []
        with self._lock:
            if self._record is None or self._record.state != "going":
                return []
            record = _copied(self._record)
            asked: list[RestartStep] = []
            if all(each.state != "failed" for each in record.steps):
                agents = self._agents.agents()
                asked = self._next(record, {node: each for each in agents for node in each.nodes})
            failed = next((each for each in record.steps if each.state == "failed"), None)
            if failed is not None:
                self._close(record, "failed", f"node {failed.node}: {failed.why}")
                told.append(f"rolling restart failed: {record.why}")
            elif all(each.state == "done" for each in record.steps):
                self._close(record, "done")
                told.append(f"rolling restart of {counted(len(record.steps), 'agent')} is done")
            if record != self._record:
                self._keep(record)
            for step in asked:
                self._agents.restart_agent(step.agent, step.session)
        return told

    def _is_awaited(self, step: RestartStep) -> bool:
        """It was asked; after the end of it all it may still come back for a while."""
        if step.state == "stopped" and self._record is not None:
            since_s = self._since_s.setdefault(step.node, self._clock())
            return self._clock() - since_s <= self._record.asked.timeout_s
        return step.state == "restarting"

    def _look(self, record: RestartRecord, agents: dict[str, AgentPicture]) -> list[str]:
        """Who is back, and who is away for too long; what to tell."""
        told = []
        for step in record.steps:
            if not self._is_awaited(step):
                continue
            agent = agents.get(step.agent)
            if agent is not None and agent.session > step.session and agent.is_up:
                if agent.without:
                    step.state = "failed"
                    step.why = f"its agent came back without run {agent.without[0]}"
                else:
                    step.state, step.why = "done", ""
                    self._use_again(record, step)
                    told.append(f"the agent of node {step.node} was restarted")
            elif step.state == "restarting":
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
        """Whose turn it is: as many as may be away, or be drained."""
        away = sum(step.state in ("draining", "restarting") for step in record.steps)
        waiting = [step for step in record.steps if step.state == "waiting"]
        turn = waiting[: max(0, record.asked.max_unavailable - away)]
        ready = []
        for step in record.steps:
            if step.state != "draining" and not any(step is each for each in turn):
                continue
            agent = owners.get(step.node)
            if agent is None or not agent.is_up:  # a daemon that has just begun has not heard all
                self._check_patience(record, step, "its agent was not in contact")
                continue
            self._since_s.pop(step.node, None)
            if not record.asked.drain or self._is_empty(record, step, agent.nodes):
                ready.append((step, agent))
        for step, agent in ready:  # at the end: what is kept for a drain says nothing of it
            step.state, step.agent, step.session = "restarting", agent.id, agent.session
            self._since_s[step.node] = self._clock()
        return [step for step, _ in ready]

    def _is_empty(self, record: RestartRecord, step: RestartStep, names: Iterable[str]) -> bool:
        """Nothing runs on the nodes of an agent, and nothing will be started there."""
        if step.state == "waiting":
            within_s = record.asked.deadline_s
            step.state = "draining"
            step.clear_at = None if within_s is None else time.time() + within_s
        known = {node.name: node for node in self._nodes.nodes()}
        mine = [known[name] for name in names if name in known]
        step.drained += [
            node.name for node in mine if node.state == "up" and node.name not in step.drained
        ]
        if record != self._record:  # before it is done: else nobody would use them again
            self._keep(_copied(record))
        for node in mine:
            unsure = node.state in ("draining", "drained") and node.name not in self._told_to_drain
            if node.state == "up" or unsure:
                left_s = None if step.clear_at is None else max(0.0, step.clear_at - time.time())
                self._nodes.drain(node.name, _drainer(record), deadline_s=left_s)
                self._told_to_drain.add(node.name)
        jobs = list(dict.fromkeys(job for node in mine for job in (*node.jobs, *node.stopping)))
        step.why = f"{counted(len(jobs), 'job')} there: {_shown(jobs)}" if jobs else ""
        return not jobs and all(node.state != "up" for node in mine)

    def _use_again(self, record: RestartRecord, step: RestartStep) -> None:
        """Open the nodes that were drained for this restart, and that are still there."""
        known = {node.name for node in self._nodes.nodes()} if step.drained else set()
        for name in step.drained:
            if name in known:
                self._nodes.undrain(name, _drainer(record))
        step.drained = []

    def _close(
        self, record: RestartRecord, state: Literal["done", "failed", "stopped"], why: str = ""
    ) -> None:
        """Nothing more begins. A node whose agent failed stays as it is: somebody has to look."""
        record.state, record.ended, record.why = state, time.time(), why
        for step in record.steps:
            if step.state == "failed":
                if step.drained:
                    record.why += f"; {_stays(step.drained)}"
                continue
            self._use_again(record, step)
            if step.state in ("waiting", "draining"):
                step.state, step.why = "skipped", ""
            elif step.state == "restarting":
                step.state, step.why = "stopped", "it was asked before, and may still restart"

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
            drain=record.asked.drain,
            deadline_s=record.asked.deadline_s,
            reason=record.asked.reason,
            by=record.by,
        )


def _drainer(record: RestartRecord) -> Actor:
    """In whose name nodes are drained: people see it beside the node."""
    return Actor(f"{record.by} (rolling restart)", OPERATOR)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def _stays(nodes: list[str]) -> str:
    names = " ".join(nodes)
    return f"{names} {'stays' if len(nodes) == 1 else 'stay'} drained until `rota undrain {names}`"


def _copied(record: RestartRecord) -> RestartRecord:
    return msgspec.json.decode(msgspec.json.encode(record), type=RestartRecord)
