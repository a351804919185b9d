"""What Slurm writes in its fields: amounts (TRES, GRES), limits, states, lists of nodes, times.

Parts of GPUs: an instance of MIG (`gres/gpu:a100_3g.20gb`) is that many of 7 parts of a GPU (3/7),
with `mig=whole` a GPU. Of shards (`gres/shard`) as many make a GPU as nodes have for each of theirs
(`nodes=FILE`, or `shards=4`); if nobody says, a job with shards counts as one GPU. 100 of
`gres/mps` make a GPU. The report counts jobs with parts.

Times are local, without a zone, so that an hour in autumn is there twice. With `tz=Europe/Berlin`
they become seconds since 1970, and of a time that is there twice the one is taken that fits the
elapsed time of the record (`ElapsedRaw`), or the order of events where that says nothing. Without
`tz` they are taken as a clock that runs evenly. Where start and end then differ from the elapsed
time by an hour, the report suggests a zone that would explain it, and with `tz` it counts times
that the zone does not have. Seconds since 1970 (`SLURM_TIME_FORMAT=%s`) and times with an offset
are understood too.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import product
from math import ceil
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from rota.core.errors import OptionError, TraceError
from rota.core.hostlist import expand
from rota.core.sums import ordered_sum
from rota.core.words import counted
from rota.traces.observed import (
    CANCELLED,
    DONE,
    FAILED,
    NODE_FAIL,
    PREEMPTED,
    RUNNING,
    TIMEOUT,
    UNKNOWN,
)

MISSING = ("", "Unknown", "None", "None assigned", "N/A", "(null)", "INVALID")
STATES = {
    "COMPLETED": DONE,
    "COMPLETING": RUNNING,
    "FAILED": FAILED,
    "BOOT_FAIL": NODE_FAIL,
    "OUT_OF_MEMORY": FAILED,
    "CANCELLED": CANCELLED,
    "REVOKED": CANCELLED,
    "TIMEOUT": TIMEOUT,
    "DEADLINE": TIMEOUT,
    "NODE_FAIL": NODE_FAIL,
    "PREEMPTED": PREEMPTED,
    "REQUEUED": PREEMPTED,
    "RUNNING": RUNNING,
    "RESIZING": RUNNING,
    "SUSPENDED": RUNNING,
    "STOPPED": RUNNING,
    "SIGNALING": RUNNING,
    "STAGE_OUT": RUNNING,
}
FINAL = (DONE, FAILED, CANCELLED, TIMEOUT)
PENDING = (
    "PENDING", "CONFIGURING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT",
)  # fmt: skip

WORDS = (*STATES, *PENDING)

_GRES = re.compile(r"(?:^|[,/:])gpu(?:[:/]([^:=,()]*[^:=,()\d][^:=,()]*))?[:=](\d+)")
_LIMIT = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))?(?:\.\d+)?")
_SIZES = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50}
_GIB = 2.0**30
_AFTER = re.compile(r"(?:^|\s)(?:-d|--dependency)[=\s]*(\S+)")
_ENDS = ("afterok", "afterany", "afternotok", "aftercorr")
_MOST_DIGITS = 15
_MIG = re.compile(r"(?:(.*?)[_-])?(\d)g\.\d+gb(?:[+.]me)?", re.IGNORECASE)
_SEVENTHS = 7
_FIT = {1: 7, 2: 3, 3: 2, 4: 1, 7: 1}
"""Instances of one kind that fit a GPU: memory limits them, too."""
_MPS = 100.0
_NODE_SHARDS = re.compile(r"(?:^|,)shard(?::[^:,()]*[^:,()\d][^:,()]*)?:(\d{1,6})")

MIG = "instances of MIG: counted as sevenths of a GPU"
WHOLE = "instances of MIG: counted as GPUs (mig=whole)"
SHARD = "shards: counted as parts of a GPU"
OPEN_SHARD = (
    "shards, and nobody says how many make a GPU: counted as one GPU: give nodes=FILE or shards=N"
)
MPS = "parts of a GPU by MPS: 100 count as a GPU"


class NodeSharing(msgspec.Struct, frozen=True):
    """What parts of GPUs count: so many shards make one (0: not known), instances of MIG."""

    shards: float = 0.0
    mig: Literal["share", "whole"] = "share"


class Amounts(msgspec.Struct, frozen=True):
    """What a job asked for or got, in all; `gpu_type` only if there is exactly one.

    `part`: how parts of GPUs were counted; empty: there are none.
    """

    gpus: float = 0.0
    gpu_type: str = ""
    cpus: float = 0.0
    mem_gib: float = 0.0
    nodes: int = 0
    part: str = ""


def state_of(text: str) -> str:
    """Slurm's word for a state, from `CANCELLED by 1000` or `RUNNING+`."""
    words = text.split()
    return words[0].rstrip("+").upper() if words else ""


