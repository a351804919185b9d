"""What clients and the daemon exchange over HTTP, said once for API, SDK, command line and daemon.

An `Operation` is one call of the interface: its address, who may call it, what it takes and what it
answers. To add one, declare it here and give it a handler in `rota.api` and a method in `rota.sdk`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.core.backtest import Backtest
from rota.core.efficiency import JobUsage
from rota.core.findings import Finding
from rota.core.manifest import FileManifest
from rota.core.membership import Membership
from rota.core.proof import PATH as PROOF_PATH
from rota.core.sums import ordered_sum
from rota.core.verdict import Verdict
from rota.core.words import duration
from rota.jobfile.model import GpuRange, JobFile

PREFIX = "/api/v1"
JSON = "application/json"
PARQUET = "application/vnd.apache.parquet"
TEXT = "text/plain"
BINARY = "application/octet-stream"
HTML = "text/html"
EVENT_STREAM = "text/event-stream"
NEXT_OFFSET = "Rota-Next-Offset"  # headers of an answer with a job's output
FIRST_OFFSET = "Rota-First-Offset"

# --- limits --------------------------------------------------------------------------------------

MAX_BODY_BYTES = 8 * 2**20
MAX_JOBS = 10_000  # in one submission
MAX_PAGE = 10_000  # jobs or events in one answer
PAGE = 1_000
MAX_OUTPUT_BYTES = 2**20  # of a job, in one answer
OUTPUT_BYTES = 64 * 2**10
MAX_FORECAST_RUNS = 200
MAX_KEY = 200  # characters
MAX_FILTER = 256  # characters
MAX_NUMBER = 2**53 - 1  # what every JSON reader keeps exactly

# --- who asks ------------------------------------------------------------------------------------

PUBLIC, VIEWER, USER, OPERATOR, ADMIN, AGENT = (
    "public", "viewer", "user", "operator", "admin", "agent",
)  # fmt: skip
ROLES = (VIEWER, USER, OPERATOR, ADMIN, AGENT)
PEOPLE = (VIEWER, USER, OPERATOR, ADMIN)  # the roles of people, rising
TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
MAX_NAMES = 1_000  # in one list
LONGEST_TOKEN_S = 10 * 366 * 86_400.0


class Actor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who asks. Roles: viewer < user < operator < admin; `agent` only speaks for its nodes.

    `after_job`: jobs up to this number that bear the name are those of a former holder of it.
    """

    name: str
    role: str
    after_job: int = 0


_NAME = Meta(pattern=rf"^{TOKEN_NAME.pattern}$", max_length=64)
Name = Annotated[str, _NAME]


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token to create. Jobs submitted with it belong to the person whose it is.

    `user`: that person; empty: the one of its name, if there is one, else nobody but its holder.
    """

    name: Name
    role: Annotated[str, Meta(extra_json_schema={"enum": list(ROLES)})]
    user: Annotated[str, Meta(pattern=rf"^({TOKEN_NAME.pattern})?$", max_length=64)] = ""
    valid_s: (
        Annotated[
            float, Meta(gt=0, le=LONGEST_TOKEN_S, description="How long; none: until revoked.")
        ]
        | None
    ) = None


class TokenInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token that there is; `user`: the person to whom it belongs, if that has another name."""

    name: str
    role: str
    user: str = ""
    until: float | None = None  # Unix seconds; None: until it is revoked


_ROLE = Meta(extra_json_schema={"enum": list(PEOPLE)})
_NAMES = Meta(max_length=MAX_NAMES)
_Label = Annotated[str, Meta(min_length=1, max_length=200)]
_Subject = Annotated[str, Meta(max_length=255, description="`sub` at the identity provider.")]
_Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_MostJobs = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]


