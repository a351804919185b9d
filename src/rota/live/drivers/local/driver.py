"""Executes runs through agents: what shall be, compared with what the agents report."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from rota.core.errors import (
    ClusterError,
    ConflictError,
    GoneError,
    InputError,
    NotFoundError,
    OptionError,
    UnavailableError,
)
from rota.live.agent.channels import ANSWER_S
from rota.live.agent.logs import read_piece
from rota.live.agent.messages import (
    HALT,
    KILL,
    OVER,
    WAIT_S,
    AgentOrders,
    AgentReport,
    LogPiece,
    LogRequest,
    PartKey,
    PartTerms,
    PartUsage,
)
from rota.live.calls import (
    CallAnswer,
    FileCall,
    LaneCall,
    LaneOrders,
    LaneReport,
    OpenChannel,
    PieceRequest,
    ReadChannel,
    RunCall,
    WriteChannel,
)
from rota.live.clock import boot_time_s
from rota.live.driver import (
    Capabilities,
    Driver,
    Listener,
    Message,
    NodeStatus,
    RunMetrics,
    RunOrder,
)
from rota.live.drivers.agent_run import AgentRun
from rota.live.drivers.local.fleet import AgentFleet, AgentPicture, KnownAgent
from rota.live.drivers.local.lane import CallLanes
from rota.live.drivers.local.outputs import Outputs

log = logging.getLogger("rota.driver")

SILENT_S, LOST_S = 15.0, 60.0
TICK_S = 1.0
LOG_TIMEOUT_S = 5.0


class AgentDriver(Driver):
    """Implements `Driver` for any number of agents.

    An agent calls `sync` again and again; everything else is the daemon's. State-based: each answer
    is the difference between what shall be and the agent's last report.

    *Fencing*: an agent that cannot be reached kills its jobs after 0.8 `lost_s`; after `lost_s`
    they are given up here, and may begin elsewhere. Whatever comes back later is killed.
    """

    name = "local"
    capabilities = Capabilities(channels=True, files=True, secrets=True, images=True, terms=True)

    def __init__(
        self,
        *,
        silent_s: float = SILENT_S,
        lost_s: float = LOST_S,
        claim: Callable[[Sequence[str], str], str] = lambda _nodes, _token: "",
        account: Callable[[RunOrder], tuple[str, bool]] = lambda _order: ("", True),
        term: int = 0,
        leads: Callable[[], bool] = lambda: True,
        reopens: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < silent_s < lost_s:
            raise OptionError(
                f"silent_s={silent_s:g}, lost_s={lost_s:g}: 0 < silent_s < lost_s must hold"
            )
        self._fleet = AgentFleet(silent_s, lost_s)
        self._fleet.reopens = reopens  # nodes that are well again
        self._clock = clock
        self._term = term  # of this leader, where several daemons take turns; 0: there is one
        self._leads = leads
        self.claim = claim  # may a token speak for these nodes? If not, why
        self.expired: Callable[[Sequence[str]], Sequence[str]] = lambda _: ()
        """Of which of these jobs nothing need be kept any more?"""
        self.on_usage: Callable[[Sequence[PartUsage]], None] = lambda _: None
        self.account = account  # whom a run shall run as, and is it the daemon's owner?
        self.pieces: Callable[[str, str], bytes] = _no_pieces  # what was sent for a job, by digest
        self.secrets: Callable[[RunOrder], Mapping[str, str]] = lambda _: {}  # values for a run
        self.separated = False  # True: agents that do not keep jobs apart are not wanted
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._runs: dict[str, AgentRun] = {}
        self._by_node: dict[str, set[PartKey]] = {}
        self._adopted = False
        self._closed = threading.Event()
        self._outbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._jobs_here: dict[str, Path] = {}  # of embedded agents
        self._asked_here: list[Callable[[], str]] = []
        self._called_here: dict[str, Callable[[LaneCall], CallAnswer]] = {}
        self._lanes = CallLanes()
        self._outputs = Outputs()
        self._requests = time.time_ns()  # an answer to the server before this one fits no request
        self._answers: dict[int, LogPiece | None] = {}
        self._asked: dict[int, str] = {}  # the agent of each request
        self._restarts: dict[str, int] = {}  # by agent: the session that shall end

    # --- the daemon's side ----------------------------------------------------------------------

    def open(self, listener: Listener) -> None:
        """Begin to tell the listener what happens."""
        self._thread = threading.Thread(
            target=self._tell, args=(listener,), name="rota-driver", daemon=True
        )
        self._thread.start()

    def embed(
        self,
        agent: str,
        jobs: Path,
        trouble: Callable[[], str] = str,
        call: Callable[[LaneCall], CallAnswer] | None = None,
    ) -> None:
        """This agent lives in our process: it is never lost, and its files can be read directly.

        `trouble` is asked for what it cannot report while it is stuck; `call` answers calls.
        """
        with self._lock:
            if call is not None:
                self._called_here[agent] = call
            self._fleet.embedded.add(agent)
            self._jobs_here[agent] = jobs
            self._asked_here.append(trouble)

    def expect(self, nodes: Iterable[str]) -> None:
        """These nodes were there before a restart: lost if they do not come back in time."""
        with self._lock:
            for node in nodes:
                self._fleet.expect(node, self._clock())

    def adopt(self, runs: Sequence[RunOrder], halting: frozenset[str]) -> None:
        """These runs shall exist; nothing else shall. To be called once, even with nothing."""
        with self._changed:
            for order in runs:
                self._enter(order).halting |= order.run in halting
            self._adopted = True
            for agent in self._fleet.agents.values():
                self._merge(agent)
            self._changed.notify_all()

    def launch(self, order: RunOrder) -> None:
        """Execute it; a run that is known already is not changed."""
        with self._changed:
            if order.run == f"{order.job}.0":
                self._outputs.begin(order.job)
            self._enter(order)
            self._changed.notify_all()

    def new_terms(self, order: RunOrder) -> None:
        """Its agents hear of them."""
        with self._changed:
            if order.run in self._runs:
                self._runs[order.run].renew(order)
                self._changed.notify_all()

    def halt(self, run: str) -> None:
        """Let it end gracefully."""
        with self._changed:
            if run in self._runs:
                self._runs[run].halting = True
                self._changed.notify_all()

    def kill(self, run: str) -> None:
        """End it at once."""
        with self._changed:
            if run in self._runs:
                self._runs[run].killing = True
                self._changed.notify_all()

    def forget(self, run: str) -> None:
        """Drop it; whatever of it is out there is removed."""
        with self._changed:
            record = self._runs.pop(run, None)
            if record is not None:
                for key, part in record.parts.items():
                    self._by_node[part.node].discard(key)
                self._changed.notify_all()

    def trouble(self) -> str:
        """What keeps the agent of this machine from watching its jobs.

        Others are logged: one bad machine must not make the whole daemon unusable.
        """
        return "; ".join(f"the agent here: {why}" for ask in self._asked_here if (why := ask()))

    def close(self) -> None:
        """Stop listening; what runs goes on."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        self._lanes.close()
        self._outbox.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def check(self) -> None:
        """Look at the clock: who is silent, who is lost? `open` has this done every second."""
        with self._changed:
            self._note_nodes(self._fleet.check(self._clock()))

    def _tell(self, listener: Listener) -> None:
        due_s = 0.0
        while not self._closed.is_set():
            message = None
            with contextlib.suppress(queue.Empty):
                message = self._outbox.get(timeout=TICK_S)
            if message is not None:
                try:
                    listener(message)
                except Exception:  # the others must still be informed
                    log.exception("listener.failed")
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + TICK_S
                self.check()

    # --- what shall be ----------------------------------------------------------------------------

    def _enter(self, order: RunOrder) -> AgentRun:
        if order.run in self._runs:
            return self._runs[order.run]
        account, of_owner = self.account(order)
        record = self._runs[order.run] = AgentRun(order, account, of_owner=of_owner)
        for key, part in record.parts.items():
            self._by_node.setdefault(part.node, set()).add(key)
            self._fleet.expect(part.node, self._clock())
            if self._fleet.is_lost(part.node):
                self._post(record.lose(key, f"node {part.node} is lost"))
        return record

    def _post(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._outbox.put(message)

    def _note_nodes(self, news: Sequence[NodeStatus]) -> None:
        """Tell about nodes; what ran on lost ones is lost first, so that it is not lost twice."""
        for status in news:
            if status.state == "lost":
                seen_s = self._seen_s(status.node)
                for key in sorted(self._by_node.get(status.node, ())):
                    why = f"node {status.node} is lost: {status.why}"
                    self._post(self._runs[key.run].lose(key, why, seen_s))
            log.info("node.%s", status.state, extra={"node": status.node, "why": status.why})
        self._post(news)
        if news:
            self._changed.notify_all()

    def _seen_s(self, node: str) -> float | None:
        """When its agent was heard of last (`boot_time_s`); None: not by this daemon."""
        agent = self._fleet.agent_of(node)
        return None if agent is None else boot_time_s() - (self._clock() - agent.heard_s)

    # --- the agents' side -----------------------------------------------------------------------

    def sync(
        self, report: AgentReport, wait_s: float = WAIT_S, token: str | None = None
    ) -> AgentOrders:
        """An agent says what there is and hears what to do, at once or when there is something.

        `token`: the name of the one that came with the report; None: it lives in our process.
        """
        refusal = self._refusal(report, token)
        discard = tuple(self.expired(report.stale)) if report.stale and not refusal else ()
        used = [] if refusal else self._believed(report)
        if used:
            self.on_usage(used)
        with self._changed:
            refusal = refusal or self._fleet.conflict(report)
            if refusal:
                return AgentOrders(error=refusal)
            known = self._fleet.agents.get(report.agent)
            first = known is None or known.session != report.session
            self._hear(report)
            agent = self._fleet.agents[report.agent]
            longest_s = 0.0 if first else min(wait_s, report.wait_s, self._fleet.silent_s / 3)
            deadline_s = time.monotonic() + longest_s
            while True:
                orders = msgspec.structs.replace(self._orders(agent), discard=discard)
                left_s = deadline_s - time.monotonic()
                if self._closed.is_set():
                    raise UnavailableError("the daemon is stopping: try again")
                if not self._leads():
                    raise UnavailableError("this daemon does not lead any more: ask the other one")
                if orders.urgent or left_s <= 0:
                    return orders
                self._changed.wait(left_s)

    def _believed(self, report: AgentReport) -> list[PartUsage]:
        """What an agent measured of runs that it has."""
        if not report.used:
            return []
        here = {node.spec.name for node in report.nodes}
        with self._lock:
            return [
                each
                for each in report.used
                if each.plausible
                and each.run in self._runs
                and any(
                    part.node_rank == each.node_rank and part.node in here
                    for part in self._runs[each.run].order.parts
                )
            ]

    def _refusal(self, report: AgentReport, token: str | None) -> str:
        """Why an agent is not believed; empty: it is."""
        if token is None:
            return ""
        refusal = report.problem()
        if self.separated and not report.separates:
            refusal = (
                "isolation is required here, and this agent does not keep jobs apart: see "
                "`rota doctor` on its machine"
            )
        if not refusal:
            with self._lock:
                refusal = self._fleet.conflict(report)
        # the claim may have to be written: without our lock
        return refusal or self.claim([node.spec.name for node in report.nodes], token)

    def sync_json(self, body: bytes, token: str) -> bytes:
        """`sync` for messages as they come over the network."""
        try:
            report = msgspec.json.decode(body, type=AgentReport)
        except msgspec.MsgspecError as error:
            raise InputError(f"not the report of an agent of this version: {error}") from error
        return msgspec.json.encode(self.sync(report, token=token))

    def _hear(self, report: AgentReport) -> None:
        for piece in report.logs:
            if self._asked.get(piece.id) == report.agent:
                self._answers[piece.id] = piece
                self._changed.notify_all()
        here = {node.spec.name for node in report.nodes}
        self._post(
            RunMetrics(measured.run, measured.values)
            for measured in report.measured
            if measured.run in self._runs
            and measured.plausible
            and any(part.node in here for part in self._runs[measured.run].order.parts)
        )
        news = self._fleet.hear(report, self._clock(), boot_time_s())
        if news is None:
            return
        agent = self._fleet.agents[report.agent]
        self._merge(agent)
        self._note_nodes(news)

    def _merge(self, agent: KnownAgent) -> None:
        """Take over what the agent says about its parts, and notice what it no longer has."""
        if not self._adopted:
            return
        for key in self._keys_of(agent):
            record = self._runs[key.run]
            status = agent.parts.get(key)
            if status == record.statuses.get(key):
                continue
            self._outputs.note(record.order.job, agent.id)
            self._changed.notify_all()  # other parts of it may have to end now
            if status is not None:
                self._post(record.note(status, agent.behind_s))
            elif record.was_started(key):
                agent.without.append(key.run)
                self._post(record.lose(key, "its agent has no trace of it any more"))

    def _keys_of(self, agent: KnownAgent) -> list[PartKey]:
        return [key for node in agent.nodes for key in sorted(self._by_node.get(node, ()))]

    def _orders(self, agent: KnownAgent) -> AgentOrders:
        lost_s = 0.0 if agent.id in self._fleet.embedded else self._fleet.lost_s
        if not self._adopted:
            return AgentOrders(lost_s=lost_s, term=self._term)
        launch, told = [], {HALT: list[PartKey](), KILL: list[PartKey]()}
        terms: list[PartTerms] = []
        wanted = set()
        for key in self._keys_of(agent):
            record, status = self._runs[key.run], agent.parts.get(key)
            if status is not None and record.over(key) and status.state not in OVER:
                continue  # given up before it came back
            wanted.add(key)
            how = record.wants(key)
            if how and (status is None or status.told not in (how, KILL)):
                told[how].append(key)
            elif status is None and not how and not record.over(key):
                master = self._fleet.address_of(record.order.parts[0].node)
                if master:
                    values = self.secrets(record.order) if record.order.launch.secrets else {}
                    launch.append(record.launch_of(key, master, values))
            elif status is not None:
                terms += record.new_terms(key, status)
        unwanted = [(key, each) for key, each in agent.parts.items() if key not in wanted]
        forget = [key for key, status in unwanted if status.state in OVER]
        told[KILL] += [
            key for key, each in unwanted if each.state not in OVER and each.told != KILL
        ]
        requests = tuple(agent.requests)
        agent.requests.clear()
        return AgentOrders(
            launch=tuple(launch),
            halt=tuple(told[HALT]),
            kill=tuple(told[KILL]),
            forget=tuple(forget),
            terms=tuple(terms),
            logs=requests,
            lost_s=lost_s,
            term=self._term,
            lane=self._lanes.is_wanted(agent.id),
            restart=agent.session if self._restarts.get(agent.id) == agent.session else 0,
        )

    # --- restarting agents ------------------------------------------------------------------------

    def agents(self) -> list[AgentPicture]:
        """Those that were heard of, with the nodes for which they speak."""
        with self._lock:
            return [
                AgentPicture(
                    agent.id, agent.session, tuple(agent.nodes), tuple(agent.without),
                    is_up=agent.state == "up", embedded=agent.id in self._fleet.embedded,
                )
                for agent in self._fleet.agents.values()
            ]  # fmt: skip

    def restart_agent(self, agent: str, session: int) -> None:
        """Let this session of an agent end and another one begin; 0: not any more."""
        with self._changed:
            self._restarts[agent] = session
            self._changed.notify_all()

    # --- calls into jobs --------------------------------------------------------------------------

    def reach(self, job: str, node_rank: int, call: RunCall) -> CallAnswer:
        """Call the agent of the part of a job that runs on one of its nodes."""
        with self._lock:
            key, agent = self._part_of(job, node_rank, opens=isinstance(call, OpenChannel))
            here = self._called_here.get(agent.id)
        return self._call(agent, LaneCall(0, job, key.run, node_rank, call), here)

    def reach_files(self, job: str, call: FileCall) -> CallAnswer:
        """Ask the agents that had a job, the last one first."""
        with self._lock:
            agents = self._outputs.whom_to_ask(job, ("out", 0), self._fleet)
            here = dict(self._called_here)
        answer = None
        for agent in reversed(agents):
            try:
                asked = LaneCall(0, job, "", 0, call)
                answer = self._call(agent, asked, here.get(agent.id))
            except NotFoundError:
                continue
            if answer.files or answer.data:
                return answer
        if answer is None:
            raise NotFoundError(f"job {job}: no machine in contact has such files of it")
        return answer

    def _call(
        self,
        agent: KnownAgent,
        wanted: LaneCall,
        here: Callable[[LaneCall], CallAnswer] | None,
    ) -> CallAnswer:
        """Ask an agent, in this process or elsewhere; what is wrong becomes an exception."""
        job, call = wanted.job, wanted.call
        if here is not None:
            answer = here(wanted)
        else:
            number = self._lanes.post(agent.id, job, wanted.run, wanted.node_rank, call)
            with self._changed:
                self._changed.notify_all()  # its orders say that there are calls
            waits_s = call.wait_s if isinstance(call, ReadChannel | WriteChannel) else 0.0
            answer = self._lanes.wait(number, 2 * ANSWER_S + waits_s)
        if answer.wrong == "missing":
            raise NotFoundError(f"job {job}: {answer.error}")
        if answer.wrong == "busy":
            raise ClusterError(f"job {job}: {answer.error}", retryable=True)
        if answer.error:
            raise ConflictError(f"job {job}: {answer.error}")
        return answer

    def _part_of(self, job: str, node_rank: int, *, opens: bool) -> tuple[PartKey, KnownAgent]:
        """The part of a job that runs, and whose it is; nobody comes in while it is being ended."""
        runs = [record for record in self._runs.values() if record.order.job == job]
        for record in reversed(runs):
            key = PartKey(record.order.run, node_rank)
            if key not in record.parts:
                most = len(record.parts) - 1
                raise NotFoundError(f"job {job} has no rank {node_rank}: the last is {most}")
            if record.over(key) or (opens and record.wants(key)):
                continue
            status = record.statuses.get(key)
            if status is None or status.state != "running":
                raise ClusterError(f"job {job} is just starting: try again", retryable=True)
            agent = self._fleet.agent_of(record.parts[key].node)
            if agent is None or agent.state != "up":
                raise ClusterError(
                    f"job {job}: its node {record.parts[key].node} is not in contact: try again",
                    retryable=True,
                )
            return key, agent
        raise ConflictError(f"job {job} does not run at the moment: see `rota show {job}`")

    def lane_bytes(self, body: bytes, token: str) -> bytes:
        """An agent brings answers and takes calls, as they come over the network."""
        try:
            report = msgspec.msgpack.decode(body, type=LaneReport)
        except msgspec.MsgspecError as error:
            raise InputError(f"not the answers of an agent of this version: {error}") from error
        with self._lock:
            known = self._fleet.agents.get(report.agent)
            nodes = list(known.nodes) if known is not None else []
        refusal = self.claim(nodes, token) if nodes else "it has not reported yet"
        if refusal:
            return msgspec.msgpack.encode(LaneOrders(error=refusal))
        if not self._leads():
            raise UnavailableError("this daemon does not lead any more: ask the other one")
        calls = self._lanes.exchange(report.agent, report.answers, report.wait_s)
        return msgspec.msgpack.encode(LaneOrders(calls))

    def piece_bytes(self, body: bytes, token: str) -> bytes:
        """A piece of what was sent for a job, for an agent that has to start it."""
        try:
            wanted = msgspec.json.decode(body, type=PieceRequest)
        except msgspec.MsgspecError as error:
            raise InputError(f"not the request of an agent of this version: {error}") from error
        with self._lock:
            nodes = {
                part.node
                for record in self._runs.values()
                if record.order.job == wanted.job
                for part in record.order.parts
            }
        if not any(not self.claim([node], token) for node in nodes):
            raise NotFoundError(f"job {wanted.job[:20]!r} does not start on a node of this agent")
        return self.pieces(wanted.job, wanted.digest)

    # --- output of jobs ---------------------------------------------------------------------------

    def retire(self, job: str) -> None:
        """Its folder stays: its owner may want to read what it wrote."""

    def read_log(self, job: str, stream: str, node_rank: int, offset: int, limit: int) -> bytes:
        """A piece of the output; where a job was on several machines, one after the other."""
        if offset < 0:
            first, last = self.log_range(job, stream, node_rank)
            offset = max(first, last + offset)
        for base, agent, piece in self._streams(job, stream, node_rank):
            if offset < base + piece.end:
                inside = max(0, offset - base)
                if inside < piece.start:
                    first = base + piece.start
                    raise GoneError(
                        f"job {job}: the output before byte {first} was rotated away or is on a "
                        f"machine that is lost",
                        first,
                    )
                return self._ask(agent, job, stream, node_rank, inside, limit).data
        return b""

    def log_range(self, job: str, stream: str, node_rank: int) -> tuple[int, int]:
        """Offsets of the first byte that is kept and of the end."""
        found = list(self._streams(job, stream, node_rank))
        if not found:
            return 0, 0
        first, last = found[0], found[-1]
        return first[0] + first[2].start, last[0] + last[2].end

    def _streams(
        self, job: str, stream: str, node_rank: int
    ) -> list[tuple[int, KnownAgent, LogPiece]]:
        """The agents that have output of a job, oldest first, each with the offset of its part."""
        which = stream, node_rank
        with self._lock:
            agents = self._outputs.whom_to_ask(job, which, self._fleet)
        pieces = [(self._ask(agent, job, stream, node_rank, 0, 0), agent) for agent in agents]
        with self._lock:
            for piece, agent in pieces:
                self._outputs.answered(job, which, agent.id, piece)
            pieces += self._outputs.out_of_reach(job, which, self._fleet, agents)
        base, found = 0, []
        for piece, agent in sorted(pieces, key=lambda pair: pair[0].since):
            if piece.end:
                found.append((base, agent, piece))
                base += piece.end
        return found

    def _ask(
        self, agent: KnownAgent, job: str, stream: str, node_rank: int, offset: int, limit: int
    ) -> LogPiece:
        with self._changed:
            self._requests += 1
            request = LogRequest(self._requests, job, stream, node_rank, offset, limit)
            jobs = self._jobs_here.get(agent.id)
        piece = read_piece(jobs, request) if jobs is not None else self._ask_far(agent, request)
        if piece.error:
            raise ClusterError(f"job {job}: {piece.error}")
        return piece

    def _ask_far(self, agent: KnownAgent, request: LogRequest) -> LogPiece:
        """Through the agent's next sync; at once an error if it is not in contact."""
        with self._changed:
            if agent.state != "up":
                raise ClusterError(
                    f"agent {agent.name} is {agent.state}: try again later", retryable=True
                )
            self._answers[request.id] = None
            self._asked[request.id] = agent.id
            agent.requests.append(request)
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._answers[request.id] is not None or self._closed.is_set(),
                LOG_TIMEOUT_S,
            )
            piece = self._answers.pop(request.id)
            del self._asked[request.id]
        if piece is None:
            raise ClusterError(f"agent {agent.name} does not answer: try again", retryable=True)
        return piece


def _no_pieces(job: str, digest: str) -> bytes:
    raise NotFoundError(f"job {job}: there is no piece {digest[:12]} here")
