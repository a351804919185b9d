"""Calls to the machine where a job runs or ran: into the run (channels), and to its files.

Each is answered at once, or when there is something to say. All can be repeated without harm:
whoever was cut off goes on where it was.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

MAIN = "main"  # the channel of a run that has a terminal itself
WAIT_S = 20.0  # the longest that a call waits for news
PIECE = 1 << 18  # bytes in a call or an answer


class OpenChannel(msgspec.Struct, frozen=True, omit_defaults=True, tag="open"):
    """Start a command in the run, or connect to a port there; once, however often it is asked."""

    channel: str
    argv: tuple[str, ...] = ()  # empty: a shell
    tty: bool = False
    rows: int = 0
    cols: int = 0
    port: int = 0  # not 0: connect there
    env: Mapping[str, str] = msgspec.field(default_factory=dict)


class ReadChannel(msgspec.Struct, frozen=True, omit_defaults=True, tag="read"):
    """Take output from an offset on; below 0 it counts from the end of what there is."""

    channel: str
    offset: int = 0
    limit: int = PIECE
    wait_s: float = 0.0


class WriteChannel(msgspec.Struct, frozen=True, omit_defaults=True, tag="write"):
    """Give input that begins at an offset; `eof`: there is no more."""

    channel: str
    offset: int = 0
    data: bytes = b""
    eof: bool = False
    rows: int = 0
    cols: int = 0
    wait_s: float = 0.0
    writer: str = ""  # each counts what they send


class CloseChannel(msgspec.Struct, frozen=True, tag="close"):
    """End it."""

    channel: str


class ListChannels(msgspec.Struct, frozen=True, tag="channels"):
    """Which there are."""


class ListFiles(msgspec.Struct, frozen=True, omit_defaults=True, tag="files"):
    """Which files a job has in one of its own folders, below a path and after another one."""

    folder: Literal["work", "checkpoint"] = "work"
    path: str = ""
    after: str = ""
    limit: int = 1_000


class ReadFile(msgspec.Struct, frozen=True, omit_defaults=True, tag="file"):
    """A piece of one of them."""

    path: str
    folder: Literal["work", "checkpoint"] = "work"
    offset: int = 0
    limit: int = PIECE


RunCall: TypeAlias = OpenChannel | ReadChannel | WriteChannel | CloseChannel | ListChannels
FileCall: TypeAlias = ListFiles | ReadFile


class FoundFile(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A plain file of a job."""

    path: str
    size: int
    mtime_ns: int
    executable: bool = False


class OpenedChannel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel that is there."""

    channel: str
    kind: str  # exec, port or terminal
    tty: bool = False


class CallAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a call. `offset`: where `data` begins. `taken`: input so far."""

    data: bytes = b""
    offset: int = 0
    taken: int = 0
    channels: tuple[OpenedChannel, ...] = ()
    files: tuple[FoundFile, ...] = ()  # `taken`: 1 if there are more
    skipped: tuple[str, ...] = ()  # paths of what is no plain file: links, pipes, ...
    error: str = ""
    wrong: Literal["", "missing", "conflict", "busy"] = ""


def missing(why: str) -> CallAnswer:
    """There is no such thing."""
    return CallAnswer(error=why, wrong="missing")


def conflict(why: str) -> CallAnswer:
    """It cannot be now."""
    return CallAnswer(error=why, wrong="conflict")


class LaneCall(msgspec.Struct, frozen=True):
    """A call on its way to an agent."""

    id: int
    job: str
    run: str
    node_rank: int
    call: RunCall | FileCall


class PieceRequest(msgspec.Struct, frozen=True):
    """An agent wants a piece of what was sent for a job that it shall start."""

    job: str
    digest: str


class LaneAnswer(msgspec.Struct, frozen=True):
    """An answer on its way back."""

    id: int
    answer: CallAnswer


class LaneReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent brings answers, and takes calls if it waits for them."""

    agent: str
    answers: tuple[LaneAnswer, ...] = ()
    wait_s: float = 0.0


class LaneOrders(msgspec.Struct, frozen=True, omit_defaults=True):
    """Calls for an agent."""

    calls: tuple[LaneCall, ...] = ()
    error: str = ""
