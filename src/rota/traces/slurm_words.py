"""What Slurm writes in its fields: amounts (TRES, GRES), time limits, states, lists of nodes."""

import re
from collections.abc import Iterable

import msgspec

from rota.core.errors import TraceError
from rota.core.hostlist import expand
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

_GRES = re.compile(r"(?:^|[,/:])gpu(?:[:/]([^:=,()]*[^:=,()\d][^:=,()]*))?[:=](\d+)")
_LIMIT = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))?(?:\.\d+)?")
_SIZES = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50}
_GIB = 2.0**30
_AFTER = re.compile(r"(?:^|\s)(?:-d|--dependency)[=\s]*(\S+)")
_ENDS = ("afterok", "afterany", "afternotok", "aftercorr")
_MOST_DIGITS = 15


class Amounts(msgspec.Struct, frozen=True):
    """What a job asked for or got, in all; `gpu_type` only if there is exactly one."""

    gpus: float = 0.0
    gpu_type: str = ""
    cpus: float = 0.0
    mem_gib: float = 0.0
    nodes: int = 0


def state_of(text: str) -> str:
    """Slurm's word for a state, from `CANCELLED by 1000` or `RUNNING+`."""
    words = text.split()
    return words[0].rstrip("+").upper() if words else ""


def observed_state(word: str) -> str:
    """Ours (see `observed`)."""
    return STATES.get(word, UNKNOWN)


def read_tres(text: str) -> Amounts:
    """From `billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1`."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return amounts_of((name.strip(), _size(value)) for name, _, value in pairs)


def amounts_of(tres: Iterable[tuple[str, float]]) -> Amounts:
    """From (name, amount): memory in bytes, `gres/gpu` in all and `gres/gpu:TYPE` for a type."""
    total = cpus = mem = nodes = 0.0
    types: dict[str, float] = {}
    for name, amount in tres:
        if name == "gres/gpu":
            total = amount
        elif name.startswith("gres/gpu:"):
            types[name.removeprefix("gres/gpu:")] = amount
        elif name == "cpu":
            cpus = amount
        elif name == "mem":
            mem = amount
        elif name == "node":
            nodes = amount
    held = [kind for kind, amount in types.items() if amount]
    return Amounts(
        gpus=total or sum(types.values()),
        gpu_type=held[0] if len(held) == 1 else "",
        cpus=cpus,
        mem_gib=mem / _GIB,
        nodes=int(nodes),
    )


def read_gres(text: str, nodes: int) -> Amounts:
    """From `gpu:8` or `gpu:a100:8`, per node, as older versions write it."""
    types: dict[str, float] = {}
    for kind, count in _GRES.findall(text):
        types[kind] = types.get(kind, 0.0) + float(count[:_MOST_DIGITS])
    held = [kind for kind in types if kind]
    return Amounts(
        gpus=sum(types.values()) * max(nodes, 1),
        gpu_type=held[0] if len(held) == 1 == len(types) else "",
        nodes=nodes,
    )


def gres_on_node(text: str) -> tuple[int, str]:
    """GPUs of a node and their type, from `gpu:a100:4(S:0-1),shard:8`."""
    found = read_gres(re.sub(r"\([^)]*\)", "", text), 1)
    return int(found.gpus), found.gpu_type


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
