"""What the daemon tells about jobs, nodes and queues: plain data for API, SDK and command line."""

from typing import Any

import msgspec

from rota.core.backtest import Backtest
from rota.jobfile.model import JobFile


class JobInfo(msgspec.Struct, kw_only=True):
    """One job. Times are Unix seconds; None: not yet (or never).

    `state`: HELD, PENDING, STARTING, RUNNING, STOPPING (being preempted), SUCCEEDED, FAILED,
    REJECTED or CANCELLED. `reason`: why it waits (one of the labels of `rota.core.reasons`).
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
    file: JobFile | None = (
        None  # as submitted: for its owner and admins, when it alone is asked for
    )


class NodeInfo(msgspec.Struct, kw_only=True):
    """One node. `state`: up, silent, down, draining or drained.

    A node is drained when nothing runs there any more; until then it is draining.
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
    asked_gpus: float = 0.0  # by those that wait
    lend: float | None = None  # GPUs of its quota that others may use; None: all
    borrow: float | None = None  # GPUs that it may use beyond its quota; None: up to its limit


class WhyPart(msgspec.Struct, kw_only=True):
    """A part of a job's waiting time."""

    reason: str
    seconds: float
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
    waits_for: list[str] = []  # jobs that it depends on and that are not done


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
    backtest: Backtest | None = None  # None: nothing to foresee


class Actor(msgspec.Struct, frozen=True):
    """Who asks. Roles: viewer < user < operator < admin; `agent` only speaks for its nodes."""

    name: str
    role: str


class LogRow(msgspec.Struct, array_like=True):
    """One row of the event log; `number` counts from 1."""

    number: int
    time_s: float
    event: str  # label of `rota.core.log.Record`
    job: int
    ref: int
    other: int
    value: float
    text: str | None