class Person(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody who uses the cluster. What is None is as the configuration says (`permissions`).

    The limits hold for the role user; operators and administrators may submit anything.
    """

    name: str
    role: str
    disabled: bool = False
    queues: tuple[str, ...] | None = None  # where they may submit, parts of them too
    priority_classes: tuple[str, ...] | None = None  # which they may use
    max_priority: int | None = None
    max_jobs: int | None = None  # held, waiting or running
    own_queues: bool | None = None  # they may name queues that are not declared
    subject: str = ""  # who they are at the identity provider
    after_job: int = 0  # as in `Actor`


class NewPerson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Somebody to add; what is missing is as the configuration says."""

    name: Name
    role: Annotated[str, _ROLE] = USER
    queues: Annotated[tuple[_Label, ...], _NAMES] | None = None
    priority_classes: Annotated[tuple[_Label, ...], _NAMES] | None = None
    max_priority: _Priority | None = None
    max_jobs: _MostJobs | None = None
    own_queues: bool | None = None
    subject: _Subject = ""


class PersonChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What shall be different; what is missing stays, null is as the configuration says."""

    role: Annotated[str, _ROLE] | UnsetType = UNSET
    queues: Annotated[tuple[_Label, ...], _NAMES] | UnsetType | None = UNSET
    priority_classes: Annotated[tuple[_Label, ...], _NAMES] | UnsetType | None = UNSET
    max_priority: _Priority | UnsetType | None = UNSET
    max_jobs: _MostJobs | UnsetType | None = UNSET
    own_queues: bool | UnsetType | None = UNSET
    subject: _Subject | UnsetType = UNSET


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session of somebody who logged in. Times are Unix seconds."""

    id: str
    user: str
    role: str
    via: str  # web: a browser; oidc: `rota login`
    began_at: float
    until: float
    current: bool = False  # it is the asker's own browser


class LoginRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody wants to log in; `redirect`: where their command listens for the answer."""

    redirect: Annotated[
        str, Meta(pattern=r"^http://127\.0\.0\.1:[0-9]{1,5}/callback$", max_length=40)
    ]


class LoginStart(msgspec.Struct):
    """Where the browser has to go; `secret` is for the one who asked."""

    url: str
    secret: str


class LoginAnswer(msgspec.Struct, forbid_unknown_fields=True):
    """What the identity provider answered the browser."""

    secret: Annotated[str, Meta(min_length=1, max_length=200)]
    state: Annotated[str, Meta(min_length=1, max_length=200)]
    code: Annotated[str, Meta(min_length=1, max_length=4_000)]


class MadeSession(msgspec.Struct):
    """A token that is good until the session ends. It is shown only here."""

    id: str
    user: str
    role: str
    token: str
    until: float


class ProviderQuery(msgspec.Struct, kw_only=True):
    """How the identity provider sends a browser back."""

    state: Annotated[str, Meta(max_length=200, description="Of the attempt.")] = ""
    code: Annotated[str, Meta(max_length=4_000, description="What it is exchanged for.")] = ""
    error: Annotated[str, Meta(max_length=200, description="Why nobody was logged in.")] = ""
    error_description: Annotated[str, Meta(max_length=4_000, description="The same in words.")] = ""
    iss: Annotated[str, Meta(max_length=1_000, description="Who says so.")] = ""
    session_state: Annotated[str, Meta(max_length=1_000, description="Not used.")] = ""
    scope: Annotated[str, Meta(max_length=1_000, description="Not used.")] = ""


class MadeToken(msgspec.Struct):
    """A new token. It is shown only here: the daemon keeps its hash."""

    name: str
    role: str
    token: str


class NewInvitation(msgspec.Struct, forbid_unknown_fields=True):
    """A node that a machine may join as."""

    node: Annotated[str, Meta(pattern=rf"^{TOKEN_NAME.pattern}$", max_length=64)]
    valid_s: Annotated[float, Meta(gt=0, le=7 * 86_400, description="How long the code is good.")]


class Invitation(msgspec.Struct):
    """The code with which one machine joins once. It is shown only here."""

    node: str
    code: str


class JoinRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A machine comes with the secret of its code, and the request for a certificate (PEM)."""

    secret: Annotated[str, Meta(max_length=200)]
    node: Annotated[str, Meta(pattern=rf"^{TOKEN_NAME.pattern}$", max_length=64)]
    csr: Annotated[str, Meta(max_length=10_000)] = ""


class RenewRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The request of a machine for another certificate (PEM)."""

    csr: Annotated[str, Meta(max_length=10_000)]


_HEX = Meta(pattern="^[0-9a-f]{32,64}$", description="Hexadecimal digits.")


class ProofQuery(msgspec.Struct):
    """What a client asks before it shows its token: see `rota.core.proof`."""

    token: Annotated[str, _HEX]  # its label
    nonce: Annotated[str, _HEX]


class ServerCode(msgspec.Struct):
    """What only a server can answer that knows the token; `port`: where it listens."""

    code: str
    port: int


class WebCode(msgspec.Struct):
    """A code with which one browser may log in, once and soon: it is part of `path`."""

    path: str
    seconds: float


_POINT = Meta(pattern="^[A-Za-z0-9_-]{87}$", description="A point of P-256, uncompressed.")


class BrowserKey(msgspec.Struct, forbid_unknown_fields=True):
    """The public half of a key that never leaves a browser (base64url)."""

    key: Annotated[str, _POINT]


class Challenge(msgspec.Struct):
    """What a browser has to sign, soon and once: `rota resume CHALLENGE PORT`."""

    challenge: str
    seconds: float


class ResumeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A browser shows that it is the one whose session was kept."""

    key: Annotated[str, _POINT]
    challenge: Annotated[str, Meta(min_length=1, max_length=100)]
    signature: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{86}$")]  # r and s


class SessionBasis(msgspec.Struct, frozen=True):
    """By what somebody was recognised who then logged a browser in; asked anew each time.

    `kind`: token (its digest), certificate (its SHA-256), uid, or person (their name).
    """

    kind: Literal["token", "certificate", "uid", "person"]
    value: str


class KeptBrowser(msgspec.Struct, frozen=True):
    """A browser that may come again after a restart of the daemon."""

    key: str
    session: str  # its id
    basis: SessionBasis
    until: float  # Unix seconds


class LoginQuery(msgspec.Struct):
    """The code of `create_web_code`."""

    code: Annotated[str, Meta(min_length=1, max_length=100, description="A code that works once.")]


# --- jobs ----------------------------------------------------------------------------------------

State = Literal[
    "HELD", "PENDING", "STARTING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "REJECTED",
    "CANCELLED", "TIMEOUT",
]  # fmt: skip
STATES: tuple[str, ...] = get_args(State)
ENDED = STATES[5:]


class JobInfo(msgspec.Struct, kw_only=True):
    """One job. Times are Unix seconds; None: not yet (or never).

    `state`: HELD, PENDING, STARTING, RUNNING, STOPPING (being preempted), SUCCEEDED, FAILED,
    REJECTED, CANCELLED or TIMEOUT (its time limit ended it). `reason`: why it waits (one of the
    labels of `rota.core.reasons`).
    """

    id: str
    name: str
    user: str
    queue: str
    state: str
    reason: str = ""
    message: str = ""  # why it failed, was rejected or is held
    gpus: float
    gpu_type: str = ""
    nodes: dict[str, float] = {}  # GPUs by name of node, while it has a place
    priority: int = 0
    group: str = ""
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    deadline_at: float | None = None
    estimate_s: float | None = None
    run_s: float = 0.0  # seconds of progress
    gpu_s: float = 0.0  # GPU-seconds of progress
    starts: int = 0
    preemptions: int = 0
    metrics: dict[str, float] = {}
    stopping_s: float | None = None  # its processes are being stopped: the longest this may take
    time_limit_s: float | None = None  # of running, in all its runs
    retries: int = 0  # how often it is tried again after a failure
    failures: int = 0  # runs that failed and were, or will be, followed by another one
    retry_at: float | None = None  # it failed, and is tried again then
    array: str = ""  # the array that it is one of: the id of the first of them
    task: int | None = None  # its number in the array
    waits_for: list[str] = []  # jobs that it depends on and that are not over as it wants
    used: JobUsage | None = None  # what it used, as far as is known; of one job only
    elastic: GpuRange | None = None  # how few and how many GPUs it takes; None: always `gpus`
    file: JobFile | None = None  # as submitted: only for its owner and admins, and of one job

    def sized(self) -> str:
        """Its GPUs: `2`; of an elastic job what it has, and what it takes: `4 of 1-8`, `1-8`."""
        if self.elastic is None:
            return f"{self.gpus:g}"
        takes = f"{self.elastic.min}-{self.elastic.max}"
        return f"{ordered_sum(self.nodes.values()):g} of {takes}" if self.nodes else takes

    def summary(self) -> str:
        """How it ended, how long it waited and ran, in one line."""
        name = f"job {self.id}" + (f" ({self.name})" if self.name else "")
        ended_at = self.submitted_at if self.ended_at is None else self.ended_at
        waited_s = max(0.0, ended_at - self.submitted_at - self.run_s)
        told = f"{name} {self.state.lower()}" + (f" ({self.message})" if self.message else "")
        told += f": waited {duration(waited_s)}"
        if not self.starts:
            return f"{told}, never ran"
        many = "" if self.starts == 1 else f" in {self.starts} runs"
        gpus = f"{self.gpus:g} GPU{'' if self.gpus == 1 else 's'}"
        told += f", ran {duration(self.run_s)}{many} on {gpus}"
        if self.preemptions:
            told += f", preempted {self.preemptions} times"
        if self.used is not None and self.used.samples:
            told = "; ".join([f"{told}, {self.used.words()}", *self.used.advice])
        return told


class UsageSummary(msgspec.Struct, kw_only=True):
    """What jobs of a user or a queue used of what they asked for, weighted by their run time."""

    name: str
    jobs: int  # of which something is known
    cpus_asked: float
    cpus_used: float
    mem_asked_gib: float
    mem_peak_gib: float
    gpus_asked: float
    gpu_busy: float | None = None  # share of the time
    gpus_idle: float | None = None


class EfficiencyQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How to add up."""

    by: Annotated[Literal["user", "queue"], Meta(description="By user or by queue.")] = "user"


class ArrayInfo(msgspec.Struct, kw_only=True):
    """An array as a whole. Times are Unix seconds; None: not yet (or never)."""

    id: str  # of its first job
    name: str
    user: str
    queue: str
    tasks: int
    limit: int = 0  # how many may be in the queue or run at once; 0: all
    states: dict[str, int]  # how many of its jobs are in each state
    submitted_at: float
    started_at: float | None = None  # the first of them
    ended_at: float | None = None  # the last of them, when all are over
    run_s: float = 0.0  # of all together
    gpu_s: float = 0.0
    first: int = 0  # the smallest and the largest number in it
    last: int = 0


class WhyPart(msgspec.Struct, kw_only=True):
    """A part of a job's waiting time."""

    reason: str
    seconds: float
    text: str


class SizeChange(msgspec.Struct, kw_only=True):
    """An elastic job was `started`, `started again`, `moved`, `grown` or `shrunk`."""

    at: float  # Unix seconds
    what: str
    gpus: float  # from then on
    nodes: list[str]
    by: list[str] = []  # jobs that got its GPUs when it was shrunk
    text: str


class Explanation(msgspec.Struct, kw_only=True):
    """Why a job waits or waited; the parts add up to `wait_s`."""

    id: str
    state: str
    reason: str
    text: str  # one sentence for people
    wait_s: float
    parts: list[WhyPart]
    ahead: list[str] = []  # jobs that are served first (the first few)
    preempted_by: list[str] = []
    waits_for: list[str] = []  # unfinished jobs that it depends on
    sizes: list[SizeChange] = []  # of an elastic job: why it grew and shrank


class Forecast(msgspec.Struct, kw_only=True):
    """When a job will start: simulated from the present state, `runs` times."""

    id: str
    state: str
    starts_at: float | None  # median; None: not within the horizon
    earliest_at: float | None
    latest_at: float | None  # None: perhaps never
    runs: int
    never: int  # runs in which it did not start within the horizon
    text: str
    assumptions: dict[str, Any]
    share: float = 0.8  # the probability with which it starts between earliest and latest
    backtest: Backtest | None = None  # None: there is nothing to predict


class SubmitHeaders(msgspec.Struct, rename={"key": "Idempotency-Key"}):
    """The key that makes a submission repeatable."""

    key: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=MAX_KEY, pattern=r"^[!-~]+$",
                description="Send the same key again to get the jobs of the first time.",
            ),
        ]
        | UnsetType
    ) = UNSET  # fmt: skip


class JobsQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which jobs to list."""

    state: Annotated[list[State], Meta(description="Only in these states; may be repeated.")] = []
    queue: Annotated[str, Meta(max_length=MAX_FILTER, description="Only of this queue.")] = ""
    user: Annotated[str, Meta(max_length=MAX_FILTER, description="Only of this user.")] = ""
    name: Annotated[str, Meta(max_length=MAX_FILTER, description="Only of this name.")] = ""
    array: Annotated[str, Meta(pattern="^[0-9]{0,15}$", description="Only of this array.")] = ""
    active: Annotated[bool, Meta(description="Only unfinished jobs.")] = False
    after: Annotated[str, Meta(pattern="^[0-9]{0,15}$", description="Only after this id.")] = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="At most so many.")] = PAGE


JobColumn = Literal[
    "id", "name", "user", "queue", "state", "gpus", "submitted", "started", "ended", "run"
]


class FindQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which jobs to show in a table, and in which order."""

    state: Annotated[list[State], Meta(description="Only in these states; may be repeated.")] = []
    queue: Annotated[str, Meta(max_length=MAX_FILTER, description="Only of this queue.")] = ""
    user: Annotated[str, Meta(max_length=MAX_FILTER, description="Only of this user.")] = ""
    search: Annotated[
        str,
        Meta(max_length=MAX_FILTER, description="Only with this in id, name, user, queue, group."),
    ] = ""
    array: Annotated[str, Meta(pattern="^[0-9]{0,15}$", description="Only of this array.")] = ""
    active: Annotated[bool, Meta(description="Only unfinished jobs.")] = False
    sort: Annotated[JobColumn, Meta(description="By what.")] = "id"
    rising: Annotated[bool, Meta(description="Smallest first.")] = False
    offset: Annotated[int, Meta(ge=0, le=MAX_NUMBER, description="So many are left out.")] = 0
    limit: Annotated[int, Meta(ge=1, le=PAGE, description="At most so many.")] = 100


class FoundJobs(msgspec.Struct):
    """A piece of a table of jobs; `total`: how many there are in all."""

    total: int
    jobs: list[JobInfo]


class ForecastQuery(msgspec.Struct):
    """How to simulate."""

    runs: Annotated[int, Meta(ge=1, le=MAX_FORECAST_RUNS, description="Number of simulations.")] = (
        20
    )


class OutputQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which output of a job, and which piece of it."""

    stream: Annotated[
        Literal["out", "err", "all"], Meta(description="Which output; `all`: both, in order.")
    ] = "out"
    node_rank: Annotated[int, Meta(ge=0, le=100_000, description="Of which of its nodes.")] = 0
    offset: Annotated[
        int,
        Meta(
            ge=-MAX_OUTPUT_BYTES, le=MAX_NUMBER,
            description="Bytes to skip; negative: from the end.",
        ),
    ] = 0  # fmt: skip
    limit: Annotated[int, Meta(ge=1, le=MAX_OUTPUT_BYTES, description="At most so many bytes.")] = (
        OUTPUT_BYTES
    )
    follow: Annotated[bool, Meta(description="Go on until the job has ended.")] = False


# --- into jobs -----------------------------------------------------------------------------------

MAIN = "main"  # the channel of an interactive job's own terminal
CHANNEL_BYTES = 2**18  # of input or output, in one call
CHANNEL_WAIT_S = 20.0
CHANNEL_HEAD = 5  # bytes before each piece of output: its stream, and its length (big-endian)
OUT, ERR, ENDED_WITH = 1, 2, 3  # streams; the last piece is JSON, with the exit code

_Rank = Annotated[int, Meta(ge=0, le=100_000, description="On which of its nodes.")]
_Side = Annotated[int, Meta(ge=0, le=10_000)]
_Word = Annotated[str, Meta(max_length=100_000)]


class NewChannel(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A way into a job that runs: a command there, or a connection to one of its ports.

    `id` is chosen by the client, so that the same request again opens nothing more; `main` is the
    terminal of an interactive job, which is there already.
    """

    id: Annotated[str, Meta(pattern="^(main|[0-9a-f]{16,32})$")]
    argv: Annotated[tuple[_Word, ...], Meta(max_length=1_000)] = ()  # empty: a shell
    tty: bool = False
    rows: _Side = 0
    cols: _Side = 0
    term: Annotated[str, Meta(pattern="^[A-Za-z0-9._+-]{0,64}$")] = ""  # TERM there
    port: Annotated[int, Meta(ge=0, le=65_535, description="Connect there, run nothing.")] = 0
    node_rank: _Rank = 0


class ChannelInfo(msgspec.Struct, kw_only=True):
    """A channel that is open. `kind`: exec, port or terminal (that of the job itself)."""

    id: str
    kind: str
    tty: bool = False
    node_rank: int = 0


class RankQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """On which of its nodes."""

    node_rank: _Rank = 0


class ChannelQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which piece of a channel's output."""

    offset: Annotated[
        int,
        Meta(
            ge=-CHANNEL_BYTES, le=MAX_NUMBER,
            description="Bytes to skip; negative: the last so many of what is there.",
        ),
    ] = 0  # fmt: skip
    wait_s: Annotated[
        float, Meta(ge=0, le=CHANNEL_WAIT_S, description="How long to wait for output.")
    ] = 0.0
    node_rank: _Rank = 0


class InputQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a piece of input belongs."""

    offset: Annotated[int, Meta(ge=0, le=MAX_NUMBER, description="Bytes sent before it.")] = 0
    eof: Annotated[bool, Meta(description="There is no more.")] = False
    rows: Annotated[int, Meta(ge=0, le=10_000, description="Size of the terminal now.")] = 0
    cols: Annotated[int, Meta(ge=0, le=10_000, description="Size of the terminal now.")] = 0
    wait_s: Annotated[
        float, Meta(ge=0, le=CHANNEL_WAIT_S, description="How long to wait until it is taken.")
    ] = 0.0
    writer: Annotated[
        str, Meta(pattern="^[0-9a-f]{0,32}$", description="Who sends: each counts for themselves.")
    ] = ""
    node_rank: _Rank = 0


class UploadState(msgspec.Struct):
    """The id of an upload, and the digests of pieces that have to be sent before it is complete."""

    id: str
    missing: list[str]


Folder = Literal["work", "checkpoint"]
_Folder = Annotated[Folder, Meta(description="Its working folder, or that of its checkpoints.")]


class FilesQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which files of a job."""

    folder: _Folder = "work"
    path: Annotated[str, Meta(max_length=1_000, description="Only this file, or below it.")] = ""
    after: Annotated[str, Meta(max_length=1_000, description="Only after this path.")] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE, description="At most so many.")] = PAGE


class FileQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which piece of which file of a job."""

    path: Annotated[str, Meta(max_length=1_000, description="The file.")] = ""
    folder: _Folder = "work"
    offset: Annotated[int, Meta(ge=0, le=MAX_NUMBER, description="Bytes to skip.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_OUTPUT_BYTES, description="At most so many bytes.")] = (
        MAX_OUTPUT_BYTES
    )


class JobFileInfo(msgspec.Struct):
    """A file of a job; `mtime_ns`: when it was written, in nanoseconds since 1970."""

    path: str
    size: int
    mtime_ns: int
    executable: bool = False


class FilePage(msgspec.Struct):
    """Files by path. `skipped`: some of what is no plain file. `more`: go on after the last one."""

    files: list[JobFileInfo]
    skipped: list[str]
    more: bool


class NewSecret(msgspec.Struct, forbid_unknown_fields=True):
    """A secret to keep."""

    name: Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]{0,199}$")]
    value: Annotated[str, Meta(min_length=1, max_length=100_000)]


class SecretInfo(msgspec.Struct):
    """A secret that there is; its value is never told."""

    name: str
    set_at: float  # Unix seconds


class InputTaken(msgspec.Struct):
    """Bytes of input that the channel has taken so far: the next piece begins there."""

    taken: int


# --- cluster -------------------------------------------------------------------------------------


class NodeInfo(msgspec.Struct, kw_only=True):
    """One node. `state`: up, silent, down, draining or drained.

    A node is draining while something still runs there, and drained afterwards.
    """

    name: str
    state: str
    gpus: float
    free_gpus: float
    gpu_type: str = ""
    cpus: float = 0.0
    mem_gib: float = 0.0
    jobs: list[str] = []
    why: str = ""
    stopping: list[str] = []  # jobs whose processes there are being stopped
    stopping_s: float | None = None  # the longest that this may take
    clear_in_s: float | None = None  # what still runs on the drained node then is stopped
    labels: tuple[str, ...] = ()  # what jobs may ask for: `container` where images run


class NodeEvent(msgspec.Struct, kw_only=True):
    """Something that happened to a node: `down`, `up`, `closed` (nothing is started), `opened`."""

    at: float  # Unix seconds
    event: str
    text: str = ""  # why it was closed


class QueueInfo(msgspec.Struct, kw_only=True):
    """One queue (a tenant)."""

    name: str
    parent: str = ""
    quota: float = 0.0
    limit: float | None = None
    weight: float = 1.0
    running: int = 0
    pending: int = 0
    held: int = 0
    gpus: float = 0.0  # in use
    asked_gpus: float = 0.0  # by waiting jobs
    lend: float | None = None  # GPUs of its quota that others may use; None: all
    borrow: float | None = None  # GPUs that it may use beyond its quota; None: up to its limit


class LaneBar(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job had GPUs on some nodes for a while. Times are Unix seconds.

    `name`, `user` and `queue` are empty if the job is not for the asker to see.
    """

    job: str
    nodes: dict[str, float]  # GPUs by name of node
    began_at: float
    ended_at: float | None = None  # None: it is still there
    end: str = ""  # why it left: done, failed, cancelled, stop (preempted), evicted, move
    name: str = ""
    user: str = ""
    queue: str = ""


class LanesQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which part of the past."""

    since: Annotated[float, Meta(ge=0, le=MAX_NUMBER, description="From then on (Unix time).")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="At most so many, the latest.")] = (
        MAX_PAGE
    )


class Lanes(msgspec.Struct):
    """Who had which GPUs; `since`: what ended before that is not here."""

    since: float
    now: float
    bars: list[LaneBar]


class WhatIf(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What shall be different, to see how the present queue would fare; empty: as it is."""

    policy: Annotated[str, Meta(max_length=1_000, description="With parameters: `name:a=1`.")] = ""
    placement: Annotated[str, Meta(max_length=1_000)] = ""
    more_nodes: Annotated[int, Meta(ge=0, le=10_000, description="Nodes that are added.")] = 0
    gpus_each: Annotated[int, Meta(ge=1, le=1_024, description="GPUs of each of them.")] = 8
    without: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...],
        Meta(max_length=MAX_NAMES, description="Nodes on which nothing more is started."),
    ] = ()
    runs: Annotated[int, Meta(ge=1, le=MAX_FORECAST_RUNS, description="Simulations.")] = 9


class TrialStart(msgspec.Struct, kw_only=True):
    """When a waiting job would start (median of the simulations); None: it does not."""

    job: str
    gpus: float
    starts_at: float | None
    name: str = ""
    user: str = ""
    queue: str = ""


class TrialOutcome(msgspec.Struct, kw_only=True):
    """How the present queue fares. Seconds from now; medians of the simulations."""

    policy: str
    placement: str
    gpus: float
    waiting: int  # jobs that wait now
    never: int  # of them that do not start at all
    mean_wait_s: float | None  # until they start, of those that do
    longest_wait_s: float | None
    queue_empty_s: float | None  # until the last of them has started; None: never
    all_done_s: float | None  # until everything that is there now is over
    mean_left_s: float | None  # until a job that is there now is over
    preemptions: float
    starts: list[TrialStart]  # the first few, in the order of today's queue


class TrialAnswer(msgspec.Struct):
    """Side by side: as it is, and as it would be."""

    now: float
    runs: int
    present: TrialOutcome
    changed: TrialOutcome
    assumptions: dict[str, Any]


class Choices(msgspec.Struct):
    """What can be chosen for `policy` and `placement`, and what holds now."""

    policy: str
    placement: str
    admission: str
    parameters: dict[str, Any]  # of the policy that holds
    policies: list[str]
    placements: list[str]


class NewWindow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes that are kept free for a time: for maintenance, or for users and queues.

    Times are Unix seconds. Who would not end before the start does not start there; jobs without a
    time limit or an estimate may run for ever.
    """

    kind: Literal["maintenance", "reservation"]
    nodes: Annotated[list[str], Meta(max_length=10_000)] = []
    gpus: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Instead of nodes: whole nodes with so many.")
    ] = 0
    start: Annotated[float, Meta(ge=0, le=1e11)] | None = None  # None: now
    end: Annotated[float, Meta(ge=0, le=1e11)] | None = None  # None: until it is removed
    users: Annotated[list[str], Meta(max_length=1_000)] = []
    queues: Annotated[list[str], Meta(max_length=1_000)] = []
    at_start: Annotated[
        Literal["wait", "preempt"],
        Meta(description="What becomes of jobs of others that are still there."),
    ] = "wait"
    name: Annotated[str, Meta(max_length=63)] = ""
    note: Annotated[str, Meta(max_length=500)] = ""


class WindowInfo(msgspec.Struct, kw_only=True):
    """A maintenance or a reservation. `state`: planned or active. Times are Unix seconds."""

    name: str
    kind: str
    state: str
    nodes: list[str]
    gpus: float
    start: float
    end: float | None = None  # until it is removed
    users: list[str] = []
    queues: list[str] = []
    at_start: str = "wait"
    note: str = ""
    by: str = ""
    jobs: list[str] = []  # of others, that run there and do not say that they end before


class NewRestart(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Agents that shall begin anew, one after the other; their jobs run on."""

    nodes: Annotated[
        list[str], Meta(max_length=10_000, description="By their nodes; empty: all in contact.")
    ] = []
    max_unavailable: Annotated[
        int, Meta(ge=1, le=10_000, description="So many may be away at the same time.")
    ] = 1
    timeout_s: Annotated[
        float, Meta(gt=0, le=86_400, description="An agent that is not back by then stops it all.")
    ] = 120.0
    drain: Annotated[
        bool, Meta(description="Drain its nodes before, and use them again afterwards.")
    ] = False
    deadline_s: (
        Annotated[float, Meta(ge=0, le=3.2e8, description="Of the drain: preempt what runs then.")]
        | None
    ) = None
    reason: Annotated[str, Meta(max_length=500)] = ""


class RestartedNode(msgspec.Struct, kw_only=True):
    """A node whose agent begins anew.

    `state`: waiting, draining, restarting, done or failed; skipped or stopped when it is over.
    """

    node: str
    state: str
    why: str = ""


class RestartInfo(msgspec.Struct, kw_only=True):
    """A rolling restart of agents. `state`: going, done, failed or stopped."""

    state: str
    nodes: list[RestartedNode]
    began: float  # Unix seconds
    ended: float | None = None
    why: str = ""  # it failed or was stopped
    max_unavailable: int = 1
    timeout_s: float = 120.0
    drain: bool = False
    deadline_s: float | None = None
    reason: str = ""
    by: str = ""


class DrainQuery(msgspec.Struct, omit_defaults=True):
    """How to drain a node."""

    stop: Annotated[bool, Meta(description="Preempt what runs there.")] = False
    deadline_s: (
        Annotated[float, Meta(ge=0, le=3.2e8, description="Preempt what still runs there then.")]
        | UnsetType
    ) = UNSET


class Distribution(TypedDict):
    """Seconds, counted since the daemon started.

    `buckets` are pairs (upper bound in seconds, how many were at most that), with rising bounds;
    what is above the last bound is only in `count`.
    """

    count: int
    sum: float
    buckets: list[tuple[float, int]]


class Gpus(TypedDict, total=False):
    """GPUs of the nodes. `total` is without nodes that are down; `used` by jobs."""

    total: float
    free: float
    used: float
    down: float


class LicenceUse(TypedDict, total=False):
    """Of one kind that the cluster has as a whole. `used`: by jobs that run; `spent`: for good."""

    total: float
    used: float
    spent: float
    asked: float  # by jobs that wait
    waiting: list[str]  # the first of those that ask for more than is left


