"""What `Service.status()` may tell, and what /status and /metrics make of it.

Every key may be missing: then the answer lacks it, and so does /metrics. Other keys are passed on
as they are.
"""

from typing import TypedDict

import msgspec


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


class Status(TypedDict, total=False):
    """The daemon and its cluster in numbers. Times are Unix seconds."""

    version: str
    policy: str
    placement: str
    backend: str
    now: float
    started_at: float  # this process
    epoch_unix: float  # instant 0 of the event log
    last_event: int  # number of the last row of the event log
    jobs: dict[str, int]  # by state, as in JobInfo
    gpus: Gpus
    nodes: dict[str, int]  # by state, as in NodeInfo
    agents: dict[str, int]  # by state
    submissions: int  # jobs accepted since the daemon started, like the other counts below
    decisions: int
    preemptions: int
    restarts: int  # starts of jobs that had run before
    decision_s: Distribution  # one decision of the policy, with its plan carried out
    start_s: Distribution  # from the decision to start a job to its first progress
    commit_s: Distribution  # one transaction of the store
    journal_lag_s: float  # age of the oldest input that is not in the journal yet


class Health(msgspec.Struct):
    """The process answers."""

    ok: bool


class Readiness(msgspec.Struct):
    """Can work be accepted? And if not, why."""

    ready: bool
    why: str = ""
