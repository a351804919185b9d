"""Records of `sacct --json`, from any version of Slurm.

Up to 22.05 (v0.0.38) numbers are plain and a state is a word; later versions wrap numbers as
`{"set": true, "infinite": false, "number": 3}` and give states as lists. Times are seconds since
1970, 0: none.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import TraceError
from rota.core.workload import Quality
from rota.traces.formats.slurm.fields import Amounts, NodeSharing, amounts_of, read_nodes, together
from rota.traces.formats.slurm.records import SlurmParams, SlurmRecord
from rota.traces.sources import decode, read_bytes

BAD = "record that cannot be read"
FOREVER = 4_294_967_290  # Slurm writes "no value" and "no limit" as the largest numbers
MINUTE_S = 60.0
_MIB = 2.0**20
_MOST = 1e12


class _File(msgspec.Struct):
    jobs: list[Any]


def read_json(
    path: Path, params: SlurmParams, sharing: NodeSharing
) -> tuple[list[SlurmRecord], Quality]:
    """All records; a record without an id or a time is refused, or dropped with `bad=drop`."""
    entries = _decode(path)
    quality = Quality(rows=len(entries))
    records = []
    for number, entry in enumerate(entries):
        record, problem = _examined(entry, sharing)
        if record is not None:
            records.append(record)
        elif params.bad == "refuse":
            raise TraceError(
                f"{path}: jobs[{number}]: {problem}: correct it, or leave such records out with "
                f"the option bad=drop"
            )
        else:
            quality.drop(BAD)
    return records, quality


def _decode(path: Path) -> list[Any]:
    data = read_bytes(path, TraceError)
    decode(data, path, TraceError)
    try:
        jobs = msgspec.json.decode(data, type=_File).jobs
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(
            f"{path}: is not what `sacct --json` prints ({error}): it has the key jobs"
        ) from error
    if not jobs:
        raise TraceError(f"{path}: holds no jobs: ask sacct for a longer time")
    return jobs


def _examined(entry: Any, sharing: NodeSharing) -> tuple[SlurmRecord | None, str]:
    """The record, or what is wrong with it."""
    if not isinstance(entry, Mapping):
        return None, "is not an object"
    number = _number(entry.get("job_id"))
    if not number:
        return None, "has no job_id"
    times = _part(entry, "time")
    if not _time(times, "submission") and not _time(times, "start"):
        return None, "has no time of submission"
    try:
        nodes = read_nodes(_nodes(entry))
    except TraceError as error:
        return None, str(error)
    return _record(entry, int(number), times, nodes, sharing), ""


def _record(
    entry: Mapping[str, Any],
    number: int,
    times: Mapping[str, Any],
    nodes: tuple[str, ...],
    sharing: NodeSharing,
) -> SlurmRecord:
    array, het = _part(entry, "array"), _part(entry, "het")
    task, leader = _number(array.get("task_id")), int(_number(het.get("job_id")) or 0)
    whole = int(_number(array.get("job_id")) or 0)
    waiting = array.get("task")
    name = str(number)
    if whole and task is not None:
        name = f"{whole}_{int(task)}"
    elif whole and isinstance(waiting, str) and waiting:
        name = f"{whole}_[{waiting.strip('[]')}]"
    submit_s, start_s = _time(times, "submission"), _time(times, "start")
    limit, priority = _number(times.get("limit")), _number(entry.get("priority"))
    return SlurmRecord(
        id=f"{leader}+{int(_number(het.get('job_offset')) or 0)}" if leader else name,
        raw=str(number),
        leader=str(leader) if leader else "",
        user=_text(entry, "user") or _text(_part(entry, "association"), "user"),
        account=_text(entry, "account"),
        partition=_text(entry, "partition"),
        qos=_text(entry, "qos"),
        priority=None if priority is None else int(priority),
        name=_text(entry, "name"),
        state=_state(_part(entry, "state").get("current")),
        submit_s=submit_s or start_s,
        eligible_s=_time(times, "eligible"),
        start_s=start_s,
        end_s=_time(times, "end"),
        elapsed_s=_number(times.get("elapsed")),
        limit_s=limit * MINUTE_S if limit else None,
        asked=_amounts(entry, len(nodes), sharing),
        nodes=nodes,
        line=_text(entry, "submit_line"),
        batch=_batch(entry, sharing),
    )


def _amounts(entry: Mapping[str, Any], nodes: int, sharing: NodeSharing) -> Amounts:
    tres = _part(entry, "tres")
    got, asked = (amounts_of(_tres(tres.get(key)), sharing) for key in ("allocated", "requested"))
    best = together(got, asked)
    cpus = best.cpus or _number(_part(entry, "required").get("CPUs")) or 0.0
    return msgspec.structs.replace(best, cpus=cpus, nodes=nodes)


def _batch(entry: Mapping[str, Any], sharing: NodeSharing) -> tuple[str, float] | None:
    """The node of the batch step, and the GPUs of the job there."""
    steps = entry.get("steps")
    for step in steps if isinstance(steps, Sequence) else ():
        if isinstance(step, Mapping) and _text(_part(step, "step"), "name") == "batch":
            try:
                nodes = read_nodes(_nodes(step))
            except TraceError:
                return None
            held = amounts_of(_tres(_part(step, "tres").get("allocated")), sharing)
            return (nodes[0], held.gpus) if len(nodes) == 1 else None
    return None


def _tres(entries: Any) -> list[tuple[str, float]]:
    """(name as in the text form, amount); memory is in MiB."""
    found = []
    for entry in entries if isinstance(entries, Sequence) else ():
        if not isinstance(entry, Mapping):
            continue
        kind, name = _text(entry, "type"), _text(entry, "name")
        amount = _number(entry.get("count")) or 0.0
        full = f"{kind}/{name}" if name else kind
        found.append((full, amount * _MIB if full == "mem" else amount))
    return found


def _nodes(entry: Mapping[str, Any]) -> str:
    """A list in brackets; some versions wrap it."""
    nodes = entry.get("nodes")
    if isinstance(nodes, Mapping):
        nodes = nodes.get("range") or nodes.get("list")
    if isinstance(nodes, list):
        return ",".join(name for name in nodes if isinstance(name, str))
    return nodes if isinstance(nodes, str) else ""


def _state(value: Any) -> str:
    """A word, or the first of a list (others are flags)."""
    words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return next((word.upper() for word in words if isinstance(word, str) and word), "")


def _part(entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = entry.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _time(times: Mapping[str, Any], key: str) -> float | None:
    """Seconds since 1970; 0 is none."""
    return _number(times.get(key)) or None


def _number(value: Any) -> float | None:
    """A number, plain or wrapped; None: not set, without limit, or no number."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not isfinite(value) or not 0 <= value < _MOST or FOREVER < value < FOREVER + 6:
        return None
    return float(value)