class Status(TypedDict, total=False):
    """The daemon and its cluster in numbers. Times are Unix seconds; any key may be missing."""

    version: str
    policy: str
    placement: str
    admission: str
    backend: str
    now: float
    started_at: float  # this process
    epoch_unix: float  # instant 0 of the event log
    last_event: int  # number of the last row of the event log
    jobs: dict[str, int]  # by state, as in JobInfo
    gpus: Gpus
    nodes: dict[str, int]  # by state, as in NodeInfo
    agents: dict[str, int]  # by state
    queues: dict[str, float]  # GPUs in use by queue
    licences: dict[str, LicenceUse]  # by kind
    submissions: int  # jobs accepted since the daemon started, like the other counts below
    decisions: int
    preemptions: int
    restarts: int  # starts of jobs that had run before
    decision_s: Distribution  # one decision of the policy, with its plan carried out
    start_s: Distribution  # from the decision to start a job to its first progress
    commit_s: Distribution  # one transaction of the store
    journal_lag_s: float  # age of the oldest input that is not in the journal yet


class ReloadResult(msgspec.Struct):
    """What a reload changed."""

    changes: list[str]


class Health(msgspec.Struct):
    """The process answers."""

    ok: bool


class Readiness(msgspec.Struct):
    """Whether work can be accepted, and if not, why."""

    ready: bool
    why: str = ""


# --- event log -----------------------------------------------------------------------------------


class Event(msgspec.Struct, kw_only=True):
    """One row of the event log.

    `number` counts from 1 and is where to continue after a break. `time_s` are seconds since the
    store was created, `at` the same as Unix seconds. What `ref`, `other`, `value` and `text` mean
    depends on `event`: see the reference of the event log.
    """

    number: int
    time_s: float
    at: float
    event: str
    job: str | None
    ref: int
    other: int
    value: float | None
    text: str | None


class EventPage(msgspec.Struct):
    """A piece of the event log. Ask again with `after` = `next`; `end`: there is no more yet."""

    events: list[Event]
    next: int
    end: bool


class AuditEntry(msgspec.Struct):
    """What somebody did; `actor` is empty where the text names who it was."""

    number: int
    at: float
    actor: str
    act: str
    digest: str


class AuditPage(msgspec.Struct):
    """A piece of the audit log. Ask again with `after` = `next`; `end`: there is no more yet.

    `broken`: the number of the first line that does not follow from the one before it, because
    one of them was changed, removed or slipped in; 0: all of these do. `last`: how many lines this
    daemon has written.
    """

    lines: list[AuditEntry]
    next: int
    end: bool
    broken: int
    last: int


class AuditQuery(msgspec.Struct, kw_only=True):
    """Which lines of the audit log to read; without `after` the latest."""

    after: (
        Annotated[int, Meta(ge=0, le=MAX_NUMBER, description="Lines after this number.")]
        | UnsetType
    ) = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="At most so many.")] = PAGE


_OneJob = Annotated[str, Meta(pattern="^[0-9]{1,15}$", description="Only of this job (its id).")]