def observed_state(word: str) -> str:
    """Ours (see `observed`)."""
    return STATES.get(word, UNKNOWN)


def read_tres(text: str, sharing: NodeSharing = NodeSharing()) -> Amounts:  # noqa: B008 - frozen
    """From `billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1`."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return amounts_of(((name.strip(), _size(value)) for name, _, value in pairs), sharing)


def amounts_of(tres: Iterable[tuple[str, float]], sharing: NodeSharing) -> Amounts:
    """From (name, amount): memory in bytes, `gres/gpu` in all and `gres/gpu:TYPE` for a type."""
    found: dict[str, float] = {}
    types: dict[str, float] = {}
    for name, amount in tres:
        if name.startswith("gres/gpu:"):
            types[name.removeprefix("gres/gpu:")] = amount
        elif name.startswith(("gres/shard:", "gres/mps:")):
            found.setdefault(name.rpartition(":")[0], amount)
        else:
            found[name] = amount
    gpus, gpu_type, part = _gpus_of(types, found.get("gres/gpu", 0.0), sharing)
    for name, count in (("gres/shard", sharing.shards), ("gres/mps", _MPS)):
        amount = found.get(name, 0.0)
        if amount:
            gpus = round(gpus + (amount / count if count else 1.0), 6)
            part = MPS if name == "gres/mps" else SHARD if count else OPEN_SHARD
    return Amounts(
        gpus=gpus,
        gpu_type=gpu_type,
        cpus=found.get("cpu", 0.0),
        mem_gib=found.get("mem", 0.0) / _GIB,
        nodes=int(found.get("node", 0.0)),
        part=part,
    )


def together(got: Amounts, asked: Amounts) -> Amounts:
    """What it got, or else asked for; the GPU type, and parts that only this tells, as asked."""
    best = got if got.gpus or got.cpus else asked
    parts = asked if asked.part and not best.part else best
    return Amounts(
        parts.gpus or asked.gpus, asked.gpu_type, best.cpus, best.mem_gib, best.nodes,
        parts.part,
    )  # fmt: skip


def _gpus_of(types: dict[str, float], total: float, sharing: NodeSharing) -> tuple[float, str, str]:
    """GPUs in all (`total`: with those without a type), their type, and how parts were counted."""
    held = {kind: amount for kind, amount in types.items() if amount}
    bases = {kind: _MIG.fullmatch(kind) for kind in held}
    names = {(match[1] or "") if match else kind for kind, match in bases.items()}
    gpu_type = names.pop() if len(names) == 1 else ""
    if not any(bases.values()):
        return total or ordered_sum(held.values()), gpu_type, ""
    if sharing.mig == "whole":
        return max(total, ordered_sum(held.values())), gpu_type, WHOLE
    gpus = max(total - ordered_sum(held.values()), 0.0)
    for kind, amount in held.items():
        match = bases[kind]
        gpus += amount * int(match[2]) / _SEVENTHS if match else amount
    return round(gpus, 6), gpu_type, MIG


def read_gres(text: str, nodes: int, sharing: NodeSharing = NodeSharing()) -> Amounts:  # noqa: B008 - frozen
    """From `gpu:8` or `gpu:a100:8`, per node, as older versions write it."""
    types = _gres_types(text)
    untyped = types.pop("", 0.0)
    gpus, gpu_type, part = _gpus_of(types, untyped + ordered_sum(types.values()), sharing)
    many = max(nodes, 1)
    return Amounts(
        gpus=round(gpus * many, 6), gpu_type="" if untyped else gpu_type, nodes=nodes, part=part
    )


def _gres_types(text: str) -> dict[str, float]:
    types: dict[str, float] = {}
    for kind, count in _GRES.findall(text):
        types[kind] = types.get(kind, 0.0) + float(count[:_MOST_DIGITS])
    return types


def gres_on_node(text: str) -> tuple[int, str]:
    """GPUs of a node and their type, from `gpu:a100:4(S:0-1),shard:8`; a divided one is one."""
    types = _gres_types(_without_sockets(text))
    untyped = types.pop("", 0.0)
    gpus, gpu_type, _ = _gpus_of(types, untyped + ordered_sum(types.values()), NodeSharing())
    if len(types) == 1 and not untyped:  # all of one kind: no more fit than memory allows
        kind, many = next(iter(types.items()))
        match = _MIG.fullmatch(kind)
        gpus = many / _FIT.get(int(match[2]), 1) if match else many
    return ceil(gpus - 1e-6), "" if untyped else gpu_type


def shards_on_node(text: str) -> float:
    """Shards for each GPU of a node; 0: it has none."""
    text = _without_sockets(text)
    gpus = gres_on_node(text)[0]
    return ordered_sum(map(float, _NODE_SHARDS.findall(text))) / gpus if gpus else 0.0


def _without_sockets(text: str) -> str:
    return re.sub(r"\([^)]*\)", "", text)


def read_limit(text: str) -> float | None:
    """Seconds of a time limit in minutes (`90`) or as `D-HH:MM:SS`; None: there is none."""
    match = _LIMIT.fullmatch(text.strip())
    if not match:
        return None  # UNLIMITED, Partition_Limit, INVALID
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match[1]:
        seconds = days * 86_400 + first * 3_600 + second * 60 + third
    elif match[4]:
        seconds = first * 3_600 + second * 60 + third
    elif match[3]:
        seconds = first * 60 + second
    else:
        seconds = first * 60
    return float(seconds) or None


def read_nodes(text: str) -> tuple[str, ...]:
    """The nodes of a list; none for `None assigned`."""
    return () if text.strip() in MISSING else expand(text.strip(), TraceError)


def dependencies(line: str) -> list[str]:
    """Ids that a submission waits for to end, from its command line."""
    found = []
    for given in _AFTER.findall(line):
        for part in re.split(r"[,?]", given.strip("'\"")):
            kind, _, ids = part.partition(":")
            if kind in _ENDS:
                found += [name.partition("+")[0] for name in ids.split(":") if name]
    return list(dict.fromkeys(found))


def _size(text: str) -> float:
    """A number that may end with K, M, G, T or P; what is no number is 0."""
    text = text.strip()
    unit = _SIZES.get(text[-1:].upper(), 0.0)
    digits = text[:-1] if unit else text
    if not re.fullmatch(r"\d{1,15}(\.\d{1,9})?", digits):
        return 0.0
    return float(digits) * (unit or 1.0)


_MOST_TIME_DIGITS = 11
_HOUR_S = 3_600.0
_NEAR_S = 2.0
_LOOKED_AT = 500
_USUAL = (
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Helsinki", "America/New_York",
    "America/Chicago", "America/Denver", "America/Los_Angeles", "Australia/Sydney",
)  # fmt: skip
"""Zones to suggest: those whose clocks change at different moments."""


# --- times ---------------------------------------------------------------------------------------


class Clock:
    """Turns texts into seconds since 1970."""

    def __init__(self, zone: str) -> None:
        self._zone: tzinfo = UTC if not zone else _zone(zone)
        self._double = bool(zone)
        self._known: dict[str, tuple[float, float] | None] = {}
        self.skipped: set[str] = set()
        """Times that were read although there is no such time: the clock was set forward."""

    @property
    def zoned(self) -> bool:
        """Times are those of a zone, where an hour may be there twice."""
        return self._double

    def read(self, text: str) -> tuple[float, float] | None:
        """The time, and the time if the clock had been set back before it; None: no time."""
        text = text.strip()
        if text not in self._known:
            self._known[text] = self._parsed(text)
        return self._known[text]

    def _parsed(self, text: str) -> tuple[float, float] | None:
        if text.isdecimal() and len(text) <= _MOST_TIME_DIGITS:
            return (float(text), float(text)) if int(text) else None
        try:
            time = datetime.fromisoformat(text)
            if time.tzinfo is not None:
                return (time.timestamp(), time.timestamp())
            first = time.replace(tzinfo=self._zone).timestamp()
            second = time.replace(tzinfo=self._zone, fold=1).timestamp()
        except (ValueError, OverflowError):
            return None
        if second < first:
            self.skipped.add(text)
        return first, max(first, second) if self._double else first

    def wrong(self, text: str) -> bool:
        """It is neither a time nor a word for none."""
        return text.strip() not in (*MISSING, "0") and self.read(text) is None

    def ordered(
        self, texts: Sequence[str], elapsed_s: float | None
    ) -> tuple[float | None, float | None, float | None, float | None]:
        """Submission, eligible, start, end: as long as it took, and in order if possible."""
        submit, eligible, start, end = texts
        submit_s = self._first(submit, None)
        eligible_s = self._first(eligible, submit_s)
        after_s = eligible_s if eligible_s is not None else submit_s
        starts_s, ends_s = self.read(start), self.read(end)
        if starts_s is None or ends_s is None or elapsed_s is None:
            start_s = self._first(start, after_s)
            return submit_s, eligible_s, start_s, self._first(end, start_s)

        def misfit(span: tuple[float, float]) -> tuple[bool, float, bool]:
            off_s = span[1] - span[0] - elapsed_s
            return off_s < -_NEAR_S, abs(off_s), after_s is not None and span[0] < after_s

        start_s, end_s = min(product(starts_s, ends_s), key=misfit)
        return submit_s, eligible_s, start_s, end_s

    def _first(self, text: str, after_s: float | None) -> float | None:
        choices = self.read(text)
        if choices is None:
            return None
        early_s, late_s = choices
        return late_s if after_s is not None and early_s < after_s <= late_s else early_s


Ran = tuple[float, float, float]
"""Start, end and seconds that passed in between."""


def hour_off(ran: Ran) -> bool:
    """It is an hour too long or too short."""
    return abs(abs(ran[1] - ran[0] - ran[2]) - _HOUR_S) <= _NEAR_S


def suggested(those: Sequence[Ran], zone: str) -> str:
    """A note on runs that are an hour off, if another zone than this would explain some of them."""
    known = ZoneInfo(zone) if zone else UTC
    some = those[:: 1 + len(those) // _LOOKED_AT]
    spans = [[_local(time_s, known) for time_s in ran[:2]] for ran in some]
    best, most = "", 0
    for name in _USUAL:
        try:
            clock = Clock(name)
        except OptionError:  # this machine does not know it
            continue
        fits = 0
        for (start, end), (_, _, took_s) in zip(spans, some, strict=True):
            _, _, start_s, end_s = clock.ordered(("", "", start, end), took_s)
            fits += abs((end_s or 0.0) - (start_s or 0.0) - took_s) <= _NEAR_S
        if fits > most and not clock.skipped:
            best, most = name, fits
    if not most:
        return ""
    return (
        f"start and end of {counted(len(those), 'run')} are an hour more or less apart than "
        f"ElapsedRaw says, as where clocks are changed: a time zone would explain {most:,} of "
        f"{len(some):,} looked at, e.g. tz={best}"
    )


def _local(time_s: float, zone: tzinfo) -> str:
    try:
        return datetime.fromtimestamp(time_s, zone).replace(tzinfo=None).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OptionError(
            f"format sacct: tz={name} is not a known time zone: write e.g. tz=Europe/Berlin"
        ) from error
