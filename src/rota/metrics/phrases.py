"""What stands behind a part of a job's waiting, in a few words that go on from `30 min ...`."""

from collections.abc import Sequence
from typing import Protocol

from rota.core.jobs import LABELLED
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.words import duration, gpus_of

FEW = 5
_OVERHEAD = {
    Record.START: "being started",
    Record.MOVE: "being moved",
    Record.STOP: "being stopped",
    Record.EVICTED: "being stopped",
}


class RoomPhrases(Protocol):
    """GPUs that were free: for most of the time, on how many nodes, and the range."""

    free_gpus: float | None
    free_nodes: int | None
    free_least: float | None
    free_most: float | None


def phrase(
    reason: Reason,
    *,
    asked: str,
    gpus: float,
    ahead: Sequence[str],
    room: RoomPhrases | None,
) -> str:
    """For one reason.

    Args:
        reason: Why it waited.
        asked: What the job asked for, in words.
        gpus: How many GPUs of it.
        ahead: Jobs to name.
        room: What was free.
    """
    if reason == Reason.ORDER:
        return f"behind jobs that were served first ({few(ahead)})" if ahead else "behind others"
    if reason == Reason.DEPENDENCY:
        return f"until {few(ahead)} was done" if ahead else "for another job"
    asked = asked.replace(LABELLED, LABELLED.lstrip(","))
    if reason == Reason.CAPACITY:
        return f"for want of {asked}" + _free(room)
    if reason == Reason.CONSTRAINT:
        return f"for want of {asked} ({_in_all(room, gpus)}, but not enough on nodes of that kind)"
    although = "although " + _spread(room, gpus)
    in_spite = {
        Reason.FRAGMENTATION: although,
        Reason.MEMORY: f"for want of GPU memory ({asked}), {although}",
        Reason.GANG: f"{_PLAIN[Reason.GANG]}, {although}",
    }
    return in_spite.get(reason) or _PLAIN[reason]


_PLAIN = {
    Reason.QUOTA: "because of a limit of its tenant, queue, QOS or user",
    Reason.GANG: "because only a part of it could start",
    Reason.ADMISSION: "kept out of the queue",
    Reason.OVERHEAD: "being started, stopped or moved",
    Reason.DOWN: "after its node had failed",
    Reason.BACKOFF: "after it had failed, until it was to be tried again",
    Reason.ARRAY: "because as many of its array as may were in the queue or running",
    Reason.MAINTENANCE: "because it would not have ended before the maintenance of nodes",
    Reason.RESERVED: "because it would not have ended before nodes were reserved for others",
    Reason.UNKNOWN: "for a reason that is not known (the log does not tell)",
}


def overhead_of(kind: int) -> str:
    """What was done to it, by the row at which it began."""
    return _OVERHEAD.get(Record(kind), _PLAIN[Reason.OVERHEAD])


def few(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    shown = ", ".join(names[:FEW])
    return shown if len(names) <= FEW else f"{shown} and {len(names) - FEW} more"


def times_of(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"


def place_of(nodes: Sequence[str], gpus: float) -> str:
    """`on n1 (4 GPUs)`; without nodes: `on 4 GPUs`."""
    return f"on {few(nodes)} ({gpus_of(gpus)})" if nodes else f"on {gpus_of(gpus)}"


def lost_of(seconds: float, state: str) -> str:
    """What became of work that was lost; empty: none was."""
    if not seconds:
        return ""
    again = {"done": " and done again", "unfinished": " and must be done again"}.get(state, "")
    return f"{duration(seconds)} of work were lost{again}"


def _range(room: RoomPhrases) -> str:
    if room.free_least == room.free_most:
        return f"{gpus_of(room.free_least or 0.0)} {'was' if room.free_least == 1 else 'were'} free"
    return f"{room.free_least:g} to {room.free_most:g} GPUs were free"


def _free(room: RoomPhrases | None) -> str:
    return f" ({_range(room)})" if room else ""


def _in_all(room: RoomPhrases | None, gpus: float) -> str:
    """On the whole cluster, also where a job may not run."""
    if room is None:
        return f"{gpus_of(gpus)} were free in all"
    freed = " and others were being freed" if (room.free_most or 0.0) < gpus else ""
    return f"{_range(room)} in all{freed}"


def _spread(room: RoomPhrases | None, gpus: float) -> str:
    if room is None:
        return f"{gpus_of(gpus)} were free"
    if not room.free_nodes:
        return _range(room)
    if (room.free_most or 0.0) < gpus:  # decided on what was being freed as well
        return f"{_range(room)} and others were being freed"
    nodes = "on 1 node" if room.free_nodes == 1 else f"spread over {room.free_nodes} nodes"
    return f"{_range(room)}, {nodes}"