class EventsQuery(msgspec.Struct, kw_only=True):
    """Which rows of the event log to read."""

    after: Annotated[int, Meta(ge=0, le=MAX_NUMBER, description="Rows after this number.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="At most so many.")] = PAGE
    job: _OneJob | UnsetType = UNSET


class StreamQuery(msgspec.Struct, kw_only=True):
    """Which rows of the event log to follow; without `after` only new ones."""

    after: (
        Annotated[
            int, Meta(ge=0, le=MAX_NUMBER, description="Rows after this number; else new ones.")
        ]
        | UnsetType
    ) = UNSET
    job: _OneJob | UnsetType = UNSET


class StreamHeaders(msgspec.Struct, rename={"last": "Last-Event-ID"}):
    """Where a stream that was cut off continues; it goes before `after`."""

    last: (
        Annotated[int, Meta(ge=0, le=MAX_NUMBER, description="Resume after this number.")]
        | UnsetType
    ) = UNSET


# --- errors --------------------------------------------------------------------------------------

KINDS = (
    "not_found", "forbidden", "gone", "conflict", "input", "unavailable", "unauthorised",
    "too_large", "too_many", "internal",
)  # fmt: skip


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What every error looks like.

    `error` is a sentence for people, `kind` is for programs. `id`: look for it in the daemon's log.
    """

    error: str
    kind: Annotated[str, Meta(extra_json_schema={"enum": list(KINDS)})]  # later ones can be read
    remedy: str = ""
    id: str = ""


# --- operations ----------------------------------------------------------------------------------

T = TypeVar("T")
Reach = Literal["", "visible", "own", "inside"]


class PathPart(msgspec.Struct, frozen=True):
    """A name in the path of an operation; other texts cannot name anything."""

    what: str
    pattern: re.Pattern[str]
    about: str
    example: str
    listing: str  # the command that lists them


PATH_PARTS = {
    "job": PathPart("job", re.compile("[0-9]{1,15}"), "Id of the job.", "17", "ls --all"),
    "array": PathPart(
        "array",
        re.compile("[0-9]{1,15}"),
        "Id of the array: that of its first job.",
        "17",
        "ls --all",
    ),
    "node": PathPart(
        "node", re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,252}"), "Name of the node.", "n1", "nodes"
    ),
    "window": PathPart(
        "window",
        re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,62}"),
        "Name of the maintenance or reservation.",
        "maintenance-1",
        "maintenance ls",
    ),
    "name": PathPart("token", TOKEN_NAME, "Name of the token.", "alice", "token ls"),
    "person": PathPart("person", TOKEN_NAME, "Name of the person.", "alice", "user ls"),
    "secret": PathPart(
        "secret",
        re.compile("[A-Za-z_][A-Za-z0-9_]{0,199}"),
        "Name of the secret.",
        "HF_TOKEN",
        "secret ls",
    ),
    "digest": PathPart(
        "piece", re.compile("[0-9a-f]{64}"), "SHA-256 of the piece.", "0" * 64, "submit"
    ),
    "channel": PathPart(
        "channel",
        re.compile("main|[0-9a-f]{16,32}"),
        "Id of the channel.",
        "0123456789abcdef",
        "exec",
    ),
    "asset": PathPart(
        "file", re.compile("[a-z][a-z-]{0,40}\\.(js|css|svg)"), "Name of the file.", "app.js", "web"
    ),
    "session": PathPart(
        "session", re.compile("[0-9a-f]{12}"), "Id of the session.", "0123456789ab", "session ls"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[T]):
    """One call of the interface.

    Args:
        name: Its id, and the name of its handler.
        method: Of HTTP.
        path: With names in braces (see `PATH_PARTS`).
        role: The least role that may call it.
        reach: Which jobs it works on: `visible` (users see only their own), `own` (those of the
            actor; for operators all) or `inside` (those of the actor; for administrators all).
        answer: The type of the answer; bytes: as it is.
        shape: A JSON schema (which may hold types) to document instead of `answer`.
        query: Its query parameters.
        headers: Its header parameters.
        body: The type of the body.
        body_shape: A JSON schema to document instead of `body`.
        body_media: The media type of the body.
        examples: Bodies, by title.
        media: The media type of the answer.
        status: Of the answer.
        also: Types of other answers that are no problems, by status.
        errors: The statuses of problems that only some operations have.
        about: What the answer is.
        tag: Its section in the documentation.
        again: Sending it twice does no harm.
        timeout_s: How long clients wait for the answer.
    """

    name: str
    method: str = "GET"
    path: str
    role: str
    reach: Reach = ""
    answer: type[T]
    shape: Any = None
    query: type[msgspec.Struct] | None = None
    headers: type[msgspec.Struct] | None = None
    body: Any = None
    body_shape: Any = None
    body_media: str = JSON
    examples: Mapping[str, Any] | None = None
    media: str = JSON
    status: int = 200
    also: Mapping[int, Any] | None = None
    errors: tuple[int, ...] = ()
    about: str = "Done."
    tag: str
    again: bool = True
    timeout_s: float = 30.0


SUBMIT_JOBS = Operation(
    name="submit_jobs", method="POST", path=f"{PREFIX}/jobs", role=USER, tag="jobs",
    headers=SubmitHeaders, body=JobFile | list[JobFile],
    body_shape={"anyOf": [JobFile, {"type": "array", "items": JobFile, "minItems": 1}]},
    examples={
        "one job": {
            "name": "train", "run": "python train.py", "resources": {"gpus": 2},
            "queue": "research", "estimate": "2h",
        },
        "several jobs": [
            {"run": f"python train.py --seed {seed}", "resources": {"gpus": 1}} for seed in (1, 2)
        ],
    },
    answer=list[JobInfo], status=201, about="The jobs, in their order.", errors=(409,),
    timeout_s=120.0,  # with the same key again they are the same jobs
)  # fmt: skip
LIST_JOBS = Operation(
    name="list_jobs", path=f"{PREFIX}/jobs", role=VIEWER, reach="visible", tag="jobs",
    query=JobsQuery, answer=list[JobInfo], about="A page of jobs.",
)  # fmt: skip
GET_JOB = Operation(
    name="get_job", path=f"{PREFIX}/jobs/{{job}}", role=VIEWER, reach="visible", tag="jobs",
    answer=JobInfo, about="The job.",
)  # fmt: skip
FIND_JOBS = Operation(
    name="find_jobs", path=f"{PREFIX}/find/jobs", role=VIEWER, reach="visible", tag="jobs",
    query=FindQuery, answer=FoundJobs, about="A piece of the table.",
)  # fmt: skip
CANCEL_JOB, HOLD_JOB, RELEASE_JOB = (
    Operation(
        name=f"{verb}_job", method="POST", path=f"{PREFIX}/jobs/{{job}}/{verb}", role=USER,
        reach="own", tag="jobs", answer=JobInfo, about="The job afterwards.", errors=(409,),
    )
    for verb in ("cancel", "hold", "release")
)  # fmt: skip
GET_USAGE = Operation(
    name="get_job_usage", path=f"{PREFIX}/jobs/{{job}}/usage", role=VIEWER, reach="visible",
    tag="jobs", answer=JobUsage, about="What it used, with the series.",
)  # fmt: skip
LIST_EFFICIENCY = Operation(
    name="list_efficiency", path=f"{PREFIX}/efficiency", role=VIEWER, reach="visible",
    tag="cluster", query=EfficiencyQuery, answer=list[UsageSummary],
    about="By user or queue, of the jobs that the token may see.",
)  # fmt: skip
GET_ARRAY = Operation(
    name="get_array", path=f"{PREFIX}/arrays/{{array}}", role=VIEWER, reach="visible", tag="jobs",
    answer=ArrayInfo, about="The array.",
)  # fmt: skip
CANCEL_ARRAY, HOLD_ARRAY, RELEASE_ARRAY = (
    Operation(
        name=f"{verb}_array", method="POST", path=f"{PREFIX}/arrays/{{array}}/{verb}", role=USER,
        reach="own", tag="jobs", answer=ArrayInfo, about="The array afterwards.", errors=(409,),
    )
    for verb in ("cancel", "hold", "release")
)  # fmt: skip
EXPLAIN_JOB = Operation(
    name="explain_job", path=f"{PREFIX}/jobs/{{job}}/explain", role=VIEWER, reach="visible",
    tag="jobs", answer=Explanation, about="Why it waits or waited.", errors=(409,),
)  # fmt: skip
FORECAST_JOB = Operation(
    name="forecast_job", path=f"{PREFIX}/jobs/{{job}}/when", role=VIEWER, reach="visible",
    tag="jobs", query=ForecastQuery, answer=Forecast, about="When it will start.", errors=(409,),
    timeout_s=600.0,
)  # fmt: skip
WHY_JOB = Operation(
    name="why_job", path=f"{PREFIX}/jobs/{{job}}/why", role=VIEWER, reach="visible", tag="jobs",
    query=ForecastQuery, answer=Verdict, errors=(409,), timeout_s=600.0,
    about="The reason, what shows it, and the smallest change that would start the job.",
)  # fmt: skip
FORECAST_NEW = Operation(
    name="forecast_new_job", method="POST", path=f"{PREFIX}/when", role=USER, tag="jobs",
    query=ForecastQuery, body=JobFile, answer=Forecast, timeout_s=600.0,
    examples={"16 GPUs": {"run": "true", "resources": {"gpus": 16}, "queue": "research"}},
    about="When it would start. Nothing is submitted.",
)  # fmt: skip
WHY_NEW = Operation(
    name="why_new_job", method="POST", path=f"{PREFIX}/why", role=USER, tag="jobs",
    query=ForecastQuery, body=JobFile, answer=Verdict, timeout_s=600.0,
    examples={"16 GPUs": {"run": "true", "resources": {"gpus": 16}, "queue": "research"}},
    about="Why it would not start now. Nothing is submitted.",
)  # fmt: skip
READ_OUTPUT = Operation(
    name="read_job_log", path=f"{PREFIX}/jobs/{{job}}/logs", role=VIEWER, reach="own", tag="jobs",
    query=OutputQuery, answer=bytes, shape={"type": "string"}, media=TEXT,
    about="The output, as it was written.", errors=(410,),
)  # fmt: skip

_CHANNELS = f"{PREFIX}/jobs/{{job}}/channels"
OPEN_CHANNEL = Operation(
    name="open_channel", method="POST", path=_CHANNELS, role=USER, reach="inside", tag="channels",
    body=NewChannel,
    examples={
        "a command": {"id": "0123456789abcdef", "argv": ["nvidia-smi"]},
        "a shell": {"id": "fedcba9876543210", "tty": True, "rows": 24, "cols": 80},
        "a notebook": {"id": "00112233445566778899aabbccddeeff", "port": 8888},
    },
    answer=ChannelInfo, status=201, about="The channel.", errors=(409,), timeout_s=120.0,
)  # fmt: skip
LIST_CHANNELS = Operation(
    name="list_channels", path=_CHANNELS, role=USER, reach="inside", tag="channels",
    query=RankQuery, answer=list[ChannelInfo], about="Those that are open.", errors=(409,),
)  # fmt: skip
READ_CHANNEL = Operation(
    name="read_channel", path=f"{_CHANNELS}/{{channel}}/output", role=USER, reach="inside",
    tag="channels", query=ChannelQuery, answer=bytes, shape={"type": "string", "format": "binary"},
    media=BINARY, about="Whole pieces of output, perhaps none.", errors=(409,), timeout_s=120.0,
)  # fmt: skip
WRITE_CHANNEL = Operation(
    name="write_channel", method="POST", path=f"{_CHANNELS}/{{channel}}/input", role=USER,
    reach="inside", tag="channels", query=InputQuery, body=bytes,
    body_shape={"type": "string", "format": "binary"}, body_media=BINARY, answer=InputTaken,
    about="How much was taken.", errors=(409,), timeout_s=120.0,
)  # fmt: skip
CLOSE_CHANNEL = Operation(
    name="close_channel", method="DELETE", path=f"{_CHANNELS}/{{channel}}", role=USER,
    reach="inside", tag="channels", query=RankQuery, answer=type(None), status=204,
    about="It ends.", errors=(409,), again=False,  # the second time it would not be found
)  # fmt: skip

PLAN_UPLOAD = Operation(
    name="plan_upload", method="POST", path=f"{PREFIX}/uploads", role=USER, tag="files",
    body=FileManifest, answer=UploadState, about="What is missing.", errors=(409,), timeout_s=120.0,
    examples={"an empty file": {"files": [{"path": "train.py", "size": 0}]}},
)  # fmt: skip
SEND_PIECE = Operation(
    name="send_piece", method="POST", path=f"{PREFIX}/uploads/pieces/{{digest}}", role=USER,
    tag="files", body=bytes, body_shape={"type": "string", "format": "binary"}, body_media=BINARY,
    answer=type(None), status=204, about="It is kept.", errors=(409,), timeout_s=120.0,
)  # fmt: skip
LIST_FILES = Operation(
    name="list_files", path=f"{PREFIX}/jobs/{{job}}/files", role=USER, reach="inside", tag="files",
    query=FilesQuery, answer=FilePage, about="A page of files.", errors=(409,), timeout_s=120.0,
)  # fmt: skip
READ_FILE = Operation(
    name="read_job_file", path=f"{PREFIX}/jobs/{{job}}/files/content", role=USER, reach="inside",
    tag="files", query=FileQuery, answer=bytes, shape={"type": "string", "format": "binary"},
    media=BINARY, about="A piece of it.", errors=(409,), timeout_s=120.0,
)  # fmt: skip

SET_SECRET = Operation(
    name="set_secret", method="POST", path=f"{PREFIX}/secrets", role=USER, tag="files",
    body=NewSecret, answer=type(None), status=204, about="It is kept.", errors=(409,),
)  # fmt: skip
LIST_SECRETS = Operation(
    name="list_secrets", path=f"{PREFIX}/secrets", role=USER, tag="files",
    answer=list[SecretInfo], about="Their names.", errors=(409,),
)  # fmt: skip
REMOVE_SECRET = Operation(
    name="remove_secret", method="DELETE", path=f"{PREFIX}/secrets/{{secret}}", role=USER,
    tag="files", answer=type(None), status=204, about="It is gone.", errors=(409,),
    again=False,  # the second time it would not be found
)  # fmt: skip

LIST_EVENTS = Operation(
    name="list_events", path=f"{PREFIX}/events", role=VIEWER, reach="visible", tag="events",
    query=EventsQuery, answer=EventPage, about="A page of the event log.", errors=(404,),
)  # fmt: skip
STREAM_EVENTS = Operation(
    name="stream_events", path=f"{PREFIX}/events/stream", role=VIEWER, reach="visible",
    tag="events", query=StreamQuery, headers=StreamHeaders, answer=bytes,
    shape={
        "type": "object",
        "description": "One message of the stream.",
        "properties": {
            "id": {"type": "string", "description": "Number of the row."},
            "data": {"type": "string", "contentMediaType": JSON, "contentSchema": Event},
        },
    },
    media=EVENT_STREAM, about="Messages, as they come.", errors=(404,),
)  # fmt: skip
STREAM_BOARD = Operation(
    name="stream_board", path=f"{PREFIX}/board", role=VIEWER, tag="cluster", headers=StreamHeaders,
    answer=bytes,
    shape={
        "type": "object",
        "description": "One message: the whole board (`full`), or what has changed (`delta`).",
        "properties": {
            "event": {"enum": ["full", "delta"]},
            "id": {"type": "string", "description": "Where to resume."},
            "data": {"type": "string", "contentMediaType": JSON},
        },
    },
    media=EVENT_STREAM, about="Messages, as things change, at most two in a second.",
)  # fmt: skip
EXPORT_EVENTS = Operation(
    name="export_events", path=f"{PREFIX}/events.parquet", role=OPERATOR, tag="events",
    answer=bytes, shape={"type": "string", "format": "binary"}, media=PARQUET, about="The file.",
    timeout_s=600.0,
)  # fmt: skip

LIST_AUDIT = Operation(
    name="list_audit", path=f"{PREFIX}/audit/log", role=OPERATOR, tag="events", query=AuditQuery,
    answer=AuditPage, about="A page of the audit log, with the check of its chain.",
)  # fmt: skip
AUDIT_QUEUES = Operation(
    name="audit_queues", path=f"{PREFIX}/audit/queues", role=OPERATOR, tag="cluster",
    answer=list[Finding], about="What was found, each with numbers and a remedy.",
)  # fmt: skip
LIST_NODES = Operation(
    name="list_nodes", path=f"{PREFIX}/nodes", role=VIEWER, tag="cluster", answer=list[NodeInfo]
)
DRAIN_NODE = Operation(
    name="drain_node", method="POST", path=f"{PREFIX}/nodes/{{node}}/drain", role=OPERATOR,
    tag="cluster", query=DrainQuery, answer=NodeInfo, about="The node afterwards.", errors=(409,),
)  # fmt: skip
UNDRAIN_NODE = Operation(
    name="undrain_node", method="POST", path=f"{PREFIX}/nodes/{{node}}/undrain", role=OPERATOR,
    tag="cluster", answer=NodeInfo, about="The node afterwards.", errors=(409,),
)  # fmt: skip
LIST_WINDOWS = Operation(
    name="list_windows", path=f"{PREFIX}/windows", role=VIEWER, tag="cluster",
    answer=list[WindowInfo], about="By their start.",
)  # fmt: skip
ADD_WINDOW = Operation(
    name="add_window", method="POST", path=f"{PREFIX}/windows", role=OPERATOR, tag="cluster",
    body=NewWindow,
    examples={"a reservation": {"kind": "reservation", "gpus": 8, "users": ["alice"]}},
    answer=WindowInfo, status=201, about="The window.", errors=(409,),
    again=False,  # the second time its name would be taken
)  # fmt: skip
REMOVE_WINDOW = Operation(
    name="remove_window", method="DELETE", path=f"{PREFIX}/windows/{{window}}", role=OPERATOR,
    tag="cluster", answer=type(None), status=204, about="It is gone.",
    again=False,  # the second time it would not be found
)  # fmt: skip
BEGIN_RESTART = Operation(
    name="begin_restart", method="POST", path=f"{PREFIX}/restart", role=OPERATOR, tag="cluster",
    body=NewRestart, examples={"two nodes": {"nodes": ["n1", "n2"], "reason": "new version"}},
    answer=RestartInfo, status=201, about="What is begun.", errors=(404, 409),
    again=False,  # the second time one would be under way
)  # fmt: skip
GET_RESTART = Operation(
    name="get_restart", path=f"{PREFIX}/restart", role=VIEWER, tag="cluster", answer=RestartInfo,
    about="How far it is, or how the last one ended.", errors=(404, 409),
)  # fmt: skip
STOP_RESTART = Operation(
    name="stop_restart", method="DELETE", path=f"{PREFIX}/restart", role=OPERATOR, tag="cluster",
    answer=RestartInfo, about="How far it came.", errors=(404, 409),
)  # fmt: skip
NODE_HISTORY = Operation(
    name="node_history", path=f"{PREFIX}/nodes/{{node}}/history", role=VIEWER, tag="cluster",
    answer=list[NodeEvent], about="What happened to it, oldest first.",
)  # fmt: skip
REMOVE_NODE = Operation(
    name="remove_node", method="DELETE", path=f"{PREFIX}/nodes/{{node}}", role=OPERATOR,
    tag="cluster", answer=type(None), status=204, about="It is gone.", errors=(409,),
    again=False,  # the second time it would not be found
)  # fmt: skip
LIST_QUEUES = Operation(
    name="list_queues", path=f"{PREFIX}/queues", role=VIEWER, tag="cluster", answer=list[QueueInfo]
)
GET_STATUS = Operation(
    name="get_status", path=f"{PREFIX}/status", role=VIEWER, tag="cluster",
    answer=dict[str, Any], shape=Status,  # clients keep the keys that later daemons add
)  # fmt: skip

LIST_LANES = Operation(
    name="list_lanes", path=f"{PREFIX}/lanes", role=VIEWER, tag="cluster", query=LanesQuery,
    answer=Lanes, about="Who had which GPUs.", timeout_s=120.0,
)  # fmt: skip
LIST_CHOICES = Operation(
    name="list_choices", path=f"{PREFIX}/choices", role=VIEWER, tag="cluster", answer=Choices
)
TRY_OUT = Operation(
    name="try_out", method="POST", path=f"{PREFIX}/try", role=OPERATOR, tag="cluster", body=WhatIf,
    examples={"another policy": {"policy": "srtf"}, "two more nodes": {"more_nodes": 2}},
    answer=TrialAnswer, about="The present queue as it is, and as it would be.", timeout_s=600.0,
    errors=(404,),
)  # fmt: skip

WHOAMI = Operation(
    name="whoami", path=f"{PREFIX}/whoami", role=VIEWER, tag="admin", answer=Actor
)  # fmt: skip
LIST_TOKENS = Operation(
    name="list_tokens", path=f"{PREFIX}/tokens", role=ADMIN, tag="admin", answer=list[TokenInfo]
)
CREATE_TOKEN = Operation(
    name="create_token", method="POST", path=f"{PREFIX}/tokens", role=ADMIN, tag="admin",
    body=NewToken, examples={"a user": {"name": "alice", "role": "user"}},
    answer=MadeToken, status=201, about="The token.", errors=(404, 409),
    again=False,  # the second time its name would be taken
)  # fmt: skip
REVOKE_TOKEN = Operation(
    name="revoke_token", method="DELETE", path=f"{PREFIX}/tokens/{{name}}", role=ADMIN,
    tag="admin", answer=type(None), status=204, about="It is worthless.", errors=(409,),
    again=False,  # the second time it would not be found
)  # fmt: skip
LIST_PEOPLE = Operation(
    name="list_people", path=f"{PREFIX}/people", role=ADMIN, tag="people", answer=list[Person]
)
ADD_PERSON = Operation(
    name="add_person", method="POST", path=f"{PREFIX}/people", role=ADMIN, tag="people",
    body=NewPerson, examples={"a user": {"name": "alice", "role": "user", "queues": ["research"]}},
    answer=Person, status=201, about="The person.", errors=(409,),
    again=False,  # the second time the name would be taken
)  # fmt: skip
CHANGE_PERSON = Operation(
    name="change_person", method="POST", path=f"{PREFIX}/people/{{person}}", role=ADMIN,
    tag="people", body=PersonChange, examples={"an operator": {"role": "operator"}},
    answer=Person, about="The person afterwards.", errors=(409,),
)  # fmt: skip
DISABLE_PERSON, ENABLE_PERSON = (
    Operation(
        name=f"{verb}_person", method="POST", path=f"{PREFIX}/people/{{person}}/{verb}",
        role=ADMIN, tag="people", answer=Person, about="The person afterwards.", errors=(409,),
    )
    for verb in ("disable", "enable")
)  # fmt: skip
LIST_SESSIONS = Operation(
    name="list_sessions", path=f"{PREFIX}/sessions", role=VIEWER, tag="people",
    answer=list[SessionInfo],
)  # fmt: skip
END_SESSION = Operation(
    name="end_session", method="DELETE", path=f"{PREFIX}/sessions/{{session}}", role=VIEWER,
    tag="people", answer=type(None), status=204, about="It is over.",
    again=False,  # the second time it would not be found
)  # fmt: skip
BEGIN_LOGIN = Operation(
    name="begin_login", method="POST", path=f"{PREFIX}/login", role=PUBLIC, tag="people",
    body=LoginRequest, examples={"a command": {"redirect": "http://127.0.0.1:41234/callback"}},
    answer=LoginStart, status=201, about="Where to go.", errors=(404, 422, 429, 503),
)  # fmt: skip
FINISH_LOGIN = Operation(
    name="finish_login", method="POST", path=f"{PREFIX}/login/answer", role=PUBLIC, tag="people",
    body=LoginAnswer, answer=MadeSession, status=201, about="The session.",
    errors=(401, 403, 404, 409, 422, 429, 503),
    again=False,  # a code is good once
)  # fmt: skip
BEGIN_WEB_LOGIN = Operation(
    name="begin_web_login", path="/web/oidc", role=PUBLIC, tag="people", answer=bytes,
    shape={"type": "string"}, media=TEXT, status=303, about="To the identity provider.",
    errors=(404, 422, 429, 503),
)  # fmt: skip
FINISH_WEB_LOGIN = Operation(
    name="finish_web_login", path="/web/oidc/callback", role=PUBLIC, tag="people",
    query=ProviderQuery, answer=bytes, shape={"type": "string"}, media=HTML,
    about="Logged in: the page is at `/`.", errors=(401, 403, 404, 409, 422, 429, 503),
)  # fmt: skip
RELOAD = Operation(
    name="reload_configuration", method="POST", path=f"{PREFIX}/reload", role=ADMIN, tag="admin",
    answer=ReloadResult, about="What changed.", errors=(409,),
)  # fmt: skip
PROVE_SERVER = Operation(
    name="prove_server", path=PROOF_PATH, role=PUBLIC, tag="admin", query=ProofQuery,
    answer=ServerCode, about="The proof.", errors=(401, 422, 429),
)  # fmt: skip
CREATE_WEB_CODE = Operation(
    name="create_web_code", method="POST", path=f"{PREFIX}/web/codes", role=VIEWER, tag="admin",
    answer=WebCode, status=201, about="The code.",
)  # fmt: skip
LOG_IN = Operation(
    name="log_in", path="/web/login", role=PUBLIC, tag="admin", query=LoginQuery, answer=bytes,
    shape={"type": "string"}, media=TEXT, status=303, about="Logged in: the page is at `/`.",
    errors=(401, 422, 429),
)  # fmt: skip
KEEP_BROWSER = Operation(
    name="keep_browser", method="POST", path=f"{PREFIX}/web/keys", role=VIEWER, tag="admin",
    body=BrowserKey, answer=type(None), status=204, about="It may come again.", errors=(409,),
)  # fmt: skip
CHALLENGE_BROWSER = Operation(
    name="challenge_browser", path="/web/challenge", role=PUBLIC, tag="admin", answer=Challenge,
    about="What to sign.",
)  # fmt: skip
RESUME_BROWSER = Operation(
    name="resume_browser", method="POST", path="/web/resume", role=PUBLIC, tag="admin",
    body=ResumeRequest, answer=type(None), status=204, about="A new session.",
    errors=(401, 422, 429),
    again=False,  # a challenge is good once
)  # fmt: skip
SHOW_PAGE = Operation(
    name="show_page", path="/", role=PUBLIC, tag="admin", answer=bytes, shape={"type": "string"},
    media=HTML, about="The page; it asks for what it shows.",
)  # fmt: skip
GET_ASSET = Operation(
    name="get_asset", path="/assets/{asset}", role=PUBLIC, tag="admin", answer=bytes,
    shape={"type": "string"}, media="*/*", about="The file.", errors=(404,),
)  # fmt: skip
SYNC_AGENT = Operation(
    name="sync_agent", method="POST", path=f"{PREFIX}/agent/sync", role=AGENT, tag="agents",
    body=bytes, body_shape={}, answer=bytes, shape={}, about="Orders.", errors=(404, 409),
)  # fmt: skip

CALL_AGENT = Operation(
    name="call_agent", method="POST", path=f"{PREFIX}/agent/lane", role=AGENT, tag="agents",
    body=bytes, body_shape={}, answer=bytes, shape={}, media=BINARY, about="Calls.",
    errors=(404, 409),
)  # fmt: skip

FETCH_PIECE = Operation(
    name="fetch_piece", method="POST", path=f"{PREFIX}/agent/pieces", role=AGENT, tag="agents",
    body=bytes, body_shape={}, answer=bytes, shape={}, media=BINARY, about="The piece.",
    errors=(404, 409),
)  # fmt: skip

INVITE_NODE = Operation(
    name="invite_node", method="POST", path=f"{PREFIX}/invitations", role=ADMIN, tag="agents",
    body=NewInvitation, examples={"an hour": {"node": "gpu1", "valid_s": 3600}},
    answer=Invitation, status=201, about="The code.", errors=(409,),
)  # fmt: skip
JOIN_NODE = Operation(
    name="join_node", method="POST", path=f"{PREFIX}/agent/join", role=PUBLIC, tag="agents",
    body=JoinRequest, answer=Membership, about="The credential of the node.",
    errors=(403, 409, 422, 429, 503),
    again=False,  # the second time the code would be void
)  # fmt: skip
RENEW_NODE = Operation(
    name="renew_node", method="POST", path=f"{PREFIX}/agent/certificate", role=AGENT, tag="agents",
    body=RenewRequest, answer=Membership, about="Another certificate.", errors=(409,),
)  # fmt: skip
GET_AUTHORITY = Operation(
    name="get_authority", path=f"{PREFIX}/authority", role=PUBLIC, tag="agents", answer=bytes,
    shape={"type": "string"}, media=TEXT, errors=(404,),
    about="The certificate of the daemon's own authority (PEM).",
)  # fmt: skip

CHECK_HEALTH = Operation(
    name="check_health", path="/healthz", role=PUBLIC, tag="health", answer=Health
)
CHECK_READY = Operation(
    name="check_ready", path="/readyz", role=PUBLIC, tag="health", answer=Readiness,
    about="Ready.", also={503: Readiness},
)  # fmt: skip
GET_METRICS = Operation(
    name="get_metrics", path="/metrics", role=VIEWER, tag="health", answer=bytes,
    shape={"type": "string"}, media=TEXT, about="Numbers in the text format of Prometheus.",
)  # fmt: skip
GET_SCHEMA = Operation(
    name="get_schema", path=f"{PREFIX}/openapi.json", role=PUBLIC, tag="health",
    answer=dict[str, Any], shape={"type": "object"}, about="The OpenAPI document.",
)  # fmt: skip

OPERATIONS: dict[str, Operation[Any]] = {
    found.name: found for found in list(globals().values()) if isinstance(found, Operation)
}
