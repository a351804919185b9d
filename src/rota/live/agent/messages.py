"""What an agent and the server tell each other, in one kind of call: report in, orders out.

Both sides send *state*, not changes: a message that is lost or comes twice does no harm.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from rota.core.launch import Launch
from rota.core.sharing import MODES
from rota.core.topology import NodeSpec
from rota.live.driver import RunPart

PartState: TypeAlias = Literal["waiting", "starting", "running", "ended", "lost"]
OVER: frozenset[PartState] = frozenset({"ended", "lost"})
HALT, KILL = "halt", "kill"

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
MOST, MOST_NODES, MOST_NAMES, LONGEST_TEXT = 1e6, 10_000, 100, 1000  # in a report that can be true
MOST_STALE = 100  # jobs in one report
WAIT_S = 20.0  # the longest that an agent waits for an answer


class PartKey(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The share of a run on one node: what one shim is responsible for."""

    run: str
    node_rank: int


class AgentNode(msgspec.Struct, frozen=True):
    """A node that an agent speaks for.

    `address`: where the other nodes of a job can reach it. `devices`: what CUDA_VISIBLE_DEVICES
    says for each of its GPUs.
    """

    spec: NodeSpec
    address: str = "127.0.0.1"
    devices: tuple[str, ...] = ()

    def problem(self) -> str:
        """What in it cannot be true; empty: nothing."""
        spec = self.spec
        amounts = (spec.gpus, spec.cpus, spec.mem_gib, spec.gpu_mem_gib)
        if not NODE_NAME.fullmatch(spec.name) or any(not 0 <= x < MOST for x in amounts):
            return f"node {spec.name[:99]!r} with {spec.gpus} GPUs makes no sense"
        if len(spec.modes) != spec.gpus or not set(spec.modes) <= {"", *MODES}:
            return f"node {spec.name!r} shares its GPUs in ways that nobody knows"
        if len(self.devices) > spec.gpus or len(spec.labels) + len(spec.path) > MOST_NAMES:
            return f"node {spec.name!r} has more devices than GPUs, or too many labels"
        return ""

    def with_labels(self, labels: tuple[str, ...]) -> "AgentNode":
        """The same, with these labels too."""
        found = tuple(dict.fromkeys((*self.spec.labels, *labels)))
        if found == self.spec.labels:
            return self
        spec = msgspec.structs.replace(self.spec, labels=found)
        return msgspec.structs.replace(self, spec=spec)


class PartTerms(msgspec.Struct, frozen=True, array_like=True):
    """By which a part has its turns on GPUs: see `RunPart`."""

    key: PartKey
    weight: float = 0.0
    limit: float = 0.0
    paused: bool = False

    @classmethod
    def of(cls, key: PartKey, part: RunPart) -> "PartTerms":
        """Those of a part."""
        return cls(key, part.gpu_weight, part.gpu_limit, part.paused)

    @property
    def said(self) -> tuple[float, float, bool]:
        """Without whose they are."""
        return self.weight, self.limit, self.paused


class PartStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a part.

    `waiting`: for devices, nothing on disk yet. `starting`: it has a shim and may be in `setup`.
    `told`: how it was asked to end (empty, `halt` or `kill`). `ran`: its processes were started.
    `began_s`, `ended_s`: when, by the agent's own `boot_time_s` (None: nobody knows). `terms`: by
    which it has its turns (None: of an older agent, or it has not begun).
    """

    key: PartKey
    state: PartState
    told: str = ""
    ran: bool = False
    code: int = 0
    asked: bool = False
    why: str = ""
    began_s: float | None = None
    ended_s: float | None = None
    timed_out: bool = False  # its time limit ended it
    terms: PartTerms | None = None


class PartMeasured(msgspec.Struct, frozen=True):
    """The newest values that a job reported."""

    run: str
    values: Mapping[str, float]

    @property
    def plausible(self) -> bool:
        """Few values with short names; a machine may be in other hands."""
        names = (self.run, *self.values)
        return len(names) <= MOST_NAMES and max(map(len, names)) <= MOST_NAMES


class PartUsage(msgspec.Struct, frozen=True):
    """What a part of a run uses now.

    `busy`: the share of the time for which its GPUs were busy, `idle`: how many of them were not at
    all; None: nobody knows.
    """

    run: str
    node_rank: int
    cpus: float
    mem_gib: float
    busy: float | None = None
    idle: float | None = None

    @property
    def plausible(self) -> bool:
        """Numbers that can be true; a machine may be in other hands."""
        numbers = (self.cpus, self.mem_gib, self.busy or 0.0, self.idle or 0.0)
        return len(self.run) <= MOST_NAMES and all(0 <= number < MOST for number in numbers)


class LogRequest(msgspec.Struct, frozen=True):
    """Read a piece of the output of a job."""

    id: int
    job: str
    stream: str
    node_rank: int
    offset: int
    limit: int


class LogPiece(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer: the piece, and where the output that is kept begins and ends (0, 0: nowhere)."""

    id: int
    data: bytes = b""
    start: int = 0
    end: int = 0
    since: float = 0.0  # when the output began (Unix seconds)
    error: str = ""


class AgentReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that an agent knows.

    `agent` is the id of its root folder, `session` counts its starts and `number` the reports of a
    session: of two reports the server believes the later one. `jobs` is the id of the folder where
    it keeps the output of jobs (several agents may share one). `clock_s`: what its `boot_time_s`
    shows (None: an older agent). `leaving`: start nothing more here; `left`: this is the last
    report. `trouble`: what keeps it from watching its jobs. `unhealthy`: what a check says against
    the machine; None: none was made. `stale`: jobs whose folders nobody has used for long, some of
    them.
    """

    agent: str
    name: str
    session: int
    number: int
    nodes: tuple[AgentNode, ...]
    parts: tuple[PartStatus, ...] = ()
    measured: tuple[PartMeasured, ...] = ()
    logs: tuple[LogPiece, ...] = ()
    jobs: str = ""
    clock_s: float | None = None
    wait_s: float = 0.0  # how long the answer may take if there is nothing to do
    leaving: bool = False
    left: bool = False
    trouble: str = ""
    separates: str = ""  # how it keeps jobs apart: `accounts`, `namespaces`, or not at all
    unhealthy: str | None = None
    stale: tuple[str, ...] = ()
    used: tuple[PartUsage, ...] = ()

    def problem(self) -> str:
        """What in it cannot be true; empty: nothing. A machine may be in other hands."""
        texts = (self.agent, self.name, self.jobs, self.trouble, self.unhealthy or "")
        if any(len(text) > LONGEST_TEXT for text in texts):
            return "a text in the report is too long"
        if len(self.stale) > MOST_STALE or any(len(job) > MOST_NAMES for job in self.stale):
            return "there are too many stale jobs in the report"
        if len(self.nodes) > MOST_NODES:
            return f"an agent with {len(self.nodes)} nodes makes no sense"
        return next(filter(None, (node.problem() for node in self.nodes)), "")


class LaunchPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Execute this part."""

    run: str
    job: str
    name: str
    launch: Launch
    part: RunPart
    nodes: int
    world_size: int
    master_address: str
    master_port: int
    restart: int = 0
    account: str = ""  # whom it shall run as, where the agent may: a name or a number
    secrets: Mapping[str, str] = msgspec.field(default_factory=dict)  # never written down as it is
    of_owner: bool = False  # it is a job of whoever owns the daemon
    limit_s: float = 0.0  # it is ended so long after its launch; 0: never
    user: str = ""  # whose it is

    @property
    def key(self) -> PartKey:
        """Of the part."""
        return PartKey(self.run, self.part.node_rank)


class AgentOrders(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent shall do now; repeated until its reports show that it did.

    `halt` and `kill` may name parts that it never heard of: then it must never start them.
    `lost_s`: after so long without contact the server gives up the agent's nodes, so the agent's
    jobs must be gone by then (0: never). `terms`: of parts that have other ones now. `discard`: of
    these jobs nothing need be kept. `restart`: the session that shall end: the agent begins anew,
    and its jobs run on.
    """

    launch: tuple[LaunchPart, ...] = ()
    halt: tuple[PartKey, ...] = ()
    kill: tuple[PartKey, ...] = ()
    forget: tuple[PartKey, ...] = ()
    terms: tuple[PartTerms, ...] = ()
    logs: tuple[LogRequest, ...] = ()
    discard: tuple[str, ...] = ()
    lost_s: float = 0.0
    error: str = ""  # why the server does not want this agent
    lane: bool = False  # there are calls: see `rota.live.agent.lane`
    term: int = 0  # of the leader, where several servers take turns; 0: there is one server
    restart: int = 0  # 0: none, they are counted from 1

    @property
    def urgent(self) -> bool:
        """Is there anything to do?"""
        return bool(
            self.launch or self.halt or self.kill or self.forget or self.terms or self.logs
            or self.discard or self.error or self.lane or self.restart
        )  # fmt: skip
