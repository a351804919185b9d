"""Every call of the API as data; the two clients only differ in how they send it."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from rota.core.errors import InputError, NotFoundError
from rota.jobfile.check import check
from rota.jobfile.model import JobFile
from rota.sdk.events import EventPage
from rota.wire import Actor, Explanation, Forecast, JobInfo, NodeInfo, QueueInfo

BASE = "/api/v1"
JobLike: TypeAlias = JobFile | Mapping[str, Any]
ENDS = frozenset({"SUCCEEDED", "FAILED", "REJECTED", "CANCELLED"})
PAGE = 1000
MOST_JOBS = 5000  # of one request
MOST_BYTES = 4 << 20
LONGEST_KEY = 150


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `again`: it may be sent twice without harm."""

    method: str = "GET"
    path: str
    kind: Any
    query: Mapping[str, Any] = {}
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    again: bool = True
    timeout_s: float = 30.0


def as_job(job: JobLike, where: str = "job") -> JobFile:
    """A job from a struct or from keys as in a job file."""
    if not isinstance(job, JobFile):
        try:
            job = msgspec.convert(job, JobFile)
        except msgspec.ValidationError as error:
            raise InputError(f"{where}: {str(error).replace('`', '')}: correct it") from error
    check(job, where)
    return job


def _name(text: str, what: str) -> str:
    """Part of a path; what would lead elsewhere cannot be the name of anything."""
    if not text.strip(".") or "/" in text:
        where = {"job": "ls", "node": "nodes", "token": "token ls"}[what]
        raise NotFoundError(f"there is no {what} {text[:200]!r}: see `rota {where}`")
    return quote(text, safe="", errors="replace")


def _query(**given: Any) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value not in (None, "", (), False)}


def submit(jobs: Sequence[JobLike], key: str | None) -> list[Call]:
    """The requests that submit these jobs: one, unless there are too many for that.

    The jobs of a request are accepted all or none; with the same key again they are the same jobs.
    """
    key = key or uuid.uuid4().hex
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"key is {key[:60]!r}: give 1 to {LONGEST_KEY} letters and digits")
    pieces: list[list[bytes]] = [[]]
    size = 0
    for number, job in enumerate(jobs, 1):
        encoded = msgspec.json.encode(as_job(job, f"job {number}"))
        if len(pieces[-1]) == MOST_JOBS or (pieces[-1] and size + len(encoded) > MOST_BYTES):
            pieces.append([])
            size = 0
        pieces[-1].append(encoded)
        size += len(encoded) + 1
    return [
        Call(
            method="POST",
            path=f"{BASE}/jobs",
            body=b"[" + b",".join(piece) + b"]",
            headers={"Idempotency-Key": f"{key}-{number}" if number else key},
            kind=list[JobInfo],
            timeout_s=120.0,
        )
        for number, piece in enumerate(pieces)
        if piece
    ]


def jobs(
    *,
    states: Sequence[str] = (),
    queue: str = "",
    user: str = "",
    active: bool = False,
    after: str = "",
    limit: int = PAGE,
) -> Call:
    """A page of jobs."""
    query = _query(
        state=tuple(states), queue=queue, user=user, active=active, after=after, limit=limit
    )
    return Call(path=f"{BASE}/jobs", query=query, kind=list[JobInfo])


def job(job: str) -> Call:
    """One job."""
    return Call(path=f"{BASE}/jobs/{_name(job, 'job')}", kind=JobInfo)


def change(job: str, verb: str) -> Call:
    """Cancel, hold or release: doing it twice changes nothing more."""
    return Call(method="POST", path=f"{BASE}/jobs/{_name(job, 'job')}/{verb}", kind=JobInfo)


def explain(job: str) -> Call:
    """Why it waits."""
    return Call(path=f"{BASE}/jobs/{_name(job, 'job')}/explain", kind=Explanation)


def when(job: str, runs: int) -> Call:
    """When it will start."""
    path = f"{BASE}/jobs/{_name(job, 'job')}/when"
    return Call(path=path, query={"runs": runs}, kind=Forecast, timeout_s=600.0)


def logs(job: str, **query: Any) -> Call:
    """Its output."""
    return Call(path=f"{BASE}/jobs/{_name(job, 'job')}/logs", query=_query(**query), kind=bytes)


def nodes() -> Call:
    """All nodes."""
    return Call(path=f"{BASE}/nodes", kind=list[NodeInfo])


def drain(node: str, *, stop: bool) -> Call:
    """Start nothing more there."""
    path = f"{BASE}/nodes/{_name(node, 'node')}/drain"
    return Call(method="POST", path=path, query=_query(stop=stop and "true"), kind=NodeInfo)


def undrain(node: str) -> Call:
    """Use it again."""
    path = f"{BASE}/nodes/{_name(node, 'node')}/undrain"
    return Call(method="POST", path=path, kind=NodeInfo)


def remove_node(node: str) -> Call:
    """Forget it; sent twice it would not be found."""
    path = f"{BASE}/nodes/{_name(node, 'node')}"
    return Call(method="DELETE", path=path, kind=None, again=False)


def queues() -> Call:
    """All queues."""
    return Call(path=f"{BASE}/queues", kind=list[QueueInfo])


def status() -> Call:
    """Version, policy, counts."""
    return Call(path=f"{BASE}/status", kind=dict[str, Any])


def whoami() -> Call:
    """Name and role of the token."""
    return Call(path=f"{BASE}/whoami", kind=Actor)


def reload() -> Call:
    """Read the configuration again."""
    return Call(method="POST", path=f"{BASE}/reload", kind=dict[str, Any])


def tokens() -> Call:
    """Names and roles."""
    return Call(path=f"{BASE}/tokens", kind=list[Actor])


def create_token(name: str, role: str) -> Call:
    """A new token; sent twice it would meet its own name."""
    body = msgspec.json.encode({"name": name, "role": role})
    return Call(method="POST", path=f"{BASE}/tokens", body=body, kind=dict[str, str], again=False)


def revoke_token(name: str) -> Call:
    """It is worth nothing from now on."""
    return Call(
        method="DELETE", path=f"{BASE}/tokens/{_name(name, 'token')}", kind=None, again=False
    )


def events(after: int, limit: int, job: str = "") -> Call:
    """A page of the event log."""
    query = {"after": after, **_query(limit=limit, job=job)}
    return Call(path=f"{BASE}/events", query=query, kind=EventPage)


def stream(after: int | None, job: str = "") -> Call:
    """The event log as it grows, from a number or from now on."""
    start = {} if after is None else {"after": after}
    return Call(path=f"{BASE}/events/stream", query=start | _query(job=job), kind=None)


def export() -> Call:
    """The whole event log as a Parquet file."""
    return Call(path=f"{BASE}/events.parquet", kind=bytes, timeout_s=600.0)
