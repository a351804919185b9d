"""Words for people: what a reason means, and how long something took."""

from datetime import UTC, datetime

from rota.core.events import INF
from rota.core.reasons import Reason

TEXTS = {
    Reason.ORDER: "others are served first",
    Reason.CAPACITY: "fewer GPUs are free than it asks for",
    Reason.FRAGMENTATION: "enough GPUs are free, but not in places where it could run",
    Reason.QUOTA: "a limit of its tenant, queue, QOS or user is reached",
    Reason.GANG: "only a part of it could start",
    Reason.CONSTRAINT: "too little is free of the kind that it requires (GPU type, label, memory)",
    Reason.ADMISSION: "it is kept out of the queue",
    Reason.DEPENDENCY: "it waits for another job",
    Reason.OVERHEAD: "it was being started, stopped or moved",
    Reason.DOWN: "the node under it failed",
    Reason.BACKOFF: "it failed, and is tried again after a while",
    Reason.ARRAY: "as many of its array as may are in the queue or run",
    Reason.MAINTENANCE: "it would not end before the maintenance of nodes that it needs",
    Reason.RESERVED: "it would not end before nodes that it needs are reserved for others",
    Reason.MEMORY: "there are GPUs for it, but too little of their memory is free",
}
"""What each reason means, while it holds."""


def counted(number: int, noun: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def gpus_of(count: float) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count:g} GPU{'' if count == 1 else 's'}"


NONE = "-"
_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))

_TOO_LONG_S = 1e13  # too many days to read


def duration(seconds: float | None) -> str:
    """`37.5 s`, `4m 05s`, `2h 04m`, `3d 04h`: rounded to the smaller unit; None: `-`."""
    if seconds is None or seconds != seconds:  # noqa: PLR0124 - not a number
        return NONE
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds == INF:
        return "for ever"
    for size, name, small, small_name in _UNITS if seconds < _TOO_LONG_S else ():
        whole = round(seconds / small) * small
        if whole >= size:
            large, rest = divmod(whole, size)
            return f"{large:,}{name} {rest // small:02}{small_name}"
    return f"{seconds:.3g} s"


def brief(seconds: float) -> str:
    """A round time, as on an axis: `10m`, `2h`; any other as `duration` writes it."""
    text = duration(seconds)
    return text.removesuffix(" 00s").removesuffix(" 00m").removesuffix(" 00h")


def moment(unix_s: float) -> str:
    """A point in time for everybody, wherever they are: `2026-03-01 08:30 UTC`."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
